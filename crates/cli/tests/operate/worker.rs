//! A process that works on a place's store, and the records that it leaves.

use std::process::{Child, Command, Stdio};

use onceward::postgres::Postgres;
use onceward::sqlite::Sqlite;
use onceward::{Context, Engine, EngineOptions, Failure, Message, Outbox, Start, Subscription};
use onceward::{OnPoison, Semantics};
use onceward_core::store::Store;
use serde::{Deserialize, Serialize};

use crate::place::Place;

/// Half of them of the poisoned key.
pub(crate) const MESSAGES: u32 = 60;

const STORE: &str = "ONCEWARD_OPERATE_STORE";

#[derive(Serialize, Deserialize, Message)]
#[message(type = "bill.due", version = 1, key = key, operation = name)]
pub(crate) struct Bill {
    key: String,
    name: String,
}

/// The names of a key's messages in their order.
pub(crate) fn expected(key: &str) -> Vec<String> {
    (1..=MESSAGES / 2).map(|n| format!("{key}-{n}")).collect()
}

/// So many messages, each of a key of its own, that fail until something is mended.
pub(crate) fn poisons(count: u32) -> Vec<Bill> {
    let names = (1..=count).map(|n| format!("p-{n}"));
    names
        .map(|name| Bill {
            key: name.clone(),
            name,
        })
        .collect()
}

pub(crate) fn bills() -> Vec<Bill> {
    let keys = ["k", "o"];
    let all = (1..=MESSAGES / 2).flat_map(|n| keys.map(|key| (key, n)));
    all.map(|(key, n)| Bill {
        key: key.to_owned(),
        name: format!("{key}-{n}"),
    })
    .collect()
}

/// A store of either kind, for the business's own tables.
pub(crate) enum Database {
    Postgres(Postgres),
    Sqlite(Sqlite),
}

const TABLES: &str = "CREATE TABLE bills (n SERIAL_KEY, name TEXT NOT NULL);
    CREATE TABLE mended (at INTEGER NOT NULL)";

impl Database {
    pub(crate) async fn open(place: &Place) -> Self {
        Self::at(&place.store_url()).await
    }

    async fn at(url: &str) -> Self {
        match url.starts_with("postgres") {
            true => Self::Postgres(Postgres::connect(url).await.unwrap()),
            false => Self::Sqlite(Sqlite::connect(url).await.unwrap()),
        }
    }

    /// Makes the tables and accepts messages.
    pub(crate) async fn prepare(&self, bills: &[Bill]) {
        match self {
            Self::Postgres(store) => {
                let tables = TABLES.replace("SERIAL_KEY", "bigserial primary key");
                let made = sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(store.pool());
                made.await.unwrap();
                let mut tx = store.pool().begin().await.unwrap();
                let outbox = Outbox::new(store.clone());
                outbox.append_all(&mut tx, bills).await.unwrap();
                tx.commit().await.unwrap();
            }
            Self::Sqlite(store) => {
                let tables = TABLES.replace("SERIAL_KEY", "INTEGER PRIMARY KEY AUTOINCREMENT");
                let made = sqlx::raw_sql(sqlx::AssertSqlSafe(tables)).execute(store.pool());
                made.await.unwrap();
                let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
                let outbox = Outbox::new(store.clone());
                outbox.append_all(&mut tx, bills).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
    }

    /// Puts right what the poison fails of.
    pub(crate) async fn mend(&self) {
        const MEND: &str = "INSERT INTO mended (at) VALUES (1)";
        match self {
            Self::Postgres(store) => drop(sqlx::raw_sql(MEND).execute(store.pool()).await.unwrap()),
            Self::Sqlite(store) => drop(sqlx::raw_sql(MEND).execute(store.pool()).await.unwrap()),
        }
    }

    /// What was billed, in the order of the commits of each key.
    pub(crate) async fn effects(&self) -> Vec<String> {
        const EFFECTS: &str = "SELECT name FROM bills ORDER BY n";
        match self {
            Self::Postgres(store) => sqlx::query_scalar(EFFECTS).fetch_all(store.pool()).await,
            Self::Sqlite(store) => sqlx::query_scalar(EFFECTS).fetch_all(store.pool()).await,
        }
        .unwrap()
    }
}

macro_rules! bill_on {
    ($name:ident, $store:ty, $insert:literal) => {
        async fn $name(cx: &mut Context<$store>, bill: Bill) -> Result<(), Failure> {
            if bill.name == "k-1" || bill.name.starts_with('p') {
                let mended: i64 = sqlx::query_scalar("SELECT count(*) FROM mended")
                    .fetch_one(&mut *cx.tx())
                    .await?;
                if mended == 0 {
                    return Err(Failure::permanent("no_account", "it has no account"));
                }
            }
            sqlx::query($insert)
                .bind(bill.name)
                .execute(cx.tx())
                .await?;
            Ok(())
        }
    };
}
bill_on!(
    bill_on_postgres,
    Postgres,
    "INSERT INTO bills (name) VALUES ($1)"
);
bill_on!(
    bill_on_sqlite,
    Sqlite,
    "INSERT INTO bills (name) VALUES (?1)"
);

/// Works on the store that the environment names, until it is killed.
pub(crate) async fn work() {
    let url = std::env::var(STORE).unwrap();
    match Database::at(&url).await {
        Database::Postgres(store) => {
            let subscription = Subscription::new("hook", Semantics::EffectOnce);
            run(store, subscription.on::<Bill, _>(bill_on_postgres)).await;
        }
        Database::Sqlite(store) => {
            let subscription = Subscription::new("hook", Semantics::EffectOnce);
            run(store, subscription.on::<Bill, _>(bill_on_sqlite)).await;
        }
    }
}

async fn run<S: Store>(store: S, subscription: Subscription<S>) {
    let options = EngineOptions {
        lease_ms: 2_000,
        renew_ms: 200,
        ..EngineOptions::default()
    };
    let subscription = subscription
        .repeatable()
        .on_poison(OnPoison::HoldKey)
        .batch_max(3)
        .lanes(4)
        .start(Start::Earliest);
    let engine = Engine::builder(store).options(options);
    let _running = engine.subscribe(subscription).start().await.unwrap();
    std::future::pending::<()>().await;
}

/// A working process, killed when dropped.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn start(place: &Place) -> Self {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program)
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(STORE, place.store_url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// With SIGKILL, wherever it is.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Over already in most cases.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
