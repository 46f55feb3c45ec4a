//! CloudEvents 1.0 on HTTP and NATS, on AMQP and as JSON: binary, structured and batch, to and from
//! an [`Envelope`].
//!
//! Data is carried byte for byte or refused, never altered. Attributes are strings here: a boolean
//! or integer of a structured event becomes its canonical text, which is how intermediaries may
//! forward it.
//!
//! | on the wire | in the envelope |
//! |---|---|
//! | `id`, `source`, `type` | the same; required, not empty |
//! | `subject` | aggregate id; the id where it is absent |
//! | `aggregatetype` | aggregate type; what stands before the first dot of `type` where absent |
//! | `partitionkey`, `operationid` | the same |
//! | `sequence` | aggregate version, 20 digits on output, 1 to 20 on input; any other text stays a plain attribute |
//! | `schemaversion` | schema version, a 32-bit integer |
//! | `time`, `expirytime` | occurred at, expires at; kept to the microsecond |
//! | `recordedtime` | output only: when the log took it; on input it is dropped, because only the log can say it |
//! | `datacontenttype` | an attribute; absent when it is exactly `application/json` and the data is JSON |
//! | everything else | an attribute |
//!
//! The priority of an envelope does not travel.
//!
//! HTTP and NATS have the same headers, percent-encoded; AMQP has application properties with texts
//! as they are.
//!
//! **Data.** Under a JSON content type (`json` or a `+json` suffix) the data must be one JSON text,
//! at most [`NESTING_MAX`] levels deep, and becomes [`Payload::Json`]. Numbers of any size,
//! duplicate members, `\u0000` and blanks stay as they are. Under any other type it becomes
//! [`Payload::Binary`]. A body without a content type is taken for JSON where it is an object or an
//! array, because common senders leave the type out, else for binary. An event without data (a
//! `dataref` alone, an empty body) has an empty binary payload; `"data": null` is the JSON text
//! `null`.
//!
//! **Refused:** duplicate attributes, names outside `a`–`z` and `0`–`9`, control characters and
//! Unicode noncharacters in attributes, bytes that are not UTF-8, texts longer than
//! [`TEXT_BYTES_MAX`] where they become part of a key.
//!
//! [`Envelope`]: crate::Envelope
//! [`Payload::Json`]: crate::Payload::Json
//! [`Payload::Binary`]: crate::Payload::Binary

mod attributes;
mod binary;
mod data;
mod fault;
pub(crate) mod percent;
mod properties;
mod structured;

pub(crate) use attributes::is_field;
pub use binary::{BinaryEvent, from_binary, to_binary};
pub use data::NESTING_MAX;
pub use fault::{EventFault, FaultKind, Place};
pub use properties::{
    PROPERTY_PREFIX, PropertiesEvent, attribute_of, from_properties, to_properties,
};
pub use structured::{from_batch, from_structured, to_batch, to_structured};

/// Longest text, in bytes, of an attribute that becomes part of a key: `id`, `source`, `subject`,
/// `operationid`, `partitionkey`. Keys live in database indexes, which refuse long entries.
pub const TEXT_BYTES_MAX: usize = 512;

/// Longest `type` and `aggregatetype` in bytes.
pub const TYPE_BYTES_MAX: usize = 200;

/// Media type of one event as JSON.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// Media type of an array of events as JSON.
pub const BATCH: &str = "application/cloudevents-batch+json";

/// How a request carries events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One event: attributes in headers, data in the body.
    Binary,
    /// One event as JSON.
    Structured,
    /// Any number of events as a JSON array.
    Batch,
}

impl Mode {
    /// The mode that a request's headers declare; `None` when it carries no event that can be read
    /// here.
    #[must_use]
    pub fn of(content_type: Option<&str>, has_specversion_header: bool) -> Option<Self> {
        let essence = content_type.map(data::essence).unwrap_or_default();
        match essence.as_str() {
            STRUCTURED => Some(Self::Structured),
            BATCH => Some(Self::Batch),
            other if other.starts_with("application/cloudevents") => None,
            _ if has_specversion_header => Some(Self::Binary),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "roundtrip_tests.rs"]
mod roundtrip_tests;
