use std::sync::Arc;

use onceward_core::case::Correction;
use onceward_core::store::Standing;
use onceward_core::{Envelope, Failure, Payload, Row, Spent, Timestamp};
use serde_json::json;

use super::*;

fn case() -> Case {
    let payload = Payload::Json("{\"card\":\"4111\",\"zip\":\"89073\"}".into());
    let mut envelope = Envelope::new("m1", "order", "o1", "order.accepted", payload);
    envelope
        .attributes
        .insert("customername".into(), "Ada".into());
    envelope
        .attributes
        .insert("traceparent".into(), "00-aa".into());
    let inner = std::io::Error::other("key (card)=(4111) exists");
    let correction = Correction {
        id: "c1".into(),
        payload: Payload::Json("{\"card\":\"5500\",\"zip\":\"89075\"}".into()),
    };
    Case {
        case_id: 7,
        subscription: "billing".into(),
        row: Row {
            xid: 1,
            seq: 1,
            slot: 1,
            recorded_at: Timestamp::from_micros(0),
            envelope,
            corrects: None,
        },
        correction: Some(correction),
        reason: "permanent: constraint".into(),
        failure: Failure::permanent("constraint", "4111 of o1 is refused, and 5500")
            .with_source(inner)
            .record(),
        spent: Spent::default(),
        key: "o1".into(),
        standing: Standing::default(),
        fingerprint: "00".into(),
        first_opened_at: Timestamp::from_micros(0),
        holds_key: true,
        opened_at: Timestamp::from_micros(0),
        first_deferred_at: None,
    }
}

fn text(sensitivity: &Sensitivity) -> String {
    let case = case();
    let view = CaseView {
        case: &case,
        sensitivity,
        now: Timestamp::from_micros(0),
    };
    format!("{:?} {}", lines(&view), view.json())
}

#[test]
fn nothing_of_the_payload_is_shown_without_marks() {
    let shown = text(&Sensitivity::All);
    for secret in ["4111", "5500", "89073", "89075", "Ada"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(
        shown.contains("<hidden> of o1 is refused, and <hidden>"),
        "{shown}"
    );
    assert!(shown.contains("00-aa") && shown.contains("permanent: constraint"));
}

#[test]
fn what_the_marks_leave_is_shown() {
    let schema = json!({ "properties": { "card": { "x-sensitive": true }, "zip": {} } });
    let shown = text(&Sensitivity::of(vec![Arc::new(schema)], None));
    for secret in ["4111", "5500", "Ada"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for open in ["89073", "89075", "c1"] {
        assert!(shown.contains(open), "{shown}");
    }
}
