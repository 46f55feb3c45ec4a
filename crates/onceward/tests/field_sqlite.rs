//! Field cases on SQLite: real processes that are killed, a real disk that is full.
//!
//! A worker is this program again, for one test, told in its environment where the file is.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod common;
#[path = "common/volume.rs"]
mod volume;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{append, effects, idle, options, sqlite, until};
use onceward::core::store::{Append, Schema, StoreErrorKind};
use onceward::sqlite::Sqlite;
use onceward::{
    Boxed, Context, Engine, EngineOptions, Envelope, Failure, Message, Payload, RetryPolicy,
    Running, Semantics, Start, Subscription,
};
use serde::{Deserialize, Serialize};
use volume::Volume;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

const FOLDER: &str = "ONCEWARD_TEST_SQLITE_FOLDER";

/// Kills count where a message ran alone.
const BUDGET: RetryPolicy = RetryPolicy {
    base_ms: 1,
    cap_ms: 20,
    factor: 2.0,
    attempts_max: 30,
    age_max_ms: 600_000,
};

fn handler<F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<Sqlite>, Thing) -> Boxed<'a, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
{
    handle
}

async fn write(cx: &mut Context<Sqlite>, thing: &Thing) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
        .bind(&thing.key)
        .bind(&thing.value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

/// Says that it has come to a gate, and waits there as long as it is shut.
async fn gate(folder: &Path, name: &str) {
    let shut = folder.join(name);
    if !shut.exists() {
        return;
    }
    std::fs::write(folder.join(format!("{name}-reached")), "").unwrap();
    until("the gate is open", || async { !shut.exists() }).await;
}

async fn work(folder: PathBuf) {
    let store = Sqlite::connect(folder.join("test.db").to_string_lossy())
        .await
        .unwrap();
    let work = handler(move |cx, thing| {
        let folder = folder.clone();
        Box::pin(async move {
            gate(&folder, "before").await;
            write(cx, &thing).await?;
            gate(&folder, "after").await;
            Ok(())
        })
    });
    let work = Subscription::new("work", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .batch_max(3)
        .retry(BUDGET)
        .start(Start::Earliest);
    let options = EngineOptions {
        lease_ms: 500,
        ..options()
    };
    let engine = Engine::builder(store).options(options).subscribe(work);
    let _engine = engine.start().await.unwrap();
    std::future::pending::<()>().await;
}

/// A process that is killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(test: &str, folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test]).env(FOLDER, folder);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Appends in one transaction: nobody else can write while a handler is at its gate.
async fn append_together(store: &Sqlite, value: &str, keys: [&str; 5]) {
    let envelopes = keys.map(|key| {
        let payload = serde_json::json!({ "key": key, "value": value }).to_string();
        let id = format!("{key}-{value}");
        Envelope::new(id, "thing", key, Thing::TYPE, Payload::Json(payload.into()))
    });
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    store.append(&mut tx, &envelopes).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn bc_05_a_kill_before_and_after_the_effect_leaves_one_effect_each() {
    const TEST: &str = "bc_05_a_kill_before_and_after_the_effect_leaves_one_effect_each";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(folder.into()).await;
    }
    let (folder, store) = sqlite().await;
    let folder = folder.path();
    let mut expected = 0;
    let mut worker = Worker::start(TEST, folder);
    for round in 0..2 {
        for name in ["before", "after"] {
            std::fs::write(folder.join(name), "").unwrap();
            let value = format!("{round}-{name}");
            append_together(&store, &value, ["a", "b", "c", "d", "e"]).await;
            expected += 5;
            let reached = folder.join(format!("{name}-reached"));
            until("a handler is at the gate", || async { reached.exists() }).await;
            drop(worker);
            std::fs::remove_file(reached).unwrap();
            std::fs::remove_file(folder.join(name)).unwrap();
            worker = Worker::start(TEST, folder);
            until("all have their effect", || async {
                effects(&store).await.len() >= expected
            })
            .await;
        }
    }
    idle(&store, "work").await;
    drop(worker);
    let mut seen = effects(&store).await;
    assert_eq!(seen.len(), expected);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), expected, "one effect each");
    let cases: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_case")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(cases, 0);
}

/// Appends large messages until the disk is full.
async fn append_until_refused(store: &Sqlite) -> (usize, StoreErrorKind) {
    for n in 0..2_000 {
        let noise: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
        let payload = serde_json::json!({ "key": "k", "value": n.to_string(), "x": noise });
        let payload = Payload::Json(payload.to_string().into());
        let large = Envelope::new(format!("large-{n}"), "thing", "k", Thing::TYPE, payload);
        let appended = async {
            let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
            let appended = store.append(&mut tx, &[large]).await;
            appended.map_err(|error| sqlx::Error::AnyDriverError(Box::new(error)))?;
            tx.commit().await
        };
        if let Err(error) = appended.await {
            let kind = match &error {
                sqlx::Error::AnyDriverError(inner) => inner
                    .downcast_ref::<onceward::core::store::StoreError>()
                    .map(onceward::core::store::StoreError::kind),
                other => store.classify(other),
            };
            return (n, kind.unwrap());
        }
    }
    panic!("the disk does not fill");
}

async fn start(store: &Sqlite) -> Running<Sqlite> {
    let work = handler(|cx, thing| Box::pin(async move { write(cx, &thing).await }));
    let work = Subscription::new("work", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(BUDGET)
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone()).options(EngineOptions {
        lease_ms: 60_000,
        ..options()
    });
    engine.subscribe(work).start().await.unwrap()
}

#[tokio::test]
async fn ex_17_a_full_disk_refuses_producers_and_work_goes_on_when_there_is_room() {
    let volume = Volume::mount(6);
    let store = Sqlite::connect(volume.path().join("test.db").to_string_lossy())
        .await
        .unwrap();
    store.migrate().await.unwrap();
    let table =
        "CREATE TABLE effects (n INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL)";
    sqlx::query(table).execute(store.pool()).await.unwrap();
    let engine = start(&store).await;
    append(&store, Thing::TYPE, &[("k", "first")]).await;
    until("the first has its effect", || async {
        effects(&store).await.len() == 1
    })
    .await;
    volume.fill();
    let (confirmed, refusal) = append_until_refused(&store).await;
    assert_eq!(refusal, StoreErrorKind::Full, "after {confirmed}");
    // What was confirmed is there, whoever looks.
    let log: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_outbox")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(log, 1 + confirmed as i64);
    until("the engine has met the full disk", || async {
        engine.state().trouble.is_some()
    })
    .await;
    volume.free();
    append(&store, Thing::TYPE, &[("k", "last")]).await;
    until("everything has its effect", || async {
        effects(&store).await.len() == 2 + confirmed
    })
    .await;
    idle(&store, "work").await;
    let values: Vec<String> = effects(&store).await.into_iter().map(|e| e.1).collect();
    assert_eq!(values.first().map(String::as_str), Some("first"));
    assert_eq!(values.last().map(String::as_str), Some("last"));
    engine.shutdown(Duration::from_secs(5)).await;
    store.close().await;
}
