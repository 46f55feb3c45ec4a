//! Restored and copied databases.

use std::process::Command;

use onceward_core::Position;
use onceward_core::store::Lanes;
use onceward_core::store::{
    Log, ReadPage, SavePosition, Schema, Span, Start, StoreErrorKind, Take,
};
use onceward_postgres::Postgres;
use onceward_testkit::postgres::{PostgresOptions, PostgresServer};

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
/// to before anybody noticed: what was unread is read, what was read is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_with_a_backlog_goes_on_in_a_new_cluster() {
    let (database, old) = store().await;
    let mut connection = session(&database).await;
    let burn = "do $$ begin for i in 1..20000 loop
        begin perform pg_current_xact_id(); insert into t values (1);
        exception when others then raise; end; end loop; end $$";
    execute(&mut connection, format!("create table t (n int); {burn}")).await;
    register(&old, Start::Earliest).await;
    append(&old, &[envelope("read-1", "a"), envelope("read-2", "a")]).await;
    let mut late = session(&database).await;
    execute(&mut late, "begin").await;
    onceward_core::store::Append::append(&old, &mut late, &[envelope("late", "b")])
        .await
        .unwrap();
    append(&old, &[envelope("read-3", "a")]).await;
    let lease = join(&old, "m", 60_000).await;
    let taken = take(&old, &lease).await;
    let mut position = Position::origin(1);
    assert_eq!(drain(&old, &mut position, 10).await.len(), 3);
    let lanes = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    let spans = [Span {
        position: position.clone(),
        lanes,
    }];
    let save = SavePosition {
        member: "m",
        subscription: SUB,
        spans: &spans,
    };
    old.save_position(save).await.unwrap();
    old.leave(&lease).await.unwrap();
    execute(&mut late, "commit").await;
    append(
        &old,
        &[envelope("unread-1", "a"), envelope("unread-2", "a")],
    )
    .await;
    old.close().await;

    let server = PostgresServer::start_with(PostgresOptions::quick()).await;
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

    let store = Postgres::connect(&server.url("postgres")).await.unwrap();
    append(&store, &[envelope("early-bird", "a")]).await;
    let wrong = StoreErrorKind::WrongEra;
    assert_eq!(kinds_of_refusal(&store, &position).await, [wrong; 4]);
    assert_eq!(store.start_era().await.unwrap(), 2);
    append(&store, &[envelope("new-1", "a")]).await;
    let lease = join(&store, "n", 60_000).await;
    let taken = take(&store, &lease).await;
    assert_eq!(taken.len(), 4);
    for rows_max in [1, 2, 100] {
        let mut position = taken[0].position.clone();
        assert_eq!(position.era, 2);
        let rows = drain(&store, &mut position, rows_max).await;
        assert_eq!(
            ids(&rows),
            ["late", "unread-1", "unread-2", "early-bird", "new-1"]
        );
        append(&store, &[envelope("later", "a")]).await;
        let (rows, _) = read(&store, &position, 10).await;
        assert_eq!(ids(&rows), ["later"]);
        execute(
            &mut session_of(&server).await,
            "delete from onceward.outbox where id = 'later'",
        )
        .await;
    }
    // The old position itself is of no use any more.
    let request = ReadPage {
        from: &position,
        rows_max: 1,
        bytes_max: 1,
    };
    assert_eq!(store.read(request).await.unwrap_err().kind(), wrong);
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
    let mut position = taken[0].position.clone();
    assert_eq!(
        ids(&drain(&store, &mut position, 1).await),
        ["first", "second", "third"]
    );
    let question = onceward_core::store::BacklogQuery {
        subscription: SUB,
        count_max: 10,
    };
    let backlog = onceward_core::store::Status::backlog(&store, question)
        .await
        .unwrap();
    assert!(backlog.waiting >= 1 && backlog.waiting_is_lower_bound);
}
