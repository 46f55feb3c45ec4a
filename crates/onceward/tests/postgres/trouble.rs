//! The database in trouble: each effect once, no attempt burnt, no case.

use std::time::Duration;

use onceward::postgres::Postgres;
use onceward::{Boxed, Outbox, Running, Semantics, Subscription};
use onceward_testkit::postgres::{PostgresOptions, PostgresServer};
use sqlx::Connection;

use crate::place::{Place, RETRY, Thing, calm, handler, hasty, record, thing, until};

/// A handler that takes a moment, in small batches, so that trouble finds it at work.
fn steady(pause_ms: u64) -> Subscription<Postgres> {
    let work = handler(move |cx, thing| -> Boxed<'_, _> {
        Box::pin(async move {
            record(cx, "steady", &thing).await?;
            let pause = sqlx::query("select pg_sleep($1::float8 / 1000)").bind(pause_ms as f64);
            pause.execute(cx.tx()).await?;
            record(cx, "again", &thing).await?;
            Ok(thing.value)
        })
    });
    Subscription::new("steady", Semantics::EffectOnce)
        .on::<Thing, _>(work)
        .batch_max(8)
        .retry(RETRY)
}

fn numbered(from: usize, to: usize, keys: usize) -> Vec<onceward::Envelope> {
    let things = (from..to).map(|i| thing(&format!("k{}", i % keys), &format!("{i:05}")));
    things.collect()
}

async fn assert_untroubled(place: &Place, count: usize) {
    place.idle("steady").await;
    for half in ["steady", "again"] {
        let effects = place.effects(half).await;
        assert_eq!(effects.len(), count, "{half}");
        assert!(effects.iter().all(|effect| effect.attempt == 1));
        for (key, values) in place.values(half).await {
            assert!(values.is_sorted_by(|a, b| a < b), "{key}: {values:?}");
        }
    }
    assert!(place.cases("steady").await.is_empty());
}

async fn stop(engine: Running<Postgres>) {
    engine.shutdown(Duration::from_secs(10)).await;
}

/// Asks for the number of effects through whatever happens.
async fn until_done(url: &str, least: i64) {
    until(&format!("{least} effects"), || async {
        let Ok(mut connection) = sqlx::PgConnection::connect(url).await else {
            return false;
        };
        let count = sqlx::query_scalar("select count(*) from effects where subscription = 'again'");
        let count: Result<i64, _> = count.fetch_one(&mut connection).await;
        count.is_ok_and(|count| count >= least)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_and_crashes_in_the_middle() {
    // What was committed has to outlive the server's processes, if not the machine.
    let options = PostgresOptions::quick().with_setting("synchronous_commit", "on");
    let mut server = PostgresServer::start_with(options).await;
    let place = Place::at(server.url("postgres")).await;
    place.append(&numbered(0, 1_200, 60)).await;
    let engine = place.start(calm(), steady(4)).await;
    until_done(place.url(), 100).await;
    server.restart().await;
    until_done(place.url(), 400).await;
    server.kill().await;
    server.restart().await;
    until_done(place.url(), 1_200).await;
    assert_untroubled(&place, 1_200).await;
    stop(engine).await;
}

#[tokio::test]
async fn sessions_that_are_ended_again_and_again() {
    let place = Place::new().await;
    place.append(&numbered(0, 1_200, 60)).await;
    let engine = place.start(calm(), steady(4)).await;
    let mut judge = sqlx::PgConnection::connect(place.url()).await.unwrap();
    for round in 1..=10 {
        until_done(place.url(), round * 80).await;
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        let ended: i64 = sqlx::query_scalar(end).fetch_one(&mut judge).await.unwrap();
        assert!(ended > 1, "{ended} sessions in round {round}");
    }
    until_done(place.url(), 1_200).await;
    assert_untroubled(&place, 1_200).await;
    stop(engine).await;
}

#[tokio::test]
async fn bc_35_a_database_that_only_reads_for_a_while() {
    let place = Place::new().await;
    let engine = place.start(hasty(), steady(1)).await;
    let name: String = sqlx::query_scalar("select current_database()")
        .fetch_one(place.pool())
        .await
        .unwrap();
    // Sessions of its own choice may write all the time: messages go on arriving.
    let url = format!(
        "{}?options=-c%20default_transaction_read_only%3Doff&application_name=writer",
        place.url()
    );
    let writer = crate::place::connect(&url).await;
    let outbox = Outbox::new(writer.clone());
    let write = async |from: usize, to: usize| {
        for envelope in numbered(from, to, 20) {
            let mut tx = writer.pool().begin().await.unwrap();
            outbox.append_envelopes(&mut tx, &[envelope]).await.unwrap();
            tx.commit().await.unwrap();
        }
    };
    write(0, 150).await;
    until_done(&url, 50).await;
    let mut judge = sqlx::PgConnection::connect(&url).await.unwrap();
    let set = |value: &str| {
        let sql = format!("alter database \"{name}\" set default_transaction_read_only = {value}");
        sqlx::AssertSqlSafe(sql)
    };
    sqlx::raw_sql(set("on")).execute(&mut judge).await.unwrap();
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and application_name <> 'writer'";
    sqlx::raw_sql(end).execute(&mut judge).await.unwrap();
    write(150, 350).await;
    until("the lease has run out unrenewed", || async {
        engine.state().leases_lost > 0
    })
    .await;
    // No session is ended now: those that were opened meanwhile would only read for ever.
    sqlx::raw_sql(set("off")).execute(&mut judge).await.unwrap();
    write(350, 500).await;
    until_done(&url, 500).await;
    assert_untroubled(&place, 500).await;
    stop(engine).await;
}

const SABOTAGE: &str = "
create function sabotage() returns trigger language plpgsql as $$
begin
    if random() < 0.1 then raise sqlstate '40001'; end if;
    if random() < 0.1 then raise sqlstate '40P01'; end if;
    return null;
end $$;
do $$
declare
    target text;
begin
    foreach target in array array['ledger', 'operation_ledger', 'deferrals', 'cases',
        'positions', 'heartbeats', 'lanes', 'members']
    loop
        execute format('create trigger sabotage after insert or update or delete
            on onceward.%I for each statement execute function public.sabotage()', target);
    end loop;
end $$";

#[tokio::test]
async fn bc_17_conflicts_on_every_table_under_serializable() {
    let place = Place::new().await;
    let serializable = "do $$ begin execute format('alter database %I set \
                        default_transaction_isolation = serializable', current_database()); end $$";
    place.run(serializable).await;
    // Sessions that know of it.
    let place = place.connected_anew().await;
    let isolation: String = sqlx::query_scalar("show default_transaction_isolation")
        .fetch_one(place.pool())
        .await
        .unwrap();
    assert_eq!(isolation, "serializable");
    let engine = place.start(calm(), steady(0)).await;
    place.run(SABOTAGE).await;
    for part in numbered(0, 1_000, 5).chunks(100) {
        place.append(part).await;
    }
    until_done(place.url(), 1_000).await;
    place.run("drop function sabotage() cascade").await;
    assert_untroubled(&place, 1_000).await;
    stop(engine).await;
}

/// The last position of a burst is the one that nothing follows.
#[tokio::test]
async fn a_position_that_could_not_be_saved_is_saved_later() {
    let place = Place::new().await;
    let refuse = "create sequence refused;
        create function refuse() returns trigger language plpgsql as $$
        begin
            if nextval('refused') <= 3 then
                raise exception 'not now' using errcode = 'serialization_failure';
            end if;
            return new;
        end $$;
        create trigger refuse before insert on onceward.positions
            for each row execute function refuse()";
    sqlx::raw_sql(refuse).execute(place.pool()).await.unwrap();
    let engine = place.start(calm(), steady(1)).await;
    place.append(&numbered(0, 1, 1)).await;
    until_done(place.url(), 1).await;
    // Idle is what nothing waits for behind the saved position.
    assert_untroubled(&place, 1).await;
    let tries: i64 = sqlx::query_scalar("select last_value from refused")
        .fetch_one(place.pool())
        .await
        .unwrap();
    assert!(tries > 3, "{tries} tries");
    stop(engine).await;
}
