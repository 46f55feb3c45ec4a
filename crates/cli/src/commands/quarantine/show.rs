//! `onceward quarantine show`: one case with its history, without payload data but what the type's
//! marks permit.

use clap::Args;
use onceward_console::view::{CaseView, attempts, entry_json};
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::{
    AuditEntry, Case, CaseQuery, CaseState, Cases, HistoryQuery, MessageState, Operate,
    OperationQuery, Status,
};
use serde_json::{Value, json};

use super::Surroundings;
use super::correct::lines as difference_lines;
use crate::commands::acting::case_number;
use crate::commands::operation::{describe, withhold};
use crate::error::{Code, Error};
use crate::output::{Output, age, now, plain};
use crate::store::Opened;

/// Most messages of an operation among which a case's message is looked for.
const MESSAGES_MAX: u32 = 1_000;

/// Most rows of a case's history that are shown.
const HISTORY_MAX: u32 = 1_000;

/// Options of `quarantine show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Case number
    #[arg(value_name = "CASE", value_parser = case_number)]
    case_id: i64,
}

/// The case of a number.
pub(super) async fn one_case<S: Cases>(opened: Opened<'_, S>, case_id: i64) -> Result<Case, Error> {
    let query = CaseQuery {
        case_id: Some(case_id),
        rows_max: 1,
        ..CaseQuery::default()
    };
    let mut cases = opened.check(opened.store.cases(query).await)?;
    cases.pop().ok_or_else(|| {
        let message = format!("there is no case {case_id}");
        Error::new(Code::NotFound, message)
    })
}

pub(super) async fn show<S: Cases + Operate + Status>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ShowArgs,
    surroundings: &Surroundings<'_>,
) -> Result<(), Error> {
    let case = one_case(opened, args.case_id).await?;
    let query = HistoryQuery {
        case_id: Some(args.case_id),
        rows_max: HISTORY_MAX,
        ..HistoryQuery::default()
    };
    let history = opened.check(opened.store.history(query).await)?;
    let sensitivity = surroundings.sensitivity(output, &case.row.envelope.message_type);
    let view = CaseView {
        case: &case,
        sensitivity: &sensitivity,
        now: now(),
    };
    let since = since_released(opened, &case).await?;
    if output.is_json() {
        let mut shown = view.json();
        shown["since_released"] = json!(since);
        shown["history"] = history.iter().map(entry_json).collect();
        return output.json(&shown);
    }
    for (name, text) in lines(&view) {
        output.line(&format!("{name:<18} {text}"))?;
    }
    if case.standing.state == CaseState::Replayed {
        let text = since.as_ref().map_or_else(
            || "the log has forgotten its message".to_owned(),
            |state| plain(&describe(state)),
        );
        output.line(&format!("{:<18} {text}", "since released"))?;
    }
    for entry in &history {
        output.line(&format!("{:<18} {}", "history", history_line(entry)))?;
    }
    output.say(&format!(
        "what is hidden is shown by: onceward quarantine reveal {} --why …",
        case.case_id
    ));
    Ok(())
}

/// How the message of a released case stands, by log, ledger and deferrals, without results and
/// details. None where the case was not released, or the log has forgotten the message.
async fn since_released<S: Status>(
    opened: Opened<'_, S>,
    case: &Case,
) -> Result<Option<MessageState>, Error> {
    if case.standing.state != CaseState::Replayed {
        return Ok(None);
    }
    let envelope = &case.row.envelope;
    let query = OperationQuery {
        operation: envelope.operation(),
        rows_max: MESSAGES_MAX,
    };
    let messages = opened.check(opened.store.operation(query).await)?;
    let mut states = messages
        .into_iter()
        .filter(|message| {
            message.id == envelope.id
                && message.message_type == envelope.message_type
                && Some(message.source.as_str()) == envelope.source.as_deref()
        })
        .flat_map(|message| message.subscriptions)
        .filter(|(subscription, _)| *subscription == case.subscription);
    Ok(states.next().map(|(_, mut state)| {
        withhold(&mut state);
        state
    }))
}

/// What people are shown.
pub(super) fn lines(view: &CaseView<'_>) -> Vec<(&'static str, String)> {
    let case = view.case;
    let envelope = &case.row.envelope;
    let since = |then| format!("{then} ({} ago)", age(view.now.millis_since(then)));
    let failure = view.failure();
    let mut lines = vec![
        ("case", case.case_id.to_string()),
        ("state", standing_text(case)),
        ("subscription", case.subscription.clone()),
        ("reason", case.reason.clone()),
        (
            "failure",
            format!("{} ({})", failure.message, failure.class),
        ),
        ("failures", case.spent.failures.to_string()),
        ("worker deaths", case.spent.deaths.to_string()),
        (
            "holds its key",
            if case.holds_key { "yes" } else { "no" }.to_owned(),
        ),
        ("opened", since(case.opened_at)),
        ("fingerprint", case.fingerprint.clone()),
    ];
    if case.opened_at != case.first_opened_at {
        lines.push(("first opened", since(case.first_opened_at)));
    }
    if let Some(owner) = &case.standing.owner {
        lines.push(("owner", plain(owner)));
    }
    if let Some(due_at) = case.standing.due_at {
        lines.push(("due", due_at.to_string()));
    }
    if let Some(first) = case.first_deferred_at {
        lines.push(("first deferred", since(first)));
    }
    lines.extend([
        ("attempts", attempts(case).to_string()),
        ("message", envelope.id.clone()),
        ("source", envelope.source.clone().unwrap_or_default()),
        ("type", envelope.message_type.clone()),
        ("operation", envelope.operation().to_owned()),
        ("subject", envelope.aggregate_id.clone()),
        ("recorded", since(case.row.recorded_at)),
        ("payload", format!("{:?}", envelope.payload)),
    ]);
    let redacted = |sensitivity: &Sensitivity, payload| sensitivity.redacted(payload);
    lines.extend(shown(
        "shown of it",
        redacted(view.sensitivity, &envelope.payload),
    ));
    if let Some(correction) = &case.correction {
        lines.push(("corrected as", correction.id.clone()));
        let found = view.differences();
        let texts = difference_lines(found.as_deref(), &envelope.payload, &correction.payload);
        lines.extend(texts.into_iter().map(|text| ("difference", plain(&text))));
    }
    lines
}

fn shown(name: &'static str, value: Option<Value>) -> Option<(&'static str, String)> {
    value.map(|value| (name, value.to_string()))
}

fn standing_text(case: &Case) -> String {
    let standing = &case.standing;
    let mut text = standing.state.as_str().to_owned();
    if standing.replays > 0 {
        text.push_str(&format!(", replayed {}x", standing.replays));
    }
    if standing.regressions > 0 {
        text.push_str(&format!(", back {}x", standing.regressions));
    }
    text
}

/// One action for people: when, who, what, and why.
fn history_line(entry: &AuditEntry) -> String {
    let why = entry.why.as_deref().map(|why| format!(": {}", plain(why)));
    let (at, who) = (entry.acted_at, plain(&entry.who));
    format!("{at}  {who}  {}{}", entry.action, why.unwrap_or_default())
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
