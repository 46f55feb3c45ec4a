//! What the API needs of the world behind it: an object-safe seam.

use std::future::Future;
use std::pin::Pin;

use onceward_core::Envelope;
use onceward_core::cloudevents::EventFault;
use onceward_core::store::{MessageStatus, RevealOperation, StoreError};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What makes a submission recognisable when it comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionKey {
    /// One key for everything in it, as the caller gave it.
    Given(String),
    /// Each event by its source and id.
    Events,
}

/// Messages to accept.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Who submits; keys of different callers never meet.
    pub caller: String,
    /// How it is recognised.
    pub key: SubmissionKey,
    /// The messages, all accepted or none.
    pub envelopes: Vec<Envelope>,
}

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The answer as JSON text: the same, byte for byte, each time.
    pub answer: String,
    /// Whether nothing new was accepted.
    pub is_replayed: bool,
}

/// Why a submission was not accepted. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key is being worked on right now.
    InFlight,
    /// The key belongs to another request.
    Mismatch,
    /// It is new, and would not be finished in time.
    Throttled {
        /// When to try again, in milliseconds from now.
        retry_after_ms: u64,
    },
}

/// The end of a submission that the store could decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is accepted, now or earlier.
    Accepted(Receipt),
    /// Nothing is accepted.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Which event it was, where each has its own key or it lies with one.
        index: Option<usize>,
    },
}

/// Why a question or a submission failed.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An event cannot be written in canonical form.
    #[error(transparent)]
    Event(#[from] EventFault),
}

/// Why it is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// What was checked: `database`, `schema` or `engine`.
    pub check: &'static str,
    /// What was found.
    pub reason: String,
}

/// The world behind the API.
pub trait Gate: Send + Sync + 'static {
    /// Accepts messages in one transaction, once per key.
    fn accept(&self, submission: Submission) -> BoxFuture<'_, Result<Outcome, GateError>>;

    /// The messages of an operation with their states, results and details included.
    fn operation<'a>(
        &'a self,
        operation: &'a str,
    ) -> BoxFuture<'a, Result<Vec<MessageStatus>, GateError>>;

    /// Records that results and details of an operation are about to be shown, or were asked for in
    /// vain.
    fn reveal_operation<'a>(
        &'a self,
        request: RevealOperation<'a>,
    ) -> BoxFuture<'a, Result<(), GateError>>;

    /// Whether work can be done now. Returns within a few seconds.
    fn ready(&self) -> BoxFuture<'_, Result<(), NotReady>>;
}
