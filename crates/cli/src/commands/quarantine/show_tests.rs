use onceward_core::store::Standing;
use onceward_core::{Envelope, Failure, Spent, Timestamp};

use super::*;

fn case() -> Case {
    let payload = Payload::Json("{\"card\":\"4111\"}".into());
    let mut envelope = Envelope::new("m1", "order", "o1", "order.accepted", payload);
    envelope
        .attributes
        .insert("customername".into(), "Ada".into());
    envelope
        .attributes
        .insert("traceparent".into(), "00-aa".into());
    let inner = std::io::Error::other("key (card)=(4111) exists");
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
        correction: None,
        reason: "permanent: constraint".into(),
        failure: Failure::permanent("constraint", "refused")
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

#[test]
fn nothing_of_the_payload_is_shown_unless_revealed() {
    let text = |reveal| {
        format!(
            "{:?} {}",
            lines(&case(), reveal),
            case_json(&case(), reveal)
        )
    };
    let (hidden, revealed) = (text(false), text(true));
    for secret in ["4111", "Ada"] {
        assert!(!hidden.contains(secret), "{hidden}");
        assert!(revealed.contains(secret), "{revealed}");
    }
    assert!(hidden.contains("00-aa") && hidden.contains("permanent: constraint"));
}
