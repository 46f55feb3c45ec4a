//! What SQLite's errors mean, from real ones.

use onceward_core::Identity;
use onceward_core::store::{
    Append, Begin, Effects, End, Schema, SchemaState, Settle, StoreErrorKind,
};
use onceward_sqlite::Sqlite;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use std::time::Duration;

use crate::file::{SUB, TestFile, append, ids, message, read_all};

#[tokio::test]
async fn a_locked_file_is_a_conflict() {
    let file = TestFile::new().await;
    let tx = file.store.begin(Begin { lease: None }).await.unwrap();
    let options = SqliteConnectOptions::new()
        .filename(file.path())
        .busy_timeout(Duration::ZERO);
    let mut other = options.connect().await.unwrap();
    let locked = sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap_err();
    assert_eq!(file.store.classify(&locked), Some(StoreErrorKind::Conflict));
    file.store.end(tx, End::RollBack).await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_broken_constraint_is_refused_and_a_read_only_file_is_passing() {
    let file = TestFile::new().await;
    let mut connection = file.store.pool().acquire().await.unwrap();
    let sql = "INSERT INTO onceward_subscription (subscription) VALUES ('x')";
    let refused = sqlx::query(sql)
        .execute(&mut *connection)
        .await
        .unwrap_err();
    assert_eq!(file.store.classify(&refused), Some(StoreErrorKind::Refused));
    sqlx::query("PRAGMA query_only = ON")
        .execute(&mut *connection)
        .await
        .unwrap();
    let read_only = sqlx::query(sql)
        .execute(&mut *connection)
        .await
        .unwrap_err();
    assert_eq!(
        file.store.classify(&read_only),
        Some(StoreErrorKind::ReadOnly)
    );
    assert!(StoreErrorKind::ReadOnly.is_passing());
    connection.close().await.unwrap();
}

/// SQLite may roll back by itself when the disk is full. A handler that goes on all the same must
/// not leave its second half behind.
#[tokio::test]
async fn nothing_of_an_effect_on_a_full_disk_remains() {
    let file = TestFile::new().await;
    let store = &file.store;
    sqlx::query("CREATE TABLE shipment (body BLOB)")
        .execute(store.pool())
        .await
        .unwrap();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let handler = store.connection(&mut tx);
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count")
        .fetch_one(&mut *handler)
        .await
        .unwrap();
    let limit = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {}", pages + 2));
    sqlx::query(limit).execute(&mut *handler).await.unwrap();
    let small = sqlx::query("INSERT INTO shipment VALUES (x'01')");
    small.execute(&mut *handler).await.unwrap();
    let big = sqlx::query("INSERT INTO shipment VALUES (zeroblob(1000000))");
    let full = big.execute(&mut *handler).await.unwrap_err();
    assert_eq!(store.classify(&full), Some(StoreErrorKind::Full));

    let append_one = [message("m1", "k")];
    let settle = Settle {
        append: &append_one,
        ..Settle::nothing(SUB, Identity::Message)
    };
    let settled = store.settle(&mut tx, settle).await;
    let ended = store.end(tx, End::Commit).await;
    let shipments: i64 = sqlx::query_scalar("SELECT count(*) FROM shipment")
        .fetch_one(store.pool())
        .await
        .unwrap();
    let is_whole = settled.is_ok() && ended.is_ok();
    let expected = i64::from(is_whole);
    assert_eq!(shipments, expected, "settled {settled:?}, ended {ended:?}");
    assert_eq!(read_all(store).await.len() as i64, expected);
}

#[tokio::test]
async fn opening_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.db");
    std::fs::write(
        &garbage,
        "this is no database, however long it may be".repeat(200),
    )
    .unwrap();
    let absent = folder.path().join("no-folder").join("orders.db");
    for (address, kind) in [
        (
            garbage.to_string_lossy().into_owned(),
            StoreErrorKind::Other,
        ),
        (
            absent.to_string_lossy().into_owned(),
            StoreErrorKind::Unavailable,
        ),
        ("sqlite::memory:".to_owned(), StoreErrorKind::Refused),
        (":memory:".to_owned(), StoreErrorKind::Refused),
        (
            "sqlite:orders.db?colour=blue".to_owned(),
            StoreErrorKind::Refused,
        ),
    ] {
        let refused = Sqlite::connect(&address).await.unwrap_err();
        assert_eq!(refused.kind(), kind, "{address}");
    }
}

#[tokio::test]
async fn tables_that_are_not_there_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.db");
    let store = Sqlite::connect(format!("sqlite:{}", path.display()))
        .await
        .unwrap();
    assert_eq!(store.schema_state().await.unwrap(), SchemaState::Missing);
    let refused = store
        .append_committed(&[message("m1", "k")])
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Schema);
}

#[tokio::test]
async fn tables_of_a_newer_program_are_left_alone() {
    let file = TestFile::new().await;
    let sql = "INSERT INTO onceward_schema (version, name, applied_at) VALUES (900, 'later', 0)";
    sqlx::query(sql).execute(file.store.pool()).await.unwrap();
    let state = file.store.schema_state().await.unwrap();
    assert!(
        matches!(state, SchemaState::Ahead { version: 900, .. }),
        "{state:?}"
    );
    let refused = file.store.migrate().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Schema);
    assert!(refused.to_string().contains("900"), "{refused}");
}

/// One refused message does not touch the others of its group.
#[tokio::test]
async fn callers_of_a_common_commit_get_answers_of_their_own() {
    let file = TestFile::new().await;
    let store = &file.store;
    append(store, &[message("first", "k")]).await;
    let busy = store.begin(Begin { lease: None }).await.unwrap();
    let calls = (0..40).map(|i| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut envelope = message(&format!("m{i:02}"), "k");
            if i == 17 {
                envelope.payload = onceward_core::Payload::Json("{".into());
            }
            store.append_committed(&[envelope]).await
        })
    });
    let calls: Vec<_> = calls.collect();
    tokio::task::yield_now().await;
    store.end(busy, End::RollBack).await.unwrap();
    for (i, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        let kind = answer.err().map(|error| error.kind());
        assert_eq!(
            kind,
            (i == 17).then_some(StoreErrorKind::Refused),
            "call {i}"
        );
    }
    let rows = read_all(store).await;
    let mut found = ids(&rows);
    found.sort_unstable();
    assert_eq!(found.len(), 40);
    assert!(!found.contains(&"m17"));
}
