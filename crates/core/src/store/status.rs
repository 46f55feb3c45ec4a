//! What an operator or a caller may ask.

use std::future::Future;

use serde::Serialize;

use super::{DropCount, DropCountQuery, Dropped, DroppedQuery, StillBecause, StoreError};
use crate::case::CaseState;
use crate::failure::FailureRecord;
use crate::group::{Groups, Priority};
use crate::hold::HoldLimits;
use crate::ledger::Ending;
use crate::merge::survivor_in;
use crate::rate::RateLimit;
use crate::retry::Spent;
use crate::timestamp::Timestamp;

/// Asks for all messages of a business operation.
#[derive(Clone, Debug)]
pub struct OperationQuery<'a> {
    /// The operation, which is the message id where no operation was given.
    pub operation: &'a str,
    /// Most messages to return.
    pub rows_max: u32,
}

/// How far one message has come in one subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum MessageState {
    /// Accepted, not finished. Never to be shown as completed.
    Pending,
    /// Off the hot path for now.
    Deferred {
        /// Why: `retry`, `held`, `running`, `operator` or `gap`.
        kind: String,
        /// When it is due.
        due_at: Option<Timestamp>,
        /// Budget used.
        spent: Spent,
        /// The last failure.
        failure: Option<FailureRecord>,
    },
    /// The ledger has it.
    Finished {
        /// How it ended.
        ending: Ending,
        /// When.
        finished_at: Timestamp,
        /// The id of the message that was handled in its place, where it was merged.
        #[serde(skip_serializing_if = "Option::is_none")]
        merged_into: Option<String>,
        /// The stored result; withheld without the right to reveal.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
    /// The position of an at-least-once subscription is past it.
    Delivered,
    /// A case is live.
    Quarantined {
        /// Case number.
        case_id: i64,
        /// Why.
        reason: String,
    },
    /// Somebody ended its case without it.
    Resolved {
        /// Case number.
        case_id: i64,
        /// How.
        resolution: CaseState,
    },
}

impl MessageState {
    /// What a row of the ledger says.
    #[must_use]
    pub fn finished(ending: Ending, finished_at: Timestamp, result: Option<String>) -> Self {
        let merged_into = match ending {
            Ending::Merged => result.as_deref().and_then(survivor_in),
            _ => None,
        };
        Self::Finished {
            ending,
            finished_at,
            merged_into,
            result,
        }
    }
}

/// One message of an operation, with its state per subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageStatus {
    /// Message id.
    pub id: String,
    /// Source.
    pub source: String,
    /// Type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// Operation.
    pub operation: String,
    /// Aggregate id.
    pub subject: String,
    /// When the log took it.
    pub recorded_at: Timestamp,
    /// Subscription and state. Subscriptions whose types do not include it are absent.
    pub subscriptions: Vec<(String, MessageState)>,
}

/// Asks how a subscription stands.
#[derive(Clone, Debug)]
pub struct BacklogQuery<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Where to stop counting what waits, so that asking stays cheap.
    pub count_max: u64,
    /// Counts apart what was recorded up to here.
    pub before: Option<Timestamp>,
}

impl<'a> BacklogQuery<'a> {
    /// Asks for a subscription, without counting anything apart.
    #[must_use]
    pub const fn new(subscription: &'a str, count_max: u64) -> Self {
        Self {
            subscription,
            count_max,
            before: None,
        }
    }
}

/// Deferred messages by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct DeferredCounts {
    /// Retries, due or not.
    pub retry: u64,
    /// Behind another message of their key.
    pub held: u64,
    /// Running.
    pub running: u64,
    /// Waiting for a person.
    pub operator: u64,
    /// Waiting for an earlier version of their aggregate.
    pub gap: u64,
}

/// A lane and who works on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneOwner {
    /// Lane number.
    pub lane: u16,
    /// Owner's description, if any.
    pub owner: Option<String>,
    /// Whether the owner's lease still runs.
    pub is_live: bool,
}

/// Work on a subscription stands still for now, as some process said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StillNow {
    /// Why.
    pub because: StillBecause,
    /// Since when.
    pub since: Timestamp,
    /// When it ends, where that is known.
    pub until: Option<Timestamp>,
}

/// How a subscription stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// Subscription.
    pub subscription: String,
    /// Messages of its types behind no position, neither deferred nor quarantined.
    pub waiting: u64,
    /// Whether counting stopped at `count_max`.
    pub waiting_is_lower_bound: bool,
    /// How many of them were recorded up to the moment that was asked about; 0 where none was.
    #[serde(skip)]
    pub waiting_before: u64,
    /// The types that it takes.
    #[serde(skip)]
    pub types: Vec<String>,
    /// When the oldest of them was recorded.
    pub oldest_waiting_at: Option<Timestamp>,
    /// The same by lane group, where there is more than one: by class, the highest first, and there
    /// by the tenants' groups. As far as was counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupBacklog>,
    /// Deferred messages.
    pub deferred: DeferredCounts,
    /// When the oldest deferred message was recorded or first deferred.
    pub oldest_deferred_at: Option<Timestamp>,
    /// Since when the retry that has been due for the longest is due; none where none is. What is
    /// due later is not late.
    pub due_since: Option<Timestamp>,
    /// Live cases.
    pub quarantined: u64,
    /// Since when it is paused, if it is.
    pub paused_at: Option<Timestamp>,
    /// Why its work stands still without an operator's word, if it does.
    pub still: Option<StillNow>,
    /// Messages that may start per second, where an operator said so.
    pub rate: Option<RateLimit>,
    /// Lanes and owners.
    pub lanes: Vec<LaneOwner>,
    /// The database's clock, to compute ages with.
    pub now: Timestamp,
}

/// What waits of one lane group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupBacklog {
    /// Its class.
    pub priority: Priority,
    /// Which of the tenants' groups it is, where tenants are told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<usize>,
    /// Messages behind no position.
    pub waiting: u64,
    /// When the oldest of them was recorded.
    pub oldest_waiting_at: Option<Timestamp>,
}

impl Backlog {
    /// Counts by group from now on.
    pub fn divide(&mut self, groups: &Groups) {
        let numbered = groups.priorities().iter().enumerate();
        self.groups = numbered
            .map(|(group, priority)| GroupBacklog {
                priority: *priority,
                tenants: groups.share(group),
                waiting: 0,
                oldest_waiting_at: None,
            })
            .collect();
    }

    /// So many more wait, of a group where it is divided.
    pub fn waits(&mut self, group: Option<usize>, count: u64, oldest_at: Option<Timestamp>) {
        let add = |waiting: &mut u64, oldest: &mut Option<Timestamp>| {
            *waiting += count;
            *oldest = [*oldest, oldest_at].into_iter().flatten().min();
        };
        add(&mut self.waiting, &mut self.oldest_waiting_at);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
            add(&mut group.waiting, &mut group.oldest_waiting_at);
        }
    }

    /// Since when the message that has waited the longest could have been worked on; none where
    /// nothing waits but what is due later.
    #[must_use]
    pub fn ready_since(&self) -> Option<Timestamp> {
        let since = self.oldest_waiting_at.into_iter().chain(self.due_since);
        since.min()
    }

    /// For how long that is, in milliseconds; 0 where nothing is.
    #[must_use]
    pub fn ready_age_ms(&self) -> u64 {
        let age_ms = self.ready_since().map_or(0, |at| self.now.millis_since(at));
        u64::try_from(age_ms).unwrap_or(0)
    }
}

/// Asks for the keys behind which messages are held, those that have waited the longest first.
#[derive(Clone, Copy, Debug)]
pub struct HeldQuery<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Only those beyond one of these limits.
    pub beyond: Option<HoldLimits>,
    /// Most keys to return.
    pub keys_max: u32,
}

/// A key behind which messages are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LongHeld {
    /// The key.
    pub key: String,
    /// How many messages are held.
    pub depth: u64,
    /// When the first of them was.
    pub held_since: Timestamp,
    /// What is deferred first: `retry`, `operator`, `gap`, `running`; `held` behind a case.
    pub behind: String,
    /// The live case that holds the key, if one does.
    pub case_id: Option<i64>,
    /// How long the first one has waited, in milliseconds.
    pub age_ms: u64,
}

/// Questions.
pub trait Status: Clone + Send + Sync + 'static {
    /// Messages of an operation, oldest first, with their state in each subscription.
    fn operation(
        &self,
        query: OperationQuery<'_>,
    ) -> impl Future<Output = Result<Vec<MessageStatus>, StoreError>> + Send;

    /// Names of all registered subscriptions, in order.
    fn subscriptions(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// How a subscription stands.
    fn backlog(
        &self,
        query: BacklogQuery<'_>,
    ) -> impl Future<Output = Result<Backlog, StoreError>> + Send;

    /// Keys behind which messages are held.
    fn longest_held(
        &self,
        query: HeldQuery<'_>,
    ) -> impl Future<Output = Result<Vec<LongHeld>, StoreError>> + Send;

    /// Messages that a policy gave up, the latest first, by an index of their own.
    fn dropped(
        &self,
        query: DroppedQuery<'_>,
    ) -> impl Future<Output = Result<Vec<Dropped>, StoreError>> + Send;

    /// How many messages policies gave up of late, for each of [`Ending::DROPPED`].
    fn drop_counts(
        &self,
        query: DropCountQuery<'_>,
    ) -> impl Future<Output = Result<Vec<DropCount>, StoreError>> + Send;
}
