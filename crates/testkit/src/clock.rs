//! A clock that moves only when a test moves it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use onceward_core::Timestamp;

/// A clock that stands still until it is moved. Clones share the time.
#[derive(Clone, Debug)]
pub struct SimClock {
    micros: Arc<AtomicI64>,
    waiting: Arc<Mutex<Vec<Waker>>>,
}

impl SimClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self {
            micros: Arc::new(AtomicI64::new(now.as_micros())),
            waiting: Arc::default(),
        }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    /// Moves it forward by `by_ms` milliseconds.
    pub fn advance_ms(&self, by_ms: u64) {
        let by_ms = i64::try_from(by_ms).unwrap_or(i64::MAX);
        self.set(self.now().plus_millis(by_ms));
    }

    /// Sets it, also backwards, as clocks do.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes whoever waits for this clock or for what a store signals through it.
    pub(crate) fn wake_all(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for waker in waiting.drain(..) {
            waker.wake();
        }
    }

    /// Asks to be woken at the next move.
    pub(crate) fn wake_me(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

/// Noon of 2026-01-01: any fixed moment would do.
impl Default for SimClock {
    fn default() -> Self {
        Self::at(Timestamp::from_micros(1_767_268_800_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_time() {
        let clock = SimClock::default();
        let other = clock.clone();
        clock.advance_ms(1_500);
        assert_eq!(other.now().millis_since(SimClock::default().now()), 1_500);
        other.set(Timestamp::from_micros(5));
        assert_eq!(clock.now(), Timestamp::from_micros(5));
    }
}
