//! What only the store in memory does: faults, waiting, deadlocks, idling, user tables.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use onceward_core::store::{
    Append, Begin, Effects, End, Join, Lanes, Lease, Log, ReadPage, Schema, StoreError,
    StoreErrorKind,
};
use onceward_core::{Envelope, Payload};
use onceward_testkit::memory::{CommitFault, MemoryError, MemoryStore, MemoryTx, Operation};

async fn migrated() -> MemoryStore {
    let store = MemoryStore::default();
    store.migrate().await.expect("nothing is planned to fail");
    store
}

async fn open(store: &MemoryStore) -> MemoryTx {
    let begun = store.begin(Begin { lease: None }).await;
    begun.expect("nothing is planned to fail")
}

async fn joined(store: &MemoryStore) -> Lease {
    let join = Join {
        member: "a",
        description: "",
        lease_ms: 1_000,
        subscriptions: &[],
    };
    store.join(join).await.expect("nothing is planned to fail")
}

/// Polls once, without a runtime.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn kind<T>(ended: Result<T, StoreError>) -> Option<StoreErrorKind> {
    ended.err().map(|error| error.kind())
}

#[tokio::test]
async fn without_tables_everything_says_migrate() {
    let store = MemoryStore::default();
    assert_eq!(kind(store.head().await), Some(StoreErrorKind::Schema));
    store.migrate().await.unwrap();
    assert_eq!(kind(store.head().await), None);
}

#[tokio::test]
async fn a_lost_answer_may_hide_either_end() {
    let store = migrated().await;
    for (fault, expected) in [
        (CommitFault::NotApplied, None),
        (CommitFault::Applied, Some("1")),
    ] {
        let mut tx = open(&store).await;
        tx.connection().put("t", "k", "1").unwrap();
        store.faults().fail_next_commit(fault);
        let ended = store.end(tx, End::Commit).await;
        assert_eq!(kind(ended), Some(StoreErrorKind::CommitUnknown));
        assert_eq!(store.get("t", "k").as_deref(), expected);
        assert_eq!(store.open_transactions(), 0);
    }
}

#[tokio::test]
async fn a_planned_error_happens_once_and_changes_nothing() {
    let store = migrated().await;
    let faults = store.faults();
    faults.fail_next(Operation::End, StoreErrorKind::Unavailable);
    let mut tx = open(&store).await;
    tx.connection().put("t", "k", "1").unwrap();
    let ended = store.end(tx, End::Commit).await;
    assert_eq!(kind(ended), Some(StoreErrorKind::Unavailable));
    assert_eq!(store.rows("t"), []);
    let mut tx = open(&store).await;
    tx.connection().put("t", "k", "1").unwrap();
    store.end(tx, End::Commit).await.unwrap();
    assert_eq!(store.rows("t"), [("k".to_owned(), "1".to_owned())]);
}

#[tokio::test]
async fn a_delay_gives_way_for_as_many_turns() {
    let store = migrated().await;
    store.faults().delay_next(Operation::Head, 2);
    let mut head = pin!(store.head());
    assert!(poll_once(head.as_mut()).is_pending());
    assert!(poll_once(head.as_mut()).is_pending());
    assert!(poll_once(head.as_mut()).is_ready());
}

#[tokio::test]
async fn a_transaction_sees_its_own_writes_and_others_only_when_committed() {
    let store = migrated().await;
    let (mut a, mut b) = (open(&store).await, open(&store).await);
    a.connection().put("t", "k", "a").unwrap();
    assert_eq!(a.connection().get("t", "k").unwrap().as_deref(), Some("a"));
    assert_eq!(b.connection().get("t", "k").unwrap(), None);
    store.end(a, End::Commit).await.unwrap();
    assert_eq!(b.connection().get("t", "k").unwrap().as_deref(), Some("a"));
    b.connection().delete("t", "k").unwrap();
    assert_eq!(b.connection().get("t", "k").unwrap(), None);
    store.end(b, End::Commit).await.unwrap();
    assert_eq!(store.get("t", "k"), None);
}

#[tokio::test]
async fn a_unique_key_waits_for_the_other_transaction() {
    let store = migrated().await;
    for (end, expected) in [(End::RollBack, true), (End::Commit, false)] {
        let key = format!("{end:?}");
        let (mut a, mut b) = (open(&store).await, open(&store).await);
        a.connection().insert("t", &key, "a").await.unwrap();
        let inserted = {
            let mut insert = pin!(b.connection().insert("t", &key, "b"));
            assert!(poll_once(insert.as_mut()).is_pending());
            store.end(a, end).await.unwrap();
            insert.await
        };
        assert_eq!(inserted.is_ok(), expected, "{inserted:?}");
        if let Err(error) = inserted {
            assert_eq!(store.classify(&error), Some(StoreErrorKind::Refused));
        }
    }
}

#[tokio::test]
async fn who_would_close_a_circle_gives_up() {
    let store = migrated().await;
    let (mut a, mut b) = (open(&store).await, open(&store).await);
    a.connection().insert("t", "1", "a").await.unwrap();
    b.connection().insert("t", "2", "b").await.unwrap();
    let mut waiting = pin!(a.connection().insert("t", "2", "a"));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let error = b.connection().insert("t", "1", "b").await.unwrap_err();
    assert_eq!(error, MemoryError::Deadlock);
    assert_eq!(store.classify(&error), Some(StoreErrorKind::Conflict));
    drop(b);
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_idles_past_its_lease_is_ended() {
    let store = migrated().await;
    let lease = joined(&store).await;
    let begin = || {
        store.begin(Begin {
            lease: Some(&lease),
        })
    };
    let mut used = begin().await.unwrap();
    let idle = begin().await.unwrap();
    for _ in 0..3 {
        store.clock().advance_ms(900);
        used.connection().put("t", "k", "1").unwrap();
    }
    store.end(used, End::Commit).await.unwrap();
    let ended = store.end(idle, End::Commit).await;
    assert_eq!(kind(ended), Some(StoreErrorKind::Overstayed));
}

#[tokio::test]
async fn dozing_ends_with_a_commit_or_with_the_time() {
    let store = migrated().await;
    let mut dozing = pin!(store.doze(100));
    assert!(poll_once(dozing.as_mut()).is_pending());
    let payload = Payload::Json("1".into());
    let envelopes = [Envelope::new("m", "order", "k", "t", payload)];
    let mut tx = open(&store).await;
    store.append(tx.connection(), &envelopes).await.unwrap();
    assert!(poll_once(dozing.as_mut()).is_pending());
    store.end(tx, End::Commit).await.unwrap();
    assert!(poll_once(dozing.as_mut()).is_ready());

    let mut at_once = pin!(store.doze(100));
    assert!(poll_once(at_once.as_mut()).is_ready(), "not read yet");
    let from = store.head().await.unwrap();
    let request = ReadPage {
        from: &from,
        rows_max: 1,
        bytes_max: 1,
    };
    store.read(request).await.unwrap();
    let mut dozing = pin!(store.doze(100));
    assert!(poll_once(dozing.as_mut()).is_pending());
    store.clock().advance_ms(99);
    assert!(poll_once(dozing.as_mut()).is_pending());
    store.clock().advance_ms(1);
    assert!(poll_once(dozing.as_mut()).is_ready());
}

#[tokio::test]
async fn what_is_not_json_is_refused() {
    let store = migrated().await;
    let payload = Payload::Json("{\"a\": ".into());
    let envelopes = [Envelope::new("m", "order", "k", "t", payload)];
    let mut tx = open(&store).await;
    let ended = store.append(tx.connection(), &envelopes).await;
    assert_eq!(kind(ended), Some(StoreErrorKind::Refused));
}
