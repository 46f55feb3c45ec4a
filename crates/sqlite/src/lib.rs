//! Onceward on SQLite: the log, the ledger, lanes and quarantine as tables `onceward_*` in the
//! business's own file. Nothing to install, the same engine above.
//!
//! What differs from a server:
//!
//! - SQLite has one writer at a time, so the order of the log is the order of commits, and an
//!   effect transaction (`BEGIN IMMEDIATE`) is its own fence: while it is open nobody else can
//!   write, also not to take its lanes over.
//! - Writes of one process queue for one connection; processes on the same file wait for each
//!   other, up to [`BUSY_WAIT`]. What still finds the file locked then is a
//!   [`Conflict`](onceward_core::store::StoreErrorKind::Conflict), nobody's fault.
//! - No server ends a handler that idles inside its transaction; the engine drops it, which rolls
//!   back. A process that is stopped (SIGSTOP) inside a transaction holds the whole file.
//! - A copied file cannot be told from the original. Positions live in the file itself, so a
//!   restored copy goes on where it stood when it was copied.
//!
//! An application's own transactions on [`Sqlite::pool`] should begin with
//! `pool.begin_with("BEGIN IMMEDIATE")`: a transaction that first reads and then writes is refused
//! at once when another writer came in between, whatever the timeout.

use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use onceward_core::store::{StoreError, StoreErrorKind};
use sqlx::Connection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};

mod acceptance;
mod append;
mod cases;
mod clock;
mod deferrals;
mod dropped;
mod effects;
mod error;
mod fairness;
mod lanes;
mod log;
mod operate;
mod registry;
mod replay;
mod row;
mod schema;
mod status;
mod time;
mod upkeep;
mod versions;
mod watch;
mod writer;

pub use clock::Clock;
pub use effects::Tx;

use error::Attempt;

/// How long a write waits for other processes that write to the same file.
pub const BUSY_WAIT: Duration = Duration::from_secs(10);

/// The write-ahead file is cut to this many bytes when its content has moved into the main file.
const JOURNAL_BYTES_KEPT: &str = "16777216";

/// A store on one SQLite file. Clones share their connections.
#[derive(Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
    source: Option<Arc<str>>,
    clock: Clock,
}

struct Shared {
    /// The application's own.
    pool: SqlitePool,
    /// The store's reads.
    reads: SqlitePool,
    writer: writer::Writer,
    /// The fence of the effect transaction that is open, if one is.
    effect: Mutex<Weak<i64>>,
    /// The fence whose lease was renewed last, and when.
    renewal: Mutex<Option<(i64, Instant)>>,
    watch: watch::Watch,
    group: append::Group,
}

impl Sqlite {
    /// Opens a file, which is made when there is none: a path, or a URL like `sqlite:orders.db`
    /// or `sqlite:///var/lib/orders.db`. Makes no tables; see
    /// [`migrate`](onceward_core::store::Schema::migrate).
    ///
    /// # Errors
    /// `Refused` for a URL that cannot be read or a database in memory (each connection would see
    /// its own), `Unavailable` when the file cannot be opened, `Conflict` when another process
    /// keeps it locked.
    pub async fn connect(url_or_path: impl AsRef<str>) -> Result<Self, StoreError> {
        const ACTION: &str = "open the SQLite file";
        let options = options(url_or_path.as_ref())?
            .create_if_missing(true)
            .busy_timeout(BUSY_WAIT)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", JOURNAL_BYTES_KEPT);
        let first = open_first(&options.clone().journal_mode(SqliteJournalMode::Wal)).await;
        first.attempting(ACTION)?.close().await.attempting(ACTION)?;
        let pool = SqlitePoolOptions::new()
            .max_connections(8)
            // SQLite itself ends a transaction for which the disk has no room; the connection
            // then still counts one, and nobody could begin another on it.
            .after_release(|connection, _| {
                Box::pin(async move {
                    // After whatever it has still to roll back.
                    connection.ping().await?;
                    Ok(!connection.is_in_transaction())
                })
            })
            .connect_lazy_with(options.clone());
        let reads = SqlitePoolOptions::new()
            .max_connections(4)
            .connect_lazy_with(
                options
                    .clone()
                    .pragma("query_only", "ON")
                    .row_buffer_size(16),
            );
        let shared = Shared {
            pool,
            reads,
            writer: writer::Writer::new(options.clone()),
            effect: Mutex::default(),
            renewal: Mutex::default(),
            watch: watch::Watch::new(options),
            group: append::Group::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            source: None,
            clock: Clock::database(),
        })
    }

    /// Sets the source of messages that name none: a URI reference, kept in the file by the next
    /// migration, for all who use it. It is part of what makes a message recognisable, so it must
    /// not change later. Without it the source is `urn:onceward:` and the name that the file had
    /// when it was first migrated.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets another clock, for tests that move time.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Connections for the application's own reads and transactions on the same file.
    #[must_use]
    pub fn pool(&self) -> &SqlitePool {
        &self.shared.pool
    }

    /// Closes all connections, after what is running. Clones cannot be used any more.
    pub async fn close(&self) {
        self.shared.watch.close().await;
        self.shared.writer.close().await;
        self.shared.reads.close().await;
        self.shared.pool.close().await;
    }

    fn reads(&self) -> &SqlitePool {
        &self.shared.reads
    }

    async fn write(&self, action: &'static str) -> Result<writer::WriteTx, StoreError> {
        self.shared.writer.begin(action).await
    }

    fn default_source(&self) -> String {
        let file = self.shared.pool.connect_options();
        let stem = file.get_filename().file_stem().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = stem.to_string_lossy().replace(|c| !is_plain(c), "-");
        format!("urn:onceward:{name}")
    }

    /// The fixed clock's time; `None` lets the database say.
    fn now(&self) -> Option<i64> {
        self.clock.micros()
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.shared.pool.connect_options();
        f.debug_struct("Sqlite")
            .field("file", &file.get_filename())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

fn options(url_or_path: &str) -> Result<SqliteConnectOptions, StoreError> {
    const ACTION: &str = "read the store's address";
    let options = if url_or_path.starts_with("sqlite:") {
        SqliteConnectOptions::from_str(url_or_path)
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, ACTION, error))?
    } else {
        SqliteConnectOptions::new().filename(Path::new(url_or_path))
    };
    let is_memory = url_or_path.contains(":memory:") || url_or_path.contains("mode=memory");
    if is_memory || options.get_filename().as_os_str().is_empty() {
        return Err(StoreError::found(
            StoreErrorKind::Refused,
            ACTION,
            "a database in memory cannot be shared between connections: name a file",
        ));
    }
    Ok(options)
}

/// Turns the write-ahead log on. SQLite answers "busy" here without waiting when several processes
/// do it at once, so the wait is ours.
async fn open_first(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let started = Instant::now();
    loop {
        match SqliteConnection::connect_with(options).await {
            Err(error) if error::is_busy(&error) && started.elapsed() < BUSY_WAIT => {
                tokio::time::sleep(writer::jitter()).await;
            }
            other => return other,
        }
    }
}
