//! What operators do: with cases, with messages that wait for a person, with a subscription.
//!
//! Each action is one transaction, which checks the state that it expects, changes it, adds a row
//! to the audit log and, where it changes what may run, raises the subscription's revision. Whoever
//! works on the subscription sees the new revision in its next
//! [`survey`](super::Lanes::survey) and looks again.

use std::future::Future;

use serde::Serialize;

use super::StoreError;
use crate::case::{Actor, CaseAction, CaseState, Refusal, Standing};
use crate::failure::Class;
use crate::rate::RateLimit;
use crate::timestamp::Timestamp;

/// Acts on a case.
#[derive(Clone, Copy, Debug)]
pub struct ActOnCase<'a> {
    /// Which.
    pub case_id: i64,
    /// What to do.
    pub action: CaseAction<'a>,
    /// The state in which the actor saw it; found in another one, it is left alone. `None` takes
    /// any in which the action is possible.
    pub expected: Option<CaseState>,
    /// Who, and why.
    pub by: Actor<'a>,
}

/// Tries messages again that wait for a person.
#[derive(Clone, Copy, Debug)]
pub struct ResumeDeferred<'a> {
    /// Of this subscription.
    pub subscription: &'a str,
    /// Only those of this key.
    pub key: Option<&'a str>,
    /// Who, and why.
    pub by: Actor<'a>,
}

/// Pauses a subscription, which needs a reason, or ends its pause.
#[derive(Clone, Copy, Debug)]
pub struct SetPause<'a> {
    /// Which.
    pub subscription: &'a str,
    /// What it shall be.
    pub is_paused: bool,
    /// Who, and why.
    pub by: Actor<'a>,
}

impl SetPause<'_> {
    /// The name used in the audit log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        if self.is_paused { "pause" } else { "resume" }
    }

    /// Whether it can be done where the subscription is paused or not.
    ///
    /// # Errors
    /// When there is nothing to change, or no reason for a pause.
    pub fn check(&self, is_paused: bool) -> Result<(), Refusal> {
        match self.is_paused {
            true => self.by.check_reason()?,
            false => self.by.check()?,
        }
        if self.is_paused != is_paused {
            return Ok(());
        }
        let now = if is_paused { "paused" } else { "not paused" };
        Err(Refusal::Moved { now })
    }
}

/// What operators limit of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Batches that may run at once in one process; what is declared holds where it is less.
    pub concurrency_max: Option<u16>,
    /// Messages that may start per second in all processes together.
    pub rate: Option<RateLimit>,
}

impl Limits {
    /// As the audit log has them.
    #[must_use]
    pub fn account(&self) -> String {
        serde_json::json!({
            "concurrency_max": self.concurrency_max,
            "per_second": self.rate.map(|rate| rate.per_second),
            "burst": self.rate.map(|rate| rate.burst),
        })
        .to_string()
    }
}

/// Limits how much of a subscription runs at once or starts per second, which needs a reason, or
/// ends such limits. What is not named stays; where nothing is named, all limits end.
#[derive(Clone, Copy, Debug)]
pub struct SetLimit<'a> {
    /// Which.
    pub subscription: &'a str,
    /// Batches that may run at once in one process.
    pub concurrency_max: Option<u16>,
    /// Messages that may start per second in all processes together. With 0 per second this limit
    /// ends and the other one stays.
    pub rate: Option<RateLimit>,
    /// Who, and why.
    pub by: Actor<'a>,
}

impl SetLimit<'_> {
    /// What holds afterwards, where those limits hold.
    ///
    /// # Errors
    /// When there is nothing to change, no reason for a limit, or nothing would run.
    pub fn after(&self, before: Limits) -> Result<Limits, Refusal> {
        if self.concurrency_max == Some(0) {
            return Err(Refusal::BadLimit);
        }
        let rate = self.rate.filter(|rate| rate.per_second > 0);
        let after = match (self.concurrency_max, self.rate) {
            (None, None) => Limits::default(),
            (concurrency_max, asked) => Limits {
                concurrency_max: concurrency_max.or(before.concurrency_max),
                rate: if asked.is_some() { rate } else { before.rate },
            },
        };
        match self.concurrency_max.is_some() || rate.is_some() {
            true => self.by.check_reason()?,
            false => self.by.check()?,
        }
        if after != before {
            return Ok(after);
        }
        let now = if before == Limits::default() {
            "not limited"
        } else {
            "limited like that"
        };
        Err(Refusal::Moved { now })
    }
}

/// Records that somebody is about to be shown what is hidden of an operation's messages elsewhere, or
/// asked for it in vain. Needs a reason where it is shown.
#[derive(Clone, Copy, Debug)]
pub struct RevealOperation<'a> {
    /// The operation.
    pub operation: &'a str,
    /// The subscriptions whose results and errors are asked for: each gets a row.
    pub subscriptions: &'a [&'a str],
    /// Whether it is shown.
    pub is_permitted: bool,
    /// Who, and why.
    pub by: Actor<'a>,
}

impl RevealOperation<'_> {
    /// The name used in the audit log, as for a case.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        let is_permitted = self.is_permitted;
        CaseAction::Reveal { is_permitted }.as_str()
    }

    /// Whether it can be done.
    ///
    /// # Errors
    /// When there is no reason where one is needed.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.is_permitted {
            true => self.by.check_reason(),
            false => self.by.check(),
        }
    }

    /// As the audit log has it, before and afterwards.
    #[must_use]
    pub fn account(&self) -> String {
        serde_json::json!({ "operation": self.operation }).to_string()
    }
}

/// Asks for the audit log, oldest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryQuery<'a> {
    /// Only of this case.
    pub case_id: Option<i64>,
    /// Only of this subscription and its cases.
    pub subscription: Option<&'a str>,
    /// Only later rows.
    pub after_audit_id: i64,
    /// Most rows; 0 means 100.
    pub rows_max: u32,
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number.
    pub audit_id: i64,
    /// When, by the database's clock.
    pub acted_at: Timestamp,
    /// Who.
    pub who: String,
    /// What: [`CaseAction::as_str`], `resume-deferred`, `pause`, `resume`, `limit`,
    /// `rename` or `remove`. A `reveal` without a case is one of an operation.
    pub action: String,
    /// Subscription, as it was called then.
    pub subscription: String,
    /// The case, where it was one.
    pub case_id: Option<i64>,
    /// Why.
    pub why: Option<String>,
    /// What was there before, as a JSON object.
    pub before: String,
    /// What was there afterwards.
    pub after: String,
}

/// Asks which causes cases have.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupQuery<'a> {
    /// Only of this subscription.
    pub subscription: Option<&'a str>,
    /// Also those without a live case.
    pub with_resolved: bool,
    /// Most groups; 0 means 100.
    pub rows_max: u32,
}

/// Cases of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseGroup {
    /// See [`fingerprint`](crate::case::fingerprint()).
    pub fingerprint: String,
    /// Subscription.
    pub subscription: String,
    /// The messages' type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// The failures' class.
    pub class: Class,
    /// Their code.
    pub code: String,
    /// Cases that are not over.
    pub live: u64,
    /// All cases.
    pub all: u64,
    /// When the first of them was first opened.
    pub first_at: Timestamp,
    /// When one was opened last.
    pub last_at: Timestamp,
    /// The one with the lowest number, of those that are not over where there are any.
    pub oldest_case_id: i64,
}

/// What operators do, and the record of it.
pub trait Operate: Clone + Send + Sync + 'static {
    /// Acts on a case and returns how it stands then. A released message becomes a retry that is
    /// due now, with a fresh budget and the case's failure;
    /// [`load_key`](super::Deferrals::load_key) finds it in the case's copy where the log has
    /// forgotten it, and finds the corrected one where it was corrected.
    ///
    /// # Errors
    /// [`Moved`](super::StoreErrorKind::Moved) when somebody acted before, and
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such case, or no reason where
    /// one is needed.
    fn act_on_case(
        &self,
        request: ActOnCase<'_>,
    ) -> impl Future<Output = Result<Standing, StoreError>> + Send;

    /// Makes messages due that wait for a person, and returns how many. Their budget goes on.
    ///
    /// # Errors
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such subscription.
    fn resume_deferred(
        &self,
        request: ResumeDeferred<'_>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Pauses a subscription or ends its pause. No age counts meanwhile.
    ///
    /// # Errors
    /// [`Moved`](super::StoreErrorKind::Moved) when it is so already, and
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such subscription, or no reason
    /// for a pause.
    fn set_pause(
        &self,
        request: SetPause<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Limits how much of a subscription runs at once in each process or starts per second in all
    /// of them, or ends limits.
    ///
    /// # Errors
    /// [`Moved`](super::StoreErrorKind::Moved) when it is so already, and
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such subscription, or no reason
    /// for a limit.
    fn set_limit(
        &self,
        request: SetLimit<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Records that an operation's results and errors are about to be shown, or were asked for in
    /// vain.
    ///
    /// # Errors
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no reason where one is needed.
    fn reveal_operation(
        &self,
        request: RevealOperation<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The audit log.
    fn history(
        &self,
        query: HistoryQuery<'_>,
    ) -> impl Future<Output = Result<Vec<AuditEntry>, StoreError>> + Send;

    /// Cases by their cause, the most live ones first.
    fn case_groups(
        &self,
        query: GroupQuery<'_>,
    ) -> impl Future<Output = Result<Vec<CaseGroup>, StoreError>> + Send;
}
