//! Effect transactions and the fence.

use std::collections::BTreeSet;

use onceward_core::store::{
    Begin, Deferral, DeferralKind, Deferrals, Effects, End, HeldKeysQuery, Lanes, LoadKey, Log,
    SavePosition, Settle, Span, StoreErrorKind,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Spent};
use sqlx::Connection;

use crate::file::{
    LEASE_MS, SUB, TestFile, append, ids, join, message, read_all, register, take_all,
};

fn done(row: &onceward_core::Row) -> LedgerEntry {
    LedgerEntry {
        key: LedgerKey::of(row, Identity::Message),
        digest: None,
        ending: Ending::Done,
        result: None,
        aggregate_version: None,
        aggregate: None,
    }
}

/// With one writer the takeover waits for the open effect; after it the old owner is out.
#[tokio::test]
async fn a_takeover_comes_before_or_after_an_effect_never_during_it() {
    let file = TestFile::new().await;
    let (store, second) = (&file.store, file.second().await);
    register(store, SUB).await;
    append(store, &[message("m1", "k"), message("m2", "k")]).await;
    let rows = read_all(store).await;
    let old = join(store, "old").await;
    let mine = take_all(store, &old).await;
    let new = join(&second, "new").await;
    file.advance_ms(LEASE_MS + 1);

    let mut tx = store.begin(Begin { lease: Some(&old) }).await.unwrap();
    let mut taking = Box::pin(take_all(&second, &new));
    // The takeover has asked for the file and not got it.
    let at_once = tokio::time::timeout(std::time::Duration::ZERO, &mut taking).await;
    assert!(at_once.is_err(), "taken while an effect was open");
    let ledger = [done(&rows[0])];
    let settle = Settle {
        ledger: &ledger,
        ..Settle::nothing(SUB, Identity::Message)
    };
    assert_eq!(store.settle(&mut tx, settle).await.unwrap().ledger_rows, 1);
    store.end(tx, End::Commit).await.unwrap();
    let theirs = taking.await;
    assert!(theirs.iter().all(|lane| lane.is_suspect) && theirs.len() == mine.len());

    let stale = store.begin(Begin { lease: Some(&old) }).await.unwrap_err();
    assert_eq!(stale.kind(), StoreErrorKind::Fenced);
    // Nor does it move a position.
    let span = Span {
        stand: store.head().await.unwrap().into(),
        lanes: mine.iter().map(|lane| (lane.lane, lane.epoch)).collect(),
    };
    let save = SavePosition {
        member: "old",
        subscription: SUB,
        spans: &[span],
    };
    store.save_position(save).await.unwrap();
    second.leave(&new).await.unwrap();
    let next = join(store, "next").await;
    let kept = take_all(store, &next).await;
    assert!(
        kept.iter()
            .zip(&theirs)
            .all(|(now, then)| now.stand == then.stand)
    );
}

/// A transaction that was held longer than a quarter of the lease prolongs it as it commits.
#[tokio::test]
async fn a_long_effect_keeps_its_lease() {
    let file = TestFile::new().await;
    register(&file.store, SUB).await;
    let mut lease = join(&file.store, "a").await;
    take_all(&file.store, &lease).await;
    // Any transaction is longer than a quarter of this.
    lease.lease_ms = 0;
    file.advance_ms(LEASE_MS + 1);
    let tx = file
        .store
        .begin(Begin {
            lease: Some(&lease),
        })
        .await
        .unwrap();
    file.store.end(tx, End::Commit).await.unwrap();
    let other = join(&file.store, "b").await;
    assert!(
        take_all(&file.store, &other).await.is_empty(),
        "the lanes of a living owner"
    );
}

/// The handler's own COMMIT commits nothing, and what it writes afterwards neither.
#[tokio::test]
async fn a_handler_cannot_commit_by_itself() {
    let file = TestFile::new().await;
    let store = &file.store;
    sqlx::query("CREATE TABLE shipment (id TEXT)")
        .execute(store.pool())
        .await
        .unwrap();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let handler = store.connection(&mut tx);
    sqlx::query("INSERT INTO shipment VALUES ('in')")
        .execute(&mut *handler)
        .await
        .unwrap();
    let commit = sqlx::query("COMMIT").execute(&mut *handler).await;
    assert!(commit.is_err());
    let after = sqlx::query("INSERT INTO shipment VALUES ('after')")
        .execute(&mut *handler)
        .await;
    assert!(after.is_err());
    assert!(store.end(tx, End::Commit).await.is_err());
    assert_shipments(&file, &[]).await;
    append(store, &[message("next", "k")]).await;
    assert_eq!(ids(&read_all(store).await), ["next"]);
}

#[tokio::test]
async fn a_handler_may_nest_transactions_but_not_leave_one_open() {
    let file = TestFile::new().await;
    let store = &file.store;
    sqlx::query("CREATE TABLE shipment (id TEXT)")
        .execute(store.pool())
        .await
        .unwrap();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    for (id, keep) in [("kept", true), ("dropped", false)] {
        let mut nested = store.connection(&mut tx).begin().await.unwrap();
        let insert = sqlx::query("INSERT INTO shipment VALUES (?)").bind(id);
        insert.execute(&mut *nested).await.unwrap();
        if keep {
            nested.commit().await.unwrap();
        }
    }
    store.end(tx, End::Commit).await.unwrap();
    assert_shipments(&file, &["kept"]).await;

    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let mut nested = store.connection(&mut tx).begin().await.unwrap();
    let insert = sqlx::query("INSERT INTO shipment VALUES ('forgotten')");
    insert.execute(&mut *nested).await.unwrap();
    std::mem::forget(nested);
    assert!(
        store.end(tx, End::Commit).await.is_err(),
        "said to be committed, and is not"
    );
    assert_shipments(&file, &["kept"]).await;
    append(store, &[message("next", "k")]).await;
}

async fn assert_shipments(file: &TestFile, expected: &[&str]) {
    let found: Vec<String> = sqlx::query_scalar("SELECT id FROM shipment ORDER BY id")
        .fetch_all(file.store.pool())
        .await
        .unwrap();
    assert_eq!(found, expected);
}

/// A whole batch in one statement each, in and out, with some known already.
#[tokio::test]
async fn batches_of_any_size_are_counted_exactly() {
    let file = TestFile::new().await;
    let store = &file.store;
    let envelopes: Vec<_> = (0..300)
        .map(|i| message(&format!("m{i}"), &format!("k{i}")))
        .collect();
    append(store, &envelopes).await;
    let rows = read_all(store).await;
    let entries: Vec<LedgerEntry> = rows.iter().map(done).collect();
    let keys: Vec<LedgerKey> = entries.iter().map(|entry| entry.key.clone()).collect();
    let mut recorded = BTreeSet::new();
    for range in [0..1, 1..8, 5..30, 0..150, 140..300] {
        let mut tx = store.begin(Begin { lease: None }).await.unwrap();
        let known = onceward_core::store::Known {
            subscription: SUB,
            identity: Identity::Message,
            keys: &keys,
            deferred: &[],
        };
        let known = store.known(&mut tx, known).await.unwrap().entries;
        for (i, found) in known.iter().enumerate() {
            assert_eq!(found.is_some(), recorded.contains(&i), "key {i}");
        }
        let settle = Settle {
            ledger: &entries[range.clone()],
            ..Settle::nothing(SUB, Identity::Message)
        };
        let settled = store.settle(&mut tx, settle).await.unwrap();
        let fresh = range.clone().filter(|i| recorded.insert(*i)).count();
        assert_eq!(settled.ledger_rows, fresh as u64, "{range:?}");
        store.end(tx, End::Commit).await.unwrap();
    }
}

/// What ran when its process died is due at once for the next owner, with the death counted, and
/// the rest of its key keeps its order behind it.
#[tokio::test]
async fn a_death_is_charged_to_what_ran() {
    let file = TestFile::new().await;
    let store = &file.store;
    register(store, SUB).await;
    append(store, &[message("m1", "k"), message("m2", "k")]).await;
    let rows = read_all(store).await;
    let old = join(store, "old").await;
    take_all(store, &old).await;
    let kinds = [DeferralKind::Running, DeferralKind::Held];
    let deferrals: Vec<Deferral> = rows
        .iter()
        .zip(kinds)
        .map(|(row, kind)| Deferral {
            seq: row.seq,
            slot: row.slot,
            key: "k".to_owned(),
            kind,
            due_in_ms: None,
            spent: Spent::default(),
            failure: None,
        })
        .collect();
    let mut tx = store.begin(Begin { lease: Some(&old) }).await.unwrap();
    let settle = Settle {
        defer: &deferrals,
        ..Settle::nothing(SUB, Identity::Message)
    };
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();

    file.advance_ms(LEASE_MS + 1);
    let new = join(store, "new").await;
    take_all(store, &new).await;
    let query = HeldKeysQuery {
        subscription: SUB,
        slots: (0, 1_023),
    };
    let held = store.held_keys(query).await.unwrap();
    assert_eq!((held[0].count, held[0].due_in_ms), (2, Some(0)));
    let load = LoadKey {
        subscription: SUB,
        slot: rows[0].slot,
        key: "k",
        after_seq: 0,
        versions_to: None,
        rows_max: 10,
    };
    let loaded = store.load_key(load).await.unwrap();
    let seen: Vec<_> = loaded.iter().map(|d| (d.kind, d.spent.deaths)).collect();
    assert_eq!(seen, [(DeferralKind::Retry, 1), (DeferralKind::Held, 0)]);
}

/// Read again after a crash, a message that was known to have failed stays so.
#[tokio::test]
async fn a_deferral_of_kind_held_overwrites_nothing() {
    let file = TestFile::new().await;
    let store = &file.store;
    append(store, &[message("m1", "k")]).await;
    let row = read_all(store).await.remove(0);
    for (kind, failures) in [(DeferralKind::Retry, 3), (DeferralKind::Held, 0)] {
        let deferral = Deferral {
            seq: row.seq,
            slot: row.slot,
            key: "k".to_owned(),
            kind,
            due_in_ms: Some(0),
            spent: Spent {
                failures,
                ..Spent::default()
            },
            failure: None,
        };
        let mut tx = store.begin(Begin { lease: None }).await.unwrap();
        let settle = Settle {
            defer: &[deferral],
            ..Settle::nothing(SUB, Identity::Message)
        };
        store.settle(&mut tx, settle).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
    }
    let load = LoadKey {
        subscription: SUB,
        slot: row.slot,
        key: "k",
        after_seq: 0,
        versions_to: None,
        rows_max: 10,
    };
    let loaded = store.load_key(load).await.unwrap();
    let seen: Vec<_> = loaded.iter().map(|d| (d.kind, d.spent.failures)).collect();
    assert_eq!(seen, [(DeferralKind::Retry, 3)]);
}
