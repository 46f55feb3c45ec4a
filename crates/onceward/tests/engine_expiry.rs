//! Work that has become useless, and keys behind which too much waits.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{effects, options, sqlite, until};
use onceward::core::case::{Actor, CaseAction};
use onceward::core::contract::FaultKind;
use onceward::core::expiry::Expired;
use onceward::core::hold::HoldLimits;
use onceward::core::store::{
    ActOnCase, Case, CaseQuery, Cases, HeldQuery, MessageState, Operate, OperationQuery, Status,
};
use onceward::core::{Ending, Timestamp};
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Deliver, Delivery, Engine, EngineOptions, Envelope, Failure, Message, Outbox, Payload,
    RetryPolicy, Running, Semantics, Start, StartError, Subscription,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

/// What a fallback subscription gets of it.
#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done.expired", version = 1, key = key)]
struct Late {
    key: String,
    value: String,
}

async fn put(cx: &mut Context<Sqlite>, key: &str, value: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
        .bind(key)
        .bind(value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

fn subscription(expired: Expired) -> Subscription<Sqlite> {
    Subscription::new("ship", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Thing| put(cx, &m.key, &m.value).await)
        .expired(expired)
        .start(Start::Earliest)
}

async fn start(store: &Sqlite, subscriptions: Vec<Subscription<Sqlite>>) -> Running<Sqlite> {
    let builder = Engine::builder(store.clone()).options(EngineOptions {
        held_every_ms: Some(20),
        ..options()
    });
    let builder = subscriptions
        .into_iter()
        .fold(builder, |builder, subscription| {
            builder.subscribe(subscription)
        });
    builder.start().await.unwrap()
}

const PAST: &str = "2020-01-31T09:00:00Z";
const FUTURE: &str = "2999-01-31T09:00:00Z";

/// Appends messages, each with the end that it has, if it has one.
async fn append(store: &Sqlite, messages: &[(&str, &str, Option<&str>)]) {
    let outbox = Outbox::new(store.clone());
    let envelopes = messages.iter().map(|(id, key, expires_at)| {
        let payload = format!(r#"{{"key":"{key}","value":"{id}"}}"#);
        Envelope {
            expires_at: expires_at.map(|at| at.parse::<Timestamp>().unwrap()),
            ..Envelope::new(
                *id,
                "thing",
                *key,
                Thing::TYPE,
                Payload::Json(payload.into()),
            )
        }
    });
    let envelopes: Vec<Envelope> = envelopes.collect();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox.append_envelopes(&mut tx, &envelopes).await.unwrap();
    tx.commit().await.unwrap();
    outbox.ring();
}

async fn values(store: &Sqlite) -> Vec<String> {
    let effects = effects(store).await.into_iter();
    effects.map(|(_, value)| value).collect()
}

async fn until_done(store: &Sqlite, expected: &[&str]) {
    until("these have their effect", || async {
        values(store).await == expected
    })
    .await;
}

async fn cases(store: &Sqlite) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

async fn ending(store: &Sqlite, id: &str) -> Option<Ending> {
    let query = OperationQuery {
        operation: id,
        rows_max: 1,
    };
    let found = store.operation(query).await.unwrap();
    match found.first()?.subscriptions.first()?.1 {
        MessageState::Finished { ending, .. } => Some(ending),
        _ => None,
    }
}

async fn stop(engine: Running<Sqlite>) {
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_is_over_is_given_up_with_a_record_and_the_rest_is_done() {
    let (_folder, store) = sqlite().await;
    let messages = [
        ("m1", "a", None),
        ("m2", "a", Some(PAST)),
        ("m3", "a", Some(FUTURE)),
        ("m2", "a", Some(PAST)),
    ];
    append(&store, &messages).await;
    let engine = start(&store, vec![subscription(Expired::Drop)]).await;
    until_done(&store, &["m1", "m3"]).await;
    assert_eq!(ending(&store, "m2").await, Some(Ending::Expired));
    assert!(cases(&store).await.is_empty());
    stop(engine).await;
}

#[tokio::test]
async fn what_is_over_becomes_a_case_where_that_was_said() {
    let (_folder, store) = sqlite().await;
    append(&store, &[("m1", "a", Some(PAST)), ("m2", "b", None)]).await;
    let engine = start(&store, vec![subscription(Expired::Quarantine)]).await;
    until("there is a case", || async {
        !cases(&store).await.is_empty()
    })
    .await;
    let case = cases(&store).await.remove(0);
    assert_eq!(case.reason, "expired");
    until_done(&store, &["m2"]).await;
    // Who releases it although it is over means it.
    let release = ActOnCase {
        case_id: case.case_id,
        action: CaseAction::Release,
        expected: None,
        by: Actor {
            who: "kim",
            why: Some("better late than never"),
        },
    };
    store.act_on_case(release).await.unwrap();
    until_done(&store, &["m2", "m1"]).await;
    stop(engine).await;
}

#[tokio::test]
async fn without_a_word_it_is_done_however_late() {
    let (_folder, store) = sqlite().await;
    append(&store, &[("m1", "a", Some(PAST))]).await;
    let engine = start(&store, vec![subscription(Expired::Keep)]).await;
    until_done(&store, &["m1"]).await;
    stop(engine).await;
}

#[tokio::test]
async fn another_subscription_gets_what_is_over_once() {
    let (_folder, store) = sqlite().await;
    let late = || {
        Subscription::new("late", Semantics::EffectOnce)
            .on(async |cx: &mut Context<Sqlite>, m: Late| put(cx, "late", &m.value).await)
            .start(Start::Earliest)
    };
    let to_late = || subscription(Expired::Fallback("late".into()));
    append(&store, &[("m1", "a", Some(PAST)), ("m2", "a", None)]).await;
    let engine = start(&store, vec![to_late(), late()]).await;
    until("both are done", || async {
        values(&store).await.len() == 2
    })
    .await;
    // The same message again is known, and not handed over again.
    append(&store, &[("m1", "a", Some(PAST)), ("m3", "a", None)]).await;
    until("the third is done", || async {
        values(&store).await.len() == 3
    })
    .await;
    let handed: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM onceward_outbox WHERE type = 'thing.done.expired'",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    assert_eq!(handed, 1);
    let mut all = values(&store).await;
    all.sort_unstable();
    assert_eq!(all, ["m1", "m2", "m3"]);
    stop(engine).await;
    let refused = Engine::builder(store.clone())
        .subscribe(to_late())
        .start()
        .await;
    let Err(StartError::Contract(faults)) = refused else {
        panic!("must be refused");
    };
    assert_eq!(faults[0].kind, FaultKind::Contradiction);
    assert_eq!(faults[0].path, "subscription.ship.fallback");
}

#[tokio::test]
async fn what_is_useful_for_a_time_is_over_by_its_age_also_behind_a_retry() {
    let (_folder, store) = sqlite().await;
    let engine = start(
        &store,
        vec![
            Subscription::new("ship", Semantics::EffectOnce)
                .on(async |_: &mut Context<Sqlite>, _: Thing| {
                    Err::<(), _>(Failure::transient("busy", "never ready"))
                })
                .retry(RetryPolicy {
                    base_ms: 50,
                    cap_ms: 50,
                    attempts_max: 100_000,
                    ..RetryPolicy::default()
                })
                .expired(Expired::Drop)
                .useful_for_ms(700)
                .start(Start::Earliest),
        ],
    )
    .await;
    append(&store, &[("m1", "a", None)]).await;
    until("it is over", || async {
        ending(&store, "m1").await == Some(Ending::Expired)
    })
    .await;
    assert!(cases(&store).await.is_empty());
    stop(engine).await;
}

struct Courier(Arc<Mutex<Vec<String>>>);

impl Deliver for Courier {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = delivery.row.envelope.id.clone();
        self.0.lock().unwrap().push(id);
        Ok(())
    }
}

#[tokio::test]
async fn what_is_over_is_not_delivered() {
    for semantics in [Semantics::AtLeastOnce, Semantics::AtMostOnce] {
        let (_folder, store) = sqlite().await;
        let messages = [
            ("m1", "a", Some(PAST)),
            ("m2", "a", None),
            ("m1", "a", Some(PAST)),
            ("m3", "a", None),
        ];
        append(&store, &messages).await;
        let delivered = Arc::default();
        let courier = Courier(Arc::clone(&delivered));
        let mail = Subscription::new("mail", semantics)
            .deliver([Thing::TYPE], courier)
            .expired(Expired::Drop)
            .start(Start::Earliest);
        let engine = start(&store, vec![mail]).await;
        until("two are delivered", || async {
            delivered.lock().unwrap().len() == 2
        })
        .await;
        assert_eq!(*delivered.lock().unwrap(), ["m2", "m3"]);
        assert_eq!(ending(&store, "m1").await, Some(Ending::Expired));
        stop(engine).await;
    }
}

#[tokio::test]
async fn too_much_behind_a_key_is_told_and_nothing_is_lost() {
    let (_folder, store) = sqlite().await;
    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    let subscription = Subscription::new("ship", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Thing| {
            if m.key == "hot" && !IS_OPEN.load(Ordering::SeqCst) {
                return Err(Failure::transient("busy", "not yet"));
            }
            put(cx, &m.key, &m.value).await
        })
        .retry(RetryPolicy {
            base_ms: 100,
            cap_ms: 100,
            attempts_max: 100_000,
            ..RetryPolicy::default()
        })
        .hold(HoldLimits {
            depth: 2,
            age_ms: 3_600_000,
        })
        .start(Start::Earliest);
    let engine = start(&store, vec![subscription]).await;
    let hot: Vec<String> = (1..=5).map(|n| format!("m{n}")).collect();
    let messages: Vec<_> = hot.iter().map(|id| (id.as_str(), "hot", None)).collect();
    append(&store, &messages).await;
    append(&store, &[("other", "b", None)]).await;
    let mut state = engine.watch();
    let is_told = |state: &onceward::EngineState| {
        state
            .held_beyond
            .get("ship")
            .is_some_and(|keys| keys == &["hot"])
    };
    let told = tokio::time::timeout(Duration::from_secs(20), state.wait_for(is_told)).await;
    told.unwrap().unwrap();
    let query = HeldQuery {
        subscription: "ship",
        beyond: None,
        keys_max: 10,
    };
    let held = store.longest_held(query).await.unwrap();
    assert_eq!((held[0].key.as_str(), held[0].depth), ("hot", 4));
    until_done(&store, &["other"]).await;
    IS_OPEN.store(true, Ordering::SeqCst);
    until_done(&store, &["other", "m1", "m2", "m3", "m4", "m5"]).await;
    let is_over =
        |state: &onceward::EngineState| state.held_beyond.get("ship").is_some_and(Vec::is_empty);
    let over = tokio::time::timeout(Duration::from_secs(20), state.wait_for(is_over)).await;
    over.unwrap().unwrap();
    stop(engine).await;
}
