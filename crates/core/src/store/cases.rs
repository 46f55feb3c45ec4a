//! Quarantine: cases with a copy of their message.

use std::future::Future;

use super::StoreError;
use crate::case::{CaseState, Correction, Standing};
use crate::envelope::Row;
use crate::failure::FailureRecord;
use crate::retry::Spent;
use crate::timestamp::Timestamp;

/// A case to open. The message is copied, so that the log may forget it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCase {
    /// The message.
    pub row: Row,
    /// What it waits behind in its subscription, see
    /// [`Order::key_of`](crate::contract::Order::key_of).
    pub key: String,
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
    /// What has taken its place, if it was corrected.
    pub correction: Option<Correction>,
    /// What it waits behind in its subscription.
    pub key: String,
    /// Why it is here.
    pub reason: String,
    /// The last failure.
    pub failure: FailureRecord,
    /// What was used of the budget.
    pub spent: Spent,
    /// Where it stands, and who is responsible.
    pub standing: Standing,
    /// What cases of the same cause have in common.
    pub fingerprint: String,
    /// Whether later messages of the key wait while it is live.
    pub holds_key: bool,
    /// When it was opened first.
    pub first_opened_at: Timestamp,
    /// When it was opened last.
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
    /// Only in one of these states; empty means any.
    pub states: &'a [CaseState],
    /// Only with this owner.
    pub owner: Option<&'a str>,
    /// Only of this cause.
    pub fingerprint: Option<&'a str>,
    /// Only of messages of this type.
    pub message_type: Option<&'a str>,
    /// Only of messages of this key.
    pub key: Option<&'a str>,
    /// Only opened last at this moment or later.
    pub opened_from: Option<Timestamp>,
    /// Only opened last before this moment.
    pub opened_before: Option<Timestamp>,
    /// Only case numbers above this.
    pub after_case_id: i64,
    /// Most cases to return; 0 means 100.
    pub rows_max: u32,
}

/// A key that a live case holds.
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

/// Cases, read. They are opened by [`settle`](super::Effects::settle), and people act on them by
/// [`Operate`](super::Operate).
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

    /// Keys that live cases hold, in a range of slots.
    fn held_cases(
        &self,
        query: super::HeldKeysQuery<'_>,
    ) -> impl Future<Output = Result<Vec<HeldCase>, StoreError>> + Send;
}
