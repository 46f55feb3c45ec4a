//! Leaves a busy file alone for a moment now and then, so that other programs get their turn.
//!
//! SQLite's own wait for a lock is a series of sleeps, up to 100 ms each, with one try in between
//! (`sqliteDefaultBusyCallback`). Beside processes that write without a break such a try hits a
//! gap only by luck, and a program with the usual timeout of 5 s may see "database is locked". So
//! all stores on a machine keep still in the same short window of the machine's clock, longer than
//! the longest sleep, whenever the file was busy most of the time before.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PERIOD: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_millis(110);

/// Busy this long of a period is busy most of the time.
const BUSY_MOST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Fairness(Mutex<Load>);

/// How long the file was seen locked, by us or by others, in the current period.
#[derive(Default)]
struct Load {
    period: u128,
    busy: Duration,
    was_busy: bool,
}

/// Counts its own life as time in which the file was locked.
pub(crate) struct Locked {
    fairness: Arc<Fairness>,
    since: Instant,
}

impl Load {
    fn enter(&mut self, now: Duration) {
        let period = now.as_millis() / PERIOD.as_millis();
        if period != self.period {
            // A period that was left out altogether was not busy.
            self.was_busy = period == self.period + 1 && self.busy >= BUSY_MOST;
            self.busy = Duration::ZERO;
            self.period = period;
        }
    }

    fn note(&mut self, now: Duration, busy: Duration) {
        self.enter(now);
        self.busy += busy;
    }

    /// What is left of the window; zero outside it, and while the file is not busy.
    fn rest(&mut self, now: Duration) -> Duration {
        self.enter(now);
        let into_ms = now.as_millis() % PERIOD.as_millis();
        let into = Duration::from_millis(u64::try_from(into_ms).unwrap_or(u64::MAX));
        if self.was_busy {
            WINDOW.saturating_sub(into)
        } else {
            Duration::ZERO
        }
    }
}

/// By the clock that all processes of the machine share.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

impl Fairness {
    /// How long to keep still before the next transaction.
    pub(crate) fn rest(&self) -> Duration {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        load.rest(now())
    }

    pub(crate) fn locked(self: &Arc<Self>) -> Locked {
        Locked {
            fairness: self.clone(),
            since: Instant::now(),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut load = self
            .fairness
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        load.note(now(), self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(1_000_000 + ms)
    }

    #[test]
    fn a_busy_file_is_left_alone_at_the_start_of_the_next_period() {
        let mut load = Load::default();
        for i in 0..15 {
            load.note(at(i * 100), Duration::from_millis(90));
        }
        assert_eq!(load.rest(at(1_999)), Duration::ZERO, "not before");
        assert_eq!(load.rest(at(2_000)), WINDOW);
        assert_eq!(load.rest(at(2_070)), Duration::from_millis(40));
        assert_eq!(load.rest(at(2_110)), Duration::ZERO);
        assert_eq!(load.rest(at(4_000)), Duration::ZERO, "it was quiet since");
    }

    #[test]
    fn a_file_with_gaps_is_not() {
        let mut load = Load::default();
        for i in 0..19 {
            load.note(at(i * 100), Duration::from_millis(50));
        }
        assert_eq!(load.rest(at(2_000)), Duration::ZERO);
    }

    #[test]
    fn what_was_busy_long_ago_does_not_count() {
        let mut load = Load::default();
        load.note(at(1_900), Duration::from_millis(1_900));
        assert_eq!(load.rest(at(6_000)), Duration::ZERO);
    }
}
