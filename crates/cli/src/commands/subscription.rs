//! `onceward subscription`.

mod dropped;
mod ending;

use clap::{ArgGroup, Args, Subcommand};
use onceward_console::overview::DROPS_COUNTED_MAX;
use onceward_core::Timestamp;
use onceward_core::group::Priority;
use onceward_core::rate::RateLimit;
use onceward_core::store::{
    BacklogQuery, Cases, DropCountQuery, GroupBacklog, Lanes, Operate, Registry, ResumeDeferred,
    SetLimit, SetPause, Status,
};
use serde_json::json;

use super::acting::{ActorArgs, ConfirmArgs, of_name, refusal};
use crate::error::Error;
use crate::output::{Output, age, align_right, now, table};
use crate::store::Opened;

/// What is said where a list of subscriptions would be empty.
pub(super) const NONE_REGISTERED: &str =
    "no subscription is registered yet; `onceward up` registers those of its file";

/// What to do with subscriptions.
#[derive(Debug, Subcommand)]
pub enum SubscriptionCommand {
    /// List the registered subscriptions
    List,
    /// Start nothing more of a subscription; what runs ends. Needs --why
    Pause(PauseArgs),
    /// End a pause
    Resume(PauseArgs),
    /// Run less of a subscription at once, or start fewer messages per second, or end such limits.
    /// Needs --why
    Limit(LimitArgs),
    /// Give a subscription another name; what is done, deferred and quarantined goes along
    Rename(RenameArgs),
    /// End a subscription on which nobody works any more; needs --why
    Remove(RemoveArgs),
    /// Try messages again that wait for a person
    Retry(RetryArgs),
    /// List what was given up by a policy: merged, shed or expired
    Dropped(dropped::DroppedArgs),
}

/// Options of `subscription pause` and `subscription resume`.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// Subscription
    #[arg(value_name = "NAME")]
    subscription: String,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `subscription limit`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("limits").required(true).multiple(true)
    .args(["concurrency", "per_second", "none"]))]
pub struct LimitArgs {
    /// Subscription
    #[arg(value_name = "NAME")]
    subscription: String,
    /// Batches that may run at once in one process; what is declared holds where it is less
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// Messages that may start per second in all processes together; 0 ends this limit
    #[arg(long, value_name = "N")]
    per_second: Option<u32>,
    /// How many may start at once after a quiet time; what comes in a tenth of a second if not given
    #[arg(long, value_name = "M", requires = "per_second")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    burst: Option<u32>,
    /// No limit any more, of either kind
    #[arg(long, conflicts_with_all = ["concurrency", "per_second"])]
    none: bool,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

impl LimitArgs {
    fn rate(&self) -> Option<RateLimit> {
        let usual = RateLimit::of(self.per_second?);
        Some(RateLimit {
            burst: self.burst.unwrap_or(usual.burst),
            ..usual
        })
    }

    /// What was done, for people.
    fn words(&self) -> String {
        let at_once = self
            .concurrency
            .map(|max| format!("at most {max} at once in each process"));
        let per_second = self.rate().map(|rate| match rate.per_second {
            0 => "any number per second".to_owned(),
            n => format!("at most {n} per second in all processes together"),
        });
        let limits: Vec<String> = at_once.into_iter().chain(per_second).collect();
        match limits.is_empty() {
            true => "without a limit".to_owned(),
            false => format!("{}, within seconds", limits.join(" and ")),
        }
    }
}

/// Options of `subscription rename`.
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// Subscription
    #[arg(value_name = "NAME")]
    from: String,
    /// Its new name; the configuration has to use it from then on
    #[arg(value_name = "NEW")]
    to: String,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `subscription remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Subscription
    #[arg(value_name = "NAME")]
    subscription: String,
    /// Discard its cases that are not over and give up what is deferred in it
    #[arg(long)]
    discard_open: bool,
    /// Refuse to discard more cases than this
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `subscription retry`.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// Subscription
    #[arg(value_name = "NAME")]
    subscription: String,
    /// Only messages of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Runs a command on subscriptions.
///
/// # Errors
/// When the store or standard output fails, or an action is refused.
pub async fn run<S: Status + Operate + Lanes + Cases + Registry>(
    opened: Opened<'_, S>,
    output: Output,
    command: &SubscriptionCommand,
) -> Result<(), Error> {
    match command {
        SubscriptionCommand::List => list(opened, output).await,
        SubscriptionCommand::Pause(args) => pause(opened, output, args, true).await,
        SubscriptionCommand::Resume(args) => pause(opened, output, args, false).await,
        SubscriptionCommand::Limit(args) => limit(opened, output, args).await,
        SubscriptionCommand::Rename(args) => ending::rename(opened, output, args).await,
        SubscriptionCommand::Remove(args) => ending::remove(opened, output, args).await,
        SubscriptionCommand::Retry(args) => retry(opened, output, args).await,
        SubscriptionCommand::Dropped(args) => dropped::run(opened, output, args).await,
    }
}

async fn list<S: Status + Lanes>(opened: Opened<'_, S>, output: Output) -> Result<(), Error> {
    let names = opened.check(opened.store.subscriptions().await)?;
    let mut rows = table(&[
        "SUBSCRIPTION",
        "LANES",
        "OWNED",
        "OWNERS",
        "PRIORITIES",
        "PAUSED",
        "LIMIT",
        "DROPPED 1h",
        "24h",
    ]);
    let survey = opened.check(opened.store.survey().await)?;
    let mut items = Vec::new();
    let now = now();
    for name in &names {
        let query = BacklogQuery {
            subscription: name,
            count_max: 1,
            before: None,
        };
        let backlog = opened.check(opened.store.backlog(query).await)?;
        let lanes = backlog.lanes;
        let live = lanes.iter().filter(|lane| lane.is_live);
        let mut owners: Vec<&str> = live.filter_map(|lane| lane.owner.as_deref()).collect();
        let owned = owners.len();
        owners.sort_unstable();
        owners.dedup();
        let mut states = survey.subscriptions.iter();
        let state = states.find(|state| state.subscription == *name);
        let limit = state.and_then(|state| state.concurrency_max);
        let drops = DropCountQuery {
            subscription: name,
            count_max: DROPS_COUNTED_MAX,
        };
        let drops = opened.check(opened.store.drop_counts(drops).await)?;
        let rate = backlog.rate;
        items.push(json!({
            "subscription": name,
            "lanes": lanes.len(),
            "lanes_owned": owned,
            "owners": owners,
            "priorities": classes(&backlog.groups),
            "tenant_groups": tenant_groups(&backlog.groups),
            "paused_at": backlog.paused_at,
            "still": backlog.still,
            "concurrency_max": limit,
            "dropped": drops,
            "rate": rate,
        }));
        let cells = [
            name.clone(),
            lanes.len().to_string(),
            owned.to_string(),
            owners.join(", "),
            groups_text(&backlog.groups),
            paused_text(backlog.paused_at, now),
            limit_text(limit, rate),
            count_text(drops.iter().map(|drop| drop.last_hour)),
            count_text(drops.iter().map(|drop| drop.last_day)),
        ];
        rows.add_row(cells);
    }
    if output.is_json() {
        return output.json(&json!({ "subscriptions": items }));
    }
    if names.is_empty() {
        output.say(NONE_REGISTERED);
        return Ok(());
    }
    align_right(&mut rows, &[1, 2, 7, 8]);
    output.table(&rows)
}

/// The classes that a subscription is divided by, the highest first; none where it is not divided.
fn classes(groups: &[GroupBacklog]) -> Vec<Priority> {
    let has = |class: &Priority| groups.iter().any(|group| group.priority == *class);
    Priority::ALL.into_iter().filter(has).collect()
}

/// Into how many groups the tenants of each class fall, where they are told apart.
fn tenant_groups(groups: &[GroupBacklog]) -> Option<usize> {
    let last = groups.iter().filter_map(|group| group.tenants).max();
    last.map(|last| last + 1)
}

fn groups_text(groups: &[GroupBacklog]) -> String {
    let names: Vec<&str> = classes(groups).into_iter().map(Priority::as_str).collect();
    match (names.is_empty(), tenant_groups(groups)) {
        (true, _) => "-".to_owned(),
        (false, None) => names.join(", "),
        (false, Some(count)) => format!("{}; tenants in {count} groups", names.join(", ")),
    }
}

/// A sum of counts, each of which may have stopped before its end.
pub(super) fn count_text(counts: impl Iterator<Item = u64> + Clone) -> String {
    let is_bound = counts.clone().any(|count| count >= DROPS_COUNTED_MAX);
    let more = if is_bound { "+" } else { "" };
    format!("{}{more}", counts.sum::<u64>())
}

fn limit_text(concurrency_max: Option<u16>, rate: Option<RateLimit>) -> String {
    let at_once = concurrency_max.map(|max| max.to_string());
    let per_second = rate.map(|rate| format!("{}/s", rate.per_second));
    let limits: Vec<String> = at_once.into_iter().chain(per_second).collect();
    match limits.is_empty() {
        true => "no".to_owned(),
        false => limits.join(", "),
    }
}

fn paused_text(paused_at: Option<Timestamp>, now: Timestamp) -> String {
    paused_at.map_or_else(
        || "no".to_owned(),
        |at| format!("for {}", age(now.millis_since(at))),
    )
}

async fn pause<S: Operate + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &PauseArgs,
    is_paused: bool,
) -> Result<(), Error> {
    let who = args.by.who();
    let request = SetPause {
        subscription: &args.subscription,
        is_paused,
        by: args.by.actor(&who),
    };
    if let Err(error) = opened.store.set_pause(request).await {
        return Err(of_name(opened, request.subscription, refusal(opened.url, &error)).await);
    }
    if output.is_json() {
        return output.json(&json!({ "subscription": args.subscription, "paused": is_paused }));
    }
    let text = match is_paused {
        true => "paused; what runs ends, and processes notice within seconds",
        false => "goes on",
    };
    output.line(&format!("{}: {text}", args.subscription))
}

async fn limit<S: Operate + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &LimitArgs,
) -> Result<(), Error> {
    let who = args.by.who();
    let request = SetLimit {
        subscription: &args.subscription,
        concurrency_max: args.concurrency,
        rate: args.rate(),
        by: args.by.actor(&who),
    };
    if let Err(error) = opened.store.set_limit(request).await {
        return Err(of_name(opened, request.subscription, refusal(opened.url, &error)).await);
    }
    if output.is_json() {
        return output.json(&json!({
            "subscription": args.subscription,
            "concurrency_max": args.concurrency,
            "rate": args.rate(),
        }));
    }
    output.line(&format!("{}: {}", args.subscription, args.words()))
}

async fn retry<S: Operate + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &RetryArgs,
) -> Result<(), Error> {
    let who = args.by.who();
    let request = ResumeDeferred {
        subscription: &args.subscription,
        key: args.key.as_deref(),
        by: args.by.actor(&who),
    };
    let count = match opened.store.resume_deferred(request).await {
        Ok(count) => count,
        Err(error) => {
            let error = refusal(opened.url, &error);
            return Err(of_name(opened, request.subscription, error).await);
        }
    };
    if output.is_json() {
        return output.json(&json!({
            "subscription": args.subscription,
            "key": args.key,
            "resumed": count,
        }));
    }
    output.line(&format!(
        "{}: {count} messages are tried again",
        args.subscription
    ))
}
