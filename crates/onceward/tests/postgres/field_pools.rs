//! Field cases of connections: all of them taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onceward::core::store::Schema;
use onceward::postgres::{Options, Postgres};
use onceward::{Boxed, Engine, Semantics, Start, Subscription};

use crate::place::{Place, RETRY, Thing, calm, handler, record, thing};

#[tokio::test]
async fn ex_10_handlers_that_want_a_second_connection_from_a_small_pool_go_on() {
    let place = Place::new().await;
    let options = Options {
        effect_connections: 5,
        acquire_timeout_ms: 250,
        ..Options::default()
    };
    let store = Postgres::connect_with(place.url(), options).await.unwrap();
    let pool = store.pool().clone();
    let refused = Arc::new(AtomicU32::new(0));
    let work = {
        let refused = Arc::clone(&refused);
        handler(move |cx, thing| -> Boxed<'_, _> {
            let (pool, refused) = (pool.clone(), Arc::clone(&refused));
            Box::pin(async move {
                record(cx, "pool", &thing).await?;
                // From the pool that its own transaction is from.
                let second = sqlx::query("select 1").execute(&pool).await;
                if let Err(error) = second {
                    refused.fetch_add(1, Ordering::SeqCst);
                    return Err(error.into());
                }
                Ok(thing.value)
            })
        })
    };
    let work = Subscription::new("pool", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .batch_max(1)
        .concurrency(20)
        .retry(RETRY)
        .start(Start::Earliest);
    let messages: Vec<_> = (0..60).map(|i| thing(&format!("k{i}"), "1")).collect();
    place.append(&messages).await;
    let engine = Engine::builder(store.clone())
        .options(calm())
        .subscribe(work);
    let engine = engine.start().await.unwrap();
    let mut slowest = Duration::ZERO;
    let health = async {
        while place.effect_count().await < 60 {
            let asked = Instant::now();
            store.ping().await.unwrap();
            slowest = slowest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), health).await;
    assert!(done.is_ok(), "{} of 60", place.effect_count().await);
    place.idle("pool").await;
    assert!(
        refused.load(Ordering::SeqCst) > 0,
        "the pool was never short"
    );
    let state = engine.state();
    assert_eq!(state.leases_lost, 0, "{state:?}");
    assert!(place.cases("pool").await.is_empty(), "it is nobody's fault");
    let effects = place.effects("pool").await;
    assert!(effects.iter().all(|effect| effect.attempt == 1));
    assert!(slowest < Duration::from_secs(3), "health took {slowest:?}");
    engine.shutdown(Duration::from_secs(10)).await;
}
