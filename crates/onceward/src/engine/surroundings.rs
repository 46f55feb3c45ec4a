//! What an engine takes from the process around it.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use uuid::Uuid;

use super::witness::Witness;
use crate::outbox::bell;

/// What an engine takes from the process around it: names for its incarnations, and the doorbell
/// that says that something was committed. Simulations give an engine surroundings of its own, so
/// that several of them in one process are as far apart as processes are, and runs repeat.
#[derive(Clone)]
pub struct Surroundings {
    new_member: Arc<dyn Fn() -> String + Send + Sync>,
    bell: watch::Sender<u64>,
    witness: Option<Arc<dyn Witness>>,
}

impl Surroundings {
    /// Surroundings shared with nobody. `new_member` gives a member id that was never given out
    /// before each time it is called.
    pub fn apart(new_member: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self {
            new_member: Arc::new(new_member),
            bell: watch::Sender::new(0),
            witness: None,
        }
    }

    /// Lets a witness see each moment of every attempt.
    #[must_use]
    pub fn watched_by(mut self, witness: Arc<dyn Witness>) -> Self {
        self.witness = Some(witness);
        self
    }

    pub(super) fn witness(&self) -> Option<&dyn Witness> {
        self.witness.as_deref()
    }

    pub(super) fn new_member(&self) -> String {
        (self.new_member)()
    }

    /// Rings the doorbell: something was committed.
    pub fn ring(&self) {
        self.bell
            .send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }
}

/// Those of the process: UUIDs version 7, and the doorbell that every outbox rings.
impl Default for Surroundings {
    fn default() -> Self {
        Self {
            new_member: Arc::new(|| Uuid::now_v7().to_string()),
            bell: bell(),
            witness: None,
        }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}
