//! Field cases of the store alone: local time, clean-up of a large table.

use onceward_core::store::{
    Begin, Deferral, DeferralKind, Deferrals, Effects, End, HeldKeysQuery, Known, LoadKey,
    Retention, Settle, Start, Upkeep,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Position, Spent, Timestamp};
use onceward_postgres::{Clock, Postgres};
use onceward_testkit::postgres::TestDatabase;

use crate::support::{SUB, append, drain, envelope, execute, register, session, store};

const HOUR_MS: u64 = 3_600_000;

/// A store in whose database the wall clock is London's, at a moment.
async fn in_london(now: &str) -> (TestDatabase, Postgres, Clock) {
    let (database, before) = store().await;
    before.close().await;
    let zone = format!(
        "alter database {} set timezone = 'Europe/London'",
        database.name()
    );
    execute(&mut session(&database).await, zone).await;
    let clock = Clock::fixed(now.parse().unwrap());
    let store = Postgres::connect(database.url()).await.unwrap();
    let store = store.with_clock(clock.clone());
    let zone: String = sqlx::query_scalar("show timezone")
        .fetch_one(store.pool())
        .await
        .unwrap();
    // The store's own sessions may say otherwise; the producer's does not.
    assert!(["Europe/London", "UTC"].contains(&zone.as_str()), "{zone}");
    (database, store, clock)
}

/// Due in an hour that the wall clock shows twice, and in one that it leaves out: an hour is an
/// hour, and ages are what has passed.
#[tokio::test]
async fn ex_29_an_hour_is_an_hour_across_both_clock_changes() {
    for before_the_change in ["2026-03-29T00:30:00Z", "2026-10-25T00:30:00Z"] {
        let (database, store, clock) = in_london(before_the_change).await;
        register(&store, Start::Earliest).await;
        append(&store, &[envelope("m", "k")]).await;
        let row = drain(&store, &mut Position::origin(1), 10).await.remove(0);
        let defer = [Deferral {
            seq: row.seq,
            slot: row.slot,
            key: "k".into(),
            kind: DeferralKind::Retry,
            due_in_ms: Some(HOUR_MS),
            spent: Spent {
                failures: 1,
                ..Spent::default()
            },
            failure: None,
        }];
        let mut tx = store.begin(Begin { lease: None }).await.unwrap();
        let settle = Settle {
            defer: &defer,
            ..Settle::nothing(SUB, Identity::Message)
        };
        store.settle(&mut tx, settle).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
        let due = async || {
            let load = LoadKey {
                subscription: SUB,
                slot: row.slot,
                key: "k",
                after_seq: 0,
                versions_to: None,
                rows_max: 1,
            };
            let loaded = store.load_key(load).await.unwrap().remove(0);
            let query = HeldKeysQuery {
                subscription: SUB,
                slots: (0, 1_023),
            };
            let held = store.held_keys(query).await.unwrap().remove(0);
            assert_eq!(held.due_in_ms, loaded.due_in_ms);
            (loaded.due_in_ms, loaded.spent.age_ms)
        };
        assert_eq!(due().await, (Some(HOUR_MS), 0));
        clock.advance_ms(HOUR_MS - 1);
        assert_eq!(due().await, (Some(1), HOUR_MS - 1));
        clock.advance_ms(1);
        assert_eq!(due().await, (Some(0), HOUR_MS));
        let due_at: Timestamp = before_the_change.parse().unwrap();
        let due_at = due_at.plus_millis(HOUR_MS as i64);
        let kept = "select onceward.micros(due_at) from onceward.deferrals";
        let kept = database.psql(kept).await;
        assert_eq!(kept.trim(), due_at.as_micros().to_string());
    }
}

/// Two effects of the repeated hour, an hour apart, and an insert of another client that writes
/// local time, are three that nobody takes for each other.
#[tokio::test]
async fn ex_29_effects_of_the_repeated_hour_stay_apart() {
    let (database, store, _) = in_london("2026-10-25T02:00:00Z").await;
    let entry = |identity: &str, at: &str| LedgerEntry {
        key: LedgerKey {
            source: "urn:s".into(),
            message_type: "t".into(),
            identity: identity.into(),
            generation: 0,
            recorded_at: at.parse().unwrap(),
        },
        digest: None,
        ending: Ending::Done,
        result: None,
        aggregate_version: None,
        aggregate: None,
    };
    // Both are half past one on the wall.
    let entries = [
        entry("first", "2026-10-25T00:30:00Z"),
        entry("second", "2026-10-25T01:30:00Z"),
    ];
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let settle = Settle {
        ledger: &entries,
        ..Settle::nothing(SUB, Identity::Message)
    };
    assert_eq!(store.settle(&mut tx, settle).await.unwrap().ledger_rows, 2);
    store.end(tx, End::Commit).await.unwrap();
    let local = "insert into onceward.ledger (subscription, source, type, identity, recordedtime)
        values ('ship', 'urn:s', 't', 'local', '2026-10-25 01:30:00 BST')";
    execute(&mut session(&database).await, local).await;
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let keys = [
        entries[0].key.clone(),
        entries[1].key.clone(),
        entry("local", "2026-10-25T00:30:00Z").key,
    ];
    let known = Known {
        subscription: SUB,
        identity: Identity::Message,
        keys: &keys,
        deferred: &[],
    };
    let known = store.known(&mut tx, known).await.unwrap().entries;
    for (key, known) in keys.iter().zip(known) {
        let at = known.expect("it is known").key.recorded_at;
        assert_eq!(at, key.recorded_at, "{}", key.identity);
    }
}

/// Thirty thousand answers to requests are over, and no statement may take long: they go in
/// steps that are each committed, beside appends that do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_16_old_answers_go_in_small_committed_steps_under_a_statement_timeout() {
    let (database, before) = store().await;
    before.close().await;
    let fill =
        "insert into onceward.acceptances (caller, key, digest, answer, accepted_at, expires_at)
        select 'c', 'old-' || n, '\\x00', '{}', now() - interval '8 days', now() - interval '1 day'
        from generate_series(1, 30000) n;
        insert into onceward.acceptances (caller, key, digest, answer, accepted_at, expires_at)
        values ('c', 'kept', '\\x00', '{}', now(), now() + interval '1 day')";
    database.psql(fill).await;
    let limit = format!(
        "alter database {} set statement_timeout = '1s'",
        database.name()
    );
    execute(&mut session(&database).await, limit).await;
    let store = Postgres::connect(database.url()).await.unwrap();
    let left = async || -> i64 {
        let left = database
            .psql("select count(*) from onceward.acceptances")
            .await;
        left.trim().parse().unwrap()
    };
    let (mut rounds, mut before) = (0, left().await);
    loop {
        let report = store.tidy(Retention::default()).await.unwrap();
        append(&store, &[envelope(&format!("live-{rounds}"), "k")]).await;
        let now = left().await;
        rounds += 1;
        if !report.has_more {
            break;
        }
        assert!(now < before, "round {rounds} removed nothing");
        before = now;
        assert!(rounds < 200, "it never ends");
    }
    assert_eq!(left().await, 1, "what is not over stays");
    assert!(rounds > 3, "all at once, in {rounds} rounds");
    let rows = drain(&store, &mut Position::origin(1), 1_000).await;
    assert_eq!(rows.len(), rounds);
}
