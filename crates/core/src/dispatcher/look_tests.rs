//! Operators act while a dispatcher works: on what it holds, at any moment, between any two
//! answers.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::model::{Chance, LANES, Model, contract};
use super::super::model_process::Process;
use super::super::*;
use crate::coalesce::BatchSeen;
use crate::position::Snapshot;
use crate::store::DeferredRow;

impl Model {
    /// Puts a case's message back into the flow.
    fn release(&mut self, seq: u64, now_ms: u64) {
        self.cases.remove(&seq);
        self.replayed.insert(seq);
        let row = Arc::clone(self.row(seq));
        if !self.holds_key {
            self.late.insert(seq);
        }
        let deferral = Deferral {
            seq,
            slot: row.slot,
            key: row.envelope.key().to_owned(),
            kind: DeferralKind::Retry,
            due_in_ms: Some(0),
            spent: Spent::default(),
            failure: None,
        };
        self.defer(&deferral, now_ms);
    }

    fn resume_deferred(&mut self, now_ms: u64) {
        for stored in self.deferred.values_mut() {
            if stored.deferral.kind == DeferralKind::Operator {
                stored.deferral.kind = DeferralKind::Retry;
                stored.due_at_ms = Some(now_ms);
            }
        }
    }

    fn live_case(&self, chance: &mut Chance) -> Option<u64> {
        let live: Vec<u64> = self.cases.difference(&self.given_up).copied().collect();
        let index = chance.below(live.len().max(1) as u64) as usize;
        live.get(index).copied()
    }

    fn is_over(&self) -> bool {
        let is_ended =
            |row: &Arc<Row>| self.ledger.contains(&row.seq) || self.given_up.contains(&row.seq);
        self.rows.iter().all(is_ended) && self.deferred.is_empty()
    }
}

/// What a schedule is made of.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    holds_key: bool,
    crashes: u32,
    handovers: u32,
    pauses: u32,
}

/// Runs a schedule in which operators act, until everything has ended.
fn schedule(plan: Plan, keys: &[u8]) -> Model {
    let mut chance = Chance(plan.seed);
    let mut model = Model::new(keys);
    model.holds_key = plan.holds_key;
    model.operator_every = 3;
    let mut now_ms = 0;
    let mut process = Process::new(now_ms);
    process.is_slow = true;
    let (mut crashes, mut handovers, mut pauses) = (plan.crashes, plan.handovers, plan.pauses);
    let mut is_paused = false;
    // Acted, and the process does not know yet.
    let mut is_news = false;
    for lane in 0..LANES {
        let event = model.take(lane, false, now_ms);
        process.handle(&mut model, now_ms, event);
    }
    for step in 0..60_000_u32 {
        now_ms += chance.below(2);
        let has_spare = step < 20_000;
        if chance.one_in(25) {
            match (chance.below(4), model.live_case(&mut chance)) {
                (0 | 1, Some(seq)) => model.release(seq, now_ms),
                (2, Some(seq)) if chance.one_in(3) || !has_spare => {
                    model.given_up.insert(seq);
                }
                _ => model.resume_deferred(now_ms),
            }
            is_news = true;
        } else if (pauses > 0 && chance.one_in(80)) || (is_paused && chance.one_in(15)) {
            pauses -= u32::from(!is_paused);
            is_paused = !is_paused;
            is_news = true;
        } else if is_news && chance.one_in(6) {
            is_news = false;
            process.handle(&mut model, now_ms, Event::Acted(ruling(is_paused)));
        } else if crashes > 0 && chance.one_in(60) {
            crashes -= 1;
            process = Process::new(now_ms);
            process.is_slow = true;
            process.handle(&mut model, now_ms, Event::Acted(ruling(is_paused)));
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
        } else if process.is_idle() || chance.one_in(8) {
            now_ms += 1;
            process.handle(&mut model, now_ms, Event::Tick);
        } else {
            process.step(&mut model, &mut chance, now_ms);
        }
        if crashes == 0 && handovers == 0 && model.is_over() {
            return model;
        }
        assert!(step < 59_999, "{plan:?} does not come to an end");
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_operators_do_every_message_ends_once_and_in_order(
        seed: u64,
        holds_key: bool,
        keys in prop::collection::vec(0u8..6, 1..100),
        crashes in 0u32..3,
        handovers in 0u32..5,
        pauses in 0u32..3,
    ) {
        let plan = Plan { seed, holds_key, crashes, handovers, pauses };
        schedule(plan, &keys).check_end();
    }
}

/// A process that owns all lanes of a model, with all that it asked for but batches carried out.
struct Desk {
    model: Model,
    process: Process,
    chance: Chance,
}

impl Desk {
    fn new(keys: &[u8], prepare: impl FnOnce(&mut Model)) -> Self {
        let mut desk = Self::of(keys, prepare);
        desk.carry_out();
        desk
    }

    /// The same with nothing carried out yet.
    fn of(keys: &[u8], prepare: impl FnOnce(&mut Model)) -> Self {
        let mut model = Model::new(keys);
        model.holds_key = true;
        prepare(&mut model);
        let mut one_at_a_time = contract();
        one_at_a_time.concurrency = 1;
        let mut process = Process::new(0);
        process.dispatcher = Dispatcher::new(&one_at_a_time, 1, 0);
        let mut desk = Self {
            model,
            process,
            chance: Chance(0),
        };
        for lane in 0..LANES {
            let event = desk.model.take(lane, false, 0);
            desk.process.handle(&mut desk.model, 0, event);
        }
        desk
    }

    fn handle(&mut self, event: Event) {
        self.process.handle(&mut self.model, 0, event);
    }

    /// Carries out everything but batches and reads of an empty log.
    fn carry_out(&mut self) {
        for _ in 0..200 {
            let is_batch = |command: &Command| matches!(command, Command::Run(_));
            let (batches, others): (VecDeque<_>, VecDeque<_>) =
                self.process.underway.drain(..).partition(is_batch);
            self.process.underway = others;
            if !self.process.underway.is_empty() {
                self.process.step(&mut self.model, &mut self.chance, 0);
            }
            self.process.underway.extend(batches);
        }
    }

    fn operators_act(&mut self) {
        self.handle(Event::Acted(Ruling::default()));
    }

    /// The look-ups that are asked for and not carried out.
    fn looks(&mut self) -> Vec<(u64, u16)> {
        let mut looks = Vec::new();
        self.process.underway.retain(|command| match command {
            Command::Look { look, lane } => {
                looks.push((*look, *lane));
                false
            }
            _ => true,
        });
        looks
    }

    fn answer(&mut self, looks: &[(u64, u16)]) {
        for (look, lane) in looks {
            let held = self.model.held_keys(*lane, 0);
            let cases = self.model.held_cases(*lane);
            self.handle(Event::Looked {
                look: *look,
                lane: *lane,
                held,
                cases,
            });
        }
    }

    fn batch(&mut self) -> Option<Batch> {
        let is_batch = |command: &Command| matches!(command, Command::Run(_));
        let at = self.process.underway.iter().position(is_batch)?;
        match self.process.underway.remove(at) {
            Some(Command::Run(batch)) => Some(batch),
            _ => None,
        }
    }

    fn end(&mut self, batch: &Batch, fate: &Fate) {
        let fates = batch
            .works
            .iter()
            .map(|w| (w.token, fate.clone()))
            .collect();
        if *fate == Fate::Finished {
            for work in &batch.works {
                self.model.deferred.remove(&work.row.seq);
                self.model.ledger.insert(work.row.seq);
            }
        }
        let seen = BatchSeen {
            messages: batch.works.len() as u32,
            ..BatchSeen::default()
        };
        self.handle(Event::Finished {
            batch: batch.batch,
            fates,
            seen,
            pace: Pace::default(),
        });
        self.carry_out();
    }

    /// Runs what there is to run, one after the other.
    fn run_all(&mut self) -> Vec<u64> {
        let mut ran = Vec::new();
        while let Some(batch) = self.batch() {
            ran.extend(batch.works.iter().map(|work| work.row.seq));
            self.end(&batch, &Fate::Finished);
        }
        ran
    }
}

#[test]
fn a_released_message_goes_before_those_that_waited_for_it() {
    let mut desk = Desk::new(&[0, 0, 0], |model| {
        model.cases.insert(1);
    });
    assert!(desk.run_all().is_empty(), "the case holds the key");
    desk.model.release(1, 0);
    assert!(desk.run_all().is_empty(), "nobody has looked yet");
    desk.operators_act();
    desk.carry_out();
    assert_eq!(desk.run_all(), [1, 2, 3]);
}

#[test]
fn giving_a_case_up_lets_the_others_go() {
    let mut desk = Desk::new(&[0, 0, 0], |model| {
        model.cases.insert(1);
    });
    desk.model.given_up.insert(1);
    desk.operators_act();
    desk.carry_out();
    assert_eq!(desk.run_all(), [2, 3]);
}

/// It was opened after that look-up had begun: the answer cannot know of it.
#[test]
fn an_older_answer_takes_no_case_away() {
    let mut desk = Desk::new(&[0, 0, 0], |_| {});
    let first = desk.batch().unwrap();
    desk.operators_act();
    let looks = desk.looks();
    desk.end(&first, &Fate::Finished);
    let second = desk.batch().unwrap();
    desk.model.cases.insert(2);
    desk.end(&second, &Fate::Quarantined { holds_key: true });
    for (look, lane) in looks {
        let (held, cases) = (Vec::new(), Vec::new());
        desk.handle(Event::Looked {
            look,
            lane,
            held,
            cases,
        });
    }
    desk.carry_out();
    assert!(desk.run_all().is_empty(), "the case holds the key");
}

/// The commit was there, somebody acted on it and all was looked up, before the process heard of
/// its own commit: it has to look once more.
#[test]
fn a_case_that_was_over_before_its_process_knew_of_it_holds_nothing() {
    let mut desk = Desk::new(&[0, 0], |_| {});
    let batch = desk.batch().unwrap();
    desk.model.cases.insert(1);
    desk.model.given_up.insert(1);
    desk.operators_act();
    desk.carry_out();
    desk.end(&batch, &Fate::Quarantined { holds_key: true });
    assert_eq!(desk.run_all(), [2]);
}

#[test]
fn only_the_answer_to_the_last_look_counts() {
    let mut desk = Desk::new(&[0, 0], |model| {
        model.cases.insert(1);
    });
    desk.operators_act();
    let old = desk.looks();
    desk.operators_act();
    let new = desk.looks();
    assert_eq!((old.len(), new.len()), (LANES as usize, LANES as usize));
    desk.model.given_up.insert(1);
    desk.answer(&old);
    desk.carry_out();
    assert!(desk.run_all().is_empty(), "that answer is outdated");
    desk.answer(&new);
    desk.carry_out();
    assert_eq!(desk.run_all(), [2]);
}

/// And what comes after it waits for it: it would otherwise never have its turn.
#[test]
fn what_is_released_from_a_busy_key_comes_when_that_is_quiet() {
    let mut desk = Desk::new(&[0, 0, 0], |model| {
        model.holds_key = false;
        model.cases.insert(1);
    });
    let batch = desk.batch().unwrap();
    assert_eq!(batch.works[0].row.seq, 2, "the case holds nothing");
    desk.model.release(1, 0);
    desk.operators_act();
    desk.carry_out();
    desk.end(&batch, &Fate::Finished);
    let rest = desk.run_all();
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert!(rest.contains(&1) && rest.contains(&3), "{rest:?}");
}

/// Else one that is never quiet would keep it away for ever.
#[test]
fn what_arrives_after_a_release_waits_behind_it() {
    let mut desk = Desk::new(&[0, 0], |model| {
        model.holds_key = false;
        model.cases.insert(1);
    });
    let batch = desk.batch().unwrap();
    assert_eq!(batch.works[0].row.seq, 2, "the case holds nothing");
    desk.model.release(1, 0);
    desk.operators_act();
    desk.carry_out();
    let later = Row {
        xid: 3,
        seq: 3,
        ..(**desk.model.row(2)).clone()
    };
    desk.model.rows.push(Arc::new(later));
    desk.carry_out();
    desk.end(&batch, &Fate::Finished);
    assert_eq!(desk.run_all(), [1, 3]);
}

/// The answer of a load that was under way does not have it.
#[test]
fn what_is_released_while_its_key_is_loaded_is_not_forgotten() {
    let mut desk = Desk::of(&[0, 0], |model| {
        model.holds_key = false;
        model.cases.insert(1);
        let row = Arc::clone(model.row(2));
        let retry = Deferral {
            seq: 2,
            slot: row.slot,
            key: row.envelope.key().to_owned(),
            kind: DeferralKind::Retry,
            due_in_ms: Some(0),
            spent: Spent::default(),
            failure: None,
        };
        model.defer(&retry, 0);
        let all = Snapshot::serial(2);
        for stand in model.stands.values_mut() {
            *stand = Position::at(1, all.clone()).into();
        }
    });
    let loads = desk.process.underway.iter();
    let mut load = loads.filter_map(|command| match command {
        Command::Load { load, key, .. } => Some((*load, key.clone())),
        _ => None,
    });
    let (load, key) = load.next_back().unwrap();
    let is_load = |command: &Command| matches!(command, Command::Load { .. });
    desk.process.underway.retain(|command| !is_load(command));
    let rows = desk.model.load(&key, 0, None, 64, 0);
    assert_eq!(rows.len(), 1);
    desk.model.release(1, 0);
    desk.operators_act();
    let looks = desk.looks();
    desk.answer(&looks);
    desk.handle(Event::Loaded { load, key, rows });
    desk.carry_out();
    assert_eq!(desk.run_all(), [2, 1]);
}

#[test]
fn what_waited_for_a_person_goes_on_with_its_key() {
    let mut desk = Desk::new(&[0, 0], |_| {});
    let batch = desk.batch().unwrap();
    let row = &batch.works[0].row;
    let deferral = Deferral {
        seq: 1,
        slot: row.slot,
        key: row.envelope.key().to_owned(),
        kind: DeferralKind::Operator,
        due_in_ms: None,
        spent: Spent::default(),
        failure: None,
    };
    desk.model.defer(&deferral, 0);
    desk.end(&batch, &Fate::Deferred(deferral));
    assert!(desk.run_all().is_empty(), "it waits for a person");
    desk.model.resume_deferred(0);
    desk.operators_act();
    desk.carry_out();
    assert_eq!(desk.run_all(), [1, 2]);
}

#[test]
fn in_a_pause_nothing_is_started_and_what_runs_ends() {
    let mut desk = Desk::new(&[0, 1], |_| {});
    let batch = desk.batch().unwrap();
    desk.handle(Event::Acted(ruling(true)));
    desk.carry_out();
    let running = batch.works[0].row.seq;
    desk.end(&batch, &Fate::Finished);
    assert!(desk.run_all().is_empty(), "it is paused");
    let spans = desk.process.dispatcher.spans();
    assert!(
        spans
            .iter()
            .any(|span| span.stand.position.is_past(running, running)),
        "positions go on: {spans:?}"
    );
    desk.operators_act();
    desk.carry_out();
    assert_eq!(desk.run_all().len(), 1);
}

/// Only one that has not run since: after that nobody's word says what it did.
#[test]
fn a_message_is_released_until_it_has_run() {
    let released = DeferredRow {
        row: (**Model::new(&[0]).row(1)).clone(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(0),
        spent: Spent {
            age_ms: 5,
            ..Spent::default()
        },
        failure: Some(crate::Failure::ambiguous("lost", "no answer").record()),
        generation: 0,
    };
    assert!(released.is_released());
    let mut others = [(); 5].map(|()| released.clone());
    others[0].failure = None;
    others[1].spent.failures = 1;
    others[2].spent.deaths = 1;
    others[3].spent.waits = 1;
    others[4].kind = DeferralKind::Running;
    for other in others {
        assert!(!other.is_released(), "{other:?}");
    }
}

const fn ruling(is_paused: bool) -> Ruling {
    Ruling {
        is_paused,
        concurrency_max: None,
        rate: None,
    }
}
