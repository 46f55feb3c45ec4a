//! An operator's limit of starts per second, kept by two engines together, on both stores. What is
//! measured can only be late, so the bound holds on any machine: so many handlers have begun by now,
//! and no more may have.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::passing::{SECOND_MS, append_all, pass, store as memory};
use common::{options, sqlite, until};
use onceward::core::rate::RateLimit;
use onceward::core::store::{Actor, Backlog, BacklogQuery, Begin, CaseQuery, End, SetLimit, Store};
use onceward::postgres::Postgres;
use onceward::{
    Deliver, Delivery, Engine, Envelope, Failure, Payload, Running, Semantics, Start, Subscription,
};
use onceward_testkit::postgres::TestDatabase;

const TYPE: &str = "thing.done";
const MEMBERS: u64 = 2;

/// Notes when each delivery was begun.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<Instant>>>);

impl Deliver for Noting {
    async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Failure> {
        self.0.lock().unwrap().push(Instant::now());
        Ok(())
    }
}

async fn start<S: Store>(store: &S, to: &Noting) -> Running<S> {
    let work = Subscription::new("work", Semantics::AtLeastOnce)
        .deliver([TYPE], to.clone())
        .concurrency(16)
        .concurrency_min(16)
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone()).options(options());
    engine.subscribe(work).start().await.unwrap()
}

fn envelopes(count: usize) -> Vec<Envelope> {
    let keys = (0..count).map(|n| format!("k{n}"));
    keys.map(|key| Envelope::new(&key, "thing", &key, TYPE, Payload::Json("1".into())))
        .collect()
}

async fn append<S: Store>(store: &S, envelopes: &[Envelope]) {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    store
        .append(store.connection(&mut tx), envelopes)
        .await
        .unwrap();
    store.end(tx, End::Commit).await.unwrap();
}

async fn limit<S: Store>(store: &S, rate: RateLimit) {
    let request = SetLimit {
        subscription: "work",
        concurrency_max: None,
        rate: Some(rate),
        by: Actor {
            who: "ada",
            why: Some("the carrier asks"),
        },
    };
    store.set_limit(request).await.unwrap();
}

async fn backlog<S: Store>(store: &S) -> Backlog {
    let query = BacklogQuery {
        subscription: "work",
        count_max: 10_000,
        before: None,
    };
    store.backlog(query).await.unwrap()
}

/// Two engines share a limit; nothing of any budget is used by waiting; without it the rest goes at
/// once.
async fn is_kept_by_two<S: Store>(store: &S) {
    let rate = RateLimit {
        per_second: 60,
        burst: 5,
    };
    let noting = Noting::default();
    // The subscription is there, and limited, before those that are measured: each of them knows of
    // the limit when it has its lanes.
    let registers = start(store, &noting).await;
    registers.shutdown(Duration::from_secs(5)).await;
    limit(store, rate).await;
    let first = start(store, &noting).await;
    let second = start(store, &noting).await;
    first.owns_all_lanes().await;
    second.owns_all_lanes().await;
    until("both share the lanes", async || {
        let lanes = |state: onceward::EngineState| state.lanes["work"].len();
        (lanes(first.state()), lanes(second.state())) == (8, 8)
    })
    .await;
    let began = Instant::now();
    append(store, &envelopes(600)).await;
    until("some have begun", async || {
        noting.0.lock().unwrap().len() >= 150
    })
    .await;
    let seen = noting.0.lock().unwrap().clone();
    for (before, at) in seen.iter().enumerate() {
        let passed_ms = at.duration_since(began).as_millis() as u64 + 1;
        let most = u64::from(rate.per_second) * passed_ms / 1_000 + u64::from(rate.burst) + MEMBERS;
        assert!(
            before as u64 <= most,
            "{before} had begun after {passed_ms} ms"
        );
    }
    let seen = backlog(store).await;
    assert_eq!(seen.rate, Some(rate));
    assert_eq!(
        (seen.deferred.retry, seen.quarantined),
        (0, 0),
        "waiting burns nothing"
    );
    limit(store, RateLimit::of(0)).await;
    until("the rest is done at once", async || {
        noting.0.lock().unwrap().len() == 600
    })
    .await;
    assert_eq!(backlog(store).await.rate, None);
    assert_eq!(store.cases(CaseQuery::default()).await.unwrap().len(), 0);
    first.shutdown(Duration::from_secs(5)).await;
    second.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_by_rate_is_kept_by_two_engines_on_sqlite() {
    let (_folder, store) = sqlite().await;
    is_kept_by_two(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_by_rate_is_kept_by_two_engines_on_postgres() {
    let database = TestDatabase::lease().await;
    let store = Postgres::connect(database.url()).await.unwrap();
    onceward::core::store::Schema::migrate(&store)
        .await
        .unwrap();
    is_kept_by_two(&store).await;
    store.close().await;
}

/// On a clock of its own: exactly so many in a second, to within one for each process.
#[tokio::test(start_paused = true)]
async fn a_limit_by_rate_is_used_up() {
    let store = memory(None, 10).await;
    let noting = Noting::default();
    let first = start(&store, &noting).await;
    let second = start(&store, &noting).await;
    limit(&store, RateLimit::of(20)).await;
    pass(5 * SECOND_MS).await;
    append_all(&store, &envelopes(1_000)).await;
    pass(2 * SECOND_MS).await;
    let before = noting.0.lock().unwrap().len();
    pass(20 * SECOND_MS).await;
    let began = noting.0.lock().unwrap().len() - before;
    assert!((398..=402).contains(&began), "{began} in 20 s");
    first.shutdown(Duration::from_secs(5)).await;
    second.shutdown(Duration::from_secs(5)).await;
}
