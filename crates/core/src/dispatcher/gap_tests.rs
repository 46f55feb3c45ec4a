use proptest::prelude::*;

use super::super::model::{Chance, LANES, Model};
use super::super::model_process::Process;
use super::super::run::tests::{Desk, contract, retry};
use super::super::{Command, Event, Fate, Work};
use super::*;
use crate::envelope::{Envelope, Payload};
use crate::position::{Position, Snapshot};
use crate::retry::Spent;
use crate::version::{Gaps, VersionPolicy};

/// Messages of some keys whose versions come in another order; a tenth of them has none.
fn model(seed: u64, keys: u8, count: usize, policy: VersionPolicy) -> Model {
    let mut chance = Chance(seed);
    let names: Vec<u8> = (0..count)
        .map(|_| chance.below(u64::from(keys)) as u8)
        .collect();
    let mut model = Model::new(&names);
    model.versions = Some(policy);
    for key in 0..keys {
        let places: Vec<usize> = (0..count)
            .filter(|i| names[*i] == key && !chance.one_in(10))
            .collect();
        let mut versions: Vec<i64> = (1..=places.len() as i64).collect();
        // The first one seen is no gap, so it has to be the first one of all. The others move by a
        // few places, now and then by many.
        for at in 1..versions.len() {
            let by = if chance.one_in(12) { 80 } else { 4 };
            let other = (at + chance.below(by) as usize).min(versions.len() - 1);
            versions.swap(at, other);
        }
        for (place, version) in places.into_iter().zip(versions) {
            let row = Arc::make_mut(&mut model.rows[place]);
            row.envelope.aggregate_version = Some(version);
        }
    }
    model
}

/// Runs a schedule to its end.
fn schedule(model: &mut Model, seed: u64, crashes: u32, handovers: u32) {
    let mut chance = Chance(seed ^ 0x5eed);
    let mut now_ms = 0;
    let mut process = Process::new(now_ms);
    process.is_slow = true;
    let (mut crashes, mut handovers) = (crashes, handovers);
    for lane in 0..LANES {
        let event = model.take(lane, false, now_ms);
        process.handle(model, now_ms, event);
    }
    for _ in 0..60_000_u32 {
        now_ms += chance.below(2);
        if crashes > 0 && chance.one_in(60) {
            crashes -= 1;
            process = Process::new(now_ms);
            process.is_slow = true;
            for lane in 0..LANES {
                let event = model.take(lane, true, now_ms);
                process.handle(model, now_ms, event);
            }
        } else if handovers > 0 && chance.one_in(40) {
            handovers -= 1;
            let lane = chance.below(u64::from(LANES)) as u16;
            process.handle(model, now_ms, Event::ReleaseLane { lane });
        } else if let Some(lane) = process.released.pop_first() {
            let event = model.take(lane, false, now_ms);
            process.handle(model, now_ms, event);
        } else if process.is_idle() {
            // Nothing happens before the next time that something is due.
            let next_ms = process.dispatcher.deadline_ms();
            now_ms = next_ms.map_or(now_ms + 1, |at_ms| at_ms.max(now_ms + 1));
            process.handle(model, now_ms, Event::Tick);
        } else {
            process.step(model, &mut chance, now_ms);
        }
        let is_ended = |seq: &u64| model.ledger.contains(seq) || model.cases.contains(seq);
        let is_done = crashes == 0
            && handovers == 0
            && model.rows.iter().all(|row| is_ended(&row.seq))
            && model.deferred.is_empty();
        if is_done {
            return;
        }
    }
    panic!("seed {seed} does not come to an end");
}

/// The versions of a key in the order of their effects.
fn applied(model: &Model, key: &str) -> Vec<i64> {
    let effects = model.effects.get(key).map_or(&[][..], Vec::as_slice);
    let rows = effects.iter().map(|seq| model.row(*seq));
    rows.filter_map(|row| row.envelope.aggregate_version)
        .collect()
}

fn waiting(limit_ms: u64) -> VersionPolicy {
    VersionPolicy {
        gaps: Gaps::Wait,
        gap_limit_ms: limit_ms,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_order_of_versions_all_are_applied_in_theirs(
        seed: u64,
        keys in 1u8..5,
        count in 1usize..160,
        crashes in 0u32..4,
        handovers in 0u32..5,
    ) {
        let mut model = model(seed, keys, count, waiting(3_600_000));
        model.case_every = 0;
        schedule(&mut model, seed, crashes, handovers);
        prop_assert!(model.cases.is_empty(), "waited to the end: {:?}", model.cases);
        prop_assert!(model.refused.is_empty(), "behind: {:?}", model.refused);
        for key in 0..keys {
            let versions = applied(&model, &format!("k{key}"));
            let expected: Vec<i64> = (1..=versions.len() as i64).collect();
            prop_assert_eq!(&versions, &expected, "key {}", key);
        }
    }

    #[test]
    fn nothing_is_applied_backward_or_over_a_gap_whatever_fails(
        seed: u64,
        keys in 1u8..5,
        count in 1usize..120,
        holds_key: bool,
        crashes in 0u32..3,
    ) {
        let mut model = model(seed, keys, count, waiting(25));
        model.holds_key = false;
        model.case_every = if holds_key { 15 } else { 60 };
        schedule(&mut model, seed, crashes, 2);
        for key in 0..keys {
            let versions = applied(&model, &format!("k{key}"));
            for pair in versions.windows(2) {
                prop_assert_eq!(pair[1], pair[0] + 1, "key {}: {:?}", key, versions);
            }
        }
        for row in &model.rows {
            let ends = usize::from(model.ledger.contains(&row.seq))
                + usize::from(model.cases.contains(&row.seq));
            prop_assert_eq!(ends, 1, "row {} ended {} times", row.seq, ends);
        }
    }

    #[test]
    fn where_gaps_pass_only_what_is_behind_is_refused(
        seed: u64,
        keys in 1u8..5,
        count in 1usize..120,
        crashes in 0u32..3,
    ) {
        let mut model = model(seed, keys, count, VersionPolicy::default());
        model.case_every = 0;
        schedule(&mut model, seed, crashes, 2);
        for key in 0..keys {
            let versions = applied(&model, &format!("k{key}"));
            let all: Vec<_> = versions.iter().filter(|v| **v > 0).collect();
            prop_assert!(versions.is_sorted_by(|a, b| a < b), "key {}: {:?}", key, all);
        }
        let with_versions = model.rows.iter().filter(|r| r.envelope.aggregate_version.is_some());
        let refused_or_applied = model.refused.len()
            + (0..keys).map(|key| applied(&model, &format!("k{key}")).len()).sum::<usize>();
        prop_assert_eq!(refused_or_applied, with_versions.count());
    }
}

/// A message is given up while the one that it waited for is about to run, which was to pass only it.
#[test]
fn what_was_to_pass_a_message_that_is_given_up_passes_nobody() {
    let mut model = model(11149206585242747136, 3, 89, waiting(25));
    model.holds_key = false;
    model.case_every = 15;
    schedule(&mut model, 11149206585242747136, 0, 2);
}

fn deferred(seq: u64, aggregate: &str, version: Option<i64>, kind: DeferralKind) -> DeferredRow {
    let payload = Payload::Json("1".into());
    let envelope = Envelope {
        partition_key: Some("k".into()),
        aggregate_version: version,
        ..Envelope::new(seq.to_string(), "thing", aggregate, "t", payload)
    };
    let row = Row {
        xid: seq,
        seq,
        slot: 0,
        recorded_at: crate::timestamp::Timestamp::from_micros(0),
        envelope,
        corrects: None,
    };
    DeferredRow {
        row,
        kind,
        due_in_ms: Some(0),
        spent: Spent::default(),
        failure: None,
        generation: 0,
    }
}

#[test]
fn what_a_message_waits_for_comes_right_before_it() {
    use DeferralKind::{Gap, Held};
    let rows = vec![
        deferred(1, "a", Some(5), Gap),
        deferred(2, "b", Some(9), Held),
        deferred(3, "a", None, Held),
        deferred(4, "a", Some(3), Gap),
        deferred(5, "a", Some(4), Held),
    ];
    let seqs = |rows: Vec<DeferredRow>| -> Vec<u64> { rows.iter().map(|r| r.row.seq).collect() };
    assert_eq!(seqs(in_order_of_versions(rows)), [4, 5, 1, 2, 3]);
    let without = vec![
        deferred(1, "a", Some(5), Held),
        deferred(2, "a", Some(3), Held),
    ];
    assert_eq!(seqs(in_order_of_versions(without)), [1, 2]);
}

/// Answers a read with one row.
fn read(desk: &mut Desk, row: Row) {
    let asked = desk.take(|command| match command {
        Command::Read { feed, from } => Some((*feed, from.clone())),
        _ => None,
    });
    let (feed, from) = asked.expect("it reads on");
    let next = Position::at(1, Snapshot::serial(row.seq));
    let rows = vec![Arc::new(row)];
    desk.handle(Event::Page {
        feed,
        from,
        rows,
        next,
    });
}

/// Answers the load of what a message waits for, with rows that are due in so many milliseconds.
fn answer_load(desk: &mut Desk, rows: &[(&DeferredRow, u64)]) {
    let asked = desk.take(|command| match command {
        Command::Load {
            load,
            key,
            versions_to: Some(_),
            ..
        } => Some((*load, key.clone())),
        _ => None,
    });
    let (load, key) = asked.expect("it looks for what is waited for");
    let rows = rows.iter().map(|(row, due_in_ms)| DeferredRow {
        due_in_ms: Some(*due_in_ms),
        ..(*row).clone()
    });
    let rows = rows.collect();
    desk.handle(Event::Loaded { load, key, rows });
}

/// Ends the next batch of the key, which has one message, and returns whether that one was alone.
fn end(desk: &mut Desk, seq: u64, fate: impl Fn(&Work) -> Fate) -> bool {
    let batch = desk.batch_with("k").expect("it runs");
    let work = batch.works[0].clone();
    assert_eq!((batch.works.len(), work.row.seq), (1, seq));
    desk.end(&batch, vec![fate(&work)]);
    work.is_alone
}

/// What a message waits for comes from the log while the message itself waits for its turn.
#[test]
fn a_message_is_not_alone_where_what_it_waits_for_is_queued_behind_it() {
    let mut desk = Desk::new(&contract(), 1, Vec::new());
    let later = deferred(1, "a", Some(5), DeferralKind::Gap);
    let waits = |work: &Work| {
        Fate::Deferred(Deferral {
            kind: DeferralKind::Gap,
            ..retry(work, 1_000)
        })
    };
    read(&mut desk, later.row.clone());
    end(&mut desk, 1, waits);
    answer_load(&mut desk, &[]);
    for (seq, key) in [(2, "x"), (3, "y")] {
        let mut other = deferred(seq, key, None, DeferralKind::Held).row;
        other.envelope.partition_key = Some(key.into());
        read(&mut desk, other);
    }
    desk.now_ms = 1_000;
    desk.handle(Event::Tick);
    answer_load(&mut desk, &[(&later, 0)]);
    assert!(desk.batch_with("k").is_none(), "there is no room for it");
    read(&mut desk, deferred(4, "a", Some(4), DeferralKind::Held).row);
    let other = desk.batch_with("x").expect("it runs");
    desk.end(&other, vec![Fate::Finished]);
    assert!(!end(&mut desk, 1, waits), "it passes for alone");
    end(&mut desk, 4, |_| Fate::Finished);
}

/// What a message lacks was there with a time of its own: nobody has looked since whether there is
/// more.
#[test]
fn a_message_is_not_alone_where_what_it_waited_for_had_a_time_of_its_own() {
    let mut desk = Desk::new(&contract(), 1, Vec::new());
    let later = deferred(1, "a", Some(5), DeferralKind::Gap);
    let earlier = deferred(2, "a", Some(4), DeferralKind::Retry);
    let waits = |work: &Work| {
        Fate::Deferred(Deferral {
            kind: DeferralKind::Gap,
            ..retry(work, 1_000)
        })
    };
    let retries = |work: &Work| Fate::Deferred(retry(work, 500));
    read(&mut desk, later.row.clone());
    end(&mut desk, 1, waits);
    answer_load(&mut desk, &[]);
    read(&mut desk, earlier.row.clone());
    end(&mut desk, 2, retries);
    answer_load(&mut desk, &[(&earlier, 500)]);
    desk.now_ms = 1_000;
    desk.handle(Event::Tick);
    answer_load(&mut desk, &[(&earlier, 0), (&later, 0)]);
    end(&mut desk, 2, |_| Fate::Quarantined { holds_key: false });
    assert!(!end(&mut desk, 1, waits), "it passes for alone");
    answer_load(&mut desk, &[]);
    desk.now_ms = 2_000;
    desk.handle(Event::Tick);
    answer_load(&mut desk, &[(&later, 0)]);
    assert!(
        end(&mut desk, 1, waits),
        "nothing was found, and it waits on"
    );
}
