//! Slow messages, hot keys and many subscriptions leave each other alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::postgres::Postgres;
use onceward::{
    Boxed, Call, Context, Deliver, Delivery, Engine, Failure, Semantics, Start, Subscription,
};
use sqlx::Connection;
use tokio::sync::watch;

use crate::place::{Place, RETRY, Thing, calm, handler, hasty, message, record, thing, until};

/// Answers at once, but to the message `slow`, whose answer waits for the gate.
struct Slow(watch::Receiver<bool>);

impl Call<Postgres> for Slow {
    type Message = Thing;
    type Answer = ();
    type Reply = ();

    async fn call(&self, _: &str, thing: &Thing) -> Result<(), Failure> {
        if thing.value == "slow" {
            self.0.clone().wait_for(|is_open| *is_open).await?;
        }
        Ok(())
    }

    async fn outcome(
        &self,
        cx: &mut Context<Postgres>,
        thing: Thing,
        (): (),
    ) -> Result<(), Failure> {
        record(cx, "slow", &thing).await
    }
}

#[tokio::test]
async fn a_call_that_outlives_many_leases_leaves_other_keys_unharmed() {
    const OTHERS: i64 = 1_600;
    let place = Place::new().await;
    let (gate, opened) = watch::channel(false);
    let work = Subscription::new("slow", Semantics::EffectOnce)
        .call(Slow(opened))
        .window_rows(1_000)
        .retry(RETRY);
    let mut options = hasty();
    options.lease_ms = 2_000;
    let engine = place.start(options, work).await;
    let mut messages = vec![thing("k0", "slow")];
    // More than the window holds, some on the slow message's own key.
    let others = (0..OTHERS).map(|i| thing(&format!("k{}", i % 80), &format!("{i:04}")));
    messages.extend(others);
    place.append(&messages).await;
    let others_of_slow = OTHERS / 80;
    place.until_effects(OTHERS - others_of_slow).await;
    let renewals = "select count(*) from onceward.heartbeats where revision > \
                    (select max(revision) from onceward.heartbeats) - 1000 and \
                    beat_at > (select min(recorded_at) from onceward.outbox)";
    until("three leases' worth of renewals", || async {
        place.count(renewals).await > 60
    })
    .await;
    let more = (0..80).map(|key| thing(&format!("k{key}"), "9999"));
    place.append(&more.collect::<Vec<_>>()).await;
    place.until_effects(OTHERS - others_of_slow + 79).await;
    assert!(
        !place.values("slow").await.contains_key("k0"),
        "its own key waits"
    );
    gate.send_replace(true);
    place.until_effects(OTHERS + 1 + 80).await;
    let values = place.values("slow").await;
    assert_eq!(values["k0"][0], "slow");
    for (key, values) in &values {
        let numbers = &values[usize::from(key == "k0")..];
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
        assert_eq!(numbers.len(), 21);
    }
    let effects = place.effects("slow").await;
    assert!(effects.iter().all(|effect| effect.attempt == 1));
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn bc_31_a_hot_key_of_twenty_thousand_rows_leaves_other_keys_unharmed() {
    const GATE: i64 = 4711;
    let place = Place::new().await;
    let mut gate = sqlx::PgConnection::connect(place.url()).await.unwrap();
    let lock = sqlx::query("select pg_advisory_lock($1)").bind(GATE);
    lock.execute(&mut gate).await.unwrap();
    let work = handler(|cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            if thing.key == "hot" && thing.value == "1" {
                let wait = sqlx::query("select pg_advisory_xact_lock_shared($1)").bind(GATE);
                wait.execute(cx.tx()).await?;
            }
            record(cx, "hot", &thing).await?;
            Ok(thing.value)
        })
    });
    let work = Subscription::new("hot", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .timeout_ms(600_000)
        .retry(RETRY);
    place
        .run(
            "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload)
             select 'hot-' || g, 'thing', 'hot', 'thing.done',
                    json_build_object('key', 'hot', 'value', g::text)
             from generate_series(1, 20000) g;
             insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload)
             select 'k' || g, 'thing', 'k' || g % 50, 'thing.done',
                    json_build_object('key', 'k' || g % 50, 'value', g::text)
             from generate_series(1, 1000) g",
        )
        .await;
    let engine = place.start(calm(), work).await;
    place.until_effects(1_000).await;
    assert!(!place.values("hot").await.contains_key("hot"));
    sqlx::query("select pg_advisory_unlock_all()")
        .execute(&mut gate)
        .await
        .unwrap();
    place.until_effects(21_000).await;
    for (key, values) in place.values("hot").await {
        let numbers: Vec<u32> = values.iter().map(|v| v.parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "key {key} out of order");
    }
    place.idle("hot").await;
    engine.shutdown(Duration::from_secs(5)).await;
}

/// What each subscription was handed.
type Handed = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

struct Keep(Handed);

impl Deliver for Keep {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let mut handed = self.0.lock().unwrap();
        let of = handed.entry(delivery.subscription.to_owned()).or_default();
        of.push(delivery.row.envelope.id.clone());
        Ok(())
    }
}

#[tokio::test]
async fn twenty_subscriptions_get_what_they_want_and_nothing_else() {
    const COMMON: usize = 19;
    const ROWS: usize = 20_000;
    let place = Place::new().await;
    let handed = Handed::default();
    let rare = handler(|cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            record(cx, "rare", &thing).await?;
            Ok(thing.value)
        })
    });
    let rare = Subscription::new("rare", Semantics::EffectOnce).on::<Thing, _>(rare);
    let mut engine = Engine::builder(place.store.clone()).options(calm());
    engine = engine.subscribe(rare.start(Start::Earliest));
    for i in 0..COMMON {
        let wanted = [format!("common.{i}")];
        let keep = Keep(Arc::clone(&handed));
        let work = Subscription::new(format!("common{i}"), Semantics::AtLeastOnce);
        engine = engine.subscribe(work.deliver(wanted, keep).start(Start::Earliest));
    }
    let engine = engine.start().await.unwrap();
    // One in ten thousand is wanted by the one; the others share the rest evenly.
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut messages = Vec::new();
    for i in 0..ROWS {
        let id = format!("{i:05}");
        if i % 10_000 == 4_999 {
            messages.push(message(&id, "thing.done", "k", &id));
            continue;
        }
        let of = i % COMMON;
        messages.push(message(
            &id,
            &format!("common.{of}"),
            &format!("k{}", i % 7),
            &id,
        ));
        expected.entry(format!("common{of}")).or_default().push(id);
    }
    for part in messages.chunks(2_000) {
        place.append(part).await;
    }
    place.until_effects(2).await;
    until("everything is handed on", || async {
        let handed = handed.lock().unwrap();
        handed.values().map(Vec::len).sum::<usize>() >= ROWS - 2
    })
    .await;
    assert_eq!(place.values("rare").await["k"], ["04999", "14999"]);
    place.idle("rare").await;
    let mut handed = handed.lock().unwrap().clone();
    for of in handed.values_mut() {
        of.sort_unstable();
    }
    assert_eq!(handed, expected);
    engine.shutdown(Duration::from_secs(5)).await;
    assert_eq!(place.count("select count(*) from onceward.ledger").await, 2);
    assert_eq!(
        place.count("select count(*) from onceward.deferrals").await,
        0
    );
}
