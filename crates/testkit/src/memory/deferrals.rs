//! Deferred messages, read.

use std::collections::BTreeMap;

use onceward_core::store::{
    Deferrals, DeferredRow, HeldKey, HeldKeysQuery, LoadKey, StoreError, StoreErrorKind,
};

use super::writes::Deferred;
use super::{Defect, MemoryStore, Operation};

impl Deferrals for MemoryStore {
    async fn held_keys(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldKey>, StoreError> {
        self.enter(Operation::Deferrals).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        let (first, last) = query.slots;
        // Deferrals are walked by sequence, so a key's first is the one it is made from.
        let mut keys: BTreeMap<(u16, &str), HeldKey> = BTreeMap::new();
        for ((subscription, _), deferred) in &state.tables.deferrals {
            if subscription != query.subscription || !(first..=last).contains(&deferred.slot) {
                continue;
            }
            keys.entry((deferred.slot, &deferred.key))
                .or_insert_with(|| HeldKey {
                    key: deferred.key.clone(),
                    slot: deferred.slot,
                    count: 0,
                    due_in_ms: deferred.key_due_in_ms(now),
                })
                .count += 1;
        }
        Ok(keys.into_values().collect())
    }

    async fn load_key(&self, request: LoadKey<'_>) -> Result<Vec<DeferredRow>, StoreError> {
        self.enter(Operation::Deferrals).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        let mut found: Vec<&Deferred> = state
            .tables
            .deferrals
            .iter()
            .filter(|((subscription, seq), deferred)| {
                subscription == request.subscription
                    && *seq > request.after_seq
                    && deferred.slot == request.slot
                    && deferred.key == request.key
            })
            .map(|(_, deferred)| deferred)
            .collect();
        if self.shared.has(Defect::DeferralsUnordered) {
            found.sort_by_key(|deferred| deferred.written);
        }
        let rows = found.into_iter().take(request.rows_max as usize);
        rows.map(|deferred| {
            let row = state.tables.log.get(&deferred.seq).cloned();
            let row = row.ok_or_else(|| {
                let found = format!("row {} of a deferral is not in the log", deferred.seq);
                let action = Operation::Deferrals.action();
                StoreError::found(StoreErrorKind::Other, action, found)
            })?;
            Ok(DeferredRow {
                row,
                kind: deferred.kind,
                due_in_ms: deferred.due_in_ms(now),
                spent: deferred.spent(now),
                failure: deferred.failure.clone(),
            })
        })
        .collect()
    }
}
