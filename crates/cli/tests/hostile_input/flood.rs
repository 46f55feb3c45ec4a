//! Twenty thousand messages wait behind a receiver that takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;

use crate::on_both_stores;
use crate::place::{Daemon, event, push_to};
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
        let data = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES));
        let lines: String = (0..MESSAGES)
            .map(|n| event(&format!("m{n:05}"), "order.accepted", &format!("o{}", n % 1_000), &data))
            .collect();
        place.write("events.jsonl", &lines);
        place.run(&["send", "events.jsonl"]).ended(0);
        let daemon = place.up(&[]);
        // Some are sent, and are sent again once their time is over.
        for _ in 0..50 {
            receiver.next().await;
        }
        is_silent.store(false, Ordering::SeqCst);
        for _ in 0..2_000 {
            receiver.next().await;
        }
        let peak = peak_kib(&daemon);
        eprintln!("peak {peak} KiB, {} ticks", ticks(&daemon));
        assert!(peak < RESIDENT_MAX_KIB, "{peak} KiB");
        let backlog = place.backlog();
        assert!(backlog["waiting"].as_u64().unwrap() > 0, "{backlog}");
        assert_eq!(daemon.stop(), 0);
    }
}
