//! Before a lane is read, and rows of it that an earlier owner may have read.

use std::sync::Arc;

use onceward_core::store::{
    CaseQuery, CasedQuery, HeldCase, HeldKey, HeldKeysQuery, Store, StoreError, TakenLane,
};
use onceward_core::{Position, Row};

/// What was found of a lane before its first row is read.
pub(super) struct LookedUp {
    pub(super) taken: TakenLane,
    /// The operators' revision that was known before.
    pub(super) revision: u64,
    pub(super) held: Vec<HeldKey>,
    pub(super) cases: Vec<HeldCase>,
    /// The end of the log, where there are cases: earlier owners have made none of later rows.
    pub(super) cases_to: Option<Position>,
}

/// Looks up what is deferred and held in a lane that was taken.
pub(super) async fn look_up<S: Store>(
    store: &S,
    query: HeldKeysQuery<'_>,
    taken: &TakenLane,
    revision: u64,
) -> Result<LookedUp, StoreError> {
    let any_case = CaseQuery {
        subscription: Some(query.subscription),
        rows_max: 1,
        ..CaseQuery::default()
    };
    let (held, cases) = held_and_cases(store, query).await?;
    let has_cases = !store.cases(any_case).await?.is_empty();
    Ok(LookedUp {
        taken: taken.clone(),
        revision,
        held,
        cases,
        cases_to: if has_cases {
            Some(store.head().await?)
        } else {
            None
        },
    })
}

/// What is deferred and held in a lane. Cases first: one that is released meanwhile is then seen as
/// held, and not as gone without its message.
pub(super) async fn held_and_cases<S: Store>(
    store: &S,
    query: HeldKeysQuery<'_>,
) -> Result<(Vec<HeldKey>, Vec<HeldCase>), StoreError> {
    let cases = store.held_cases(query.clone()).await?;
    let held = store.held_keys(query).await?;
    Ok((held, cases))
}

/// Takes rows out that have a case, if any of them was there when the lane was taken.
pub(super) async fn leave_cases_out<S: Store>(
    store: &S,
    subscription: &str,
    cases_to: &Position,
    rows: &mut Vec<Arc<Row>>,
) -> Result<(), StoreError> {
    let end = &cases_to.after;
    // A row of an era that is over has a transaction of no meaning here, but its sequence has one.
    let was_there = |row: &Arc<Row>| row.seq <= end.floor || end.sees(row.xid);
    if !rows.iter().any(was_there) {
        return Ok(());
    }
    let seqs: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    let cased = store
        .cased(CasedQuery {
            subscription,
            seqs: &seqs,
        })
        .await?;
    rows.retain(|row| !cased.contains(&row.seq));
    Ok(())
}
