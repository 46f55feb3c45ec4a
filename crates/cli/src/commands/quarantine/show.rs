//! `onceward quarantine show`: one case with its history; payloads only where asked for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use onceward_core::store::{AuditEntry, Case, CaseQuery, Cases, HistoryQuery, Operate};
use onceward_core::{Payload, Row};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};
use crate::output::{Output, age, now, plain};
use crate::store::Opened;

/// Attributes that are shown without `--reveal`: they are the standard's, not the producer's own.
const OPEN_ATTRIBUTES: [&str; 7] = [
    "causationid",
    "correlationid",
    "datacontenttype",
    "dataref",
    "dataschema",
    "traceparent",
    "tracestate",
];

/// Most rows of a case's history that are shown.
const HISTORY_MAX: u32 = 1_000;

/// Options of `quarantine show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Case number
    #[arg(value_name = "CASE")]
    case_id: i64,
    /// Show payload, all attributes and the database's words
    #[arg(long)]
    reveal: bool,
}

pub(super) fn attempts(case: &Case) -> u32 {
    case.spent.failures.saturating_add(case.spent.deaths)
}

pub(super) async fn show<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ShowArgs,
) -> Result<(), Error> {
    let query = CaseQuery {
        case_id: Some(args.case_id),
        rows_max: 1,
        ..CaseQuery::default()
    };
    let mut cases = opened.check(opened.store.cases(query).await)?;
    let Some(case) = cases.pop() else {
        let message = format!("there is no case {}", args.case_id);
        return Err(Error::new(Code::NotFound, message));
    };
    let query = HistoryQuery {
        case_id: Some(args.case_id),
        rows_max: HISTORY_MAX,
        ..HistoryQuery::default()
    };
    let history = opened.check(opened.store.history(query).await)?;
    if output.is_json() {
        return show_json(output, &case, &history, args.reveal);
    }
    for (name, text) in lines(&case, args.reveal) {
        output.line(&format!("{name:<18} {text}"))?;
    }
    for entry in &history {
        output.line(&format!("{:<18} {}", "history", history_line(entry)))?;
    }
    if !args.reveal {
        output.say("payload, attributes and details are withheld; --reveal shows them");
    }
    Ok(())
}

/// What people are shown.
fn lines(case: &Case, reveal: bool) -> Vec<(&'static str, String)> {
    let now = now();
    let envelope = &case.row.envelope;
    let since = |then| format!("{then} ({} ago)", age(now.millis_since(then)));
    let mut lines = vec![
        ("case", case.case_id.to_string()),
        ("state", standing_text(case)),
        ("subscription", case.subscription.clone()),
        ("reason", case.reason.clone()),
        (
            "failure",
            format!("{} ({})", case.failure.message, case.failure.class),
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
        ("message", envelope.id.clone()),
        ("source", envelope.source.clone().unwrap_or_default()),
        ("type", envelope.message_type.clone()),
        ("operation", envelope.operation().to_owned()),
        ("subject", envelope.aggregate_id.clone()),
        ("recorded", since(case.row.recorded_at)),
        ("payload", format!("{:?}", envelope.payload)),
    ]);
    if reveal {
        for (name, value) in &envelope.attributes {
            lines.push(("attribute", format!("{name} = {value}")));
        }
        if let Some(detail) = &case.failure.detail {
            lines.push(("detail", detail.clone()));
        }
        lines.push(match &envelope.payload {
            Payload::Json(text) => ("data", text.to_string()),
            Payload::Binary(bytes) => ("data (base64)", STANDARD.encode(bytes)),
        });
    }
    lines
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

/// One action for programs.
fn entry_json(entry: &AuditEntry) -> Value {
    let account = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    json!({
        "audit_id": entry.audit_id,
        "acted_at": entry.acted_at,
        "who": entry.who,
        "action": entry.action,
        "why": entry.why,
        "before": account(&entry.before),
        "after": account(&entry.after),
    })
}

/// A case without its data.
pub(super) fn case_json(case: &Case, reveal: bool) -> Value {
    let mut failure = case.failure.clone();
    if !reveal {
        failure.detail = None;
    }
    json!({
        "case_id": case.case_id,
        "state": case.standing.state,
        "owner": case.standing.owner,
        "due_at": case.standing.due_at,
        "replays": case.standing.replays,
        "regressions": case.standing.regressions,
        "fingerprint": case.fingerprint,
        "subscription": case.subscription,
        "reason": case.reason,
        "failure": failure,
        "spent": case.spent,
        "attempts": attempts(case),
        "holds_key": case.holds_key,
        "first_opened_at": case.first_opened_at,
        "opened_at": case.opened_at,
        "opened_age_ms": now().millis_since(case.opened_at).max(0),
        "first_deferred_at": case.first_deferred_at,
        "message": message_json(&case.row, reveal),
    })
}

fn message_json(row: &Row, reveal: bool) -> Value {
    let envelope = &row.envelope;
    let open = |name: &str| reveal || OPEN_ATTRIBUTES.contains(&name);
    let attributes: Map<String, Value> = envelope
        .attributes
        .iter()
        .filter(|(name, _)| open(name))
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    json!({
        "id": envelope.id,
        "source": envelope.source,
        "type": envelope.message_type,
        "operation": envelope.operation(),
        "aggregate_type": envelope.aggregate_type,
        "subject": envelope.aggregate_id,
        "partition_key": envelope.partition_key,
        "schema_version": envelope.schema_version,
        "aggregate_version": envelope.aggregate_version,
        "occurred_at": envelope.occurred_at,
        "expires_at": envelope.expires_at,
        "recorded_at": row.recorded_at,
        "attributes": attributes,
        "payload_bytes": envelope.payload.len(),
    })
}

/// One case with its data as they were sent: a value would not keep the spelling of its numbers.
fn show_json(
    output: Output,
    case: &Case,
    history: &[AuditEntry],
    reveal: bool,
) -> Result<(), Error> {
    #[derive(serde::Serialize)]
    struct Shown<'a> {
        #[serde(flatten)]
        case: &'a Map<String, Value>,
        history: Vec<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        data_text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        data_base64: Option<String>,
    }
    let value = case_json(case, reveal);
    let empty = Map::new();
    let mut shown = Shown {
        case: value.as_object().unwrap_or(&empty),
        history: history.iter().map(entry_json).collect(),
        data: None,
        data_text: None,
        data_base64: None,
    };
    if reveal {
        match &case.row.envelope.payload {
            // Nested too deeply for the reader, it is shown as a text.
            Payload::Json(text) => match serde_json::from_str(text) {
                Ok(raw) => shown.data = Some(raw),
                Err(_) => shown.data_text = Some(text),
            },
            Payload::Binary(bytes) => shown.data_base64 = Some(STANDARD.encode(bytes)),
        }
    }
    output.json(&shown)
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
