//! What a PostgreSQL error means to a caller.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use onceward_core::store::{StoreError, StoreErrorKind};

/// What the server said, without the parts that may quote data (detail, hint, context, and what
/// stands in quotes after a message about a value).
#[derive(Clone, PartialEq, Eq)]
pub struct ServerFault {
    /// SQLSTATE.
    pub code: String,
    /// The message, cut before quoted data.
    pub message: String,
    /// The constraint, where one was hurt.
    pub constraint: Option<String>,
}

impl fmt::Display for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {}", self.message, self.code)?;
        if let Some(constraint) = &self.constraint {
            write!(f, ", constraint {constraint}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for ServerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for ServerFault {}

impl ServerFault {
    fn of(error: &dyn sqlx::error::DatabaseError) -> Self {
        let code = error.code().unwrap_or_default().into_owned();
        let message = error.message();
        // Data exceptions quote the value: `invalid input syntax for type json: "..."`.
        let message = match message.split_once(": \"") {
            Some((head, _)) if code.starts_with("22") => head,
            _ => message,
        };
        Self {
            message: message.to_owned(),
            constraint: error.constraint().map(str::to_owned),
            code,
        }
    }
}

/// The store's error for an error of the driver, while doing `action`.
pub(crate) fn failed(action: &'static str, error: sqlx::Error) -> StoreError {
    let kind = kind_of(&error);
    match &error {
        sqlx::Error::Database(database) => {
            StoreError::new(kind, action, ServerFault::of(database.as_ref()))
        }
        // Decoding errors can quote the value.
        sqlx::Error::ColumnDecode { index, .. } => {
            let message = format!("column {index} is not of the expected type");
            StoreError::found(kind, action, message)
        }
        _ => StoreError::new(kind, action, error),
    }
}

/// For `map_err`: [`failed`] with the action given first.
pub(crate) fn while_doing(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| failed(action, error)
}

/// The error of a commit: unless the server said that it did not happen, it may have happened.
pub(crate) fn commit_failed(action: &'static str, error: sqlx::Error) -> StoreError {
    let is_certain = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            !code.starts_with("57P") && !code.starts_with("08") && !code.starts_with("XX")
        }
        _ => false,
    };
    if is_certain {
        return failed(action, error);
    }
    StoreError::new(StoreErrorKind::CommitUnknown, action, Arc::new(error))
}

/// Says what an error from user code is, if it came from PostgreSQL.
pub(crate) fn classify(error: &(dyn StdError + 'static)) -> Option<StoreErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref::<StoreError>() {
            return Some(ours.kind());
        }
        if let Some(theirs) = error.downcast_ref::<sqlx::Error>() {
            return match theirs {
                // The application's own misuse or an expected miss, not the database's state.
                sqlx::Error::RowNotFound
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_) => None,
                // A statement that took too long is about the statement, and would be again.
                sqlx::Error::Database(database) if database.code().as_deref() == Some("57014") => {
                    Some(StoreErrorKind::Other)
                }
                theirs => Some(kind_of(theirs)),
            };
        }
        next = error.source();
    }
    None
}

fn kind_of(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(database) if lacks_room(database.as_ref()) => StoreErrorKind::Full,
        sqlx::Error::Database(database) => database
            .code()
            .map_or(StoreErrorKind::Other, |code| kind_of_code(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed
        | sqlx::Error::Protocol(_) => StoreErrorKind::Unavailable,
        sqlx::Error::Encode(_) => StoreErrorKind::Refused,
        _ => StoreErrorKind::Other,
    }
}

/// No partition takes the row: upkeep has been away for too long. The code is that of a check
/// constraint, which it is not; only the place in the server's source tells them apart.
fn lacks_room(error: &dyn sqlx::error::DatabaseError) -> bool {
    error
        .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
        .is_some_and(|error| {
            error.code() == "23514" && error.routine() == Some("ExecFindPartition")
        })
}

/// The kind of an SQLSTATE. Classes and codes: PostgreSQL documentation, appendix A.
fn kind_of_code(code: &str) -> StoreErrorKind {
    match code {
        // Ours, raised by onceward.enter().
        "OW001" => StoreErrorKind::Fenced,
        "25006" => StoreErrorKind::ReadOnly,
        // 25P02 is not here: what comes after an error that somebody ignored fails for ever.
        "57014" | "57P05" => StoreErrorKind::Unavailable,
        "25P03" => StoreErrorKind::Overstayed,
        "40001" | "40P01" | "55P03" => StoreErrorKind::Conflict,
        "42501" => StoreErrorKind::Denied,
        "42P01" | "3F000" | "42883" | "42703" => StoreErrorKind::Schema,
        "53100" | "53200" => StoreErrorKind::Full,
        _ => match code.get(..2) {
            Some("08" | "53" | "57" | "58") => StoreErrorKind::Unavailable,
            Some("22" | "23" | "54" | "44") => StoreErrorKind::Refused,
            Some("28") => StoreErrorKind::Denied,
            _ => StoreErrorKind::Other,
        },
    }
}

/// Whether a connection that saw this error must not be used again: it is broken, or it leads to
/// a server that only reads and would go on refusing after another one has become writable.
pub(crate) fn spoils(error: &sqlx::Error) -> bool {
    matches!(
        kind_of(error),
        StoreErrorKind::Unavailable
            | StoreErrorKind::ReadOnly
            | StoreErrorKind::Overstayed
            | StoreErrorKind::Other
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_to_what_a_caller_can_do() {
        for (code, kind) in [
            ("40001", StoreErrorKind::Conflict),
            ("40P01", StoreErrorKind::Conflict),
            ("55P03", StoreErrorKind::Conflict),
            ("57P01", StoreErrorKind::Unavailable),
            ("08006", StoreErrorKind::Unavailable),
            ("53300", StoreErrorKind::Unavailable),
            ("25P03", StoreErrorKind::Overstayed),
            ("25006", StoreErrorKind::ReadOnly),
            ("53100", StoreErrorKind::Full),
            ("53200", StoreErrorKind::Full),
            ("22P02", StoreErrorKind::Refused),
            ("23505", StoreErrorKind::Refused),
            ("54000", StoreErrorKind::Refused),
            ("42501", StoreErrorKind::Denied),
            ("42P01", StoreErrorKind::Schema),
            ("OW001", StoreErrorKind::Fenced),
            ("P0001", StoreErrorKind::Other),
            ("25P02", StoreErrorKind::Other),
        ] {
            assert_eq!(kind_of_code(code), kind, "{code}");
        }
    }

    #[test]
    fn an_error_of_the_driver_is_recognised_under_others() {
        #[derive(Debug, thiserror::Error)]
        #[error("saving")]
        struct Saving(#[source] sqlx::Error);
        let error = Saving(sqlx::Error::PoolTimedOut);
        assert_eq!(classify(&error), Some(StoreErrorKind::Unavailable));
        assert_eq!(classify(&Saving(sqlx::Error::RowNotFound)), None);
        assert_eq!(classify(&std::fmt::Error), None);
    }

    #[test]
    fn a_commit_without_an_answer_may_have_happened() {
        let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = commit_failed("commit", sqlx::Error::Io(lost));
        assert_eq!(error.kind(), StoreErrorKind::CommitUnknown);
    }
}
