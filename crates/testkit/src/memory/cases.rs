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
                && is_as_asked(&query, case)
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
                && case.standing.state.is_live()
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

fn is_as_asked(query: &CaseQuery<'_>, case: &Case) -> bool {
    let (standing, envelope) = (&case.standing, &case.row.envelope);
    let is = |asked: Option<&str>, has: &str| asked.is_none_or(|asked| asked == has);
    (query.states.is_empty() || query.states.contains(&standing.state))
        && (query.owner.is_none() || query.owner == standing.owner.as_deref())
        && is(query.fingerprint, &case.fingerprint)
        && is(query.message_type, &envelope.message_type)
        && is(query.key, envelope.key())
        && query.opened_from.is_none_or(|from| case.opened_at >= from)
        && query
            .opened_before
            .is_none_or(|before| case.opened_at < before)
}
