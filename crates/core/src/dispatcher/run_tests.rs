//! A dispatcher by hand: what a message that is being stored means for its key and its lane.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::*;
use crate::coalesce::BatchSeen;
use crate::contract::{Semantics, SubscriptionContract};
use crate::envelope::{Envelope, Payload};
use crate::lane::lane_of;
use crate::position::Snapshot;
use crate::store::DeferredRow;
use crate::timestamp::Timestamp;

const HOUR_MS: u64 = 3_600_000;

pub(in crate::dispatcher) fn contract() -> SubscriptionContract {
    let mut contract = SubscriptionContract::new("s", &["t"], Semantics::EffectOnce);
    contract.lanes = 1;
    contract.concurrency = 2;
    contract.window_rows = 1_000;
    contract
}

pub(in crate::dispatcher) fn row(seq: u64, key: &str) -> Arc<Row> {
    let payload = Payload::Json("1".into());
    Arc::new(Row {
        xid: seq,
        seq,
        slot: crate::lane::slot_of(key),
        recorded_at: Timestamp::from_micros(0),
        envelope: Envelope::new(seq.to_string(), "thing", key, "t", payload),
        corrects: None,
    })
}

pub(in crate::dispatcher) fn lane_taken(lane: u16, held: Vec<HeldKey>) -> Event {
    Event::LaneTaken {
        taken: TakenLane {
            lane,
            epoch: 1,
            stand: Position::origin(1).into(),
            is_suspect: false,
            not_before: None,
        },
        held,
        cases: Vec::new(),
    }
}

/// A dispatcher with the commands that nobody has carried out yet.
pub(in crate::dispatcher) struct Desk {
    pub(in crate::dispatcher) dispatcher: Dispatcher,
    commands: VecDeque<Command>,
    read_to: u64,
    pub(in crate::dispatcher) now_ms: u64,
}

impl Desk {
    pub(in crate::dispatcher) fn new(
        contract: &SubscriptionContract,
        batch_max: u32,
        held: Vec<HeldKey>,
    ) -> Self {
        let mut desk = Self {
            dispatcher: Dispatcher::new(contract, batch_max, 0),
            commands: VecDeque::new(),
            read_to: 0,
            now_ms: 0,
        };
        desk.handle(lane_taken(0, held));
        desk
    }

    pub(in crate::dispatcher) fn handle(&mut self, event: Event) {
        self.commands
            .extend(self.dispatcher.handle(self.now_ms, event));
    }

    /// Takes the first command out for which `pick` has an answer.
    pub(in crate::dispatcher) fn take<T>(
        &mut self,
        pick: impl Fn(&Command) -> Option<T>,
    ) -> Option<T> {
        let at = self.commands.iter().position(|c| pick(c).is_some())?;
        self.commands.remove(at).as_ref().and_then(pick)
    }

    /// Answers a read with a row for each key.
    pub(in crate::dispatcher) fn read(&mut self, keys: &[&str]) {
        let asked = self.take(|command| match command {
            Command::Read { feed, from } => Some((*feed, from.clone())),
            _ => None,
        });
        let (feed, from) = asked.expect("it reads on");
        let rows = keys.iter().zip(self.read_to + 1..);
        let rows = rows.map(|(key, seq)| row(seq, key)).collect();
        self.read_to += keys.len() as u64;
        self.handle(Event::Page {
            feed,
            from,
            rows,
            next: Position::at(1, Snapshot::serial(self.read_to)),
        });
    }

    pub(in crate::dispatcher) fn batch_with(&mut self, key: &str) -> Option<Batch> {
        self.take(|command| match command {
            Command::Run(batch) => batch
                .works
                .iter()
                .any(|work| work.row.envelope.key() == key)
                .then(|| batch.clone()),
            _ => None,
        })
    }

    pub(in crate::dispatcher) fn end(&mut self, batch: &Batch, fates: Vec<Fate>) {
        self.end_at_pace(batch, fates, Pace::default());
    }

    pub(in crate::dispatcher) fn end_at_pace(
        &mut self,
        batch: &Batch,
        fates: Vec<Fate>,
        pace: Pace,
    ) {
        let seen = BatchSeen {
            messages: fates.len() as u32,
            ..BatchSeen::default()
        };
        self.handle(Event::Finished {
            batch: batch.batch,
            fates: batch.works.iter().map(|w| w.token).zip(fates).collect(),
            seen,
            pace,
        });
    }

    /// Finishes every batch that was asked for, and those that follow.
    fn finish_all(&mut self) {
        self.finish_all_but("");
    }

    pub(super) fn finish_all_but(&mut self, key: &str) {
        let run = |command: &Command| match command {
            Command::Run(batch) if batch.works[0].row.envelope.key() != key => Some(batch.clone()),
            _ => None,
        };
        while let Some(batch) = self.take(run) {
            let fates = vec![Fate::Finished; batch.works.len()];
            self.end(&batch, fates);
        }
    }

    pub(in crate::dispatcher) fn store(&mut self) -> Option<(Vec<u64>, Vec<Deferral>)> {
        self.take(|command| match command {
            Command::Store { tokens, deferrals } => Some((tokens.clone(), deferrals.clone())),
            _ => None,
        })
    }

    fn is_released(&self) -> bool {
        let is = |command: &Command| matches!(command, Command::Released(_));
        self.commands.iter().any(is)
    }
}

pub(in crate::dispatcher) fn retry(work: &Work, due_in_ms: u64) -> Deferral {
    Deferral {
        seq: work.row.seq,
        slot: work.row.slot,
        key: work.row.envelope.key().to_owned(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(due_in_ms),
        spent: Spent::default(),
        failure: None,
    }
}

/// The first message of the key `slow` runs while three windows of another lane's come and go,
/// until it is being marked; a second one of its key stands behind it. Returns the answer to the
/// mark, which nobody has given yet.
fn marking() -> (Desk, Batch, Event) {
    let mut two_lanes = contract();
    two_lanes.lanes = 2;
    let mut desk = Desk::new(&two_lanes, 1, Vec::new());
    desk.handle(lane_taken(1, Vec::new()));
    let lane = |key: &str| lane_of(crate::lane::slot_of(key), 2);
    let names = (0..).map(|i| format!("k{i}"));
    let others = names.filter(|name| lane(name) != lane("slow"));
    let others: Vec<String> = others.take(499).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    desk.read(&["slow"]);
    let slow = desk.batch_with("slow").expect("it runs");
    let mark = loop {
        let behind = if desk.read_to > 2_400 {
            "slow"
        } else {
            others[0]
        };
        desk.read(&[&others[..], &[behind]].concat());
        if let Some((tokens, deferrals)) = desk.store() {
            assert_eq!(deferrals[0].kind, DeferralKind::Running);
            assert_eq!(deferrals[0].key, "slow");
            break Event::Stored { tokens };
        }
        desk.finish_all();
        assert!(desk.read_to < 10_000, "it is never marked");
    };
    (desk, slow, mark)
}

#[test]
fn a_message_that_fails_while_it_is_marked_as_running_holds_its_key() {
    let (mut desk, slow, mark) = marking();
    let deferral = retry(&slow.works[0], HOUR_MS);
    desk.end(&slow, vec![Fate::Deferred(deferral)]);
    desk.finish_all_but("slow");
    assert!(desk.batch_with("slow").is_none(), "it overtook the first");
    desk.handle(mark);
    desk.finish_all_but("slow");
    assert!(desk.batch_with("slow").is_none(), "it overtook the first");
    let mut kinds = Vec::new();
    while let Some((tokens, deferrals)) = desk.store() {
        let slow = deferrals.iter().filter(|d| d.key == "slow");
        kinds.extend(slow.map(|d| d.kind));
        desk.handle(Event::Stored { tokens });
    }
    assert_eq!(kinds, [DeferralKind::Retry, DeferralKind::Held]);
    desk.finish_all_but("slow");
    assert!(desk.batch_with("slow").is_none(), "it overtook the first");
}

#[test]
fn a_lane_is_not_handed_back_before_a_mark_is_written() {
    let (mut desk, slow, mark) = marking();
    let lane = lane_of(slow.works[0].row.slot, 2);
    desk.handle(Event::ReleaseLane { lane });
    desk.end(&slow, vec![Fate::Returned]);
    assert!(
        !desk.is_released(),
        "the mark may still overwrite something"
    );
    desk.handle(mark);
    assert!(desk.is_released());
}

#[test]
fn what_is_stored_as_running_does_not_keep_the_position() {
    let mut desk = Desk::new(&contract(), 64, Vec::new());
    desk.read(&["a", "a"]);
    let batch = desk.batch_with("a").expect("both run");
    assert_eq!(batch.works.len(), 2);
    let deferral = retry(&batch.works[0], HOUR_MS);
    desk.end(&batch, vec![Fate::Deferred(deferral), Fate::Uncertain]);
    let spans = desk.dispatcher.spans();
    assert!(spans[0].stand.position.is_past(2, 2), "{spans:?}");
}

#[test]
fn a_window_full_of_bytes_behind_one_message_leaves_other_keys_unharmed() {
    let mut small = contract();
    small.window_bytes = row(1, "hot").envelope.weight() as u64 * 20;
    let mut desk = Desk::new(&small, 1, Vec::new());
    desk.read(&["hot"; 10]);
    let hot = desk.batch_with("hot").expect("it runs");
    desk.read(&["hot"; 10]);
    let (tokens, _) = desk.store().expect("what waits behind it is parked");
    desk.handle(Event::Stored { tokens });
    desk.read(&["other"]);
    assert!(desk.batch_with("other").is_some());
    desk.end(&hot, vec![Fate::Finished]);
}

#[test]
fn keys_that_are_due_together_are_loaded_as_the_window_allows() {
    let keys: Vec<String> = (0..5_000).map(|i| format!("k{i}")).collect();
    let held = keys.iter().map(|key| HeldKey {
        key: key.clone(),
        slot: crate::lane::slot_of(key),
        count: 1,
        due_in_ms: Some(0),
    });
    let mut desk = Desk::new(&contract(), 8, held.collect());
    desk.read(&[]);
    let mut loaded = 0;
    loop {
        let load = |command: &Command| match command {
            Command::Load { load, key, .. } => Some((*load, key.clone())),
            _ => None,
        };
        while let Some((load, key)) = desk.take(load) {
            loaded += 1;
            desk.handle(Event::Loaded {
                load,
                rows: vec![DeferredRow {
                    row: (*row(0, &key)).clone(),
                    kind: DeferralKind::Retry,
                    due_in_ms: Some(0),
                    spent: Spent::default(),
                    failure: None,
                    generation: 0,
                }],
                key,
            });
            assert!(desk.dispatcher.in_memory() <= 1_000);
        }
        if desk.dispatcher.is_quiet() {
            break;
        }
        desk.finish_all();
    }
    assert_eq!(loaded, 5_000, "all had their turn");
}

#[test]
fn what_is_deferred_to_this_moment_goes_before_what_is_queued() {
    let mut desk = Desk::new(&contract(), 16, Vec::new());
    desk.read(&["a", "a", "a"]);
    let batch = desk.batch_with("a").expect("the first two run");
    assert_eq!(batch.works.len(), 2);
    let deferral = retry(&batch.works[1], 0);
    let quarantined = Fate::Quarantined { holds_key: false };
    desk.end(&batch, vec![quarantined, Fate::Deferred(deferral)]);
    assert!(desk.batch_with("a").is_none(), "the third overtook");
    let (tokens, _) = desk.store().expect("it waits aside");
    desk.handle(Event::Stored { tokens });
    desk.handle(Event::Tick);
    let is_load = |command: &Command| matches!(command, Command::Load { .. });
    assert!(desk.commands.iter().any(is_load));
}

#[test]
fn the_first_of_several_says_how_long_a_key_waits() {
    let mut desk = Desk::new(&contract(), 16, Vec::new());
    desk.read(&["a", "a", "a"]);
    let batch = desk.batch_with("a").expect("the first two run");
    let fates = [HOUR_MS, 0].into_iter().zip(&batch.works);
    let fates = fates.map(|(wait_ms, work)| Fate::Deferred(retry(work, wait_ms)));
    desk.end(&batch, fates.collect());
    let (tokens, _) = desk.store().expect("the third waits behind them");
    desk.handle(Event::Stored { tokens });
    assert_eq!(desk.dispatcher.due.len(), 1);
    let at_ms = desk.dispatcher.due.peek().map(|Reverse((at_ms, _))| *at_ms);
    assert_eq!(at_ms, Some(HOUR_MS));
}

/// Four keys with many deferred messages, each behind one that runs for long, take up all that may
/// be loaded.
#[test]
fn a_share_full_of_what_waits_leaves_room_to_load_another_key() {
    let held = |key: &str, count| HeldKey {
        key: key.to_owned(),
        slot: crate::lane::slot_of(key),
        count,
        due_in_ms: Some(0),
    };
    let mut wide = contract();
    wide.concurrency = 8;
    let hot = ["h1", "h2", "h3", "h4"];
    let keys = hot.map(|key| held(key, 64));
    let mut desk = Desk::new(&wide, 1, keys.to_vec());
    desk.handle(lane_taken(0, vec![held("other", 1)]));
    desk.read(&[]);
    let load = |command: &Command| match command {
        Command::Load { load, key, .. } => Some((*load, key.clone())),
        _ => None,
    };
    let mut loaded = Vec::new();
    while let Some((load, key)) = desk.take(load) {
        let count = if key == "other" { 1 } else { 64 };
        let rows = (0..count).map(|_| DeferredRow {
            row: (*row(0, &key)).clone(),
            kind: DeferralKind::Held,
            due_in_ms: Some(0),
            spent: Spent::default(),
            failure: None,
            generation: 0,
        });
        let rows = rows.collect();
        loaded.push(key.clone());
        desk.handle(Event::Loaded { load, key, rows });
        desk.handle(Event::Tick);
        assert!(loaded.len() < 10);
    }
    assert!(loaded.contains(&"other".to_owned()), "{loaded:?}");
    assert!(desk.batch_with("other").is_some());
}

#[test]
fn waiting_for_one_moment_takes_one_place() {
    let held = HeldKey {
        key: "a".to_owned(),
        slot: crate::lane::slot_of("a"),
        count: 1,
        due_in_ms: Some(HOUR_MS),
    };
    let mut desk = Desk::new(&contract(), 8, vec![held]);
    for _ in 0..100 {
        desk.read(&["a"]);
        let (tokens, _) = desk.store().expect("it waits behind the first");
        desk.handle(Event::Stored { tokens });
    }
    assert_eq!(desk.dispatcher.due.len(), 1);
}

/// An answer that was under way while something of its key was stored lacks it.
#[test]
fn what_is_stored_while_its_key_is_loaded_is_not_forgotten() {
    let held = HeldKey {
        key: "k".to_owned(),
        slot: crate::lane::slot_of("k"),
        count: 1,
        due_in_ms: Some(0),
    };
    let mut desk = Desk::new(&contract(), 1, vec![held]);
    let load = |command: &Command| load_of(command).map(|(load, _)| load);
    let asked = desk.take(load).expect("it is loaded");
    desk.read(&["k", "k"]);
    let (tokens, deferrals) = desk.store().expect("what comes behind is stored");
    assert_eq!(deferrals.len(), 2);
    desk.handle(Event::Stored { tokens });
    desk.handle(Event::Loaded {
        load: asked,
        key: "k".to_owned(),
        rows: Vec::new(),
    });
    assert!(desk.take(load).is_some(), "it is loaded again");
    desk.read(&["k"]);
    assert!(desk.batch_with("k").is_none(), "what follows has to wait");
}

/// A load that was asked for, and from where.
fn load_of(command: &Command) -> Option<(u64, u64)> {
    match command {
        Command::Load {
            load, after_seq, ..
        } => Some((*load, *after_seq)),
        _ => None,
    }
}

fn held(count: u64) -> HeldKey {
    HeldKey {
        key: "k".to_owned(),
        slot: crate::lane::slot_of("k"),
        count,
        due_in_ms: Some(0),
    }
}

/// Parked rows of `k`.
fn parked(seqs: std::ops::RangeInclusive<u64>) -> Vec<DeferredRow> {
    let rows = seqs.map(|seq| DeferredRow {
        row: (*row(seq, "k")).clone(),
        kind: DeferralKind::Held,
        due_in_ms: Some(0),
        spent: Spent::default(),
        failure: None,
        generation: 0,
    });
    rows.collect()
}

/// The lane went to another process and came back while an answer was on its way: what it says was
/// true for an owner before.
#[test]
fn an_answer_from_before_a_handover_is_ignored() {
    let mut desk = Desk::new(&contract(), 1, vec![held(1)]);
    let (early, _) = desk.take(load_of).expect("it is loaded");
    desk.handle(Event::ReleaseLane { lane: 0 });
    assert!(desk.is_released());
    desk.handle(lane_taken(0, vec![held(1)]));
    let (load, _) = desk.take(load_of).expect("it is loaded by the new owner");
    let key = "k".to_owned();
    let stale = Event::Loaded {
        load: early,
        key: key.clone(),
        rows: Vec::new(),
    };
    desk.handle(stale);
    desk.read(&["k"]);
    assert!(desk.batch_with("k").is_none(), "the key is still held");
    let (tokens, _) = desk.store().expect("what was read is stored behind it");
    desk.handle(Event::Stored { tokens });
    let answer = |load| Event::Loaded {
        load,
        key: key.clone(),
        rows: parked(1..=1),
    };
    desk.handle(answer(load));
    let (load, _) = desk
        .take(load_of)
        .expect("it is loaded with what was stored");
    desk.handle(answer(load));
    assert!(desk.batch_with("k").is_some());
}

/// A key with many parked messages is loaded page by page and not from its beginning each time; what
/// fails is before all that, and so is loaded first.
#[test]
fn the_next_load_goes_on_where_the_last_one_ended() {
    let mut desk = Desk::new(&contract(), 64, vec![held(200)]);
    desk.read(&["other"; 200]);
    desk.finish_all();
    let key = || "k".to_owned();
    let (load, after_seq) = desk.take(load_of).expect("it is loaded");
    assert_eq!(after_seq, 0);
    let rows = parked(1..=64);
    desk.handle(Event::Loaded {
        load,
        key: key(),
        rows,
    });
    desk.finish_all();
    let (load, after_seq) = desk.take(load_of).expect("there is more");
    assert_eq!(after_seq, 64);
    let rows = parked(65..=128);
    desk.handle(Event::Loaded {
        load,
        key: key(),
        rows,
    });
    let batch = desk.batch_with("k").expect("they run");
    let fails_at = 10;
    let fates = batch
        .works
        .iter()
        .enumerate()
        .map(|(i, work)| match i.cmp(&fails_at) {
            std::cmp::Ordering::Less => Fate::Finished,
            std::cmp::Ordering::Equal => Fate::Deferred(retry(work, 0)),
            std::cmp::Ordering::Greater => Fate::Returned,
        });
    let fates = fates.collect();
    desk.end(&batch, fates);
    desk.handle(Event::Tick);
    let (_, after_seq) = desk.take(load_of).expect("it is loaded again");
    assert_eq!(after_seq, 64 + fails_at as u64);
}
