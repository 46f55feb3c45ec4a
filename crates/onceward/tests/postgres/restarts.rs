//! Stopping and starting again: what was in flight, what was deferred.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::postgres::Postgres;
use onceward::{Boxed, Failure, RetryPolicy, Semantics, Subscription};
use tokio::sync::Semaphore;

use crate::place::{Place, RETRY, Thing, calm, handler, hasty, record, thing, until};

#[tokio::test]
async fn a_deferral_and_its_budget_survive_restarts_and_a_crash() {
    let place = Place::new().await;
    let tried = Arc::new(Mutex::new(Vec::new()));
    let work = || {
        let tried = Arc::clone(&tried);
        let work = handler(move |cx, thing| -> Boxed<'_, _> {
            let tried = Arc::clone(&tried);
            Box::pin(async move {
                if thing.key == "fine" {
                    record(cx, "retries", &thing).await?;
                    return Ok(thing.value);
                }
                tried.lock().unwrap().push(cx.attempt());
                Err(Failure::transient("busy", "never free"))
            })
        });
        Subscription::new("retries", Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .retry(RetryPolicy {
                base_ms: 300,
                cap_ms: 300,
                factor: 1.0,
                attempts_max: 7,
                ..RETRY
            })
    };
    place
        .append_things(&[("busy", "1"), ("busy", "2"), ("fine", "1")])
        .await;
    let has_failed = async |times: u32| {
        until("the next failure is kept", || async {
            let failures = "select coalesce(max(failures), 0) from onceward.deferrals";
            place.count(failures).await >= i64::from(times)
        })
        .await;
    };
    let engine = place.start(hasty(), work()).await;
    has_failed(2).await;
    engine.shutdown(Duration::from_secs(5)).await;
    let engine = place.start(hasty(), work()).await;
    has_failed(4).await;
    // Without a word, like a killed process.
    drop(engine);
    let engine = place.start(hasty(), work()).await;
    until("the budget of both is used up", || async {
        place.cases("retries").await.len() == 2
    })
    .await;
    for case in place.cases("retries").await {
        assert_eq!(case.reason, "attempts_exhausted");
        assert_eq!((case.spent.failures, case.spent.deaths), (7, 0));
        assert!(case.first_deferred_at.is_some());
    }
    let mut tried = tried.lock().unwrap().clone();
    // What the crash cut off was tried again under the same number.
    tried.dedup();
    let once: Vec<u32> = (1..=7).collect();
    assert_eq!(tried, [once.clone(), once].concat(), "one after the other");
    place.until_effects(1).await;
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Ten messages that end when told, one that ends when told later, and quick ones.
fn busy(
    running: &Arc<AtomicU32>,
    short: &Arc<Semaphore>,
    long: &Arc<Semaphore>,
) -> Subscription<Postgres> {
    let (running, short, long) = (Arc::clone(running), Arc::clone(short), Arc::clone(long));
    let work = handler(move |cx, thing| -> Boxed<'_, _> {
        let (running, short, long) = (Arc::clone(&running), Arc::clone(&short), Arc::clone(&long));
        Box::pin(async move {
            record(cx, "busy", &thing).await?;
            running.fetch_add(1, Ordering::SeqCst);
            match thing.value.as_str() {
                "short" => drop(short.acquire().await?),
                "long" => drop(long.acquire().await?),
                _ => {}
            }
            Ok(thing.value)
        })
    });
    Subscription::new("busy", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .batch_max(1)
        .concurrency(12)
        .retry(RETRY)
}

#[tokio::test]
async fn bc_19_a_stop_waits_for_short_work_and_hands_long_work_back_within_its_grace() {
    const GRACE: Duration = Duration::from_secs(2);
    let place = Place::new().await;
    let running = Arc::new(AtomicU32::new(0));
    let (short, long) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let mut messages: Vec<_> = (0..10).map(|i| thing(&format!("s{i}"), "short")).collect();
    messages.push(thing("long", "long"));
    place.append(&messages).await;
    let engine = place.start(calm(), busy(&running, &short, &long)).await;
    until("eleven handlers run", || async {
        running.load(Ordering::SeqCst) == 11
    })
    .await;
    let is_over = AtomicBool::new(false);
    let publishing = async {
        let mut published = 0;
        while !is_over.load(Ordering::SeqCst) {
            let number = format!("{published:05}");
            place
                .append(&[thing("more", &number), thing("s1", &number)])
                .await;
            published += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        published
    };
    let stopping = async {
        let since = Instant::now();
        let stopped = engine.shutdown(GRACE);
        let release = async {
            short.add_permits(10);
            until("the short ones are done", || async {
                let short = "select count(*) from effects where value = 'short'";
                place.count(short).await == 10
            })
            .await;
        };
        tokio::join!(stopped, release);
        is_over.store(true, Ordering::SeqCst);
        since.elapsed()
    };
    let (published, elapsed) = tokio::join!(publishing, stopping);
    assert!(elapsed < GRACE + Duration::from_secs(3), "{elapsed:?}");
    let values = place.values("busy").await;
    assert!(!values.contains_key("long"), "it was cut off");
    let open = "select count(*) from pg_stat_activity \
                where datname = current_database() and state like 'idle in transaction%'";
    until("its transaction is gone", || async {
        place.count(open).await == 0
    })
    .await;
    // Its lanes are free at once: nobody waits for a lease of twenty seconds.
    let since = Instant::now();
    long.add_permits(1);
    let engine = place.start(calm(), busy(&running, &short, &long)).await;
    place.until_effects(11 + 2 * published).await;
    assert!(since.elapsed() < Duration::from_secs(15));
    let effects = place.effects("busy").await;
    assert!(
        effects.iter().all(|effect| effect.attempt == 1),
        "{effects:?}"
    );
    let values = place.values("busy").await;
    assert_eq!(values["long"], ["long"]);
    let numbers: Vec<_> = (0..published).map(|i| format!("{i:05}")).collect();
    assert_eq!(values["more"], numbers);
    assert_eq!(values["s1"][1..], numbers);
    // With nothing to do it stops long before its grace is over.
    place.idle("busy").await;
    let since = Instant::now();
    engine.shutdown(Duration::from_secs(60)).await;
    assert!(since.elapsed() < Duration::from_secs(5));
}
