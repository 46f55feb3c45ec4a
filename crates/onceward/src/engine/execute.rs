//! Effect transactions: handler, follow-up messages and ledger rows in one commit.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use onceward_core::case::AT_MOST_ONCE_FAILED;
use onceward_core::coalesce::{Piece, PieceEnd, Plan};
use onceward_core::contract::{OnPoison, Order, Semantics};
use onceward_core::dispatcher::{Blocked, Fate, Work};
use onceward_core::disposition::{Disposition, after_death, decide};
use onceward_core::merge::Merge;
use onceward_core::store::{
    Begin, Deferral, DeferralKind, End, Known, Lease, NewCase, Settle, Store, StoreError,
    StoreErrorKind,
};
use onceward_core::{Class, Ending, Failure, FailureRecord, LedgerEntry, LedgerKey, Spent};

use super::again::Pause;
use super::attempt::{Attempt, PieceRan};
use super::dependency::Dependency;
use super::runner::Runtime;
use super::surroundings::Surroundings;
use super::tally::{Draft, Tally};
use crate::digest::digest_of_row;
use crate::failure_points::failure_point;
use crate::handler::Reply;
use crate::subscription::Handler;

/// How often a piece is tried again at once after a conflict that was nobody's fault.
pub(super) const CONFLICT_TRIES: u32 = 4;
/// Code of a panic of user code.
pub(super) const PANICKED: &str = "panicked";

/// Runs batches of one subscription under one lease.
pub(super) struct Executor<S: Store> {
    pub(super) store: S,
    pub(super) runtime: Arc<Runtime<S>>,
    pub(super) lease: Lease,
    pub(super) surroundings: Surroundings,
    /// Held while a message runs that may kill the process, so that a death names one message.
    pub(super) suspects: Arc<tokio::sync::Mutex<()>>,
    /// What calls and deliveries depend on.
    pub(super) dependency: Arc<Dependency>,
}

/// Why a batch stops early: what is left goes back to its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    Trouble,
    Fenced,
}

/// How a call of user code ended.
pub(super) enum Ran<T> {
    Returned(Result<T, Failure>),
    /// It timed out or panicked: what it had open is unusable.
    Broken(Failure),
}

/// Runs user code under its timeout, catching panics.
pub(super) async fn guarded<T>(
    timeout_ms: u64,
    running: impl Future<Output = Result<T, Failure>> + Send,
) -> Ran<T> {
    let caught = AssertUnwindSafe(running).catch_unwind();
    match tokio::time::timeout(Duration::from_millis(timeout_ms), caught).await {
        Ok(Ok(result)) => Ran::Returned(result),
        Ok(Err(panic)) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic without a text".to_owned());
            let failure = Failure::transient(PANICKED, "the handler panicked");
            Ran::Broken(failure.with_source(std::io::Error::other(text)))
        }
        Err(_) => Ran::Broken(Failure::transient(
            "timed_out",
            format!("the handler took longer than {timeout_ms} ms and was cancelled"),
        )),
    }
}

impl<S: Store> Executor<S> {
    pub(super) fn has_ledger(&self) -> bool {
        self.runtime.contract.semantics != Semantics::AtLeastOnce
    }

    /// Whether the ledger may know of a message although no effect of it was recorded there: it was
    /// given up by a policy.
    pub(super) fn drops(&self) -> bool {
        let contract = &self.runtime.contract;
        contract.merge != Merge::None || contract.shed.is_some()
    }

    pub(super) async fn run_plan(
        &self,
        works: &[Work],
        mut plan: Plan,
        savepoint_every: u32,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        // Keys whose message was deferred or quarantined in this batch: what follows goes back.
        let mut blocked = Blocked::default();
        while let Some(piece) = plan.next_piece() {
            let end = if piece.is_single() {
                let index = piece.range.start;
                let work = &works[index];
                let key = self.key_of(work);
                if !blocked.holds(key, &work.row) {
                    self.run_single(works, index, tally).await?;
                    blocked.ended(key, &work.row, &tally.fates[index]);
                }
                PieceEnd::Settled
            } else {
                self.run_piece(works, &piece, savepoint_every, &mut blocked, tally)
                    .await?
            };
            plan.ended(&piece, end);
        }
        tally.seen.rollbacks += plan.rollbacks();
        Ok(())
    }

    pub(super) fn key_of<'w>(&self, work: &'w Work) -> &'w str {
        match self.runtime.contract.order {
            Order::Key => work.row.envelope.key(),
            // Only the same message has it again.
            Order::None => work.row.effect_id(),
        }
    }

    pub(super) fn known_request<'a>(
        &'a self,
        keys: &'a [LedgerKey],
        deferred: &'a [u64],
    ) -> Known<'a> {
        Known {
            subscription: &self.runtime.contract.name,
            identity: self.runtime.identity,
            keys,
            deferred,
        }
    }

    pub(super) fn ledger_key(&self, work: &Work) -> LedgerKey {
        LedgerKey {
            generation: work.generation,
            ..LedgerKey::of(&work.row, self.runtime.identity)
        }
    }

    pub(super) fn nothing(&self) -> Settle<'_> {
        Settle::nothing(&self.runtime.contract.name, self.runtime.identity)
    }

    /// Records without user code, in a transaction of its own.
    pub(super) async fn record(&self, settle: Settle<'_>) -> Result<(), StoreError> {
        let (mut tries, mut pause, mut is_unknown) = (0, Pause::default(), false);
        failure_point!("before-record");
        loop {
            let attempt = async {
                let mut tx = self
                    .store
                    .begin(Begin {
                        lease: Some(&self.lease),
                    })
                    .await?;
                self.store.settle(&mut tx, settle.clone()).await?;
                failure_point!("after-record-before-commit");
                self.store.end(tx, End::Commit).await?;
                failure_point!("after-record");
                Ok::<_, StoreError>(())
            };
            match attempt.await {
                Err(error)
                    if error.kind() == StoreErrorKind::Conflict && tries < CONFLICT_TRIES =>
                {
                    tries += 1;
                }
                // It may have happened, and then the message at hand is not what is recorded of it
                // any more: the same again is the same, since all of it overwrites. However long
                // the store is away, nothing else would be right.
                Err(error)
                    if (is_unknown || error.kind() == StoreErrorKind::CommitUnknown)
                        && error.kind().is_passing() =>
                {
                    is_unknown = true;
                    pause.pass().await;
                }
                Ok(()) => {
                    self.tell_cases(settle.cases).await;
                    return Ok(());
                }
                result => return result,
            }
        }
    }

    pub(super) fn stop_for(&self, error: &StoreError) -> Stop {
        if error.kind() == StoreErrorKind::Fenced {
            return Stop::Fenced;
        }
        tracing::warn!(
            subscription = self.runtime.contract.name,
            error = error as &(dyn std::error::Error + 'static),
            "the store is in trouble; nothing is lost, the work is tried again"
        );
        Stop::Trouble
    }

    pub(super) fn deferral(
        &self,
        work: &Work,
        spent: Spent,
        failure: Option<FailureRecord>,
    ) -> Deferral {
        Deferral {
            seq: work.row.seq,
            slot: work.row.slot,
            key: self.runtime.contract.order.key_of(&work.row).into_owned(),
            kind: DeferralKind::Retry,
            due_in_ms: Some(0),
            spent,
            failure,
        }
    }

    /// What becomes of a failed message: the deferral or the case, and its fate.
    pub(super) fn disposed(
        &self,
        work: &Work,
        failure: &Failure,
        disposition: Disposition,
        draft: &mut Draft,
    ) -> Fate {
        let record = self.runtime.record_of(failure, &work.row);
        draft.failures += 1;
        match disposition {
            Disposition::Defer {
                kind,
                due_in_ms,
                spent,
            } => {
                let mut deferral = self.deferral(work, spent, Some(record));
                deferral.kind = kind;
                deferral.due_in_ms = due_in_ms;
                draft.defer.push(deferral.clone());
                Fate::Deferred(deferral)
            }
            // A rejection never comes here: it is an outcome and goes to the ledger.
            Disposition::Reject => self.case(work, "rejected", record, work.spent, draft),
            Disposition::Quarantine { reason, spent } => {
                self.case(work, &reason, record, spent, draft)
            }
        }
    }

    pub(super) fn case(
        &self,
        work: &Work,
        reason: &str,
        failure: FailureRecord,
        spent: Spent,
        draft: &mut Draft,
    ) -> Fate {
        let is_ordered = self.runtime.contract.order == Order::Key;
        let holds_key = is_ordered && self.runtime.on_poison == OnPoison::HoldKey;
        draft.clear.push(work.row.seq);
        draft.cases.push(NewCase {
            row: (*work.row).clone(),
            key: self.runtime.contract.order.key_of(&work.row).into_owned(),
            reason: reason.to_owned(),
            failure,
            spent,
            holds_key,
        });
        Fate::Quarantined { holds_key }
    }

    /// Records the failure of a message by itself and returns its fate.
    pub(super) async fn dispose(
        &self,
        work: &Work,
        failure: &Failure,
        can_probe: bool,
    ) -> Result<Fate, Stop> {
        let retry = &self.runtime.contract.retry;
        let disposition = match self.runtime.contract.semantics {
            // Never tried twice.
            Semantics::AtMostOnce => Disposition::Quarantine {
                reason: AT_MOST_ONCE_FAILED.to_owned(),
                spent: work.spent,
            },
            _ => decide(retry, work.spent, failure, can_probe, fastrand::u64(..)),
        };
        self.dispose_as(work, failure, disposition).await
    }

    /// Records the failure of a message that asked the other side. While that one is away for all,
    /// the message waits with the rest and uses nothing of its budget.
    pub(super) async fn dispose_asked(
        &self,
        work: &Work,
        failure: &Failure,
        can_probe: bool,
    ) -> Result<Fate, Stop> {
        let is_kept = self.runtime.contract.semantics != Semantics::AtMostOnce
            && (can_probe || failure.class() != Class::Ambiguous);
        let Some(wait_ms) = self.dependency.wait_ms(failure).filter(|_| is_kept) else {
            return self.dispose(work, failure, can_probe).await;
        };
        let spent = Spent {
            waits: work.spent.waits.saturating_add(1),
            ..work.spent
        };
        let waits = Disposition::Defer {
            kind: DeferralKind::Retry,
            due_in_ms: Some(wait_ms),
            spent,
        };
        self.dispose_as(work, failure, waits).await
    }

    /// Defers a message that keeps meeting a conflict, which is nobody's fault: it waits aside,
    /// behind nobody, and no attempt is burnt.
    async fn put_off(&self, work: &Work) -> Result<Fate, Stop> {
        let failure = Failure::transient(
            "database_conflict",
            "other transactions keep what this message needs; it waits, and no attempt is counted",
        );
        if self.runtime.contract.semantics == Semantics::AtMostOnce {
            return self.dispose(work, &failure, false).await;
        }
        let spent = Spent {
            waits: work.spent.waits.saturating_add(1),
            ..work.spent
        };
        let retry = &self.runtime.contract.retry;
        let put_off = Disposition::Defer {
            kind: DeferralKind::Retry,
            due_in_ms: Some(retry.delay_ms(spent.waits, fastrand::u64(..))),
            spent,
        };
        self.dispose_as(work, &failure, put_off).await
    }

    pub(super) async fn dispose_as(
        &self,
        work: &Work,
        failure: &Failure,
        disposition: Disposition,
    ) -> Result<Fate, Stop> {
        let mut draft = Draft::default();
        let fate = self.disposed(work, failure, disposition, &mut draft);
        let settle = Settle {
            defer: &draft.defer,
            clear: &draft.clear,
            cases: &draft.cases,
            ..self.nothing()
        };
        self.record(settle)
            .await
            .map_err(|error| self.stop_for(&error))?;
        Ok(fate)
    }

    /// A case for a message whose budget ended with its process.
    pub(super) async fn bury(&self, work: &Work) -> Option<Result<Fate, Stop>> {
        let disposition = after_death(&self.runtime.contract.retry, work.spent)?;
        let failure = Failure::new(
            Class::Transient,
            "worker_died",
            format!(
                "the process died {} time(s) while this message ran",
                work.spent.deaths
            ),
        );
        Some(self.dispose_as(work, &failure, disposition).await)
    }

    pub(super) async fn run_single(
        &self,
        works: &[Work],
        index: usize,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        let work = &works[index];
        if let Some(fate) = self.bury(work).await {
            tally.fates[index] = fate?;
            return Ok(());
        }
        let handler = self.runtime.handlers.get(&work.row.envelope.message_type);
        let is_claimed = self.runtime.contract.semantics == Semantics::AtMostOnce;
        if (is_claimed || matches!(handler, Some(Handler::Deliver(_))))
            && let Some(fate) = self.end_if_over(work, true).await?
        {
            tally.fates[index] = fate;
            return Ok(());
        }
        let fate = match handler {
            Some(Handler::Call(call)) => Some(self.run_call(work, call.as_ref()).await?),
            Some(Handler::Deliver(deliver)) => {
                Some(self.run_delivery(work, deliver.as_ref()).await?)
            }
            Some(Handler::Local(_) | Handler::Batch(_)) => None,
            None => {
                let failure = Failure::operator("no_handler", "no handler takes this type");
                Some(self.dispose(work, &failure, false).await?)
            }
        };
        if let Some(fate) = fate {
            tally.seen.failures +=
                u32::from(matches!(fate, Fate::Deferred(_) | Fate::Quarantined { .. }));
            tally.fates[index] = fate;
            return Ok(());
        }
        if is_claimed && !self.claim(work).await? {
            tally.seen.duplicates += 1;
            tally.fates[index] = Fate::Finished;
            return Ok(());
        }
        let piece = Piece {
            range: index..index + 1,
        };
        let mut blocked = Blocked::default();
        self.run_piece(works, &piece, 0, &mut blocked, tally)
            .await
            .map(|_| ())
    }

    /// At most once: the ledger row is committed before the handler runs. Returns whether this
    /// was the first time.
    pub(super) async fn claim(&self, work: &Work) -> Result<bool, Stop> {
        let entry = self.entry(work, Ending::Done, None);
        let attempt = async {
            let mut tx = self
                .store
                .begin(Begin {
                    lease: Some(&self.lease),
                })
                .await?;
            // The same message appended twice is tried once: its rows differ in their time.
            let keys = std::slice::from_ref(&entry.key);
            let deferred = deferred_of(std::slice::from_ref(work));
            let request = self.known_request(keys, &deferred);
            let known = self.store.known(&mut tx, request).await?;
            let is_new = known.entries.iter().all(Option::is_none) && known.gone.is_empty();
            let settle = Settle {
                ledger: if is_new {
                    std::slice::from_ref(&entry)
                } else {
                    &[]
                },
                clear: &[work.row.seq],
                ..self.nothing()
            };
            let settled = self.store.settle(&mut tx, settle).await?;
            failure_point!("before-claim-commit");
            self.store.end(tx, End::Commit).await?;
            failure_point!("after-claim");
            Ok::<_, StoreError>(settled.ledger_rows == 1)
        };
        attempt.await.map_err(|error| self.stop_for(&error))
    }

    pub(super) fn entry(&self, work: &Work, ending: Ending, result: Reply) -> LedgerEntry {
        LedgerEntry {
            key: self.ledger_key(work),
            digest: digest_of_row(&work.row),
            ending,
            result,
            aggregate_version: work.row.envelope.aggregate_version,
            aggregate: self.aggregate_of(&work.row),
        }
    }

    /// Runs consecutive messages in one transaction.
    async fn run_piece<'w>(
        &self,
        works: &'w [Work],
        piece: &Piece,
        savepoint_every: u32,
        blocked: &mut Blocked<'w>,
        tally: &mut Tally,
    ) -> Result<PieceEnd, Stop> {
        let mut tries = 0;
        loop {
            let mut attempt = Attempt::new(self, works, piece, savepoint_every, blocked.clone());
            match attempt.run().await {
                PieceRan::Committed => {
                    *blocked = attempt.blocked;
                    tally.apply(attempt.draft);
                    return Ok(PieceEnd::Settled);
                }
                PieceRan::FailedAt(index, failure) if piece.is_single() => {
                    let work = &works[index];
                    let fate = self.dispose(work, &failure, false).await?;
                    tally.seen.failures += 1;
                    tally.fates[index] = fate;
                    return Ok(PieceEnd::Settled);
                }
                PieceRan::Unknown => {
                    let happened = self.record_failures(works, &mut attempt.draft).await?;
                    tally.apply(attempt.draft);
                    if !happened {
                        return Err(Stop::Trouble);
                    }
                    *blocked = attempt.blocked;
                    return Ok(PieceEnd::Settled);
                }
                PieceRan::FailedAt(index, _) => return Ok(PieceEnd::FailedAt(index)),
                PieceRan::Failed if !piece.is_single() => return Ok(PieceEnd::Failed),
                // Someone else did it, or a conflict: the same again finds out.
                PieceRan::Failed | PieceRan::Conflict if tries < CONFLICT_TRIES => tries += 1,
                PieceRan::Failed => return Err(Stop::Trouble),
                // One of them wants what somebody keeps: the others go on without it.
                PieceRan::Conflict if !piece.is_single() => return Ok(PieceEnd::Failed),
                PieceRan::Conflict => {
                    let index = piece.range.start;
                    tally.fates[index] = self.put_off(&works[index]).await?;
                    return Ok(PieceEnd::Settled);
                }
                PieceRan::Stop(stop) => return Err(stop),
            }
        }
    }
}

/// Which of them are deferred.
pub(super) fn deferred_of(works: &[Work]) -> Vec<u64> {
    let deferred = works.iter().filter(|work| work.is_stored);
    deferred.map(|work| work.row.seq).collect()
}

pub(super) fn attempt_of(work: &Work) -> u32 {
    work.spent
        .failures
        .saturating_add(work.spent.deaths)
        .saturating_add(1)
}

/// What the ledger keeps of a rejection: the handler's own outcome, else code and text.
pub(super) fn rejection_of(failure: &Failure) -> Box<str> {
    failure.outcome().map_or_else(
        || {
            let kept = serde_json::json!({ "code": failure.code(), "message": failure.message() });
            kept.to_string().into()
        },
        Into::into,
    )
}
