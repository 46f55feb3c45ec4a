//! Commits whose answer is lost while they record failures.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Mutex, OnceLock};

use common::{options, until};
use onceward::core::store::{
    Append, BacklogQuery, Begin, Deferrals, Effects, End, LoadKey, Schema, Status,
};
use onceward::{
    Context, Engine, Envelope, Failure, Message, Payload, RetryPolicy, Semantics, Start,
    Subscription,
};
use onceward_testkit::memory::{CommitFault, MemoryStore};
use serde::{Deserialize, Serialize};

/// Messages; every tenth fails.
const MESSAGES: u32 = 400;
/// By then failures have been seen that are frequent enough for savepoints.
const LOST_FROM: u32 = 200;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "number.drawn", version = 1, key = number)]
struct Number {
    number: u32,
}

static STORE: OnceLock<MemoryStore> = OnceLock::new();
/// Messages that ran while their failure was recorded, which is not due for an hour.
static AGAIN: Mutex<Vec<u32>> = Mutex::new(Vec::new());

async fn handle(cx: &mut Context<MemoryStore>, drawn: Number) -> Result<(), Failure> {
    let number = drawn.number;
    let (slot, key) = (cx.message().slot, cx.message().envelope.key().to_owned());
    let load = LoadKey {
        subscription: "numbers",
        slot,
        key: &key,
        after_seq: 0,
        versions_to: None,
        rows_max: 1,
    };
    if !STORE.get().unwrap().load_key(load).await?.is_empty() {
        AGAIN.lock().unwrap().push(number);
    }
    if number % 10 == 9 {
        return Err(Failure::transient("ninth", "every tenth fails"));
    }
    if number.is_multiple_of(40) && number >= LOST_FROM {
        let faults = STORE.get().unwrap().faults();
        faults.fail_next_commit(CommitFault::Applied);
    }
    Ok(())
}

/// A batch that records a failure commits, and nobody hears of it: the message is not tried again
/// before its time, as if the failure had been counted for nothing.
#[tokio::test]
async fn a_failure_in_a_batch_whose_answer_is_lost_is_counted_once() {
    let store = STORE.get_or_init(MemoryStore::default);
    store.migrate().await.unwrap();
    let envelopes = (0..MESSAGES).map(|number| {
        let payload = Payload::Json(format!(r#"{{"number":{number}}}"#).into());
        let name = number.to_string();
        Envelope::new(name.clone(), "number", name, Number::TYPE, payload)
    });
    let envelopes: Vec<Envelope> = envelopes.collect();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let connection = store.connection(&mut tx);
    store.append(connection, &envelopes).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let numbers = Subscription::new("numbers", Semantics::EffectOnce)
        .on::<Number, _>(handle)
        .start(Start::Earliest)
        .concurrency(1)
        .retry(RetryPolicy {
            base_ms: 3_600_000,
            cap_ms: 3_600_000,
            factor: 1.0,
            attempts_max: 10,
            age_max_ms: 86_400_000,
        });
    let engine = Engine::builder(store.clone())
        .options(options())
        .subscribe(numbers)
        .start()
        .await
        .unwrap();
    until("everything is read and put aside", || async {
        let query = BacklogQuery {
            subscription: "numbers",
            count_max: 1,
            before: None,
        };
        store.backlog(query).await.unwrap().waiting == 0
    })
    .await;
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    let query = BacklogQuery {
        subscription: "numbers",
        count_max: 1,
        before: None,
    };
    let deferred = store.backlog(query).await.unwrap().deferred.retry;
    assert_eq!(deferred, u64::from(MESSAGES / 10));
    let again = AGAIN.lock().unwrap();
    assert!(again.is_empty(), "ran again after they failed: {again:?}");
}
