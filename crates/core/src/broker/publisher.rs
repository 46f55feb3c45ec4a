//! Publishing with confirmations.

use super::{Boxed, Capabilities, Check, Finding};
use crate::envelope::Envelope;
use crate::failure::Failure;
use crate::timestamp::Timestamp;

/// A message on its way to a broker.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Topic, subject or routing key.
    pub topic: &'a str,
    /// The message, with its source.
    pub envelope: &'a Envelope,
    /// When the log took it.
    pub recorded_at: Option<Timestamp>,
}

/// Messages to publish.
#[derive(Clone, Copy, Debug)]
pub struct Publish<'a> {
    /// In their order; at most one of a key unless the broker keeps the order of what is in flight.
    pub messages: &'a [Outgoing<'a>],
    /// Longest wait for the confirmations of all of them, in milliseconds.
    pub timeout_ms: u64,
}

/// The broker has stored a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// Whether the broker had it already, under the same id.
    pub is_duplicate: bool,
}

/// Publishes to one broker.
///
/// Dropping a future of it stops waiting and nothing else: what was sent may have arrived, and is
/// repeated with the same id.
pub trait Publisher: Send + Sync + 'static {
    /// What the broker can do, as far as it is known now.
    fn capabilities(&self) -> Capabilities;

    /// Where the broker is, for the log: without credentials.
    fn address(&self) -> String;

    /// Publishes, and returns what became of each message, in their order. A message counts as
    /// confirmed only when the broker has stored it where it was to be stored; one that fails keeps
    /// no other from being published.
    fn publish<'a>(&'a self, batch: Publish<'a>) -> Boxed<'a, Vec<Result<Confirmed, Failure>>>;

    /// Looks whether publishing would work, without publishing.
    fn check<'a>(&'a self, check: Check<'a>) -> Boxed<'a, Vec<Finding>>;

    /// Closes the connection.
    fn close(&self) -> Boxed<'_, ()>;
}
