//! A dispatcher against a model of the store, under seeded schedules: batches that fail in every
//! way, answers in any order, crashes and handovers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::coalesce::BatchSeen;
use crate::contract::{Semantics, SubscriptionContract};
use crate::envelope::{Envelope, Payload};
use crate::position::Snapshot;
use crate::store::DeferredRow;
use crate::timestamp::Timestamp;

const LANES: u16 = 4;
const ROWS_PER_READ: usize = 7;

/// A small generator of chance (SplitMix64, Steele and others, 2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
struct Stored {
    deferral: Deferral,
    due_at_ms: Option<u64>,
}

/// What a real database would hold.
struct Model {
    rows: Vec<Arc<Row>>,
    ledger: BTreeSet<u64>,
    /// Sequences in the order in which their effects committed, by key.
    effects: BTreeMap<String, Vec<u64>>,
    deferred: BTreeMap<u64, Stored>,
    cases: BTreeSet<u64>,
    positions: BTreeMap<u16, Position>,
    epochs: BTreeMap<u16, u64>,
    runs: u64,
}

impl Model {
    fn new(keys: &[u8]) -> Self {
        let rows = keys.iter().enumerate().map(|(i, key)| {
            let seq = i as u64 + 1;
            let name = format!("k{key}");
            let envelope = Envelope::new(
                seq.to_string(),
                "thing",
                &name,
                "t",
                Payload::Json("1".into()),
            );
            Arc::new(Row {
                xid: seq,
                seq,
                slot: crate::lane::slot_of(&name),
                recorded_at: Timestamp::from_micros(0),
                envelope,
            })
        });
        Self {
            rows: rows.collect(),
            ledger: BTreeSet::new(),
            effects: BTreeMap::new(),
            deferred: BTreeMap::new(),
            cases: BTreeSet::new(),
            positions: (0..LANES).map(|lane| (lane, Position::origin(1))).collect(),
            epochs: (0..LANES).map(|lane| (lane, 0)).collect(),
            runs: 0,
        }
    }

    fn row(&self, seq: u64) -> &Arc<Row> {
        &self.rows[seq as usize - 1]
    }

    fn is_settled(&self, seq: u64) -> bool {
        self.ledger.contains(&seq) || self.cases.contains(&seq) || self.deferred.contains_key(&seq)
    }

    /// The rule that everything rests on.
    fn check_position(&self, lane: u16, position: &Position) {
        for row in self.rows.iter().filter(|r| lane_of(r.slot, LANES) == lane) {
            if position.is_past(row.xid, row.seq) {
                assert!(
                    self.is_settled(row.seq),
                    "the position of lane {lane} passed row {}, which is stored nowhere",
                    row.seq
                );
            }
        }
    }

    fn read(&self, from: &Position) -> (Vec<Arc<Row>>, Position) {
        let all = self.rows.len() as u64;
        let due = self.rows.iter().filter(|r| !from.is_past(r.xid, r.seq));
        let rows: Vec<Arc<Row>> = due.take(ROWS_PER_READ).cloned().collect();
        let until = Snapshot::serial(all);
        let next = match rows.last() {
            Some(last) if last.seq < all => from.reach(&until, last.seq),
            _ => Position::at(1, until),
        };
        (rows, next)
    }

    fn defer(&mut self, deferral: &Deferral, now_ms: u64) {
        if deferral.kind == DeferralKind::Held && self.deferred.contains_key(&deferral.seq) {
            return;
        }
        let due_at_ms = deferral.due_in_ms.map(|ms| now_ms + ms);
        self.deferred.insert(
            deferral.seq,
            Stored {
                deferral: deferral.clone(),
                due_at_ms,
            },
        );
    }

    fn load(&self, key: &str, after_seq: u64, rows_max: u32, now_ms: u64) -> Vec<DeferredRow> {
        let later = self.deferred.range(after_seq + 1..);
        let of_key = later.filter(|(_, s)| s.deferral.key == key);
        of_key
            .take(rows_max as usize)
            .map(|(seq, stored)| DeferredRow {
                row: (**self.row(*seq)).clone(),
                kind: stored.deferral.kind,
                due_in_ms: stored.due_at_ms.map(|at| at.saturating_sub(now_ms)),
                spent: stored.deferral.spent,
                failure: stored.deferral.failure.clone(),
            })
            .collect()
    }

    fn held_keys(&self, lane: u16, now_ms: u64) -> Vec<HeldKey> {
        let mut keys: BTreeMap<String, HeldKey> = BTreeMap::new();
        for stored in self.deferred.values() {
            let deferral = &stored.deferral;
            if lane_of(deferral.slot, LANES) != lane {
                continue;
            }
            let entry = keys.entry(deferral.key.clone()).or_insert_with(|| HeldKey {
                key: deferral.key.clone(),
                slot: deferral.slot,
                count: 0,
                due_in_ms: match deferral.kind {
                    DeferralKind::Held | DeferralKind::Running => Some(0),
                    _ => stored.due_at_ms.map(|at| at.saturating_sub(now_ms)),
                },
            });
            entry.count += 1;
        }
        keys.into_values().collect()
    }

    fn take(&mut self, lane: u16, is_suspect: bool, now_ms: u64) -> Event {
        let epoch = self.epochs.entry(lane).or_default();
        *epoch += 1;
        let taken = TakenLane {
            lane,
            epoch: *epoch,
            position: self.positions[&lane].clone(),
            is_suspect,
            not_before: None,
        };
        Event::LaneTaken {
            taken,
            held: self.held_keys(lane, now_ms),
            cases: Vec::new(),
        }
    }

    /// Runs a batch as an executor would; each message succeeds, fails or is given back by chance.
    fn run(&mut self, batch: &Batch, chance: &mut Chance, now_ms: u64) -> Event {
        let mut seen = BatchSeen {
            handlers_us: 1_000,
            ..BatchSeen::default()
        };
        let mut blocked = BTreeSet::new();
        let mut fates = Vec::new();
        let is_trouble = chance.one_in(12);
        for work in &batch.works {
            let key = work.row.envelope.key().to_owned();
            let seq = work.row.seq;
            if is_trouble || blocked.contains(&key) {
                fates.push((work.token, Fate::Returned));
                continue;
            }
            seen.messages += 1;
            if self.ledger.contains(&seq) {
                seen.duplicates += 1;
                if work.is_stored {
                    self.deferred.remove(&seq);
                }
                fates.push((work.token, Fate::Finished));
                continue;
            }
            self.runs += 1;
            let fate = self.attempt(work, chance, now_ms);
            if fate != Fate::Finished {
                seen.failures += 1;
                blocked.insert(key);
            }
            fates.push((work.token, fate));
        }
        let pause_ms = is_trouble.then_some(5);
        let pace = Pace {
            pause_ms,
            ..Pace::default()
        };
        Event::Finished {
            batch: batch.batch,
            fates,
            seen,
            pace,
        }
    }

    fn attempt(&mut self, work: &Work, chance: &mut Chance, now_ms: u64) -> Fate {
        let (seq, key) = (work.row.seq, work.row.envelope.key());
        if chance.one_in(10) && work.spent.failures < 3 {
            let spent = Spent {
                failures: work.spent.failures + 1,
                ..work.spent
            };
            let deferral = Deferral {
                seq,
                slot: work.row.slot,
                key: key.to_owned(),
                kind: DeferralKind::Retry,
                due_in_ms: Some(1 + chance.below(20)),
                spent,
                failure: None,
            };
            self.defer(&deferral, now_ms);
            return Fate::Deferred(deferral);
        }
        if work.is_stored {
            self.deferred.remove(&seq);
        }
        if chance.one_in(40) {
            self.deferred.remove(&seq);
            self.cases.insert(seq);
            return Fate::Quarantined { holds_key: false };
        }
        self.ledger.insert(seq);
        self.effects.entry(key.to_owned()).or_default().push(seq);
        Fate::Finished
    }

    fn check_end(&self) {
        for row in &self.rows {
            let ends = usize::from(self.ledger.contains(&row.seq))
                + usize::from(self.cases.contains(&row.seq));
            assert_eq!(ends, 1, "row {} ended {ends} times", row.seq);
        }
        assert!(
            self.deferred.is_empty(),
            "left deferred: {:?}",
            self.deferred.keys()
        );
        for (key, seqs) in &self.effects {
            assert!(
                seqs.is_sorted_by(|a, b| a < b),
                "key {key} out of order: {seqs:?}"
            );
        }
    }
}

fn contract() -> SubscriptionContract {
    let mut contract = SubscriptionContract::new("s", &["t"], Semantics::EffectOnce);
    contract.lanes = LANES;
    contract.concurrency = 3;
    contract.window_rows = 16;
    contract
}

/// One process: a dispatcher and what is under way around it.
struct Process {
    dispatcher: Dispatcher,
    underway: VecDeque<Command>,
    released: BTreeSet<u16>,
}

impl Process {
    fn new(now_ms: u64) -> Self {
        let dispatcher = Dispatcher::new(&contract(), 8, now_ms);
        Self {
            dispatcher,
            underway: VecDeque::new(),
            released: BTreeSet::new(),
        }
    }

    fn handle(&mut self, model: &mut Model, now_ms: u64, event: Event) {
        for command in self.dispatcher.handle(now_ms, event) {
            match command {
                Command::Save(spans) => {
                    for span in spans {
                        for (lane, epoch) in span.lanes {
                            assert_eq!(model.epochs[&lane], epoch);
                            model.check_position(lane, &span.position);
                            model.positions.insert(lane, span.position.clone());
                        }
                    }
                }
                Command::Released(lane) => {
                    model.check_position(lane.lane, &lane.position);
                    model.positions.insert(lane.lane, lane.position);
                    self.released.insert(lane.lane);
                }
                command => self.underway.push_back(command),
            }
        }
    }

    /// Carries out one command that is under way, any of them.
    fn step(&mut self, model: &mut Model, chance: &mut Chance, now_ms: u64) {
        let index = chance.below(self.underway.len() as u64) as usize;
        let Some(command) = self.underway.remove(index) else {
            return;
        };
        let event = match command {
            Command::Read { feed, .. } if chance.one_in(20) => Event::ReadFailed { feed },
            Command::Read { feed, from } => {
                let (mut rows, next) = model.read(&from);
                // What has a case already is not handed in again: the runner sees to that.
                rows.retain(|row| !model.cases.contains(&row.seq));
                Event::Page {
                    feed,
                    from,
                    rows,
                    next,
                }
            }
            Command::Load {
                load,
                key,
                after_seq,
                rows_max,
                ..
            } => {
                let rows = model.load(&key, after_seq, rows_max, now_ms);
                Event::Loaded { load, key, rows }
            }
            Command::Run(batch) => model.run(&batch, chance, now_ms),
            Command::Store { tokens, deferrals } => {
                for deferral in &deferrals {
                    model.defer(deferral, now_ms);
                }
                Event::Stored { tokens }
            }
            Command::Clear { tokens, seqs } => {
                for seq in seqs {
                    model.deferred.remove(&seq);
                }
                Event::Stored { tokens }
            }
            Command::Save(_) | Command::Released(_) => return,
        };
        self.handle(model, now_ms, event);
    }
}

/// Runs a schedule to its end and returns the model.
fn schedule(seed: u64, keys: &[u8], crashes: u32, handovers: u32) -> Model {
    let mut chance = Chance(seed);
    let mut model = Model::new(keys);
    let mut now_ms = 0;
    let mut process = Process::new(now_ms);
    let (mut crashes, mut handovers) = (crashes, handovers);
    for lane in 0..LANES {
        let event = model.take(lane, false, now_ms);
        process.handle(&mut model, now_ms, event);
    }
    for step in 0..40_000_u32 {
        now_ms += chance.below(2);
        if crashes > 0 && chance.one_in(60) {
            // Everything in memory and under way is gone; the model stays.
            crashes -= 1;
            process = Process::new(now_ms);
            for lane in 0..LANES {
                let event = model.take(lane, true, now_ms);
                process.handle(&mut model, now_ms, event);
            }
        } else if handovers > 0 && chance.one_in(40) {
            handovers -= 1;
            let lane = chance.below(u64::from(LANES)) as u16;
            process.handle(&mut model, now_ms, Event::ReleaseLane { lane });
        } else if let Some(lane) = process.released.pop_first() {
            let event = model.take(lane, false, now_ms);
            process.handle(&mut model, now_ms, event);
        } else if process.underway.is_empty() || chance.one_in(8) {
            now_ms += 1;
            process.handle(&mut model, now_ms, Event::Tick);
        } else {
            process.step(&mut model, &mut chance, now_ms);
        }
        let is_done = crashes == 0
            && handovers == 0
            && model
                .rows
                .iter()
                .all(|r| model.ledger.contains(&r.seq) || model.cases.contains(&r.seq))
            && model.deferred.is_empty();
        if is_done {
            return model;
        }
        assert!(step < 39_999, "seed {seed} does not come to an end");
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_message_ends_once_and_in_order(
        seed: u64,
        keys in prop::collection::vec(0u8..6, 1..120),
        crashes in 0u32..4,
        handovers in 0u32..5,
    ) {
        schedule(seed, &keys, crashes, handovers).check_end();
    }

    #[test]
    fn a_hot_key_beside_others_ends_too(seed: u64, crashes in 0u32..3) {
        let keys: Vec<u8> = (0..300).map(|i| if i % 4 == 0 { (i % 5) as u8 } else { 9 }).collect();
        schedule(seed, &keys, crashes, 1).check_end();
    }
}

#[test]
fn without_trouble_each_message_runs_once() {
    // A seed that happens to have no failure would do; here failures are excluded by the budget.
    let mut model = Model::new(&[1, 2, 3, 1, 2, 3]);
    let mut chance = Chance(0);
    let mut process = Process::new(0);
    for lane in 0..LANES {
        let event = model.take(lane, false, 0);
        process.handle(&mut model, 0, event);
    }
    while !process.underway.is_empty() && model.ledger.len() < 6 {
        let index = process
            .underway
            .iter()
            .position(|c| matches!(c, Command::Run(_)));
        match index.and_then(|i| process.underway.remove(i)) {
            Some(Command::Run(batch)) => {
                let mut fates = Vec::new();
                for work in &batch.works {
                    assert!(model.ledger.insert(work.row.seq), "ran twice");
                    fates.push((work.token, Fate::Finished));
                }
                let seen = BatchSeen {
                    messages: batch.works.len() as u32,
                    ..BatchSeen::default()
                };
                let event = Event::Finished {
                    batch: batch.batch,
                    fates,
                    seen,
                    pace: Pace::default(),
                };
                process.handle(&mut model, 0, event);
            }
            _ => process.step(&mut model, &mut chance, 0),
        }
    }
    assert_eq!(model.ledger.len(), 6);
}

#[test]
fn a_suspect_goes_before_all_that_has_to_wait_for_it() {
    let mut model = Model::new(&[1, 2, 3, 4, 5]);
    let suspect = model.row(5).clone();
    let deferral = Deferral {
        seq: suspect.seq,
        slot: suspect.slot,
        key: suspect.envelope.key().to_owned(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(0),
        spent: Spent {
            deaths: 1,
            ..Spent::default()
        },
        failure: None,
    };
    model.defer(&deferral, 0);
    let mut one_at_a_time = contract();
    one_at_a_time.concurrency = 1;
    let mut process = Process::new(0);
    process.dispatcher = Dispatcher::new(&one_at_a_time, 1, 0);
    for lane in 0..LANES {
        let event = model.take(lane, false, 0);
        process.handle(&mut model, 0, event);
    }
    // Everything but batches is carried out until the suspect is there, behind the others.
    let is_batch = |command: &Command| matches!(command, Command::Run(_));
    let mut chance = Chance(0);
    while process.dispatcher.suspects_tracked == 0 {
        let (batches, others) = process.underway.drain(..).partition(is_batch);
        process.underway = others;
        process.step(&mut model, &mut chance, 0);
        process.underway.extend::<VecDeque<_>>(batches);
    }
    let mut order = Vec::new();
    while let Some(at) = process.underway.iter().position(is_batch) {
        let Some(Command::Run(batch)) = process.underway.remove(at) else {
            break;
        };
        order.push(batch.works[0].row.seq);
        let event = Event::Finished {
            batch: batch.batch,
            fates: vec![(batch.works[0].token, Fate::Finished)],
            seen: BatchSeen {
                messages: 1,
                ..BatchSeen::default()
            },
            pace: Pace::default(),
        };
        process.handle(&mut model, 0, event);
    }
    assert_eq!(order.len(), 5);
    assert_eq!(order[1], 5, "{order:?}: the first was running already");
}

/// A deadline in the past would keep its process busy doing nothing.
#[test]
fn without_a_lane_there_is_nothing_to_wait_for() {
    let mut model = Model::new(&[0]);
    let mut dispatcher = Dispatcher::new(&contract(), 1, 0);
    let taken = model.take(0, false, 0);
    dispatcher.handle(0, taken);
    assert!(dispatcher.deadline_ms().is_some());
    let handed_back = dispatcher.handle(10, Event::ReleaseLane { lane: 0 });
    assert!(matches!(handed_back[..], [Command::Released(_)]));
    assert_eq!(dispatcher.deadline_ms(), None);
}

/// While a lane is handed back its feed reads on for others: what it reads of the lane is left to
/// the next owner, and no position kept meanwhile may pass it.
#[test]
fn a_lane_being_handed_back_keeps_its_own_position() {
    let mut model = Model::new(&[0, 0]);
    let lane = lane_of(model.row(1).slot, LANES);
    let read = Position::at(1, Snapshot::serial(1));
    for position in model.positions.values_mut() {
        *position = read.clone();
    }
    let retry = Deferral {
        seq: 1,
        slot: model.row(1).slot,
        key: "k0".to_owned(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(0),
        spent: Spent::default(),
        failure: None,
    };
    model.defer(&retry, 0);
    let mut dispatcher = Dispatcher::new(&contract(), 1, 0);
    for lane in [lane, (lane + 1) % LANES] {
        let taken = model.take(lane, false, 0);
        dispatcher.handle(0, taken);
    }
    let rows = model.load("k0", 0, 64, 0);
    let (load, key) = (1, "k0".to_owned());
    let runs = dispatcher.handle(0, Event::Loaded { load, key, rows });
    assert!(matches!(runs[..], [Command::Run(_)]), "{runs:?}");
    dispatcher.handle(0, Event::ReleaseLane { lane });
    let page = Event::Page {
        feed: 0,
        from: read,
        rows: vec![Arc::clone(model.row(2))],
        next: Position::at(1, Snapshot::serial(2)),
    };
    dispatcher.handle(1, page);
    let spans = dispatcher.spans();
    let of_lane = |span: &&Span| span.lanes.iter().any(|(number, _)| *number == lane);
    let span = spans.iter().find(of_lane).unwrap();
    assert!(!span.position.is_past(2, 2), "{spans:?}");
    assert!(span.position.is_past(1, 1), "{spans:?}");
}
