//! Restored and copied databases.

use std::process::Command;

use onceward_core::retry::Spent;
use onceward_core::store::{
    Append, Begin, Deferral, DeferralKind, Deferrals, Effects, End, Lanes, LoadKey, Log, ReadPage,
    SavePosition, Schema, Settle, Span, Start, StoreErrorKind, Take,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Position, Row};
use onceward_postgres::Postgres;
use onceward_testkit::postgres::{PostgresOptions, PostgresServer, TestDatabase};

use crate::support::{
    SUB, append, drain, envelope, execute, ids, join, read, register, session, store, take,
};

async fn kinds_of_refusal(store: &Postgres, position: &Position) -> Vec<StoreErrorKind> {
    let lease = join(store, "eager", 60_000).await;
    let request = ReadPage {
        from: position,
        rows_max: 1,
        bytes_max: 1,
    };
    let take = Take {
        lease: &lease,
        subscription: SUB,
        lanes: &[0],
    };
    vec![
        store.schema_state().await.unwrap_err().kind(),
        store.read(request).await.unwrap_err().kind(),
        store.head().await.unwrap_err().kind(),
        store.take(take).await.unwrap_err().kind(),
    ]
}

/// Dumped with a backlog, restored into a cluster whose transaction numbers are far lower, appended
/// to before anybody noticed: what was unread is read, what was read is not, and what was done out
/// of turn is not done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_with_a_backlog_goes_on_in_a_new_cluster() {
    let (database, old) = store().await;
    let mut connection = session(&database).await;
    let burn = "do $$ begin for i in 1..20000 loop
        begin perform pg_current_xact_id(); insert into t values (1);
        exception when others then raise; end; end loop; end $$";
    execute(&mut connection, format!("create table t (n int); {burn}")).await;
    execute(&mut connection, "create table effects (id text)").await;
    let position = leave_a_backlog(&database, &old).await;
    old.close().await;
    let server = PostgresServer::start_with(PostgresOptions::quick()).await;
    restore_a_dump(&database, &server).await;

    let store = Postgres::connect(&server.url("postgres")).await.unwrap();
    append(&store, &[envelope("early-bird", "a")]).await;
    let wrong = StoreErrorKind::WrongEra;
    assert_eq!(kinds_of_refusal(&store, &position).await, [wrong; 4]);
    assert_eq!(store.start_era().await.unwrap(), 2);
    append(&store, &[envelope("new-1", "a")]).await;
    let lease = join(&store, "n", 60_000).await;
    let taken = take(&store, &lease).await;
    assert_eq!(taken.len(), 4);
    let mut connection = session_of(&server).await;
    let mut due = Vec::new();
    for rows_max in [1, 2, 100] {
        let mut position = taken[0].stand.position.clone();
        assert_eq!(position.era, 2);
        let rows = drain(&store, &mut position, rows_max).await;
        assert_eq!(
            ids(&rows),
            [
                "late",
                "unread-1",
                "unread-2",
                "deferred",
                "early-bird",
                "new-1"
            ]
        );
        due = rows;
        append(&store, &[envelope("later", "a")]).await;
        let (rows, _) = read(&store, &position, 10).await;
        assert_eq!(ids(&rows), ["later"]);
        execute(
            &mut connection,
            "delete from onceward.outbox where id = 'later'",
        )
        .await;
    }
    // What is deferred keeps its place, and its message.
    let query = LoadKey {
        subscription: SUB,
        slot: due[3].slot,
        key: "c",
        after_seq: 0,
        versions_to: None,
        rows_max: 10,
    };
    let deferred = store.load_key(query).await.unwrap();
    assert_eq!(deferred.len(), 1);
    assert_eq!(deferred[0].row.envelope, due[3].envelope);
    let mut done = Vec::new();
    for row in &due {
        done.push(act(&store, row).await);
    }
    assert_eq!(done, [true, false, true, true, true, true]);
    let effects = "select string_agg(id, ' ' order by id) from effects";
    let effects: String = sqlx::query_scalar(effects)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(
        effects,
        "deferred early-bird late new-1 read-1 read-2 read-3 unread-1 unread-2"
    );
    // The old position itself is of no use any more.
    let request = ReadPage {
        from: &position,
        rows_max: 1,
        bytes_max: 1,
    };
    assert_eq!(store.read(request).await.unwrap_err().kind(), wrong);
}

/// Three messages done and behind the position that is returned; one that commits after it, two
/// more, of which one is done already, and one that is deferred.
async fn leave_a_backlog(database: &TestDatabase, store: &Postgres) -> Position {
    register(store, Start::Earliest).await;
    append(store, &[envelope("read-1", "a"), envelope("read-2", "a")]).await;
    let mut late = session(database).await;
    execute(&mut late, "begin").await;
    store
        .append(&mut late, &[envelope("late", "b")])
        .await
        .unwrap();
    append(store, &[envelope("read-3", "a")]).await;
    let lease = join(store, "m", 60_000).await;
    let taken = take(store, &lease).await;
    let mut position = Position::origin(1);
    let rows = drain(store, &mut position, 10).await;
    assert_eq!(ids(&rows), ["read-1", "read-2", "read-3"]);
    for row in &rows {
        assert!(act(store, row).await);
    }
    let spans = [Span {
        stand: position.clone().into(),
        lanes: taken.iter().map(|lane| (lane.lane, lane.epoch)).collect(),
    }];
    let save = SavePosition {
        member: "m",
        subscription: SUB,
        spans: &spans,
    };
    store.save_position(save).await.unwrap();
    store.leave(&lease).await.unwrap();
    execute(&mut late, "commit").await;
    let more = [("unread-1", "a"), ("unread-2", "a"), ("deferred", "c")];
    append(store, &more.map(|(id, key)| envelope(id, key))).await;
    let rows = drain(store, &mut position.clone(), 10).await;
    assert_eq!(ids(&rows), ["late", "unread-1", "unread-2", "deferred"]);
    assert!(act(store, &rows[1]).await);
    let defer = [Deferral {
        seq: rows[3].seq,
        slot: rows[3].slot,
        key: "c".into(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(0),
        spent: Spent::default(),
        failure: None,
    }];
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let settle = Settle {
        defer: &defer,
        ..Settle::nothing(SUB, Identity::Message)
    };
    store.settle(&mut tx, settle).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    position
}

/// Acts once for a message, as the ledger has it; false where that was done before.
async fn act(store: &Postgres, row: &Row) -> bool {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let ledger = [LedgerEntry {
        key: LedgerKey::of(row, Identity::Message),
        digest: None,
        ending: Ending::Done,
        result: None,
        aggregate_version: None,
        aggregate: None,
    }];
    let settle = Settle {
        ledger: &ledger,
        ..Settle::nothing(SUB, Identity::Message)
    };
    let is_first = store.settle(&mut tx, settle).await.unwrap().ledger_rows == 1;
    if is_first {
        sqlx::query("insert into effects values ($1)")
            .bind(&row.envelope.id)
            .execute(store.connection(&mut tx))
            .await
            .unwrap();
    }
    store.end(tx, End::Commit).await.unwrap();
    is_first
}

async fn restore_a_dump(database: &TestDatabase, server: &PostgresServer) {
    let dump = format!(
        "'{0}/pg_dump' --dbname='{1}' | psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --dbname='{2}'",
        server.programs().display(),
        database.url(),
        server.url("postgres"),
    );
    let done = tokio::task::spawn_blocking(move || {
        Command::new("bash")
            .args(["-o", "pipefail", "-c", &dump])
            .output()
            .unwrap()
    });
    let done = done.await.unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

async fn session_of(server: &PostgresServer) -> sqlx::PgConnection {
    use sqlx::Connection as _;
    sqlx::PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap()
}

/// A copy within the same cluster is another database too, and may be copied again.
#[tokio::test]
async fn a_copy_is_noticed_and_eras_follow_each_other() {
    let (database, store) = store().await;
    register(&store, Start::Earliest).await;
    append(&store, &[envelope("first", "a")]).await;
    store.close().await;
    let second = database.copy().await;
    let store = Postgres::connect(second.url()).await.unwrap();
    assert_eq!(
        kinds_of_refusal(&store, &Position::origin(1)).await,
        [StoreErrorKind::WrongEra; 4]
    );
    assert_eq!(store.start_era().await.unwrap(), 2);
    append(&store, &[envelope("second", "a")]).await;
    store.close().await;
    let third = second.copy().await;
    let store = Postgres::connect(third.url()).await.unwrap();
    assert_eq!(store.start_era().await.unwrap(), 3);
    append(&store, &[envelope("third", "a")]).await;
    let lease = join(&store, "n", 60_000).await;
    let taken = take(&store, &lease).await;
    let mut position = taken[0].stand.position.clone();
    assert_eq!(
        ids(&drain(&store, &mut position, 1).await),
        ["first", "second", "third"]
    );
    let question = onceward_core::store::BacklogQuery {
        subscription: SUB,
        count_max: 10,
        before: None,
    };
    let backlog = onceward_core::store::Status::backlog(&store, question)
        .await
        .unwrap();
    assert!(backlog.waiting >= 1 && backlog.waiting_is_lower_bound);
}
