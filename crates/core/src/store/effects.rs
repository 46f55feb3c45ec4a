//! Appending, and the transaction in which an effect and its record commit together.

use std::error::Error as StdError;
use std::future::Future;

use super::{Deferral, Lease, NewCase, StoreError, StoreErrorKind};
use crate::envelope::Envelope;
use crate::ledger::{Identity, LedgerEntry, LedgerKey};

/// The log, written, in a transaction that belongs to the caller.
pub trait Append: Clone + Send + Sync + 'static {
    /// The database connection that user code works with, inside a transaction.
    type Connection: Send;

    /// Appends messages. Never waits for another open append.
    fn append(
        &self,
        connection: &mut Self::Connection,
        envelopes: &[Envelope],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Says what an error from user code is, when it came from this kind of database.
    fn classify(&self, error: &(dyn StdError + 'static)) -> Option<StoreErrorKind>;
}

/// Opens an effect transaction.
#[derive(Clone, Debug)]
pub struct Begin<'a> {
    /// The member's right; `None` for work outside lanes (acceptance, commands).
    pub lease: Option<&'a Lease>,
}

/// Looks identities up before handlers run. By message identity, an entry recorded within a day of
/// the key's time is found as well: the same message appended twice is one effect.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Which table the identities live in.
    pub identity: Identity,
    /// The keys to look for.
    pub keys: &'a [LedgerKey],
    /// Sequences of messages that are deferred, as far as the caller knows.
    pub deferred: &'a [u64],
}

/// What was found out before handlers run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Found {
    /// What the ledger has, in the order of the keys asked for.
    pub entries: Vec<Option<LedgerEntry>>,
    /// Sequences whose deferral is gone: what was deferred is done, although the answer to that
    /// commit was lost. The ledger may have forgotten it since: the deferral alone had kept its row.
    pub gone: Vec<u64>,
}

/// What a transaction records beside the user's own writes. Everything is optional.
#[derive(Clone, Debug)]
pub struct Settle<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Which ledger table the entries go to.
    pub identity: Identity,
    /// Effects that happened. Inserted with one statement, conflicts do nothing.
    pub ledger: &'a [LedgerEntry],
    /// Deferrals to insert, or to overwrite where one for the sequence exists (its first time
    /// stays). One of kind held never overwrites: what is known of a message stays when it is read
    /// again after a crash. One of kind running that knows of no failure does not overwrite one that
    /// does: the message was released from its case meanwhile.
    pub defer: &'a [Deferral],
    /// Sequences whose deferral is over.
    pub clear: &'a [u64],
    /// Sequences of which a deferral of kind running is over. One of another kind stays: the message
    /// was released from its case meanwhile.
    pub clear_running: &'a [u64],
    /// Sequences of which a deferral of kind running becomes one of kind held, due at once: they were
    /// not begun after all, and wait behind an earlier message of their key. What is known of them
    /// stays, and one of another kind is left alone.
    pub hold_running: &'a [u64],
    /// Cases to open. A case for the same subscription and sequence is overwritten and live again
    /// ([`Standing::opened_again`](super::Standing::opened_again)).
    pub cases: &'a [NewCase],
    /// Messages to append.
    pub append: &'a [Envelope],
}

impl<'a> Settle<'a> {
    /// Nothing yet.
    #[must_use]
    pub const fn nothing(subscription: &'a str, identity: Identity) -> Self {
        Self {
            subscription,
            identity,
            ledger: &[],
            defer: &[],
            clear: &[],
            clear_running: &[],
            hold_running: &[],
            cases: &[],
            append: &[],
        }
    }
}

/// What settling changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Ledger rows inserted. Fewer than asked for means that someone else did some of the work:
    /// roll back.
    pub ledger_rows: u64,
}

/// A savepoint step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Sets the savepoint.
    Set,
    /// Keeps what was done since.
    Release,
    /// Undoes what was done since, and ends the savepoint.
    RollBack,
}

/// How to end a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Durably.
    Commit,
    /// As if it had never been.
    RollBack,
}

/// Effect transactions.
pub trait Effects: Append {
    /// An open transaction. Dropping it must close it without a trace, never hand a connection
    /// with an open transaction to somebody else.
    type Tx: Send + 'static;

    /// Opens a transaction (read committed). With a lease, the fence is taken: `Fenced` when the
    /// lease was taken over, and while the transaction is open nobody can take over without
    /// ending it. The server ends it when it idles longer than the lease.
    fn begin(
        &self,
        request: Begin<'_>,
    ) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;

    /// The connection inside the transaction, for user code.
    fn connection<'t>(&self, tx: &'t mut Self::Tx) -> &'t mut Self::Connection;

    /// What the ledger already has, and which deferrals are gone. Waits for an open transaction
    /// that is about to clear one of them, and keeps others from doing so until the end of this one.
    fn known(
        &self,
        tx: &mut Self::Tx,
        request: Known<'_>,
    ) -> impl Future<Output = Result<Found, StoreError>> + Send;

    /// Records.
    fn settle(
        &self,
        tx: &mut Self::Tx,
        request: Settle<'_>,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// A savepoint step; at most one savepoint is open at a time.
    fn mark(
        &self,
        tx: &mut Self::Tx,
        mark: Mark,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Commits or rolls back. A lost answer to a commit is
    /// [`CommitUnknown`](StoreErrorKind::CommitUnknown).
    fn end(&self, tx: Self::Tx, end: End) -> impl Future<Output = Result<(), StoreError>> + Send;
}
