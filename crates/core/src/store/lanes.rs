//! Who works on which lanes: members, leases, handover.

use std::future::Future;

use serde::Serialize;

use super::StoreError;
use crate::rate::RateLimit;
use crate::stand::Stand;

/// A member's right to work, as its effect transactions present it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Member id, unique to one start of one process.
    pub member: String,
    /// Number for the store's locks, given out at joining.
    pub fence: i64,
    /// How long the lease lasts after a renewal, in milliseconds.
    pub lease_ms: u64,
}

/// Takes part in a fleet.
#[derive(Clone, Debug)]
pub struct Join<'a> {
    /// Member id, new for each start.
    pub member: &'a str,
    /// For people: host, process id, version.
    pub description: &'a str,
    /// Length of the lease in milliseconds.
    pub lease_ms: u64,
    /// Subscriptions this member can work on.
    pub subscriptions: &'a [String],
}

/// Prolongs a lease, and says what stands still.
#[derive(Clone, Debug)]
pub struct Renew<'a> {
    /// Whose.
    pub lease: &'a Lease,
    /// Subscriptions whose work stands still in this process, each at most once. No age counts of
    /// what is deferred in them, in any process.
    pub still: &'a [Still<'a>],
    /// How long that holds from now on unless it is said again, in milliseconds: a bit longer than
    /// it takes until the next renewal.
    pub still_for_ms: u64,
}

impl<'a> Renew<'a> {
    /// Nothing stands still.
    #[must_use]
    pub const fn of(lease: &'a Lease) -> Self {
        Self {
            lease,
            still: &[],
            still_for_ms: 0,
        }
    }
}

/// Why work stands still without an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StillBecause {
    /// A breaker is open: the other side is away.
    Breaker,
    /// The other side asked to be left alone for a while.
    RateWindow,
    /// The other side refused in a way that only a person can change, and others would fare the
    /// same: after a while it is tried whether that is over.
    Person,
}

impl StillBecause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Breaker, Self::RateWindow, Self::Person];

    /// The name that is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::RateWindow => "rate-window",
            Self::Person => "person",
        }
    }

    /// Reads a stored name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|because| because.as_str() == name)
    }
}

/// A subscription whose work stands still in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Still<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Why.
    pub because: StillBecause,
    /// For how long it has, in milliseconds. Time before the end of its last pause is left out.
    pub since_ms: u64,
    /// When it ends, in milliseconds from now, where that is known.
    pub until_ms: Option<u64>,
}

/// A member as seen in a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Member id.
    pub member: String,
    /// For people.
    pub description: String,
    /// Whether its lease still runs. One that was renewed more than a lease in the future does not:
    /// that was before the database's clock was set back.
    pub is_live: bool,
    /// What it can work on.
    pub subscriptions: Vec<String>,
}

/// A lane as seen in a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// Subscription.
    pub subscription: String,
    /// Lane number.
    pub lane: u16,
    /// Counts every change of owner.
    pub epoch: u64,
    /// Owner, if any.
    pub owner: Option<String>,
}

/// What operators made of a subscription, as seen in a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionState {
    /// Subscription.
    pub subscription: String,
    /// Raised by every action that changes what may run.
    pub revision: u64,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Batches that may run at once in one process, where an operator said that it be fewer than
    /// declared.
    pub concurrency_max: Option<u16>,
    /// Messages that may start per second in all processes together, where an operator said so.
    pub rate: Option<RateLimit>,
    /// Whether a replay campaign of it is to be driven on.
    pub has_campaign: bool,
}

/// Members and lanes at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Survey {
    /// Members that have not ended.
    pub members: Vec<MemberState>,
    /// All lanes of all subscriptions.
    pub lanes: Vec<LaneState>,
    /// All subscriptions.
    pub subscriptions: Vec<SubscriptionState>,
}

/// Takes lanes that are free or whose owner's lease has run out. A lane that is the member's
/// already, because an answer was lost, is given again, as suspect.
#[derive(Clone, Debug)]
pub struct Take<'a> {
    /// Who takes.
    pub lease: &'a Lease,
    /// Of which subscription.
    pub subscription: &'a str,
    /// Which lanes; some may be refused because someone else was faster.
    pub lanes: &'a [u16],
}

/// A lane that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenLane {
    /// Lane number.
    pub lane: u16,
    /// The new epoch.
    pub epoch: u64,
    /// Where to go on.
    pub stand: Stand,
    /// The last owner did not end cleanly: what follows the position may have killed it.
    pub is_suspect: bool,
    /// Rows recorded before this are not wanted (the subscription's start was a time).
    pub not_before: Option<crate::Timestamp>,
}

/// A lane handed back, with where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedLane {
    /// Lane number.
    pub lane: u16,
    /// The epoch at which it was taken.
    pub epoch: u64,
    /// Everything before this is finished or stored.
    pub stand: Stand,
}

/// Hands lanes back cleanly. Nothing of theirs may be in flight any more.
#[derive(Clone, Debug)]
pub struct Release<'a> {
    /// Who hands back.
    pub lease: &'a Lease,
    /// Of which subscription.
    pub subscription: &'a str,
    /// The lanes.
    pub lanes: &'a [ReleasedLane],
}

/// Membership, leases and lanes.
pub trait Lanes: Clone + Send + Sync + 'static {
    /// Becomes a member, with a first lease.
    fn join(&self, request: Join<'_>) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Prolongs the lease. [`Fenced`](super::StoreErrorKind::Fenced) when someone took over.
    /// Where something stands still, it begins or prolongs a pause that ends by itself; never beside
    /// an operator's, and without waiting for an operator who is just acting.
    fn renew(&self, request: Renew<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Who is there and who owns what.
    fn survey(&self) -> impl Future<Output = Result<Survey, StoreError>> + Send;

    /// Takes lanes. Ends a previous owner whose lease ran out so that none of its transactions can
    /// commit any more (`Fenced`), waits for those that are committing, and counts a worker death
    /// for each of its rows deferred as running.
    fn take(
        &self,
        request: Take<'_>,
    ) -> impl Future<Output = Result<Vec<TakenLane>, StoreError>> + Send;

    /// Hands lanes back.
    fn release(&self, request: Release<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends membership cleanly. Lanes still owned are released at their last saved position,
    /// without suspicion.
    fn leave(&self, lease: &Lease) -> impl Future<Output = Result<(), StoreError>> + Send;
}
