//! The versions of aggregates in the ledger.

use onceward_core::Identity;
use onceward_core::store::{LastVersions, StoreError, Versions};
use onceward_core::version::VersionKey;

use super::connection::{MemoryError, MemoryTx};
use super::writes::{LedgerPlace, Recorded, Write};
use super::{Defect, MemoryStore, Operation};

impl Versions for MemoryStore {
    async fn last_versions(
        &self,
        tx: &mut MemoryTx,
        request: LastVersions<'_>,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        self.enter(Operation::Known).await?;
        let is_operation = request.identity == Identity::Operation;
        let connection = &tx.connection;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let own: Vec<(LedgerPlace, Recorded)> = state
            .tx(connection.number, now)
            .map_err(|kind| MemoryError::Ended(kind).into_store_error(Operation::Known))?
            .writes
            .iter()
            .filter_map(|write| match write {
                Write::Record(place, recorded) => Some((place.clone(), recorded.clone())),
                _ => None,
            })
            .collect();
        let of = |key: &VersionKey| {
            let own = own.iter().map(|(place, recorded)| (place, recorded));
            let rows = state.tables.ledger.iter().chain(own);
            let of_key = rows.filter(|(place, recorded)| {
                let entry = &recorded.entry;
                place.is_operation == is_operation
                    && place.subscription == request.subscription
                    && entry.aggregate.as_ref() == Some(&key.aggregate)
                    && place.key.source == key.source
                    && place.key.generation == key.generation
            });
            let versions = of_key.filter_map(|(_, recorded)| {
                let version = recorded.entry.aggregate_version?;
                Some((recorded.at, version))
            });
            if self.shared.has(Defect::LastRecordedVersion) {
                return versions.max().map(|(_, version)| version);
            }
            versions.map(|(_, version)| version).max()
        };
        Ok(request.keys.iter().map(of).collect())
    }
}
