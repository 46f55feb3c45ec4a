//! The suite that every store passes.

use onceward_core::Timestamp;
use onceward_core::store::Schema;
use onceward_postgres::{Clock, Pooler, Postgres};
use onceward_testkit::postgres::{PgBouncer, TestDatabase};
use onceward_testkit::suite::{Capabilities, Fixture};

/// A migrated database of its own.
struct PostgresFixture {
    store: Postgres,
    clock: Clock,
    url: String,
    _pooler: Option<PgBouncer>,
    _database: TestDatabase,
}

impl PostgresFixture {
    async fn new() -> Self {
        let database = migrated().await;
        let url = database.url().to_owned();
        Self::at(url, None, database).await
    }

    /// Through a pooler that lends each session for one transaction.
    async fn pooled() -> Self {
        let database = migrated().await;
        let pooler = PgBouncer::start(database.url(), 16).await;
        let url = pooler.url(database.url());
        let fixture = Self::at(url, Some(pooler), database).await;
        let found = fixture.store.pooler().await;
        assert_eq!(found.expect("it was found"), Pooler::Forgetful);
        fixture
    }

    async fn at(url: String, pooler: Option<PgBouncer>, database: TestDatabase) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("the clock is past 1970").as_micros();
        let clock = Clock::fixed(Timestamp::from_micros(now as i64));
        let store = open(&url, &clock).await;
        Self {
            store,
            clock,
            url,
            _pooler: pooler,
            _database: database,
        }
    }
}

/// A copy of one migrated database, which is faster than migrating each: the suite asks for many.
async fn migrated() -> TestDatabase {
    let copy = TestDatabase::prepared(async |url| {
        let store = Postgres::connect(&url).await;
        let store = store.expect("the database can be reached");
        store.migrate().await.expect("the tables can be made");
        store.close().await;
    });
    let copy = copy.await;
    // To the store a copy is another database; these tests mean it to be at home.
    copy.psql("update onceward.meta set identity = onceward.identity()")
        .await;
    copy
}

async fn open(url: &str, clock: &Clock) -> Postgres {
    let store = Postgres::connect(url).await;
    store
        .expect("the database can be reached")
        .with_clock(clock.clone())
}

impl Fixture for PostgresFixture {
    type Store = Postgres;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            has_concurrent_writers: true,
            removes_single_log_rows: false,
        }
    }

    fn store(&self) -> &Postgres {
        &self.store
    }

    async fn second(&self) -> Postgres {
        open(&self.url, &self.clock).await
    }

    fn advance_ms(&self, by_ms: u64) {
        self.clock.advance_ms(by_ms);
    }

    fn set_back_ms(&self, by_ms: u64) {
        self.clock.set_back_ms(by_ms);
    }
}

mod direct {
    use super::PostgresFixture;

    onceward_testkit::store_suite!(PostgresFixture::new().await);
}

/// Field case EX-11: no statement, lock or setting outlives its transaction.
mod ex_11_pooled {
    use super::PostgresFixture;

    onceward_testkit::store_suite!(PostgresFixture::pooled().await);
}
