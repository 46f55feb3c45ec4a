//! The suite that every store passes.

use onceward_core::Timestamp;
use onceward_core::store::{Schema, StoreError};
use onceward_sqlite::{Clock, Sqlite};
use onceward_testkit::suite::{Capabilities, Fixture};
use tempfile::TempDir;

/// A migrated file of its own.
struct SqliteFixture {
    folder: TempDir,
    clock: Clock,
    store: Sqlite,
}

impl SqliteFixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let clock = Clock::manual(Timestamp::from_micros(1_767_268_800_000_000));
        let store = open(&folder, &clock).await.expect("the file can be opened");
        store.migrate().await.expect("the tables can be made");
        Self {
            folder,
            clock,
            store,
        }
    }
}

async fn open(folder: &TempDir, clock: &Clock) -> Result<Sqlite, StoreError> {
    let path = folder.path().join("suite.db");
    let store = Sqlite::connect(path.to_string_lossy()).await?;
    Ok(store.with_clock(clock.clone()))
}

impl Fixture for SqliteFixture {
    type Store = Sqlite;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            has_concurrent_writers: false,
            removes_single_log_rows: true,
        }
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    async fn second(&self) -> Sqlite {
        let opened = open(&self.folder, &self.clock).await;
        opened.expect("the file can be opened twice")
    }

    fn advance_ms(&self, by_ms: u64) {
        self.clock
            .advance_ms(i64::try_from(by_ms).expect("a test moves by less than ages"));
    }

    fn set_back_ms(&self, by_ms: u64) {
        let by_ms = i64::try_from(by_ms).expect("a test moves by less than ages");
        self.clock.advance_ms(-by_ms);
    }
}

onceward_testkit::store_suite!(SqliteFixture::new().await);
