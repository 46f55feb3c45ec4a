//! A store in memory that behaves like PostgreSQL under read committed, and repeats exactly.
//!
//! Transactions have ids, snapshots list those that were open, writes become visible at commit,
//! and whoever inserts a key that an open transaction holds waits for its end. There is no thread,
//! no real time and no iteration in random order: the same calls give the same answers, on any
//! executor. Time is a [`SimClock`]; faults are planned through [`MemoryStore::faults`].
//!
//! User code writes its business rows through [`MemoryConnection`], in the effect's transaction:
//!
//! ```
//! # use onceward_testkit::memory::MemoryStore;
//! # use onceward_core::store::{Begin, Effects, End, Schema};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::default();
//! store.migrate().await?;
//! let mut tx = store.begin(Begin { lease: None }).await?;
//! store.connection(&mut tx).put("orders", "o-1", "accepted")?;
//! assert_eq!(store.get("orders", "o-1"), None);
//! store.end(tx, End::Commit).await?;
//! assert_eq!(store.get("orders", "o-1").as_deref(), Some("accepted"));
//! # Ok(())
//! # }
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::Timestamp;
use onceward_core::store::{StoreError, StoreErrorKind};

use crate::clock::SimClock;

mod acceptance;
mod cases;
mod connection;
mod defect;
mod deferrals;
mod effects;
mod faults;
mod fixture;
mod journal;
mod lanes;
mod log;
mod operate;
mod registry;
mod replay;
mod schema;
mod state;
mod status;
mod time;
mod upkeep;
mod versions;
mod writes;

pub use connection::{MemoryConnection, MemoryError, MemoryTx};
pub use defect::Defect;
pub use faults::{CommitFault, Faults, Operation};
pub use fixture::MemoryFixture;
pub use journal::{Change, Written};

use journal::Listener;
use state::State;

/// The source of messages that name none.
const SOURCE: &str = "/memory";

/// A store in memory. A clone is the same handle; [`reopen`](Self::reopen) gives one to the same
/// database as another process would have.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    /// How many appending commits this handle had before it when it last read.
    appends_seen: Arc<AtomicU64>,
    /// Whether this handle is cut off from the database.
    is_away: Arc<AtomicBool>,
}

/// What all handles and transactions share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: SimClock,
    faults: Faults,
    defect: Option<Defect>,
}

impl MemoryStore {
    /// An empty store without tables, as before a first migration.
    #[must_use]
    pub fn new(clock: SimClock) -> Self {
        Self::build(clock, None)
    }

    /// A store that is wrong in one way, for showing that a check notices it.
    #[must_use]
    pub fn with_defect(clock: SimClock, defect: Defect) -> Self {
        Self::build(clock, Some(defect))
    }

    fn build(clock: SimClock, defect: Option<Defect>) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                clock,
                faults: Faults::default(),
                defect,
            }),
            appends_seen: Arc::default(),
            is_away: Arc::default(),
        }
    }

    /// Another handle to the same database, as another process would have.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            appends_seen: Arc::default(),
            is_away: Arc::default(),
        }
    }

    /// The clock that everything here is decided by.
    #[must_use]
    pub fn clock(&self) -> &SimClock {
        &self.shared.clock
    }

    /// Where faults are planned; all handles share them.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Whether the database can be reached through this handle; another process's is another
    /// handle. Everything that is begun meanwhile fails.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Tells every change from now on to `tell`, in order. It is called while the store is locked
    /// and must not call back.
    pub fn listen(&self, tell: impl Fn(Timestamp, Change) + Send + Sync + 'static) {
        self.shared.state().listener = Listener::new(tell);
    }

    /// The committed value of a key in a table of user code.
    #[must_use]
    pub fn get(&self, table: &str, key: &str) -> Option<String> {
        let place = (table.to_owned(), key.to_owned());
        self.shared.state().tables.user.get(&place).cloned()
    }

    /// The committed rows of a table of user code, by key.
    #[must_use]
    pub fn rows(&self, table: &str) -> Vec<(String, String)> {
        let state = self.shared.state();
        let rows = state.tables.user.iter().filter(|((of, _), _)| of == table);
        rows.map(|((_, key), value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Transactions that are open at this moment.
    #[must_use]
    pub fn open_transactions(&self) -> usize {
        self.shared.state().open.len()
    }

    /// What every operation does first: planned faults, and whether there are tables.
    async fn enter(&self, operation: Operation) -> Result<(), StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            let found = "the database is away";
            let kind = StoreErrorKind::Unavailable;
            return Err(StoreError::found(kind, operation.action(), found));
        }
        self.shared.enter(operation).await
    }
}

/// With a clock that stands at a fixed moment.
impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(SimClock::default())
    }
}

impl Shared {
    /// The state, with transactions that idled too long ended.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.end_idle(self.clock.now()) {
            self.clock.wake_all();
        }
        state
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    async fn enter(&self, operation: Operation) -> Result<(), StoreError> {
        self.faults.pass(operation).await?;
        if self.state().is_migrated || operation == Operation::Migrate {
            return Ok(());
        }
        Err(StoreError::found(
            StoreErrorKind::Schema,
            operation.action(),
            "there are no tables yet; migrate first",
        ))
    }
}
