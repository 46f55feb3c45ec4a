//! Field cases of time, quiet and room: clocks that change, nothing to do, a full disk, roles and
//! search paths that are not the usual ones.

use std::time::Duration;

use onceward::postgres::Postgres;
use onceward::{Boxed, EngineOptions, Outbox, Semantics, Subscription};
use onceward_testkit::postgres::{PostgresOptions, PostgresServer};
use sqlx::Connection;
use tokio::net::TcpListener;

use crate::place::{Place, RETRY, Thing, calm, handler, record, thing, until};

fn plain(name: &'static str) -> Subscription<Postgres> {
    let work = handler(move |cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            record(cx, name, &thing).await?;
            Ok(thing.value)
        })
    });
    Subscription::new(name, Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RETRY)
}

/// Usual settings of an engine, without upkeep, which has its own rhythm.
fn usual() -> EngineOptions {
    EngineOptions {
        retention: None,
        ..EngineOptions::default()
    }
}

/// A crash of the server takes the numbers with it that were drawn and not committed; nobody waits
/// for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_30_numbers_lost_in_a_crash_and_forgotten_transactions_hold_nothing_up() {
    let options = PostgresOptions::quick().with_setting("synchronous_commit", "on");
    let mut server = PostgresServer::start_with(options).await;
    let place = Place::at(server.url("postgres")).await;
    let engine = place.start(calm(), plain("holes")).await;
    let mut forgotten = sqlx::PgConnection::connect(place.url()).await.unwrap();
    let leave_open = "begin; insert into counters values ('forgotten', 1)";
    sqlx::raw_sql(leave_open)
        .execute(&mut forgotten)
        .await
        .unwrap();
    let outbox = Outbox::new(place.store.clone());
    for round in 0..2 {
        // Drawn, never committed.
        let mut open = sqlx::PgConnection::connect(place.url()).await.unwrap();
        sqlx::raw_sql("begin").execute(&mut open).await.unwrap();
        let lost = [thing("lost", &format!("{round}"))];
        outbox.append_envelopes(&mut open, &lost).await.unwrap();
        let messages = (0..50).map(|i| thing(&format!("k{}", i % 7), &format!("{round}-{i:02}")));
        place.append(&messages.collect::<Vec<_>>()).await;
        place.until_effects((round + 1) * 50).await;
        if round == 0 {
            server.kill().await;
            server.restart().await;
            until("the server is back", || async {
                sqlx::query("select 1").execute(place.pool()).await.is_ok()
            })
            .await;
        }
    }
    assert!(!place.values("holes").await.contains_key("lost"));
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let usage = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name, which may hold spaces: user and system time are the 14th and 15th fields.
    let fields: Vec<&str> = usage
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[tokio::test]
async fn ex_20_nothing_to_do_costs_a_few_questions_and_no_database_costs_a_few_knocks() {
    const LOOKED: Duration = Duration::from_secs(4);
    let mut server = PostgresServer::start_with(PostgresOptions::quick()).await;
    let place = Place::at(server.url("postgres")).await;
    let engine = place.start(usual(), plain("quiet")).await;
    place.append(&[thing("a", "1")]).await;
    place.until_effects(1).await;
    place.idle("quiet").await;
    let seen = async || -> i64 {
        let sql = "select (xact_commit + xact_rollback)::bigint from pg_stat_database \
                   where datname = current_database()";
        sqlx::query_scalar(sql)
            .fetch_one(place.pool())
            .await
            .unwrap()
    };
    let look = async || -> (f64, f64) {
        let (before, used, since) = (seen().await, processor_time(), std::time::Instant::now());
        tokio::time::sleep(LOOKED).await;
        let (asked, used) = (seen().await - before, processor_time() - used);
        let seconds = since.elapsed().as_secs_f64();
        (asked as f64 / seconds, used.as_secs_f64() / seconds)
    };
    // The server counts what was asked before a little later, the later the busier it is.
    let mut looks = Vec::new();
    let is_quiet = |(asked, used): &(f64, f64)| *asked < 25.0 && *used < 0.15;
    while looks.len() < 3 && !looks.last().is_some_and(is_quiet) {
        looks.push(look().await);
    }
    let is_any_quiet = looks.last().is_some_and(is_quiet);
    assert!(
        is_any_quiet,
        "questions a second and share of a processor: {looks:?}"
    );
    // And all the same it is quick when work comes.
    place.append(&[thing("a", "2")]).await;
    place.until_effects(2).await;

    let port = server.port();
    server.stop().await;
    let door = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let used = processor_time();
    let mut knocks = 0;
    let count = async {
        loop {
            // Everybody who knocks is sent away at once.
            drop(door.accept().await.unwrap());
            knocks += 1;
        }
    };
    let _: Result<(), _> = tokio::time::timeout(LOOKED, count).await;
    let used = processor_time() - used;
    assert!(knocks > 0, "it tries again");
    assert!(knocks < 200, "{knocks} knocks in {LOOKED:?}");
    assert!(used < LOOKED / 6, "{used:?} of processor time");
    drop(door);
    server.restart().await;
    let back = crate::place::connect(place.url()).await;
    let outbox = Outbox::new(back.clone());
    let mut tx = back.pool().begin().await.unwrap();
    outbox
        .append_envelopes(&mut tx, &[thing("a", "3")])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    until("it goes on", || async {
        let count = sqlx::query_scalar("select count(*) from effects");
        let count: Result<i64, _> = count.fetch_one(back.pool()).await;
        count.is_ok_and(|count| count == 3)
    })
    .await;
    engine.shutdown(Duration::from_secs(5)).await;
}
