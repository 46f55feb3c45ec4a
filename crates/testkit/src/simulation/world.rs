//! What all simulated processes share: time, randomness, the history, the other side of calls.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use onceward_core::Timestamp;

use super::defect::Remembered;
use super::history::{Event, Step, What};
use super::setup::{Role, Setup};
use crate::clock::SimClock;
use crate::memory::{Change, MemoryTx};

/// The world around the processes.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) clock: SimClock,
    at_ms: AtomicU64,
    is_calm: AtomicBool,
    rng: Mutex<Rng>,
    history: Mutex<History>,
    runs: Mutex<Runs>,
    bookings: Mutex<BTreeMap<String, u64>>,
    /// Transactions of dead processes that the database has not noticed yet, until when.
    graveyard: Mutex<Vec<(u64, MemoryTx)>>,
    current: Mutex<String>,
    /// The database's clock, also while something is judged by another.
    now: Mutex<Timestamp>,
    pub(super) remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct History {
    steps: Vec<Step>,
    taken: usize,
    hasher: DefaultHasher,
}

#[derive(Debug, Default)]
struct Runs {
    last: u64,
    by_message: BTreeMap<(Role, u64), u32>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(super) fn new(setup: Setup, clock: SimClock) -> Arc<Self> {
        Arc::new(Self {
            rng: Mutex::new(Rng::with_seed(setup.seed)),
            setup,
            now: Mutex::new(clock.now()),
            clock,
            at_ms: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
            history: Mutex::default(),
            runs: Mutex::default(),
            bookings: Mutex::default(),
            graveyard: Mutex::default(),
            current: Mutex::new("-".to_owned()),
            remembered: Mutex::default(),
        })
    }

    pub(super) fn at_ms(&self) -> u64 {
        self.at_ms.load(Ordering::SeqCst)
    }

    pub(super) fn set_at_ms(&self, at_ms: u64) {
        self.at_ms.store(at_ms, Ordering::SeqCst);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    pub(super) fn calm_down(&self) {
        self.is_calm.store(true, Ordering::SeqCst);
        self.say("-", Event::Calm);
    }

    /// Whether the other side of calls and deliveries is away.
    pub(super) fn is_away(&self) -> bool {
        let outage = self.setup.outage_ms();
        outage.is_some_and(|outage| outage.contains(&self.at_ms()))
    }

    /// A number below `below`.
    pub(super) fn random(&self, below: u64) -> u64 {
        lock(&self.rng).u64(..below.max(1))
    }

    /// True once in `one_in` times.
    pub(super) fn chance(&self, one_in: u64) -> bool {
        self.random(one_in) == 0
    }

    pub(super) fn set_clock(&self, now: Timestamp) {
        *lock(&self.now) = now;
        self.clock.set(now);
    }

    /// Who is running now, for the database's own steps.
    pub(super) fn set_current(&self, name: &str) {
        name.clone_into(&mut lock(&self.current));
    }

    pub(super) fn say(&self, process: &str, event: Event) {
        self.step(process.to_owned(), self.clock.now(), What::Outside(event));
    }

    pub(super) fn changed(&self, change: Change) {
        let process = lock(&self.current).clone();
        let now = *lock(&self.now);
        self.step(process, now, What::Database(change));
    }

    fn step(&self, process: String, now: Timestamp, what: What) {
        let step = Step {
            at_ms: self.at_ms(),
            now,
            process,
            what,
        };
        let mut history = lock(&self.history);
        step.mix_into(&mut history.hasher);
        history.steps.push(step);
    }

    /// Steps that were not taken before.
    pub(super) fn news(&self) -> Vec<Step> {
        let mut history = lock(&self.history);
        let from = history.taken;
        history.taken = history.steps.len();
        history.steps[from..].to_vec()
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        lock(&self.history).steps.clone()
    }

    pub(super) fn hash(&self) -> u64 {
        lock(&self.history).hasher.finish()
    }

    /// Counts a run of a message: number of the run, and how often the message ran before.
    pub(super) fn run(&self, role: Role, number: u64) -> (u64, u32) {
        let mut runs = lock(&self.runs);
        runs.last += 1;
        let run = runs.last;
        let before = runs.by_message.entry((role, number)).or_default();
        *before += 1;
        (run, *before - 1)
    }

    /// The carrier does its work: the booking, the same one for the same key.
    pub(super) fn book(&self, operation: &str) -> u64 {
        let mut bookings = lock(&self.bookings);
        let next = bookings.len() as u64 + 1;
        *bookings.entry(operation.to_owned()).or_insert(next)
    }

    pub(super) fn booking(&self, operation: &str) -> Option<u64> {
        lock(&self.bookings).get(operation).copied()
    }

    pub(super) fn bury(&self, until_ms: u64, tx: MemoryTx) {
        lock(&self.graveyard).push((until_ms, tx));
    }

    /// The database notices who is dead.
    pub(super) fn notice_the_dead(&self) {
        let now_ms = self.at_ms();
        let gone: Vec<_> = lock(&self.graveyard)
            .extract_if(.., |(until_ms, _)| *until_ms <= now_ms)
            .collect();
        drop(gone);
    }
}
