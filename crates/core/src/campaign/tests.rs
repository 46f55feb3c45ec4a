use std::collections::VecDeque;

use super::*;
use crate::case::CaseState;
use crate::contract::{Order, Semantics};
use crate::store::{DeferralKind, Terms};

const BY: Actor<'_> = Actor {
    who: "ada",
    why: Some("the carrier is back"),
};

fn at(ms: i64) -> Timestamp {
    Timestamp::default().plus_millis(ms)
}

fn in_state(state: CampaignState) -> CampaignStanding {
    CampaignStanding {
        state,
        ..CampaignStanding::default()
    }
}

fn ramping(pacing: &Pacing) -> CampaignStanding {
    CampaignStanding {
        state: CampaignState::Ramping,
        ramping_since: Some(at(-i64::try_from(pacing.ramp_ms).unwrap())),
        paced_to: Some(at(0)),
        ..CampaignStanding::default()
    }
}

#[test]
fn an_action_is_possible_in_its_states_only() {
    let actions = [
        CampaignAction::Start { approved_by: None },
        CampaignAction::Pause,
        CampaignAction::Resume,
        CampaignAction::Verify,
        CampaignAction::Stop,
    ];
    for state in CampaignState::ALL {
        let possible = actions.map(|action| act(action, BY, &in_state(state), "bo", at(0)).is_ok());
        let expected = match state {
            CampaignState::Planned => [true, false, false, false, true],
            CampaignState::Canary | CampaignState::Ramping => [false, true, false, false, true],
            CampaignState::Verifying => [false, true, false, true, true],
            CampaignState::Paused => [false, false, true, false, true],
            CampaignState::Stopped | CampaignState::Done => [false; 5],
        };
        assert_eq!(possible, expected, "{state:?}");
    }
}

#[test]
fn nobody_approves_what_they_planned_and_a_stop_says_why() {
    let own = CampaignAction::Start {
        approved_by: Some("ada"),
    };
    let planned = CampaignStanding::default();
    assert_eq!(
        act(own, BY, &planned, "ada", at(0)),
        Err(Refusal::OwnApproval)
    );
    assert!(act(own, BY, &planned, "bo", at(0)).is_ok());
    let silent = Actor { why: None, ..BY };
    let stopped = act(CampaignAction::Stop, silent, &planned, "ada", at(0));
    assert_eq!(stopped, Err(Refusal::ReasonMissing));
}

#[test]
fn the_canary_goes_first_and_alone() {
    let pacing = Pacing {
        canary: 3,
        ..Pacing::default()
    };
    let standing = in_state(CampaignState::Canary);
    let mut counts = Counts {
        left: 100,
        ..Counts::default()
    };
    let step = standing.advance(&pacing, &counts, at(0));
    assert_eq!(
        (step.start, step.standing.state),
        (3, CampaignState::Canary)
    );
    counts.left = 97;
    counts.running = 3;
    let step = standing.advance(&pacing, &counts, at(60_000));
    assert_eq!(
        (step.start, step.standing.state),
        (0, CampaignState::Canary)
    );
    counts.running = 0;
    counts.done = 3;
    let step = standing.advance(&pacing, &counts, at(60_000));
    assert_eq!(
        (step.start, step.standing.state),
        (0, CampaignState::Ramping)
    );
    let by_person = Pacing {
        verification: Verification::Person,
        ..pacing
    };
    let step = standing.advance(&by_person, &counts, at(60_000));
    assert_eq!(step.standing.state, CampaignState::Verifying);
    assert_eq!(step.wait_ms, None);
}

#[test]
fn a_share_of_failures_as_large_as_said_stops_it_and_a_smaller_one_does_not() {
    let pacing = |canary, percent| Pacing {
        canary,
        stop_at_percent: percent,
        ..Pacing::default()
    };
    for (canary, failed, percent, expected) in [
        (5, 1, 10, CampaignState::Stopped),
        (5, 1, 20, CampaignState::Stopped),
        (5, 1, 21, CampaignState::Canary),
        (10, 1, 10, CampaignState::Stopped),
        (11, 1, 10, CampaignState::Canary),
        (5, 0, 0, CampaignState::Canary),
        (5, 1, 0, CampaignState::Stopped),
        (5, 4, 100, CampaignState::Canary),
        (5, 5, 100, CampaignState::Stopped),
    ] {
        let counts = Counts {
            left: 95,
            running: u64::from(canary) - failed,
            failed,
            ..Counts::default()
        };
        let pacing = pacing(canary, percent);
        let step = in_state(CampaignState::Canary).advance(&pacing, &counts, at(0));
        let stands = (step.start, step.standing.state);
        assert_eq!(stands, (0, expected), "{failed} of {canary} at {percent} %");
    }
}

#[test]
fn what_waits_for_a_person_counts_as_failed() {
    let counts = Counts {
        left: 95,
        running: 5,
        waiting: 1,
        ..Counts::default()
    };
    let step = in_state(CampaignState::Canary).advance(&Pacing::default(), &counts, at(0));
    assert_eq!(step.standing.state, CampaignState::Stopped);
    let why = step.standing.stopped_by.unwrap();
    assert!(why.starts_with("1 of 5 item(s)"), "{why}");
}

#[test]
fn the_rate_holds_over_any_steps() {
    let pacing = Pacing {
        rate_per_s: 50,
        in_flight_max: u32::MAX,
        ..Pacing::default()
    };
    for every_ms in [1, 7, 100, 333, 1_000, 1_999] {
        let mut standing = ramping(&pacing);
        let mut counts = Counts {
            left: 1_000_000,
            ..Counts::default()
        };
        let mut started = 0;
        for step in 1..=60_000 / every_ms {
            let step = standing.advance(&pacing, &counts, at(step * every_ms));
            standing = step.standing;
            started += step.start;
            counts.left -= step.start;
            counts.done += step.start;
        }
        assert!(
            (2_900..=3_000).contains(&started),
            "{started} at {every_ms} ms"
        );
    }
}

#[test]
fn a_pause_and_a_clock_set_back_save_up_nothing() {
    let pacing = Pacing::default();
    let counts = Counts {
        left: 1_000,
        done: 10,
        ..Counts::default()
    };
    let late = ramping(&pacing).advance(&pacing, &counts, at(3_600_000));
    assert_eq!(late.start, 20, "two seconds of ten a second");
    let back = ramping(&pacing).advance(&pacing, &counts, at(-3_600_000));
    assert_eq!(back.start, 0);
    let again = back.standing.advance(&pacing, &counts, at(-3_599_000));
    assert!(again.start > 0, "goes on from there");
    let paused = act(CampaignAction::Pause, BY, &ramping(&pacing), "bo", at(10)).unwrap();
    let resumed = act(CampaignAction::Resume, BY, &paused, "bo", at(9_010)).unwrap();
    assert_eq!(resumed.state, CampaignState::Ramping);
    assert_eq!(resumed.advance(&pacing, &counts, at(9_010)).start, 0);
    assert_eq!(
        resumed.ramping_since,
        ramping(&pacing)
            .ramping_since
            .map(|at| at.plus_millis(9_000))
    );
}

#[test]
fn it_begins_slowly() {
    let pacing = Pacing {
        rate_per_s: 100,
        ramp_ms: 60_000,
        ..Pacing::default()
    };
    let counts = Counts {
        left: 100_000,
        done: 10,
        ..Counts::default()
    };
    let rate_at = |since_ms: i64| {
        let standing = CampaignStanding {
            ramping_since: Some(at(-since_ms)),
            paced_to: Some(at(-1_000)),
            ..in_state(CampaignState::Ramping)
        };
        standing.advance(&pacing, &counts, at(0)).start
    };
    assert_eq!([0, 30_000, 60_000].map(rate_at), [10, 55, 100]);
}

#[test]
fn what_went_out_is_done_when_nothing_has_it() {
    let now = |deferral, case| ItemNow {
        deferral,
        case,
        is_behind_case: false,
    };
    assert_eq!(outcome(&now(None, None)), Some(ItemState::Done));
    assert_eq!(outcome(&now(Some(DeferralKind::Retry), None)), None);
    for case in CaseState::ALL {
        let expected = match case {
            CaseState::Replayed => ItemState::Done,
            _ => ItemState::Failed,
        };
        assert_eq!(outcome(&now(None, Some(case))), Some(expected), "{case:?}");
        assert_eq!(outcome(&now(Some(DeferralKind::Held), Some(case))), None);
    }
    assert!(now(Some(DeferralKind::Operator), None).is_waiting());
    assert!(!now(Some(DeferralKind::Retry), None).is_waiting());
}

#[test]
fn the_weightiest_finding_counts() {
    let terms = Terms::default();
    let case = Facts {
        is_case: true,
        is_type_taken: true,
        is_there: true,
        age_ms: 5_000,
        ..Facts::default()
    };
    let of = |kind, facts: Facts, accept: &[Finding]| {
        let verdict = preflight(kind, &terms, 10_000, &facts, accept);
        (verdict.finding, verdict.goes_out)
    };
    let resend = |facts| of(CampaignKind::Resend, facts, &[]);
    let rerun = |facts| of(CampaignKind::Rerun, facts, &[]);
    assert_eq!(resend(case), (None, true));
    let row = Facts {
        is_case: false,
        ..case
    };
    assert_eq!(resend(row), (Some(Finding::NotDone), false));
    assert_eq!(rerun(row), (None, true));
    let old = Facts {
        age_ms: 10_001,
        ..row
    };
    assert_eq!(resend(old), (Some(Finding::Forgotten), false));
    assert_eq!(rerun(old), (None, true));
    let known = Facts {
        is_known: true,
        is_overtaken: true,
        ..old
    };
    assert_eq!(resend(known), (Some(Finding::DoneAlready), true));
    assert_eq!(rerun(known), (Some(Finding::Overtaken), false));
    let in_campaign = Facts {
        is_in_campaign: true,
        is_deferred: true,
        ..known
    };
    let accept_all = of(CampaignKind::Rerun, in_campaign, &Finding::ALL);
    assert_eq!(accept_all, (Some(Finding::InCampaign), false));
}

#[test]
fn what_no_ledger_records_is_told_to_be_delivered_again() {
    let terms = Terms {
        semantics: Semantics::AtLeastOnce,
        ..Terms::default()
    };
    let row = Facts {
        is_type_taken: true,
        is_there: true,
        ..Facts::default()
    };
    let of = |kind, facts: Facts| {
        let verdict = preflight(kind, &terms, 1, &facts, &[]);
        (verdict.finding, verdict.goes_out)
    };
    let resend = |facts| of(CampaignKind::Resend, facts);
    assert_eq!(resend(row), (Some(Finding::DeliveredAgain), true));
    let case = Facts {
        is_case: true,
        ..row
    };
    assert_eq!(resend(case), (None, true), "it was not delivered");
    let rejected = Facts {
        is_known: true,
        ..row
    };
    assert_eq!(resend(rejected), (None, true));
    assert_eq!(of(CampaignKind::Rerun, row), (None, true), "it is meant");
}

#[test]
fn accepting_one_finding_accepts_no_other() {
    let both = Facts {
        is_type_taken: true,
        is_there: true,
        is_overtaken: true,
        ..Facts::default()
    };
    let of = |accept: &[Finding]| {
        let verdict = preflight(CampaignKind::Resend, &Terms::default(), 1, &both, accept);
        (verdict.finding, verdict.goes_out)
    };
    assert_eq!(of(&[Finding::NotDone]), (Some(Finding::Overtaken), false));
    let accepted = of(&[Finding::Overtaken, Finding::NotDone]);
    assert_eq!(accepted, (Some(Finding::NotDone), true));
}

#[test]
fn without_a_ledger_or_an_order_there_is_less_to_find() {
    let terms = Terms {
        semantics: Semantics::AtLeastOnce,
        order: Order::None,
        ..Terms::default()
    };
    let facts = Facts {
        is_type_taken: true,
        is_there: true,
        is_overtaken: true,
        age_ms: u64::MAX,
        ..Facts::default()
    };
    let verdict = preflight(CampaignKind::Resend, &terms, 1, &facts, &[]);
    let expected = (Some(Finding::DeliveredAgain), true);
    assert_eq!((verdict.finding, verdict.goes_out), expected);
}

/// A small generator of its own: the crate draws no random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Random campaigns with random people: whatever happens, the canary is alone, the bounds hold, the
/// failures stop it in time, and what is not stopped ends.
#[test]
fn whatever_happens_the_bounds_hold_and_it_ends() {
    for seed in 1..=2_000_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let pacing = Pacing {
            canary: 1 + dice.below(8) as u32,
            rate_per_s: 1 + dice.below(200) as u32,
            ramp_ms: dice.below(20_000),
            in_flight_max: 1 + dice.below(50) as u32,
            stop_at_percent: dice.below(101) as u8,
            verification: match dice.below(2) {
                0 => Verification::Outcome,
                _ => Verification::Person,
            },
        };
        let fails_percent = dice.below(40);
        let mut counts = Counts {
            left: 1 + dice.below(400),
            ..Counts::default()
        };
        let total = counts.total();
        let start = CampaignAction::Start { approved_by: None };
        let mut standing = act(start, BY, &CampaignStanding::default(), "bo", at(0)).unwrap();
        let (mut now, mut out) = (0, VecDeque::new());
        let mut is_verified = false;
        for _ in 0..100_000 {
            now += 1 + dice.below(1_500) as i64;
            if dice.below(10) == 0 && !standing.state.is_over() {
                let action = match (standing.state, dice.below(20)) {
                    (CampaignState::Paused, _) => CampaignAction::Resume,
                    (_, 0) => CampaignAction::Stop,
                    _ => CampaignAction::Pause,
                };
                standing = act(action, BY, &standing, "bo", at(now)).unwrap();
            }
            if standing.state == CampaignState::Verifying {
                is_verified = true;
                standing = act(CampaignAction::Verify, BY, &standing, "bo", at(now)).unwrap();
            }
            for _ in 0..dice.below(out.len() as u64 + 1) {
                let failed: bool = out.pop_front().unwrap();
                counts.running -= 1;
                counts.done += u64::from(!failed);
                counts.failed += u64::from(failed);
            }
            let step = standing.advance(&pacing, &counts, at(now));
            let was = standing.state;
            standing = step.standing;
            assert!(step.start <= counts.left, "seed {seed}");
            let goes_out = matches!(was, CampaignState::Canary | CampaignState::Ramping);
            assert!(goes_out || step.start == 0, "seed {seed}: {was:?}");
            counts.left -= step.start;
            counts.running += step.start;
            out.extend((0..step.start).map(|_| dice.below(100) < fails_percent));
            assert!(
                counts.running <= u64::from(pacing.in_flight_max),
                "seed {seed}"
            );
            assert_eq!(counts.total(), total, "seed {seed}");
            if was == CampaignState::Canary {
                assert!(counts.started() <= u64::from(pacing.canary), "seed {seed}");
            }
            if was == CampaignState::Ramping && pacing.verification == Verification::Person {
                assert!(is_verified, "seed {seed}: nobody said so");
            }
            let outcomes = (counts.done + counts.failed).max(10);
            let stop_at = outcomes * u64::from(pacing.stop_at_percent);
            let is_failing = counts.failed > 0 && counts.failed * 100 >= stop_at;
            if was == CampaignState::Ramping {
                assert!(
                    !is_failing || standing.state.is_over(),
                    "seed {seed}: {counts:?}"
                );
            }
            if standing.state.is_over() && counts.running == 0 {
                break;
            }
        }
        assert!(
            standing.state.is_over(),
            "seed {seed}: {standing:?} {counts:?}"
        );
        if standing.state == CampaignState::Done {
            assert_eq!(counts.left + counts.running, 0, "seed {seed}");
        }
    }
}
