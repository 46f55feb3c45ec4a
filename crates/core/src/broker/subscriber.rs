//! Receiving with acknowledgements.

use super::{Boxed, Capabilities, Check, Coordinates, Finding};
use crate::cloudevents::EventFault;
use crate::envelope::Envelope;
use crate::failure::Failure;

/// How much to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// Most messages.
    pub messages_max: u32,
    /// Most bytes, payloads and headers together; the first message comes whatever its size.
    pub bytes_max: u64,
    /// Longest wait for a first message, in milliseconds. What comes later is not waited for.
    pub wait_ms: u64,
}

/// Names a delivery to the subscriber that made it, and to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u64);

/// What was in a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// An event.
    Event(Box<Envelope>),
    /// No event at all: another producer's message, its body and what it says of its kind.
    Foreign(Box<Envelope>),
    /// It says that it is an event and is none that can be read.
    Faulty(Box<Faulty>),
}

/// What came in place of an event.
#[derive(Clone, PartialEq, Eq)]
pub struct Faulty {
    /// Why it cannot be read.
    pub fault: EventFault,
    /// What came.
    pub body: Box<[u8]>,
}

impl Faulty {
    /// What came, and why it cannot be read.
    #[must_use]
    pub fn content(fault: EventFault, body: &[u8]) -> Content {
        let body = body.into();
        Content::Faulty(Box::new(Self { fault, body }))
    }
}

/// Withholds the body.
impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty")
            .field("fault", &self.fault)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// A delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Settles it.
    pub tag: Tag,
    /// Where the broker keeps it.
    pub coordinates: Coordinates,
    /// How often it was delivered, this time included; none where the broker does not say.
    pub delivery_count: Option<u32>,
    /// Payload and headers in bytes.
    pub bytes: u64,
    /// What is in it.
    pub content: Content,
}

/// What to do with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is done: the broker may forget it for this consumer.
    Done,
    /// It is to come again, not before this many milliseconds; where the broker cannot wait, at
    /// once.
    Again {
        /// In milliseconds.
        delay_ms: u64,
    },
    /// It was not looked at: at once for whoever receives next, and no attempt where the broker
    /// tells these apart.
    HandBack,
}

/// What to do with one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Which one.
    pub tag: Tag,
    /// What to do.
    pub act: Act,
}

/// Which deliveries need more time.
#[derive(Clone, Copy, Debug)]
pub struct Extend<'a> {
    /// These.
    pub tags: &'a [Tag],
}

/// Receives from one broker.
///
/// A delivery that is never settled comes again: after the broker's own time, or when the
/// connection ends.
pub trait Subscriber: Send + Sync + 'static {
    /// What the broker can do, as far as it is known now.
    fn capabilities(&self) -> Capabilities;

    /// Where the broker is, for the log: without credentials.
    fn address(&self) -> String;

    /// Receives some messages, or none in the time. Dropping the future loses none of them.
    fn receive(&self, request: Receive) -> Boxed<'_, Result<Vec<Received>, Failure>>;

    /// Settles deliveries and returns how each went, in their order. One that fails comes again.
    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Boxed<'a, Vec<Result<(), Failure>>>;

    /// Asks for as much time again as the broker gave at first.
    fn extend<'a>(&'a self, extend: Extend<'a>) -> Boxed<'a, Result<(), Failure>>;

    /// Gives back all that came and was not settled, whether it was received or waits to be, so that
    /// it comes again in the order it had, at once, to whoever receives next; from now on nothing
    /// comes until this one receives again. Its tags are no longer valid. Ends in bounded time, with
    /// or without the broker.
    fn give_back(&self) -> Boxed<'_, ()>;

    /// Looks whether receiving would work, without receiving.
    fn check<'a>(&'a self, check: Check<'a>) -> Boxed<'a, Vec<Finding>>;
}
