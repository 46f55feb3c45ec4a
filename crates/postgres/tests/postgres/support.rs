//! Shared by the tests of this crate.

use onceward_core::store::{
    Append, Declared, Join, Lanes, Lease, Log, ReadPage, Schema, Start, Take, TakenLane,
};
use onceward_core::{Envelope, Payload, Position, Row};
use onceward_postgres::Postgres;
use onceward_testkit::postgres::TestDatabase;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

pub(crate) const SUB: &str = "ship";
pub(crate) const TYPE: &str = "order.accepted";

/// A migrated store in a database of its own: a copy of one that was migrated once, which is
/// faster, and told that it is at home.
pub(crate) async fn store() -> (TestDatabase, Postgres) {
    let database = TestDatabase::prepared(async |url| {
        let store = Postgres::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        store.close().await;
    });
    let database = database.await;
    let at_home = "update onceward.meta set identity = onceward.identity(),
        source = 'urn:onceward:' || current_database()";
    database.psql(at_home).await;
    let store = Postgres::connect(database.url()).await.unwrap();
    (database, store)
}

/// A plain session.
pub(crate) async fn session(database: &TestDatabase) -> PgConnection {
    PgConnection::connect(database.url()).await.unwrap()
}

pub(crate) async fn execute(connection: &mut PgConnection, sql: impl Into<String>) {
    let sql = sql.into();
    connection
        .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await
        .unwrap();
}

pub(crate) fn envelope(id: &str, key: &str) -> Envelope {
    Envelope::new(id, "order", key, TYPE, Payload::Json("{\"n\": 1}".into()))
}

pub(crate) async fn append(store: &Postgres, envelopes: &[Envelope]) {
    let mut tx = store.pool().begin().await.unwrap();
    store.append(&mut tx, envelopes).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn read(store: &Postgres, from: &Position, rows_max: u32) -> (Vec<Row>, Position) {
    let request = ReadPage {
        from,
        rows_max,
        bytes_max: 1 << 30,
    };
    let page = store.read(request).await.unwrap();
    (page.rows, page.next)
}

/// Reads page by page until a page is empty and at a boundary.
pub(crate) async fn drain(store: &Postgres, from: &mut Position, rows_max: u32) -> Vec<Row> {
    let mut all = Vec::new();
    loop {
        let (rows, next) = read(store, from, rows_max).await;
        let is_end = rows.is_empty() && next.is_boundary();
        *from = next;
        all.extend(rows);
        if is_end {
            return all;
        }
    }
}

pub(crate) fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.envelope.id.as_str()).collect()
}

pub(crate) async fn register(store: &Postgres, start: Start) {
    let types = [TYPE.to_owned()];
    let declared = Declared {
        subscription: SUB,
        lanes: 4,
        types: &types,
        start: Some(start),
        renamed_from: None,
        terms: onceward_core::store::Terms::default(),
    };
    store.register(declared).await.unwrap();
}

pub(crate) async fn join(store: &Postgres, member: &str, lease_ms: u64) -> Lease {
    let subscriptions = [SUB.to_owned()];
    let request = Join {
        member,
        description: member,
        lease_ms,
        subscriptions: &subscriptions,
    };
    store.join(request).await.unwrap()
}

pub(crate) async fn take(store: &Postgres, lease: &Lease) -> Vec<TakenLane> {
    let request = Take {
        lease,
        subscription: SUB,
        lanes: &[0, 1, 2, 3],
    };
    store.take(request).await.unwrap()
}

/// Whether somebody in this database waits for an advisory lock.
pub(crate) const WAITS: &str = "select exists (select 1 from pg_locks l
    join pg_database d on d.oid = l.database and d.datname = current_database()
    where l.locktype = 'advisory' and not l.granted)";

/// Waits until a query answers true.
pub(crate) async fn until(database: &TestDatabase, query: &'static str) {
    let mut connection = session(database).await;
    for _ in 0..100_000 {
        let answer = sqlx::query_scalar(query).fetch_one(&mut connection).await;
        if answer.unwrap() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never true: {query}");
}
