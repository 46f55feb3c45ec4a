//! Shared by the tests of this crate.
#![allow(dead_code, reason = "each test binary uses some of it")]

use onceward_core::store::{Log, ReadPage, Schema, StoreError};
use onceward_core::{Envelope, Payload, Position, Row};
use onceward_postgres::Postgres;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// A database of its own, dropped at the end.
pub struct Database {
    url: String,
    name: String,
    admin: String,
}

impl Database {
    pub async fn lease() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let base = std::env::var("ONCEWARD_TEST_POSTGRES")
            .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432".to_owned());
        let base = base.trim_end_matches('/');
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("onceward_pg_{}_{n}", std::process::id());
        let admin = format!("{base}/postgres");
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        let create = format!("create database {name} template template0");
        connection.execute(AssertSqlSafe(create)).await.unwrap();
        Self { url: format!("{base}/{name}"), name, admin }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        let work = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut connection = PgConnection::connect(&admin).await.unwrap();
                let drop = format!("drop database {name} with (force)");
                connection.execute(AssertSqlSafe(drop)).await.unwrap();
            });
        });
        work.join().unwrap();
    }
}

/// A migrated store in a database of its own.
pub async fn store() -> (Database, Postgres) {
    let database = Database::lease().await;
    let store = Postgres::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    (database, store)
}

pub fn envelope(id: &str, key: &str) -> Envelope {
    Envelope::new(id, "order", key, "order.accepted", Payload::Json("{\"n\": 1}".into()))
}

pub async fn append(store: &Postgres, envelopes: &[Envelope]) {
    use onceward_core::store::Append;
    let mut tx = store.pool().begin().await.unwrap();
    store.append(&mut tx, envelopes).await.unwrap();
    tx.commit().await.unwrap();
}

pub async fn read(
    store: &Postgres,
    from: &Position,
    rows_max: u32,
) -> Result<(Vec<Row>, Position), StoreError> {
    let request = ReadPage { from, rows_max, bytes_max: 1 << 30 };
    store.read(request).await.map(|page| (page.rows, page.next))
}

/// Reads page by page to the boundary of this moment.
pub async fn drain(store: &Postgres, from: &mut Position, rows_max: u32) -> Vec<Row> {
    let mut all = Vec::new();
    loop {
        let (rows, next) = read(store, from, rows_max).await.unwrap();
        let is_end = rows.is_empty() && next.is_boundary();
        *from = next;
        all.extend(rows);
        if is_end {
            return all;
        }
    }
}

pub fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.envelope.id.as_str()).collect()
}
