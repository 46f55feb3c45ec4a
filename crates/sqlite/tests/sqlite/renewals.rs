//! A lease is kept although the one writer is busy.

use std::time::Duration;

use onceward_core::store::{Begin, Effects, End, Join, Lanes, Lease, Renew};
use onceward_sqlite::Sqlite;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::file::{SUB, TestFile};

const LEASE_MS: u64 = 200;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

async fn join(store: &Sqlite) -> Lease {
    let request = Join {
        member: "a",
        description: "",
        lease_ms: LEASE_MS,
        subscriptions: &[SUB.to_owned()],
    };
    store.join(request).await.unwrap()
}

/// A writer with a short transaction, one after the other, until it is told to stop.
async fn write(store: Sqlite, stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let tx = store.begin(Begin { lease: None }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        store.end(tx, End::Commit).await.unwrap();
    }
}

/// Whoever gives its place up after a quarter of its lease never gets there: the queue is longer.
#[tokio::test]
async fn a_renewal_keeps_its_place_in_a_queue_that_is_longer_than_its_lease() {
    let file = TestFile::in_real_time().await;
    let lease = join(&file.store).await;
    let (stop, stopped) = watch::channel(false);
    let mut writers = JoinSet::new();
    for _ in 0..60 {
        writers.spawn(write(file.store.clone(), stopped.clone()));
    }
    let renewed = file.store.renew(Renew::of(&lease));
    let renewed = tokio::time::timeout(PATIENCE, renewed).await;
    stop.send_replace(true);
    while writers.join_next().await.is_some() {}
    assert!(renewed.is_ok(), "it never got its turn");
    renewed.unwrap().unwrap();
}

/// Nobody renews here but the commits themselves.
#[tokio::test]
async fn commits_renew_a_lease_that_was_not_renewed_for_a_while() {
    let file = TestFile::in_real_time().await;
    let lease = join(&file.store).await;
    let renewals = || async {
        let sql = "SELECT renewed_at FROM onceward_member";
        let at = sqlx::query_scalar::<_, i64>(sql).fetch_one(file.store.pool());
        at.await.unwrap()
    };
    let joined = renewals().await;
    let renewed = tokio::time::timeout(PATIENCE, async {
        while renewals().await == joined {
            let tx = file.store.begin(Begin {
                lease: Some(&lease),
            });
            file.store
                .end(tx.await.unwrap(), End::Commit)
                .await
                .unwrap();
        }
    });
    assert!(renewed.await.is_ok(), "no commit renewed the lease");
}
