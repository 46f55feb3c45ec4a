//! Whether new work can still be done in time, asked of a running engine and by a producer alone.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{append, options, sqlite, until};
use onceward::core::contract::{Contract, MessageContract, Promise, SubscriptionContract};
use onceward::core::store::{
    Actor, Append as _, Begin, Declared, Effects as _, End, Operate, Schema, SetPause, Start,
};
use onceward::core::throttle::{RETRY_AFTER_MS_MAX, RETRY_AFTER_MS_MIN, Throttle as Policy};
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Engine, EngineOptions, Envelope, Failure, Message, Payload, Running, Semantics,
    Subscription, Throttle,
};
use onceward_testkit::memory::MemoryStore;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.placed", version = 1, key = key)]
struct Placed {
    key: String,
    value: String,
}

/// Finished within a minute, or refused.
fn contract() -> Contract {
    let mut contract = Contract::default();
    let placed = MessageContract {
        promise: Promise {
            finish_within_ms: Some(60_000),
            ..Promise::default()
        },
        throttle: Policy::Refuse,
        ..MessageContract::default()
    };
    contract.messages.insert(Placed::TYPE.to_owned(), placed);
    contract
}

async fn start(store: &Sqlite) -> Running<Sqlite> {
    let work = Subscription::new("ship", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Placed| {
            sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
                .bind(m.key)
                .bind(m.value)
                .execute(cx.tx())
                .await?;
            Ok::<_, Failure>(())
        })
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone())
        .contract(contract())
        .options(EngineOptions {
            throttle_every_ms: 20,
            ..options()
        })
        .subscribe(work);
    engine.start().await.unwrap()
}

async fn pause(store: &Sqlite, is_paused: bool) {
    let by = Actor {
        who: "ada",
        why: Some("maintenance"),
    };
    let request = SetPause {
        subscription: "ship",
        is_paused,
        by,
    };
    store.set_pause(request).await.unwrap();
}

#[tokio::test]
async fn a_producer_is_told_while_the_promise_cannot_be_kept_and_no_longer() {
    let (_folder, store) = sqlite().await;
    let engine = start(&store).await;
    engine.owns_all_lanes().await;
    let producer = Throttle::watch(store.clone(), &contract(), 20);
    let own = engine.throttle();
    append(&store, Placed::TYPE, &[("a", "1")]).await;
    until("the first one is done", || async {
        common::effects(&store).await.len() == 1
    })
    .await;
    own.check_for::<Placed>().unwrap();
    // Paused, what waits is not over yet: a minute is promised.
    pause(&store, true).await;
    append(&store, Placed::TYPE, &[("a", "2")]).await;
    until("it waits", || async {
        common::effects(&store).await.len() == 1
    })
    .await;
    own.check_for::<Placed>().unwrap();
    // Two minutes later it is.
    sqlx::query("UPDATE onceward_outbox SET recorded_at = recorded_at - 120000000")
        .execute(store.pool())
        .await
        .unwrap();
    for throttle in [&own, &producer] {
        until("new ones are refused", || async {
            throttle.check(Placed::TYPE).is_err()
        })
        .await;
        let throttled = throttle.check(Placed::TYPE).unwrap_err();
        assert_eq!(throttled.message_type, Placed::TYPE);
        let bounds = RETRY_AFTER_MS_MIN..=RETRY_AFTER_MS_MAX;
        assert!(bounds.contains(&throttled.retry_after_ms), "{throttled:?}");
        throttle.check("order.other").unwrap();
    }
    pause(&store, false).await;
    for throttle in [&own, &producer] {
        until("new ones are accepted again", || async {
            throttle.check(Placed::TYPE).is_ok()
        })
        .await;
    }
    assert_eq!(common::effects(&store).await.len(), 2);
    engine.shutdown(Duration::from_secs(5)).await;
}

/// A store with a subscription on which nobody works, and a message that waits for two minutes.
async fn standing_still() -> MemoryStore {
    let store = MemoryStore::default();
    store.migrate().await.unwrap();
    let ship = SubscriptionContract::new("ship", &[Placed::TYPE], Semantics::EffectOnce);
    let declared = Declared {
        subscription: "ship",
        lanes: 1,
        types: &[Placed::TYPE.to_owned()],
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: Contract::default().terms_of(&ship),
    };
    store.register(declared).await.unwrap();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let payload = Payload::Json("1".into());
    let envelope = Envelope::new("m1", "order", "o1", Placed::TYPE, payload);
    let connection = store.connection(&mut tx);
    store.append(connection, &[envelope]).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    store.clock().advance_ms(120_000);
    store
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_too_long_ago_refuses_nothing() {
    let store = standing_still().await;
    let throttle = Throttle::watch(store.clone(), &contract(), 1_000);
    throttle.check(Placed::TYPE).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    throttle.check(Placed::TYPE).unwrap_err();
    store.set_away(true);
    tokio::time::sleep(Duration::from_secs(20)).await;
    throttle.check(Placed::TYPE).unwrap_err();
    tokio::time::sleep(Duration::from_secs(20)).await;
    throttle.check(Placed::TYPE).unwrap();
    store.set_away(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    throttle.check(Placed::TYPE).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn looking_ends_with_the_last_handle() {
    let store = standing_still().await;
    let throttle = Throttle::watch(store, &contract(), 1_000);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    assert_eq!(tasks(), 1);
    let clone = throttle.clone();
    drop(throttle);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(tasks(), 1);
    clone.check(Placed::TYPE).unwrap_err();
    drop(clone);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(tasks(), 0);
    // Without a type that is refused nobody looks at all.
    let idle = Throttle::watch(standing_still().await, &Contract::default(), 1);
    assert_eq!(tasks(), 0);
    idle.check(Placed::TYPE).unwrap();
}
