//! What the quarantine's part of the API needs of the world behind it.

use onceward_core::Payload;
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::{
    ActOnCase, AuditEntry, Case, CaseGroup, CaseQuery, Cases, GroupQuery, HistoryQuery, Operate,
    Standing, StoreError,
};

use crate::gate::BoxFuture;

/// Cases, and acting on them: an object-safe seam.
pub trait Desk: Send + Sync + 'static {
    /// Cases by number.
    fn cases<'a>(&'a self, query: CaseQuery<'a>) -> BoxFuture<'a, Result<Vec<Case>, StoreError>>;

    /// Cases by their cause.
    fn groups<'a>(
        &'a self,
        query: GroupQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<CaseGroup>, StoreError>>;

    /// The audit log.
    fn history<'a>(
        &'a self,
        query: HistoryQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<AuditEntry>, StoreError>>;

    /// Acts on a case.
    fn act<'a>(&'a self, request: ActOnCase<'a>) -> BoxFuture<'a, Result<Standing, StoreError>>;
}

/// A desk at any store.
#[derive(Clone, Debug)]
pub struct StoreDesk<S>(pub S);

impl<S: Cases + Operate> Desk for StoreDesk<S> {
    fn cases<'a>(&'a self, query: CaseQuery<'a>) -> BoxFuture<'a, Result<Vec<Case>, StoreError>> {
        Box::pin(self.0.cases(query))
    }

    fn groups<'a>(
        &'a self,
        query: GroupQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<CaseGroup>, StoreError>> {
        Box::pin(self.0.case_groups(query))
    }

    fn history<'a>(
        &'a self,
        query: HistoryQuery<'a>,
    ) -> BoxFuture<'a, Result<Vec<AuditEntry>, StoreError>> {
        Box::pin(self.0.history(query))
    }

    fn act<'a>(&'a self, request: ActOnCase<'a>) -> BoxFuture<'a, Result<Standing, StoreError>> {
        Box::pin(self.0.act_on_case(request))
    }
}

/// What is known of payloads by their message's type.
pub trait Payloads: Send + Sync + 'static {
    /// What of them may be shown.
    fn sensitivity(&self, message_type: &str) -> Sensitivity;

    /// Whether a corrected payload may take the place of another of this type.
    ///
    /// # Errors
    /// Why not, without a word of the payload itself.
    fn check(&self, message_type: &str, payload: &Payload) -> Result<(), Vec<String>>;
}

/// Nothing is known: all is hidden, and any payload is taken.
#[derive(Clone, Copy, Debug)]
pub struct UnknownPayloads;

impl Payloads for UnknownPayloads {
    fn sensitivity(&self, _: &str) -> Sensitivity {
        Sensitivity::All
    }

    fn check(&self, _: &str, _: &Payload) -> Result<(), Vec<String>> {
        Ok(())
    }
}
