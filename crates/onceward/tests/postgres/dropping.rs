//! What policies give up: merged into a later message of its key, or shed because its turn came late.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::core::Ending;
use onceward::core::store::{Actor, Dropped, DroppedQuery, Operate, SetPause, Status};
use onceward::postgres::Postgres;
use onceward::{Boxed, Merge, Message, Semantics, Subscription};
use tokio::sync::Semaphore;

use crate::place::{Place, RETRY, Thing, calm, handler, hasty, record, thing, until};

async fn dropped(place: &Place) -> Vec<Dropped> {
    let query = DroppedQuery {
        subscription: "prices",
        endings: &Ending::DROPPED,
        after: None,
        rows_max: 1_000,
    };
    place.store.dropped(query).await.unwrap()
}

/// Every message before the last of its key names the last; the last one runs when its process has
/// died, again and alone.
#[tokio::test]
async fn what_is_merged_survives_the_death_of_the_process_that_ran_the_survivor() {
    let place = Place::new().await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (started, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let work = || {
        let (ran, started, gate) = (Arc::clone(&ran), Arc::clone(&started), Arc::clone(&gate));
        let work = handler(move |cx, thing| -> Boxed<'_, _> {
            let (ran, started) = (Arc::clone(&ran), Arc::clone(&started));
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                ran.lock()
                    .unwrap()
                    .push((thing.key.clone(), thing.value.clone()));
                record(cx, "prices", &thing).await?;
                started.add_permits(1);
                drop(gate.acquire().await?);
                Ok(thing.value)
            })
        });
        Subscription::new("prices", Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .merge(Merge::Latest)
            .retry(RETRY)
    };
    // More than a batch takes of messages that are handled.
    let messages: Vec<_> = (0..400)
        .map(|n| thing(&format!("k{}", n % 4), &format!("{n:03}")))
        .collect();
    place.append(&messages).await;
    let engine = place.start(hasty(), work()).await;
    started.acquire().await.unwrap().forget();
    // Without a word, like a killed process.
    drop(engine);
    assert_eq!(place.effect_count().await, 0);
    gate.add_permits(1_000);
    let engine = place.start(hasty(), work()).await;
    place.until_effects(4).await;
    place.idle("prices").await;
    let last = |key: usize| (format!("k{key}"), vec![format!("{:03}", 396 + key)]);
    let values: Vec<_> = place.values("prices").await.into_iter().collect();
    assert_eq!(values, (0..4).map(last).collect::<Vec<_>>());
    let handled = ran.lock().unwrap().clone();
    let lasts = handled.iter().all(|(_, value)| value.as_str() >= "396");
    assert!(lasts, "only the last of each key ran: {handled:?}");
    let dropped = dropped(&place).await;
    assert_eq!(dropped.len(), 396);
    for dropped in &dropped {
        let (key, _) = dropped.place.identity.split_once('-').unwrap();
        let number: u32 = key[1..].parse().unwrap();
        let into = format!("{key}-{}", 396 + number);
        assert_eq!(dropped.merged_into, Some(into));
        assert_eq!(dropped.ending, Ending::Merged);
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

/// What is late is shed, whoever works on it; a time in which an operator held the subscription is
/// not its lateness.
#[tokio::test]
async fn what_is_late_is_shed_unless_an_operator_held_it() {
    let place = Place::new().await;
    let work = |after_ms| {
        let work = handler(move |cx, thing| -> Boxed<'_, _> {
            Box::pin(async move {
                record(cx, "prices", &thing).await?;
                Ok(thing.value)
            })
        });
        Subscription::new("prices", Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .shed([Thing::TYPE], after_ms)
            .retry(RETRY)
    };
    place.append_things(&[("a", "old"), ("b", "old")]).await;
    place
        .run("update onceward.outbox set recorded_at = now() - interval '1 hour'")
        .await;
    place.append_things(&[("a", "new"), ("b", "new")]).await;
    let engine = place.start(calm(), work(60_000)).await;
    place.until_effects(2).await;
    place.idle("prices").await;
    let values = place.values("prices").await;
    assert!(
        values.values().all(|of_key| *of_key == ["new"]),
        "{values:?}"
    );
    let mut shed: Vec<_> = dropped(&place)
        .await
        .into_iter()
        .map(|dropped| (dropped.place.identity, dropped.ending))
        .collect();
    shed.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = ["a-old", "b-old"].map(|id| (id.to_owned(), Ending::Shed));
    assert_eq!(shed, expected);
    engine.shutdown(Duration::from_secs(5)).await;

    // The same age, but all of it in a pause.
    let pause = async |is_paused| {
        let by = Actor {
            who: "ada",
            why: Some("maintenance"),
        };
        let request = SetPause {
            subscription: "prices",
            is_paused,
            by,
        };
        place.store.set_pause(request).await.unwrap();
    };
    pause(true).await;
    place
        .run("update onceward.pauses set paused_at = now() - interval '2 hours'")
        .await;
    place.append_things(&[("a", "held"), ("b", "held")]).await;
    let age = "update onceward.outbox set recorded_at = now() - interval '1 hour' \
               where id like '%held'";
    place.run(age).await;
    let engine = place.start(calm(), work(60_000)).await;
    engine.owns_all_lanes().await;
    pause(false).await;
    until("they have their effect", || async {
        place.effect_count().await == 4
    })
    .await;
    assert_eq!(dropped(&place).await.len(), 2);
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Calls and at-least-once deliveries shed too, and a crash before the record makes no difference.
#[tokio::test]
async fn a_crash_between_shedding_and_the_rest_sheds_once() {
    let place = Place::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(Semaphore::new(0));
    let work = || -> Subscription<Postgres> {
        let (gate, started) = (Arc::clone(&gate), Arc::clone(&started));
        let work = handler(move |cx, thing| -> Boxed<'_, _> {
            let (gate, started) = (Arc::clone(&gate), Arc::clone(&started));
            Box::pin(async move {
                record(cx, "prices", &thing).await?;
                started.add_permits(1);
                drop(gate.acquire().await?);
                Ok(thing.value)
            })
        });
        Subscription::new("prices", Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .shed([Thing::TYPE], 60_000)
            .retry(RETRY)
    };
    place.append_things(&[("a", "old")]).await;
    place
        .run("update onceward.outbox set recorded_at = now() - interval '1 hour'")
        .await;
    place.append_things(&[("a", "new")]).await;
    let engine = place.start(hasty(), work()).await;
    // The record of what was shed is in the transaction that is open now.
    started.acquire().await.unwrap().forget();
    drop(engine);
    assert!(dropped(&place).await.is_empty());
    gate.add_permits(100);
    let engine = place.start(hasty(), work()).await;
    place.idle("prices").await;
    // Whether the old one had been tried when the process died nobody knows: it runs then.
    let values = place.values("prices").await;
    let shed = dropped(&place).await.len();
    assert_eq!(values["a"].last().map(String::as_str), Some("new"));
    assert_eq!(values["a"].len() + shed, 2, "{values:?}, {shed} shed");
    engine.shutdown(Duration::from_secs(5)).await;
}
