//! The seams to a broker: publishing with confirmations, and receiving with acknowledgements.
//!
//! A relay is a subscription whose effect is a confirmed publish, so what a [`Publisher`] says of a
//! message is a [`Failure`](crate::Failure) like that of any other attempt: the same classes, the
//! same budget, the same quarantine. What brokers do differently is not an error at run time but
//! [`Capabilities`], against which configuration is checked.
//!
//! # What an end of publishing means
//!
//! | what happened | failure |
//! |---|---|
//! | no connection, refused, not yet sent | unavailable ([`UNCONNECTED`]): waits, uses nothing of the budget |
//! | sent, and no confirmation in time or the connection lost | transient ([`UNCONFIRMED`]): repeated with the same id |
//! | refused for now (a full queue, a leader election) | transient ([`REFUSED`]) |
//! | no queue or stream takes the topic | permanent ([`UNROUTABLE`]): a case, sent again once there is one |
//! | larger than the broker takes | permanent ([`TOO_LARGE`]), with both sizes |
//! | cannot be written as a message (a bad topic, an attribute) | permanent ([`UNSENDABLE`]) |
//! | credentials or permissions | unavailable ([`FORBIDDEN`]): it hits every message and passes once somebody permits it |

mod capabilities;
mod check;
mod coordinates;
pub mod failures;
mod publisher;
mod subscriber;
mod topic;

use std::future::Future;
use std::pin::Pin;

pub use capabilities::{Capabilities, DeliveryCount, KeyOrder};
pub use check::{Check, Finding};
pub use coordinates::Coordinates;
pub use publisher::{Confirmed, Outgoing, Publish, Publisher};
pub use subscriber::{
    Act, Content, Extend, Faulty, Receive, Received, Settlement, Subscriber, Tag,
};
pub use topic::{Topic, TopicError};

use crate::cloudevents::percent;
use crate::envelope::Envelope;

/// Source and id of a message as one text in printable ASCII: its identity at a broker, which a
/// repetition keeps.
#[must_use]
pub fn name_of(envelope: &Envelope) -> String {
    let source = envelope.source.as_deref().unwrap_or_default();
    // Neither has a blank once it is encoded.
    format!(
        "{} {}",
        percent::encode(source),
        percent::encode(&envelope.id)
    )
}

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Code: there is no connection, and nothing was sent.
pub const UNCONNECTED: &str = "broker_unconnected";
/// Code: sent, but no confirmation came; it may have arrived.
pub const UNCONFIRMED: &str = "broker_unconfirmed";
/// Code: the broker refused it for now.
pub const REFUSED: &str = "broker_refused";
/// Code: nothing takes the topic.
pub const UNROUTABLE: &str = "broker_unroutable";
/// Code: larger than the broker takes.
pub const TOO_LARGE: &str = "broker_too_large";
/// Code: no message can be made of it.
pub const UNSENDABLE: &str = "broker_unsendable";
/// Code: the broker does not permit it.
pub const FORBIDDEN: &str = "broker_forbidden";

/// How an event is laid out in a broker's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Attributes as headers, the payload as it is.
    #[default]
    Binary,
    /// Everything as one JSON document.
    Structured,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Payload;

    #[test]
    fn a_name_tells_sources_and_ids_apart() {
        let name = |source: &str, id: &str| {
            let mut envelope = Envelope::new(id, "a", "a", "t", Payload::Json("1".into()));
            envelope.source = Some(source.into());
            name_of(&envelope)
        };
        assert_eq!(name("/shop", "é 1"), "/shop %C3%A9%201");
        assert_ne!(name("a b", "c"), name("a", "b c"));
    }
}
