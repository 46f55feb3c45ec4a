//! One commit for an effect and its record, and nothing of a dead member after a takeover.

use onceward_core::store::{
    Begin, Deferral, DeferralKind, Effects, End, Known, Lanes, Renew, Settle, Start, StoreErrorKind,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Spent, Timestamp};
use onceward_postgres::{Clock, Postgres};
use sqlx::Executor as _;

use crate::support::{SUB, WAITS, envelope, execute, join, register, session, store, take, until};

fn entry(identity: &str, recorded_at: Timestamp) -> LedgerEntry {
    LedgerEntry {
        key: LedgerKey {
            source: "urn:s".into(),
            message_type: "t".into(),
            identity: identity.into(),
            generation: 0,
            recorded_at,
        },
        digest: None,
        ending: Ending::Done,
        result: None,
        aggregate_version: None,
        aggregate: None,
    }
}

async fn consume(store: Postgres, identity: Identity, entry: LedgerEntry) -> u64 {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let ledger = [entry];
    let settle = Settle {
        ledger: &ledger,
        ..Settle::nothing(SUB, identity)
    };
    let rows = store.settle(&mut tx, settle).await.unwrap().ledger_rows;
    if rows == 1 {
        let effect = "insert into effects values (1)";
        store.connection(&mut tx).execute(effect).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
    } else {
        store.end(tx, End::RollBack).await.unwrap();
    }
    rows
}

/// A thousand operations, each delivered to two consumers at once, alternately just before and just
/// after midnight, where one day's part of the ledger ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_consumers_with_one_operation_have_one_effect() {
    let (database, store) = store().await;
    database.psql("create table effects (n int)").await;
    let midnight = "select onceward.micros((current_date + 1)::timestamp at time zone 'UTC')";
    let midnight: i64 = database.psql(midnight).await.trim().parse().unwrap();
    for round in 0..1_000 {
        let at = Timestamp::from_micros(midnight - i64::from(round % 2));
        let identity = if round % 4 < 2 {
            Identity::Operation
        } else {
            Identity::Message
        };
        let entry = entry(&round.to_string(), at);
        let one = tokio::spawn(consume(store.clone(), identity, entry.clone()));
        let two = tokio::spawn(consume(store.clone(), identity, entry));
        assert_eq!(one.await.unwrap() + two.await.unwrap(), 1, "round {round}");
    }
    assert_eq!(
        database.psql("select count(*) from effects").await.trim(),
        "1000"
    );
    let days = "select count(distinct tableoid) from onceward.ledger";
    assert_eq!(database.psql(days).await.trim(), "2");
}

/// A receiver in any language records its effect with one insert.
#[tokio::test]
async fn the_ledgers_insert_is_for_everybody() {
    let (database, store) = store().await;
    let row = "('mail', 'urn:s', 't', 'm1', '2026-01-02T03:04:05.678901Z', '{\"ok\": 1}')";
    let insert = format!(
        "insert into onceward.ledger (subscription, source, type, identity, recordedtime, result)
         values {row} on conflict do nothing returning 1"
    );
    assert_eq!(database.psql(&insert).await.trim(), "1");
    assert_eq!(database.psql(&insert).await.trim(), "");
    let at: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
    let mut key = entry("m1", at).key;
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let mut known = async |key: &LedgerKey, identity| {
        let keys = [key.clone()];
        let request = Known {
            subscription: "mail",
            identity,
            keys: &keys,
            deferred: &[],
        };
        let found = store.known(&mut tx, request).await.unwrap();
        found.entries[0].clone()
    };
    let found = known(&key, Identity::Message).await.unwrap();
    assert_eq!(found.result.as_deref(), Some("{\"ok\": 1}"));
    assert_eq!(known(&key, Identity::Operation).await, None);
    let operation = "insert into onceward.operation_ledger (subscription, source, type, identity)
        values ('mail', 'urn:s', 't', 'op') on conflict do nothing returning 1";
    assert_eq!(database.psql(operation).await.trim(), "1");
    assert_eq!(database.psql(operation).await.trim(), "");
    key.identity = "op".into();
    assert!(known(&key, Identity::Operation).await.is_some());
}

#[tokio::test]
async fn bc_14_a_takeover_ends_an_open_effect_and_no_other() {
    let (database, store) = store().await;
    let clock = Clock::fixed(Timestamp::from_micros(1_800_000_000_000_000));
    let store = store.with_clock(clock.clone());
    database.psql("create table effects (n int)").await;
    register(&store, Start::Earliest).await;
    let old = join(&store, "old", 60_000).await;
    let bystander = join(&store, "bystander", 86_400_000).await;
    take(&store, &old).await;
    let mut stale = store.begin(Begin { lease: Some(&old) }).await.unwrap();
    store
        .connection(&mut stale)
        .execute("insert into effects values (1)")
        .await
        .unwrap();
    let mut other = store
        .begin(Begin {
            lease: Some(&bystander),
        })
        .await
        .unwrap();
    store
        .connection(&mut other)
        .execute("insert into effects values (2)")
        .await
        .unwrap();
    clock.advance_ms(61_000);
    let new = join(&store, "new", 60_000).await;
    let taken = take(&store, &new).await;
    assert!(taken.len() == 4 && taken.iter().all(|lane| lane.is_suspect));
    assert!(store.end(stale, End::Commit).await.is_err());
    store.end(other, End::Commit).await.unwrap();
    assert_eq!(database.psql("select n from effects").await.trim(), "2");
    let again = store.begin(Begin { lease: Some(&old) }).await.unwrap_err();
    assert_eq!(again.kind(), StoreErrorKind::Fenced);
    let renewed = store.renew(Renew::of(&old)).await.unwrap_err();
    assert_eq!(renewed.kind(), StoreErrorKind::Fenced);
}

/// A commit that is under way is waited for, not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_waits_for_what_is_committing() {
    let (database, store) = store().await;
    let clock = Clock::fixed(Timestamp::from_micros(1_800_000_000_000_000));
    let store = store.with_clock(clock.clone());
    database.psql("create table effects (n int)").await;
    register(&store, Start::Earliest).await;
    let old = join(&store, "old", 60_000).await;
    take(&store, &old).await;
    let mut tx = store.begin(Begin { lease: Some(&old) }).await.unwrap();
    store
        .connection(&mut tx)
        .execute("insert into effects values (1)")
        .await
        .unwrap();
    clock.advance_ms(61_000);
    let new = join(&store, "new", 60_000).await;
    let taker = tokio::spawn({
        let store = store.clone();
        async move { take(&store, &new).await.len() }
    });
    until(&database, WAITS).await;
    store.end(tx, End::Commit).await.unwrap();
    assert_eq!(taker.await.unwrap(), 4);
    assert_eq!(database.psql("select n from effects").await.trim(), "1");
}

#[tokio::test]
async fn a_transaction_that_idles_past_its_lease_is_ended() {
    let (database, store) = store().await;
    let lease = join(&store, "a", 100).await;
    let mut tx = store
        .begin(Begin {
            lease: Some(&lease),
        })
        .await
        .unwrap();
    store
        .connection(&mut tx)
        .execute("create table effects (n int)")
        .await
        .unwrap();
    let gone = "select not exists (select 1 from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%')";
    until(&database, gone).await;
    let nothing = [envelope("m", "k")];
    let settle = Settle {
        append: &nothing,
        ..Settle::nothing(SUB, Identity::Message)
    };
    let error = store.settle(&mut tx, settle).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Overstayed, "{error:?}");
    drop(tx);
    assert_eq!(
        database
            .psql("select to_regclass('effects') is null")
            .await
            .trim(),
        "t"
    );
}

/// The commit of a failed transaction is quietly a rollback; nobody may take it for a commit.
#[tokio::test]
async fn a_swallowed_error_cannot_be_committed() {
    let (database, store) = store().await;
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let connection = store.connection(&mut tx);
    connection
        .execute("create table effects (n int)")
        .await
        .unwrap();
    connection.execute("select 1 / 0").await.unwrap_err();
    store.end(tx, End::Commit).await.unwrap_err();
    assert_eq!(
        database
            .psql("select to_regclass('effects') is null")
            .await
            .trim(),
        "t"
    );
    // And the pool still gives out good connections.
    let tx = store.begin(Begin { lease: None }).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
}

/// User code may open a nested transaction of its own on the connection.
#[tokio::test]
async fn a_nested_transaction_of_user_code_is_a_savepoint() {
    use sqlx::Connection as _;
    let (database, store) = store().await;
    database.psql("create table effects (n int)").await;
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let mut nested = store.connection(&mut tx).begin().await.unwrap();
    nested
        .execute("insert into effects values (1)")
        .await
        .unwrap();
    nested.commit().await.unwrap();
    store.end(tx, End::RollBack).await.unwrap();
    assert_eq!(
        database.psql("select count(*) from effects").await.trim(),
        "0"
    );
}

/// Keys in another order in two batches wait for each other in one order only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_09_batches_in_opposite_order_do_not_deadlock() {
    let (_database, store) = store().await;
    let at = Timestamp::from_micros(1_764_511_200_000_000);
    for round in 0..40 {
        let forward: Vec<_> = (0..50)
            .map(|n| entry(&format!("{round}-{n:02}"), at))
            .collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        let settle = async |entries: Vec<LedgerEntry>| {
            let mut tx = store.begin(Begin { lease: None }).await.unwrap();
            let settle = Settle {
                ledger: &entries,
                ..Settle::nothing(SUB, Identity::Message)
            };
            let settled = store.settle(&mut tx, settle).await.unwrap();
            let is_first = settled.ledger_rows == 50;
            let end = if is_first { End::Commit } else { End::RollBack };
            store.end(tx, end).await.unwrap();
            is_first
        };
        let (a, b) = tokio::join!(settle(forward), settle(backward));
        assert!(a != b, "one of them did it: {a}, {b}");
    }
}

/// A commit that was sent and is still under way decides whether a message is deferred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_deferral_waits_for_whoever_clears_it() {
    const CLEARING: &str = "select exists (select 1 from pg_locks l where not l.granted
        and l.locktype = 'transactionid')";
    let (database, store) = store().await;
    let deferral = Deferral {
        seq: 7,
        slot: 0,
        key: "k".into(),
        kind: DeferralKind::Running,
        due_in_ms: None,
        spent: Spent::default(),
        failure: None,
    };
    let nothing = Settle::nothing(SUB, Identity::Message);
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let defer = Settle {
        defer: std::slice::from_ref(&deferral),
        ..nothing.clone()
    };
    store.settle(&mut tx, defer).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let mut clearing = store.begin(Begin { lease: None }).await.unwrap();
    let clear = Settle {
        clear: &[7],
        ..nothing
    };
    store.settle(&mut clearing, clear).await.unwrap();
    let asking = store.clone();
    let asked = tokio::spawn(async move {
        let mut tx = asking.begin(Begin { lease: None }).await.unwrap();
        let request = Known {
            subscription: SUB,
            identity: Identity::Message,
            keys: &[],
            deferred: &[7],
        };
        let found = asking.known(&mut tx, request).await.unwrap();
        asking.end(tx, End::RollBack).await.unwrap();
        found.gone
    });
    until(&database, CLEARING).await;
    store.end(clearing, End::Commit).await.unwrap();
    assert_eq!(asked.await.unwrap(), [7]);
}

#[tokio::test]
async fn a_claim_is_in_flight_while_its_transaction_is_open() {
    use onceward_core::store::{AcceptRequest, Acceptance, Accepted};
    let (database, store) = store().await;
    let request = || AcceptRequest {
        caller: "c",
        key: "k",
        digest: [1; 16],
        memory_ms: 60_000,
    };
    let (mut one, mut two) = (session(&database).await, session(&database).await);
    execute(&mut one, "begin").await;
    execute(&mut two, "set lock_timeout = '50ms'; begin").await;
    assert_eq!(
        store.accept(&mut one, request()).await.unwrap(),
        Accepted::First
    );
    assert_eq!(
        store.accept(&mut two, request()).await.unwrap(),
        Accepted::InFlight
    );
    store
        .answer(&mut one, request(), "{\"id\": 1}")
        .await
        .unwrap();
    execute(&mut one, "commit").await;
    let again = store.accept(&mut two, request()).await.unwrap();
    assert_eq!(
        again,
        Accepted::Again {
            answer: "{\"id\": 1}".into()
        }
    );
}
