//! `onceward quarantine`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use onceward_core::store::{Case, CaseQuery, Cases};
use onceward_core::{Payload, Row};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};
use crate::output::{Output, age, align_right, now, table};
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

/// What to do with cases.
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// List the cases, oldest first
    List(ListArgs),
    /// Show one case; payload, attributes and details of errors only with --reveal
    Show(ShowArgs),
}

/// Options of `quarantine list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only cases of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only cases with a higher number
    #[arg(long, value_name = "CASE", default_value_t = 0)]
    after: i64,
    /// Most cases
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

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

/// Runs a command on cases.
///
/// # Errors
/// When the store or standard output fails, or there is no such case.
pub async fn run<S: Cases>(
    opened: Opened<'_, S>,
    output: Output,
    command: &QuarantineCommand,
) -> Result<(), Error> {
    match command {
        QuarantineCommand::List(args) => list(opened, output, args).await,
        QuarantineCommand::Show(args) => show(opened, output, args).await,
    }
}

async fn list<S: Cases>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ListArgs,
) -> Result<(), Error> {
    let query = CaseQuery {
        subscription: args.subscription.as_deref(),
        after_case_id: args.after,
        rows_max: args.limit,
        case_id: None,
    };
    let cases = opened.check(opened.store.cases(query).await)?;
    if output.is_json() {
        let items: Vec<Value> = cases.iter().map(|case| case_json(case, false)).collect();
        return output.json(&json!({ "cases": items }));
    }
    if cases.is_empty() {
        output.say("no cases");
        return Ok(());
    }
    let mut rows = table(&[
        "CASE",
        "SUBSCRIPTION",
        "TYPE",
        "SUBJECT",
        "REASON",
        "ATTEMPTS",
        "HOLDS KEY",
        "OPENED",
    ]);
    let now = now();
    for case in &cases {
        rows.add_row([
            case.case_id.to_string(),
            case.subscription.clone(),
            case.row.envelope.message_type.clone(),
            case.row.envelope.aggregate_id.clone(),
            case.reason.clone(),
            attempts(case).to_string(),
            if case.holds_key { "yes" } else { "no" }.to_owned(),
            format!("{} ago", age(now.millis_since(case.opened_at))),
        ]);
    }
    align_right(&mut rows, &[0, 5]);
    output.table(&rows)
}

fn attempts(case: &Case) -> u32 {
    case.spent.failures.saturating_add(case.spent.deaths)
}

async fn show<S: Cases>(
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
    if output.is_json() {
        return show_json(output, &case, args.reveal);
    }
    for (name, text) in lines(&case, args.reveal) {
        output.line(&format!("{name:<18} {text}"))?;
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
        ("state", case.state.as_str().to_owned()),
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
    ];
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

/// A case without its data.
fn case_json(case: &Case, reveal: bool) -> Value {
    let mut failure = case.failure.clone();
    if !reveal {
        failure.detail = None;
    }
    json!({
        "case_id": case.case_id,
        "state": case.state.as_str(),
        "subscription": case.subscription,
        "reason": case.reason,
        "failure": failure,
        "spent": case.spent,
        "attempts": attempts(case),
        "holds_key": case.holds_key,
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
fn show_json(output: Output, case: &Case, reveal: bool) -> Result<(), Error> {
    #[derive(serde::Serialize)]
    struct Shown<'a> {
        #[serde(flatten)]
        case: &'a Map<String, Value>,
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
#[path = "quarantine_tests.rs"]
mod tests;
