//! If A committed before B was appended, A comes first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward_core::Position;
use onceward_core::store::Append;

use crate::support::{envelope, execute, read, session, store};

/// Writers that first get a transaction id, then wait for a key's row: the lower id has the later
/// append.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_keeps_the_order_of_its_commits() {
    let (database, store) = store().await;
    let database = Arc::new(database);
    let setup = "create table counters (key int primary key, n int not null);
        insert into counters select k, 0 from generate_series(0, 2) k;
        create table noise (n int)";
    execute(&mut session(&database).await, setup).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (store, is_over) = (store.clone(), is_over.clone());
        async move {
            let mut position = Position::origin(1);
            let mut last: BTreeMap<String, u32> = BTreeMap::new();
            let mut rows_max = 1;
            loop {
                let was_over = is_over.load(Ordering::SeqCst);
                let (rows, next) = read(&store, &position, rows_max).await;
                rows_max = rows_max % 5 + 1;
                let is_end = rows.is_empty() && next.is_boundary();
                position = next;
                for row in rows {
                    let n: u32 = row.envelope.id.parse().unwrap();
                    let before = last
                        .insert(row.envelope.aggregate_id.clone(), n)
                        .unwrap_or(0);
                    assert_eq!(n, before + 1, "key {}", row.envelope.aggregate_id);
                }
                if was_over && is_end {
                    return last;
                }
            }
        }
    });
    let writers: Vec<_> = (0..12)
        .map(|writer: u32| {
            let (database, store) = (database.clone(), store.clone());
            tokio::spawn(async move {
                let mut connection = session(&database).await;
                for n in 0..30 {
                    let key = (writer + n) % 3;
                    execute(&mut connection, "begin; insert into noise values (1)").await;
                    let bump = "update counters set n = n + 1 where key = $1 returning n";
                    let n: i32 = sqlx::query_scalar(bump)
                        .bind(key as i32)
                        .fetch_one(&mut connection)
                        .await
                        .unwrap();
                    let message = envelope(&n.to_string(), &key.to_string());
                    store.append(&mut connection, &[message]).await.unwrap();
                    execute(&mut connection, "commit").await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    let last = reader.await.unwrap();
    assert_eq!(last.values().sum::<u32>(), 12 * 30);
}
