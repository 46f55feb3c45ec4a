//! Cases, read.

use std::collections::BTreeSet;

use onceward_core::store::{
    Case, CaseQuery, CasedQuery, Cases, HeldCase, HeldKeysQuery, StoreError,
};

use super::{MemoryStore, Operation};

/// Cases in a page where the query names no number.
const PAGE_ROWS: usize = 100;

impl Cases for MemoryStore {
    async fn cases(&self, query: CaseQuery<'_>) -> Result<Vec<Case>, StoreError> {
        self.enter(Operation::Cases).await?;
        let rows_max = match query.rows_max {
            0 => PAGE_ROWS,
            rows_max => rows_max as usize,
        };
        let state = self.shared.state();
        let after = state
            .tables
            .cases
            .range(query.after_case_id.saturating_add(1)..);
        let wanted = after.map(|(_, case)| case).filter(|case| {
            query
                .subscription
                .is_none_or(|name| name == case.subscription)
                && query.case_id.is_none_or(|id| id == case.case_id)
        });
        Ok(wanted.take(rows_max).cloned().collect())
    }

    async fn cased(&self, query: CasedQuery<'_>) -> Result<Vec<u64>, StoreError> {
        self.enter(Operation::Cases).await?;
        let state = self.shared.state();
        let cased = state.tables.cases.values().filter(|case| {
            case.subscription == query.subscription && query.seqs.contains(&case.row.seq)
        });
        Ok(cased.map(|case| case.row.seq).collect())
    }

    async fn held_cases(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldCase>, StoreError> {
        self.enter(Operation::Cases).await?;
        let (first, last) = query.slots;
        let state = self.shared.state();
        let holding = state.tables.cases.values().filter(|case| {
            case.holds_key
                && case.subscription == query.subscription
                && (first..=last).contains(&case.row.slot)
        });
        let keys: BTreeSet<(u16, &str)> = holding
            .map(|case| (case.row.slot, case.row.envelope.key()))
            .collect();
        let held = keys.into_iter().map(|(slot, key)| HeldCase {
            key: key.to_owned(),
            slot,
        });
        Ok(held.collect())
    }
}
