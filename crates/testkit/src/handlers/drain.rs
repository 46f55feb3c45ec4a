//! Runs a stage until nothing is left to be done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::core::store::{BacklogQuery, HeldKeysQuery, Store, StoreError};
use onceward::{Engine, EngineOptions, Running, Surroundings};

use super::record::Process;
use super::stage::Stage;
use super::summary::Summary;

/// Length of a lease on the stage's clock; as much passes when a process dies.
const LEASE_MS: u64 = 30_000;
/// Between looks at the store.
const LOOK: Duration = Duration::from_millis(4);
/// An engine in which nothing happens for so long, with work left, is started anew: it may pause
/// after trouble for longer than a test wants to wait. Each time in vain it is given twice as long:
/// on a busy machine an engine may take that long to start.
const STANDSTILL_MIN: Duration = Duration::from_millis(200);
const STANDSTILL_MAX: Duration = Duration::from_secs(10);
/// How long an engine may take to stop.
const GRACE: Duration = Duration::from_secs(10);
/// All slots.
const SLOTS: (u16, u16) = (0, u16::MAX);

/// How a stage stands.
enum Now {
    Busy,
    /// Nothing can be done now; something can after this many milliseconds.
    Idle(Option<u64>),
}

impl<S: Store> Stage<S> {
    /// Runs the subscriptions until nothing is left to be done, or only what waits for a person or
    /// behind a case. Delays are not waited for: the store's clock is moved to where the next
    /// message is due.
    ///
    /// # Panics
    /// When that takes longer than the stage's [`patience`](Self::patience), or than its
    /// [`horizon`](Self::horizon) on the store's clock; the text shows what is stuck.
    pub async fn drain(&mut self) -> Summary {
        let deadline = std::time::Instant::now() + self.patience;
        let horizon_ms = u64::try_from(self.horizon.as_millis()).unwrap_or(u64::MAX);
        let passed_max_ms = self.passed_ms.saturating_add(horizon_ms);
        loop {
            match self.run_until_idle(deadline).await {
                Some(due_in_ms) if self.passed_ms.saturating_add(due_in_ms) > passed_max_ms => {
                    let why = format!("it goes on for more than {:?} on its clock", self.horizon);
                    self.give_up(&why).await;
                }
                Some(due_in_ms) => self.pass_ms(due_in_ms),
                None => match self.late.pop() {
                    Some(envelope) => self.write(&envelope).await,
                    None => return self.summary().await,
                },
            }
        }
    }

    /// Runs what is due now, and leaves what is due later.
    ///
    /// # Panics
    /// When that takes longer than the stage's [`patience`](Self::patience); the text shows what
    /// is stuck.
    pub async fn run_due(&mut self) -> Summary {
        let deadline = std::time::Instant::now() + self.patience;
        self.run_until_idle(deadline).await;
        self.summary().await
    }

    /// Runs until nothing is due; returns when the next is.
    async fn run_until_idle(&mut self, deadline: std::time::Instant) -> Option<u64> {
        assert!(
            !self.subscriptions.is_empty(),
            "the stage has no subscription: nothing would run"
        );
        let mut standstill = STANDSTILL_MIN;
        loop {
            let process = Process::new(Arc::clone(&self.record));
            let seen = self.record.state().moments;
            let engine = self.start(&process).await;
            match self.watch(&process, deadline, standstill).await {
                Watched::Died => {
                    drop(engine);
                    // Its tasks are gone when the runtime has come round.
                    tokio::task::yield_now().await;
                    self.pass_ms(LEASE_MS + 1);
                }
                Watched::StandsStill => {
                    engine.shutdown(GRACE).await;
                    standstill = match self.record.state().moments == seen {
                        true => (standstill * 2).clamp(STANDSTILL_MIN, STANDSTILL_MAX),
                        false => STANDSTILL_MIN,
                    };
                }
                Watched::Idle(next) => {
                    engine.shutdown(GRACE).await;
                    return next;
                }
                Watched::Late => {
                    let trouble = engine.state().trouble;
                    drop(engine);
                    let why = match trouble {
                        Some(trouble) => format!("{:?} are over; {trouble}", self.patience),
                        None => format!("{:?} are over", self.patience),
                    };
                    self.give_up(&why).await;
                }
            }
        }
    }

    async fn give_up(&self, why: &str) -> ! {
        let mut stuck = self.summary().await;
        stuck.messages.retain(|m| m.end.is_open());
        panic!(
            "the stage does not come to rest ({why}). What is stuck:\n{}",
            match stuck.messages.is_empty() {
                true => "  nothing that the store knows of\n".to_owned(),
                false => stuck.to_string(),
            }
        );
    }

    async fn start(&self, process: &Arc<Process>) -> Running<S> {
        static STARTS: AtomicU64 = AtomicU64::new(0);
        let starts = STARTS.fetch_add(1, Ordering::Relaxed);
        let joins = AtomicU64::new(0);
        let surroundings = Surroundings::apart(move || {
            let join = joins.fetch_add(1, Ordering::Relaxed);
            format!("stage-{}-{starts}-{join}", std::process::id())
        });
        let mut engine = Engine::builder(self.store.clone())
            .surroundings(surroundings.watched_by(Arc::clone(process) as _))
            .options(EngineOptions {
                lease_ms: LEASE_MS,
                renew_ms: 20,
                doze_max_ms: 5,
                alert_for_ms: 40,
                retention: None,
                held_every_ms: None,
                throttle_every_ms: onceward::THROTTLE_EVERY_MS,
                description: "a test's stage".to_owned(),
            });
        for subscription in &self.subscriptions {
            engine = engine.subscribe(subscription.clone());
        }
        let started = engine.start().await;
        started.unwrap_or_else(|error| panic!("the stage's engine does not start: {error}"))
    }

    async fn watch(
        &self,
        process: &Process,
        deadline: std::time::Instant,
        standstill: Duration,
    ) -> Watched {
        let mut idle_at = None;
        let (mut moments, mut moved) = (0, tokio::time::Instant::now());
        loop {
            tokio::select! {
                biased;
                () = process.died.notified() => return Watched::Died,
                () = tokio::time::sleep(LOOK) => {}
            }
            let (seen, running) = {
                let state = self.record.state();
                (state.moments, state.running)
            };
            if seen != moments {
                (moments, moved) = (seen, tokio::time::Instant::now());
            }
            if std::time::Instant::now() > deadline {
                return Watched::Late;
            }
            let now = match running {
                0 => self.look().await,
                _ => Ok(Now::Busy),
            };
            match now {
                // Two looks without anything between them: a look asks several questions.
                Ok(Now::Idle(next)) if idle_at == Some(seen) => return Watched::Idle(next),
                Ok(Now::Idle(_)) => idle_at = Some(seen),
                Ok(Now::Busy) | Err(_) => idle_at = None,
            }
            if running == 0 && moved.elapsed() > standstill {
                return Watched::StandsStill;
            }
        }
    }

    async fn look(&self) -> Result<Now, StoreError> {
        let mut next = None::<u64>;
        for name in self.names() {
            let query = BacklogQuery {
                subscription: &name,
                count_max: 1,
                before: None,
            };
            let backlog = self.store.backlog(query).await?;
            if backlog.waiting > 0 || backlog.deferred.running > 0 {
                return Ok(Now::Busy);
            }
            let query = HeldKeysQuery {
                subscription: &name,
                slots: SLOTS,
            };
            let cases = self.store.held_cases(query.clone()).await?;
            let held: BTreeSet<String> = cases.into_iter().map(|case| case.key).collect();
            for key in self.store.held_keys(query).await? {
                match key.due_in_ms {
                    _ if held.contains(&key.key) => {}
                    Some(0) => return Ok(Now::Busy),
                    Some(due) => next = Some(next.map_or(due, |earlier| earlier.min(due))),
                    None => {}
                }
            }
        }
        Ok(Now::Idle(next))
    }
}

/// Why watching an engine ended.
enum Watched {
    Died,
    StandsStill,
    Idle(Option<u64>),
    Late,
}
