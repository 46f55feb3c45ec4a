//! `onceward backlog`.

use clap::Args;
use comfy_table::Table;
use onceward_console::overview::{
    KEYS_MAX_DEFAULT, Overview, OverviewQuery, SubscriptionNow, WAITING_COUNTED_MAX,
};
use onceward_core::Timestamp;
use onceward_core::campaign::CampaignState;
use onceward_core::group::Priority;
use onceward_core::hold::Limit;
use onceward_core::store::{
    Backlog, Campaign, Cases, GroupBacklog, LongHeld, Replay, Status, StillBecause, StillNow,
    Upkeep, UpkeepReport,
};

use super::acting::no_subscription;
use super::subscription::{NONE_REGISTERED, count_text};
use super::{old_cases, refusing};
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
    #[arg(long, value_name = "N", default_value_t = WAITING_COUNTED_MAX)]
    count_max: u64,
    /// How many of the keys to name behind which messages have waited the longest
    #[arg(long, value_name = "N", default_value_t = KEYS_MAX_DEFAULT)]
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
    if let Some(wanted) = &args.subscription {
        let names = opened.check(opened.store.subscriptions().await)?;
        if !names.contains(wanted) {
            return Err(no_subscription(wanted, &names));
        }
    }
    let config = Config::load(&global.config).ok();
    let standards = config.as_ref().map(Config::standards).unwrap_or_default();
    let query = OverviewQuery {
        subscription: args.subscription.as_deref(),
        count_max: args.count_max,
        keys_max: args.keys_max,
    };
    let overview = Overview::of(opened.store, query, &standards, now()).await;
    let mut overview = opened.check(overview)?;
    if let Some(config) = &config {
        let seen = &overview.subscriptions;
        overview.judged = refusing::find(opened, &config.contract, seen, args.count_max).await?;
    }
    if output.is_json() {
        return output.json(&overview.json(now()));
    }
    for_people(output, &overview)
}

fn for_people(output: Output, overview: &Overview) -> Result<(), Error> {
    let all = &overview.subscriptions;
    match all.is_empty() {
        true => output.say(NONE_REGISTERED),
        false => output.table(&rows(all))?,
    }
    let backlogs = || all.iter().map(|subscription| &subscription.backlog);
    let lines = backlogs().flat_map(group_lines);
    let lines = lines.chain(backlogs().filter_map(pace_line));
    let lines = lines.chain(all.iter().flat_map(held_lines));
    let lines = lines.chain(all.iter().filter_map(dropped_line));
    let lines = lines.chain(overview.judged.iter().filter_map(refusing::line));
    let now = now();
    let lines = lines.chain(overview.campaigns.iter().map(|c| campaign_line(c, now)));
    let lines = lines.chain([retention_line(overview.tidied.as_ref(), now)]);
    for line in lines.chain(overview.old_cases.as_ref().map(old_cases::words)) {
        output.line(&line)?;
    }
    Ok(())
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

fn rows(subscriptions: &[SubscriptionNow]) -> Table {
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
    for SubscriptionNow { backlog: b, .. } in subscriptions {
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
    rows
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

/// The key whose messages have waited the longest, and every one beyond a limit.
fn held_lines(subscription: &SubscriptionNow) -> Vec<String> {
    let name = &subscription.backlog.subscription;
    let told = subscription.held.told();
    told.map(|(key, passed)| held_line(name, key, passed))
        .collect()
}

fn held_line(subscription: &str, key: &LongHeld, passed: &[Limit]) -> String {
    let behind = match (key.case_id, key.behind.as_str()) {
        (Some(case_id), _) => format!("case {case_id}"),
        (None, kind) => format!("a message deferred as {kind}"),
    };
    let age_ms = i64::try_from(key.age_ms).unwrap_or(i64::MAX);
    let mut line = format!(
        "held: {subscription}: {} message(s) of key {} for {}, behind {behind}",
        key.depth,
        plain(&key.key),
        age(age_ms)
    );
    for limit in passed {
        line.push_str(match limit {
            Limit::Depth => "; BEYOND hold_depth",
            Limit::Age => "; BEYOND hold_age",
        });
    }
    line
}

/// What stands still without an operator's word, and what operators limited.
fn pace_line(backlog: &Backlog) -> Option<String> {
    let ago = |at| age(backlog.now.millis_since(at));
    let left = |still: StillNow| {
        let left = still.until.map(|at| age(at.millis_since(backlog.now)));
        left.map(|left| format!(", for another {left}"))
            .unwrap_or_default()
    };
    let still = backlog.still.map(|still| match still.because {
        StillBecause::Breaker => format!(
            "stands still: the other side has been away for {} (breaker open)",
            ago(still.since)
        ),
        StillBecause::RateWindow => format!(
            "stands still: the other side asked {} ago to be left alone{}",
            ago(still.since),
            left(still)
        ),
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

/// What policies gave up in the last 24 hours, if anything.
fn dropped_line(subscription: &SubscriptionNow) -> Option<String> {
    let ways: Vec<String> = subscription
        .drops
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
        "given up: {}: {ways} in the last 24 hours",
        subscription.backlog.subscription
    ))
}

fn retention_line(tidied: Option<&(Timestamp, UpkeepReport)>, now: Timestamp) -> String {
    let Some((at, report)) = tidied else {
        return "retention: has not run yet; `onceward up` runs it each minute".to_owned();
    };
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
