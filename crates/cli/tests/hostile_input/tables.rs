//! Tables that are made by several at once, by one that dies, or by a newer program.

use std::process::Child;

use sqlx::{Connection as _, Executor as _};

use crate::on_both_stores;
use crate::place::{ONE_TYPE, Place, event};

const ROUNDS: usize = 10;
const INSTANCES: usize = 5;

/// Starts several at once on an empty database and stops them once all are ready.
fn all_start(place: &Place) {
    place.configure(ONE_TYPE);
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..INSTANCES)
            .map(|n| scope.spawn(move || place.up_named(&format!("up-{n}.log"), &["--migrate"])))
            .collect();
        let daemons: Vec<_> = starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect();
        for daemon in daemons {
            assert_eq!(daemon.stop(), 0);
        }
    });
    let version = place.run(&["migrate", "--json"]).ended(0).json();
    assert_eq!(version["has_changed"], false);
}

#[test]
fn five_at_once_migrate_an_empty_file() {
    for _ in 0..ROUNDS {
        all_start(&Place::sqlite());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_at_once_migrate_an_empty_database() {
    for _ in 0..ROUNDS {
        let place = Place::postgres().await;
        tokio::task::block_in_place(|| all_start(&place));
    }
}

/// The tables work: an event is taken.
fn works(place: &Place) {
    place.run(&["migrate"]).ended(0);
    place
        .run_with_input(&["send"], event("m1", "order.accepted", "o1", "1"))
        .ended(0);
    place.run(&["operation", "show", "m1"]).ended(0);
}

/// A migration is held up half way by an event trigger that waits for a lock, and its process killed
/// there.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_killed_half_way_is_run_again() {
    let place = Place::postgres().await;
    place.configure(ONE_TYPE);
    let mut holder = sqlx::PgConnection::connect(place.database_url())
        .await
        .unwrap();
    for table in ["onceward.ledger", "onceward.members", "onceward.migrations"] {
        let setup = format!(
            "create function public.hold() returns event_trigger language plpgsql as $$
             begin
                 if to_regclass('{table}') is not null then
                     perform pg_advisory_xact_lock(42);
                 end if;
             end $$;
             create event trigger hold on ddl_command_end when tag in ('CREATE TABLE')
                 execute function public.hold();
             select pg_advisory_lock(42);"
        );
        holder
            .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(setup)))
            .await
            .unwrap();
        let mut migrating = place.start(&["migrate"]);
        // Where it is held up, by the server's word.
        let waiting = "select count(*) from pg_locks where locktype = 'advisory' and objid = 42
                       and not granted and database = (select oid from pg_database
                       where datname = current_database())";
        loop {
            assert!(
                migrating.try_wait().unwrap().is_none(),
                "held up at {table}"
            );
            let count: i64 = sqlx::query_scalar(waiting)
                .fetch_one(&mut holder)
                .await
                .unwrap();
            if count == 1 {
                break;
            }
        }
        kill(migrating);
        // Its transaction ends when its session finds that nobody is there.
        let end = "select pg_advisory_unlock(42);
                   select pg_terminate_backend(pid, 10000) from pg_stat_activity
                   where datname = current_database() and pid <> pg_backend_pid()
                   and backend_type = 'client backend';
                   drop event trigger hold;
                   drop function public.hold();";
        holder.execute(sqlx::raw_sql(end)).await.unwrap();
        let ran = place.run(&["backlog"]);
        assert!([0, 4].contains(&ran.code), "{ran:#?}");
    }
    holder.close().await.unwrap();
    works(&place);
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Killed as soon as its file is there, and at several moments after.
#[test]
fn a_migration_of_a_file_that_was_killed_is_run_again() {
    for round in 0..10 {
        let place = Place::sqlite();
        place.configure(ONE_TYPE);
        let mut migrating = place.start(&["migrate"]);
        let (file, wal) = (place.path("onceward.db"), place.path("onceward.db-wal"));
        // Later each time: at the file, at its log, at so many bytes in the log.
        let is_far = || match round {
            0 => file.exists(),
            n => std::fs::metadata(&wal).is_ok_and(|m| m.len() >= (n - 1) * 20_000),
        };
        while !is_far() && migrating.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        kill(migrating);
        works(&place);
    }
}

on_both_stores! {
    async fn tables_of_a_newer_program_are_left_alone(place) {
        place.configure(ONE_TYPE);
        place.run(&["migrate"]).ended(0);
        if place.is_sqlite() {
            let url = format!("sqlite:{}", place.path("onceward.db").display());
            let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
            let sql = "INSERT INTO onceward_schema (version, name, applied_at) VALUES (999, 'later', 0)";
            connection.execute(sql).await.unwrap();
            connection.close().await.unwrap();
        } else {
            place.psql("insert into onceward.migrations (version, name) values (999, 'later')").await;
        }
        for args in [&["up"][..], &["up", "--migrate"], &["migrate"], &["send"], &["backlog"], &["operation", "show", "x"], &["quarantine", "list"]] {
            let ran = place.run(args).ended(4);
            assert!(ran.out.is_empty(), "{ran:#?}");
            ran.says(&["OW1008", "999", "update onceward"]);
        }
    }
}
