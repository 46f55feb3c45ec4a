//! The engine under simulation: the same seed is the same run, no seed fails, and the checkers
//! notice what is wrong on purpose. `scripts/simulate` runs more.

#![cfg(feature = "engine")]

use std::collections::BTreeSet;

use onceward_testkit::memory;
use onceward_testkit::simulation::{Defect, EndState, Fault, Role, Setup, Variant, run};

/// Runs seeds and tells how to repeat those that fail.
fn pass(seeds: impl Iterator<Item = u64>, coalesce: bool) {
    pass_setups(seeds.map(Setup::of), coalesce);
}

fn pass_setups(setups: impl Iterator<Item = Setup>, coalesce: bool) {
    let mut failed = Vec::new();
    for mut setup in setups {
        setup.coalesce = coalesce;
        if let Some(violation) = run(&setup).violation {
            failed.push(format!("{violation}\n    scripts/simulate {setup} --trace"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn seeds_pass_with_coalescing() {
    pass(0..25, true);
}

#[test]
fn seeds_pass_without_coalescing() {
    pass(40..65, false);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [1, 3, 20, 61] {
        let setup = Setup::of(seed);
        let (first, second) = (run(&setup), run(&setup));
        assert!(first.steps.len() > 50, "something happens in seed {seed}");
        let differs = first.steps.iter().zip(&second.steps).find(|(a, b)| a != b);
        assert!(differs.is_none(), "seed {seed}: {differs:#?}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
    assert_ne!(run(&Setup::of(1)).hash, run(&Setup::of(2)).hash);
}

#[test]
fn an_engine_that_refuses_to_start_is_named() {
    let setup = Setup {
        lanes: 0,
        ..Setup::of(1)
    };
    let violation = run(&setup).violation.expect("nothing runs without lanes");
    assert_eq!(violation.checker, "start");
    assert!(violation.message.contains("lanes"), "{violation}");
}

/// The states that do not depend on when a process died.
fn comparable(ends: Vec<EndState>) -> BTreeSet<EndState> {
    ends.into_iter().collect()
}

#[test]
fn coalescing_changes_no_end() {
    let mut compared = 0;
    for seed in 0..20 {
        let mut setup = Setup::of(seed);
        // Faults that burn attempts by chance have no counterpart in the other run.
        setup.faults = vec![Fault::Lost, Fault::Refuse, Fault::Churn, Fault::Handler];
        setup.roles = vec![Role::Ship, Role::Stats, Role::Pay, Role::Track];
        setup.loose_order = false;
        let together = run(&setup);
        setup.coalesce = false;
        let alone = run(&setup);
        for report in [&together, &alone] {
            assert_eq!(report.violation, None, "seed {seed}");
        }
        // Sequences of follow-ups depend on the order of commits: compared by what producers sent.
        let own = |ends: Vec<EndState>| {
            let own = ends.into_iter().filter(|end| end.role != Role::Track);
            comparable(
                own.map(|end| EndState {
                    seq: end.number,
                    ..end
                })
                .collect(),
            )
        };
        let (together, alone) = (own(together.ends), own(alone.ends));
        compared += together.len();
        assert_eq!(together, alone, "seed {seed}");
    }
    assert!(compared > 500, "{compared} ends were compared");
}

/// The checkers that may notice a defect first.
fn checkers_of(defect: Defect) -> &'static [&'static str] {
    match defect {
        Defect::AcknowledgesEarly => &["position", "fence", "final-state", "key-order"],
        Defect::AdvancesPastUnfinished | Defect::DropsBuffer => &["position"],
        Defect::ForgetsDeferrals => &["liveness", "key-order"],
        Defect::CountsTwice | Defect::RedeliveryCountLost => &["budget"],
        Defect::RerunsOutsideLedger | Defect::HalfApplies => &["one-effect"],
        Defect::KeepsAppended => &["follow-ups"],
        Defect::HandsOverEarly => &["fence"],
        Defect::ClaimsByOwnClock => &["lease"],
        Defect::ForgetsVersions => &["versions"],
        Defect::ForgetsEarlier => &["liveness"],
        Defect::MergesUnrecorded => &["position", "key-order", "final-state"],
        Defect::MergesIntoItself | Defect::ShedsEarly => &["dropped"],
        Defect::ForgetsMerged => &["dropped", "liveness"],
        Defect::Store(memory::Defect::NoFence) => &["fence"],
        Defect::Store(memory::Defect::LedgerWithoutSubscription) => &[
            "one-effect",
            "final-state",
            "liveness",
            "position",
            "key-order",
        ],
        Defect::Store(memory::Defect::CursorOnSequence) => &["position"],
        Defect::Store(memory::Defect::OrderByTransaction) => &["key-order"],
        Defect::Store(memory::Defect::FirstTimeForgotten) => &["age"],
        Defect::Store(memory::Defect::HeldOverwrites) => &["budget"],
        Defect::Store(memory::Defect::ClearIgnored) => &["final-state", "liveness", "one-effect"],
        Defect::Store(memory::Defect::DropCommits) => &["one-effect"],
        Defect::Store(memory::Defect::DeferralsUnordered) => &["key-order"],
        Defect::Store(memory::Defect::TidyIgnoresPositions | memory::Defect::TidyForgetsByAge) => {
            &["retention"]
        }
        Defect::Store(memory::Defect::RevisionStands) => &["liveness"],
        Defect::Store(memory::Defect::ReleasedWithOldBudget) => &["budget"],
        Defect::Store(memory::Defect::PausesCount | memory::Defect::BacklogLooksYoung) => &["age"],
        Defect::Store(
            memory::Defect::StillCounts
            | memory::Defect::StillUncut
            | memory::Defect::PausesOverlap,
        ) => &["age"],
        Defect::Store(memory::Defect::PausesForgotten) => &["dropped"],
        Defect::AgeUnlimited | Defect::AgeCutShort => &["budget"],
        Defect::OutageCounts => &["outage"],
        Defect::ClassesTurned => &["shares"],
        Defect::Store(_) => &[],
    }
}

/// Seeds within which each defect is noticed.
const SEEDS: u64 = 120;

fn is_noticed(defect: Defect, coalesce: bool) -> Result<(), String> {
    let checkers = checkers_of(defect);
    let mut others = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut setup = Setup::of(seed);
        setup.coalesce = coalesce;
        setup.defect = Some(defect);
        if defect == Defect::Store(memory::Defect::TidyForgetsByAge) {
            // It shows only where something is read again later than the ledger remembers.
            setup.faults = vec![Fault::Retention, Fault::Absence, Fault::Crash, Fault::Pause];
        }
        if matches!(defect, Defect::AgeUnlimited | Defect::AgeCutShort) {
            setup.faults = vec![Fault::Handler, Fault::Age, Fault::Crash, Fault::Operate];
        }
        if let Defect::Store(memory::Defect::StillCounts | memory::Defect::StillUncut) = defect {
            setup.faults = vec![Fault::Outage, Fault::Operate];
            setup.roles = vec![Role::Mail];
        }
        if defect == Defect::Store(memory::Defect::PausesOverlap) {
            setup.faults = vec![Fault::Clock, Fault::Operate, Fault::Handler];
            setup.roles = vec![Role::Mail];
        }
        if defect == Defect::OutageCounts {
            setup.faults = vec![Fault::Outage, Fault::Crash, Fault::Lost];
        }
        if matches!(defect, Defect::ForgetsVersions | Defect::ForgetsEarlier) {
            setup = setup.varied(Variant::VersionsWait);
        }
        if matches!(
            defect,
            Defect::MergesUnrecorded
                | Defect::MergesIntoItself
                | Defect::ForgetsMerged
                | Defect::ShedsEarly
                | Defect::Store(memory::Defect::PausesForgotten)
        ) {
            setup = setup.varied(Variant::Drops);
        }
        if defect == Defect::ClassesTurned {
            setup = setup.varied(Variant::Rush);
        }
        match run(&setup).violation {
            Some(violation) if checkers.contains(&violation.checker) => {
                // Nothing else is wrong there.
                setup.defect = None;
                let unbroken = run(&setup).violation.map(|found| found.to_string());
                return unbroken.map_or(Ok(()), |found| Err(format!("unbroken, {setup}: {found}")));
            }
            Some(violation) => others.extend([violation.checker]),
            None => {}
        }
    }
    Err(format!("{}: {others:?}", defect.name()))
}

/// Each defect is noticed by a checker that is there for it, with coalescing and without, in a run
/// in which the engine as it is passes.
fn notices(defects: &[Defect]) {
    let both = defects
        .iter()
        .flat_map(|defect| [(*defect, true), (*defect, false)]);
    let missed = both.filter_map(|(defect, coalesce)| is_noticed(defect, coalesce).err());
    let missed: Vec<String> = missed.collect();
    assert!(
        missed.is_empty(),
        "not noticed in {SEEDS} seeds: {missed:#?}"
    );
}

#[test]
fn defects_of_the_commit_are_noticed() {
    notices(&[
        Defect::AcknowledgesEarly,
        Defect::RerunsOutsideLedger,
        Defect::HalfApplies,
        Defect::KeepsAppended,
        Defect::Store(memory::Defect::DropCommits),
        Defect::Store(memory::Defect::LedgerWithoutSubscription),
    ]);
}

#[test]
fn seeds_pass_with_versions_whose_gaps_wait() {
    pass_setups(
        (0..25).map(|seed| Setup::of(seed).varied(Variant::VersionsWait)),
        true,
    );
    pass_setups(
        (25..40).map(|seed| Setup::of(seed).varied(Variant::VersionsWait)),
        false,
    );
}

#[test]
fn seeds_pass_with_versions_whose_gaps_pass() {
    pass_setups(
        (40..55).map(|seed| Setup::of(seed).varied(Variant::VersionsPass)),
        true,
    );
    pass_setups(
        (55..65).map(|seed| Setup::of(seed).varied(Variant::VersionsPass)),
        false,
    );
}

#[test]
fn seeds_pass_with_versions_whose_gaps_end() {
    pass_setups(
        (0..12).map(|seed| Setup::of(seed).varied(Variant::VersionsEnd)),
        true,
    );
    pass_setups(
        (12..20).map(|seed| Setup::of(seed).varied(Variant::VersionsEnd)),
        false,
    );
}

#[test]
fn gaps_are_given_up_in_these_runs() {
    let runs = (0..10).map(|seed| run(&Setup::of(seed).varied(Variant::VersionsEnd)));
    let ends = runs.flat_map(|report| report.ends);
    let given_up = ends.filter(|end| end.end == "version_gap").count();
    assert!(given_up > 20, "{given_up} gaps were given up");
}

#[test]
fn seeds_pass_where_there_is_more_to_do_than_can_be_done() {
    pass_setups(
        (0..12).map(|seed| Setup::of(seed).varied(Variant::Rush)),
        false,
    );
}

#[test]
fn defects_of_classes_are_noticed() {
    notices(&[Defect::ClassesTurned]);
}

#[test]
fn seeds_pass_with_commits_that_nobody_hears_of() {
    pass_setups(
        (0..15).map(|seed| Setup::of(seed).varied(Variant::LostCommits)),
        true,
    );
}

#[test]
fn defects_of_versions_are_noticed() {
    notices(&[Defect::ForgetsVersions, Defect::ForgetsEarlier]);
}

#[test]
fn seeds_pass_with_messages_that_are_given_up() {
    pass_setups(
        (0..30).map(|seed| Setup::of(seed).varied(Variant::Drops)),
        true,
    );
    pass_setups(
        (30..50).map(|seed| Setup::of(seed).varied(Variant::Drops)),
        false,
    );
}

#[test]
fn messages_are_merged_and_shed_in_these_runs() {
    let ends = (0..10).flat_map(|seed| run(&Setup::of(seed).varied(Variant::Drops)).ends);
    let (mut merged, mut shed) = (BTreeSet::new(), BTreeSet::new());
    for end in ends {
        match end.end.as_str() {
            "merged" => merged.insert(end.role),
            "shed" => shed.insert(end.role),
            _ => false,
        };
    }
    assert!(merged.len() > 3, "merged in {merged:?}");
    assert!(shed.len() > 3, "shed in {shed:?}");
}

#[test]
fn defects_of_what_is_given_up_are_noticed() {
    notices(&[
        Defect::MergesUnrecorded,
        Defect::MergesIntoItself,
        Defect::ForgetsMerged,
        Defect::ShedsEarly,
        Defect::Store(memory::Defect::PausesForgotten),
    ]);
}

#[test]
fn defects_of_positions_are_noticed() {
    notices(&[Defect::AdvancesPastUnfinished, Defect::DropsBuffer]);
}

#[test]
fn defects_of_reading_are_noticed() {
    notices(&[
        Defect::Store(memory::Defect::CursorOnSequence),
        Defect::Store(memory::Defect::OrderByTransaction),
    ]);
}

#[test]
fn defects_of_retention_are_noticed() {
    notices(&[
        Defect::Store(memory::Defect::TidyIgnoresPositions),
        Defect::Store(memory::Defect::TidyForgetsByAge),
    ]);
}

#[test]
fn defects_of_lanes_and_leases_are_noticed() {
    notices(&[
        Defect::HandsOverEarly,
        Defect::ClaimsByOwnClock,
        Defect::Store(memory::Defect::NoFence),
    ]);
}

#[test]
fn defects_of_operators_actions_are_noticed() {
    notices(&[
        Defect::Store(memory::Defect::RevisionStands),
        Defect::Store(memory::Defect::ReleasedWithOldBudget),
        Defect::Store(memory::Defect::PausesCount),
    ]);
}

#[test]
fn defects_of_ages_are_noticed() {
    notices(&[
        Defect::AgeUnlimited,
        Defect::AgeCutShort,
        Defect::Store(memory::Defect::BacklogLooksYoung),
    ]);
}

#[test]
fn defects_of_outages_are_noticed() {
    notices(&[Defect::OutageCounts]);
}

#[test]
fn seeds_pass_with_outages() {
    let outages = |seeds: std::ops::Range<u64>| {
        seeds.map(|seed| {
            let mut setup = Setup::of(seed);
            setup.roles = vec![Role::Ship, Role::Carrier, Role::Mail];
            if !setup.has(Fault::Outage) {
                setup.faults.push(Fault::Outage);
            }
            setup
        })
    };
    pass_setups(outages(0..20), true);
    pass_setups(outages(20..30), false);
}

#[test]
fn defects_of_deferrals_are_noticed() {
    notices(&[
        Defect::ForgetsDeferrals,
        Defect::CountsTwice,
        Defect::RedeliveryCountLost,
        Defect::Store(memory::Defect::FirstTimeForgotten),
        Defect::Store(memory::Defect::HeldOverwrites),
        Defect::Store(memory::Defect::ClearIgnored),
        Defect::Store(memory::Defect::DeferralsUnordered),
    ]);
}

const LATER: [Fault; 4] = [Fault::Age, Fault::Operate, Fault::Replay, Fault::Outage];

#[test]
fn defects_of_what_stands_still_are_noticed() {
    notices(&[
        Defect::Store(memory::Defect::StillCounts),
        Defect::Store(memory::Defect::StillUncut),
        Defect::Store(memory::Defect::PausesOverlap),
    ]);
}

/// A seed before there were classes and small windows, and handlers that append before they fail.
fn as_it_was(seed: u64) -> Setup {
    Setup {
        classes: false,
        is_tight: false,
        is_early: false,
        ..Setup::of(seed)
    }
}

/// Runs that once found something wrong, the first of them when there were no operators: a position
/// kept past what another owner had to do, a key taken for free while it was loaded, work done again
/// after it was done, attempts forgotten.
#[test]
fn seeds_that_found_something_pass() {
    for seed in [
        4, 13, 14, 59, 76, 86, 98, 116, 129, 135, 161, 182, 223, 334, 377, 530, 538, 541,
    ] {
        // What came later would make them other runs.
        let mut setup = as_it_was(seed);
        setup.faults.retain(|fault| !LATER.contains(fault));
        pass_setups([setup.clone()].into_iter(), true);
        pass_setups([setup].into_iter(), false);
    }
    // There were no campaigns and no outages yet.
    let without_campaigns = |seed| {
        let mut setup = as_it_was(seed);
        let later = [Fault::Replay, Fault::Outage];
        setup.faults.retain(|fault| !later.contains(fault));
        setup
    };
    // A commit without an answer, and then a probe that fails.
    pass_setups([without_campaigns(7234)].into_iter(), true);
    // Another whose message had been deferred, when the ledger had forgotten it meanwhile.
    pass_setups([7345, 9033].map(without_campaigns).into_iter(), false);
    let mut unseen = without_campaigns(9033);
    unseen.coalesce = false;
    unseen.defect = Some(Defect::Store(memory::Defect::GoneUnseen));
    let violation = run(&unseen).violation.expect("it has a second effect");
    assert_eq!(violation.checker, "one-effect");
    // The last messages of a queue, which always fail, after an outage.
    pass_setups([119, 1047].into_iter().map(as_it_was), false);
    // A commit without an answer, of a message and of a case that came after it in its key.
    pass_setups([without_campaigns(2304)].into_iter(), true);
}

/// A gap was given up while what it waited for was queued behind it.
#[test]
fn a_gap_that_is_about_to_be_closed_is_not_given_up() {
    let mut setup = Setup::of(1840).varied(Variant::VersionsEnd);
    use Fault::{Absence, Clock, Crash, Handler, Pause, Producer};
    setup.faults = vec![Crash, Pause, Clock, Handler, Producer, Absence];
    pass_setups([setup].into_iter(), true);
}

/// An operator paused a subscription for a second time, by a clock that was set back before the end of
/// the first.
#[test]
fn time_that_was_paused_twice_counts_once() {
    let mut setup = Setup::of(1307)
        .without("early")
        .expect("it can be left out");
    let later = [Fault::Replay, Fault::Outage, Fault::Age];
    setup.faults.retain(|fault| !later.contains(fault));
    pass_setups([setup.clone()].into_iter(), false);
    setup.coalesce = false;
    setup.defect = Some(Defect::Store(memory::Defect::PausesOverlap));
    let violation = run(&setup).violation.expect("it counts twice");
    assert_eq!(violation.checker, "age");
}
