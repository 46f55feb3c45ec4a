//! `onceward operation`.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, Subcommand};
use onceward_core::Ending;
use onceward_core::store::{
    DeferralKind, MessageState, MessageStatus, Operate, OperationQuery, RevealOperation, Status,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::acting::{ActorArgs, refusal};
use crate::error::{Code, Error};
use crate::output::{Output, age, now, table};
use crate::store::Opened;

/// Most messages of one operation that are shown.
const MESSAGES_MAX: u32 = 1_000;

/// How often a watched operation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What to do with an operation.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Show where each of its messages stands
    Show(ShowArgs),
    /// Show each change until all of its messages have ended
    Watch(WatchArgs),
}

/// Options of `operation show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The operation; where a message names none, the message's id
    id: String,
    /// Show stored results and the details of errors; needs --why and is recorded
    #[arg(long)]
    reveal: bool,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `operation watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The operation; where a message names none, the message's id
    id: String,
    /// Show stored results and the details of errors; needs --why and is recorded
    #[arg(long)]
    reveal: bool,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// Runs a command on an operation.
///
/// # Errors
/// When the store or standard output fails, when there is no such operation, or when a watched one
/// does not end well or in time.
pub async fn run<S: Status + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    command: &OperationCommand,
) -> Result<(), Error> {
    match command {
        OperationCommand::Show(args) => show(opened, output, args).await,
        OperationCommand::Watch(args) => watch(opened, output, args).await,
    }
}

/// Somebody who wants to see what is hidden, and the subscriptions for which that is on record.
struct Revealing<'a> {
    by: &'a ActorArgs,
    recorded: BTreeSet<String>,
}

impl<'a> Revealing<'a> {
    fn of(is_wanted: bool, by: &'a ActorArgs) -> Option<Self> {
        let recorded = BTreeSet::new();
        is_wanted.then_some(Self { by, recorded })
    }

    /// Puts it on record before it is shown, once for each subscription.
    async fn record<S: Operate>(
        &mut self,
        opened: Opened<'_, S>,
        operation: &str,
        messages: &[MessageStatus],
    ) -> Result<(), Error> {
        let who = self.by.who();
        let by = self.by.actor(&who);
        by.check_reason().map_err(|refusal| {
            Error::new(Code::ActionRefused, format!("reveal: {refusal} (--why)"))
        })?;
        let states = messages.iter().flat_map(|message| &message.subscriptions);
        let names = states.map(|(name, _)| name.as_str());
        let names: BTreeSet<&str> = names
            .filter(|name| !self.recorded.contains(*name))
            .collect();
        let subscriptions: Vec<&str> = names.into_iter().collect();
        if subscriptions.is_empty() {
            return Ok(());
        }
        let request = RevealOperation {
            operation,
            subscriptions: &subscriptions,
            is_permitted: true,
            by,
        };
        let recorded = opened.store.reveal_operation(request).await;
        recorded.map_err(|error| refusal(opened.url, &error))?;
        let names = subscriptions.into_iter().map(str::to_owned);
        self.recorded.extend(names);
        Ok(())
    }
}

async fn look<S: Status + Operate>(
    opened: Opened<'_, S>,
    operation: &str,
    revealing: Option<&mut Revealing<'_>>,
) -> Result<Vec<MessageStatus>, Error> {
    let query = OperationQuery {
        operation,
        rows_max: MESSAGES_MAX,
    };
    let mut messages = opened.check(opened.store.operation(query).await)?;
    if messages.is_empty() {
        let message = format!("no message of operation {operation:?} is in this store");
        return Err(Error::new(Code::NotFound, message));
    }
    if let Some(revealing) = revealing {
        revealing.record(opened, operation, &messages).await?;
    } else {
        for (_, state) in messages.iter_mut().flat_map(|m| &mut m.subscriptions) {
            withhold(state);
        }
    }
    Ok(messages)
}

/// Takes out what may hold payload data.
pub(super) fn withhold(state: &mut MessageState) {
    match state {
        MessageState::Finished { result, .. } => *result = None,
        MessageState::Deferred {
            failure: Some(failure),
            ..
        } => failure.detail = None,
        _ => {}
    }
}

async fn show<S: Status + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ShowArgs,
) -> Result<(), Error> {
    let mut revealing = Revealing::of(args.reveal, &args.by);
    let messages = look(opened, &args.id, revealing.as_mut()).await?;
    if output.is_json() {
        let messages: Vec<Value> = messages.iter().map(message_json).collect();
        return output.json(&json!({ "operation": args.id, "messages": messages }));
    }
    let mut rows = table(&[
        "MESSAGE",
        "TYPE",
        "SUBJECT",
        "RECORDED",
        "SUBSCRIPTION",
        "STATE",
    ]);
    let now = now();
    for m in &messages {
        let recorded = format!("{} ago", age(now.millis_since(m.recorded_at)));
        let message = [
            m.id.clone(),
            m.message_type.clone(),
            m.subject.clone(),
            recorded,
        ];
        let mut states = m.subscriptions.iter();
        let none = (String::from("-"), String::from("no subscription takes it"));
        let first = states.next().map(|(s, state)| (s.clone(), describe(state)));
        let (subscription, state) = first.unwrap_or(none);
        rows.add_row(message.into_iter().chain([subscription, state]));
        for (subscription, state) in states {
            let blank = std::iter::repeat_n(String::new(), 4);
            rows.add_row(blank.chain([subscription.clone(), describe(state)]));
        }
    }
    output.table(&rows)
}

/// A message with its states by subscription.
fn message_json(message: &MessageStatus) -> Value {
    let states = message.subscriptions.iter();
    let states: Map<String, Value> = states.map(|(s, state)| (s.clone(), json!(state))).collect();
    let mut value = json!(message);
    value["subscriptions"] = Value::Object(states);
    value
}

/// How a message stands, for people.
pub(super) fn describe(state: &MessageState) -> String {
    match state {
        MessageState::Pending => "pending".to_owned(),
        MessageState::Delivered => "delivered".to_owned(),
        MessageState::Quarantined { case_id, reason } => {
            format!("quarantined, case {case_id}: {reason}")
        }
        MessageState::Resolved {
            case_id,
            resolution,
        } => format!("{}, case {case_id}", resolution.as_str()),
        MessageState::Finished {
            ending,
            merged_into,
            result,
            ..
        } => {
            let into = merged_into.as_ref().map(|id| format!(" into {id}"));
            let result = result.as_ref().map(|result| format!(": {result}"));
            let (into, result) = (into.unwrap_or_default(), result.unwrap_or_default());
            format!("{}{into}{result}", ending.as_str())
        }
        MessageState::Deferred {
            kind,
            due_at,
            spent,
            failure,
        } => {
            let mut text = format!("deferred ({kind})");
            let attempts = spent.failures.saturating_add(spent.deaths);
            if attempts > 0 {
                text.push_str(&format!(" after {attempts} attempts"));
            }
            if kind.as_str() == DeferralKind::Held.as_str() {
                text.push_str(", behind an earlier message of its key");
            } else if let Some(due_at) = due_at {
                let wait_ms = due_at.millis_since(now());
                text.push_str(&format!(", due in {}", age(wait_ms)));
            }
            if let Some(failure) = failure {
                text.push_str(&format!(": {} {}", failure.code, failure.message));
                if let Some(detail) = &failure.detail {
                    text.push_str(&format!(" ({detail})"));
                }
            }
            text
        }
    }
}

/// How an operation stands as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Going,
    Well,
    Badly,
}

fn standing(messages: &[MessageStatus]) -> Standing {
    let mut standing = Standing::Well;
    for (_, state) in messages.iter().flat_map(|m| &m.subscriptions) {
        match state {
            MessageState::Pending | MessageState::Deferred { .. } => return Standing::Going,
            MessageState::Quarantined { .. }
            | MessageState::Resolved { .. }
            | MessageState::Finished {
                ending: Ending::Rejected | Ending::Expired | Ending::Superseded | Ending::Shed,
                ..
            } => standing = Standing::Badly,
            MessageState::Finished { .. } | MessageState::Delivered => {}
        }
    }
    standing
}

async fn watch<S: Status + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &WatchArgs,
) -> Result<(), Error> {
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut seen: Vec<(String, String, MessageState)> = Vec::new();
    let mut revealing = Revealing::of(args.reveal, &args.by);
    loop {
        let messages = look(opened, &args.id, revealing.as_mut()).await?;
        let mut states = Vec::new();
        for m in &messages {
            for (subscription, state) in &m.subscriptions {
                let change = (m.id.clone(), subscription.clone(), ageless(state));
                if !seen.contains(&change) {
                    report(output, m, subscription, state)?;
                }
                states.push(change);
            }
        }
        seen = states;
        match standing(&messages) {
            Standing::Well => return Ok(()),
            Standing::Badly => {
                let message = format!("operation {:?} did not end well", args.id);
                return Err(Error::new(Code::Watch, message));
            }
            Standing::Going if give_up.is_some_and(|at| Instant::now() >= at) => {
                let message = format!("operation {:?} has not ended in time", args.id);
                return Err(Error::new(Code::Watch, message));
            }
            Standing::Going => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// A state without what time alone changes.
fn ageless(state: &MessageState) -> MessageState {
    let mut state = state.clone();
    if let MessageState::Deferred { spent, .. } = &mut state {
        spent.age_ms = 0;
    }
    state
}

fn report(
    output: Output,
    message: &MessageStatus,
    subscription: &str,
    state: &MessageState,
) -> Result<(), Error> {
    let (id, message_type) = (&message.id, &message.message_type);
    if output.is_json() {
        let mut line = json!(state);
        line["id"] = json!(id);
        line["type"] = json!(message_type);
        line["subscription"] = json!(subscription);
        line["seen_at"] = json!(now());
        return output.json(&line);
    }
    let state = describe(state);
    output.line(&format!(
        "{}  {message_type}  {id}  {subscription}: {state}",
        now()
    ))
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
