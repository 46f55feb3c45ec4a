//! Retention in bounded steps.

use onceward_core::store::{
    Begin, Deferral, DeferralKind, Effects, End, Lanes, Log, Retention, SavePosition, Settle, Span,
    Upkeep,
};
use onceward_core::{Identity, Spent};

use crate::file::{LEASE_MS, SUB, TestFile, append, join, message, read_all, register, take_all};

const DAY_MS: u64 = 86_400_000;

/// Every lane of the subscription at the end of the log.
async fn catch_up(file: &TestFile) {
    let lease = join(&file.store, "a").await;
    let lanes = take_all(&file.store, &lease).await;
    let span = Span {
        stand: file.store.head().await.unwrap().into(),
        lanes: lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect(),
    };
    let save = SavePosition {
        member: "a",
        subscription: SUB,
        spans: &[span],
    };
    file.store.save_position(save).await.unwrap();
    file.store.leave(&lease).await.unwrap();
}

#[tokio::test]
async fn a_round_is_bounded_and_says_that_there_is_more() {
    let file = TestFile::new().await;
    register(&file.store, SUB).await;
    let envelopes: Vec<_> = (0..1_300).map(|i| message(&format!("m{i}"), "k")).collect();
    append(&file.store, &envelopes).await;
    catch_up(&file).await;
    file.advance_ms(8 * DAY_MS);
    let first = file.store.tidy(Retention::default()).await.unwrap();
    assert_eq!((first.log_removed, first.has_more), (1_000, true));
    assert_eq!(
        read_all(&file.store).await[0].seq,
        1_001,
        "the oldest go first"
    );
    let second = file.store.tidy(Retention::default()).await.unwrap();
    assert_eq!((second.log_removed, second.has_more), (300, false));
    assert_eq!((second.log_oldest_at, second.held_back_by), (None, None));
}

#[tokio::test]
async fn what_holds_the_log_back_is_named() {
    let file = TestFile::new().await;
    let store = &file.store;
    register(store, SUB).await;
    append(
        store,
        &(0..5)
            .map(|i| message(&format!("m{i}"), "k"))
            .collect::<Vec<_>>(),
    )
    .await;
    let rows = read_all(store).await;
    file.advance_ms(8 * DAY_MS);
    let report = store.tidy(Retention::default()).await.unwrap();
    assert_eq!(
        (report.log_removed, report.log_oldest_at),
        (0, Some(rows[0].recorded_at))
    );
    assert!(report.held_back_by.unwrap().contains(SUB));

    catch_up(&file).await;
    let deferral = Deferral {
        seq: rows[2].seq,
        slot: rows[2].slot,
        key: "k".to_owned(),
        kind: DeferralKind::Operator,
        due_in_ms: None,
        spent: Spent::default(),
        failure: None,
    };
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let settle = Settle {
        defer: &[deferral],
        ..Settle::nothing(SUB, Identity::Message)
    };
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    let report = store.tidy(Retention::default()).await.unwrap();
    assert_eq!(report.log_removed, 4, "a deferral keeps its own row only");
    assert!(report.held_back_by.unwrap().contains("deferred"));
    assert_eq!(read_all(store).await[0].seq, rows[2].seq);
}

#[tokio::test]
async fn members_that_ended_are_forgotten_in_time() {
    let file = TestFile::new().await;
    register(&file.store, SUB).await;
    catch_up(&file).await;
    join(&file.store, "alive").await;
    file.advance_ms(LEASE_MS);
    let early = file.store.tidy(Retention::default()).await.unwrap();
    assert_eq!(early.records_removed, 0);
    file.advance_ms(2 * DAY_MS);
    let late = file.store.tidy(Retention::default()).await.unwrap();
    assert_eq!(late.records_removed, 1);
}
