//! Migrating at once, half way, and from the future.

use onceward_core::store::{Log, Schema, SchemaState, StoreErrorKind};
use onceward_postgres::Postgres;
use onceward_testkit::postgres::TestDatabase;

use crate::support::{execute, session, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ex_12_five_migrators_at_once() {
    for _ in 0..3 {
        let database = TestDatabase::lease().await;
        let mut tasks = Vec::new();
        for _ in 0..5 {
            let store = Postgres::connect(database.url()).await.unwrap();
            tasks.push(tokio::spawn(async move {
                let state = store.migrate().await;
                store.close().await;
                state
            }));
        }
        for task in tasks {
            assert!(matches!(
                task.await.unwrap(),
                Ok(SchemaState::Current { .. })
            ));
        }
        let versions = database
            .psql("select version from onceward.migrations order by 1")
            .await;
        let expected: Vec<String> = (1..=versions.lines().count())
            .map(|n| n.to_string())
            .collect();
        assert_eq!(versions.lines().collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn ex_12_a_migrator_that_dies_half_way_leaves_nothing() {
    let database = TestDatabase::lease().await;
    let store = Postgres::connect(database.url()).await.unwrap();
    // It dies at its third migration, after the others were made.
    let trap = "create function public.trap() returns event_trigger language plpgsql as $$
        begin
            if current_query() like '%ledger_early%' then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
        end $$;
        create event trigger trap on ddl_command_end execute function public.trap()";
    database.psql(trap).await;
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(store.schema_state().await.unwrap(), SchemaState::Missing);
    database.psql("drop event trigger trap").await;
    assert!(matches!(
        store.migrate().await.unwrap(),
        SchemaState::Current { .. }
    ));
    store.head().await.unwrap();
}

#[tokio::test]
async fn ex_12_tables_of_a_newer_program_are_not_touched() {
    let (database, store) = store().await;
    let mut connection = session(&database).await;
    execute(
        &mut connection,
        "insert into onceward.migrations (version, name) values (999, 'x')",
    )
    .await;
    let state = store.schema_state().await.unwrap();
    assert!(
        matches!(state, SchemaState::Ahead { version: 999, .. }),
        "{state:?}"
    );
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(error.to_string().contains("999"), "{error}");
}

#[tokio::test]
async fn everything_is_in_one_schema_and_in_no_other() {
    let (database, store) = store().await;
    let elsewhere = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname not in ('onceward', 'pg_catalog', 'information_schema', 'pg_toast')";
    assert_eq!(database.psql(elsewhere).await.trim(), "0");
    // A hostile search path changes nothing.
    let mut connection = session(&database).await;
    let hostile = "create schema evil; create table evil.members (fence bigint);
        create function evil.pg_advisory_xact_lock_shared(bigint) returns void language sql
            as 'select 1/0';
        set search_path = evil, pg_catalog";
    execute(&mut connection, hostile).await;
    let lease = crate::support::join(&store, "a", 60_000).await;
    execute(
        &mut connection,
        format!("select onceward.enter({}, 1000)", lease.fence),
    )
    .await;
}

#[tokio::test]
async fn a_source_given_by_the_service_is_kept() {
    let (database, store) = store().await;
    let named = store.with_source("https://orders.example");
    named.migrate().await.unwrap();
    let source = database.psql("select source from onceward.meta").await;
    assert_eq!(source.trim(), "https://orders.example");
}
