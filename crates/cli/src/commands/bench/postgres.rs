//! The bench on PostgreSQL.

use std::sync::atomic::{AtomicU32, Ordering};

use onceward::{BatchFn, Context, EffectFn, Failure, Outbox};
use onceward_core::store::Schema as _;
use onceward_postgres::{Postgres, connect_options};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::effects::fail_if_asked;
use super::ground::{Counts, Ground, Scratch};
use super::work::Order;
use crate::error::{Code, Error};
use crate::store::refuse_lent_sessions;

/// A server on which scratch databases can be made.
pub(super) struct Server {
    url: url::Url,
    made: AtomicU32,
}

fn failed(what: &'static str) -> impl Fn(sqlx::Error) -> Error {
    move |error| Error::new(Code::StoreFailed, what).with_source(error)
}

impl Server {
    pub(super) async fn at(text: &str) -> Result<Self, Error> {
        let url = url::Url::parse(text)
            .map_err(|e| Error::new(Code::StoreUrl, "the URL cannot be read").with_source(e))?;
        let server = Self {
            url,
            made: AtomicU32::new(0),
        };
        server.connect().await?;
        refuse_lent_sessions(text).await?;
        Ok(server)
    }

    async fn connect(&self) -> Result<PgConnection, Error> {
        let options = connect_options(self.url.as_str())
            .map_err(|_| Error::new(Code::StoreUrl, "the URL cannot be read"))?;
        PgConnection::connect_with(&options)
            .await
            .map_err(failed("could not connect"))
    }

    async fn execute(&self, statement: String) -> Result<(), Error> {
        let mut connection = self.connect().await?;
        let done = sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await;
        done.map_err(failed("could not make or remove a scratch database"))?;
        Ok(())
    }
}

impl Ground for Server {
    type Store = Postgres;
    type Scratch = Database;

    async fn describe(&self) -> Result<String, Error> {
        let mut connection = self.connect().await?;
        let row = sqlx::query(
            "select current_setting('server_version') as version, \
             current_setting('fsync') as fsync, \
             current_setting('synchronous_commit') as commit",
        )
        .fetch_one(&mut connection)
        .await
        .map_err(failed("could not ask for the version"))?;
        let setting = |name: &str| {
            row.try_get::<String, _>(name)
                .map_err(failed("could not read a setting"))
        };
        Ok(format!(
            "PostgreSQL {}, fsync {}, synchronous_commit {}",
            setting("version")?,
            setting("fsync")?,
            setting("commit")?
        ))
    }

    async fn scratch(&self) -> Result<Database, Error> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("onceward_bench_{}_{number}", std::process::id());
        self.execute(format!("drop database if exists {name} with (force)"))
            .await?;
        self.execute(format!("create database {name}")).await?;
        let mut url = self.url.clone();
        url.set_path(&name);
        let store = Postgres::connect(url.as_str())
            .await
            .map_err(|e| Error::store(url.as_str(), &e))?;
        store
            .migrate()
            .await
            .map_err(|e| Error::store(url.as_str(), &e))?;
        let statement = "create table bench_shipments (id bigint generated always as identity \
                         primary key, operation text not null, address text not null)";
        let pool = PgPoolOptions::new()
            .max_connections(32)
            .connect(url.as_str())
            .await
            .map_err(failed("could not connect"))?;
        sqlx::raw_sql(statement)
            .execute(&pool)
            .await
            .map_err(failed("could not make the business table"))?;
        let server = Self {
            url: self.url.clone(),
            made: AtomicU32::new(0),
        };
        Ok(Database {
            server,
            url,
            name,
            store,
            pool,
        })
    }
}

/// A scratch database.
pub(super) struct Database {
    server: Server,
    url: url::Url,
    name: String,
    store: Postgres,
    pool: PgPool,
}

async fn ship(cx: &mut Context<Postgres>, order: Order) -> Result<(), Failure> {
    fail_if_asked(cx, &order)?;
    sqlx::query("insert into bench_shipments (operation, address) values ($1, $2)")
        .bind(&order.operation)
        .bind(&order.address)
        .execute(cx.tx())
        .await?;
    Ok(())
}

async fn ship_many(cx: &mut Context<Postgres>, orders: Vec<Order>) -> Result<Vec<()>, Failure> {
    for order in &orders {
        fail_if_asked(cx, order)?;
    }
    insert_many(cx.tx(), &orders).await?;
    Ok(vec![(); orders.len()])
}

async fn insert_many(connection: &mut PgConnection, orders: &[Order]) -> Result<(), sqlx::Error> {
    let operations: Vec<&str> = orders.iter().map(|o| o.operation.as_str()).collect();
    let addresses: Vec<&str> = orders.iter().map(|o| o.address.as_str()).collect();
    sqlx::query(
        "insert into bench_shipments (operation, address) \
         select * from unnest($1::text[], $2::text[])",
    )
    .bind(operations)
    .bind(addresses)
    .execute(connection)
    .await?;
    Ok(())
}

impl Scratch for Database {
    type Store = Postgres;

    fn store(&self) -> &Postgres {
        &self.store
    }

    fn one() -> impl for<'x> EffectFn<'x, Postgres, Order> + Copy + 'static {
        ship
    }

    fn many() -> impl for<'x> BatchFn<'x, Postgres, Order> + Copy + 'static {
        ship_many
    }

    async fn append(&self, orders: &[Order]) -> Result<(), Error> {
        let mut tx = self.pool.begin().await.map_err(failed("could not begin"))?;
        let appended = Outbox::new(self.store.clone())
            .append_all(&mut tx, orders)
            .await;
        appended.map_err(|e| Error::new(Code::StoreFailed, "could not append").with_source(e))?;
        tx.commit().await.map_err(failed("could not commit"))
    }

    async fn effects(&self, wanted: u64) -> Result<u64, Error> {
        // Numbers are given out in order and some are lost with what is rolled back: below the
        // wanted number there is nothing to count, which would take the server's time from the run.
        let count: i64 = sqlx::query_scalar(
            "select case when (select max(id) from bench_shipments) >= $1 \
             then (select count(*) from bench_shipments) else 0 end",
        )
        .bind(wanted as i64)
        .fetch_one(&self.pool)
        .await
        .map_err(failed("could not count"))?;
        Ok(count.unsigned_abs())
    }

    async fn floor_many(&self, orders: &[Order]) -> Result<(), Error> {
        let work = async {
            let mut tx = self.pool.begin().await?;
            let operations: Vec<&str> = orders.iter().map(|o| o.operation.as_str()).collect();
            sqlx::query(
                "insert into onceward.ledger \
                 (subscription, source, type, identity, recordedtime, digest) \
                 select 'bench', 'urn:bench', 'bench.order', o, now(), sha256(o::bytea) \
                 from unnest($1::text[]) o on conflict do nothing",
            )
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
            let mut tx = self.pool.begin().await?;
            for order in orders {
                sqlx::query(
                    "insert into onceward.ledger \
                     (subscription, source, type, identity, recordedtime, digest) \
                     values ('bench', 'urn:bench', 'bench.order', $1, now(), \
                     sha256($1::text::bytea)) on conflict do nothing",
                )
                .bind(&order.operation)
                .execute(&mut *tx)
                .await?;
                sqlx::query("insert into bench_shipments (operation, address) values ($1, $2)")
                    .bind(&order.operation)
                    .bind(&order.address)
                    .execute(&mut *tx)
                    .await?;
            }
            tx.commit().await
        };
        work.await.map_err(failed("a floor failed"))
    }

    async fn counts(&self) -> Result<Option<Counts>, Error> {
        // A session's counts are complete when it has ended, so the store's are ended first. They
        // are opened again by whoever needs them.
        let others = "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
                      where datname = $1 and pid <> pg_backend_pid()";
        let mut connection = self.server.connect().await?;
        sqlx::query(others)
            .bind(&self.name)
            .execute(&mut connection)
            .await
            .map_err(failed("could not end the sessions of a run"))?;
        let mut own = PgConnection::connect(self.url.as_str())
            .await
            .map_err(failed("could not connect"))?;
        let row = sqlx::query(
            "select sum(n_tup_ins)::bigint as inserted, sum(n_tup_upd)::bigint as updated, \
             sum(n_tup_del)::bigint as deleted, \
             (select xact_commit from pg_stat_database where datname = current_database()) \
                 as commits, \
             (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint as wal_bytes \
             from pg_stat_user_tables",
        )
        .fetch_one(&mut own)
        .await
        .map_err(failed("could not read the server's statistics"))?;
        let read = |name: &str| -> Result<i64, Error> {
            row.try_get(name)
                .map_err(failed("could not read the server's statistics"))
        };
        Ok(Some(Counts {
            inserted: read("inserted")?,
            updated: read("updated")?,
            deleted: read("deleted")?,
            commits: read("commits")?,
            wal_bytes: read("wal_bytes")?,
        }))
    }

    async fn remove(self) -> Result<(), Error> {
        self.pool.close().await;
        self.store.close().await;
        self.server
            .execute(format!("drop database {} with (force)", self.name))
            .await
    }
}
