//! Cases from the field about order, on SQLite: a retry, a blocked key, the same message twice.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{append, effects, options, sqlite, until};
use onceward::core::case::{Actor, CaseAction};
use onceward::core::store::{ActOnCase, Case, CaseQuery, Cases, HeldQuery, Operate, Status};
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Deliver, Delivery, Engine, Failure, Message, OnPoison, RetryPolicy, Running,
    Semantics, Start, Subscription,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

const QUICK: RetryPolicy = RetryPolicy {
    base_ms: 20,
    cap_ms: 20,
    factor: 1.0,
    attempts_max: 4,
    age_max_ms: 600_000,
};

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    Engine::builder(store.clone())
        .options(options())
        .subscribe(subscription.start(Start::Earliest).retry(QUICK))
        .start()
        .await
        .unwrap()
}

/// A broker that refuses K's first message, so many times.
struct Broker {
    refusals: AtomicU32,
    arrived: Arc<Mutex<Vec<(String, String)>>>,
}

impl Deliver for Broker {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let envelope = &delivery.row.envelope;
        let thing: Thing = serde_json::from_slice(envelope.payload.as_bytes()).unwrap();
        let refuses = thing.key == "K"
            && thing.value == "e1"
            && self
                .refusals
                .try_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
        if refuses {
            return Err(Failure::transient("refused", "not now"));
        }
        self.arrived.lock().unwrap().push((thing.key, thing.value));
        Ok(())
    }
}

fn of_key(arrived: &[(String, String)], key: &str) -> Vec<String> {
    let of_key = arrived.iter().filter(|(k, _)| k == key);
    of_key.map(|(_, value)| value.clone()).collect()
}

async fn append_k_and_others(store: &Sqlite) {
    let others: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
    let mut messages: Vec<(&str, &str)> = Vec::new();
    for event in ["e1", "e2", "e3", "e4", "e5"] {
        messages.push(("K", event));
        messages.extend(others.iter().map(|key| (key.as_str(), event)));
    }
    append(store, Thing::TYPE, &messages).await;
}

async fn cases(store: &Sqlite) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

#[tokio::test]
async fn bc_20_a_refused_delivery_is_overtaken_by_other_keys_only() {
    let (_folder, store) = sqlite().await;
    append_k_and_others(&store).await;
    let arrived = Arc::default();
    let broker = Broker {
        refusals: AtomicU32::new(2),
        arrived: Arc::clone(&arrived),
    };
    let relay = Subscription::new("relay", Semantics::AtLeastOnce).deliver([Thing::TYPE], broker);
    let engine = start(&store, relay).await;
    until("all have arrived", || async {
        arrived.lock().unwrap().len() == 105
    })
    .await;
    let arrived = arrived.lock().unwrap().clone();
    assert_eq!(of_key(&arrived, "K"), ["e1", "e2", "e3", "e4", "e5"]);
    assert_eq!(of_key(&arrived, "o7"), ["e1", "e2", "e3", "e4", "e5"]);
    let first_of_k = arrived.iter().position(|(key, _)| key == "K").unwrap();
    assert!(
        first_of_k >= 20,
        "others were not delayed: {first_of_k} before it"
    );
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Handlers, in the other direction: what follows a poisoned message is what was said, and an
/// operator's action lets a held key go.
#[tokio::test]
async fn bc_20_after_the_budget_the_key_goes_on_or_is_held_until_somebody_acts() {
    for on_poison in [OnPoison::Skip, OnPoison::HoldKey] {
        let (_folder, store) = sqlite().await;
        append_k_and_others(&store).await;
        let work = Subscription::new("work", Semantics::EffectOnce)
            .on(async |cx: &mut Context<Sqlite>, thing: Thing| {
                if thing.key == "K" && thing.value == "e1" {
                    return Err(Failure::transient("refused", "never"));
                }
                sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
                    .bind(&thing.key)
                    .bind(&thing.value)
                    .execute(cx.tx())
                    .await?;
                Ok(())
            })
            .on_poison(on_poison);
        let engine = start(&store, work).await;
        until("K's first is a case", || async {
            !cases(&store).await.is_empty()
        })
        .await;
        until("the others are done", || async {
            effects(&store).await.len() >= 100
        })
        .await;
        if on_poison == OnPoison::HoldKey {
            assert_eq!(of_key(&effects(&store).await, "K"), [""; 0]);
            let query = HeldQuery {
                subscription: "work",
                beyond: None,
                keys_max: 5,
            };
            until("the held key is to be seen", || async {
                let held = store.longest_held(query).await.unwrap();
                matches!(&held[..], [key] if key.key == "K" && key.depth == 4 && key.case_id.is_some())
            })
            .await;
            let discard = ActOnCase {
                case_id: cases(&store).await[0].case_id,
                action: CaseAction::Discard,
                expected: None,
                by: Actor {
                    who: "kim",
                    why: Some("not needed"),
                },
            };
            store.act_on_case(discard).await.unwrap();
        }
        until("K goes on", || async {
            of_key(&effects(&store).await, "K") == ["e2", "e3", "e4", "e5"]
        })
        .await;
        engine.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn bc_29_the_same_message_twice_in_one_batch_is_one_effect() {
    let (_folder, store) = sqlite().await;
    let names: Vec<String> = (0..95).map(|n| format!("k{n}")).collect();
    let mut messages: Vec<(&str, &str)> = names.iter().map(|key| (key.as_str(), "1")).collect();
    for key in ["twice0", "twice1", "twice2", "twice3", "twice4"] {
        messages.push((key, "1"));
        messages.push((key, "1"));
    }
    append(&store, Thing::TYPE, &messages).await;
    let work = Subscription::new("work", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, thing: Thing| {
            sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
                .bind(&thing.key)
                .bind(&thing.value)
                .execute(cx.tx())
                .await?;
            Ok(())
        })
        .batch_max(200);
    let engine = start(&store, work).await;
    common::idle(&store, "work").await;
    let mut by_key: BTreeMap<String, u32> = BTreeMap::new();
    for (key, _) in effects(&store).await {
        *by_key.entry(key).or_default() += 1;
    }
    assert_eq!(by_key.len(), 100);
    assert!(by_key.values().all(|count| *count == 1), "{by_key:?}");
    assert!(cases(&store).await.is_empty());
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn bc_31_a_blocked_key_of_thousands_of_rows_starves_nobody() {
    const HOT: usize = 20_000;
    let (_folder, store) = sqlite().await;
    let outbox = onceward::Outbox::new(store.clone());
    let envelopes: Vec<onceward::Envelope> = (0..HOT)
        .map(|n| ("hot".to_owned(), n))
        .chain((0..10).map(|n| (format!("k{n}"), HOT + n)))
        .map(|(key, n)| {
            let payload = format!(r#"{{"key":"{key}","value":"{n}"}}"#);
            let payload = onceward::Payload::Json(payload.into());
            onceward::Envelope::new(n.to_string(), "thing", key, Thing::TYPE, payload)
        })
        .collect();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox.append_envelopes(&mut tx, &envelopes).await.unwrap();
    tx.commit().await.unwrap();
    let work = Subscription::new("work", Semantics::EffectOnce).on(
        async |cx: &mut Context<Sqlite>, thing: Thing| {
            if thing.key == "hot" {
                return Err(Failure::operator("blocked", "somebody has to look"));
            }
            sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
                .bind(&thing.key)
                .bind(&thing.value)
                .execute(cx.tx())
                .await?;
            Ok(())
        },
    );
    let begun = Instant::now();
    let engine = start(&store, work).await;
    until("the others are done", || async {
        effects(&store).await.len() == 10
    })
    .await;
    let took = begun.elapsed();
    let query = HeldQuery {
        subscription: "work",
        beyond: None,
        keys_max: 5,
    };
    let held = store.longest_held(query).await.unwrap();
    assert_eq!(held.len(), 1, "after {took:?}");
    assert_eq!(
        (held[0].key.as_str(), held[0].behind.as_str()),
        ("hot", "operator")
    );
    engine.shutdown(Duration::from_secs(5)).await;
}
