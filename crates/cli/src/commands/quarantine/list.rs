//! `onceward quarantine list`.

use clap::Args;
use comfy_table::Table;
use onceward_core::store::{Case, Cases, Status};
use serde_json::{Value, json};

use super::FilterArgs;
use super::Surroundings;
use crate::commands::acting::no_subscription;
use crate::commands::old_cases;
use crate::error::Error;
use crate::output::{Output, age, align_right, now, plain, table};
use crate::store::Opened;
use onceward_console::view::{CaseView, attempts};

/// Options of `quarantine list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which.
    #[command(flatten)]
    filter: FilterArgs,
    /// Only cases with a higher number
    #[arg(long, value_name = "CASE", default_value_t = 0)]
    after: i64,
    /// Most cases
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(super) async fn list<S: Cases + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ListArgs,
    surroundings: &Surroundings<'_>,
) -> Result<(), Error> {
    let states = args.filter.states();
    let query = args.filter.query(&states, args.after, args.limit);
    let cases = opened.check(opened.store.cases(query).await)?;
    let old = surroundings.old_cases(opened).await?;
    if output.is_json() {
        let now = now();
        let items = cases.iter().map(|case| {
            let sensitivity = surroundings.sensitivity(output, &case.row.envelope.message_type);
            let view = CaseView {
                case,
                sensitivity: &sensitivity,
                now,
            };
            view.json()
        });
        let items: Vec<Value> = items.collect();
        return output.json(&json!({ "cases": items, "past_retention": old }));
    }
    if let Some(old) = old {
        output.say(&old_cases::words(&old));
    }
    if cases.is_empty() {
        return none(opened, output, args.filter.subscription()).await;
    }
    output.table(&rows(&cases))?;
    if cases.len() == args.limit as usize
        && let Some(last) = cases.last()
    {
        output.say(&format!("there may be more: --after {}", last.case_id));
    }
    Ok(())
}

/// Says that there are none; where a name was given that no subscription has, that too. Cases may
/// outlive their subscription, so it is no error.
pub(super) async fn none<S: Status>(
    opened: Opened<'_, S>,
    output: Output,
    subscription: Option<&str>,
) -> Result<(), Error> {
    output.say("no cases");
    if let Some(name) = subscription {
        let names = opened.check(opened.store.subscriptions().await)?;
        if !names.iter().any(|known| known == name) {
            output.say(&no_subscription(name, &names).full_message());
        }
    }
    Ok(())
}

/// Cases as a table for people.
pub(super) fn rows(cases: &[Case]) -> Table {
    let mut rows = table(&[
        "CASE",
        "SUBSCRIPTION",
        "TYPE",
        "SUBJECT",
        "REASON",
        "ATTEMPTS",
        "HOLDS KEY",
        "OPENED",
        "STATE",
        "OWNER",
    ]);
    let now = now();
    for case in cases {
        rows.add_row([
            case.case_id.to_string(),
            case.subscription.clone(),
            case.row.envelope.message_type.clone(),
            case.row.envelope.aggregate_id.clone(),
            case.reason.clone(),
            attempts(case).to_string(),
            if case.holds_key { "yes" } else { "no" }.to_owned(),
            format!("{} ago", age(now.millis_since(case.opened_at))),
            case.standing.state.as_str().to_owned(),
            case.standing.owner.as_deref().map_or("-".to_owned(), plain),
        ]);
    }
    align_right(&mut rows, &[0, 5]);
    rows
}
