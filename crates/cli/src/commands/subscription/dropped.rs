//! `onceward subscription dropped`: what policies gave up.

use clap::{Args, ValueEnum};
use onceward_core::Ending;
use onceward_core::store::{DroppedPlace, DroppedQuery, Status};
use serde_json::json;

use crate::error::{Code, Error};
use crate::output::{Output, age_since, now, table};
use crate::store::Opened;

/// How a message was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Outcome {
    /// Its turn came late
    Shed,
    /// A later message of its key was handled in its place
    Merged,
    /// Its time was over
    Expired,
}

impl Outcome {
    const fn ending(self) -> Ending {
        match self {
            Self::Shed => Ending::Shed,
            Self::Merged => Ending::Merged,
            Self::Expired => Ending::Expired,
        }
    }
}

/// Options of `subscription dropped`.
#[derive(Debug, Args)]
pub struct DroppedArgs {
    /// Subscription
    #[arg(value_name = "NAME")]
    subscription: String,
    /// Only what was given up in this way
    #[arg(long, value_enum)]
    outcome: Option<Outcome>,
    /// Go on behind an earlier page: what it gave as its cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<DroppedPlace>,
    /// Most messages of a page
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
}

/// Lists what was given up, the latest first.
///
/// # Errors
/// When the store or standard output fails, or there is no such subscription.
pub(super) async fn run<S: Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &DroppedArgs,
) -> Result<(), Error> {
    let names = opened.check(opened.store.subscriptions().await)?;
    if !names.contains(&args.subscription) {
        let name = &args.subscription;
        let message = format!("no subscription is called {name:?} in this store");
        return Err(Error::new(Code::NotFound, message));
    }
    let endings = args.outcome.map_or_else(
        || Ending::DROPPED.to_vec(),
        |outcome| vec![outcome.ending()],
    );
    let query = DroppedQuery {
        subscription: &args.subscription,
        endings: &endings,
        after: args.after.as_ref(),
        rows_max: args.max,
    };
    let found = opened.check(opened.store.dropped(query).await)?;
    let is_full = found.len() >= args.max as usize;
    let next = found.last().filter(|_| is_full);
    let next = next.map(|last| last.place.to_string());
    if output.is_json() {
        return output.json(&json!({ "dropped": found, "next": next }));
    }
    if found.is_empty() {
        return output.line(&format!("{}: nothing was given up", args.subscription));
    }
    let mut rows = table(&["MESSAGE", "TYPE", "WHEN", "OUTCOME"]);
    let now = now();
    for dropped in &found {
        let into = dropped.merged_into.as_ref();
        let into = into.map(|id| format!(" into {id}")).unwrap_or_default();
        rows.add_row([
            dropped.place.identity.clone(),
            dropped.place.message_type.clone(),
            format!("{} ago", age_since(Some(dropped.place.finished_at), now)),
            format!("{}{into}", dropped.ending.as_str()),
        ]);
    }
    output.table(&rows)?;
    next.map_or(Ok(()), |next| {
        output.line(&format!("more with --after {next}"))
    })
}
