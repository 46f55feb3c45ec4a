//! Nothing committed is missed, and nobody waits for anybody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward_core::Position;
use onceward_core::store::{Append, Log};
use onceward_postgres::Postgres;
use onceward_testkit::postgres::TestDatabase;
use sqlx::AssertSqlSafe;

use crate::support::{append, drain, envelope, execute, ids, read, session, store};

/// A fixed sequence of odd numbers, different for each writer.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Appends in transactions that stay open for a while, in every way that PostgreSQL has, and
/// returns the ids that were committed.
async fn write(database: &TestDatabase, store: Postgres, writer: u64) -> Vec<String> {
    let mut connection = session(database).await;
    let mut state = writer + 1;
    let mut committed = Vec::new();
    for n in 0..25 {
        let id = format!("w{writer}-{n}");
        execute(&mut connection, "begin").await;
        let way = next(&mut state) % 10;
        if way == 0 {
            execute(&mut connection, "savepoint a").await;
        }
        let messages = [envelope(&id, "k"), envelope(&format!("{id}b"), "k")];
        store.append(&mut connection, &messages).await.unwrap();
        let pause_ms = next(&mut state) % 12;
        execute(
            &mut connection,
            format!("select pg_sleep({pause_ms} / 1000.0)"),
        )
        .await;
        match way {
            0 => execute(&mut connection, "release a; commit").await,
            1 => {
                execute(&mut connection, "rollback").await;
                continue;
            }
            2 => {
                execute(&mut connection, format!("prepare transaction '{id}'")).await;
                execute(&mut connection, format!("commit prepared '{id}'")).await;
            }
            3 => {
                // A savepoint undone: its rows go, the others stay.
                execute(&mut connection, "savepoint b").await;
                store
                    .append(&mut connection, &[envelope("undone", "k")])
                    .await
                    .unwrap();
                execute(&mut connection, "rollback to b; commit").await;
            }
            _ => execute(&mut connection, "commit").await,
        }
        committed.extend([format!("{id}b"), id]);
    }
    committed
}

async fn nothing_is_lost(cache: u32) {
    let (database, store) = store().await;
    let database = Arc::new(database);
    execute(
        &mut session(&database).await,
        format!("alter sequence onceward.outbox_seq cache {cache}"),
    )
    .await;
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (store, is_over) = (store.clone(), is_over.clone());
        async move {
            let mut position = Position::origin(1);
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            let mut rows_max = 1;
            loop {
                let was_over = is_over.load(Ordering::SeqCst);
                let (rows, next) = read(&store, &position, rows_max).await;
                rows_max = rows_max % 7 + 1;
                let is_end = rows.is_empty() && next.is_boundary();
                position = next;
                for row in rows {
                    *seen.entry(row.envelope.id).or_default() += 1;
                }
                if was_over && is_end {
                    return seen;
                }
            }
        }
    });
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (database, store) = (database.clone(), store.clone());
            tokio::spawn(async move { write(&database, store, writer).await })
        })
        .collect();
    let mut committed = BTreeMap::new();
    for writer in writers {
        committed.extend(writer.await.unwrap().into_iter().map(|id| (id, 1)));
    }
    is_over.store(true, Ordering::SeqCst);
    let seen = reader.await.unwrap();
    let lost: Vec<_> = committed
        .keys()
        .filter(|id| !seen.contains_key(*id))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert_eq!(seen, committed, "each exactly once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_01_no_committed_row_is_lost() {
    nothing_is_lost(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_01_no_committed_row_is_lost_with_a_sequence_cache() {
    nothing_is_lost(50).await;
}

/// A transaction that had started when a snapshot was taken, above everything that had ended: the
/// snapshot's own xmax does not tell it from one that starts later.
#[tokio::test]
async fn a_transaction_above_the_snapshots_xmax_that_had_drawn_its_sequence_is_not_lost() {
    let (database, store) = store().await;
    let mut open = session(&database).await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("early", "a")])
        .await
        .unwrap();
    // Nothing has ended since, so that xmax is the open transaction itself.
    let mut position = store.head().await.unwrap();
    assert!(position.after.xmin < position.after.xmax, "{position:?}");
    execute(&mut open, "commit").await;
    assert_eq!(ids(&drain(&store, &mut position, 10).await), ["early"]);
}

/// Savepoints have transaction ids too: very many of them make the reader look up where to begin.
#[tokio::test]
async fn thousands_of_open_savepoints_hide_nothing() {
    let (database, store) = store().await;
    let mut open = session(&database).await;
    execute(&mut open, "create table t (n int)").await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("early", "a")])
        .await
        .unwrap();
    let many = "do $$ begin for i in 1..3000 loop
        begin insert into t values (i); exception when others then raise; end;
        end loop; end $$";
    execute(&mut open, many).await;
    let mut position = store.head().await.unwrap();
    assert!(position.after.xip.len() < 1_000);
    append(&store, &[envelope("other", "b")]).await;
    let (rows, next) = read(&store, &position, 1).await;
    assert_eq!(ids(&rows), ["other"]);
    position = next;
    execute(&mut open, "commit").await;
    append(&store, &[envelope("last", "c")]).await;
    let rows = drain(&store, &mut position, 1).await;
    assert_eq!(ids(&rows), ["early", "last"]);
}

#[tokio::test]
async fn bc_30_an_open_transaction_delays_only_its_own() {
    let (database, store) = store().await;
    let mut unrelated = session(&database).await;
    execute(&mut unrelated, "create table t (n int)").await;
    execute(&mut unrelated, "begin; insert into t values (1)").await;
    let mut prepared = session(&database).await;
    execute(
        &mut prepared,
        "begin; insert into t values (2); prepare transaction 'forgotten'",
    )
    .await;
    let mut open = session(&database).await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("late", "a")])
        .await
        .unwrap();
    let mut position = Position::origin(1);
    for n in 0..20 {
        append(&store, &[envelope(&n.to_string(), "b")]).await;
        let rows = drain(&store, &mut position, 3).await;
        assert_eq!(ids(&rows), [n.to_string()]);
    }
    execute(&mut open, "commit").await;
    assert_eq!(ids(&drain(&store, &mut position, 3).await), ["late"]);
    execute(&mut prepared, "rollback prepared 'forgotten'").await;
}

#[tokio::test]
async fn appends_do_not_wait_for_each_other() {
    let (database, store) = store().await;
    let mut open = session(&database).await;
    execute(&mut open, "begin").await;
    store
        .append(&mut open, &[envelope("a", "same")])
        .await
        .unwrap();
    let mut other = session(&database).await;
    execute(&mut other, "set lock_timeout = '50ms'; begin").await;
    store
        .append(&mut other, &[envelope("b", "same")])
        .await
        .unwrap();
    execute(&mut other, "commit").await;
    execute(&mut open, "commit").await;
}

/// A row of a huge tick, with newer commits beyond its end: the pages end where the tick does.
#[tokio::test]
async fn a_tick_ends_where_its_snapshot_does() {
    let (_database, store) = store().await;
    let first: Vec<_> = (0..30).map(|n| envelope(&format!("a{n}"), "k")).collect();
    append(&store, &first).await;
    let (rows, next) = read(&store, &Position::origin(1), 10).await;
    assert_eq!((rows.len(), next.is_boundary()), (10, false));
    append(&store, &[envelope("newer", "k")]).await;
    let (rows, next) = read(&store, &next, 100).await;
    assert_eq!((rows.len(), next.is_boundary()), (20, true));
    let (rows, _) = read(&store, &next, 100).await;
    assert_eq!(ids(&rows), ["newer"]);
}

#[tokio::test]
async fn bc_23_ex_28_any_size_comes_back_byte_for_byte() {
    let (_database, store) = store().await;
    let texts = [7_900, 8_000, 8_100, 200_000].map(|n| format!("\"{}\"", "x".repeat(n)));
    let odd = "{\"b\":1.0, \"a\":1e0,\"a\":9223372036854775807, \"n\":-0,\"t\":\"\u{65e5}\" }";
    let mut sent = Vec::new();
    for (n, text) in texts.iter().map(String::as_str).chain([odd]).enumerate() {
        let mut message = envelope(&n.to_string(), &"\u{65e5}".repeat(2_000));
        message.payload = onceward_core::Payload::Json(text.into());
        message
            .attributes
            .insert("header".into(), "h".repeat(2_000));
        sent.push(message);
    }
    append(&store, &sent).await;
    let rows = drain(&store, &mut Position::origin(1), 100).await;
    for (row, sent) in rows.iter().zip(&sent) {
        assert_eq!(row.envelope.payload, sent.payload);
        assert_eq!(row.envelope.attributes, sent.attributes);
    }
    assert_eq!(rows.len(), sent.len());
}

/// A plain insert from any language, with headers that are not all texts.
#[tokio::test]
async fn the_five_columns_are_enough() {
    let (database, store) = store().await;
    let insert = "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload)
        values ('m1', 'order', 'o1', 'order.accepted', '{\"a\": 1}')";
    database.psql(insert).await;
    let odd = "insert into onceward.outbox (id, aggregatetype, aggregateid, type, payload, headers)
        values ('m2', 'order', 'o1', 'order.accepted', '1', '{\"n\": 1.50, \"x\": null, \"s\": \"t\"}')";
    database.psql(odd).await;
    let rows = drain(&store, &mut Position::origin(1), 100).await;
    assert_eq!(ids(&rows), ["m1", "m2"]);
    let source = format!("urn:onceward:{}", database.name());
    assert_eq!(rows[0].envelope.source.as_deref(), Some(source.as_str()));
    let headers: Vec<_> = rows[1].envelope.attributes.iter().collect();
    assert_eq!(
        headers,
        [
            (&"n".to_owned(), &"1.50".to_owned()),
            (&"s".into(), &"t".into())
        ]
    );
}

/// Positions and heartbeats are read from the end of their index, whatever lies dead before it.
#[tokio::test]
async fn ex_18_a_pinned_snapshot_does_not_slow_positions() {
    let (database, store) = store().await;
    let mut pinned = session(&database).await;
    execute(
        &mut pinned,
        "begin isolation level repeatable read; select 1 from onceward.meta",
    )
    .await;
    let mut other = session(&database).await;
    let fill = "insert into onceward.positions (subscription, member, spans)
        select 'ship', 'a', '[]' from generate_series(1, 20000);
        delete from onceward.positions where revision < 20000;
        analyze onceward.positions";
    execute(&mut other, fill).await;
    let statement = include_str!("../../sql/lanes/latest_position.sql")
        .replace("$1", "'ship'")
        .replace("$2", "'a'");
    let explain = format!("explain (analyze, buffers, format text) {statement}");
    let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain))
        .fetch_all(&mut other)
        .await
        .unwrap();
    let buffers = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
    let hit = buffers
        .split("hit=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert!(hit.parse::<u32>().unwrap() <= 8, "{plan:?}");
    append(&store, &[envelope("m", "k")]).await;
    assert_eq!(drain(&store, &mut Position::origin(1), 10).await.len(), 1);
}
