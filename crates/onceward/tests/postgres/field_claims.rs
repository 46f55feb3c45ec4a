//! Field cases of claims, leases and stops: processes that die, stand still or are replaced while
//! their messages are under way.

use std::time::Duration;

use onceward::EngineOptions;
use onceward::postgres::Postgres;
use onceward::{Boxed, Context, Failure, RetryPolicy, Semantics, Subscription};
use rustix::process::Signal;
use sqlx::Connection;

use crate::outside::calling;
use crate::place::{Place, RETRY, Thing, handler, hasty, record, thing, until};
use crate::stub::{Happens, Stub};
use crate::worker::{Worker, role, stop_all, three};

/// Gates are advisory locks: a handler goes through when nobody keeps the lock.
const GATES: &str = "
create function gate(n bigint) returns void language sql as
    $$ select pg_advisory_xact_lock_shared(4200 + n) $$;
create function gate_at_commit() returns trigger language plpgsql as
    $$ begin perform public.gate(3); return null; end $$;
create constraint trigger at_commit after insert on effects
    deferrable initially deferred for each row execute function gate_at_commit()";
const BEFORE_THE_EFFECT: i64 = 1;
const AFTER_THE_EFFECT: i64 = 2;
const IN_THE_COMMIT: i64 = 3;

/// Short leases, so that a process that is gone is soon missed.
fn short() -> EngineOptions {
    EngineOptions {
        lease_ms: 700,
        ..hasty()
    }
}

async fn through_gates(cx: &mut Context<Postgres>, thing: Thing) -> Result<String, Failure> {
    sqlx::query("select gate($1)")
        .bind(BEFORE_THE_EFFECT)
        .execute(cx.tx())
        .await?;
    record(cx, "gates", &thing).await?;
    sqlx::query("select gate($1)")
        .bind(AFTER_THE_EFFECT)
        .execute(cx.tx())
        .await?;
    Ok(thing.value)
}

/// A session that keeps a gate shut.
async fn shut(place: &Place, gate: i64) -> sqlx::PgConnection {
    let mut keeper = sqlx::PgConnection::connect(place.url()).await.unwrap();
    let shut = sqlx::query("select pg_advisory_lock(4200 + $1)").bind(gate);
    shut.execute(&mut keeper).await.unwrap();
    keeper
}

async fn until_somebody_waits_at(place: &Place, gate: i64) {
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                 and database = (select oid from pg_database where datname = current_database()) \
                 and objid = 4200 + $1";
    until("a handler waits at the gate", || async {
        let waits = sqlx::query_scalar(waits).bind(gate);
        let waits: i64 = waits.fetch_one(place.pool()).await.unwrap();
        waits > 0
    })
    .await;
}

#[tokio::test]
async fn bc_05_a_kill_before_within_and_in_the_commit_leaves_one_effect_each() {
    const TEST: &str =
        "field_claims::bc_05_a_kill_before_within_and_in_the_commit_leaves_one_effect_each";
    if let Some(role) = role() {
        let work = Subscription::new("gates", Semantics::EffectOnce)
            .on::<Thing, _>(through_gates)
            .batch_max(1)
            .retry(RetryPolicy {
                attempts_max: 20,
                ..RETRY
            });
        return role.work_with(short(), work).await;
    }
    let place = Place::new().await;
    place.run(GATES).await;
    let mut worker = Worker::start(TEST, &place);
    let mut rounds = 0;
    for gate in [BEFORE_THE_EFFECT, AFTER_THE_EFFECT, IN_THE_COMMIT] {
        let keeper = shut(&place, gate).await;
        rounds += 1;
        let round = rounds.to_string();
        let messages = ["a", "b", "c"].map(|key| thing(key, &round));
        place.append(&messages).await;
        until_somebody_waits_at(&place, gate).await;
        worker.kill();
        keeper.close().await.unwrap();
        worker = Worker::start(TEST, &place);
        place.until_effects(rounds * 3).await;
    }
    place.idle("gates").await;
    assert!(place.cases("gates").await.is_empty());
    for (key, values) in place.values("gates").await {
        assert_eq!(values, ["1", "2", "3"], "key {key}");
    }
    let unclean = "select count(*) from onceward.members where not ended_cleanly";
    assert_eq!(place.count(unclean).await, 3, "each kill was noticed");
    stop_all(vec![worker], Duration::from_secs(5)).await;
}

#[tokio::test]
async fn bc_05_a_call_cut_off_by_a_kill_is_done_once_or_visibly_in_doubt() {
    const TEST: &str =
        "field_claims::bc_05_a_call_cut_off_by_a_kill_is_done_once_or_visibly_in_doubt";
    if let Some(role) = role() {
        let (address, has_probe) = role.word.rsplit_once(' ').unwrap();
        let work = calling(address.to_owned(), has_probe == "probed");
        return role.work_with(short(), work).await;
    }
    for probed in ["probed", "unprobed"] {
        let place = Place::new().await;
        let stub = Stub::start(Happens::OnArrival).await;
        stub.hold();
        let word = format!("{} {probed}", stub.address);
        let worker = Worker::start_with(TEST, &place, &word);
        let messages: Vec<_> = (0..6).map(|key| thing(&format!("k{key}"), "1")).collect();
        place.append(&messages).await;
        until("all are called", || async { stub.asked("call").len() == 6 }).await;
        worker.kill();
        stub.let_go();
        let worker = Worker::start_with(TEST, &place, &word);
        place.idle("remote").await;
        assert_eq!(stub.asked("call").len(), 6, "nobody is called twice");
        let cases = place.cases("remote").await;
        match probed {
            "probed" => assert_eq!((place.effect_count().await, cases.len()), (6, 0)),
            _ => {
                assert_eq!((place.effect_count().await, cases.len()), (0, 6));
                let in_doubt = |case: &onceward::core::store::Case| {
                    case.failure.class == onceward::Class::Ambiguous
                };
                assert!(cases.iter().all(in_doubt), "{cases:?}");
            }
        }
        stop_all(vec![worker], Duration::from_secs(5)).await;
    }
}

/// Longer than three leases, in the server, so that nothing idles.
async fn long(cx: &mut Context<Postgres>, thing: Thing) -> Result<String, Failure> {
    record(cx, "long", &thing).await?;
    if thing.value == "long" {
        sqlx::query("select pg_sleep(2.4)").execute(cx.tx()).await?;
    }
    if thing.value == "later" && cx.attempt() == 1 {
        return Err(Failure::transient("later", "not yet"));
    }
    Ok(thing.value)
}

#[tokio::test]
async fn bc_14_a_handler_longer_than_its_lease_runs_once_while_the_lease_is_renewed() {
    const TEST: &str =
        "field_claims::bc_14_a_handler_longer_than_its_lease_runs_once_while_the_lease_is_renewed";
    if let Some(role) = role() {
        let work = Subscription::new("long", Semantics::EffectOnce)
            .on::<Thing, _>(long)
            .batch_max(1)
            .concurrency(8)
            // A retry is due long after the lease would be over as well.
            .retry(RetryPolicy {
                base_ms: 1_600,
                cap_ms: 1_600,
                ..RETRY
            });
        let options = EngineOptions {
            lease_ms: 800,
            renew_ms: 50,
            ..hasty()
        };
        return role.work_with(options, work).await;
    }
    let place = Place::new().await;
    let workers = three(TEST, &place).await;
    let mut messages: Vec<_> = (0..6).map(|i| thing(&format!("l{i}"), "long")).collect();
    messages.extend((0..4).map(|i| thing(&format!("d{i}"), "later")));
    messages.extend((0..20).map(|i| thing(&format!("s{i}"), "short")));
    place.append(&messages).await;
    place.until_effects(30).await;
    place.idle("long").await;
    assert_eq!(place.effect_count().await, 30, "one effect each");
    let lost: u64 = workers.iter().map(|w| w.state().map_or(0, |s| s.2)).sum();
    for effect in place.effects("long").await {
        let attempts = if effect.value == "later" { 2 } else { 1 };
        // A machine so busy that a lease is lost all the same does not double an effect.
        assert!(lost > 0 || effect.attempt == attempts, "{effect:?}");
    }
    assert!(place.cases("long").await.is_empty());
    stop_all(workers, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn bc_14_a_worker_stopped_in_mid_handler_is_fenced_and_its_loss_is_counted() {
    const TEST: &str =
        "field_claims::bc_14_a_worker_stopped_in_mid_handler_is_fenced_and_its_loss_is_counted";
    if let Some(role) = role() {
        let work = Subscription::new("gates", Semantics::EffectOnce)
            .on::<Thing, _>(through_gates)
            .retry(RetryPolicy {
                attempts_max: 20,
                ..RETRY
            });
        return role.work_with(short(), work).await;
    }
    let place = Place::new().await;
    place.run(GATES).await;
    let stopped = Worker::start(TEST, &place);
    stopped.until_it_owns_lanes().await;
    let keeper = shut(&place, AFTER_THE_EFFECT).await;
    let messages: Vec<_> = (0..50)
        .map(|i| thing(&format!("k{}", i % 9), "1"))
        .collect();
    let messages = messages.into_iter().enumerate().map(|(i, mut message)| {
        message.id = format!("m{i}");
        message
    });
    place.append(&messages.collect::<Vec<_>>()).await;
    until_somebody_waits_at(&place, AFTER_THE_EFFECT).await;
    stopped.signal(Signal::STOP);
    let other = Worker::start(TEST, &place);
    other.until_it_owns_lanes().await;
    keeper.close().await.unwrap();
    place.until_effects(50).await;
    stopped.signal(Signal::CONT);
    until("its lost lease is counted", || async {
        stopped
            .state()
            .is_some_and(|(_, _, leases_lost)| leases_lost > 0)
    })
    .await;
    place.idle("gates").await;
    assert_eq!(place.effect_count().await, 50, "one effect each");
    let by_the_stopped = "select count(*) from effects where worker = $1";
    let by_the_stopped: i64 = sqlx::query_scalar(by_the_stopped)
        .bind(stopped.pid())
        .fetch_one(place.pool())
        .await
        .unwrap();
    assert_eq!(by_the_stopped, 0, "what it had open was not committed");
    stop_all(vec![stopped, other], Duration::from_secs(5)).await;
}

#[tokio::test]
async fn bc_19_a_rolling_restart_of_two_loses_and_doubles_nothing() {
    const TEST: &str = "field_claims::bc_19_a_rolling_restart_of_two_loses_and_doubles_nothing";
    const RESTARTS: i64 = 6;
    if let Some(role) = role() {
        let work = handler(|cx, thing| -> Boxed<'_, _> {
            Box::pin(async move {
                record(cx, "rolling", &thing).await?;
                sqlx::query("select pg_sleep(0.002)")
                    .execute(cx.tx())
                    .await?;
                Ok(thing.value)
            })
        });
        let work = Subscription::new("rolling", Semantics::EffectOnce)
            .on::<Thing, _>(work)
            .batch_max(4)
            .retry(RETRY);
        // Nobody may have to wait for a lease to run out.
        let options = EngineOptions {
            lease_ms: 60_000,
            ..hasty()
        };
        return role.work_with(options, work).await;
    }
    let place = Place::new().await;
    let mut workers = vec![Worker::start(TEST, &place), Worker::start(TEST, &place)];
    for worker in &workers {
        worker.until_it_owns_lanes().await;
    }
    let mut published: i64 = 0;
    for _ in 0..RESTARTS {
        let batch = (0..200).map(|i| {
            let number = format!("{:06}", published + i);
            thing(&format!("k{}", i % 20), &number)
        });
        place.append(&batch.collect::<Vec<_>>()).await;
        published += 200;
        let seen = place.effect_count().await;
        until("work is under way", || async {
            place.effect_count().await > seen
        })
        .await;
        stop_all(vec![workers.remove(0)], Duration::from_secs(10)).await;
        workers.push(Worker::start(TEST, &place));
        workers[1].until_it_owns_lanes().await;
    }
    place.until_effects(published).await;
    place.idle("rolling").await;
    for (key, values) in place.values("rolling").await {
        assert!(values.is_sorted_by(|a, b| a < b), "{key}: {values:?}");
    }
    let effects = place.effects("rolling").await;
    assert!(effects.iter().all(|effect| effect.attempt == 1));
    let unclean = "select count(*) from onceward.members where ended_at is not null \
                   and not ended_cleanly";
    assert_eq!(place.count(unclean).await, 0, "all handed back");
    stop_all(workers, Duration::from_secs(10)).await;
}
