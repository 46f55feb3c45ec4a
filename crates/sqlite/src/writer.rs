//! The one connection that this process writes with, and its transactions.
//!
//! Writers queue for it in the order they came. Nothing can be committed on it by accident: a
//! commit hook lets a commit through only where [`WriteTx::commit`] asked for it. So a handler that
//! says COMMIT itself, or goes on after SQLite rolled its transaction back (a full disk does that),
//! leaves nothing behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::store::{StoreError, StoreErrorKind};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions};
use sqlx::{Connection, SqlSafeStr, Transaction};

use crate::BUSY_WAIT;
use crate::error::{self, Attempt};
use crate::fairness::{Fairness, Locked};

/// How long a write waits for this process's other writes.
const QUEUE_WAIT: Duration = Duration::from_secs(30);

/// SQLite's own wait is short here and repeated by us, so that a cancelled writer does not keep
/// the connection, and long sleeps of SQLite's handler do not starve us beside busy neighbours.
const BUSY_STEP: Duration = Duration::from_millis(20);

/// The commit that was asked for, if one was, and whether it was let through. Each has a flag of its
/// own: the connection goes to the next writer before the one that committed can look.
type Gate = Arc<Mutex<Option<Arc<AtomicBool>>>>;

/// Lets no commit through until it is asked for.
fn shut(gate: &Gate) {
    *gate.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Lets one commit through; the flag says whether it came.
fn open(gate: &Gate) -> Arc<AtomicBool> {
    let has_passed = Arc::new(AtomicBool::new(false));
    *gate.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&has_passed));
    has_passed
}

/// Whether a commit may go through now.
fn pass(gate: &Gate) -> bool {
    let asked = gate.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(has_passed) = &asked {
        has_passed.store(true, Ordering::SeqCst);
    }
    asked.is_some()
}

pub(crate) struct Writer {
    pool: SqlitePool,
    gate: Gate,
    fairness: Arc<Fairness>,
}

/// The writer's connection, not yet in a transaction.
struct Reserved {
    connection: PoolConnection<sqlx::Sqlite>,
    gate: Gate,
}

/// An open write transaction. Dropping it rolls back before anybody else gets the connection.
pub(crate) struct WriteTx {
    transaction: Transaction<'static, sqlx::Sqlite>,
    gate: Gate,
    _locked: Locked,
}

/// A few milliseconds, different each time.
pub(crate) fn jitter() -> Duration {
    Duration::from_micros(fastrand::u64(500..6_000))
}

impl Writer {
    pub(crate) fn new(options: SqliteConnectOptions) -> Self {
        let gate = Gate::default();
        let hook_gate = gate.clone();
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(QUEUE_WAIT)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                let gate = hook_gate.clone();
                Box::pin(async move {
                    let mut handle = connection.lock_handle().await?;
                    handle.set_commit_hook(move || pass(&gate));
                    Ok(())
                })
            })
            // The answer to the ping comes after a rollback that was queued by a drop. What is
            // still inside a transaction then is closed, which ends it.
            .after_release(|connection, _| {
                Box::pin(async move {
                    connection.ping().await?;
                    Ok(!connection.is_in_transaction())
                })
            })
            .connect_lazy_with(options.busy_timeout(BUSY_STEP));
        Self {
            pool,
            gate,
            fairness: Arc::default(),
        }
    }

    /// Waits for this process's other writes.
    async fn reserve(&self, action: &'static str) -> Result<Reserved, StoreError> {
        match self.pool.acquire().await {
            Ok(connection) => Ok(Reserved {
                connection,
                gate: self.gate.clone(),
            }),
            Err(sqlx::Error::PoolTimedOut) => Err(StoreError::found(
                StoreErrorKind::Conflict,
                action,
                "another write of this process has been open for too long",
            )),
            Err(error) => Err(error).attempting(action),
        }
    }

    /// Opens a transaction that nobody else's can overlap.
    pub(crate) async fn begin(&self, action: &'static str) -> Result<WriteTx, StoreError> {
        let started = Instant::now();
        loop {
            let reserved = self.reserve(action).await?;
            let rest = self.fairness.rest();
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            // Whether we hold the lock or wait for it, the file is locked.
            let locked = self.fairness.locked();
            match reserved.begin(locked).await {
                Err(error) if error::is_busy(&error) && started.elapsed() < BUSY_WAIT => {
                    tokio::time::sleep(jitter()).await;
                }
                other => return other.attempting(action),
            }
        }
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

impl Reserved {
    /// Opens the transaction, without waiting long for other processes.
    async fn begin(self, locked: Locked) -> Result<WriteTx, sqlx::Error> {
        // A commit that was cancelled half way may have left it open.
        shut(&self.gate);
        let statement = "BEGIN IMMEDIATE".into_sql_str();
        let transaction = Transaction::begin(self.connection, Some(statement)).await?;
        Ok(WriteTx {
            transaction,
            gate: self.gate,
            _locked: locked,
        })
    }
}

impl WriteTx {
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    pub(crate) async fn commit(self, action: &'static str) -> Result<(), StoreError> {
        let has_passed = open(&self.gate);
        let result = self.transaction.commit().await;
        let has_passed = has_passed.load(Ordering::SeqCst);
        match result {
            Ok(()) if has_passed => Ok(()),
            Ok(()) => Err(StoreError::found(
                StoreErrorKind::Other,
                action,
                "a transaction inside this one was left open, so nothing was committed",
            )),
            // The commit was under way when the file or the connection failed.
            Err(error) if has_passed && error::kind_of(&error) == StoreErrorKind::Unavailable => {
                Err(StoreError::new(
                    StoreErrorKind::CommitUnknown,
                    action,
                    error,
                ))
            }
            Err(error) => Err(error).attempting(action),
        }
    }

    pub(crate) async fn roll_back(self, action: &'static str) -> Result<(), StoreError> {
        match self.transaction.rollback().await {
            // SQLite had already rolled back by itself.
            Err(sqlx::Error::Database(error)) if error.message().contains("no transaction") => {
                Ok(())
            }
            other => other.attempting(action),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection goes to the next writer, who shuts the gate, before the one that committed
    /// looks.
    #[test]
    fn a_commit_that_came_is_told_although_the_next_writer_has_shut_the_gate() {
        let gate = Gate::default();
        assert!(!pass(&gate), "nobody asked");
        let first = open(&gate);
        assert!(pass(&gate));
        shut(&gate);
        let second = open(&gate);
        assert!(first.load(Ordering::SeqCst));
        assert!(!second.load(Ordering::SeqCst), "it has not come yet");
        shut(&gate);
        assert!(!pass(&gate), "it was given up");
        assert!(!second.load(Ordering::SeqCst));
    }
}
