//! Faults that a test plans: errors, lost answers, delays.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use onceward_core::store::{StoreError, StoreErrorKind};

/// What a store does, as far as faults are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// Reading a page of the log.
    Read,
    /// Asking for the head.
    Head,
    /// Saving a position.
    SavePosition,
    /// Appending.
    Append,
    /// Opening an effect transaction.
    Begin,
    /// Looking identities up.
    Known,
    /// Settling.
    Settle,
    /// A savepoint step.
    Mark,
    /// Committing or rolling back.
    End,
    /// Joining.
    Join,
    /// Renewing a lease.
    Renew,
    /// Surveying members and lanes.
    Survey,
    /// Taking lanes.
    Take,
    /// Releasing lanes.
    Release,
    /// Leaving.
    Leave,
    /// Reading deferrals.
    Deferrals,
    /// Reading cases.
    Cases,
    /// What operators do.
    Operate,
    /// Accepting and answering.
    Accept,
    /// Migration and everything else about the tables.
    Migrate,
    /// Declaring a subscription, starting an era, pinging.
    Declare,
    /// Questions.
    Status,
    /// Upkeep.
    Tidy,
}

impl Operation {
    /// The words that errors use.
    pub(super) const fn action(self) -> &'static str {
        match self {
            Self::Read => "read the log",
            Self::Head => "read the log's head",
            Self::SavePosition => "save a position",
            Self::Append => "append",
            Self::Begin => "begin an effect",
            Self::Known => "look up the ledger",
            Self::Settle => "settle",
            Self::Mark => "use a savepoint",
            Self::End => "end an effect",
            Self::Join => "join",
            Self::Renew => "renew a lease",
            Self::Survey => "survey members",
            Self::Take => "take lanes",
            Self::Release => "release lanes",
            Self::Leave => "leave",
            Self::Deferrals => "read deferrals",
            Self::Cases => "read cases",
            Self::Operate => "act for an operator",
            Self::Accept => "accept",
            Self::Migrate => "migrate",
            Self::Declare => "declare a subscription",
            Self::Status => "read the status",
            Self::Tidy => "tidy",
        }
    }
}

/// A commit whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// It did not happen.
    NotApplied,
    /// It did happen.
    Applied,
}

/// Planned faults. Each is used up by the next operation that it fits, first planned first.
#[derive(Debug, Default)]
pub struct Faults {
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    commits: VecDeque<CommitFault>,
    errors: BTreeMap<Operation, VecDeque<StoreErrorKind>>,
    delays: BTreeMap<Operation, VecDeque<u32>>,
}

impl Faults {
    /// The next commit ends in [`CommitUnknown`](StoreErrorKind::CommitUnknown).
    pub fn fail_next_commit(&self, fault: CommitFault) {
        self.plan().commits.push_back(fault);
    }

    /// The next operation of a kind fails before it does anything.
    pub fn fail_next(&self, operation: Operation, kind: StoreErrorKind) {
        let mut plan = self.plan();
        plan.errors.entry(operation).or_default().push_back(kind);
    }

    /// The next operation of a kind gives way to others `turns` times before it starts. Turns are
    /// polls, so a delay costs no time.
    pub fn delay_next(&self, operation: Operation, turns: u32) {
        let mut plan = self.plan();
        plan.delays.entry(operation).or_default().push_back(turns);
    }

    /// Forgets what was planned and has not happened.
    pub fn clear(&self) {
        *self.plan() = Plan::default();
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn commit(&self) -> Option<CommitFault> {
        self.plan().commits.pop_front()
    }

    pub(super) async fn pass(&self, operation: Operation) -> Result<(), StoreError> {
        let delay = |plan: &mut Plan| plan.delays.get_mut(&operation)?.pop_front();
        let mut turns_left = delay(&mut self.plan()).unwrap_or(0);
        poll_fn(|context| {
            if turns_left == 0 {
                return Poll::Ready(());
            }
            turns_left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let error = |plan: &mut Plan| plan.errors.get_mut(&operation)?.pop_front();
        match error(&mut self.plan()) {
            None => Ok(()),
            Some(kind) => Err(StoreError::found(
                kind,
                operation.action(),
                "the test planned this fault",
            )),
        }
    }
}
