//! `onceward subscription`.

use clap::Subcommand;
use onceward_core::store::{BacklogQuery, Status};
use serde_json::json;

use crate::error::Error;
use crate::output::{Output, align_right, table};
use crate::store::Opened;

/// What to do with subscriptions.
#[derive(Debug, Subcommand)]
pub enum SubscriptionCommand {
    /// List the registered subscriptions
    List,
}

/// Runs a command on subscriptions.
///
/// # Errors
/// When the store or standard output fails.
pub async fn run<S: Status>(
    opened: Opened<'_, S>,
    output: Output,
    command: &SubscriptionCommand,
) -> Result<(), Error> {
    match command {
        SubscriptionCommand::List => list(opened, output).await,
    }
}

async fn list<S: Status>(opened: Opened<'_, S>, output: Output) -> Result<(), Error> {
    let names = opened.check(opened.store.subscriptions().await)?;
    let mut rows = table(&["SUBSCRIPTION", "LANES", "OWNED", "OWNERS"]);
    let mut items = Vec::new();
    for name in &names {
        let query = BacklogQuery {
            subscription: name,
            count_max: 1,
        };
        let lanes = opened.check(opened.store.backlog(query).await)?.lanes;
        let live = lanes.iter().filter(|lane| lane.is_live);
        let mut owners: Vec<&str> = live.filter_map(|lane| lane.owner.as_deref()).collect();
        let owned = owners.len();
        owners.sort_unstable();
        owners.dedup();
        items.push(json!({
            "subscription": name,
            "lanes": lanes.len(),
            "lanes_owned": owned,
            "owners": owners,
        }));
        let cells = [
            name.clone(),
            lanes.len().to_string(),
            owned.to_string(),
            owners.join(", "),
        ];
        rows.add_row(cells);
    }
    if output.is_json() {
        return output.json(&json!({ "subscriptions": items }));
    }
    if names.is_empty() {
        output.say("no subscription is registered yet; `onceward up` registers those of its file");
        return Ok(());
    }
    align_right(&mut rows, &[1, 2]);
    output.table(&rows)
}
