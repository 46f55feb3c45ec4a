//! The bench on SQLite.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use onceward::{BatchFn, Context, EffectFn, Failure, Outbox};
use onceward_core::Timestamp;
use onceward_core::store::Schema as _;
use onceward_sqlite::Sqlite;
use sqlx::SqliteConnection;

use super::effects::fail_if_asked;
use super::ground::{Counts, Ground, Scratch};
use super::work::Order;
use crate::error::{Code, Error};
use crate::store_url;

/// A folder in which scratch files can be made.
pub(super) struct Folder {
    folder: PathBuf,
    made: AtomicU32,
}

fn failed(what: &'static str) -> impl Fn(sqlx::Error) -> Error {
    move |error| Error::new(Code::StoreFailed, what).with_source(error)
}

impl Folder {
    pub(super) fn beside(url: &str) -> Result<Self, Error> {
        let path = store_url::sqlite_path(url)
            .ok_or_else(|| Error::new(Code::StoreUrl, "the URL names no file"))?;
        let folder = Path::new(path)
            .parent()
            .filter(|p| !p.as_os_str().is_empty());
        Ok(Self {
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            made: AtomicU32::new(0),
        })
    }
}

impl Ground for Folder {
    type Store = Sqlite;
    type Scratch = File;

    async fn describe(&self) -> Result<String, Error> {
        Ok("SQLite, write-ahead log, synchronous full".to_owned())
    }

    async fn scratch(&self) -> Result<File, Error> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("onceward-bench-{}-{number}.db", std::process::id());
        let path = self.folder.join(name);
        let url = path.to_string_lossy().into_owned();
        let store = Sqlite::connect(&url)
            .await
            .map_err(|e| Error::store(&url, &e))?;
        store.migrate().await.map_err(|e| Error::store(&url, &e))?;
        sqlx::raw_sql(
            "CREATE TABLE bench_shipments (id INTEGER PRIMARY KEY, operation TEXT NOT NULL, \
             address TEXT NOT NULL)",
        )
        .execute(store.pool())
        .await
        .map_err(failed("could not make the business table"))?;
        Ok(File { path, store })
    }
}

/// A scratch file.
pub(super) struct File {
    path: PathBuf,
    store: Sqlite,
}

async fn insert(connection: &mut SqliteConnection, order: &Order) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO bench_shipments (operation, address) VALUES (?, ?)")
        .bind(&order.operation)
        .bind(&order.address)
        .execute(connection)
        .await?;
    Ok(())
}

async fn insert_many(
    connection: &mut SqliteConnection,
    orders: &[Order],
) -> Result<(), sqlx::Error> {
    let rows: Vec<_> = orders.iter().map(|o| [&o.operation, &o.address]).collect();
    let rows = serde_json::to_string(&rows).map_err(|e| sqlx::Error::Encode(e.into()))?;
    sqlx::query(
        "INSERT INTO bench_shipments (operation, address) \
         SELECT value ->> 0, value ->> 1 FROM json_each(?)",
    )
    .bind(rows)
    .execute(connection)
    .await?;
    Ok(())
}

async fn ship(cx: &mut Context<Sqlite>, order: Order) -> Result<(), Failure> {
    fail_if_asked(cx, &order)?;
    insert(cx.tx(), &order).await?;
    Ok(())
}

async fn ship_many(cx: &mut Context<Sqlite>, orders: Vec<Order>) -> Result<Vec<()>, Failure> {
    for order in &orders {
        fail_if_asked(cx, order)?;
    }
    insert_many(cx.tx(), &orders).await?;
    Ok(vec![(); orders.len()])
}

fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = since.map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX));
    Timestamp::from_micros(micros).as_micros()
}

impl Scratch for File {
    type Store = Sqlite;

    fn store(&self) -> &Sqlite {
        &self.store
    }

    fn one() -> impl for<'x> EffectFn<'x, Sqlite, Order> + Copy + 'static {
        ship
    }

    fn many() -> impl for<'x> BatchFn<'x, Sqlite, Order> + Copy + 'static {
        ship_many
    }

    async fn append(&self, orders: &[Order]) -> Result<(), Error> {
        let begun = self.store.pool().begin_with("BEGIN IMMEDIATE").await;
        let mut tx = begun.map_err(failed("could not begin"))?;
        let appended = Outbox::new(self.store.clone())
            .append_all(&mut tx, orders)
            .await;
        appended.map_err(|e| Error::new(Code::StoreFailed, "could not append").with_source(e))?;
        tx.commit().await.map_err(failed("could not commit"))
    }

    async fn effects(&self, wanted: u64) -> Result<u64, Error> {
        let count: i64 = sqlx::query_scalar(
            "SELECT CASE WHEN (SELECT max(rowid) FROM bench_shipments) >= ?1 \
             THEN (SELECT count(*) FROM bench_shipments) ELSE 0 END",
        )
        .bind(wanted as i64)
        .fetch_one(self.store.pool())
        .await
        .map_err(failed("could not count"))?;
        Ok(count.unsigned_abs())
    }

    async fn floor_many(&self, orders: &[Order]) -> Result<(), Error> {
        let work = async {
            let mut tx = self.store.pool().begin_with("BEGIN IMMEDIATE").await?;
            let operations: Vec<&str> = orders.iter().map(|o| o.operation.as_str()).collect();
            let operations =
                serde_json::to_string(&operations).map_err(|e| sqlx::Error::Encode(e.into()))?;
            sqlx::query(
                "INSERT INTO onceward_ledger (subscription, source, type, identity, recordedtime) \
                 SELECT 'bench', 'urn:bench', 'bench.order', value, ? FROM json_each(?) \
                 WHERE true ON CONFLICT DO NOTHING",
            )
            .bind(now_micros())
            .bind(operations)
            .execute(&mut *tx)
            .await?;
            insert_many(&mut tx, orders).await?;
            tx.commit().await
        };
        work.await.map_err(failed("a floor failed"))
    }

    async fn floor_ones(&self, orders: &[Order]) -> Result<(), Error> {
        let work = async {
            let mut tx = self.store.pool().begin_with("BEGIN IMMEDIATE").await?;
            for order in orders {
                sqlx::query(
                    "INSERT INTO onceward_ledger \
                     (subscription, source, type, identity, recordedtime) \
                     VALUES ('bench', 'urn:bench', 'bench.order', ?, ?) ON CONFLICT DO NOTHING",
                )
                .bind(&order.operation)
                .bind(now_micros())
                .execute(&mut *tx)
                .await?;
                insert(&mut tx, order).await?;
            }
            tx.commit().await
        };
        work.await.map_err(failed("a floor failed"))
    }

    async fn counts(&self) -> Result<Option<Counts>, Error> {
        Ok(None)
    }

    async fn remove(self) -> Result<(), Error> {
        self.store.pool().close().await;
        drop(self.store);
        for ending in ["", "-wal", "-shm"] {
            let mut path = self.path.clone().into_os_string();
            path.push(ending);
            match std::fs::remove_file(PathBuf::from(path)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let what = "could not remove a scratch file";
                    return Err(Error::new(Code::StoreFailed, what).with_source(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
