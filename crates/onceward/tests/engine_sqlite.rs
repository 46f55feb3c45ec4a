//! The engine on SQLite: once, in order, whatever fails.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{append, effects, idle, options, sqlite, until};
use onceward::core::store::{CaseQuery, Cases, Status};
use onceward::sqlite::Sqlite;
use onceward::{
    Call, Context, Deliver, Delivery, Engine, Failure, Message, Probe, RetryPolicy, Running,
    Semantics, Start, Subscription,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

/// Quick retries.
const RETRY: RetryPolicy = RetryPolicy {
    base_ms: 1,
    cap_ms: 5,
    factor: 2.0,
    attempts_max: 3,
    age_max_ms: 600_000,
};

async fn record(cx: &mut Context<Sqlite>, thing: &Thing) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
        .bind(&thing.key)
        .bind(&thing.value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

async fn store_thing(cx: &mut Context<Sqlite>, thing: Thing) -> Result<String, Failure> {
    record(cx, &thing).await?;
    match thing.value.as_str() {
        "panics" => panic!("as asked"),
        "rejected" => Err(Failure::rejected("no", "not today")),
        "permanent" => Err(Failure::permanent("bad", "never")),
        "flaky" if cx.attempt() < 3 => Err(Failure::transient("busy", "later")),
        "hopeless" => Err(Failure::transient("busy", "always")),
        _ => Ok(thing.value),
    }
}

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    Engine::builder(store.clone())
        .options(options())
        .subscribe(subscription.start(Start::Earliest).retry(RETRY))
        .start()
        .await
        .unwrap()
}

fn by_key(effects: Vec<(String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in effects {
        keys.entry(key).or_default().push(value);
    }
    keys
}

#[tokio::test]
async fn a_thousand_messages_have_one_effect_each_in_the_order_of_their_key() {
    let (_folder, store) = sqlite().await;
    let outbox = onceward::Outbox::new(store.clone());
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let things: Vec<Thing> = (0..1_000)
        .map(|i| Thing {
            key: format!("k{}", i % 37),
            value: i.to_string(),
        })
        .collect();
    outbox.append_all(&mut tx, &things).await.unwrap();
    tx.commit().await.unwrap();
    let subscription = Subscription::new("all", Semantics::EffectOnce).on::<Thing, _>(store_thing);
    let engine = start(&store, subscription).await;
    idle(&store, "all").await;
    let effects = effects(&store).await;
    assert_eq!(effects.len(), 1_000);
    for (key, values) in by_key(effects) {
        let numbers: Vec<u32> = values.iter().map(|v| v.parse().unwrap()).collect();
        assert!(numbers.is_sorted(), "key {key} out of order: {numbers:?}");
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn failures_are_classified_and_their_neighbours_are_not_harmed() {
    let (_folder, store) = sqlite().await;
    append(
        &store,
        "thing.done",
        &[
            ("a", "1"),
            ("b", "flaky"),
            ("b", "after flaky"),
            ("c", "permanent"),
            ("c", "after permanent"),
            ("d", "rejected"),
            ("e", "hopeless"),
            ("f", "panics"),
            ("a", "2"),
        ],
    )
    .await;
    let subscription =
        Subscription::new("mixed", Semantics::EffectOnce).on::<Thing, _>(store_thing);
    let engine = start(&store, subscription).await;
    idle(&store, "mixed").await;
    let keys = by_key(effects(&store).await);
    let of = |key: &str| keys.get(key).cloned().unwrap_or_default();
    assert_eq!(of("a"), ["1", "2"]);
    assert_eq!(
        of("b"),
        ["flaky", "after flaky"],
        "a deferred message holds its key"
    );
    assert_eq!(
        of("c"),
        ["after permanent"],
        "an event's key goes on after quarantine"
    );
    assert_eq!(
        of("d"),
        ["rejected"],
        "what a rejecting handler wrote stays"
    );
    assert_eq!(of("e"), [""; 0]);
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    let mut reasons: Vec<(&str, u32)> = cases
        .iter()
        .map(|c| (c.reason.as_str(), c.spent.failures))
        .collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            ("attempts_exhausted", 3),
            ("attempts_exhausted", 3),
            ("permanent", 1)
        ]
    );
    let backlog = store
        .backlog(onceward::core::store::BacklogQuery {
            subscription: "mixed",
            count_max: 10,
            before: None,
        })
        .await
        .unwrap();
    assert_eq!(backlog.quarantined, 3);
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_second_engine_takes_over_and_nothing_is_done_twice() {
    let (folder, store) = sqlite().await;
    let values: Vec<String> = (0..200).map(|i| i.to_string()).collect();
    let messages: Vec<(&str, &str)> = values
        .iter()
        .enumerate()
        .map(|(i, v)| (["x", "y", "z"][i % 3], v.as_str()))
        .collect();
    append(&store, "thing.done", &messages).await;
    let subscription =
        || Subscription::new("moving", Semantics::EffectOnce).on::<Thing, _>(store_thing);
    let first = start(&store, subscription()).await;
    until("the first engine works", || async {
        !effects(&store).await.is_empty()
    })
    .await;
    // Dropped without handing back, like a killed process.
    drop(first);
    let other = common::open(&folder).await;
    let second = start(&other, subscription()).await;
    idle(&store, "moving").await;
    let keys = by_key(effects(&store).await);
    assert_eq!(keys.values().map(Vec::len).sum::<usize>(), 200);
    for values in keys.values() {
        let numbers: Vec<u32> = values.iter().map(|v| v.parse().unwrap()).collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "doubled or out of order: {numbers:?}"
        );
    }
    second.shutdown(Duration::from_secs(5)).await;
}

/// A carrier that does the work and then loses the answer, once for each operation.
struct Carrier {
    calls: Arc<AtomicU32>,
    done: Arc<std::sync::Mutex<BTreeMap<String, u32>>>,
}

impl Call<Sqlite> for Carrier {
    type Message = Thing;
    type Answer = u32;
    type Reply = u32;

    async fn call(&self, operation: &str, _: &Thing) -> Result<u32, Failure> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        self.done
            .lock()
            .unwrap()
            .entry(operation.to_owned())
            .or_insert(number);
        Err(Failure::ambiguous("timeout", "no answer"))
    }

    async fn probe(&self, operation: &str, _: &Thing) -> Result<Probe<u32>, Failure> {
        let done = self.done.lock().unwrap();
        Ok(done
            .get(operation)
            .map_or(Probe::DidNotHappen, |n| Probe::Happened(*n)))
    }

    async fn outcome(
        &self,
        cx: &mut Context<Sqlite>,
        thing: Thing,
        answer: u32,
    ) -> Result<u32, Failure> {
        record(cx, &thing).await?;
        Ok(answer)
    }
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_looked_up_before_it_is_made_again() {
    let (_folder, store) = sqlite().await;
    append(&store, "thing.done", &[("a", "1"), ("a", "2"), ("b", "3")]).await;
    let calls = Arc::new(AtomicU32::new(0));
    let carrier = Carrier {
        calls: Arc::clone(&calls),
        done: Arc::default(),
    };
    let subscription = Subscription::new("carrier", Semantics::EffectOnce).call(carrier);
    let engine = start(&store, subscription).await;
    idle(&store, "carrier").await;
    until("all outcomes are there", || async {
        effects(&store).await.len() == 3
    })
    .await;
    assert_eq!(calls.load(Ordering::SeqCst), 3, "each was called once");
    assert_eq!(by_key(effects(&store).await)["a"], ["1", "2"]);
    let status = store
        .operation(onceward::core::store::OperationQuery {
            operation: "thing.done-a-1",
            rows_max: 10,
        })
        .await
        .unwrap();
    assert_eq!(status.len(), 1);
    engine.shutdown(Duration::from_secs(5)).await;
}

struct Mailbox(Arc<std::sync::Mutex<Vec<String>>>);

impl Deliver for Mailbox {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = delivery.row.envelope.id.clone();
        if id.ends_with("flaky") && delivery.attempt == 1 {
            return Err(Failure::transient("busy", "later"));
        }
        self.0.lock().unwrap().push(id);
        Ok(())
    }
}

#[tokio::test]
async fn deliveries_keep_the_order_of_their_key_and_leave_no_row_behind() {
    let (_folder, store) = sqlite().await;
    append(
        &store,
        "thing.done",
        &[("a", "flaky"), ("a", "2"), ("b", "3")],
    )
    .await;
    let seen = Arc::default();
    let subscription = Subscription::new("mail", Semantics::AtLeastOnce)
        .deliver(["thing.done"], Mailbox(Arc::clone(&seen)));
    let engine = start(&store, subscription).await;
    idle(&store, "mail").await;
    until("all three are delivered", || async {
        seen.lock().unwrap().len() == 3
    })
    .await;
    let seen = seen.lock().unwrap().clone();
    let a: Vec<&String> = seen.iter().filter(|id| id.contains("-a-")).collect();
    assert_eq!(a, ["thing.done-a-flaky", "thing.done-a-2"]);
    let ledger: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_ledger")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(ledger, 0);
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_shutdown_hands_back_and_a_restart_goes_on() {
    let (_folder, store) = sqlite().await;
    append(&store, "thing.done", &[("a", "1"), ("b", "2")]).await;
    let subscription =
        || Subscription::new("restarted", Semantics::EffectOnce).on::<Thing, _>(store_thing);
    let engine = start(&store, subscription()).await;
    idle(&store, "restarted").await;
    engine.shutdown(Duration::from_secs(5)).await;
    append(&store, "thing.done", &[("a", "3")]).await;
    let engine = start(&store, subscription()).await;
    until("the new one is done", || async {
        effects(&store).await.len() == 3
    })
    .await;
    engine.shutdown(Duration::from_secs(5)).await;
    assert_eq!(by_key(effects(&store).await)["a"], ["1", "3"]);
}
