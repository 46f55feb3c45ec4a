//! What a store does when the database, the network or the caller fails.

use std::time::Duration;

use onceward_core::store::{Append, Begin, Effects, End, Log, Schema, Settle, StoreErrorKind};
use onceward_core::{Identity, Payload, Position};
use onceward_postgres::{Options, Postgres};
use sqlx::Executor as _;

use crate::support::{SUB, WAITS, append, drain, envelope, execute, session, store, until};

/// Operations cut off at every possible point leave no transaction open behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_12_a_dropped_future_leaves_no_transaction_behind() {
    let (database, store) = store().await;
    store.close().await;
    let options = Options {
        effect_connections: 2,
        ..Options::default()
    };
    let store = Postgres::connect_with(database.url(), options)
        .await
        .unwrap();
    let mut cut = 0;
    for round in 0..400_u64 {
        let operation = async {
            let mut tx = store.begin(Begin { lease: None }).await?;
            let messages = [envelope(&format!("cut-{round}"), "k")];
            let settle = Settle {
                append: &messages,
                ..Settle::nothing(SUB, Identity::Message)
            };
            store.settle(&mut tx, settle).await?;
            store
                .end(
                    tx,
                    if round % 2 == 0 {
                        End::Commit
                    } else {
                        End::RollBack
                    },
                )
                .await
        };
        let limit = Duration::from_micros(round * 37 % 4_000);
        match tokio::time::timeout(limit, operation).await {
            Ok(done) => done.unwrap(),
            Err(_) => cut += 1,
        }
    }
    assert!(cut > 50, "only {cut} of 400 were cut off");
    for n in 0..100 {
        let mut tx = store.begin(Begin { lease: None }).await.unwrap();
        let messages = [envelope(&format!("kept-{n}"), "k")];
        let settle = Settle {
            append: &messages,
            ..Settle::nothing(SUB, Identity::Message)
        };
        store.settle(&mut tx, settle).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
    }
    let kept = "select count(*) from onceward.outbox where id like 'kept-%'";
    assert_eq!(database.psql(kept).await.trim(), "100");
    let clean = "select not exists (select 1 from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%')";
    until(&database, clean).await;
}

/// The same for reading, whose script is one trip.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_12_a_dropped_read_leaves_no_transaction_behind() {
    let (database, store) = store().await;
    let messages: Vec<_> = (0..500).map(|n| envelope(&n.to_string(), "k")).collect();
    append(&store, &messages).await;
    for round in 0..200_u64 {
        let limit = Duration::from_micros(round * 41 % 5_000);
        let mut position = Position::origin(1);
        let _ = tokio::time::timeout(limit, drain(&store, &mut position, 100)).await;
    }
    assert_eq!(
        drain(&store, &mut Position::origin(1), 100).await.len(),
        500
    );
    let clean = "select not exists (select 1 from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%')";
    until(&database, clean).await;
}

#[tokio::test]
async fn bc_35_sessions_of_a_read_only_time_are_not_kept() {
    let (database, store) = store().await;
    let name = database.name();
    let mut admin = session(&database).await;
    let freeze = format!("alter database {name} set default_transaction_read_only = on");
    execute(&mut admin, freeze).await;
    let end_all = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    execute(&mut admin, end_all).await;
    for _ in 0..20 {
        let error = store.begin(Begin { lease: None }).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly);
    }
    let thaw = format!(
        "set transaction_read_only = off;
        alter database {name} reset default_transaction_read_only"
    );
    execute(&mut admin, format!("begin; {thaw}; commit")).await;
    for _ in 0..20 {
        let tx = store.begin(Begin { lease: None }).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
    }
}

/// All pooled connections are dead after a restart; nobody notices.
#[tokio::test]
async fn dead_connections_in_the_pool_are_replaced() {
    let (database, store) = store().await;
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(store.begin(Begin { lease: None }).await.unwrap());
    }
    for tx in open {
        store.end(tx, End::Commit).await.unwrap();
    }
    let mut admin = session(&database).await;
    let end_all = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    execute(&mut admin, end_all).await;
    for _ in 0..5 {
        let tx = store.begin(Begin { lease: None }).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
    }
    store.head().await.unwrap();
    store.ping().await.unwrap();
}

/// The session ends while the commit is under way: whether it happened, nobody can say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown() {
    let (database, store) = store().await;
    let slow = "create table effects (n int);
        create function slow() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(1); return null; end $$;
        create constraint trigger slow after insert on effects
            deferrable initially deferred for each row execute function slow()";
    database.psql(slow).await;
    let mut holder = session(&database).await;
    execute(&mut holder, "begin; select pg_advisory_xact_lock(1)").await;
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    store
        .connection(&mut tx)
        .execute("insert into effects values (1)")
        .await
        .unwrap();
    let commit = tokio::spawn({
        let store = store.clone();
        async move { store.end(tx, End::Commit).await }
    });
    until(&database, WAITS).await;
    database
        .psql(
            "select pg_terminate_backend(l.pid) from pg_locks l
             join pg_database d on d.oid = l.database and d.datname = current_database()
             where l.locktype = 'advisory' and not l.granted",
        )
        .await;
    let error = commit.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::CommitUnknown);
}

/// Whatever the database's default isolation is.
#[tokio::test]
async fn bc_17_a_serializable_default_changes_nothing() {
    let (database, store) = store().await;
    store.close().await;
    let mut admin = session(&database).await;
    let name = database.name();
    execute(
        &mut admin,
        format!("alter database {name} set default_transaction_isolation = serializable"),
    )
    .await;
    let store = Postgres::connect(database.url()).await.unwrap();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let isolation: String = sqlx::query_scalar("show transaction_isolation")
        .fetch_one(store.connection(&mut tx))
        .await
        .unwrap();
    assert_eq!(isolation, "read committed");
    // A reader that took predicate locks would make serializable producers fail.
    append(&store, &[envelope("m", "k")]).await;
    drain(&store, &mut Position::origin(1), 10).await;
    let predicate = "select count(*) from pg_locks where mode = 'SIReadLock'
        and database = (select oid from pg_database where datname = current_database())";
    assert_eq!(database.psql(predicate).await.trim(), "0");
    store.end(tx, End::Commit).await.unwrap();
}

#[tokio::test]
async fn bc_26_what_cannot_be_kept_is_refused_by_name() {
    let (database, store) = store().await;
    let json = |text: &str| {
        let mut message = envelope("m", "k");
        message.payload = Payload::Json(text.into());
        message
    };
    let mut nul = envelope("m\0", "k");
    nul.id = "m\0".into();
    let mut long = envelope(&"x".repeat(1_001), "k");
    long.aggregate_version = Some(1);
    let cases = [
        nul,
        long,
        json("{\"a\":"),
        json(""),
        json("\u{0}"),
        envelope("", "k"),
    ];
    for (n, message) in cases.into_iter().enumerate() {
        for batch in [vec![message.clone()], vec![envelope("good", "k"), message]] {
            let mut connection = session(&database).await;
            execute(&mut connection, "begin").await;
            let error = store.append(&mut connection, &batch).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refused, "case {n}: {error:?}");
        }
    }
    let kept = [
        "1e400",
        "123456789012345678901234567890123456789012345678901234567890",
        "\"\"",
        "{\"a\":1,\"a\":2}",
        "\"\\u0000\"",
        "\"\\ud800\"",
    ];
    let messages: Vec<_> = kept.iter().map(|text| json(text)).collect();
    append(&store, &messages).await;
    let rows = drain(&store, &mut Position::origin(1), 100).await;
    for (row, text) in rows.iter().zip(kept) {
        assert_eq!(row.envelope.payload.as_bytes(), text.as_bytes());
    }
    assert_eq!(rows.len(), kept.len());
}

#[tokio::test]
async fn ex_07_errors_quote_no_data_and_no_password() {
    let (database, store) = store().await;
    let mut message = envelope("m", "k");
    message.payload = Payload::Json("{\"card\": 4111-1111}".into());
    let mut connection = session(&database).await;
    let error = store.append(&mut connection, &[message]).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("4111"), "{shown}");
    let error = Postgres::connect("postgres://u:hunter2@127.0.0.1:1/x")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let error = Postgres::connect("not a url with hunter2")
        .await
        .unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"));
}

/// Renewals have connections of their own: handlers that hold all of theirs starve nobody.
#[tokio::test]
async fn ex_10_renewals_go_on_while_handlers_hold_every_connection() {
    use onceward_core::store::{Lanes, Renew};
    let (database, store) = store().await;
    store.close().await;
    let options = Options {
        effect_connections: 2,
        acquire_timeout_ms: 200,
        ..Options::default()
    };
    let store = Postgres::connect_with(database.url(), options)
        .await
        .unwrap();
    let lease = crate::support::join(&store, "a", 60_000).await;
    let held = [
        store
            .begin(Begin {
                lease: Some(&lease),
            })
            .await
            .unwrap(),
        store
            .begin(Begin {
                lease: Some(&lease),
            })
            .await
            .unwrap(),
    ];
    let error = store
        .begin(Begin {
            lease: Some(&lease),
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    store.renew(Renew::of(&lease)).await.unwrap();
    store.head().await.unwrap();
    store.ping().await.unwrap();
    drop(held);
}
