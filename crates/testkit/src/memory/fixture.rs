//! The memory store as a fixture of the suite.

use onceward_core::store::{Schema, StoreError};

use super::{Defect, MemoryStore};
use crate::clock::SimClock;
use crate::suite::{Capabilities, Fixture};

/// A migrated store in memory.
#[derive(Debug)]
pub struct MemoryFixture {
    store: MemoryStore,
}

impl MemoryFixture {
    /// A store without a defect.
    ///
    /// # Errors
    /// Never but by a planned fault.
    pub async fn new() -> Result<Self, StoreError> {
        Self::of(MemoryStore::default()).await
    }

    /// A store that is wrong in one way.
    ///
    /// # Errors
    /// Never but by a planned fault.
    pub async fn with_defect(defect: Defect) -> Result<Self, StoreError> {
        Self::of(MemoryStore::with_defect(SimClock::default(), defect)).await
    }

    async fn of(store: MemoryStore) -> Result<Self, StoreError> {
        store.migrate().await?;
        Ok(Self { store })
    }
}

impl Fixture for MemoryFixture {
    type Store = MemoryStore;

    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn store(&self) -> &MemoryStore {
        &self.store
    }

    async fn second(&self) -> MemoryStore {
        self.store.reopen()
    }

    fn advance_ms(&self, by_ms: u64) {
        self.store.clock().advance_ms(by_ms);
    }

    fn set_back_ms(&self, by_ms: u64) {
        let clock = self.store.clock();
        let by_ms = i64::try_from(by_ms).unwrap_or(i64::MAX);
        clock.set(clock.now().plus_millis(-by_ms));
    }
}
