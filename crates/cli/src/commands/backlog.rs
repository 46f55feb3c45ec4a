//! `onceward backlog`.

use std::collections::BTreeMap;

use clap::Args;
use onceward_core::Timestamp;
use onceward_core::campaign::CampaignState;
use onceward_core::group::Priority;
use onceward_core::hold::{HoldLimits, Limit};
use onceward_core::store::{
    Backlog, BacklogQuery, Campaign, CampaignQuery, Cases, DropCount, DropCountQuery, GroupBacklog,
    HeldQuery, LongHeld, Replay, Status, StillBecause, Upkeep, UpkeepReport,
};
use serde_json::{Value, json};

use super::acting::no_subscription;
use super::old_cases::{CASES_MS_DEFAULT, OldCases};
use super::refusing::Refusing;
use super::replay::campaign_json;
use super::subscription::{DROPS_COUNTED_MAX, count_text};
use crate::cli::Global;
use crate::config::Config;
use crate::error::Error;
use crate::output::{Output, age, age_since, align_right, now, plain, table};
use crate::store::Opened;

/// Options of `backlog`.
#[derive(Debug, Args)]
pub struct BacklogArgs {
    /// Only this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Where to stop counting what waits
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    count_max: u64,
    /// How many of the keys to name behind which messages have waited the longest
    #[arg(long, value_name = "N", default_value_t = 10)]
    keys_max: u32,
}

/// Shows what waits.
///
/// # Errors
/// When the store or standard output fails, or there is no such subscription.
pub async fn run<S: Status + Upkeep + Cases + Replay>(
    opened: Opened<'_, S>,
    output: Output,
    global: &Global,
    args: &BacklogArgs,
) -> Result<(), Error> {
    let mut names = opened.check(opened.store.subscriptions().await)?;
    if let Some(wanted) = &args.subscription {
        if !names.contains(wanted) {
            return Err(no_subscription(wanted, &names));
        }
        names.retain(|name| name == wanted);
    }
    let limits = limits(global);
    let mut backlogs = Vec::new();
    let mut held = Vec::new();
    for name in &names {
        let query = BacklogQuery {
            subscription: name,
            count_max: args.count_max,
            before: None,
        };
        backlogs.push(opened.check(opened.store.backlog(query).await)?);
        let query = HeldQuery {
            subscription: name,
            beyond: None,
            keys_max: args.keys_max,
        };
        let longest = opened.check(opened.store.longest_held(query).await)?;
        let limits = limits.get(name).copied().unwrap_or_default();
        // One that is deep and young would not be among those that have waited the longest.
        let query = HeldQuery {
            subscription: name,
            beyond: Some(limits),
            keys_max: args.keys_max,
        };
        let beyond = opened.check(opened.store.longest_held(query).await)?;
        held.push(HeldHere::of(limits, longest, beyond));
    }
    let mut drops = Vec::new();
    for name in &names {
        let query = DropCountQuery {
            subscription: name,
            count_max: DROPS_COUNTED_MAX,
        };
        drops.push(opened.check(opened.store.drop_counts(query).await)?);
    }
    let refusing = match Config::load(&global.config) {
        Ok(config) => Refusing::find(opened, &config.contract, &backlogs, args.count_max).await?,
        Err(_) => Vec::new(),
    };
    let tidied = opened.check(opened.store.last_tidy().await)?;
    let cases_ms = Config::load(&global.config).map_or(CASES_MS_DEFAULT, |config| config.cases_ms);
    let old = opened.check(OldCases::find(opened.store, cases_ms, now()).await)?;
    let campaigns = campaigns(opened, args.subscription.as_deref()).await?;
    if output.is_json() {
        return output.json(&json!({
            "campaigns": campaigns.iter().map(campaign_json).collect::<Vec<Value>>(),
            "subscriptions": backlogs.iter().zip(&held).zip(&drops)
                .map(|((backlog, held), drops)| backlog_json(backlog, held, drops))
                .collect::<Vec<Value>>(),
            "refusing": refusing,
            "retention": tidied.map(|(at, report)| retention_json(at, &report)),
            "cases_past_retention": old,
        }));
    }
    for_people(output, &backlogs)?;
    for line in backlogs.iter().flat_map(group_lines) {
        output.line(&line)?;
    }
    for line in backlogs.iter().filter_map(pace_line) {
        output.line(&line)?;
    }
    for (backlog, held) in backlogs.iter().zip(&held) {
        for line in held.lines(&backlog.subscription) {
            output.line(&line)?;
        }
    }
    for (backlog, drops) in backlogs.iter().zip(&drops) {
        if let Some(line) = dropped_line(&backlog.subscription, drops) {
            output.line(&line)?;
        }
    }
    for line in refusing.iter().filter_map(Refusing::line) {
        output.line(&line)?;
    }
    for campaign in &campaigns {
        output.line(&campaign_line(campaign, now()))?;
    }
    output.line(&retention_line(tidied.as_ref()))?;
    old.map_or(Ok(()), |old| output.line(&old.words()))
}

/// Campaigns that are not over: what they refer to is kept.
async fn campaigns<S: Replay>(
    opened: Opened<'_, S>,
    subscription: Option<&str>,
) -> Result<Vec<Campaign>, Error> {
    let mut found = Vec::new();
    let mut query = CampaignQuery {
        subscription,
        rows_max: 1_000,
        ..CampaignQuery::default()
    };
    loop {
        let page = opened.check(opened.store.campaigns(query).await)?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        query.after_campaign_id = last.campaign_id;
        let is_on = |campaign: &Campaign| !campaign.standing.state.is_over();
        found.extend(page.into_iter().filter(is_on));
    }
}

fn campaign_line(campaign: &Campaign, now: Timestamp) -> String {
    let (number, counts) = (campaign.campaign_id, campaign.counts);
    let planned = format!(
        "planned {} ago by {}",
        age(now.millis_since(campaign.planned_at)),
        plain(&campaign.planned_by)
    );
    let name = &campaign.subscription;
    match campaign.standing.state {
        CampaignState::Planned => format!(
            "campaign {number}: {name}: {planned} and not started; the log keeps its {} message(s): \
             onceward replay start {number}, or replay stop {number}",
            counts.total()
        ),
        state => format!(
            "campaign {number}: {name}: {}, {} left, {} running, {} done, {planned}",
            state.as_str(),
            counts.left,
            counts.running,
            counts.done
        ),
    }
}

fn for_people(output: Output, backlogs: &[Backlog]) -> Result<(), Error> {
    let mut rows = table(&[
        "SUBSCRIPTION",
        "WAITING",
        "OLDEST",
        "RETRY",
        "HELD",
        "RUNNING",
        "OPERATOR",
        "GAP",
        "QUARANTINED",
        "LANES",
    ]);
    for b in backlogs {
        let more = if b.waiting_is_lower_bound { "+" } else { "" };
        rows.add_row([
            b.subscription.clone(),
            format!("{}{more}", b.waiting),
            age_since(b.ready_since(), b.now),
            b.deferred.retry.to_string(),
            b.deferred.held.to_string(),
            b.deferred.running.to_string(),
            b.deferred.operator.to_string(),
            b.deferred.gap.to_string(),
            b.quarantined.to_string(),
            lanes_text(b),
        ]);
    }
    align_right(&mut rows, &[1, 2, 3, 4, 5, 6, 7, 8]);
    output.table(&rows)
}

/// What waits of each class, the highest first, where there are several or tenants are told apart.
fn group_lines(backlog: &Backlog) -> Vec<String> {
    let classes = Priority::ALL.into_iter().filter_map(|class| {
        let groups = backlog
            .groups
            .iter()
            .filter(|group| group.priority == class);
        let groups: Vec<&GroupBacklog> = groups.collect();
        let waiting: u64 = groups.iter().map(|group| group.waiting).sum();
        let oldest = groups
            .iter()
            .filter_map(|group| group.oldest_waiting_at)
            .min();
        let mut line = format!(
            "priority: {}: {} {waiting} waiting",
            backlog.subscription,
            class.as_str()
        );
        if oldest.is_some() {
            line.push_str(&format!(
                ", the oldest for {}",
                age_since(oldest, backlog.now)
            ));
        }
        let by_tenants: Vec<String> = groups
            .iter()
            .filter(|group| group.waiting > 0)
            .filter_map(|group| Some(format!("{} in group {}", group.waiting, group.tenants?)))
            .collect();
        if !by_tenants.is_empty() {
            line.push_str(&format!("; by tenants: {}", by_tenants.join(", ")));
        }
        (!groups.is_empty()).then_some(line)
    });
    classes.collect()
}

/// The limits of each subscription that the configuration has, where there is one.
fn limits(global: &Global) -> BTreeMap<String, HoldLimits> {
    let Ok(config) = Config::load(&global.config) else {
        return BTreeMap::new();
    };
    let subscriptions = config.contract.subscriptions.into_values();
    subscriptions.map(|s| (s.name, s.hold)).collect()
}

/// The keys of a subscription behind which messages are held.
struct HeldHere {
    limits: HoldLimits,
    /// Each with the limits that it is beyond.
    keys: Vec<(LongHeld, Vec<Limit>)>,
}

impl HeldHere {
    fn of(limits: HoldLimits, longest: Vec<LongHeld>, beyond: Vec<LongHeld>) -> Self {
        let mut keys = longest;
        for key in beyond {
            if !keys.iter().any(|other| other.key == key.key) {
                keys.push(key);
            }
        }
        let passed = |key: LongHeld| {
            let passed = limits.passed(key.depth, key.age_ms);
            (key, passed)
        };
        Self {
            limits,
            keys: keys.into_iter().map(passed).collect(),
        }
    }

    /// What has waited the longest, and everything that is beyond a limit.
    fn lines(&self, subscription: &str) -> Vec<String> {
        let is_told =
            |(at, (_, passed)): &(usize, &(LongHeld, Vec<Limit>))| *at == 0 || !passed.is_empty();
        let told = self.keys.iter().enumerate().filter(is_told);
        told.map(|(_, (key, passed))| {
            let behind = match (key.case_id, key.behind.as_str()) {
                (Some(case_id), _) => format!("case {case_id}"),
                (None, kind) => format!("a message deferred as {kind}"),
            };
            let age_ms = i64::try_from(key.age_ms).unwrap_or(i64::MAX);
            let mut line = format!(
                "held: {subscription}: {} message(s) of key {} for {}, behind {behind}",
                key.depth,
                key.key,
                age(age_ms)
            );
            for limit in passed {
                line.push_str(match limit {
                    Limit::Depth => "; BEYOND hold_depth",
                    Limit::Age => "; BEYOND hold_age",
                });
            }
            line
        })
        .collect()
    }
}

/// What stands still without an operator's word, and what operators limited.
fn pace_line(backlog: &Backlog) -> Option<String> {
    let ago = |at| age(backlog.now.millis_since(at));
    let still = backlog.still.map(|still| match still.because {
        StillBecause::Breaker => format!(
            "stands still: the other side has been away for {} (breaker open)",
            ago(still.since)
        ),
        StillBecause::RateWindow => {
            let left = still.until.map(|at| age(at.millis_since(backlog.now)));
            let left = left.map(|left| format!(", for another {left}"));
            format!(
                "stands still: the other side asked {} ago to be left alone{}",
                ago(still.since),
                left.unwrap_or_default()
            )
        }
        StillBecause::Person => format!(
            "stands still: the other side has refused for {} until a person acts; it is tried \
             again every minute, and at once after onceward subscription retry {}",
            ago(still.since),
            backlog.subscription
        ),
    });
    let rate = backlog.rate.map(|rate| {
        let per_second = rate.per_second;
        format!("limited to {per_second} per second; what waits for that burns nothing")
    });
    let said: Vec<String> = still.into_iter().chain(rate).collect();
    (!said.is_empty()).then(|| format!("{}: {}", backlog.subscription, said.join("; ")))
}

fn lanes_text(backlog: &Backlog) -> String {
    if let Some(paused_at) = backlog.paused_at {
        let since = age(backlog.now.millis_since(paused_at));
        return format!("paused for {since}");
    }
    let live = backlog.lanes.iter().filter(|lane| lane.is_live);
    let mut owners: Vec<&str> = live.filter_map(|lane| lane.owner.as_deref()).collect();
    let owned = owners.len();
    owners.sort_unstable();
    owners.dedup();
    match owners.len() {
        0 => format!("0/{} - nobody works on it", backlog.lanes.len()),
        1 => format!("{owned}/{} by {}", backlog.lanes.len(), owners[0]),
        n => format!("{owned}/{} by {n} processes", backlog.lanes.len()),
    }
}

fn backlog_json(backlog: &Backlog, held: &HeldHere, drops: &[DropCount]) -> Value {
    let age_ms = |then: Option<Timestamp>| then.map(|then| backlog.now.millis_since(then).max(0));
    let mut value = json!(backlog);
    value["oldest_waiting_age_ms"] = json!(age_ms(backlog.oldest_waiting_at));
    value["oldest_deferred_age_ms"] = json!(age_ms(backlog.oldest_deferred_at));
    let shown = value.get_mut("groups").and_then(Value::as_array_mut);
    for (group, shown) in backlog.groups.iter().zip(shown.into_iter().flatten()) {
        shown["oldest_waiting_age_ms"] = json!(age_ms(group.oldest_waiting_at));
    }
    value["dropped"] = json!(drops);
    value["ready_age_ms"] = json!(backlog.ready_age_ms());
    value["held_limits"] = json!(held.limits);
    value["held_longest"] = held
        .keys
        .iter()
        .map(|(key, passed)| {
            let mut value = json!(key);
            value["beyond"] = json!(passed);
            value
        })
        .collect();
    value
}

/// What policies gave up in the last 24 hours, if anything.
fn dropped_line(subscription: &str, drops: &[DropCount]) -> Option<String> {
    let ways: Vec<String> = drops
        .iter()
        .filter(|drop| drop.last_day > 0)
        .map(|drop| {
            let text = |count| count_text(std::iter::once(count));
            let (hour, day) = (text(drop.last_hour), text(drop.last_day));
            format!("{day} {} ({hour} in the last hour)", drop.ending.as_str())
        })
        .collect();
    let ways = (!ways.is_empty()).then(|| ways.join(", "))?;
    Some(format!(
        "given up: {subscription}: {ways} in the last 24 hours"
    ))
}

fn retention_json(at: Timestamp, report: &UpkeepReport) -> Value {
    let mut value = json!(report);
    value["tidied_at"] = json!(at);
    value["tidied_age_ms"] = json!(now().millis_since(at).max(0));
    value
}

fn retention_line(tidied: Option<&(Timestamp, UpkeepReport)>) -> String {
    let Some((at, report)) = tidied else {
        return "retention: has not run yet; `onceward up` runs it each minute".to_owned();
    };
    let now = now();
    let mut line = format!("retention: ran {} ago", age(now.millis_since(*at)));
    if let Some(oldest) = report.log_oldest_at {
        line.push_str(&format!(
            ", the log reaches back {}",
            age(now.millis_since(oldest))
        ));
    }
    if let Some(days) = report.days_ahead {
        line.push_str(&format!(", room made for {days:.0} days"));
    }
    if let Some(reason) = &report.held_back_by {
        line.push_str(&format!("; held back by {reason}"));
    }
    line
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
