//! Deferred messages, read.

use std::collections::BTreeMap;

use onceward_core::store::{
    Case, Deferrals, DeferredRow, HeldKey, HeldKeysQuery, LoadKey, StoreError, StoreErrorKind,
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
            let is_its = |case: &&Case| {
                case.subscription == request.subscription && case.row.seq == deferred.seq
            };
            let case = state.tables.cases.values().find(is_its);
            let row = state.tables.log.get(&deferred.seq);
            let row = match self.shared.has(Defect::CopyForgotten) {
                true => row,
                false => row.or_else(|| case.map(|case| &case.row)),
            };
            let row = row.cloned().ok_or_else(|| {
                let found = format!("row {} of a deferral is not in the log", deferred.seq);
                let action = Operation::Deferrals.action();
                StoreError::found(StoreErrorKind::Other, action, found)
            })?;
            let correction = case.and_then(|case| case.correction.as_ref());
            let correction = correction.filter(|_| !self.shared.has(Defect::CorrectionForgotten));
            Ok(DeferredRow {
                row: correction.map_or_else(|| row.clone(), |correction| correction.of(&row)),
                kind: deferred.kind,
                due_in_ms: deferred.due_in_ms(now),
                spent: state.tables.spent(request.subscription, deferred, now),
                failure: deferred.failure.clone(),
                generation: match self.shared.has(Defect::GenerationForgotten) {
                    true => 0,
                    false => state
                        .campaigns
                        .generation(request.subscription, deferred.seq),
                },
            })
        })
        .collect()
    }
}
