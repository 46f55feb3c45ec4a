//! Cases as they are shown: without payload data but what the type's marks permit, or revealed. And
//! campaigns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_core::sensitivity::{Difference, Sensitivity, differences};
use onceward_core::store::{AuditEntry, Campaign, Case};
use onceward_core::{Envelope, FailureRecord, Payload, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Attributes that are shown without revealing: they are the standard's, not the producer's own.
const OPEN_ATTRIBUTES: [&str; 7] = [
    "causationid",
    "correlationid",
    "datacontenttype",
    "dataref",
    "dataschema",
    "traceparent",
    "tracestate",
];

/// A case to be shown.
#[derive(Clone, Copy, Debug)]
pub struct CaseView<'a> {
    /// The case.
    pub case: &'a Case,
    /// What of its payload may be shown.
    pub sensitivity: &'a Sensitivity,
    /// Now, for ages.
    pub now: Timestamp,
}

impl CaseView<'_> {
    /// Its failure without payload data: hidden values are taken out of the text, and what was
    /// underneath is left out.
    #[must_use]
    pub fn failure(&self) -> FailureRecord {
        let row = &self.case.row;
        let open = row.envelope.open_values();
        let mut failure = self.case.failure.clone();
        failure.detail = None;
        let mut scrub = |payload: &Payload| {
            let message = self.sensitivity.scrubbed(&failure.message, payload, &open);
            failure.message = message;
        };
        scrub(&row.envelope.payload);
        if let Some(correction) = &self.case.correction {
            scrub(&correction.payload);
        }
        failure
    }

    /// How the correction differs from the original, where there is one and both are JSON.
    #[must_use]
    pub fn differences(&self) -> Option<Vec<Difference>> {
        let correction = self.case.correction.as_ref()?;
        differences_of(
            &self.case.row.envelope.payload,
            &correction.payload,
            self.sensitivity,
        )
    }

    /// For programs. Members are added and never changed.
    #[must_use]
    pub fn json(&self) -> Value {
        let case = self.case;
        let envelope = &case.row.envelope;
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
            "failure": self.failure(),
            "spent": case.spent,
            "attempts": attempts(case),
            "holds_key": case.holds_key,
            "first_opened_at": case.first_opened_at,
            "opened_at": case.opened_at,
            "opened_age_ms": self.now.millis_since(case.opened_at).max(0),
            "first_deferred_at": case.first_deferred_at,
            "correction": case.correction.as_ref().map(|correction| json!({
                "id": correction.id,
                "payload_bytes": correction.payload.len(),
                "payload": self.sensitivity.redacted(&correction.payload),
                "differences": self.differences(),
            })),
            "message": {
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
                "recorded_at": case.row.recorded_at,
                "attributes": open_attributes(envelope),
                "payload_bytes": envelope.payload.len(),
                "payload": self.sensitivity.redacted(&envelope.payload),
            },
        })
    }
}

/// What is shown only to whom it is revealed, beside what everybody is shown.
#[derive(Debug, Serialize)]
pub struct Revealed<'a> {
    #[serde(flatten)]
    case: Map<String, Value>,
    attributes: Map<String, Value>,
    detail: Option<&'a str>,
    #[serde(flatten)]
    data: Data<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    corrected: Option<Data<'a>>,
}

impl<'a> Revealed<'a> {
    /// Everything that is known of a case. To be recorded before it is shown.
    #[must_use]
    pub fn of(view: &CaseView<'a>) -> Self {
        let case = view.case;
        let shown = match view.json() {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        let attributes = case.row.envelope.attributes.iter();
        let correction = case.correction.as_ref();
        Self {
            case: shown,
            attributes: attributes
                .map(|(name, value)| (name.clone(), json!(value)))
                .collect(),
            detail: case.failure.detail.as_deref(),
            data: Data::of(&case.row.envelope.payload),
            corrected: correction.map(|correction| Data::of(&correction.payload)),
        }
    }
}

/// A payload as it was sent: a value would not keep the spelling of its numbers.
#[derive(Debug, Serialize)]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

impl<'a> Data<'a> {
    fn of(payload: &'a Payload) -> Self {
        let mut of = Self {
            data: None,
            data_text: None,
            data_base64: None,
        };
        match payload {
            // Nested too deeply for the reader, it is shown as a text.
            Payload::Json(text) => match serde_json::from_str(text) {
                Ok(raw) => of.data = Some(raw),
                Err(_) => of.data_text = Some(text),
            },
            Payload::Binary(bytes) => of.data_base64 = Some(STANDARD.encode(bytes)),
        }
        of
    }
}

/// How often the message was tried in vain.
#[must_use]
pub fn attempts(case: &Case) -> u32 {
    case.spent.failures.saturating_add(case.spent.deaths)
}

/// How two payloads differ, as far as it may be shown; `None` when one of them is not JSON.
#[must_use]
pub fn differences_of(
    before: &Payload,
    after: &Payload,
    sensitivity: &Sensitivity,
) -> Option<Vec<Difference>> {
    let value = |payload: &Payload| -> Option<Value> {
        match payload {
            Payload::Json(text) => serde_json::from_str(text).ok(),
            Payload::Binary(_) => None,
        }
    };
    let (old, new) = (value(before)?, value(after)?);
    Some(differences(&old, &new, sensitivity))
}

/// A campaign, for programs.
#[must_use]
pub fn campaign_json(campaign: &Campaign) -> Value {
    let mut value = json!(campaign);
    value["state"] = json!(campaign.standing.state);
    value["items_total"] = json!(campaign.counts.total());
    value
}

/// One action of a case's history, for programs.
#[must_use]
pub fn entry_json(entry: &AuditEntry) -> Value {
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

fn open_attributes(envelope: &Envelope) -> Map<String, Value> {
    let is_open = |name: &String| OPEN_ATTRIBUTES.contains(&name.as_str());
    let open = envelope.attributes.iter().filter(|(name, _)| is_open(name));
    open.map(|(name, value)| (name.clone(), json!(value)))
        .collect()
}
