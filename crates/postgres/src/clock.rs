//! Where the store's time comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onceward_core::Timestamp;

/// The database's clock, or one that a test moves by hand.
///
/// It decides leases, due times and retention. What the database stamps on its own
/// (`recorded_at`, `finished_at`) always follows the database.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The database's clock.
    #[must_use]
    pub const fn database() -> Self {
        Self(None)
    }

    /// A clock that stands at `now` until it is moved.
    #[must_use]
    pub fn fixed(now: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(now.as_micros()))))
    }

    /// Moves a fixed clock on by `by_ms` milliseconds; clones move together. Does nothing to the database's clock.
    pub fn advance_ms(&self, by_ms: u64) {
        if let Some(micros) = &self.0 {
            micros.fetch_add(
                i64::try_from(by_ms)
                    .unwrap_or(i64::MAX)
                    .saturating_mul(1000),
                Ordering::SeqCst,
            );
        }
    }

    /// Sets a fixed clock back by `by_ms` milliseconds, as clocks are now and then; clones move
    /// together. Does nothing to the database's clock.
    pub fn set_back_ms(&self, by_ms: u64) {
        if let Some(micros) = &self.0 {
            micros.fetch_sub(
                i64::try_from(by_ms)
                    .unwrap_or(i64::MAX)
                    .saturating_mul(1000),
                Ordering::SeqCst,
            );
        }
    }

    /// What statements take: `None` means the database's clock. In microseconds.
    pub(crate) fn now(&self) -> Option<i64> {
        self.0.as_ref().map(|micros| micros.load(Ordering::SeqCst))
    }
}
