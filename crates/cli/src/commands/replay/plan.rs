//! `onceward replay plan`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onceward_console::view::campaign_json;
use onceward_core::Timestamp;
use onceward_core::campaign::{CampaignKind, Finding, Pacing, RATE_PER_S_MAX, Verification};
use onceward_core::store::{Campaign, ItemQuery, PlanCampaign, Replay, Selection, Source, Status};
use serde_json::json;

use super::show::summary;
use crate::commands::acting::{ActorArgs, case_number, of_name, past, refusal};
use crate::error::{Code, EXIT_USAGE, Error};
use crate::output::{Output, align_right, table};
use crate::store::Opened;

/// Options of `replay plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: String,
    /// What to do with what is done already
    #[arg(long, value_enum, default_value_t = KindArg::Resend)]
    kind: KindArg,
    /// Where the messages come from
    #[arg(long, value_enum, default_value_t = SourceArg::Cases)]
    of: SourceArg,
    /// Which.
    #[command(flatten)]
    which: WhichArgs,
    /// How fast, and when to stop.
    #[command(flatten)]
    pace: PaceArgs,
    /// Do not keep messages back for this finding; several may be given
    #[arg(long = "accept", value_name = "FINDING", value_parser = finding)]
    accept: Vec<Finding>,
    /// Most messages; what is left can be planned with --after
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max: u32,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Which messages.
#[derive(Debug, Args)]
struct WhichArgs {
    /// Only this case; several may be given
    #[arg(long = "case", value_name = "CASE", value_parser = case_number)]
    cases: Vec<i64>,
    /// Only cases of this cause, see `quarantine groups`
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
    /// Only cases with this owner
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only messages of this type
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
    /// Only messages of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only cases opened, or messages recorded, since then: a moment, or so long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = past)]
    since: Option<Timestamp>,
    /// Only those before then
    #[arg(long, value_name = "WHEN", value_parser = past)]
    until: Option<Timestamp>,
    /// Only messages above this place in the log
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
}

/// How fast, and when to stop.
#[derive(Debug, Args)]
struct PaceArgs {
    /// Messages that go out first
    #[arg(long, value_name = "N", default_value_t = Pacing::default().canary)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    canary: u32,
    /// Messages a second, once it goes at full rate
    #[arg(long, value_name = "N", default_value_t = Pacing::default().rate_per_s)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RATE_PER_S_MAX)))]
    rate: u32,
    /// From a tenth of the rate to all of it in this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    #[arg(value_parser = humantime::parse_duration)]
    ramp: Duration,
    /// Messages without an outcome at any moment
    #[arg(long, value_name = "N", default_value_t = Pacing::default().in_flight_max)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: u32,
    /// Stop when this share fails, or more, in per cent; 0 stops at the first failure
    #[arg(long, value_name = "PERCENT", default_value_t = Pacing::default().stop_at_percent)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    failures: u8,
    /// Who says that the canary went well
    #[arg(long, value_enum, default_value_t = VerifyArg::Outcome)]
    verify: VerifyArg,
}

/// What to do with what is done already.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindArg {
    /// What the ledger has as done counts as done
    Resend,
    /// Have the effect once more; only where the subscription is declared repeatable
    Rerun,
}

/// Where the messages come from.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SourceArg {
    /// Cases that are not over
    Cases,
    /// The log, as far as the subscription has come
    Log,
}

/// Who says that the canary went well.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum VerifyArg {
    /// Its outcomes
    Outcome,
    /// A person, or a command, after its outcomes
    Person,
}

fn finding(text: &str) -> Result<Finding, String> {
    let acceptable = Finding::ALL.into_iter().filter(|one| !one.allows(&[]));
    let mut acceptable = acceptable.filter(|one| one.allows(&[*one]));
    let names: Vec<&str> = acceptable.clone().map(Finding::as_str).collect();
    acceptable.find(|one| one.as_str() == text).ok_or_else(|| {
        format!(
            "a finding that can be accepted is one of {}",
            names.join(", ")
        )
    })
}

impl PlanArgs {
    /// What only cases have says nothing of the log: taken for nothing, it would let out what nobody
    /// chose.
    fn check(&self) -> Result<(), Error> {
        let which = &self.which;
        let of_cases = [
            ("--case", !which.cases.is_empty()),
            ("--fingerprint", which.fingerprint.is_some()),
            ("--owner", which.owner.is_some()),
        ];
        match (self.of, of_cases.iter().find(|(_, is_given)| *is_given)) {
            (SourceArg::Log, Some((option, _))) => {
                let message = format!(
                    "nothing was planned: {option} chooses among cases; for messages of the log \
                     use --type, --key, --since, --until or --after"
                );
                Err(Error::new(Code::ActionRefused, message).with_exit(EXIT_USAGE))
            }
            _ => Ok(()),
        }
    }

    fn selection(&self) -> Selection {
        let source = match self.of {
            SourceArg::Cases => Source::Cases,
            SourceArg::Log => Source::Log,
        };
        Selection {
            case_ids: self.which.cases.clone(),
            fingerprint: self.which.fingerprint.clone(),
            owner: self.which.owner.clone(),
            message_type: self.which.message_type.clone(),
            key: self.which.key.clone(),
            from: self.which.since,
            before: self.which.until,
            after_seq: self.which.after,
            ..Selection::of(source)
        }
    }
}

impl PaceArgs {
    fn pacing(&self) -> Pacing {
        Pacing {
            canary: self.canary,
            rate_per_s: self.rate,
            ramp_ms: u64::try_from(self.ramp.as_millis()).unwrap_or(u64::MAX),
            in_flight_max: self.in_flight,
            stop_at_percent: self.failures,
            verification: match self.verify {
                VerifyArg::Outcome => Verification::Outcome,
                VerifyArg::Person => Verification::Person,
            },
        }
    }
}

pub(super) async fn plan<S: Replay + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &PlanArgs,
) -> Result<(), Error> {
    args.check()?;
    let who = args.by.who();
    let selection = args.selection();
    let request = PlanCampaign {
        subscription: &args.subscription,
        kind: match args.kind {
            KindArg::Resend => CampaignKind::Resend,
            KindArg::Rerun => CampaignKind::Rerun,
        },
        selection: &selection,
        pacing: args.pace.pacing(),
        accept: &args.accept,
        items_max: args.max,
        by: args.by.actor(&who),
    };
    let planned = opened.store.plan_campaign(request).await;
    let campaign = match planned {
        Ok(campaign) => campaign,
        Err(error) => {
            let error = refusal(opened.url, &error);
            return Err(of_name(opened, &args.subscription, error).await);
        }
    };
    let findings = count_findings(opened, &campaign).await?;
    if output.is_json() {
        let mut value = campaign_json(&campaign);
        let counts = findings
            .iter()
            .map(|(finding, (count, _))| (finding.as_str(), count));
        value["findings"] = json!(counts.collect::<BTreeMap<_, _>>());
        return output.json(&value);
    }
    output.line(&summary(&campaign))?;
    if !findings.is_empty() {
        let mut rows = table(&["FINDING", "MESSAGES", "GO OUT", "WHAT IT MEANS"]);
        for (finding, (count, goes_out)) in &findings {
            let goes_out = if *goes_out { "yes" } else { "no" };
            rows.add_row([
                finding.as_str(),
                &count.to_string(),
                goes_out,
                finding.explained(),
            ]);
        }
        align_right(&mut rows, &[1]);
        output.table(&rows)?;
    }
    say_more(output, &campaign);
    Ok(())
}

/// How often each finding was made, and whether it lets its messages go out.
async fn count_findings<S: Replay>(
    opened: Opened<'_, S>,
    campaign: &Campaign,
) -> Result<BTreeMap<Finding, (u64, bool)>, Error> {
    let mut findings = BTreeMap::new();
    let mut query = ItemQuery {
        campaign_id: campaign.campaign_id,
        rows_max: 1_000,
        ..ItemQuery::default()
    };
    loop {
        let items = opened.check(opened.store.campaign_items(query).await)?;
        let Some(last) = items.last() else {
            return Ok(findings);
        };
        query.after_seq = last.seq;
        for finding in items.iter().filter_map(|item| item.finding) {
            let goes_out = finding.allows(&campaign.accept);
            findings.entry(finding).or_insert((0, goes_out)).0 += 1;
        }
    }
}

fn say_more(output: Output, campaign: &Campaign) {
    if campaign.has_more {
        let after = campaign.last_seq;
        output.say(&format!(
            "more were found than a campaign takes: --after {after}"
        ));
    }
    if let Some(seen_to) = campaign.overtaken_seen_to {
        output.say(&format!(
            "later messages of the same keys were looked for up to place {seen_to} of the log only"
        ));
    }
    let number = campaign.campaign_id;
    if campaign.counts.left > 0 {
        output.say(&format!(
            "nothing has gone out yet: onceward replay start {number}"
        ));
    } else {
        output.say("none of these can go out: see --accept, and what the findings say");
    }
}
