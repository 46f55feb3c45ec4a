//! Leases of a member that has to wait.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{options, until};
use onceward::core::store::{Schema, Store};
use onceward::{Boxed, Context, Engine, Failure, Message, Semantics, Start, Subscription};
use onceward_testkit::memory::{Change, MemoryStore, Operation};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
}

fn idle<S: Store>() -> impl for<'a> Fn(&'a mut Context<S>, Thing) -> Boxed<'a, Result<(), Failure>>
{
    |_, _| Box::pin(async { Ok(()) })
}

/// Taking lanes after an owner that has to be ended first takes its time, for each subscription.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_lanes_are_being_taken() {
    let store = MemoryStore::default();
    store.migrate().await.unwrap();
    let renewals = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&renewals);
    store.listen(move |_, change| {
        if matches!(change, Change::Renewed { .. }) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    // For ever, as far as this test is concerned.
    store.faults().delay_next(Operation::Take, u32::MAX);
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(idle());
    let engine = Engine::builder(store.clone())
        .options(options())
        .subscribe(work.start(Start::Earliest))
        .start()
        .await
        .unwrap();
    until("it is renewed several times", || async {
        renewals.load(Ordering::Relaxed) >= 4
    })
    .await;
    let state = engine.state();
    assert_eq!(state.leases_lost, 0);
    assert!(state.lanes.values().all(Vec::is_empty), "{state:?}");
    drop(engine);
    tokio::time::timeout(Duration::from_secs(5), store.ping())
        .await
        .unwrap()
        .unwrap();
}
