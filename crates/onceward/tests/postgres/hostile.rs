//! Handlers that misbehave: they idle, panic, abort the process, ignore errors, never end.

use std::time::Duration;

use onceward::core::Class;
use onceward::postgres::Postgres;
use onceward::{Context, Failure, RetryPolicy, Semantics, Subscription};
use sqlx::Connection;

use crate::place::{Place, RETRY, Thing, calm, handler, hasty, message, record, thing, until};
use crate::worker::{Worker, role, three};

/// Good messages around bad ones: `count` of them on ten keys.
fn good(count: u32) -> Vec<onceward::Envelope> {
    let good = (0..count).map(|i| thing(&format!("good{}", i % 10), &i.to_string()));
    good.collect()
}

/// Waits, outside the database, until the server has ended the session of this transaction.
async fn idle_until_ended(cx: &mut Context<Postgres>, url: &str) -> Result<(), Failure> {
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(cx.tx())
        .await?;
    let mut other = sqlx::PgConnection::connect(url).await?;
    loop {
        let is_there = "select exists (select from pg_stat_activity where pid = $1)";
        let is_there: bool = sqlx::query_scalar(is_there)
            .bind(pid)
            .fetch_one(&mut other)
            .await?;
        if !is_there {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_transaction_left_idle_past_the_lease_is_ended_and_counted() {
    let place = Place::new().await;
    // The last of a batch idles, which shows at the commit of all of them.
    place
        .append_things(&[("a", "1"), ("b", "1"), ("lazy", "at the end")])
        .await;
    let url = place.url().to_owned();
    let work = handler(move |cx, thing| {
        let url = url.clone();
        Box::pin(async move {
            record(cx, "idling", &thing).await?;
            if thing.key == "idle" || thing.key == "lazy" {
                idle_until_ended(cx, &url).await?;
            }
            if thing.key == "idle" {
                record(cx, "idling", &thing).await?;
            }
            Ok(thing.value)
        })
    });
    let work = Subscription::new("idling", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RetryPolicy {
            attempts_max: 2,
            ..RETRY
        });
    let mut options = hasty();
    options.lease_ms = 1_000;
    let engine = place.start(options, work).await;
    until("it is quarantined", || async {
        place.cases("idling").await.len() == 1
    })
    .await;
    place.until_effects(2).await;
    let mut messages = good(40);
    messages.insert(7, thing("idle", "goes on"));
    messages.insert(21, thing("lazy", "in the middle"));
    place.append(&messages).await;
    until("both others are quarantined", || async {
        place.cases("idling").await.len() == 3
    })
    .await;
    place.until_effects(42).await;
    for case in place.cases("idling").await {
        assert_eq!(case.reason, "attempts_exhausted");
        assert_eq!(case.failure.class, Class::Transient);
        assert_eq!(case.failure.code, "transaction_idle");
        assert_eq!((case.spent.failures, case.spent.deaths), (2, 0));
    }
    assert_eq!(engine.state().leases_lost, 0, "the lease itself went on");
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_message_that_kills_its_process_is_named_and_good_ones_are_done_once() {
    const TEST: &str =
        "hostile::a_message_that_kills_its_process_is_named_and_good_ones_are_done_once";
    if let Some(role) = role() {
        let deadly = handler(|cx, thing| {
            Box::pin(async move {
                record(cx, "deadly", &thing).await?;
                if thing.key == "bad" {
                    std::process::abort();
                }
                Ok(thing.value)
            })
        });
        let work = Subscription::new("deadly", Semantics::EffectOnce)
            .on::<Thing, _>(deadly)
            .retry(RETRY);
        let mut options = hasty();
        options.lease_ms = 700;
        return role.work_with(options, work).await;
    }
    let place = Place::new().await;
    let mut workers = three(TEST, &place).await;
    let mut messages = good(500);
    messages.insert(250, thing("bad", "aborts"));
    place.append(&messages).await;
    let mut restarts = 0;
    while place.cases("deadly").await.is_empty() {
        until("a process dies, or the message is named", || {
            let has_died = workers.iter_mut().any(Worker::has_ended);
            let place = &place;
            async move { has_died || !place.cases("deadly").await.is_empty() }
        })
        .await;
        for worker in &mut workers {
            if worker.has_ended() {
                *worker = Worker::start(TEST, &place);
                restarts += 1;
            }
        }
        assert!(restarts < 20, "it never ends");
    }
    place.until_effects(500).await;
    let cases = place.cases("deadly").await;
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].row.envelope.id, "bad-aborts");
    assert_eq!(cases[0].reason, "worker_died");
    assert_eq!((cases[0].spent.failures, cases[0].spent.deaths), (0, 3));
    assert!((3..=5).contains(&restarts), "{restarts} deaths");
    // Nothing is left of it: later messages of its key go on.
    place
        .append_things(&[("bad10", "1"), ("good1", "last")])
        .await;
    place.until_effects(502).await;
    for (key, values) in place.values("deadly").await {
        if key == "good1" {
            assert_eq!(values.last().map(String::as_str), Some("last"));
        }
        let numbers: Vec<u32> = values.iter().filter_map(|v| v.parse().ok()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{key}: {numbers:?}");
    }
}

#[tokio::test]
async fn ex_02_panics_are_failed_attempts_with_their_text() {
    let place = Place::new().await;
    let mut messages = good(100);
    messages.insert(10, thing("text", "panics"));
    messages.insert(40, thing("number", "panics"));
    messages.insert(60, thing("spawned", "panics"));
    messages.insert(70, thing("once", "panics at first"));
    place.append(&messages).await;
    let work = handler(|cx, thing| {
        Box::pin(async move {
            record(cx, "panics", &thing).await?;
            match thing.key.as_str() {
                "text" => panic!("as asked by {}", thing.value),
                "number" => std::panic::panic_any(42),
                "spawned" => tokio::spawn(async { panic!("far away") }).await?,
                "once" if cx.attempt() == 1 => panic!("only once"),
                _ => Ok(thing.value),
            }
        })
    });
    let work = Subscription::new("panics", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RETRY);
    let engine = place.start(calm(), work).await;
    until("three are quarantined", || async {
        place.cases("panics").await.len() == 3
    })
    .await;
    place.until_effects(101).await;
    for case in place.cases("panics").await {
        assert_eq!(case.reason, "attempts_exhausted");
        assert_eq!(case.spent.failures, 3, "{}", case.row.envelope.id);
        let detail = case.failure.detail.unwrap();
        let (code, text) = match case.row.envelope.aggregate_id.as_str() {
            "text" => ("panicked", "as asked by panics"),
            "number" => ("panicked", "a panic without a text"),
            _ => ("unclassified", "panicked"),
        };
        assert_eq!(case.failure.code, code);
        assert!(detail.contains(text), "{detail}");
    }
    let once = place.effects("panics").await;
    let once = once.iter().find(|effect| effect.key == "once").unwrap();
    assert_eq!(once.attempt, 2);
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_handler_that_ignores_a_database_error_fails_alone() {
    let place = Place::new().await;
    let mut messages = good(50);
    messages.insert(5, thing("deaf", "ignores"));
    messages.insert(30, thing("slow", "times out"));
    place.append(&messages).await;
    let work = handler(|cx, thing| {
        Box::pin(async move {
            record(cx, "deaf", &thing).await?;
            match thing.key.as_str() {
                "deaf" => {
                    let _ = sqlx::query("select 1 / 0").execute(cx.tx()).await;
                }
                "slow" => {
                    let slow = "set local statement_timeout = 20; select pg_sleep(10)";
                    sqlx::raw_sql(slow).execute(cx.tx()).await?;
                }
                _ => {}
            }
            Ok(thing.value)
        })
    });
    let work = Subscription::new("deaf", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RETRY);
    let engine = place.start(calm(), work).await;
    until("both are quarantined", || async {
        place.cases("deaf").await.len() == 2
    })
    .await;
    place.until_effects(50).await;
    for case in place.cases("deaf").await {
        assert_eq!(case.spent.failures, 3, "{case:?}");
        assert_eq!(case.failure.class, Class::Transient);
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_conflict_that_lasts_stops_nobody_else_and_burns_no_attempt() {
    let place = Place::new().await;
    place.run("insert into counters values ('row', 1)").await;
    let mut owner = sqlx::PgConnection::connect(place.url()).await.unwrap();
    let mut tx = owner.begin().await.unwrap();
    sqlx::query("select n from counters where key = 'row' for update")
        .execute(&mut *tx)
        .await
        .unwrap();
    let mut messages = good(60);
    messages.insert(0, thing("a locked row", "1"));
    messages.insert(30, thing("a locked row", "2"));
    place.append(&messages).await;
    let work = handler(|cx, thing| {
        Box::pin(async move {
            record(cx, "locks", &thing).await?;
            if thing.key == "a locked row" {
                let want = "select n from counters where key = 'row' for update nowait";
                sqlx::query(want).execute(cx.tx()).await?;
            }
            Ok(thing.value)
        })
    });
    let work = Subscription::new("locks", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RETRY);
    let engine = place.start(calm(), work).await;
    place.until_effects(60).await;
    tx.rollback().await.unwrap();
    place.until_effects(62).await;
    assert_eq!(place.values("locks").await["a locked row"], ["1", "2"]);
    let effects = place.effects("locks").await;
    assert!(
        effects.iter().all(|effect| effect.attempt == 1),
        "{effects:?}"
    );
    assert!(place.cases("locks").await.is_empty());
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn bc_12_cancelled_handlers_leave_no_transaction_behind() {
    let place = Place::new().await;
    let timeouts: [(&'static str, u64); 5] =
        [("t1", 1), ("t2", 3), ("t3", 10), ("t4", 25), ("t5", 60)];
    let mut messages = Vec::new();
    for i in 0..60 {
        messages.push(message(
            &i.to_string(),
            "thing.done",
            &format!("k{}", i % 20),
            "x",
        ));
    }
    place.append(&messages).await;
    let mut engine = onceward::Engine::builder(place.store.clone()).options(calm());
    for (name, timeout_ms) in timeouts {
        let work = handler(move |cx, thing| {
            Box::pin(async move {
                record(cx, name, &thing).await?;
                for _ in 0..8 {
                    sqlx::query("select pg_sleep(0.004)")
                        .execute(cx.tx())
                        .await?;
                }
                // A transaction that would otherwise stay idle.
                std::future::pending().await
            })
        });
        let work = Subscription::new(name, Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .timeout_ms(timeout_ms)
            .start(onceward::Start::Earliest)
            .retry(RetryPolicy {
                attempts_max: 2,
                ..RETRY
            });
        engine = engine.subscribe(work);
    }
    let engine = engine.start().await.unwrap();
    until("everything has timed out twice", || async {
        place.count("select count(*) from onceward.cases").await == 300
    })
    .await;
    assert_eq!(place.effect_count().await, 0);
    let timed_out = "select count(*) from onceward.cases \
                     where failures = 2 and failure::json ->> 'code' = 'timed_out'";
    assert_eq!(place.count(timed_out).await, 300);
    // Ordinary work on the same pool is not caught in what was cancelled.
    for i in 0..100 {
        let sql = "insert into effects (subscription, key, value, attempt, worker) \
                   values ('plain', 'k', $1, 1, 0)";
        let insert = sqlx::query(sql).bind(i.to_string());
        insert.execute(place.pool()).await.unwrap();
    }
    let mut outside = sqlx::PgConnection::connect(place.url()).await.unwrap();
    let seen: i64 = sqlx::query_scalar("select count(*) from effects")
        .fetch_one(&mut outside)
        .await
        .unwrap();
    assert_eq!(seen, 100);
    until("no session is left in a transaction", || async {
        let idle = "select count(*) from pg_stat_activity \
                    where datname = current_database() and state like 'idle in transaction%'";
        place.count(idle).await == 0
    })
    .await;
    engine.shutdown(Duration::from_secs(5)).await;
}
