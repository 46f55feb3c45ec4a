//! Handlers that end badly and say nothing of it.

use std::time::Duration;

use onceward::core::store::Schema;
use onceward::postgres::Postgres;
use onceward::{Boxed, Context, Engine, Failure, RetryPolicy, Semantics, Subscription};

use crate::place::{Place, RETRY, Thing, calm, handler, hasty, record, until};

/// PostgreSQL undoes the whole transaction after an error, whoever ignores it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ignored_error_of_the_database_is_a_failure_also_where_nothing_is_recorded() {
    let place = Place::new().await;
    place.append_things(&[("a", "1")]).await;
    let work = handler(|cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            record(cx, "ignorant", &thing).await?;
            let _ = sqlx::query("select 1 / 0").execute(cx.tx()).await;
            Ok(thing.value)
        })
    });
    let work = Subscription::new("ignorant", Semantics::AtLeastOnce)
        .on::<Thing, _>(work)
        .retry(RETRY);
    let engine = place.start(calm(), work).await;
    until("it is a case", || async {
        place.cases("ignorant").await.len() == 1
    })
    .await;
    assert_eq!(place.effect_count().await, 0);
    engine.shutdown(Duration::from_secs(5)).await;
}

/// The server goes on with a statement whose handler was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_takes_too_long_is_not_waited_for() {
    async fn sleepy(cx: &mut Context<Postgres>, things: Vec<Thing>) -> Result<Vec<()>, Failure> {
        let is_slow = things.iter().any(|thing| thing.value == "slow");
        if is_slow {
            let query = sqlx::query("select pg_sleep(3600)");
            query.execute(cx.tx()).await?;
        }
        for thing in &things {
            record(cx, "sleepy", thing).await?;
        }
        Ok(things.iter().map(|_| ()).collect())
    }
    let place = Place::new().await;
    place
        .append_things(&[("a", "1"), ("b", "slow"), ("c", "1"), ("d", "1")])
        .await;
    let work = Subscription::new("sleepy", Semantics::EffectOnce)
        .on_batch::<Thing, _>(sleepy)
        .concurrency(1)
        .timeout_ms(200)
        .retry(RetryPolicy {
            attempts_max: 1,
            ..RETRY
        });
    let engine = place.start(calm(), work).await;
    until("the slow one is a case", || async {
        place.cases("sleepy").await.len() == 1
    })
    .await;
    place.until_effects(3).await;
    engine.shutdown(Duration::from_secs(5)).await;
}

/// A new era may be started while processes are at work: they take their lanes anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_era_is_gone_over_to_by_whoever_is_at_work() {
    let place = Place::new().await;
    place.append_things(&[("a", "1"), ("b", "1")]).await;
    let work = handler(|cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            record(cx, "work", &thing).await?;
            Ok(thing.value)
        })
    });
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(work);
    let engine = place.start(hasty(), work).await;
    place.until_effects(2).await;
    place.store.start_era().await.unwrap();
    place.append_things(&[("a", "2"), ("b", "2")]).await;
    place.until_effects(4).await;
    engine.shutdown(Duration::from_secs(5)).await;
}

/// What a process still records under the former name, nobody would find under the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_is_not_renamed_under_processes_that_work_on_it() {
    let place = Place::new().await;
    let work = |name: &str| {
        let work = handler(|cx, thing| -> Boxed<'_, _> {
            Box::pin(async move {
                record(cx, "work", &thing).await?;
                Ok(thing.value)
            })
        });
        Subscription::new(name, Semantics::EffectOnce).on::<Thing, _>(work)
    };
    let renamed = || {
        let builder = Engine::builder(place.store.clone()).options(hasty());
        builder.subscribe(work("new").renamed_from("old")).start()
    };
    let engine = place.start(hasty(), work("old")).await;
    place.append_things(&[("a", "1"), ("b", "1")]).await;
    place.until_effects(2).await;
    let Err(refused) = renamed().await else {
        panic!("it was renamed under a process at work");
    };
    assert!(refused.to_string().contains("old"), "{refused}");
    place.append_things(&[("a", "2"), ("b", "2")]).await;
    place.until_effects(4).await;
    // Like a killed process: its lease has to run out.
    drop(engine);
    until("the name is free", || async {
        let Ok(engine) = renamed().await else {
            return false;
        };
        place.append_things(&[("a", "3"), ("b", "3")]).await;
        place.until_effects(6).await;
        place.idle("new").await;
        engine.shutdown(Duration::from_secs(5)).await;
        true
    })
    .await;
    place.until_effects(6).await;
}
