//! What goes next: probes of the other side, and an operator's limit of starts.

use super::super::run::tests::{Desk, contract, lane_taken, retry, row};
use super::super::*;
use crate::Failure;
use crate::rate::RateLimit;
use crate::store::DeferredRow;

/// Half open, for as long as no pace says otherwise.
const PROBING: Pace = Pace {
    pause_ms: None,
    person_pause_ms: None,
    concurrency: Some(1),
    more_after_ms: None,
    is_probe: true,
};

fn one_at_once() -> SubscriptionContract {
    let mut contract = contract();
    contract.concurrency = 1;
    contract
}

fn failed(work: &Work, due_in_ms: u64) -> Deferral {
    Deferral {
        failure: Some(Failure::transient("trouble", "it fails").record()),
        ..retry(work, due_in_ms)
    }
}

fn load_of(command: &Command) -> Option<(u64, String)> {
    match command {
        Command::Load { load, key, .. } => Some((*load, key.clone())),
        _ => None,
    }
}

/// The message `a` has failed, the other side counts as away, `b` and `c` are new.
fn one_has_failed(due_in_ms: u64, pause_ms: u64) -> (Desk, Deferral) {
    let mut desk = Desk::new(&one_at_once(), 1, Vec::new());
    desk.read(&["a", "b", "c"]);
    let batch = desk.batch_with("a").expect("it runs");
    let deferral = failed(&batch.works[0], due_in_ms);
    let pace = Pace {
        pause_ms: Some(pause_ms),
        ..PROBING
    };
    desk.end_at_pace(&batch, vec![Fate::Deferred(deferral.clone())], pace);
    (desk, deferral)
}

/// The deferred message `a` is loaded, as was asked for.
fn load(desk: &mut Desk, deferral: &Deferral) {
    let (load, key) = desk.take(load_of).expect("it is loaded");
    let row = DeferredRow {
        row: (*row(deferral.seq, "a")).clone(),
        kind: deferral.kind,
        due_in_ms: Some(0),
        spent: deferral.spent,
        failure: deferral.failure.clone(),
        generation: 0,
    };
    let rows = vec![row];
    desk.handle(Event::Loaded { load, key, rows });
}

/// One that fails each message the first time looks as if it were away until one is asked again.
#[test]
fn a_probe_is_rather_one_that_failed_before() {
    let (mut desk, deferral) = one_has_failed(130, 100);
    desk.now_ms = 100;
    desk.handle(Event::Tick);
    assert!(
        desk.batch_with("b").is_none(),
        "one that failed is due soon"
    );
    assert_eq!(desk.dispatcher.deadline_ms(), Some(130));
    desk.now_ms = 130;
    desk.handle(Event::Tick);
    load(&mut desk, &deferral);
    let probe = desk.batch_with("a").expect("it goes before what is new");
    assert!(desk.batch_with("b").is_none(), "one at a time");
    let back = Pace {
        pause_ms: Some(0),
        is_probe: false,
        ..PROBING
    };
    desk.end_at_pace(&probe, vec![Fate::Finished], back);
    assert!(desk.batch_with("b").is_some(), "and then the others");
}

#[test]
fn a_probe_is_a_new_one_where_none_that_failed_is_due_soon() {
    let (mut desk, _) = one_has_failed(3_600_000, 100);
    desk.now_ms = 100;
    desk.handle(Event::Tick);
    assert!(desk.batch_with("b").is_some());
}

/// One that fails whatever happens would keep the other side away for good.
#[test]
fn every_second_probe_is_whoevers_turn_it_is() {
    let (mut desk, deferral) = one_has_failed(100, 100);
    desk.now_ms = 100;
    desk.handle(Event::Tick);
    load(&mut desk, &deferral);
    let probe = desk.batch_with("a").expect("one that failed");
    let pace = Pace {
        pause_ms: Some(100),
        ..PROBING
    };
    desk.end_at_pace(&probe, vec![Fate::Deferred(deferral)], pace);
    desk.now_ms = 200;
    desk.handle(Event::Tick);
    assert!(desk.batch_with("b").is_some(), "then one that is new");
}

/// What was about to come is gone: nobody waits for it.
#[test]
fn a_probe_does_not_wait_for_what_is_gone() {
    let (mut desk, _) = one_has_failed(100, 100);
    desk.now_ms = 100;
    desk.handle(Event::Tick);
    let (load, key) = desk.take(load_of).expect("it is loaded");
    assert!(desk.batch_with("b").is_none());
    let rows = Vec::new();
    desk.handle(Event::Loaded { load, key, rows });
    assert!(desk.batch_with("b").is_some());
}

fn limited(per_second: u32, burst: u32) -> Event {
    let rate = RateLimit { per_second, burst };
    Event::Acted(Ruling {
        rate: Some(rate),
        ..Ruling::default()
    })
}

/// How many messages started, each of which has ended.
fn run_on(desk: &mut Desk) -> usize {
    let run = |command: &Command| match command {
        Command::Run(batch) => Some(batch.clone()),
        _ => None,
    };
    let mut started = 0;
    while let Some(batch) = desk.take(run) {
        started += batch.works.len();
        let fates = vec![Fate::Finished; batch.works.len()];
        desk.end(&batch, fates);
    }
    started
}

#[test]
fn a_limit_of_starts_holds_batches_too_and_says_when_it_goes_on() {
    let mut desk = Desk::new(&contract(), 64, Vec::new());
    desk.handle(limited(100, 4));
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    desk.read(&keys);
    assert_eq!(run_on(&mut desk), 0, "the bucket begins empty");
    for _ in 0..20 {
        desk.now_ms = desk.dispatcher.deadline_ms().expect("it goes on by time");
        desk.handle(Event::Tick);
        assert_eq!(run_on(&mut desk), 1);
    }
    assert_eq!(desk.now_ms, 200);
    desk.now_ms = 10_000;
    desk.handle(Event::Tick);
    assert_eq!(run_on(&mut desk), 4, "no more than the burst");
    desk.handle(Event::Acted(Ruling::default()));
    assert_eq!(run_on(&mut desk), 76);
}

/// A process with half of the lanes starts half as many, and a lane being handed back is none.
#[test]
fn a_limit_of_starts_is_shared_by_lanes() {
    let mut contract = contract();
    contract.lanes = 2;
    let mut desk = Desk::new(&contract, 1, Vec::new());
    desk.handle(limited(100, 1));
    let keys: Vec<String> = (0..2_000).map(|n| format!("k{n}")).collect();
    let lane_of = |key: &str| crate::lane::lane_of(crate::lane::slot_of(key), 2);
    let here: Vec<&str> = keys.iter().map(String::as_str).collect();
    let here: Vec<&str> = here.into_iter().filter(|key| lane_of(key) == 0).collect();
    desk.read(&here[..500]);
    let mut started = 0;
    for now_ms in 1..=1_000 {
        desk.now_ms = now_ms;
        desk.handle(Event::Tick);
        started += run_on(&mut desk);
    }
    assert_eq!(started, 50);
    desk.handle(lane_taken(1, Vec::new()));
    for now_ms in 1_001..=2_000 {
        desk.now_ms = now_ms;
        desk.handle(Event::Tick);
        started += run_on(&mut desk);
    }
    assert_eq!(started, 150);
    desk.handle(Event::ReleaseLane { lane: 1 });
    for now_ms in 2_001..=3_000 {
        desk.now_ms = now_ms;
        desk.handle(Event::Tick);
        started += run_on(&mut desk);
    }
    assert_eq!(started, 200);
}

/// A limit that is not what keeps work from starting asks for no ticks.
#[test]
fn a_limit_of_starts_does_not_keep_a_full_dispatcher_awake() {
    let mut desk = Desk::new(&one_at_once(), 1, Vec::new());
    desk.handle(limited(100, 1));
    desk.read(&["a", "b"]);
    desk.now_ms = 10;
    desk.handle(Event::Tick);
    assert!(desk.batch_with("a").is_some(), "it runs on");
    for _ in 0..3 {
        desk.now_ms += 60_000;
        desk.handle(Event::Tick);
    }
    assert!(
        desk.dispatcher
            .deadline_ms()
            .is_none_or(|ms| ms > desk.now_ms)
    );
}
