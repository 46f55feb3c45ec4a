//! Subscriptions that get another name, or end.

use std::future::Future;

use super::StoreError;
use crate::case::Actor;

/// Gives a subscription another name.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Its name.
    pub from: &'a str,
    /// The new one, under which there is none.
    pub to: &'a str,
    /// Who, and why.
    pub by: Actor<'a>,
}

/// Ends a subscription. Needs a reason.
#[derive(Clone, Copy, Debug)]
pub struct Remove<'a> {
    /// Which.
    pub subscription: &'a str,
    /// Deferred messages are given up with it; else they keep it.
    pub discards_deferred: bool,
    /// Who, and why.
    pub by: Actor<'a>,
}

/// What went with a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its lanes, with their positions.
    pub lanes: u64,
    /// Deferred messages.
    pub deferred: u64,
}

/// Subscriptions as a whole. A process that works on one keeps it as it is.
pub trait Registry: Clone + Send + Sync + 'static {
    /// Hands positions, ledger rows, deferrals, cases, pauses and the limit of a subscription to its
    /// new name, so that every effect stays once.
    ///
    /// # Errors
    /// [`Conflict`](super::StoreErrorKind::Conflict) while a process works on it, and
    /// [`Refused`](super::StoreErrorKind::Refused) when there is none, or one of the new name.
    fn rename(&self, request: Rename<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes a subscription with its lanes, positions and pauses. Its ledger rows stay for as long
    /// as they are remembered, so that one of its name repeats nothing; its cases and its history
    /// stay too.
    ///
    /// # Errors
    /// [`Conflict`](super::StoreErrorKind::Conflict) while a process works on it, and
    /// [`Refused`](super::StoreErrorKind::Refused) when there is none, no reason, a case that is not
    /// over, or a deferred message that is not to be given up.
    fn remove(
        &self,
        request: Remove<'_>,
    ) -> impl Future<Output = Result<Removed, StoreError>> + Send;
}
