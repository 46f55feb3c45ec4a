//! The seams to a database. Each is small; a store implements all of them.
//!
//! Times in these seams are relative (milliseconds from now) wherever they decide something: the
//! store compares by its database's clock, never by a process's.

use std::error::Error as StdError;
use std::fmt;

use crate::case::Refusal;

mod acceptance;
mod cases;
mod deferrals;
mod dropped;
mod effects;
mod lanes;
mod log;
mod operate;
mod registry;
mod replay;
mod schema;
mod status;
mod time;
mod upkeep;
mod versions;

pub use crate::case::{Actor, CaseAction, CaseState, Correction, Standing};
pub use acceptance::{AcceptRequest, Acceptance, Accepted, NO_ANSWER};
pub use cases::{Case, CaseQuery, CasedQuery, Cases, HeldCase, NewCase};
pub use deferrals::{
    Deferral, DeferralKind, Deferrals, DeferredRow, HeldKey, HeldKeysQuery, LoadKey,
};
pub use dropped::{DropCount, DropCountQuery, Dropped, DroppedPlace, DroppedQuery, NoCursor};
pub use effects::{Append, Begin, Effects, End, Found, Known, Mark, Settle, Settled};
pub use lanes::{
    Join, LaneState, Lanes, Lease, MemberState, Release, ReleasedLane, Renew, Still, StillBecause,
    SubscriptionState, Survey, Take, TakenLane,
};
pub use log::{Log, Page, ReadPage, SavePosition, Span};
pub use operate::{
    ActOnCase, AuditEntry, CaseGroup, GroupQuery, HistoryQuery, Limits, Operate, ResumeDeferred,
    RevealOperation, SetLimit, SetPause,
};
pub use registry::{Registry, Remove, Removed, Rename};
pub use replay::{
    ActOnCampaign, Campaign, CampaignItem, CampaignQuery, ItemQuery, OVERTAKEN_ROWS_MAX,
    PLAN_ITEMS_DEFAULT, PlanCampaign, Replay, Selection, Source, StepCampaign, Stepped,
};
pub use schema::{Declared, Registered, Schema, SchemaState, Start, Terms};
pub use status::{
    Backlog, BacklogQuery, DeferredCounts, GroupBacklog, HeldQuery, LaneOwner, LongHeld,
    MessageState, MessageStatus, OperationQuery, Status, StillNow,
};
pub use time::{Pauses, Time};
pub use upkeep::{Retention, UnsafeRetention, Upkeep, UpkeepReport};
pub use versions::{LastVersions, Versions};

/// What went wrong in a store, by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The database cannot be reached, is starting or shutting down, or the pool gave up waiting.
    Unavailable,
    /// The database only reads: a standby, or the moment after a failover.
    ReadOnly,
    /// The disk is full or a quota is reached.
    Full,
    /// Serialization failure, deadlock or lock timeout: the same again may succeed.
    Conflict,
    /// This process's lease was taken over; it must stop and join anew.
    Fenced,
    /// The database ended the transaction because it had idled for too long.
    Overstayed,
    /// The commit was sent and its answer was lost: it may have happened.
    CommitUnknown,
    /// The database is not the one the positions belong to (restored or copied).
    WrongEra,
    /// The schema is missing, older or newer than this program.
    Schema,
    /// The data was refused: a constraint, a bad value, something too large.
    Refused,
    /// What was to be changed is not as it was expected: somebody was faster.
    Moved,
    /// Not permitted for this role.
    Denied,
    /// Anything else.
    Other,
}

impl StoreErrorKind {
    /// Whether it passes without anybody's doing and is no message's fault.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::ReadOnly | Self::Full | Self::Conflict | Self::CommitUnknown
        )
    }
}

/// An error of a store: a kind to decide by, what was attempted, and the source.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    action: &'static str,
    message: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// An error while doing `action` (a few words: "read the log").
    pub fn new(
        kind: StoreErrorKind,
        action: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            action,
            message: None,
            source: Some(source.into()),
        }
    }

    /// An error that we found ourselves, with a text for people.
    pub fn found(kind: StoreErrorKind, action: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            action,
            message: Some(message.into()),
            source: None,
        }
    }

    /// An operator's action that is not possible.
    pub fn refused(action: &'static str, refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Moved { .. } => StoreErrorKind::Moved,
            _ => StoreErrorKind::Refused,
        };
        Self::found(kind, action, refusal.to_string())
    }

    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// What was attempted.
    #[must_use]
    pub const fn action(&self) -> &'static str {
        self.action
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}", self.action)?;
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        Ok(())
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Everything an engine needs.
pub trait Store:
    Log
    + Lanes
    + Effects
    + Versions
    + Time
    + Deferrals
    + Cases
    + Operate
    + Replay
    + Registry
    + Acceptance
    + Status
    + Upkeep
    + Schema
{
}

impl<S> Store for S where
    S: Log
        + Lanes
        + Effects
        + Versions
        + Time
        + Deferrals
        + Cases
        + Operate
        + Replay
        + Registry
        + Acceptance
        + Status
        + Upkeep
        + Schema
{
}
