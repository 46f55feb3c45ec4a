//! Lane groups against the model: each at its own pace, keys in order, nothing lost.

use proptest::prelude::*;

use super::model::{Chance, LANES, Model};
use super::model_process::Process;
use super::tests::run_schedule;
use super::*;
use crate::coalesce::BatchSeen;
use crate::contract::SubscriptionContract;
use crate::group::{Priority, Tenants};

const CLASSES: [(&str, Priority); 3] = [
    ("h", Priority::High),
    ("n", Priority::Normal),
    ("l", Priority::Low),
];

fn grouping(classes: &[(&str, Priority)], tenants: Option<u8>) -> Grouping {
    Grouping {
        types: classes.iter().map(|(t, p)| ((*t).to_owned(), *p)).collect(),
        tenants: tenants.map(|groups| Tenants {
            attribute: "tenant".to_owned(),
            groups,
        }),
    }
}

/// Groupings that take the same types otherwise.
fn some_grouping(number: u8) -> Grouping {
    let other = [
        ("h", Priority::High),
        ("n", Priority::High),
        ("l", Priority::Normal),
    ];
    match number % 6 {
        0 => grouping(&CLASSES, None),
        1 => grouping(&CLASSES, Some(2)),
        2 => grouping(&other, None),
        3 => grouping(&other, Some(3)),
        4 => Grouping::of_types(["h", "n", "l"]),
        _ => Grouping {
            tenants: grouping(&CLASSES, Some(1)).tenants,
            ..Grouping::of_types(["h", "n", "l"])
        },
    }
}

/// One key has one type and one tenant.
fn of_key(key: u8) -> (String, &'static str, &'static str) {
    let of = CLASSES[usize::from(key % 3)].0;
    (
        format!("k{key}"),
        of,
        ["", "a", "b", "c"][usize::from(key / 3 % 4)],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// With small windows, so that pages are cut and keys parked; and whoever comes next may be told
    /// to divide otherwise.
    #[test]
    fn every_message_ends_once_and_in_order_in_whatever_groups(
        seed: u64,
        keys in prop::collection::vec(0u8..12, 1..120),
        window in 4usize..60,
        groupings in prop::collection::vec(any::<u8>(), 4..5),
        crashes in 0u32..4,
        handovers in 0u32..5,
    ) {
        let mut groupings: Vec<_> = groupings.into_iter().map(some_grouping).collect();
        let mut model = Model::of(keys.into_iter().map(of_key), groupings.remove(0));
        model.regroupings = groupings;
        model.window = Some(window);
        run_schedule(seed, model, crashes, handovers).check_end();
    }

    /// Keys that several have: each message ends once, those that were refused as cases.
    #[test]
    fn conflicts_end_too(
        seed: u64,
        rows in prop::collection::vec((0u8..5, 0usize..3, 0usize..3), 1..100),
        crashes in 0u32..3,
    ) {
        let rows = rows.into_iter().map(|(key, class, tenant)| {
            (format!("k{key}"), CLASSES[class].0, ["", "a", "b"][tenant])
        });
        let model = Model::of(rows, grouping(&CLASSES, Some(3)));
        let mut model = run_schedule(seed, model, crashes, 1);
        // Nobody can know of a conflict with what is not there any more, or not yet.
        model.late = (1..=model.rows.len() as u64).collect();
        model.check_end();
    }
}

/// A dispatcher that runs one message at a time in each of its slots.
fn process(grouping: &Grouping, concurrency: u16) -> Process {
    let mut contract = SubscriptionContract::new("s", &[], Semantics::EffectOnce);
    contract.lanes = LANES;
    contract.concurrency = concurrency;
    Process::with(Dispatcher::new(&contract, 1, 0).grouped(grouping))
}

/// Everything but batches is carried out, until there is nothing else to do.
fn settle_down(process: &mut Process, model: &mut Model) {
    let is_batch = |command: &Command| matches!(command, Command::Run(_));
    let mut chance = Chance(7);
    let read_to_end = Position::at(
        1,
        crate::position::Snapshot::serial(model.rows.len() as u64),
    );
    loop {
        // At the end of the log a reader waits.
        let is_idle = |command: &Command| match command {
            Command::Run(_) => true,
            Command::Read { from, .. } => *from == read_to_end,
            _ => false,
        };
        let underway = std::mem::take(&mut process.underway);
        let (idle, others): (_, std::collections::VecDeque<_>) =
            underway.into_iter().partition(is_idle);
        if others.is_empty() {
            process.underway = idle;
            return;
        }
        process.underway = others;
        process.step(model, &mut chance, 0);
        process
            .underway
            .extend::<std::collections::VecDeque<_>>(idle);
        debug_assert!(process.underway.iter().filter(|c| is_batch(c)).count() < 1_000);
    }
}

fn take_all(process: &mut Process, model: &mut Model) {
    for lane in 0..LANES {
        let event = model.take(lane, false, 0);
        process.handle(model, 0, event);
    }
    settle_down(process, model);
}

/// Ends the oldest batch well, and says of which message it was.
fn end_one(process: &mut Process, model: &mut Model) -> Option<u64> {
    let is_batch = |command: &Command| matches!(command, Command::Run(_));
    let at = process.underway.iter().position(is_batch)?;
    let Some(Command::Run(batch)) = process.underway.remove(at) else {
        return None;
    };
    let work = &batch.works[0];
    model.ledger.insert(work.row.seq);
    let event = Event::Finished {
        batch: batch.batch,
        fates: vec![(work.token, Fate::Finished)],
        seen: BatchSeen {
            messages: 1,
            ..BatchSeen::default()
        },
        pace: Pace::default(),
    };
    process.handle(model, 0, event);
    settle_down(process, model);
    Some(work.row.seq)
}

fn running(process: &Process) -> Vec<&Work> {
    let batches = process.underway.iter().filter_map(|command| match command {
        Command::Run(batch) => Some(&batch.works),
        _ => None,
    });
    batches.flatten().collect()
}

#[test]
fn a_backlog_of_low_value_hides_nothing_of_high_value() {
    let low = (0..6_000).map(|i| (format!("l{i}"), "l", ""));
    let high = [("h".to_owned(), "h", "")];
    let mut model = Model::of(low.chain(high), grouping(&CLASSES, None));
    let mut process = process(&model.grouping.clone(), 3);
    take_all(&mut process, &mut model);
    let ended: Vec<u64> = (0..5)
        .filter_map(|_| end_one(&mut process, &mut model))
        .collect();
    assert!(ended.contains(&6_001), "{ended:?}");
    // In one group it waits for its place in the log.
    let mut model = Model::of(
        (0..6_000)
            .map(|i| (format!("l{i}"), "l", ""))
            .chain([("h".to_owned(), "h", "")]),
        Grouping::of_types(["h", "l"]),
    );
    let mut process = self::process(&model.grouping.clone(), 3);
    take_all(&mut process, &mut model);
    let ended: Vec<u64> = (0..50)
        .filter_map(|_| end_one(&mut process, &mut model))
        .collect();
    assert!(!ended.contains(&6_001));
}

#[test]
fn a_noisy_tenant_hides_nothing_of_a_quiet_one() {
    // Of two groups, a and b fall into different ones.
    let noisy = (0..6_000).map(|i| (format!("a{i}"), "n", "a"));
    let quiet = (0..10).map(|i| (format!("b{i}"), "n", "b"));
    let grouping = grouping(&CLASSES[1..2], Some(2));
    let mut model = Model::of(noisy.chain(quiet), grouping.clone());
    let mut process = process(&grouping, 4);
    take_all(&mut process, &mut model);
    let ended: Vec<u64> = (0..30)
        .filter_map(|_| end_one(&mut process, &mut model))
        .collect();
    assert_eq!(
        ended.iter().filter(|seq| **seq > 6_000).count(),
        10,
        "{ended:?}"
    );
}

#[test]
fn tenants_that_fall_into_one_group_share_what_runs() {
    // Both are in memory: the window of a group is theirs together.
    let noisy = (0..300).map(|i| (format!("a{i}"), "n", "a"));
    let quiet = (0..10).map(|i| (format!("b{i}"), "n", "b"));
    let grouping = grouping(&CLASSES[1..2], Some(1));
    let mut model = Model::of(noisy.chain(quiet), grouping.clone());
    let mut process = process(&grouping, 4);
    take_all(&mut process, &mut model);
    let ended: Vec<u64> = (0..30)
        .filter_map(|_| end_one(&mut process, &mut model))
        .collect();
    assert_eq!(
        ended.iter().filter(|seq| **seq > 300).count(),
        10,
        "{ended:?}"
    );
}

#[test]
fn low_value_starts_within_a_bounded_number_of_starts() {
    let low = [("l".to_owned(), "l", "")];
    let others = (0..2_000).map(|i| (format!("o{i}"), ["h", "n"][i % 2], ""));
    let mut model = Model::of(others.chain(low), grouping(&CLASSES, None));
    let mut process = process(&model.grouping.clone(), 1);
    take_all(&mut process, &mut model);
    let ended: Vec<u64> = (0..16)
        .filter_map(|_| end_one(&mut process, &mut model))
        .collect();
    assert!(ended.contains(&2_001), "{ended:?}");
}

#[test]
fn two_tenants_have_equal_shares_of_what_runs() {
    let rows = (0..400).map(|i| (format!("k{i}"), "n", if i < 300 { "a" } else { "b" }));
    let grouping = grouping(&CLASSES[1..2], Some(2));
    let mut model = Model::of(rows, grouping.clone());
    let mut process = process(&grouping, 6);
    take_all(&mut process, &mut model);
    // What started before the second was read ends first.
    for _ in 0..6 {
        end_one(&mut process, &mut model);
    }
    for _ in 0..90 {
        let of_b = running(&process).iter().filter(|w| w.row.seq > 300).count();
        assert_eq!((running(&process).len(), of_b), (6, 3));
        // Two of one tenant end: the next two are one of each, or of the other.
        end_one(&mut process, &mut model);
        let of_b = running(&process).iter().filter(|w| w.row.seq > 300).count();
        assert!((2..=4).contains(&of_b), "{of_b}");
        end_one(&mut process, &mut model);
    }
}

#[test]
fn retries_of_one_group_leave_room_for_those_of_others() {
    // After a takeover nobody knows whose the deferred keys are: all of them are due.
    let low = (0..4_000).map(|i| (format!("l{i:04}"), "l", ""));
    let high = [("z".to_owned(), "h", "")];
    let mut model = Model::of(low.chain(high), grouping(&CLASSES, None));
    for row in model.rows.clone() {
        let retry = Deferral {
            seq: row.seq,
            slot: row.slot,
            key: row.envelope.key().to_owned(),
            kind: DeferralKind::Retry,
            due_in_ms: Some(0),
            spent: Spent::default(),
            failure: None,
        };
        model.defer(&retry, 0);
    }
    let end = Position::at(1, crate::position::Snapshot::serial(4_001));
    for stand in model.stands.values_mut() {
        *stand = end.clone().into();
    }
    let mut process = process(&model.grouping.clone(), 2);
    take_all(&mut process, &mut model);
    let ended: Vec<u64> = (0..5)
        .filter_map(|_| end_one(&mut process, &mut model))
        .collect();
    assert!(ended.contains(&4_001), "{ended:?}");
    let in_memory = process.dispatcher.in_memory();
    assert!(
        in_memory < 1_200,
        "{in_memory} of a window of 4096 are loaded"
    );
}

#[test]
fn a_message_of_another_group_is_refused_and_the_key_goes_on() {
    let rows = [("k", "n", "a"), ("k", "n", "b"), ("k", "n", "a")];
    let rows = rows.map(|(key, of, tenant)| (key.to_owned(), of, tenant));
    let grouping = grouping(&CLASSES[1..2], Some(2));
    let mut model = Model::of(rows, grouping.clone());
    let mut process = process(&grouping, 2);
    take_all(&mut process, &mut model);
    // Whoever is read first has the key.
    let tenant_of = |work: &Work| work.row.envelope.attributes["tenant"].clone();
    let mut owner = None;
    for _ in 0..3 {
        let works = running(&process);
        assert_eq!(works.len(), 1, "one after the other: {works:?}");
        let owner = owner.get_or_insert_with(|| tenant_of(works[0]));
        assert_eq!(works[0].is_conflict, tenant_of(works[0]) != *owner);
        end_one(&mut process, &mut model);
    }
    assert_eq!(model.ledger.len(), 3);
}
