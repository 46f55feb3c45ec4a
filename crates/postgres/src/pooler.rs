//! What stands between this process and the server, and what that means for prepared statements.
//!
//! sqlx prepares each statement under a name of the connection (`sqlx_s_1`, ...), and keeps it for
//! the next time. A pooler in transaction mode lends a session for one transaction only: the next
//! one is in another session, where the name is unknown or, worse, another client's statement.

use std::time::Duration;

use onceward_core::store::{StoreError, StoreErrorKind};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool, Row as _};

use crate::error::failed;
use crate::session::Postgres;

const ACTION: &str = "look for a pooler";

/// What stands between a client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing that lends sessions: a connection has one of its own.
    None,
    /// A pooler that gives prepared statements names of its own and finds them again in whichever
    /// session a transaction gets (PgBouncer from 1.21 on, with `max_prepared_statements` above 0).
    Tracking,
    /// A pooler that may lend a session for one transaction and knows nothing of prepared
    /// statements. Each transaction leaves its session without any.
    Forgetful,
}

impl Pooler {
    /// Whether a statement that was prepared in one transaction is there in the next.
    #[must_use]
    pub const fn keeps_statements(self) -> bool {
        matches!(self, Self::None | Self::Tracking)
    }
}

impl Postgres {
    /// What stands between this store and the server; looked for once, with a connection of its
    /// own.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn pooler(&self) -> Result<Pooler, StoreError> {
        let found = self.pooler.get_or_try_init(|| look_for(&self.effects));
        found.await.copied()
    }

    /// Whether statements in the caller's own transaction may be kept. While that is not known,
    /// they are not.
    pub(crate) async fn keeps_statements(&self) -> bool {
        self.pooler().await.is_ok_and(Pooler::keeps_statements)
    }
}

async fn look_for(pool: &PgPool) -> Result<Pooler, StoreError> {
    let target = pool.connect_options();
    let within = pool.options().get_acquire_timeout();
    let looked = tokio::time::timeout(within, look(target.as_ref().clone())).await;
    let pooler = looked.map_err(|_| no_answer(within))?;
    pooler.map_err(|error| failed(ACTION, error))
}

fn no_answer(within: Duration) -> StoreError {
    let text = format!("no answer within {} ms", within.as_millis());
    StoreError::found(StoreErrorKind::Unavailable, ACTION, text)
}

async fn look(target: PgConnectOptions) -> Result<Pooler, sqlx::Error> {
    let ours = format!("onceward {}", std::process::id());
    // With a cache, so that what is prepared can be taken back.
    let target = target.application_name(&ours).statement_cache_capacity(8);
    let mut connection = PgConnection::connect_with(&target).await?;
    let named = sqlx::raw_sql(include_str!("../sql/session/named.sql"));
    let named = named.fetch_one(&mut connection).await?;
    let (setting, source): (String, String) = (named.try_get(0)?, named.try_get(1)?);
    let pooler = if is_own(&ours, &setting, &source) {
        Pooler::None
    } else {
        by_statement(&mut connection).await?
    };
    // What was found out stays true.
    let _ = connection.close().await;
    Ok(pooler)
}

/// What a client asks for as it connects has the source `client`. A pooler, whose sessions are
/// there before their clients, sets it later, or not at all.
fn is_own(ours: &str, setting: &str, source: &str) -> bool {
    setting == ours && source == "client"
}

/// Prepares a statement and looks at the name it has on the server.
async fn by_statement(connection: &mut PgConnection) -> Result<Pooler, sqlx::Error> {
    connection.execute("BEGIN READ ONLY").await?;
    let prepared = sqlx::query_scalar(include_str!("../sql/session/prepared.sql"));
    let prepared: Result<Option<String>, _> = prepared.fetch_optional(&mut *connection).await;
    connection.clear_cached_statements().await?;
    connection.execute("ROLLBACK").await?;
    match prepared {
        Ok(name) => Ok(of_name(name.as_deref())),
        // The name was taken already, by somebody else's statement.
        Err(error) if is_taken(&error) => Ok(Pooler::Forgetful),
        Err(error) => Err(error),
    }
}

/// Only a name that is known to be a pooler's says that statements are found again: to be wrong
/// about it would run somebody else's.
fn of_name(name: Option<&str>) -> Pooler {
    match name {
        Some(name) if name.starts_with("PGBOUNCER_") => Pooler::Tracking,
        _ => Pooler::Forgetful,
    }
}

fn is_taken(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some("42P05")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_with_the_connection_is_an_own_session() {
        assert!(is_own("onceward 7", "onceward 7", "client"));
        assert!(!is_own("onceward 7", "onceward 7", "session"));
        assert!(!is_own("onceward 7", "pooler", "client"));
        assert!(!is_own("onceward 7", "", "default"));
    }

    #[test]
    fn a_name_that_is_not_known_to_be_tracked_is_not_trusted() {
        assert_eq!(of_name(Some("PGBOUNCER_17")), Pooler::Tracking);
        assert_eq!(of_name(Some("sqlx_s_1")), Pooler::Forgetful);
        assert_eq!(of_name(Some("another_1")), Pooler::Forgetful);
        assert_eq!(of_name(None), Pooler::Forgetful);
        assert!(!Pooler::Forgetful.keeps_statements());
    }
}
