//! What time it is, movable in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onceward_core::Timestamp;

/// The clock that leases, due times, retention and `recorded_at` go by: the database's, or one
/// that a test moves by hand. Clones share it.
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
    pub fn manual(now: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(now.as_micros()))))
    }

    /// Moves a manual clock by `millis` milliseconds. Does nothing to the database's clock.
    pub fn advance_ms(&self, millis: i64) {
        if let Some(micros) = &self.0 {
            micros.fetch_add(millis.saturating_mul(1_000), Ordering::SeqCst);
        }
    }

    /// What statements take: `None` means the database's clock. In microseconds.
    pub(crate) fn micros(&self) -> Option<i64> {
        self.0.as_ref().map(|micros| micros.load(Ordering::SeqCst))
    }
}
