//! Cases beyond their retention: told and never removed.

use onceward_core::Timestamp;
use onceward_core::store::{CaseQuery, Cases, StoreError};
use serde::Serialize;

/// That there are cases beyond their retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OldCases {
    /// The one with the lowest number.
    pub oldest_case_id: i64,
    /// When it was opened last.
    pub opened_at: Timestamp,
    /// The retention, in milliseconds.
    pub retention_ms: u64,
}

impl OldCases {
    /// Looks for cases, over or not, that were opened last before the retention began.
    ///
    /// # Errors
    /// Of the store.
    pub async fn find<S: Cases>(
        store: &S,
        retention_ms: u64,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let ms = i64::try_from(retention_ms).unwrap_or(i64::MAX);
        let query = CaseQuery {
            opened_before: Some(now.plus_millis(ms.saturating_neg())),
            rows_max: 1,
            ..CaseQuery::default()
        };
        let oldest = store.cases(query).await?.pop();
        Ok(oldest.map(|case| Self {
            oldest_case_id: case.case_id,
            opened_at: case.opened_at,
            retention_ms,
        }))
    }
}
