//! `onceward quarantine groups`.

use clap::Args;
use onceward_core::store::{GroupQuery, Operate, Status};
use serde_json::json;

use super::list::none;
use crate::error::Error;
use crate::output::{Output, age, align_right, now, table};
use crate::store::Opened;

/// Options of `quarantine groups`.
#[derive(Debug, Args)]
pub struct GroupsArgs {
    /// Only cases of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Also causes of which all cases are over
    #[arg(long)]
    all: bool,
    /// Most groups
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub(super) async fn groups<S: Operate + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &GroupsArgs,
) -> Result<(), Error> {
    let query = GroupQuery {
        subscription: args.subscription.as_deref(),
        with_resolved: args.all,
        rows_max: args.limit,
    };
    let groups = opened.check(opened.store.case_groups(query).await)?;
    if output.is_json() {
        return output.json(&json!({ "groups": groups }));
    }
    if groups.is_empty() {
        return none(opened, output, args.subscription.as_deref()).await;
    }
    let mut rows = table(&[
        "FINGERPRINT",
        "SUBSCRIPTION",
        "TYPE",
        "CLASS",
        "CODE",
        "OPEN",
        "ALL",
        "FIRST",
        "LAST",
        "OLDEST CASE",
    ]);
    let now = now();
    for group in &groups {
        rows.add_row([
            group.fingerprint.clone(),
            group.subscription.clone(),
            group.message_type.clone(),
            group.class.to_string(),
            group.code.clone(),
            group.live.to_string(),
            group.all.to_string(),
            format!("{} ago", age(now.millis_since(group.first_at))),
            format!("{} ago", age(now.millis_since(group.last_at))),
            group.oldest_case_id.to_string(),
        ]);
    }
    align_right(&mut rows, &[5, 6, 9]);
    output.table(&rows)
}
