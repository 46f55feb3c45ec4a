//! The database's clock.

use onceward_core::Timestamp;
use onceward_core::shed::Paused;
use onceward_core::store::{Pauses, StoreError, Time};

use super::connection::MemoryTx;
use super::{Defect, MemoryStore, Operation};

impl Time for MemoryStore {
    async fn time(&self, _: &mut MemoryTx) -> Result<Timestamp, StoreError> {
        self.enter(Operation::Known).await?;
        Ok(self.shared.clock.now())
    }

    async fn pauses(
        &self,
        _: &mut MemoryTx,
        request: Pauses<'_>,
    ) -> Result<Vec<Paused>, StoreError> {
        self.enter(Operation::Known).await?;
        let state = self.shared.state();
        if self.shared.has(Defect::PausesForgotten) {
            return Ok(Vec::new());
        }
        let pauses = state.tables.pauses.iter().filter(|pause| {
            pause.subscription == request.subscription
                && pause.still.is_none()
                && pause.to.is_none_or(|to| to > request.since)
        });
        let pauses = pauses.map(|pause| Paused {
            from: pause.from,
            to: pause.to,
        });
        Ok(pauses.collect())
    }
}
