//! What time it is, movable in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onceward_core::Timestamp;

/// The clock that leases, due times and retention go by.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The database's.
    #[default]
    Database,
    /// A time that moves only when told to; clones share it.
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still at `at`.
    #[must_use]
    pub fn fixed(at: Timestamp) -> Self {
        Self::Fixed(Arc::new(AtomicI64::new(at.as_micros())))
    }

    /// Moves a fixed clock on, in milliseconds. The database's clock cannot be moved.
    pub fn advance_ms(&self, by_ms: u64) {
        if let Self::Fixed(micros) = self {
            let by = i64::try_from(by_ms)
                .unwrap_or(i64::MAX)
                .saturating_mul(1_000);
            micros.fetch_add(by, Ordering::SeqCst);
        }
    }

    pub(crate) fn micros(&self) -> Option<i64> {
        match self {
            Self::Database => None,
            Self::Fixed(micros) => Some(micros.load(Ordering::SeqCst)),
        }
    }
}
