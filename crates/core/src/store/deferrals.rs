//! Messages that cannot finish now: off the hot path, by reference to the log.

use std::future::Future;

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::envelope::Row;
use crate::failure::FailureRecord;
use crate::retry::Spent;

/// Why a message is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeferralKind {
    /// A retry is due at some time.
    Retry,
    /// Waits behind an earlier message of its key.
    Held,
    /// Runs, or ran when its process ended.
    Running,
    /// Waits for a person.
    Operator,
    /// Waits for an earlier version of its aggregate. It is due when it has waited long enough.
    Gap,
}

impl DeferralKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Retry,
        Self::Held,
        Self::Running,
        Self::Operator,
        Self::Gap,
    ];

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The name used in tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Held => "held",
            Self::Running => "running",
            Self::Operator => "operator",
            Self::Gap => "gap",
        }
    }
}

/// A deferral to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The message, by its place in the log.
    pub seq: u64,
    /// Its slot.
    pub slot: u16,
    /// Its key.
    pub key: String,
    /// Why.
    pub kind: DeferralKind,
    /// Due this long from the database's now; `None` has no time of its own.
    pub due_in_ms: Option<u64>,
    /// What it has used of its budget (`age_ms` is not stored; the store keeps the first time).
    pub spent: Spent,
    /// The last failure.
    pub failure: Option<FailureRecord>,
}

/// Asks which keys have deferred messages.
#[derive(Clone, Debug)]
pub struct HeldKeysQuery<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Slots, first and last.
    pub slots: (u16, u16),
}

/// A key with deferred messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKey {
    /// The key.
    pub key: String,
    /// Its slot.
    pub slot: u16,
    /// How many messages are deferred.
    pub count: u64,
    /// When the first of them (by sequence) is due, from now: 0 when it is, `None` when it waits
    /// for a person. One of kind gap counts as due: whoever takes the key over looks whether what it
    /// waits for is there.
    pub due_in_ms: Option<u64>,
}

/// Asks for a key's deferred messages.
#[derive(Clone, Debug)]
pub struct LoadKey<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// The key's slot (indexes go by it).
    pub slot: u16,
    /// The key.
    pub key: &'a str,
    /// Only those after this sequence.
    pub after_seq: u64,
    /// Only versions of this message's aggregate, up to this one.
    pub versions_to: Option<(&'a Row, i64)>,
    /// Most rows to return.
    pub rows_max: u32,
}

/// A deferred message with its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredRow {
    /// The message.
    pub row: Row,
    /// Why it is deferred.
    pub kind: DeferralKind,
    /// Due this long from now; 0 when it is due, `None` without a time.
    pub due_in_ms: Option<u64>,
    /// What it has used of its budget, its age included. Pauses of the subscription do not count.
    pub spent: Spent,
    /// The last failure.
    pub failure: Option<FailureRecord>,
    /// The generation under which its effect is recorded: 0, or that of the last rerun that started
    /// it.
    pub generation: u32,
}

impl DeferredRow {
    /// Whether it can be tried now. One that waits for an earlier version can, whatever its time:
    /// that may have come.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let has_time = matches!(self.kind, DeferralKind::Retry | DeferralKind::Operator);
        !has_time || self.due_in_ms == Some(0)
    }

    /// Whether somebody released it from its case and it has not run since: it is due with a known
    /// failure, and nothing of the budget is used.
    #[must_use]
    pub const fn is_released(&self) -> bool {
        let spent = self.spent;
        let is_retry = matches!(self.kind, DeferralKind::Retry);
        let is_fresh = spent.failures == 0 && spent.deaths == 0 && spent.waits == 0;
        is_retry && is_fresh && self.failure.is_some()
    }
}

/// Deferred messages, read. They are written by [`settle`](super::Effects::settle).
pub trait Deferrals: Clone + Send + Sync + 'static {
    /// The keys of a range of slots that have deferred messages.
    fn held_keys(
        &self,
        query: HeldKeysQuery<'_>,
    ) -> impl Future<Output = Result<Vec<HeldKey>, StoreError>> + Send;

    /// A key's deferred messages in the order of their sequence, the key's own order. One that was
    /// released comes from its case's copy where the log has forgotten it, and comes as corrected
    /// ([`Correction::of`](super::Correction::of)) where its case says so.
    fn load_key(
        &self,
        request: LoadKey<'_>,
    ) -> impl Future<Output = Result<Vec<DeferredRow>, StoreError>> + Send;
}
