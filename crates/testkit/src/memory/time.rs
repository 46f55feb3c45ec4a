//! The database's clock.

use onceward_core::Timestamp;
use onceward_core::store::{StoreError, Time};

use super::connection::MemoryTx;
use super::{MemoryStore, Operation};

impl Time for MemoryStore {
    async fn time(&self, _: &mut MemoryTx) -> Result<Timestamp, StoreError> {
        self.enter(Operation::Known).await?;
        Ok(self.shared.clock.now())
    }
}
