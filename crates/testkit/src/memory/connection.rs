//! The transaction that user code works in.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use onceward_core::store::{StoreError, StoreErrorKind};

use super::writes::{Unique, Write};
use super::{Defect, Operation, Shared};

/// What user code may hear from a [`MemoryConnection`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The key is there already.
    #[error("a row with this key is already in {table}")]
    Exists {
        /// The table.
        table: String,
    },
    /// Two transactions wait for each other; this one gave up.
    #[error("two transactions waited for each other")]
    Deadlock,
    /// The transaction was ended from outside: by a takeover, or because it idled.
    #[error("the transaction was ended by the store")]
    Ended(
        /// What a store would call it.
        StoreErrorKind,
    ),
}

impl MemoryError {
    /// What a store would call it.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Exists { .. } => StoreErrorKind::Refused,
            Self::Deadlock => StoreErrorKind::Conflict,
            Self::Ended(kind) => *kind,
        }
    }

    pub(super) fn into_store_error(self, operation: Operation) -> StoreError {
        StoreError::new(self.kind(), operation.action(), self)
    }
}

/// Tables of keys and values, seen and written inside one transaction. Reads see what is committed
/// and what this transaction wrote.
#[derive(Debug)]
pub struct MemoryConnection {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
}

impl MemoryConnection {
    /// The value of a key.
    ///
    /// # Errors
    /// When the transaction was ended by the store.
    pub fn get(&mut self, table: &str, key: &str) -> Result<Option<String>, MemoryError> {
        let place = (table.to_owned(), key.to_owned());
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let tx = state.tx(self.number, now).map_err(MemoryError::Ended)?;
        for write in tx.writes.iter().rev() {
            match write {
                Write::Put(at, value) | Write::Insert(at, value) if *at == place => {
                    return Ok(Some(value.clone()));
                }
                Write::Delete(at) if *at == place => return Ok(None),
                _ => {}
            }
        }
        Ok(state.tables.user.get(&place).cloned())
    }

    /// Sets the value of a key, whether or not it is there. Of two transactions the later commit
    /// wins.
    ///
    /// # Errors
    /// When the transaction was ended by the store.
    pub fn put(&mut self, table: &str, key: &str, value: &str) -> Result<(), MemoryError> {
        self.write(Write::Put(
            (table.to_owned(), key.to_owned()),
            value.to_owned(),
        ))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When the transaction was ended by the store.
    pub fn delete(&mut self, table: &str, key: &str) -> Result<(), MemoryError> {
        self.write(Write::Delete((table.to_owned(), key.to_owned())))
    }

    /// Inserts a key that must not be there, as under a unique constraint. Waits while another
    /// open transaction has inserted it.
    ///
    /// # Errors
    /// [`MemoryError::Exists`] when it is there, [`MemoryError::Deadlock`] when waiting could not
    /// end, [`MemoryError::Ended`] when the transaction was ended by the store.
    pub async fn insert(&mut self, table: &str, key: &str, value: &str) -> Result<(), MemoryError> {
        let place = (table.to_owned(), key.to_owned());
        loop {
            if self.get(table, key)?.is_some() {
                let table = table.to_owned();
                return Err(MemoryError::Exists { table });
            }
            let unique = Unique::User(place.clone());
            let holder = self.shared.state().holder(self.number, &unique);
            match holder {
                Some(other) => self.wait_for(other).await?,
                None => return self.write(Write::Insert(place, value.to_owned())),
            }
        }
    }

    pub(super) fn write(&self, write: Write) -> Result<(), MemoryError> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        state
            .write(self.number, now, write)
            .map_err(MemoryError::Ended)
    }

    /// Waits until another transaction has ended.
    pub(super) async fn wait_for(&self, other: u64) -> Result<(), MemoryError> {
        let _waiting = Waiting { connection: self };
        poll_fn(|context| {
            let mut state = self.shared.state();
            if let Some(kind) = state.cut.get(&self.number) {
                return Poll::Ready(Err(MemoryError::Ended(*kind)));
            }
            if !state.open.contains_key(&other) {
                return Poll::Ready(Ok(()));
            }
            if state.would_deadlock(self.number, other) {
                return Poll::Ready(Err(MemoryError::Deadlock));
            }
            state.waits.insert(self.number, other);
            self.shared.clock.wake_me(context.waker());
            Poll::Pending
        })
        .await
    }
}

/// Takes back that a transaction waits, also when the waiting future is dropped.
struct Waiting<'a> {
    connection: &'a MemoryConnection,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.connection.shared.state();
        state.waits.remove(&self.connection.number);
    }
}

/// An open transaction. Dropping it rolls it back.
#[derive(Debug)]
pub struct MemoryTx {
    pub(super) connection: MemoryConnection,
}

impl MemoryTx {
    /// The connection in it.
    pub fn connection(&mut self) -> &mut MemoryConnection {
        &mut self.connection
    }
}

impl Drop for MemoryTx {
    fn drop(&mut self) {
        let shared = &self.connection.shared;
        let mut state = shared.state();
        if shared.has(Defect::DropCommits) {
            // A transaction that has ended already has nothing left to commit.
            let _ = state.commit(self.connection.number, shared.clock.now());
        }
        state.forget(self.connection.number);
        drop(state);
        shared.clock.wake_all();
    }
}
