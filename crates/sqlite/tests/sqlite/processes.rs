//! Several processes on one file. A child is this test program again, told what to do by its
//! environment.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onceward_core::store::{
    Append, Begin, Effects, End, Log, ReadPage, Schema, SchemaState, Settle,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Position};
use onceward_sqlite::Sqlite;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::watch;

use crate::file::{SUB, TestFile, append, ids, message, read_all};

const TASK: &str = "ONCEWARD_SQLITE_TASK";
const MESSAGES: u32 = 400;

fn start(task: &str, name: &str, path: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--ignored", "--nocapture"])
        .env(TASK, format!("{task}\n{name}\n{path}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) {
    let done = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{text}\n{errors}");
}

/// Waits until the child says so.
fn until_ready(child: &mut Child) {
    let stdout = child.stdout.take().unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert!(
        lines.any(|line| line.unwrap().contains("ready")),
        "the child never got there"
    );
}

#[test]
#[ignore = "only as a child of the other tests"]
fn child() {
    let task = std::env::var(TASK).unwrap();
    let parts: Vec<&str> = task.split('\n').collect();
    let [task, name, path] = parts[..] else {
        panic!("a task has three lines")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match task {
            "migrate" => {
                let store = Sqlite::connect(path).await.unwrap();
                let state = store.migrate().await.unwrap();
                assert!(matches!(state, SchemaState::Current { .. }), "{state:?}");
            }
            "half-migrate" => {
                stay_inside(path, include_str!("../../migrations/0001_tables.sql")).await;
            }
            "hold" => stay_inside(path, "DELETE FROM onceward_outbox").await,
            "append" => append(&Sqlite::connect(path).await.unwrap(), &[message(name, "k")]).await,
            "produce" => produce(path, name).await,
            "consume" => consume(path).await,
            other => panic!("no task is called {other}"),
        }
    });
}

/// Does something in a transaction that never ends.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
async fn stay_inside(path: &str, statements: &'static str) {
    let options = SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::raw_sql(statements).execute(&mut *tx).await.unwrap();
    println!("ready");
    std::future::pending::<()>().await;
}

/// What a producer says before each transaction.
const BEGINS: &str = "begins";

/// Small transactions of an application, one after the other.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
async fn produce(path: &str, name: &str) {
    let store = Sqlite::connect(path).await.unwrap();
    for i in 0..MESSAGES / 2 {
        println!("{BEGINS} {i}");
        let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
        let envelope = message(&format!("{name}-{i}"), &format!("{}", i % 7));
        store.append(&mut tx, &[envelope]).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Everybody tries every message; the ledger lets one through.
async fn consume(path: &str) {
    let store = Sqlite::connect(path).await.unwrap();
    let mut at = Position::origin(store.head().await.unwrap().era);
    let mut seen = 0;
    while seen < MESSAGES {
        let page = store.read(ReadPage {
            from: &at,
            rows_max: 20,
            bytes_max: 1 << 20,
        });
        let page = page.await.unwrap();
        if page.rows.is_empty() {
            store.doze(1_000).await;
        }
        for row in &page.rows {
            seen += 1;
            let entry = LedgerEntry {
                key: LedgerKey::of(row, Identity::Message),
                digest: None,
                ending: Ending::Done,
                result: None,
                aggregate_version: None,
                aggregate: None,
            };
            let mut tx = store.begin(Begin { lease: None }).await.unwrap();
            let effect = sqlx::query("INSERT INTO effect (id) VALUES (?)").bind(&row.envelope.id);
            effect.execute(store.connection(&mut tx)).await.unwrap();
            let settle = Settle {
                ledger: &[entry],
                ..Settle::nothing(SUB, Identity::Message)
            };
            let settled = store.settle(&mut tx, settle).await.unwrap();
            let is_new = settled.ledger_rows == 1;
            let end = if is_new { End::Commit } else { End::RollBack };
            store.end(tx, end).await.unwrap();
        }
        at = page.next;
    }
}

#[tokio::test]
async fn five_processes_may_migrate_at_once() {
    for _ in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder
            .path()
            .join("fresh.db")
            .to_string_lossy()
            .into_owned();
        let children: Vec<Child> = (0..5).map(|_| start("migrate", "", &path)).collect();
        children.into_iter().for_each(finish);
        let store = Sqlite::connect(&path).await.unwrap();
        let state = store.schema_state().await.unwrap();
        let SchemaState::Current { version } = state else {
            panic!("not current: {state:?}");
        };
        let applied: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_schema")
            .fetch_one(store.pool())
            .await
            .unwrap();
        assert_eq!(applied, i64::from(version), "each version is recorded once");
    }
}

#[tokio::test]
async fn a_migration_killed_half_way_can_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder
        .path()
        .join("fresh.db")
        .to_string_lossy()
        .into_owned();
    let store = Sqlite::connect(&path).await.unwrap();
    let mut child = start("half-migrate", "", &path);
    until_ready(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(store.schema_state().await.unwrap(), SchemaState::Missing);
    let state = store.migrate().await.unwrap();
    assert!(matches!(state, SchemaState::Current { .. }), "{state:?}");
}

#[tokio::test]
async fn a_process_killed_inside_its_transaction_leaves_nothing() {
    let file = TestFile::new().await;
    append(&file.store, &[message("m1", "k")]).await;
    let mut child = start("hold", "", &file.path());
    until_ready(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    append(&file.store, &[message("m2", "k")]).await;
    assert_eq!(ids(&read_all(&file.store).await), ["m1", "m2"]);
}

#[tokio::test]
async fn an_append_of_another_process_ends_the_doze() {
    let file = TestFile::new().await;
    // The first look only learns where the log ends.
    file.store.doze(1_000).await;
    let child = start("append", "theirs", &file.path());
    let started = Instant::now();
    file.store.doze(60_000).await;
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "the whole wait was slept through"
    );
    assert_eq!(ids(&read_all(&file.store).await), ["theirs"]);
    finish(child);
}

/// Producers, consumers, a process that sits on the write lock, and a reader that stays.
#[tokio::test]
async fn bc_36_nobody_sees_locked_for_waits_under_the_timeout() {
    let file = TestFile::in_real_time().await;
    let store = &file.store;
    sqlx::query("CREATE TABLE effect (id TEXT)")
        .execute(store.pool())
        .await
        .unwrap();
    let mut reader = store.pool().begin().await.unwrap();
    let before: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_outbox")
        .fetch_one(&mut *reader)
        .await
        .unwrap();
    assert_eq!(before, 0);

    let mut holder = start("hold", "", &file.path());
    until_ready(&mut holder);
    let mut children: Vec<Child> = ["a", "b"]
        .iter()
        .map(|name| start("produce", name, &file.path()))
        .collect();
    // Whoever begins while somebody sits on the lock waits.
    for producer in &mut children {
        let mut last = follow(producer);
        let begins = last.wait_for(|line| line.contains(BEGINS));
        let begins = tokio::time::timeout(Duration::from_secs(60), begins).await;
        assert!(begins.is_ok_and(|seen| seen.is_ok()), "it never begins");
    }
    children.extend((0..4).map(|_| start("consume", "", &file.path())));
    holder.kill().unwrap();
    holder.wait().unwrap();
    children.into_iter().for_each(finish);

    let (effects, distinct): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT id) FROM effect")
            .fetch_one(store.pool())
            .await
            .unwrap();
    assert_eq!(
        (effects, distinct),
        (i64::from(MESSAGES), i64::from(MESSAGES))
    );
    assert_write_ahead_shrinks(&file, reader).await;
}

/// What a child says, line by line.
fn follow(child: &mut Child) -> watch::Receiver<String> {
    let stdout = child.stdout.take().unwrap();
    let (tell, last) = watch::channel(String::new());
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            tell.send_replace(line);
        }
    });
    last
}

/// The reader kept the write-ahead file from being reused; after it the next commits bring it back.
async fn assert_write_ahead_shrinks(
    file: &TestFile,
    reader: sqlx::Transaction<'static, sqlx::Sqlite>,
) {
    let bytes = || {
        std::fs::metadata(format!("{}-wal", file.path()))
            .unwrap()
            .len()
    };
    let body = "x".repeat(100_000);
    let mut round = 0;
    while bytes() < 24 << 20 {
        let payload = onceward_core::Payload::Binary(body.as_bytes().into());
        let envelopes: Vec<_> = (0..20)
            .map(|i| onceward_core::Envelope {
                payload: payload.clone(),
                ..message(&format!("big-{round}-{i}"), "k")
            })
            .collect();
        append(&file.store, &envelopes).await;
        round += 1;
        assert!(
            round < 100,
            "the write-ahead file does not grow beside a reader"
        );
    }
    reader.rollback().await.unwrap();
    for i in 0..3 {
        append(&file.store, &[message(&format!("after-{i}"), "k")]).await;
    }
    assert!(bytes() <= 16 << 20, "{} bytes remain", bytes());
}
