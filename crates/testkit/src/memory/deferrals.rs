//! Deferred messages, read.

use std::collections::BTreeMap;

use onceward_core::store::{
    Deferrals, DeferredRow, HeldKey, HeldKeysQuery, LoadKey, StoreError, StoreErrorKind,
};
use onceward_core::version::is_same;

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
        let case_of = |deferred: &Deferred| {
            let mut cases = state.tables.cases.values();
            cases.find(|case| {
                case.subscription == request.subscription && case.row.seq == deferred.seq
            })
        };
        let row_of = |deferred: &Deferred| {
            let case = case_of(deferred);
            let row = state.tables.log.get(&deferred.seq);
            let row = match self.shared.has(Defect::CopyForgotten) {
                true => row,
                false => row.or_else(|| case.map(|case| &case.row)),
            };
            row.cloned().ok_or_else(|| {
                let found = format!("row {} of a deferral is not in the log", deferred.seq);
                let action = Operation::Deferrals.action();
                StoreError::found(StoreErrorKind::Other, action, found)
            })
        };
        let versions_to = request
            .versions_to
            .filter(|_| !self.shared.has(Defect::VersionsNotAsked));
        let is_wanted = |deferred: &Deferred| {
            versions_to.is_none_or(|(of, to)| {
                row_of(deferred).is_ok_and(|row| {
                    is_same(&row.envelope, &of.envelope)
                        && row.envelope.aggregate_version <= Some(to)
                })
            })
        };
        let mut found: Vec<&Deferred> = state
            .tables
            .deferrals
            .iter()
            .filter(|((subscription, seq), deferred)| {
                subscription == request.subscription
                    && *seq > request.after_seq
                    && deferred.slot == request.slot
                    && deferred.key == request.key
                    && is_wanted(deferred)
            })
            .map(|(_, deferred)| deferred)
            .collect();
        if self.shared.has(Defect::DeferralsUnordered) {
            found.sort_by_key(|deferred| deferred.written);
        }
        let rows = found.into_iter().take(request.rows_max as usize);
        rows.map(|deferred| {
            let row = row_of(deferred)?;
            let case = case_of(deferred);
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
