//! Trying again what the store could not do just now.

use std::time::Duration;

use onceward_core::store::{StoreError, StoreErrorKind};

/// Shortest and longest pause before something is tried again, in milliseconds. Up to as much again
/// is added at random, so that a fleet does not come back all at once.
const MIN_MS: u64 = 50;
const MAX_MS: u64 = 2_000;

/// Doubles from one try to the next.
pub(super) struct Pause {
    ms: u64,
}

impl Default for Pause {
    fn default() -> Self {
        Self { ms: MIN_MS }
    }
}

impl Pause {
    pub(super) async fn pass(&mut self) {
        let jitter_ms = fastrand::u64(..=self.ms);
        tokio::time::sleep(Duration::from_millis(self.ms + jitter_ms)).await;
        self.ms = (self.ms * 2).min(MAX_MS);
    }
}

/// Tries until it succeeds or cannot any more.
pub(super) async fn again<T, F>(
    what: &'static str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = Pause::default();
    loop {
        match attempt().await {
            Err(error) if error.kind().is_passing() => {
                warn(&error, what);
                pause.pass().await;
            }
            Err(error) => {
                if error.kind() != StoreErrorKind::Fenced {
                    warn(&error, what);
                }
                return Err(error);
            }
            done => return done,
        }
    }
}

pub(super) fn warn(error: &StoreError, what: &'static str) {
    tracing::warn!(
        error = error as &(dyn std::error::Error + 'static),
        what,
        "trying again"
    );
}
