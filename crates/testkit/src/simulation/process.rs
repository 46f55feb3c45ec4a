//! A simulated process: it may die between any two steps, and what it had open stays open or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::fault::Fault;
use super::history::Event;
use super::world::World;

/// One start of one process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) world: Arc<World>,
    /// How far its clock is off, in milliseconds.
    pub(super) skew_ms: i64,
    /// Only processes that run engines die.
    is_mortal: bool,
    is_dead: AtomicBool,
    is_stopping: AtomicBool,
    is_stopped: AtomicBool,
    /// The database notices its death so many milliseconds late.
    lingers_ms: AtomicU64,
    died: Notify,
    told_to_stop: Notify,
}

impl Process {
    pub(super) fn new(name: String, world: Arc<World>, skew_ms: i64, is_mortal: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            world,
            skew_ms,
            is_mortal,
            is_dead: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            lingers_ms: AtomicU64::new(0),
            died: Notify::new(),
            told_to_stop: Notify::new(),
        })
    }

    pub(super) fn say(&self, event: Event) {
        self.world.say(&self.name, event);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    pub(super) fn stopped(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.say(Event::Stopped);
        self.died.notify_one();
    }

    pub(super) fn stop(&self) {
        if !self.is_stopping.swap(true, Ordering::SeqCst) {
            self.say(Event::Stopping);
            self.told_to_stop.notify_one();
        }
    }

    pub(super) async fn until_told_to_stop(&self) {
        self.told_to_stop.notified().await;
    }

    /// It dies now: nothing of it reaches the database or anybody else any more.
    pub(super) fn die(&self, why: &'static str) {
        if !self.is_mortal || self.is_dead.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.world.setup.has(Fault::Linger) && self.world.chance(2) {
            let lingers_ms = 1 + self.world.random(2 * self.world.setup.lease_ms);
            self.lingers_ms.store(lingers_ms, Ordering::SeqCst);
        }
        self.say(Event::Died(why));
        self.died.notify_one();
    }

    /// Until when what it had open stays open.
    pub(super) fn lingers_until_ms(&self) -> Option<u64> {
        let lingers_ms = self.lingers_ms.load(Ordering::SeqCst);
        (self.is_dead() && lingers_ms > 0).then(|| self.world.at_ms() + lingers_ms)
    }

    /// Ends when it has died or stopped.
    pub(super) async fn ended(&self) {
        self.died.notified().await;
    }

    /// A step that takes time; the dead take none.
    pub(super) async fn step(&self, ms: u64) {
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        self.if_alive().await;
    }

    pub(super) async fn if_alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }
}
