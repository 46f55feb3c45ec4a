//! Sees what an engine does to a stage's messages, and lets planned faults strike.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::core::store::{StoreError, StoreErrorKind};
use onceward::{Boxed, Moment, Part, Sight, Witness};
use tokio::sync::Notify;

use super::fault::{Fault, Point, name_of};

/// Where something happens: the subscription, the type of the message, the point.
pub(super) type Place = (String, String, Point);

/// A fault that is to strike.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) fault: Fault,
    /// Only there; `None` is everywhere.
    pub(super) place: Option<Place>,
    /// At the so-manieth time that it could; 1 is the first.
    pub(super) nth: u32,
}

/// A line of what happened to a message.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) subscription: String,
    pub(super) message_id: String,
    pub(super) text: String,
    /// The attempt, where it is the start of a run of user code that may have an effect.
    pub(super) attempt: Option<u32>,
}

/// What a stage, or all stages of a trial, remember.
#[derive(Debug, Default)]
pub(super) struct Record {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    planned: Vec<Planned>,
    pub(super) struck: Vec<Planned>,
    pub(super) lines: Vec<Line>,
    /// How often each place was passed.
    pub(super) passed: BTreeMap<Place, u32>,
    /// Messages appended.
    pub(super) appended: u32,
    /// Grows with everything that happens.
    pub(super) moments: u64,
    /// Runs of user code under way.
    pub(super) running: u32,
    /// The table of the last drain, for failure texts.
    pub(super) last_summary: String,
}

impl Record {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn plan(&self, planned: Planned) {
        self.state().planned.push(planned);
    }

    /// A message is appended: which duplicates of it are wanted.
    pub(super) fn appended(&self) -> (bool, bool) {
        let mut state = self.state();
        state.appended += 1;
        let now = state.strikes(|fault| fault == Fault::Duplicate);
        let later = state.strikes(|fault| fault == Fault::LateDuplicate);
        (now.is_some(), later.is_some())
    }
}

impl State {
    /// Counts down what fits and takes out what is due.
    fn strikes(&mut self, fits: impl Fn(Fault) -> bool) -> Option<Fault> {
        self.strikes_at(|planned| fits(planned.fault))
    }

    fn strikes_at(&mut self, fits: impl Fn(&Planned) -> bool) -> Option<Fault> {
        for planned in self.planned.iter_mut().filter(|planned| fits(planned)) {
            planned.nth = planned.nth.saturating_sub(1);
        }
        let due = self.planned.iter().position(|planned| planned.nth == 0)?;
        let planned = self.planned.remove(due);
        self.struck.push(planned.clone());
        Some(planned.fault)
    }

    fn say(&mut self, sight: &Sight, text: &str, is_run: bool) {
        for (message, attempt) in &sight.messages {
            self.lines.push(Line {
                subscription: sight.subscription.clone(),
                message_id: message.envelope.id.clone(),
                text: text.to_owned(),
                attempt: is_run.then_some(*attempt),
            });
        }
    }

    fn see(&mut self, sight: &Sight) -> Option<Fault> {
        self.moments += 1;
        match &sight.moment {
            Moment::Starts(part) => {
                self.running += 1;
                let is_run = !matches!(part, Part::Probe | Part::Outcome);
                self.say(sight, &format!("{} runs", name_of(*part)), is_run);
            }
            Moment::Ended(part, failure) => {
                self.running = self.running.saturating_sub(1);
                if let Some(failure) = failure {
                    let text = format!("{} fails: {}", name_of(*part), failure.code);
                    self.say(sight, &text, false);
                }
            }
            Moment::Committed => self.say(sight, "committed", false),
            _ => {}
        }
        let point = Point::of(&sight.moment)?;
        let (first, _) = sight.messages.first()?;
        let message_type = first.envelope.message_type.clone();
        let place = (sight.subscription.clone(), message_type, point);
        *self.passed.entry(place.clone()).or_default() += 1;
        let struck = self.strikes_at(|planned| {
            let is_here = planned.place.as_ref().is_none_or(|at| *at == place);
            is_here && planned.fault.point() == Some(point)
        });
        if let Some(fault) = struck {
            self.say(sight, &fault.to_string().to_uppercase(), false);
        }
        struck
    }
}

/// One start of an engine. When it has died nothing of it is seen any more, and nothing of it goes
/// on.
pub(super) struct Process {
    pub(super) record: Arc<Record>,
    is_dead: AtomicBool,
    pub(super) died: Notify,
}

impl Process {
    pub(super) fn new(record: Arc<Record>) -> Arc<Self> {
        record.state().running = 0;
        Arc::new(Self {
            record,
            is_dead: AtomicBool::new(false),
            died: Notify::new(),
        })
    }

    fn see(&self, sight: &Sight) -> Option<Fault> {
        if self.is_dead.load(Ordering::SeqCst) {
            return None;
        }
        let struck = self.record.state().see(sight);
        if matches!(struck, Some(Fault::Crash(_))) {
            self.is_dead.store(true, Ordering::SeqCst);
            self.died.notify_one();
        }
        struck
    }
}

impl Witness for Process {
    fn at(&self, sight: Sight) -> Boxed<'_, Result<(), StoreError>> {
        let struck = self.see(&sight);
        Box::pin(async move {
            if self.is_dead.load(Ordering::SeqCst) {
                return pending().await;
            }
            let (kind, why) = match struck {
                Some(Fault::CommitRefused) => (StoreErrorKind::Conflict, "the test refused it"),
                Some(Fault::CommitAnswerLost) => {
                    (StoreErrorKind::CommitUnknown, "the test lost its answer")
                }
                _ => return Ok(()),
            };
            Err(StoreError::found(kind, "commit", why))
        })
    }
}
