//! `onceward backlog`.

use clap::Args;
use onceward_core::Timestamp;
use onceward_core::store::{Backlog, BacklogQuery, Cases, Status, Upkeep, UpkeepReport};
use serde_json::{Value, json};

use super::old_cases::{CASES_MS_DEFAULT, OldCases};
use crate::cli::Global;
use crate::config::Config;
use crate::error::{Code, Error};
use crate::output::{Output, age, age_since, align_right, now, table};
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
}

/// Shows what waits.
///
/// # Errors
/// When the store or standard output fails, or there is no such subscription.
pub async fn run<S: Status + Upkeep + Cases>(
    opened: Opened<'_, S>,
    output: Output,
    global: &Global,
    args: &BacklogArgs,
) -> Result<(), Error> {
    let mut names = opened.check(opened.store.subscriptions().await)?;
    if let Some(wanted) = &args.subscription {
        names.retain(|name| name == wanted);
        if names.is_empty() {
            let message = format!("no subscription is called {wanted:?} in this store");
            return Err(Error::new(Code::NotFound, message));
        }
    }
    let mut backlogs = Vec::new();
    for name in &names {
        let query = BacklogQuery {
            subscription: name,
            count_max: args.count_max,
        };
        backlogs.push(opened.check(opened.store.backlog(query).await)?);
    }
    let tidied = opened.check(opened.store.last_tidy().await)?;
    let cases_ms = Config::load(&global.config).map_or(CASES_MS_DEFAULT, |config| config.cases_ms);
    let old = opened.check(OldCases::find(opened.store, cases_ms, now()).await)?;
    if output.is_json() {
        return output.json(&json!({
            "subscriptions": backlogs.iter().map(backlog_json).collect::<Vec<Value>>(),
            "retention": tidied.map(|(at, report)| retention_json(at, &report)),
            "cases_past_retention": old,
        }));
    }
    for_people(output, &backlogs)?;
    output.line(&retention_line(tidied.as_ref()))?;
    old.map_or(Ok(()), |old| output.line(&old.words()))
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
        "QUARANTINED",
        "LANES",
    ]);
    for b in backlogs {
        let more = if b.waiting_is_lower_bound { "+" } else { "" };
        rows.add_row([
            b.subscription.clone(),
            format!("{}{more}", b.waiting),
            age_since(oldest(b), b.now),
            b.deferred.retry.to_string(),
            b.deferred.held.to_string(),
            b.deferred.running.to_string(),
            b.deferred.operator.to_string(),
            b.quarantined.to_string(),
            lanes_text(b),
        ]);
    }
    align_right(&mut rows, &[1, 2, 3, 4, 5, 6, 7]);
    output.table(&rows)
}

/// When the oldest unfinished message was recorded.
fn oldest(backlog: &Backlog) -> Option<Timestamp> {
    match (backlog.oldest_waiting_at, backlog.oldest_deferred_at) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
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

fn backlog_json(backlog: &Backlog) -> Value {
    let age_ms = |then: Option<Timestamp>| then.map(|then| backlog.now.millis_since(then).max(0));
    let mut value = json!(backlog);
    value["oldest_waiting_age_ms"] = json!(age_ms(backlog.oldest_waiting_at));
    value["oldest_deferred_age_ms"] = json!(age_ms(backlog.oldest_deferred_at));
    value
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
