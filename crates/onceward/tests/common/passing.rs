//! Time that passes when nothing else happens: for tests that run on tokio's paused clock
//! (`#[tokio::test(start_paused = true)]`) over the store in memory.

use std::time::Duration;

use onceward::core::store::{
    Append, Backlog, BacklogQuery, Begin, CaseQuery, Cases, Effects, End, Schema, Status,
};
use onceward::{Envelope, Payload};
use onceward_testkit::clock::SimClock;
use onceward_testkit::memory::{Defect, MemoryStore};

pub const SECOND_MS: u64 = 1_000;
pub const MINUTE_MS: u64 = 60 * SECOND_MS;
pub const HOUR_MS: u64 = 60 * MINUTE_MS;

/// A migrated store whose clock goes as time does here, in steps of so many milliseconds.
pub async fn store(defect: Option<Defect>, step_ms: u64) -> MemoryStore {
    let clock = SimClock::default();
    let store = match defect {
        Some(defect) => MemoryStore::with_defect(clock.clone(), defect),
        None => MemoryStore::new(clock.clone()),
    };
    store.migrate().await.unwrap();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(step_ms)).await;
            clock.advance_ms(step_ms);
        }
    });
    store
}

/// Lets time pass.
pub async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Appends envelopes in one transaction.
pub async fn append_all(store: &MemoryStore, envelopes: &[Envelope]) {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    store
        .append(store.connection(&mut tx), envelopes)
        .await
        .unwrap();
    store.end(tx, End::Commit).await.unwrap();
}

/// Appends a message of a type for each key, whose id is the key.
pub async fn append(store: &MemoryStore, message_type: &str, keys: &[&str]) {
    let envelopes: Vec<Envelope> = keys
        .iter()
        .map(|key| {
            let payload = format!(r#"{{"key":"{key}","value":"1"}}"#);
            let payload = Payload::Json(payload.into());
            Envelope::new(*key, "thing", *key, message_type, payload)
        })
        .collect();
    append_all(store, &envelopes).await;
}

/// How a subscription stands.
pub async fn backlog(store: &MemoryStore, subscription: &str) -> Backlog {
    let query = BacklogQuery {
        subscription,
        count_max: 100_000,
        before: None,
    };
    store.backlog(query).await.unwrap()
}

/// Why there are cases, in the order of their numbers.
pub async fn reasons(store: &MemoryStore) -> Vec<String> {
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    cases.into_iter().map(|case| case.reason).collect()
}
