//! Twenty thousand messages wait behind a receiver that takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use sqlx::{Connection as _, Executor as _};

use crate::on_both_stores;
use crate::place::{Daemon, Place, push_to};
use crate::receiver::{Answer, Received, Receiver};

const MESSAGES: usize = 20_000;

/// Payload of each. All together are more than the process may have in memory.
const PAYLOAD_BYTES: usize = 4_500;

/// Largest resident memory in an unoptimised build, in KiB.
const RESIDENT_MAX_KIB: u64 = 80 << 10;

/// The most that a process ever had in memory, in KiB.
fn peak_kib(daemon: &Daemon) -> u64 {
    let path = format!("/proc/{}/status", daemon.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time used so far, in clock ticks (100 in a second).
fn ticks(daemon: &Daemon) -> u64 {
    let path = format!("/proc/{}/stat", daemon.pid().as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Inserts the messages by one statement.
async fn queue(place: &Place) {
    let columns = "(id, aggregatetype, aggregateid, type, payload)";
    let data = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES));
    if place.is_sqlite() {
        let mut connection = sqlx::SqliteConnection::connect(&place.store_url())
            .await
            .unwrap();
        let sql = format!(
            "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < {MESSAGES})
             INSERT INTO onceward_outbox {columns}
             SELECT 'm' || n, 'order', 'o' || (n % 1000), 'order.accepted', '{data}' FROM n"
        );
        let inserting = connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)));
        inserting.await.unwrap();
        connection.close().await.unwrap();
    } else {
        let sql = format!(
            "insert into onceward.outbox {columns}
             select 'm' || n, 'order', 'o' || n % 1000, 'order.accepted', '{data}'
             from generate_series(1, {MESSAGES}) n"
        );
        place.psql(&sql).await;
    }
}

on_both_stores! {
    async fn memory_stays_bounded_behind_a_slow_receiver(place) {
        let is_silent = Arc::new(AtomicBool::new(true));
        let silent = Arc::clone(&is_silent);
        let answer = move |_: &Received| match silent.load(Ordering::SeqCst) {
            true => Answer::Never,
            false => StatusCode::OK.into(),
        };
        let mut receiver = Receiver::start(answer, false).await;
        let config = push_to(&receiver.url()).replace("/hook\" }", "/hook\", timeout = \"1s\" }");
        place.configure(&config);
        place.run(&["migrate"]).ended(0);
        queue(&place).await;
        let daemon = place.up(&[]);
        receiver.next().await;
        let (since, before) = (Instant::now(), ticks(&daemon));
        // Some are sent, then one now and then to see whether it answers again.
        for _ in 0..7 {
            receiver.next().await;
        }
        // Behind a receiver that says nothing there is next to nothing to do.
        let (used, passed) = (ticks(&daemon) - before, since.elapsed().as_millis() / 10);
        assert!(u128::from(used) < passed / 2, "{used} of {passed} ticks");
        is_silent.store(false, Ordering::SeqCst);
        for _ in 0..2_000 {
            receiver.next().await;
        }
        let peak = peak_kib(&daemon);
        assert!(peak < RESIDENT_MAX_KIB, "{peak} KiB");
        let backlog = place.backlog();
        assert!(backlog["waiting"].as_u64().unwrap() > 0, "{backlog}");
        assert_eq!(daemon.stop(), 0);
    }
}
