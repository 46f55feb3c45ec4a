//! Shared pieces of the engine's tests: a store of one's own, a business table, waiting for states.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod passing;

use std::time::Duration;

use onceward::core::store::{Schema, Store};
use onceward::sqlite::Sqlite;
use onceward::{EngineOptions, Envelope, Outbox, Payload};
use tempfile::TempDir;

/// Short leases, so that takeovers are quick.
pub fn options() -> EngineOptions {
    EngineOptions {
        lease_ms: 1_500,
        renew_ms: 100,
        doze_max_ms: 20,
        ..EngineOptions::default()
    }
}

/// A migrated SQLite file with a business table `effects (key, value)`.
pub async fn sqlite() -> (TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    store.migrate().await.unwrap();
    sqlx::query(
        "CREATE TABLE effects (n INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL)",
    )
    .execute(store.pool())
    .await
    .unwrap();
    (folder, store)
}

pub async fn open(folder: &TempDir) -> Sqlite {
    Sqlite::connect(folder.path().join("test.db").to_string_lossy())
        .await
        .unwrap()
}

/// Appends messages of a type: `(key, value)` pairs, in one transaction each.
pub async fn append(store: &Sqlite, message_type: &str, messages: &[(&str, &str)]) {
    let outbox = Outbox::new(store.clone());
    for (key, value) in messages {
        let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
        let payload = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        let id = format!("{message_type}-{key}-{value}");
        let envelope = Envelope::new(
            id,
            "thing",
            *key,
            message_type,
            Payload::Json(payload.into()),
        );
        outbox.append_envelopes(&mut tx, &[envelope]).await.unwrap();
        tx.commit().await.unwrap();
    }
    outbox.ring();
}

/// All effects in order of their commit.
pub async fn effects(store: &Sqlite) -> Vec<(String, String)> {
    sqlx::query_as("SELECT key, value FROM effects ORDER BY n")
        .fetch_all(store.pool())
        .await
        .unwrap()
}

/// Waits until a condition holds, or fails after a minute.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        let mut look = tokio::time::interval(Duration::from_millis(10));
        loop {
            look.tick().await;
            if holds().await {
                return;
            }
        }
    });
    assert!(waited.await.is_ok(), "waited in vain until {what}");
}

/// Waits until nothing waits and nothing is deferred but for people.
pub async fn idle<S: Store>(store: &S, subscription: &str) {
    let query = onceward::core::store::BacklogQuery {
        subscription,
        count_max: 10,
        before: None,
    };
    until("the subscription is idle", || async {
        let backlog = store.backlog(query.clone()).await.unwrap();
        let d = backlog.deferred;
        backlog.waiting == 0 && d.retry == 0 && d.running == 0
    })
    .await;
}
