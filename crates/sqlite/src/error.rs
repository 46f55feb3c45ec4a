//! What an error of SQLite means to the caller.

use std::error::Error as StdError;

use onceward_core::store::{StoreError, StoreErrorKind};
use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;

/// Names what was attempted, and classifies.
pub(crate) trait Attempt<T> {
    fn attempting(self, action: &'static str) -> Result<T, StoreError>;
}

impl<T> Attempt<T> for Result<T, sqlx::Error> {
    fn attempting(self, action: &'static str) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::new(kind_of(&error), action, error))
    }
}

/// Another connection holds the lock.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    kind_of(error) == StoreErrorKind::Conflict
}

pub(crate) fn kind_of(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(error) => kind_of_database(error.as_ref()),
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreErrorKind::Unavailable,
        sqlx::Error::Encode(_) => StoreErrorKind::Refused,
        _ => StoreErrorKind::Other,
    }
}

fn kind_of_database(error: &dyn DatabaseError) -> StoreErrorKind {
    let code = error.code().and_then(|code| code.parse::<i32>().ok());
    // The low byte is the primary code: <https://www.sqlite.org/rescode.html>.
    match code.map(|code| code & 0xff) {
        // ERROR; a missing table of ours means that nobody has migrated.
        Some(1) if error.message().contains("no such table: onceward_") => StoreErrorKind::Schema,
        // PERM, AUTH
        Some(3 | 23) => StoreErrorKind::Denied,
        // ABORT, BUSY, LOCKED, INTERRUPT, PROTOCOL (the lock race of WAL)
        Some(4 | 5 | 6 | 9 | 15) => StoreErrorKind::Conflict,
        // READONLY
        Some(8) => StoreErrorKind::ReadOnly,
        // IOERR, CANTOPEN
        Some(10 | 14) => StoreErrorKind::Unavailable,
        // FULL
        Some(13) => StoreErrorKind::Full,
        // TOOBIG, CONSTRAINT, MISMATCH
        Some(18..=20) => StoreErrorKind::Refused,
        _ => StoreErrorKind::Other,
    }
}

/// Looks for an error of ours or of SQLite in a chain of errors.
pub(crate) fn classify(error: &(dyn StdError + 'static)) -> Option<StoreErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<StoreError>() {
            return Some(error.kind());
        }
        if let Some(error) = error.downcast_ref::<SqliteError>() {
            return Some(kind_of_database(error));
        }
        match error.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Database(inner))
                if inner.try_downcast_ref::<SqliteError>().is_none() => {}
            Some(
                error @ (sqlx::Error::Database(_)
                | sqlx::Error::Io(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed),
            ) => return Some(kind_of(error)),
            _ => {}
        }
        next = error.source();
    }
    None
}
