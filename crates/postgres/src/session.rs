//! Connections: separate pools, and transactions that leave no trace when they are dropped.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onceward_core::Timestamp;
use onceward_core::store::{StoreError, StoreErrorKind};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow, PgTransactionManager};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OnceCell;

use crate::clock::Clock;
use crate::error::{commit_failed, failed, spoils, while_doing};
use crate::pooler::Pooler;

/// Whatever the database's default is, Onceward works in read committed.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// For a statement that reads. A standby is refused: it may not have heard yet of what was deferred
/// or put aside, and a key that holds would look free.
pub(crate) const BEGIN_READ: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT onceward.is_standby()";

/// Several statements that answer one question see one moment. At read committed a lane's position
/// could be newer than the cases that were looked for before it, and a message that had just become
/// a case would pass for delivered. A standby is refused, as in [`BEGIN_READ`].
pub(crate) const BEGIN_QUESTION: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT onceward.is_standby()";

/// As [`BEGIN`], refused at once where nothing can be written: on a standby, or in a session that
/// was opened while the database was set to read only and would stay so.
pub(crate) const BEGIN_WRITE: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT onceward.check_writable()";

/// Sizes of the pools. Renewals have connections of their own, so that neither handlers nor slow
/// questions can starve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Effect transactions open at once.
    pub effect_connections: u32,
    /// For leases, positions and lanes.
    pub lease_connections: u32,
    /// For reading the log, and for questions and upkeep.
    pub read_connections: u32,
    /// How long to wait for a free connection, in milliseconds.
    pub acquire_timeout_ms: u64,
}

impl Default for Options {
    /// 16 for effects, 2 for leases, 4 for reading, 10 s.
    fn default() -> Self {
        Self {
            effect_connections: 16,
            lease_connections: 2,
            read_connections: 4,
            acquire_timeout_ms: 10_000,
        }
    }
}

/// A store in a PostgreSQL database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Postgres {
    pub(crate) effects: PgPool,
    pub(crate) leases: PgPool,
    pub(crate) reads: PgPool,
    pub(crate) clock: Clock,
    pub(crate) source: Option<String>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) pooler: Arc<OnceCell<Pooler>>,
}

/// What a reader saw last, so that its next request can be one trip. Wrong guesses cost a second.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The sequence hands out more than one number at a time.
    is_unordered: AtomicBool,
    /// The era; 0 before the first look.
    era: AtomicU32,
}

impl Seen {
    pub(crate) fn get(&self) -> (u32, bool) {
        (
            self.era.load(Ordering::Relaxed),
            self.is_unordered.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn set(&self, era: u32, is_unordered: bool) {
        self.era.store(era, Ordering::Relaxed);
        self.is_unordered.store(is_unordered, Ordering::Relaxed);
    }
}

impl Postgres {
    /// Connects with default [`Options`]. The URL is libpq's (`postgres://user@host/database`).
    ///
    /// It may lead to a pooler, in transaction mode too: see [`Pooler`].
    ///
    /// # Errors
    /// When the URL is malformed or no connection can be made.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(url, Options::default()).await
    }

    /// Connects with pool sizes.
    ///
    /// # Errors
    /// When the URL is malformed or no connection can be made.
    pub async fn connect_with(url: &str, options: Options) -> Result<Self, StoreError> {
        let target = connect_options(url)?;
        let effects = pool(options.effect_connections, options).connect_lazy_with(target);
        let store = Self::over(effects, options);
        let connection = store.effects.acquire().await;
        drop(connection.map_err(while_doing("connect to the database"))?);
        store.pooler().await?;
        Ok(store)
    }

    /// Uses the application's own pool for effects, and makes small ones beside it with the same
    /// target for everything else.
    #[must_use]
    pub fn from_pool(pool: PgPool) -> Self {
        Self::over(pool, Options::default())
    }

    fn over(effects: PgPool, options: Options) -> Self {
        let target = pooled(effects.connect_options().as_ref().clone());
        let beside = |size: u32| pool(size, options).connect_lazy_with(target.clone());
        Self {
            leases: beside(options.lease_connections),
            // Upkeep holds one, works on another and may need a third to call the second off.
            reads: beside(options.read_connections.max(3)),
            effects,
            clock: Clock::database(),
            source: None,
            seen: Arc::default(),
            pooler: Arc::default(),
        }
    }

    /// Sets the store's own source, a URI reference, kept in the database by the next migration.
    /// Without it the source is `urn:onceward:` and the database's name.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Takes time from `clock` instead of the database's clock; for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The pool that effect transactions use, for the application's own statements.
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.effects
    }

    /// Closes all connections and waits for those in use.
    pub async fn close(&self) {
        self.leases.close().await;
        self.reads.close().await;
        self.effects.close().await;
    }

    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.now()
    }
}

/// How to connect to the address of a URL, for connections of one's own: without what a pooler
/// would refuse.
///
/// # Errors
/// When the URL is malformed.
pub fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let target = PgConnectOptions::from_str(url).map_err(|_| {
        // The parser's own text quotes the URL, and with it a password.
        let text = "the URL is not of the form postgres://user@host:port/database";
        StoreError::found(StoreErrorKind::Refused, "read the database URL", text)
    })?;
    Ok(pooled(target))
}

/// Poolers refuse parameters that they do not know. What this one asks for, floating-point numbers
/// in full as text, PostgreSQL does by itself since version 12.
fn pooled(target: PgConnectOptions) -> PgConnectOptions {
    target.extra_float_digits(None)
}

fn pool(size: u32, options: Options) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(size.max(1))
        .acquire_timeout(Duration::from_millis(options.acquire_timeout_ms))
        // One round trip less; a broken connection shows at BEGIN, which is then repeated.
        .test_before_acquire(false)
}

/// One more than can be idle: the last try is on a new connection. The pool's own count may be
/// below nothing for a moment, and then reads as the largest number.
fn tries_of(pool: &PgPool) -> u32 {
    let most = pool.options().get_max_connections();
    u32::try_from(pool.num_idle()).map_or(most, |idle| idle.clamp(0, most)) + 1
}

/// An open transaction of the store. Dropping it closes its connection, so that nothing of it can
/// leak into whoever would have used the connection next.
#[derive(Debug)]
pub struct Tx {
    connection: Option<PoolConnection<sqlx::Postgres>>,
    /// User code had the connection since the store last used it.
    pub(crate) was_lent: bool,
    /// The session is this transaction's only until it ends: see [`Pooler::Forgetful`].
    is_borrowed: bool,
}

impl Tx {
    async fn acquire(
        pool: &PgPool,
        is_borrowed: bool,
        action: &'static str,
    ) -> Result<Self, StoreError> {
        let connection = pool.acquire().await.map_err(while_doing(action))?;
        Ok(Self {
            connection: Some(connection),
            was_lent: false,
            is_borrowed,
        })
    }

    async fn begin(&mut self, begin: &str) -> Result<(), sqlx::Error> {
        if !self.is_borrowed {
            let statement = AssertSqlSafe(begin).into_sql_str();
            return PgTransactionManager::begin(self.connection(), Some(statement)).await;
        }
        // What the application prepared on this connection was left in other sessions.
        self.forget_statements().await?;
        // What others left in this one could have the names of ours.
        let statement = AssertSqlSafe(format!("{begin}; DEALLOCATE ALL")).into_sql_str();
        PgTransactionManager::begin(self.connection(), Some(statement)).await
    }

    /// A statement left in a session that goes to others would meet theirs of the same name, and
    /// this connection would look for it where it is not.
    async fn forget_statements(&mut self) -> Result<(), sqlx::Error> {
        if self.is_borrowed {
            self.connection().clear_cached_statements().await?;
        }
        Ok(())
    }

    /// The connection.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.connection
            .as_mut()
            .expect("only taken by commit and roll_back, which consume the transaction")
    }

    /// Commits.
    pub(crate) async fn commit(mut self, action: &'static str) -> Result<(), StoreError> {
        if self.was_lent {
            let check = sqlx::raw_sql(include_str!("../sql/effects/check.sql"));
            let checked = check.execute(self.connection()).await;
            checked.map_err(while_doing(action))?;
        }
        let forgotten = self.forget_statements().await;
        forgotten.map_err(while_doing(action))?;
        let committed = PgTransactionManager::commit(self.connection()).await;
        committed.map_err(|error| commit_failed(action, error))?;
        self.connection.take();
        Ok(())
    }

    /// Rolls back; a connection that cannot is closed, which has the same effect.
    pub(crate) async fn roll_back(mut self) {
        let end = async {
            self.forget_statements().await?;
            PgTransactionManager::rollback(self.connection()).await
        };
        if end.await.is_ok() {
            self.connection.take();
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.close_on_drop();
        }
    }
}

impl Postgres {
    /// Opens a transaction with a statement that begins with `BEGIN`. A connection that turns out
    /// to be broken or to lead to a read-only server is closed, and another one is tried.
    pub(crate) async fn open(
        &self,
        pool: &PgPool,
        begin: impl AsRef<str>,
        action: &'static str,
    ) -> Result<Tx, StoreError> {
        let is_borrowed = self.pooler().await? == Pooler::Forgetful;
        let mut last = None;
        for _ in 0..tries_of(pool) {
            let mut tx = Tx::acquire(pool, is_borrowed, action).await?;
            match tx.begin(begin.as_ref()).await {
                Ok(()) => return Ok(tx),
                Err(error) if spoils(&error) => last = Some(error),
                Err(error) => return Err(failed(action, error)),
            }
        }
        Err(failed(action, last.unwrap_or(sqlx::Error::PoolClosed)))
    }

    /// Runs a script that begins and ends its own transaction in one trip, and returns the rows
    /// of all its statements. It prepares nothing.
    pub(crate) async fn script(
        &self,
        script: &str,
        action: &'static str,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut last = None;
        for _ in 0..tries_of(&self.reads) {
            let mut guard = Tx::acquire(&self.reads, false, action).await?;
            let query = sqlx::raw_sql(AssertSqlSafe(script));
            match query.fetch_all(guard.connection()).await {
                Ok(rows) => {
                    guard.connection.take();
                    return Ok(rows);
                }
                Err(error) if spoils(&error) => last = Some(error),
                Err(error) => return Err(failed(action, error)),
            }
        }
        Err(failed(action, last.unwrap_or(sqlx::Error::PoolClosed)))
    }

    /// A transaction for leases, positions and lanes.
    pub(crate) async fn lease_tx(&self, action: &'static str) -> Result<Tx, StoreError> {
        self.open(&self.leases, BEGIN_WRITE, action).await
    }

    /// A transaction for one statement that reads, or for upkeep.
    pub(crate) async fn read_tx(&self, action: &'static str) -> Result<Tx, StoreError> {
        self.open(&self.reads, BEGIN_READ, action).await
    }

    /// A transaction for a question of several statements.
    pub(crate) async fn question_tx(&self, action: &'static str) -> Result<Tx, StoreError> {
        self.open(&self.reads, BEGIN_QUESTION, action).await
    }
}

/// A moment from microseconds.
pub(crate) const fn moment(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}
