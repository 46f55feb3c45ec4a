//! Accepting a request once: caller and key, the stored answer, a stated memory.

use std::future::Future;

use super::{Append, StoreError};
use crate::ledger::Digest;

/// The answer of a request that has none, as JSON text.
pub const NO_ANSWER: &str = "null";

/// A request that may come again.
#[derive(Clone, Debug)]
pub struct AcceptRequest<'a> {
    /// Who asks; keys of different callers never meet.
    pub caller: &'a str,
    /// The caller's idempotency key.
    pub key: &'a str,
    /// Digest of the request's body.
    pub digest: Digest,
    /// How long the answer is kept, in milliseconds.
    pub memory_ms: u64,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Never seen: do the work in this transaction, then store the answer.
    First,
    /// Seen: this is the answer that was given.
    Again {
        /// The stored JSON text.
        answer: Box<str>,
    },
    /// The same key is being worked on right now in another transaction.
    InFlight,
    /// The key was used with another body.
    Mismatch,
}

/// Acceptance records, in the caller's transaction.
pub trait Acceptance: Append {
    /// Claims a key in the caller's transaction, or says what is known of it. Never waits for
    /// another transaction.
    fn accept(
        &self,
        connection: &mut Self::Connection,
        request: AcceptRequest<'_>,
    ) -> impl Future<Output = Result<Accepted, StoreError>> + Send;

    /// [`accept`](Self::accept) for many keys at once that have no answer to keep: what is known
    /// again has the answer `null`.
    fn accept_all(
        &self,
        connection: &mut Self::Connection,
        requests: &[AcceptRequest<'_>],
    ) -> impl Future<Output = Result<Vec<Accepted>, StoreError>> + Send {
        async move {
            let mut found = Vec::with_capacity(requests.len());
            for request in requests {
                let accepted = self.accept(connection, request.clone()).await?;
                if accepted == Accepted::First {
                    self.answer(connection, request.clone(), NO_ANSWER).await?;
                }
                found.push(accepted);
            }
            Ok(found)
        }
    }

    /// Stores the answer in the same transaction as [`accept`](Self::accept).
    fn answer(
        &self,
        connection: &mut Self::Connection,
        request: AcceptRequest<'_>,
        answer: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}
