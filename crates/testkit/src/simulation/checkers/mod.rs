//! What has to hold, whatever happens. Everything here is computed from the steps of a run and
//! from what the scenario says; nothing of the engine is used.
//!
//! | checker | what it says |
//! |---|---|
//! | `start` | no engine refuses to start, but for trouble of the database that passes |
//! | `one-effect` | one effect per ledger key, committed together with its record |
//! | `follow-ups` | what a handler appends comes with its effect, once |
//! | `key-order` | effects of a key come in the order of its messages |
//! | `versions` | no version after a later one, nor over a gap where gaps wait; no gap given up early, or while what it lacks is there |
//! | `budget` | attempts are counted one by one and never exceed the budget |
//! | `position` | no position is past work that is stored nowhere else |
//! | `fence` | nobody commits for a lane that is not theirs |
//! | `lease` | a lane is taken from a live owner only when its lease is over |
//! | `age` | ages count from the first deferral |
//! | `retention` | nothing is removed that is still needed |
//! | `outage` | that nobody was there burns no attempt and ends no message |
//! | `outside` | no call outside without a probe after an end that nobody knows |
//! | `shares` | where there is more to do than can be done, each class and each tenant is started at least as often as its share says |
//! | `dropped` | what is given up may be: merged into a later one of its key that is not over, or late; and it does not run any more |
//! | `final-state` | every message ends in one state, the one that its handler's conduct calls for |
//! | `liveness` | everything is finished within a bound once faults stop |

mod dropped;
mod ends;
mod facts;
mod follow_ups;
mod groups;
mod order;
mod outage;
mod rules;
mod shares;

use std::fmt;

use facts::Facts;

use super::history::Step;
use super::setup::Setup;

pub use ends::EndState;

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker says so.
    pub checker: &'static str,
    /// What happened.
    pub message: String,
    /// Number of the step, where it was one.
    pub step: Option<usize>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.message)?;
        match self.step {
            Some(step) => write!(f, " (step {step})"),
            None => Ok(()),
        }
    }
}

/// What a checker says; nothing when all is well.
type Found = Result<(), (&'static str, String)>;

/// All checkers over one run.
#[derive(Debug)]
pub(super) struct Checks {
    facts: Facts,
    outside: rules::Outside,
    outage: outage::Outage,
    shares: shares::Shares,
    steps: usize,
    /// Whether all was finished, until something happens that could change it.
    is_finished: Option<bool>,
}

impl Checks {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            facts: Facts::new(setup),
            outside: rules::Outside::default(),
            outage: outage::Outage::default(),
            shares: shares::Shares::default(),
            steps: 0,
            is_finished: None,
        }
    }

    /// Checks further steps; the first violation, if there is one.
    pub(super) fn see(&mut self, steps: &[Step]) -> Option<Violation> {
        for step in steps {
            let found = rules::before(&self.facts, step)
                .and_then(|()| order::before(&self.facts, step))
                .and_then(|()| follow_ups::before(&self.facts, step))
                .and_then(|()| dropped::before(&self.facts, step))
                .and_then(|()| self.outside.see(&self.facts, step))
                .and_then(|()| self.outage.see(&self.facts, step))
                .and_then(|()| self.shares.see(&self.facts, step));
            self.facts.learn(step);
            if ends::may_change_with(step) {
                self.is_finished = None;
            }
            let found = found.and_then(|()| rules::after(&self.facts, step));
            if let Err((checker, message)) = found {
                return Some(Violation {
                    checker,
                    message,
                    step: Some(self.steps),
                });
            }
            self.steps += 1;
        }
        None
    }

    /// Whether every message has come to an end, or waits for a person.
    pub(super) fn is_finished(&mut self) -> bool {
        let facts = &self.facts;
        *self
            .is_finished
            .get_or_insert_with(|| ends::unfinished(facts).next().is_none())
    }

    /// What is wrong with the end.
    pub(super) fn end(&self) -> Option<Violation> {
        ends::check(&self.facts).err().map(violation)
    }

    /// How each message ended.
    pub(super) fn ends(&self) -> Vec<EndState> {
        ends::of(&self.facts)
    }

    /// The bound is over and something is not finished.
    pub(super) fn is_late(&self) -> Violation {
        let unfinished: Vec<String> = ends::unfinished(&self.facts).collect();
        let text = format!("not finished: {}", unfinished.join(", "));
        violation(("liveness", text))
    }
}

fn violation((checker, message): (&'static str, String)) -> Violation {
    Violation {
        checker,
        message,
        step: None,
    }
}
