//! Several processes: killed, frozen, restarted.

use std::time::Duration;

use onceward::core::store::Append;
use onceward::postgres::Postgres;
use onceward::{Context, Failure, RetryPolicy, Semantics, Subscription};
use rustix::process::Signal;
use sqlx::Connection;

use crate::place::{Place, Thing, record, thing, until};
use crate::worker::{Worker, role, stop_all, three};

const LANES: u16 = 16;
/// Advisory lock that holds handlers up.
const GATE: i64 = 77;

/// Kills count against a message only where it ran alone, so the usual budget is plenty.
const BUDGET: RetryPolicy = RetryPolicy {
    base_ms: 10,
    cap_ms: 100,
    factor: 2.0,
    attempts_max: 12,
    age_max_ms: 600_000,
};

async fn busy(cx: &mut Context<Postgres>, thing: Thing) -> Result<String, Failure> {
    record(cx, "fleet", &thing).await?;
    sqlx::query("select pg_sleep(0.0003)")
        .execute(cx.tx())
        .await?;
    Ok(thing.value)
}

/// A writer that draws numbers per key under a row lock, so that the order of a key's commits is
/// the order of its numbers; it pauses between append and commit and rolls some back.
async fn write(place: &Place, seed: u64, transactions: u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut connection = sqlx::PgConnection::connect(place.url()).await.unwrap();
    for _ in 0..transactions {
        let mut tx = connection.begin().await.unwrap();
        let key = format!("k{}", random.u32(..48));
        let mut envelopes = Vec::new();
        for _ in 0..random.u32(1..4) {
            let sql = "insert into counters (key, n) values ($1, 1) \
                       on conflict (key) do update set n = counters.n + 1 returning n";
            let number: i64 = sqlx::query_scalar(sql)
                .bind(&key)
                .fetch_one(&mut *tx)
                .await
                .unwrap();
            envelopes.push(thing(&key, &number.to_string()));
        }
        place.store.append(&mut tx, &envelopes).await.unwrap();
        if random.u32(..4) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..12))).await;
        }
        match random.u32(..10) {
            0 => tx.rollback().await.unwrap(),
            _ => tx.commit().await.unwrap(),
        }
    }
}

/// Every number of every key has one effect, in order.
async fn assert_once_and_in_order(place: &Place) {
    let counters: Vec<(String, i64)> = sqlx::query_as("select key, n from counters")
        .fetch_all(place.pool())
        .await
        .unwrap();
    let mut values = place.values("fleet").await;
    for (key, last) in counters {
        let expected: Vec<String> = (1..=last).map(|n| n.to_string()).collect();
        assert_eq!(
            values.remove(&key).unwrap_or_default(),
            expected,
            "key {key}"
        );
    }
    assert!(
        values.is_empty(),
        "effects of what was rolled back: {values:?}"
    );
    let ledger = place.count("select count(*) from onceward.ledger").await;
    assert_eq!(
        ledger,
        place.effect_count().await,
        "a ledger row for each effect"
    );
    assert_eq!(
        place.count("select count(*) from onceward.deferrals").await,
        0
    );
    assert!(place.cases("fleet").await.is_empty());
}

/// Lanes that a process owns, by its process id in the member's description.
async fn lanes_of(place: &Place, pid: i32) -> i64 {
    let sql = "select count(*) from onceward.lanes l join onceward.members m on m.member = l.owner \
               where m.description = 'onceward process ' || $1";
    sqlx::query_scalar(sql)
        .bind(pid)
        .fetch_one(place.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn one_effect_each_in_key_order_while_workers_are_killed() {
    const TEST: &str = "fleet::one_effect_each_in_key_order_while_workers_are_killed";
    const KILLS: u32 = 6;
    let work = || {
        Subscription::new("fleet", Semantics::EffectOnce)
            .on::<Thing, _>(busy)
            .lanes(LANES)
            .retry(BUDGET)
    };
    if let Some(role) = role() {
        return role.work(work()).await;
    }
    let place = Place::new().await;
    let mut workers = three(TEST, &place).await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let writers = async {
        let all = (0..10).map(|writer| write(&place, seed ^ writer, 220));
        futures_util::future::join_all(all).await;
    };
    let kills = async {
        for _ in 0..KILLS {
            let seen = place.effect_count().await;
            let more = random.i64(50..400);
            until("work goes on", || async {
                place.effect_count().await >= seen + more
            })
            .await;
            let victim = random.usize(..workers.len());
            workers[victim].until_it_owns_lanes().await;
            workers.swap_remove(victim).kill();
            workers.push(Worker::start(TEST, &place));
        }
    };
    tokio::join!(writers, kills);
    let expected = place.count("select sum(n)::bigint from counters").await;
    assert!(expected > 2_000, "{expected} messages");
    until("everything is done", || async {
        place.effect_count().await >= expected
    })
    .await;
    place.idle("fleet").await;
    assert_once_and_in_order(&place).await;
    let unclean = "select count(*) from onceward.members where not ended_cleanly";
    assert!(place.count(unclean).await > 0, "the kills were noticed");
    stop_all(workers, Duration::from_secs(10)).await;
}

/// Waits at the gate inside its transaction: in the server, so that the session is busy, or in the
/// process, so that the transaction idles.
async fn gated(cx: &mut Context<Postgres>, thing: Thing) -> Result<String, Failure> {
    record(cx, "fleet", &thing).await?;
    match thing.value.as_str() {
        "2" => {
            let wait = sqlx::query("select pg_advisory_xact_lock_shared($1)").bind(GATE);
            wait.execute(cx.tx()).await?;
        }
        "4" => {
            let url = std::env::var("ONCEWARD_TEST_WORKER_URL").unwrap();
            let mut other = sqlx::PgConnection::connect(&url).await?;
            let wait = sqlx::query("select pg_advisory_lock_shared($1)").bind(GATE);
            wait.execute(&mut other).await?;
        }
        _ => {}
    }
    Ok(thing.value)
}

async fn member_of(place: &Place, pid: i32) -> String {
    let sql = "select member from onceward.members \
               where description = 'onceward process ' || $1 and ended_at is null";
    sqlx::query_scalar(sql)
        .bind(pid)
        .fetch_one(place.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_process_frozen_past_its_lease_doubles_nothing_and_moves_no_position() {
    const TEST: &str =
        "fleet::a_process_frozen_past_its_lease_doubles_nothing_and_moves_no_position";
    const KEYS: i64 = 48;
    if let Some(role) = role() {
        let work = Subscription::new("fleet", Semantics::EffectOnce)
            .on::<Thing, _>(gated)
            .lanes(LANES)
            .batch_max(3)
            .concurrency(4)
            .retry(BUDGET);
        return role.work(work).await;
    }
    let place = Place::new().await;
    let workers = three(TEST, &place).await;
    let frozen = &workers[0];
    until("lanes are shared evenly", || async {
        lanes_of(&place, frozen.pid()).await == i64::from(LANES).div_euclid(3)
            || lanes_of(&place, frozen.pid()).await == i64::from(LANES).div_euclid(3) + 1
    })
    .await;
    let mut gate = sqlx::PgConnection::connect(place.url()).await.unwrap();
    let lock = sqlx::query("select pg_advisory_lock($1)").bind(GATE);
    lock.execute(&mut gate).await.unwrap();
    for value in 1..=6 {
        let values = (0..KEYS).map(|key| thing(&format!("k{key}"), &value.to_string()));
        place.append(&values.collect::<Vec<_>>()).await;
    }
    let counters = "insert into counters select 'k' || g, 6 from generate_series(0, 47) g";
    place.run(counters).await;
    let member = member_of(&place, frozen.pid()).await;
    let held_up = "select count(*) from pg_locks f \
                   join pg_locks g on g.pid = f.pid and g.locktype = 'advisory' and not g.granted \
                   join onceward.members m on (f.classid::bigint << 32) | f.objid::bigint = m.fence \
                   where f.locktype = 'advisory' and f.granted and m.member = $1 and g.objid = 77";
    until("the process waits in the middle of effects", || async {
        let count: i64 = sqlx::query_scalar(held_up)
            .bind(&member)
            .fetch_one(place.pool())
            .await
            .unwrap();
        count > 0
    })
    .await;
    frozen.signal(Signal::STOP);
    until("others have its lanes", || async {
        lanes_of(&place, frozen.pid()).await == 0
    })
    .await;
    let records = "select count(*) from onceward.positions where member = $1";
    let records = sqlx::query_scalar(records).bind(&member);
    let records_before: i64 = records.fetch_one(place.pool()).await.unwrap();
    sqlx::query("select pg_advisory_unlock_all()")
        .execute(&mut gate)
        .await
        .unwrap();
    place.until_effects(KEYS * 6).await;
    frozen.signal(Signal::CONT);
    until("it notices and works again", || async {
        frozen
            .state()
            .is_some_and(|(lanes, is_member, leases_lost)| {
                leases_lost >= 1 && is_member && lanes > 0
            })
    })
    .await;
    let more = (0..KEYS).map(|key| thing(&format!("k{key}"), "7"));
    place.append(&more.collect::<Vec<_>>()).await;
    place.run("update counters set n = 7").await;
    place.until_effects(KEYS * 7).await;
    place.idle("fleet").await;
    assert_once_and_in_order(&place).await;
    let records = "select count(*) from onceward.positions where member = $1";
    let records = sqlx::query_scalar(records).bind(&member);
    let records_after: i64 = records.fetch_one(place.pool()).await.unwrap();
    assert_eq!(records_before, records_after, "it has moved no position");
    stop_all(workers, Duration::from_secs(10)).await;
}
