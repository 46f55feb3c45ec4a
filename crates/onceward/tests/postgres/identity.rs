//! What is one effect and what is two.

use std::sync::Arc;
use std::time::Duration;

use onceward::core::contract::Order;
use onceward::core::store::{MessageState, OperationQuery, Status};
use onceward::core::{Ending, Identity};
use onceward::postgres::Postgres;
use onceward::{Boxed, Context, Engine, Failure, Message, Running, Semantics, Start, Subscription};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::place::{Place, RETRY, Thing, calm, handler, message, record, thing};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.other", version = 1, key = key)]
struct Other {
    key: String,
    value: String,
}

fn doing(name: &'static str) -> Subscription<Postgres> {
    let work = handler(move |cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            record(cx, name, &thing).await?;
            Ok(format!("{} for {name}", thing.value))
        })
    });
    Subscription::new(name, Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RETRY)
        .start(Start::Earliest)
}

async fn start(place: &Place, subscriptions: Vec<Subscription<Postgres>>) -> Running<Postgres> {
    let mut engine = Engine::builder(place.store.clone()).options(calm());
    for subscription in subscriptions {
        engine = engine.subscribe(subscription);
    }
    engine.start().await.unwrap()
}

/// State of each message of an operation in one subscription.
async fn states(place: &Place, operation: &str, subscription: &str) -> Vec<MessageState> {
    let query = OperationQuery {
        operation,
        rows_max: 10,
    };
    let messages = place.store.operation(query).await.unwrap();
    let states = messages
        .into_iter()
        .flat_map(|message| message.subscriptions);
    let states = states.filter(|(name, _)| name == subscription);
    states.map(|(_, state)| state).collect()
}

fn result_of(state: &MessageState) -> Option<&str> {
    match state {
        MessageState::Finished {
            ending: Ending::Done,
            result,
            ..
        } => result.as_deref(),
        _ => None,
    }
}

#[tokio::test]
async fn two_subscriptions_never_suppress_each_other() {
    let place = Place::new().await;
    place.append(&[thing("a", "1"), thing("b", "2")]).await;
    let engine = start(
        &place,
        vec![
            doing("first"),
            doing("second").identity(Identity::Operation),
        ],
    )
    .await;
    place.until_effects(4).await;
    for name in ["first", "second"] {
        let values = place.values(name).await;
        assert_eq!(
            (&values["a"][0], &values["b"][0]),
            (&"1".into(), &"2".into())
        );
        let states = states(&place, "a-1", name).await;
        let expected = format!("\"1 for {name}\"");
        assert_eq!(
            states.iter().map(result_of).collect::<Vec<_>>(),
            [Some(&*expected)]
        );
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn one_id_of_two_sources_is_two_effects() {
    let place = Place::new().await;
    let from = |source: &str, value: &str| {
        let mut envelope = message("same", Thing::TYPE, "k", value);
        envelope.source = Some(source.to_owned());
        envelope
    };
    // In one transaction, so that nothing but the source tells them apart.
    place
        .append(&[from("urn:a", "1"), from("urn:b", "2")])
        .await;
    let by_operation = doing("by-operation").identity(Identity::Operation);
    let engine = start(&place, vec![doing("by-message"), by_operation]).await;
    place.until_effects(4).await;
    for name in ["by-message", "by-operation"] {
        assert_eq!(place.values(name).await["k"], ["1", "2"]);
        assert!(place.cases(name).await.is_empty());
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

async fn other(cx: &mut Context<Postgres>, other: Other) -> Result<(), Failure> {
    let thing = Thing {
        key: other.key,
        value: other.value,
    };
    record(cx, "both", &thing).await
}

#[tokio::test]
async fn two_types_of_one_operation_both_run() {
    let place = Place::new().await;
    let of = |message_type: &str| {
        let mut envelope = message(message_type, message_type, "k", message_type);
        envelope.operation_id = Some("checkout".to_owned());
        envelope
    };
    place.append(&[of(Thing::TYPE), of(Other::TYPE)]).await;
    let both = doing("both")
        .identity(Identity::Operation)
        .on::<Other, _>(other);
    let engine = start(&place, vec![both]).await;
    place.until_effects(2).await;
    assert_eq!(place.values("both").await["k"], [Thing::TYPE, Other::TYPE]);
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_repeated_operation_gets_the_stored_result_and_another_payload_a_case() {
    let place = Place::new().await;
    let again = |id: &str, value: &str| {
        let mut envelope = message(id, Thing::TYPE, "k", value);
        envelope.operation_id = Some("op".to_owned());
        envelope
    };
    place.append(&[again("m1", "1")]).await;
    let work = doing("once").identity(Identity::Operation);
    let engine = start(&place, vec![work]).await;
    place.until_effects(1).await;
    place
        .append(&[again("m2", "1"), again("m3", "forged"), thing("k", "last")])
        .await;
    place.until_effects(2).await;
    place.idle("once").await;
    assert_eq!(place.values("once").await["k"], ["1", "last"]);
    let states = states(&place, "op", "once").await;
    let stored = Some("\"1 for once\"");
    assert_eq!(states.len(), 3);
    assert_eq!(
        (result_of(&states[0]), result_of(&states[1])),
        (stored, stored)
    );
    let MessageState::Quarantined { reason, .. } = &states[2] else {
        panic!("{:?}", states[2])
    };
    assert_eq!(reason, "payload_mismatch");
    let cases = place.cases("once").await;
    assert_eq!(cases.len(), 1);
    assert_eq!(
        (cases[0].row.envelope.id.as_str(), cases[0].spent.failures),
        ("m3", 0)
    );
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn at_most_once_is_recorded_before_it_is_tried_and_never_tried_twice() {
    let place = Place::new().await;
    let mut messages: Vec<_> = (0..30).map(|i| thing(&format!("k{i}"), "fine")).collect();
    messages.insert(3, thing("k3", "fails"));
    place.append(&messages).await;
    // Each try leaves a row in a transaction of its own.
    let store = place.store.clone();
    let work = handler(move |cx, thing| -> Boxed<'_, _> {
        let store = store.clone();
        Box::pin(async move {
            record(cx, "effect", &thing).await?;
            let claimed: i64 = sqlx::query_scalar("select count(*) from onceward.ledger")
                .fetch_one(cx.tx())
                .await?;
            let sql = "insert into counters values ($1, $2)";
            let tried = format!("{}-{}", thing.key, thing.value);
            sqlx::query(sql)
                .bind(tried)
                .bind(claimed)
                .execute(store.pool())
                .await?;
            match thing.value.as_str() {
                "fails" => Err(Failure::transient("busy", "later")),
                _ => Ok(thing.value),
            }
        })
    });
    let work = Subscription::new("at-most", Semantics::AtMostOnce)
        .on::<Thing, _>(work)
        .retry(RETRY)
        .start(Start::Earliest);
    let engine = start(&place, vec![work]).await;
    place.until_effects(30).await;
    place.idle("at-most").await;
    let claimed = "select count(*) from onceward.ledger where subscription = 'at-most'";
    assert_eq!(place.count(claimed).await, 31);
    assert_eq!(
        place.count("select count(*) from counters").await,
        31,
        "one try each"
    );
    assert_eq!(
        place
            .count("select count(*) from counters where n = 0")
            .await,
        0
    );
    let cases = place.cases("at-most").await;
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].reason, "at_most_once_failed");
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Without order nothing waits for anything, but two rows of one message are one effect all the
/// same: the second does not start while the first is at work.
#[tokio::test]
async fn a_message_appended_twice_has_one_effect_without_order_too() {
    let place = Place::new().await;
    let twice = thing("a", "twice");
    place.append(std::slice::from_ref(&twice)).await;
    place.append(std::slice::from_ref(&twice)).await;
    place.append(&[thing("b", "last")]).await;
    let started = Arc::new(Semaphore::new(0));
    let work = handler(move |cx, thing| -> Boxed<'_, _> {
        let started = Arc::clone(&started);
        Box::pin(async move {
            if thing.value == "last" {
                started.add_permits(2);
            } else {
                // Nobody ends before everything that may start has started.
                started.acquire().await.unwrap().forget();
            }
            record(cx, "unordered", &thing).await?;
            Ok(thing.value)
        })
    });
    let unordered = Subscription::new("unordered", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .identity(Identity::Message)
        .order(Order::None)
        .batch_max(1)
        .concurrency(4)
        .retry(RETRY)
        .start(Start::Earliest);
    let engine = start(&place, vec![unordered]).await;
    place.until_effects(2).await;
    place.idle("unordered").await;
    let mut values: Vec<_> = place.effects("unordered").await;
    values.sort_by(|a, b| a.value.cmp(&b.value));
    let values: Vec<_> = values.iter().map(|effect| effect.value.as_str()).collect();
    assert_eq!(values, ["last", "twice"]);
    engine.shutdown(Duration::from_secs(10)).await;
}
