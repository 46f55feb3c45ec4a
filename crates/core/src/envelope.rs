//! A message as it is stored and carried.

use std::collections::BTreeMap;
use std::fmt;

use crate::timestamp::Timestamp;

/// The content of a message, kept byte for byte as the producer wrote it.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// A JSON text. Never re-serialised: key order, number spelling and blanks stay.
    Json(Box<str>),
    /// Any other bytes.
    Binary(Box<[u8]>),
}

impl Payload {
    /// The bytes as sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

/// Shows kind and size only: payloads are withheld by default everywhere.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Json(_) => "json",
            Self::Binary(_) => "binary",
        };
        write!(f, "<{kind} payload, {} bytes>", self.len())
    }
}

/// A message with everything that travels with it: the row of the outbox, and a CloudEvent on the
/// wire.
///
/// Field names follow the columns of `onceward.outbox`; the CloudEvents attribute is named where
/// it differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Message id. With `source` it names the message for ever; a re-send keeps it.
    pub id: String,
    /// Who produced it, a URI reference. `None` means the store's own source.
    pub source: Option<String>,
    /// Aggregate type: chooses the topic at a broker, travels as an extension attribute.
    pub aggregate_type: String,
    /// Aggregate id (`subject`): slot and order, unless `partition_key` is set.
    pub aggregate_id: String,
    /// Message type (`type`).
    pub message_type: String,
    /// Business operation (`operationid`). `None` means the message id.
    pub operation_id: Option<String>,
    /// Ordering key where it is not the aggregate id (`partitionkey`).
    pub partition_key: Option<String>,
    /// Version of the payload's schema (`schemaversion`).
    pub schema_version: Option<i32>,
    /// Version of the aggregate (`sequence` on the wire, 20 digits).
    pub aggregate_version: Option<i64>,
    /// When it happened (`time`).
    pub occurred_at: Option<Timestamp>,
    /// After this it is no longer useful (`expirytime`).
    pub expires_at: Option<Timestamp>,
    /// A number of the producer's own, 0 by default. It is carried along; which messages start first
    /// is said by their [type](crate::group::Priority).
    pub priority: i16,
    /// Other CloudEvents attributes by name: `correlationid`, `causationid`, `traceparent`,
    /// `tracestate`, `datacontenttype`, `dataschema`, `dataref` and the producer's own.
    pub attributes: BTreeMap<String, String>,
    /// The content.
    pub payload: Payload,
}

impl Envelope {
    /// An envelope with the five mandatory parts; everything else has its default.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        message_type: impl Into<String>,
        payload: Payload,
    ) -> Self {
        Self {
            id: id.into(),
            source: None,
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            message_type: message_type.into(),
            operation_id: None,
            partition_key: None,
            schema_version: None,
            aggregate_version: None,
            occurred_at: None,
            expires_at: None,
            priority: 0,
            attributes: BTreeMap::new(),
            payload,
        }
    }

    /// The key that order and slot follow: the partition key, else the aggregate id.
    #[must_use]
    pub fn key(&self) -> &str {
        self.partition_key.as_deref().unwrap_or(&self.aggregate_id)
    }

    /// The business operation: as declared, else the message id.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.operation_id.as_deref().unwrap_or(&self.id)
    }

    /// What of it is shown to everybody beside the standard's attributes, and may stand in texts.
    #[must_use]
    pub fn open_values(&self) -> Vec<&str> {
        let optional = [&self.source, &self.operation_id, &self.partition_key];
        let mut open: Vec<&str> = optional.into_iter().flatten().map(String::as_str).collect();
        open.extend([
            self.id.as_str(),
            &self.aggregate_type,
            &self.aggregate_id,
            &self.message_type,
        ]);
        open
    }

    /// Bytes this envelope holds in memory, near enough for bounding windows.
    #[must_use]
    pub fn weight(&self) -> usize {
        let texts = self.id.len()
            + self.source.as_ref().map_or(0, String::len)
            + self.aggregate_type.len()
            + self.aggregate_id.len()
            + self.message_type.len();
        let attributes: usize = self
            .attributes
            .iter()
            .map(|(k, v)| k.len() + v.len() + 64)
            .sum();
        size_of::<Self>() + texts + attributes + self.payload.len()
    }
}

/// A message as read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The transaction that appended it (PostgreSQL: its top-level `xid8`; SQLite: equal to `seq`).
    pub xid: u64,
    /// Place in the log's own sequence. Unique within the store; not a commit order.
    pub seq: u64,
    /// Slot 0–1023 from a hash of the key.
    pub slot: u16,
    /// When the log took it (`recordedtime`), by the database's clock.
    pub recorded_at: Timestamp,
    /// The message, with `source` filled in.
    pub envelope: Envelope,
    /// The id of the message that this one corrects; rows of the log have none.
    pub corrects: Option<Box<str>>,
}

impl Row {
    /// The message id that the effect goes by: a corrected message is the same effect as the one
    /// whose place it takes, so that it happens once even if the original was done after all.
    #[must_use]
    pub fn effect_id(&self) -> &str {
        self.corrects.as_deref().unwrap_or(&self.envelope.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_withholds_the_payload() {
        let payload = Payload::Json("{\"card\":\"4111\"}".into());
        let envelope = Envelope::new("1", "order", "o", "order.accepted", payload);
        let shown = format!("{envelope:?}");
        assert!(!shown.contains("4111"), "{shown}");
        assert!(shown.contains("15 bytes"), "{shown}");
    }

    #[test]
    fn key_and_operation_fall_back() {
        let mut envelope = Envelope::new("m", "order", "o", "t", Payload::Json("1".into()));
        assert_eq!((envelope.key(), envelope.operation()), ("o", "m"));
        envelope.partition_key = Some("p".into());
        envelope.operation_id = Some("op".into());
        assert_eq!((envelope.key(), envelope.operation()), ("p", "op"));
    }
}
