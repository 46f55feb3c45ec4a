//! Futures that are dropped anywhere leave no transaction behind.

use std::time::Duration;

use onceward_core::Position;
use onceward_core::store::{Append, Begin, Effects, End, Log, ReadPage};

use crate::file::{TestFile, append, ids, message, read_all};

/// Operations of every length, cut off at every moment; then a hundred normal ones must be there
/// for others to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_12_cancelled_operations_leave_no_transaction_open() {
    let file = TestFile::new().await;
    let store = &file.store;
    let mut cut_off = 0;
    for round in 0..600_u32 {
        let operation = async {
            let mut tx = store.begin(Begin { lease: None }).await.unwrap();
            let connection = store.connection(&mut tx);
            let id = format!("cancelled-{round}");
            Append::append(store, connection, &[message(&id, "k")])
                .await
                .unwrap();
            let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                        SELECT count(*) FROM n";
            let rows: i64 = sqlx::query_scalar(slow)
                .bind(round % 7 * 2_000)
                .fetch_one(store.connection(&mut tx))
                .await
                .unwrap();
            assert!(rows > 0);
            store.end(tx, End::RollBack).await.unwrap();
        };
        let after = Duration::from_micros(u64::from(round * 37 % 4_000));
        if tokio::time::timeout(after, operation).await.is_err() {
            cut_off += 1;
        }
    }
    assert!(cut_off > 100, "{cut_off} were cut off");

    let second = file.second().await;
    for i in 0..100 {
        let id = format!("m{i}");
        append(store, &[message(&id, "k")]).await;
        let rows = read_all(&second).await;
        assert_eq!(
            rows.last().map(|row| row.envelope.id.as_str()),
            Some(id.as_str())
        );
    }
    let rows = read_all(&second).await;
    assert_eq!(rows.len(), 100, "{:?}", ids(&rows));
}

/// Also in the middle of the commit itself: then it happened or it did not, and the next one is
/// none the wiser.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_commit_happened_or_did_not() {
    let file = TestFile::new().await;
    let store = &file.store;
    for round in 0..200_u64 {
        let mut tx = store.begin(Begin { lease: None }).await.unwrap();
        let id = format!("maybe-{round}");
        let maybe = [message(&id, "k")];
        let appended = store.append(store.connection(&mut tx), &maybe).await;
        appended.unwrap();
        let committing = store.end(tx, End::Commit);
        let cut = tokio::time::timeout(Duration::from_micros(round * 11 % 900), committing).await;
        append(store, &[message(&format!("sure-{round}"), "k")]).await;
        if let Ok(ended) = cut {
            ended.unwrap();
            let rows = read_all(store).await;
            assert!(
                rows.iter().any(|row| row.envelope.id == id),
                "{id} was committed"
            );
        }
    }
    let rows = read_all(store).await;
    let sure = rows
        .iter()
        .filter(|row| row.envelope.id.starts_with("sure-"))
        .count();
    assert_eq!(sure, 200);
}

/// A reader that goes away does not keep a connection.
#[tokio::test]
async fn cancelled_reads_give_their_connections_back() {
    let file = TestFile::new().await;
    append(
        &file.store,
        &(0..500)
            .map(|i| message(&format!("m{i}"), "k"))
            .collect::<Vec<_>>(),
    )
    .await;
    let from = Position::origin(file.store.head().await.unwrap().era);
    for round in 0..200_u64 {
        let read = file.store.read(ReadPage {
            from: &from,
            rows_max: 500,
            bytes_max: u64::MAX,
        });
        let cut = Duration::from_micros(round * 13 % 1_500);
        if let Ok(page) = tokio::time::timeout(cut, read).await {
            assert_eq!(page.unwrap().rows.len(), 500);
        }
    }
    assert_eq!(read_all(&file.store).await.len(), 500);
}
