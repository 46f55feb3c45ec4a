//! Quarantine: cases with a copy of their message.

use std::future::Future;

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::envelope::Row;
use crate::failure::FailureRecord;
use crate::retry::Spent;
use crate::timestamp::Timestamp;

/// Where a case stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CaseState {
    /// Nobody has done anything yet.
    Open,
}

impl CaseState {
    /// The name used in tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
        }
    }
}

/// A case to open. The message is copied, so that the log may forget it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCase {
    /// The message.
    pub row: Row,
    /// Why: the failure's class and code, or the budget's end over the last failure.
    pub reason: String,
    /// The last failure.
    pub failure: FailureRecord,
    /// What was used of the budget.
    pub spent: Spent,
    /// Later messages of the key wait for this case.
    pub holds_key: bool,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Case number.
    pub case_id: i64,
    /// Subscription.
    pub subscription: String,
    /// The message as it was.
    pub row: Row,
    /// Why it is here.
    pub reason: String,
    /// The last failure.
    pub failure: FailureRecord,
    /// What was used of the budget.
    pub spent: Spent,
    /// Where it stands.
    pub state: CaseState,
    /// Whether later messages of the key wait.
    pub holds_key: bool,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When the message was first deferred in this subscription, if it was.
    pub first_deferred_at: Option<Timestamp>,
}

/// Which cases to list, newest last, paged by case number.
#[derive(Clone, Debug, Default)]
pub struct CaseQuery<'a> {
    /// Only of this subscription.
    pub subscription: Option<&'a str>,
    /// Only this case.
    pub case_id: Option<i64>,
    /// Only case numbers above this.
    pub after_case_id: i64,
    /// Most cases to return; 0 means 100.
    pub rows_max: u32,
}

/// A key that an open case holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCase {
    /// The key.
    pub key: String,
    /// Its slot.
    pub slot: u16,
}

/// Asks which messages have a case already.
#[derive(Clone, Debug)]
pub struct CasedQuery<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Sequences to look for.
    pub seqs: &'a [u64],
}

/// Cases, read. They are opened by [`settle`](super::Effects::settle).
pub trait Cases: Clone + Send + Sync + 'static {
    /// Cases by number.
    fn cases(
        &self,
        query: CaseQuery<'_>,
    ) -> impl Future<Output = Result<Vec<Case>, StoreError>> + Send;

    /// Which of some messages have a case, whatever its state. Asked while the log is read again
    /// after a crash: what was quarantined is not tried again.
    fn cased(
        &self,
        query: CasedQuery<'_>,
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Keys that open cases hold, in a range of slots.
    fn held_cases(
        &self,
        query: super::HeldKeysQuery<'_>,
    ) -> impl Future<Output = Result<Vec<HeldCase>, StoreError>> + Send;
}
