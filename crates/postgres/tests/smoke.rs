//! One message from append to ledger.

mod support;

use onceward_core::store::{
    Begin, Declared, Effects, End, Join, Lanes, Release, ReleasedLane, Schema, SchemaState, Settle,
    Start, Take,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Position};

#[tokio::test]
async fn one_message_from_append_to_ledger() {
    let (_database, store) = support::store().await;
    assert!(matches!(store.schema_state().await.unwrap(), SchemaState::Current { .. }));
    let types = ["order.accepted".to_owned()];
    let declared = Declared {
        subscription: "ship",
        lanes: 16,
        types: &types,
        start: Some(Start::Earliest),
        renamed_from: None,
    };
    store.register(declared).await.unwrap();
    support::append(&store, &[support::envelope("m1", "a"), support::envelope("m2", "b")]).await;
    let lease = store
        .join(Join { member: "one", description: "test", lease_ms: 5_000, subscriptions: &types })
        .await
        .unwrap();
    let taken = store
        .take(Take { lease: &lease, subscription: "ship", lanes: &[0, 1, 2] })
        .await
        .unwrap();
    assert_eq!(taken.len(), 3);
    assert_eq!(taken[0].position, Position::origin(1));
    let (rows, next) = support::read(&store, &taken[0].position, 1).await.unwrap();
    assert_eq!(support::ids(&rows), ["m1"]);
    assert!(!next.is_boundary());
    let (rows, next) = support::read(&store, &next, 1).await.unwrap();
    assert_eq!(support::ids(&rows), ["m2"]);
    let mut tx = store.begin(Begin { lease: Some(&lease) }).await.unwrap();
    let ledger = [LedgerEntry {
        key: LedgerKey::of(&rows[0], Identity::Message),
        digest: None,
        ending: Ending::Done,
        result: Some("{}".into()),
        aggregate_version: None,
    }];
    let settle = Settle { ledger: &ledger, ..Settle::nothing("ship", Identity::Message) };
    assert_eq!(store.settle(&mut tx, settle).await.unwrap().ledger_rows, 1);
    store.end(tx, End::Commit).await.unwrap();
    let lanes: Vec<_> = taken
        .iter()
        .map(|l| ReleasedLane { lane: l.lane, epoch: l.epoch, position: next.clone() })
        .collect();
    store.release(Release { lease: &lease, subscription: "ship", lanes: &lanes }).await.unwrap();
    store.leave(&lease).await.unwrap();
}
