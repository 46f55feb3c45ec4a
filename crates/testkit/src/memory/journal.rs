//! What changes in the database, told to whoever listens, in the order in which it happens.

use std::fmt;
use std::sync::Arc;

use onceward_core::store::{CaseState, DeferralKind};
use onceward_core::{LedgerEntry, Row, Spent, Stand, Timestamp};

/// One write of a transaction, as the table has it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Written {
    /// A row of the log.
    Appended(Row),
    /// A row of the ledger.
    Recorded {
        /// Subscription.
        subscription: String,
        /// Whether it went to the ledger of operations.
        is_operation: bool,
        /// The row.
        entry: LedgerEntry,
    },
    /// A deferral.
    Deferred {
        /// Subscription.
        subscription: String,
        /// The message.
        seq: u64,
        /// Why.
        kind: DeferralKind,
        /// Budget used; its age is not kept.
        spent: Spent,
        /// Class and code of the last failure.
        failure: Option<String>,
        /// When the message was first deferred.
        first_at: Timestamp,
        /// When it is due.
        due_at: Option<Timestamp>,
    },
    /// A deferral is over.
    Cleared {
        /// Subscription.
        subscription: String,
        /// The message.
        seq: u64,
    },
    /// A case.
    Quarantined {
        /// Subscription.
        subscription: String,
        /// The message.
        seq: u64,
        /// Why.
        reason: String,
        /// Budget used.
        spent: Spent,
        /// Whether it holds its key.
        holds_key: bool,
        /// When the message was first deferred.
        first_deferred_at: Option<Timestamp>,
    },
    /// What an operator made of a case.
    Acted {
        /// Subscription.
        subscription: String,
        /// The message.
        seq: u64,
        /// Where the case stands.
        state: CaseState,
    },
    /// A subscription was paused, or goes on.
    Paused {
        /// Subscription.
        subscription: String,
        /// Which of the two.
        is_paused: bool,
    },
    /// A row of user code.
    Put {
        /// Table.
        table: String,
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
}

/// A change of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A transaction committed.
    Committed {
        /// Whose lease it was opened under.
        member: Option<String>,
        /// The log's last sequence at that moment: whatever has a later one was appended later.
        last_seq: u64,
        /// What it wrote.
        writes: Vec<Written>,
    },
    /// A member joined.
    Joined {
        /// Who.
        member: String,
        /// Length of its lease in milliseconds.
        lease_ms: u64,
    },
    /// A subscription stands still by itself: this pause began, or goes on for longer.
    StoodStill {
        /// Subscription.
        subscription: String,
        /// Since when.
        from: Timestamp,
        /// Until when, unless it is said again or an operator pauses the subscription.
        to: Timestamp,
    },
    /// A lease was renewed.
    Renewed {
        /// Whose.
        member: String,
    },
    /// A member left.
    Left {
        /// Who.
        member: String,
    },
    /// A lane was taken.
    Taken {
        /// By whom.
        member: String,
        /// Subscription.
        subscription: String,
        /// Lane.
        lane: u16,
        /// The new epoch.
        epoch: u64,
        /// Who owned it and had not handed it back.
        from: Option<String>,
    },
    /// A lane was handed back.
    Released {
        /// By whom.
        member: String,
        /// Subscription.
        subscription: String,
        /// Lane.
        lane: u16,
        /// Where it stands.
        stand: Stand,
    },
    /// A position was kept.
    Saved {
        /// By whom.
        member: String,
        /// Subscription.
        subscription: String,
        /// Lane.
        lane: u16,
        /// Where it stands.
        stand: Stand,
    },
    /// A death was counted.
    DeathCounted {
        /// Subscription.
        subscription: String,
        /// The message.
        seq: u64,
    },
    /// Upkeep removed a row of the log.
    LogRemoved {
        /// Its sequence.
        seq: u64,
    },
    /// Upkeep removed a row of the ledger.
    LedgerRemoved {
        /// Subscription.
        subscription: String,
        /// The row.
        entry: LedgerEntry,
    },
}

type Tell = dyn Fn(Timestamp, Change) + Send + Sync;

/// Who is told of changes.
#[derive(Clone, Default)]
pub(super) struct Listener(Option<Arc<Tell>>);

impl Listener {
    pub(super) fn new(tell: impl Fn(Timestamp, Change) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// Tells a change, which is only made when somebody listens.
    pub(super) fn tell(&self, now: Timestamp, change: impl FnOnce() -> Change) {
        if let Some(tell) = &self.0 {
            tell(now, change());
        }
    }

    pub(super) const fn is_there(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.is_there()).finish()
    }
}
