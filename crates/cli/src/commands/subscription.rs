//! `onceward subscription`.

use clap::{Args, Subcommand};
use onceward_core::Timestamp;
use onceward_core::store::{BacklogQuery, Operate, ResumeDeferred, SetPause, Status};
use serde_json::json;

use super::acting::{ActorArgs, refusal};
use crate::error::Error;
use crate::output::{Output, age, align_right, now, table};
use crate::store::Opened;

/// What to do with subscriptions.
#[derive(Debug, Subcommand)]
pub enum SubscriptionCommand {
    /// List the registered subscriptions
    List,
    /// Start nothing more of a subscription; what runs ends. Needs --why
    Pause(PauseArgs),
    /// End a pause
    Resume(PauseArgs),
    /// Try messages again that wait for a person
    Retry(RetryArgs),
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
pub async fn run<S: Status + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    command: &SubscriptionCommand,
) -> Result<(), Error> {
    match command {
        SubscriptionCommand::List => list(opened, output).await,
        SubscriptionCommand::Pause(args) => pause(opened, output, args, true).await,
        SubscriptionCommand::Resume(args) => pause(opened, output, args, false).await,
        SubscriptionCommand::Retry(args) => retry(opened, output, args).await,
    }
}

async fn list<S: Status>(opened: Opened<'_, S>, output: Output) -> Result<(), Error> {
    let names = opened.check(opened.store.subscriptions().await)?;
    let mut rows = table(&["SUBSCRIPTION", "LANES", "OWNED", "OWNERS", "PAUSED"]);
    let mut items = Vec::new();
    let now = now();
    for name in &names {
        let query = BacklogQuery {
            subscription: name,
            count_max: 1,
        };
        let backlog = opened.check(opened.store.backlog(query).await)?;
        let lanes = backlog.lanes;
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
            "paused_at": backlog.paused_at,
        }));
        let cells = [
            name.clone(),
            lanes.len().to_string(),
            owned.to_string(),
            owners.join(", "),
            paused_text(backlog.paused_at, now),
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

fn paused_text(paused_at: Option<Timestamp>, now: Timestamp) -> String {
    paused_at.map_or_else(
        || "no".to_owned(),
        |at| format!("for {}", age(now.millis_since(at))),
    )
}

async fn pause<S: Operate>(
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
    let done = opened.store.set_pause(request).await;
    done.map_err(|error| refusal(opened.url, &error))?;
    if output.is_json() {
        return output.json(&json!({ "subscription": args.subscription, "paused": is_paused }));
    }
    let text = match is_paused {
        true => "paused; what runs ends, and processes notice within seconds",
        false => "goes on",
    };
    output.line(&format!("{}: {text}", args.subscription))
}

async fn retry<S: Operate>(
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
    let resumed = opened.store.resume_deferred(request).await;
    let count = resumed.map_err(|error| refusal(opened.url, &error))?;
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
