//! Field case EX-11: behind a pooler that lends a session for one transaction.

use onceward_core::store::{
    AcceptRequest, Acceptance, Accepted, Append, Begin, Effects, End, Settle, Start, StoreErrorKind,
};
use onceward_core::{Identity, Position, Timestamp};
use onceward_postgres::{Clock, Pooler, Postgres, Tx};
use onceward_testkit::postgres::{PgBouncer, TestDatabase};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::support::{SUB, drain, envelope, execute, ids, join, register, store, take, until};

/// A store behind a pooler that lends as many sessions as it is told.
async fn pooled(sessions: u32) -> (TestDatabase, PgBouncer, Postgres) {
    let (database, direct) = store().await;
    direct.close().await;
    let pooler = PgBouncer::start(database.url(), sessions).await;
    let store = Postgres::connect(&pooler.url(database.url()))
        .await
        .unwrap();
    (database, pooler, store)
}

/// A connection of a client that prepares nothing.
async fn plain(database: &TestDatabase, pooler: &PgBouncer) -> PgConnection {
    let options = onceward_postgres::connect_options(&pooler.url(database.url())).unwrap();
    PgConnection::connect_with(&options).await.unwrap()
}

/// What the pooler's only session holds: prepared statements, locks, settings.
async fn left_in_the_session(client: &mut PgConnection) -> Vec<String> {
    let left = "select name from pg_prepared_statements
        union all select mode from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
        union all select name from pg_settings
            where source = 'session' and name not in ('application_name', 'TimeZone')";
    let rows = sqlx::raw_sql(left).fetch_all(client).await.unwrap();
    rows.iter().map(|row| sqlx::Row::get(row, 0)).collect()
}

async fn append_in(store: &Postgres, tx: &mut Tx, id: &str) {
    let messages = [envelope(id, "k")];
    let settle = Settle {
        append: &messages,
        ..Settle::nothing(SUB, Identity::Message)
    };
    store.settle(tx, settle).await.unwrap();
}

async fn settle(store: &Postgres, id: &str, end: End) {
    let lease = join(store, id, 60_000).await;
    let begin = Begin {
        lease: Some(&lease),
    };
    let mut tx = store.begin(begin).await.unwrap();
    let own: i64 = sqlx::query_scalar("select $1::bigint")
        .bind(7_i64)
        .fetch_one(store.connection(&mut tx))
        .await
        .unwrap();
    assert_eq!(own, 7);
    append_in(store, &mut tx, id).await;
    append_in(store, &mut tx, &format!("{id}-2")).await;
    store.end(tx, end).await.unwrap();
}

#[tokio::test]
async fn ex_11_a_pooler_is_noticed_and_none_is_too() {
    let (database, direct) = store().await;
    assert_eq!(direct.pooler().await.unwrap(), Pooler::None);
    let bouncer = PgBouncer::start(database.url(), 2).await;
    let through = Postgres::connect(&bouncer.url(database.url())).await;
    let found = through.unwrap().pooler().await.unwrap();
    assert_eq!(found, Pooler::Forgetful);
    // Sessions that stay look the same until they do not: the careful way is right for both.
    let settings = [("pool_mode", "session")];
    let bouncer = PgBouncer::start_with(database.url(), 9, &settings).await;
    let through = Postgres::connect(&bouncer.url(database.url())).await;
    let found = through.unwrap().pooler().await.unwrap();
    assert_eq!(found, Pooler::Forgetful);
}

#[tokio::test]
async fn ex_11_a_session_goes_back_as_it_came() {
    let (database, pooler, store) = pooled(1).await;
    let mut client = plain(&database, &pooler).await;
    assert!(left_in_the_session(&mut client).await.is_empty());
    settle(&store, "a", End::Commit).await;
    assert!(left_in_the_session(&mut client).await.is_empty());
    settle(&store, "b", End::RollBack).await;
    assert!(left_in_the_session(&mut client).await.is_empty());
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let failed = sqlx::query("select $1::int / 0").bind(1);
    let failed = failed.execute(store.connection(&mut tx)).await;
    assert!(failed.is_err());
    store.end(tx, End::RollBack).await.unwrap();
    assert!(left_in_the_session(&mut client).await.is_empty());
    let rows = drain(&store, &mut Position::origin(1), 10).await;
    assert_eq!(ids(&rows), ["a", "a-2"]);
}

/// Two clients in turn, whose statements have the same names and the same parameters.
#[tokio::test]
async fn ex_11_nobody_runs_the_statement_of_another() {
    let (database, pooler, first) = pooled(2).await;
    let second = Postgres::connect(&pooler.url(database.url()))
        .await
        .unwrap();
    let number = async |store: &Postgres, sql: &'static str| -> i64 {
        let mut tx = store.begin(Begin { lease: None }).await.unwrap();
        let query = sqlx::query_scalar(sql).bind(20_i64);
        let number = query.fetch_one(store.connection(&mut tx)).await.unwrap();
        store.end(tx, End::Commit).await.unwrap();
        number
    };
    for _ in 0..20 {
        assert_eq!(number(&first, "select $1::bigint + 1").await, 21);
        assert_eq!(number(&second, "select $1::bigint * 2").await, 40);
    }
}

#[tokio::test]
async fn ex_11_what_others_left_in_a_session_is_in_nobodys_way() {
    let (database, pooler, store) = pooled(1).await;
    let mut other = plain(&database, &pooler).await;
    for n in 1..40 {
        execute(&mut other, format!("prepare sqlx_s_{n} as select {n}")).await;
    }
    settle(&store, "a", End::Commit).await;
    let rows = drain(&store, &mut Position::origin(1), 10).await;
    assert_eq!(ids(&rows), ["a", "a-2"]);
}

/// The application's pool, whose connections know statements that they prepared elsewhere.
#[tokio::test]
async fn ex_11_what_the_application_prepared_before_is_prepared_again() {
    const SQL: &str = "select $1::int + 1";
    let (database, pooler, store) = pooled(1).await;
    store.close().await;
    let options = onceward_postgres::connect_options(&pooler.url(database.url())).unwrap();
    let pool = PgPoolOptions::new().max_connections(1);
    let pool: PgPool = pool.connect_with(options).await.unwrap();
    let two: i32 = sqlx::query_scalar(SQL)
        .bind(1)
        .fetch_one(&pool)
        .await
        .unwrap();
    let store = Postgres::from_pool(pool);
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let again = sqlx::query_scalar(SQL).bind(1);
    let again: i32 = again.fetch_one(store.connection(&mut tx)).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
    assert_eq!((two, again), (2, 2));
}

/// A transaction that the application began itself, with statements that are not kept.
#[tokio::test]
async fn ex_11_an_own_transaction_appends_and_accepts() {
    let (database, pooler, store) = pooled(1).await;
    let mut client = plain(&database, &pooler).await;
    let pool = store.pool();
    execute(&mut client, "create table orders (id text)").await;
    for (id, expected) in [("a", true), ("b", true), ("a", false)] {
        let mut tx = pool.begin().await.unwrap();
        let order = sqlx::query("insert into orders values ($1)").bind(id);
        order.persistent(false).execute(&mut *tx).await.unwrap();
        let request = AcceptRequest {
            caller: "c",
            key: id,
            digest: [7; 16],
            memory_ms: 60_000,
        };
        let accepted = store.accept(&mut tx, request.clone()).await.unwrap();
        assert_eq!(accepted == Accepted::First, expected);
        if expected {
            store.append(&mut tx, &[envelope(id, "k")]).await.unwrap();
            let many = [
                envelope(&format!("{id}2"), "k"),
                envelope(&format!("{id}3"), "k"),
            ];
            store.append(&mut tx, &many).await.unwrap();
            store.answer(&mut tx, request, "{}").await.unwrap();
        }
        tx.commit().await.unwrap();
        assert!(left_in_the_session(&mut client).await.is_empty());
    }
    let rows = drain(&store, &mut Position::origin(1), 10).await;
    assert_eq!(ids(&rows), ["a", "a2", "a3", "b", "b2", "b3"]);
}

/// The fence is held by a session that is the member's for the moment: that one is ended, and
/// whoever gets sessions after it does not notice.
#[tokio::test]
async fn ex_11_a_takeover_ends_the_session_that_holds_the_fence_and_no_other() {
    let (_database, _pooler, store) = pooled(3).await;
    let clock = Clock::fixed(Timestamp::from_micros(1_800_000_000_000_000));
    let store = store.with_clock(clock.clone());
    register(&store, Start::Earliest).await;
    let old = join(&store, "old", 60_000).await;
    take(&store, &old).await;
    let mut stale = store.begin(Begin { lease: Some(&old) }).await.unwrap();
    append_in(&store, &mut stale, "stale").await;
    let bystander = join(&store, "bystander", 86_400_000).await;
    let begin = Begin {
        lease: Some(&bystander),
    };
    let mut other = store.begin(begin).await.unwrap();
    append_in(&store, &mut other, "other").await;
    clock.advance_ms(61_000);
    let new = join(&store, "new", 60_000).await;
    let taken = take(&store, &new).await;
    assert!(taken.len() == 4 && taken.iter().all(|lane| lane.is_suspect));
    store.end(stale, End::Commit).await.unwrap_err();
    store.end(other, End::Commit).await.unwrap();
    for n in 0..10 {
        settle(&store, &n.to_string(), End::RollBack).await;
    }
    let rows = drain(&store, &mut Position::origin(1), 10).await;
    assert_eq!(ids(&rows), ["other"]);
}

/// A transaction that stands still for longer than its lease is ended by the server.
#[tokio::test]
async fn ex_11_a_transaction_that_stands_still_is_ended() {
    let (database, _pooler, store) = pooled(2).await;
    register(&store, Start::Earliest).await;
    let lease = join(&store, "a", 50).await;
    let begin = Begin {
        lease: Some(&lease),
    };
    let mut tx = store.begin(begin).await.unwrap();
    let gone = "select not exists (select 1 from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%')";
    until(&database, gone).await;
    let messages = [envelope("m", "k")];
    let settle = Settle {
        append: &messages,
        ..Settle::nothing(SUB, Identity::Message)
    };
    let error = store.settle(&mut tx, settle).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Overstayed, "{error:?}");
}
