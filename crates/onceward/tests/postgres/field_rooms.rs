//! Field cases of room and order: a full disk, rights and search paths, rows in opposite order,
//! handlers that panic at once.

use std::time::Duration;

use onceward::core::store::{Append, Retention, StoreErrorKind, Upkeep};
use onceward::postgres::Postgres;
use onceward::{Boxed, Engine, EngineOptions, Envelope, Payload, Semantics, Start, Subscription};
use onceward_testkit::postgres::{PostgresOptions, PostgresServer};
use sqlx::Connection;
use sqlx::postgres::PgConnectOptions;

use crate::place::{Place, RETRY, Thing, calm, handler, message, record, thing, until};
use crate::volume::Volume;

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

/// Appends large messages until the disk is full; returns how many were confirmed, and how the
/// first that was not was refused.
async fn append_until_refused(place: &Place, from: usize) -> (usize, StoreErrorKind) {
    for n in from.. {
        let number = format!("{n:05}");
        let mut large: Envelope = thing(&format!("k{}", n % 5), &number);
        // Text that does not become smaller.
        let noise: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
        let payload = serde_json::json!({ "key": large.aggregate_id, "value": number, "x": noise });
        large.payload = Payload::Json(payload.to_string().into());
        let appended = async {
            let mut tx = place.pool().begin().await?;
            let appended = place.store.append(&mut tx, &[large]).await;
            appended.map_err(|error| sqlx::Error::AnyDriverError(Box::new(error)))?;
            tx.commit().await
        };
        if let Err(error) = appended.await {
            let kind = match &error {
                sqlx::Error::AnyDriverError(inner) => inner
                    .downcast_ref::<onceward::core::store::StoreError>()
                    .map(onceward::core::store::StoreError::kind),
                other => place.store.classify(other),
            };
            return (n, kind.unwrap());
        }
        assert!(n < 4_000, "the disk does not fill");
    }
    unreachable!("it ends by returning")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_17_a_full_disk_refuses_producers_and_work_goes_on_when_there_is_room() {
    let server = PostgresServer::start_with(PostgresOptions::quick()).await;
    let volume = Volume::mount(48);
    volume.belongs_with(&server.data_folder());
    let mut admin = sqlx::PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    let location = volume.path().display().to_string();
    let tablespace = format!("create tablespace small location '{location}'");
    for sql in [
        tablespace.as_str(),
        "create database small tablespace small",
    ] {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    }
    let place = Place::at(server.url("small")).await;
    let engine = place.start(calm(), plain("room")).await;
    place.append(&[thing("k0", "first")]).await;
    place.until_effects(1).await;
    volume.fill();
    let (confirmed, refusal) = append_until_refused(&place, 0).await;
    assert_eq!(refusal, StoreErrorKind::Full, "after {confirmed}");
    let log = server.data_folder().with_file_name("log");
    let complaints = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().filter(|line| line.contains("ERROR:")).count()
    };
    let before = complaints();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let tries = complaints() - before;
    assert!(tries < 60, "{tries} tries in three seconds without room");
    volume.free();
    place.until_effects(1 + confirmed as i64).await;
    let (more, _) = (confirmed, place.append(&[thing("k0", "last")]).await);
    place.until_effects(2 + more as i64).await;
    place.idle("room").await;
    assert!(place.cases("room").await.is_empty());
    let effects = place.effects("room").await;
    assert!(effects.iter().all(|effect| effect.attempt == 1));
    assert_eq!(engine.state().leases_lost, 0);
    engine.shutdown(Duration::from_secs(5)).await;
    place.store.close().await;
}

/// The tables live in one schema of a fixed name, whatever the search path is; the service's own
/// may be called anything, and hold tables of the same names.
#[tokio::test]
async fn ex_26_a_role_that_owns_nothing_works_beside_tables_of_the_same_names() {
    let place = Place::new().await;
    let other = r#"
        create schema "Mixed-Case q";
        set search_path = "Mixed-Case q";
        create table outbox (like public.effects); create table ledger (n int);
        create table deferrals (n int); create table members (n int); create table lanes (n int);
        create table positions (n int); create table meta (n int);
        create table effects (like public.effects including all);
        create function micros(timestamptz) returns bigint language sql as 'select 1/0';
        create function slot(text) returns int language sql as 'select 1/0';
        -- The session goes back to its pool.
        reset search_path;"#;
    place.run(other).await;
    let grants = onceward::postgres::grants_sql();
    let mut owner = sqlx::PgConnection::connect(place.url()).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(grants.to_owned()))
        .execute(&mut owner)
        .await
        .unwrap();
    let rights = r#"
        grant usage on schema "Mixed-Case q" to onceward_worker;
        grant all on all tables in schema "Mixed-Case q" to onceward_worker;
        grant all on all sequences in schema "Mixed-Case q" to onceward_worker;
        grant usage on sequence public.effects_n_seq to onceward_worker"#;
    sqlx::raw_sql(rights).execute(&mut owner).await.unwrap();
    // Declared by the owner, as at deployment.
    let engine = place.start(calm(), plain("mixed")).await;
    engine.shutdown(Duration::from_secs(5)).await;
    let options: PgConnectOptions = place.url().parse().unwrap();
    let options = options.options([
        ("role", "onceward_worker"),
        ("search_path", r#""Mixed-Case q",pg_catalog"#),
    ]);
    let store = Postgres::from_pool(sqlx::PgPool::connect_lazy_with(options));
    let path: String = sqlx::query_scalar("show search_path")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(path, r#""Mixed-Case q",pg_catalog"#);
    let engine = Engine::builder(store.clone())
        .options(EngineOptions {
            retention: None,
            ..calm()
        })
        .subscribe(plain("mixed").start(Start::Earliest));
    let engine = engine.start().await.unwrap();
    let mut tx = store.pool().begin().await.unwrap();
    let messages = ["a", "b", "a"].iter().enumerate();
    let messages: Vec<_> = messages
        .map(|(n, key)| message(&n.to_string(), "thing.done", key, &n.to_string()))
        .collect();
    store.append(&mut tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
    until(
        "all three have their effect, in the schema of the path",
        || async {
            place
                .count(r#"select count(*) from "Mixed-Case q".effects"#)
                .await
                == 3
        },
    )
    .await;
    place.idle("mixed").await;
    assert_eq!(place.effect_count().await, 0, "and nowhere else");
    let untouched = r#"select (select count(*) from "Mixed-Case q".outbox)
        + (select count(*) from "Mixed-Case q".ledger)
        + (select count(*) from "Mixed-Case q".members)"#;
    assert_eq!(place.count(untouched).await, 0);
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Both change the same fifty rows, one from the first to the last, the other from the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_09_workers_that_meet_in_opposite_order_are_retried_quietly() {
    let place = Place::new().await;
    // A deadlock is looked for after this.
    let soon = "do $$ begin execute format('alter database %I set deadlock_timeout = 20', \
                current_database()); end $$";
    place.run(soon).await;
    let place = place.connected_anew().await;
    place
        .run("insert into counters select 'r' || lpad(g::text, 2, '0'), 0 from generate_series(0, 49) g")
        .await;
    let both_ways = |name: &'static str, forward: bool| {
        let work = handler(move |cx, thing| -> Boxed<'_, _> {
            Box::pin(async move {
                for n in 0..50 {
                    let row = if forward { n } else { 49 - n };
                    sqlx::query("update counters set n = n + 1 where key = $1")
                        .bind(format!("r{row:02}"))
                        .execute(cx.tx())
                        .await?;
                }
                record(cx, name, &thing).await?;
                Ok(thing.value)
            })
        });
        Subscription::new(name, Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .batch_max(1)
            .concurrency(1)
            .start(Start::Earliest)
            .retry(RETRY)
    };
    let messages: Vec<_> = (0..14).map(|i| thing(&format!("k{i}"), "1")).collect();
    place.append(&messages).await;
    let engine = Engine::builder(place.store.clone())
        .options(calm())
        .subscribe(both_ways("up", true))
        .subscribe(both_ways("down", false));
    let engine = engine.start().await.unwrap();
    let cleaning = async {
        loop {
            place.store.tidy(Retention::default()).await.unwrap();
        }
    };
    tokio::select! {
        () = place.until_effects(28) => {}
        () = cleaning => {}
    }
    place.idle("up").await;
    place.idle("down").await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    until("the server has counted its deadlocks", || async {
        place.count(deadlocks).await > 0
    })
    .await;
    assert_eq!(place.effect_count().await, 28);
    assert_eq!(
        place
            .count("select count(*) from counters where n <> 28")
            .await,
        0,
        "what a lost deadlock had done was undone"
    );
    for name in ["up", "down"] {
        assert!(place.cases(name).await.is_empty());
        let effects = place.effects(name).await;
        assert!(
            effects.iter().all(|effect| effect.attempt == 1),
            "{effects:?}"
        );
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Not every handler is an async block: this one panics while it makes its future.
#[tokio::test]
async fn ex_02_a_panic_before_the_first_wait_is_a_failed_attempt_like_any_other() {
    let place = Place::new().await;
    let mut messages: Vec<_> = (0..40)
        .map(|i| thing(&format!("g{}", i % 9), &i.to_string()))
        .collect();
    messages.insert(11, thing("bad", "at once"));
    place.append(&messages).await;
    let work = handler(|cx, thing| -> Boxed<'_, _> {
        assert!(thing.key != "bad", "panics at once");
        Box::pin(async move {
            record(cx, "sudden", &thing).await?;
            Ok(thing.value)
        })
    });
    let work = Subscription::new("sudden", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .retry(RETRY);
    let engine = place.start(calm(), work).await;
    until("it is quarantined", || async {
        place.cases("sudden").await.len() == 1
    })
    .await;
    place.until_effects(40).await;
    let cases = place.cases("sudden").await;
    assert_eq!(cases[0].failure.code, "panicked");
    assert_eq!((cases[0].spent.failures, cases[0].spent.deaths), (3, 0));
    assert_eq!(cases[0].failure.detail.as_deref(), Some("panics at once"));
    assert_eq!(engine.state().leases_lost, 0);
    engine.shutdown(Duration::from_secs(5)).await;
}
