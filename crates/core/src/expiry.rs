//! Work that has become useless: when, and what follows. Pure decisions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Row};
use crate::failure::Failure;
use crate::timestamp::Timestamp;

/// Code of a message whose time was over before it could be done.
pub const EXPIRED: &str = "expired";

/// What a message that is handed over is called: its type with this behind it.
const HANDED_OVER: &str = ".expired";

/// What becomes of a message whose time is over.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expired {
    /// It is done, however late.
    #[default]
    Keep,
    /// It becomes a case.
    Quarantine,
    /// It is given up; the ledger says so.
    Drop,
    /// The same, and another subscription gets it: as a message of the type `TYPE.expired`, with
    /// its id, key and operation, appended in the same commit.
    Fallback(String),
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Quarantine => f.write_str("quarantine"),
            Self::Drop => f.write_str("drop"),
            Self::Fallback(name) => write!(f, "fallback {name}"),
        }
    }
}

/// The type of what a fallback subscription gets of messages of a type.
#[must_use]
pub fn type_of_expired(message_type: &str) -> String {
    format!("{message_type}{HANDED_OVER}")
}

/// When a message is over: at the time that it names, or when it has been in the log for as long as
/// it is useful, whichever comes first. `None`: never.
#[must_use]
pub fn over_at(row: &Row, useful_for_ms: Option<u64>) -> Option<Timestamp> {
    let by_age = useful_for_ms.map(|ms| {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        row.recorded_at.plus_millis(ms)
    });
    match (row.envelope.expires_at, by_age) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What a fallback subscription gets. Its identity is the message's own, so that it is handed over
/// once, and it has no end any more.
#[must_use]
pub fn handed_over(row: &Row) -> Envelope {
    let envelope = &row.envelope;
    let mut handed = Envelope {
        message_type: type_of_expired(&envelope.message_type),
        operation_id: Some(envelope.operation().to_owned()),
        expires_at: None,
        ..envelope.clone()
    };
    handed
        .attributes
        .entry("causationid".to_owned())
        .or_insert_with(|| envelope.id.clone());
    handed
}

/// Why a message is over.
#[must_use]
pub fn expired(over_at: Timestamp) -> Failure {
    Failure::permanent(EXPIRED, format!("its time was over at {over_at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Payload;

    fn row(recorded_ms: i64, expires_ms: Option<i64>) -> Row {
        let payload = Payload::Json("1".into());
        let mut envelope = Envelope::new("m1", "order", "o1", "order.ship", payload);
        envelope.expires_at = expires_ms.map(|ms| Timestamp::from_micros(ms * 1_000));
        Row {
            xid: 1,
            seq: 1,
            slot: 0,
            recorded_at: Timestamp::from_micros(recorded_ms * 1_000),
            envelope,
            corrects: None,
        }
    }

    fn at(ms: i64) -> Option<Timestamp> {
        Some(Timestamp::from_micros(ms * 1_000))
    }

    #[test]
    fn whichever_end_comes_first_counts() {
        assert_eq!(over_at(&row(1_000, None), None), None);
        assert_eq!(over_at(&row(1_000, None), Some(500)), at(1_500));
        assert_eq!(over_at(&row(1_000, Some(1_200)), None), at(1_200));
        assert_eq!(over_at(&row(1_000, Some(1_200)), Some(500)), at(1_200));
        assert_eq!(over_at(&row(1_000, Some(9_000)), Some(500)), at(1_500));
    }

    #[test]
    fn the_longest_use_is_for_ever_and_overflows_nothing() {
        let end = over_at(&row(1_000, None), Some(u64::MAX)).unwrap();
        assert!(end.as_micros() > 1_000_000);
    }

    #[test]
    fn what_is_handed_over_is_the_same_message_without_an_end() {
        let handed = handed_over(&row(0, Some(5)));
        assert_eq!(handed.message_type, "order.ship.expired");
        assert_eq!(
            (handed.id.as_str(), handed.key(), handed.operation()),
            ("m1", "o1", "m1")
        );
        assert_eq!(handed.expires_at, None);
        assert_eq!(handed.attributes["causationid"], "m1");
    }
}
