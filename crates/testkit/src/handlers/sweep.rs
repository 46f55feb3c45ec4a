//! A scenario under each fault in turn: whatever happens, it has to end the same.

use std::fmt::Debug;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use onceward::core::store::Store;

use super::fault::{Fault, Point};
use super::record::{Planned, Record};
use super::stage::Stage;
use crate::memory::MemoryStore;

/// Of the messages that a scenario appends, and of the times that a point is passed, so many are
/// struck, from the first.
const TIMES_MAX: u32 = 3;
/// How often a run is repeated whose fault could not strike: where a handler waits depends on how
/// fast the database answers.
const TRIES_MAX: u32 = 3;

/// One run of a scenario: it gives out stages on which the run's fault strikes.
#[derive(Clone, Debug)]
pub struct Trial {
    record: Arc<Record>,
}

impl Trial {
    /// A stage in memory; see [`Stage::memory`].
    pub async fn memory(&self) -> Stage<MemoryStore> {
        self.on(Stage::memory().await)
    }

    /// A stage on a SQLite file; see [`Stage::sqlite`].
    ///
    /// # Panics
    /// When the file cannot be made.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(&self) -> Stage<onceward::sqlite::Sqlite> {
        self.on(Stage::sqlite().await)
    }

    /// A stage on a PostgreSQL database; see [`Stage::postgres`].
    ///
    /// # Panics
    /// When there is no server.
    #[cfg(feature = "postgres")]
    pub async fn postgres(&self) -> Stage<onceward::postgres::Postgres> {
        self.on(Stage::postgres().await)
    }

    /// A stage that the scenario has made itself, on a store that is new in each run.
    #[must_use]
    pub fn on<S: Store>(&self, stage: Stage<S>) -> Stage<S> {
        stage.recorded_by(Arc::clone(&self.record))
    }
}

/// What [`assert_effect_once`] did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Swept {
    /// Each fault that struck, in words, with where.
    pub struck: Vec<String>,
    /// Faults that could not strike, because the scenario did not come by there again.
    pub missed: Vec<String>,
}

/// Runs a scenario once undisturbed, and then once for each fault at each point that it came by:
/// duplicates of its messages, crashes before, within and after each piece of user code and around
/// each commit, refused commits, lost answers. What the scenario returns has to be the same each
/// time, so it returns whatever must not happen twice, or less than once: rows that handlers
/// wrote, and what reached the outside.
///
/// A scenario makes everything anew: a stage from its [`Trial`], tables, receivers. Times and ids
/// that differ from run to run do not belong into what it returns.
///
/// # Panics
/// When a run ends otherwise than the undisturbed one, with each fault that made it so and what
/// happened then; when no handler ran; when a fault could not strike where the undisturbed run
/// came by.
pub async fn assert_effect_once<T: Debug + PartialEq>(scenario: impl AsyncFn(Trial) -> T) -> Swept {
    let undisturbed = Arc::<Record>::default();
    let trial = Trial {
        record: Arc::clone(&undisturbed),
    };
    let expected = scenario(trial).await;
    let plans = plans_of(&undisturbed);
    assert!(
        plans.iter().any(|planned| planned.place.is_some()),
        "no handler ran in the undisturbed run: the scenario has to take its stage from the trial, \
         subscribe, append and drain"
    );
    let mut swept = Swept {
        struck: Vec::new(),
        missed: Vec::new(),
    };
    let (mut wrong, mut unreached) = (Vec::new(), Vec::new());
    for planned in plans {
        let (ended, record) = run(&scenario, &planned).await;
        if record.state().struck.is_empty() {
            if planned.nth == 1 && !is_by_chance(&planned) {
                unreached.push(planned.to_string());
            }
            swept.missed.push(planned.to_string());
            continue;
        }
        swept.struck.push(planned.to_string());
        let how = match ended {
            Ok(result) if result == expected => continue,
            Ok(result) => format!("ended with {result:?}"),
            Err(text) => format!("panicked: {text}"),
        };
        let table = record.state().last_summary.clone();
        wrong.push(format!("when {planned}:\n  {how}\n{table}"));
    }
    assert!(
        wrong.is_empty(),
        "{} of {} faults change how the scenario ends. Undisturbed it ends with {expected:?}\n{}\
         Code of a handler may run again; only its work in the database is undone. What must not \
         be repeated goes through cx.tx(), or becomes a Call with a probe.",
        wrong.len(),
        swept.struck.len(),
        wrong.join("")
    );
    assert!(
        unreached.is_empty(),
        "the scenario does not repeat: it did not come by again where a fault was to strike: \
         {unreached:#?}"
    );
    swept
}

/// Whether a point is passed only if the database takes its time.
fn is_by_chance(planned: &Planned) -> bool {
    matches!(planned.fault, Fault::Crash(Point::Within(_)))
}

/// Every fault at every place of the undisturbed run.
fn plans_of(undisturbed: &Record) -> Vec<Planned> {
    let state = undisturbed.state();
    let mut plans = Vec::new();
    for nth in 1..=state.appended.min(TIMES_MAX) {
        for fault in [Fault::Duplicate, Fault::LateDuplicate] {
            plans.push(Planned {
                fault,
                place: None,
                nth,
            });
        }
    }
    for (place, times) in &state.passed {
        for nth in 1..=(*times).min(TIMES_MAX) {
            let more = match place.2 {
                Point::BeforeCommit => Some(Fault::CommitRefused),
                Point::AfterCommit => Some(Fault::CommitAnswerLost),
                _ => None,
            };
            for fault in [Some(Fault::Crash(place.2)), more].into_iter().flatten() {
                plans.push(Planned {
                    fault,
                    place: Some(place.clone()),
                    nth,
                });
            }
        }
    }
    plans
}

/// Runs the scenario under one fault.
async fn run<T>(
    scenario: &impl AsyncFn(Trial) -> T,
    planned: &Planned,
) -> (Result<T, String>, Arc<Record>) {
    let mut tries = 1;
    loop {
        let record = Arc::<Record>::default();
        record.plan(planned.clone());
        let trial = Trial {
            record: Arc::clone(&record),
        };
        let ended = unwound(scenario(trial)).await;
        let has_struck = !record.state().struck.is_empty();
        if has_struck || tries == TRIES_MAX {
            return (ended, record);
        }
        tries += 1;
    }
}

/// Runs a future, with a panic as an error.
async fn unwound<T>(running: impl Future<Output = T>) -> Result<T, String> {
    let mut running = pin!(running);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_else(|| "without a text".to_owned())))
            }
        },
    )
    .await
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fault, place, nth } = self;
        match place {
            Some((subscription, message_type, _)) => {
                write!(f, "{fault}, in {subscription} at {message_type}")?;
            }
            None => write!(f, "{fault}")?,
        }
        match nth {
            1 => Ok(()),
            nth => write!(f, ", the {nth}th time"),
        }
    }
}
