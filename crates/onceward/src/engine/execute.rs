//! Effect transactions: handler, follow-up messages and ledger rows in one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use onceward_core::coalesce::{BatchSeen, Piece, PieceEnd, Plan};
use onceward_core::contract::{OnPoison, Order, Semantics};
use onceward_core::dispatcher::{Batch, Fate, Work};
use onceward_core::disposition::{Disposition, after_death, decide};
use onceward_core::store::{
    Begin, Deferral, DeferralKind, End, Known, Lease, Mark, NewCase, Settle, Store, StoreError,
    StoreErrorKind,
};
use onceward_core::{Class, Digest, Ending, Failure, FailureRecord, LedgerEntry, LedgerKey, Spent};

use super::runner::Runtime;
use super::verdict::{Verdict, of_failure, of_store};
use crate::context::Context;
use crate::digest::digest_of;
use crate::handler::Reply;
use crate::outbox::ring;
use crate::subscription::Handler;

/// Longest error text that is kept, in bytes.
const FAILURE_TEXT_BYTES_MAX: usize = 4_096;
/// How often a piece is tried again at once after a conflict that was nobody's fault.
const CONFLICT_TRIES: u32 = 4;
/// Pause of a subscription whose store is in trouble, in milliseconds; as much again at random.
const TROUBLE_PAUSE_MS: u64 = 250;

/// How a batch ended.
pub(super) struct BatchEnd {
    pub(super) fates: Vec<(u64, Fate)>,
    pub(super) seen: BatchSeen,
    pub(super) pause_ms: Option<u64>,
    pub(super) is_fenced: bool,
}

/// Runs batches of one subscription under one lease.
pub(super) struct Executor<S: Store> {
    pub(super) store: S,
    pub(super) runtime: Arc<Runtime<S>>,
    pub(super) lease: Lease,
    /// Held while a message runs that may kill the process, so that a death names one message.
    pub(super) suspects: Arc<tokio::sync::Mutex<()>>,
}

/// Why a batch stops early: what is left goes back to its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    Trouble,
    Fenced,
}

/// What a transaction will record, applied only when it commits.
#[derive(Default)]
struct Draft {
    entries: Vec<LedgerEntry>,
    clear: Vec<u64>,
    defer: Vec<Deferral>,
    cases: Vec<NewCase>,
    fates: Vec<(usize, Fate)>,
    failures: u32,
    duplicates: u32,
}

/// The fates of a batch as they become known.
pub(super) struct Tally {
    fates: Vec<Fate>,
    seen: BatchSeen,
    started: Instant,
    stop: Option<Stop>,
}

impl Tally {
    fn new(len: usize) -> Self {
        Self {
            fates: vec![Fate::Returned; len],
            seen: BatchSeen::default(),
            started: Instant::now(),
            stop: None,
        }
    }

    fn apply(&mut self, draft: Draft) {
        self.seen.failures += draft.failures;
        self.seen.duplicates += draft.duplicates;
        for (index, fate) in draft.fates {
            self.fates[index] = fate;
        }
    }

    fn end(mut self, works: &[Work]) -> BatchEnd {
        let settled = self
            .fates
            .iter()
            .filter(|fate| **fate != Fate::Returned)
            .count();
        self.seen.messages = u32::try_from(settled).unwrap_or(u32::MAX);
        self.seen.elapsed_us =
            u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        BatchEnd {
            fates: works
                .iter()
                .map(|work| work.token)
                .zip(self.fates)
                .collect(),
            seen: self.seen,
            pause_ms: self
                .stop
                .map(|_| TROUBLE_PAUSE_MS + fastrand::u64(..TROUBLE_PAUSE_MS)),
            is_fenced: matches!(self.stop, Some(Stop::Fenced)),
        }
    }
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
            let failure = Failure::transient("panicked", "the handler panicked");
            Ran::Broken(failure.with_source(std::io::Error::other(text)))
        }
        Err(_) => Ran::Broken(Failure::transient(
            "timed_out",
            format!("the handler took longer than {timeout_ms} ms and was cancelled"),
        )),
    }
}

impl<S: Store> Executor<S> {
    /// Runs a batch to its end.
    pub(super) async fn run(&self, batch: &Batch) -> BatchEnd {
        let works = &batch.works;
        let mut tally = Tally::new(works.len());
        let result = if works.iter().any(|work| work.is_suspect) {
            self.run_suspects(works, &mut tally).await
        } else {
            let plan = Plan::new(works.len());
            self.run_plan(works, plan, batch.use_savepoints, &mut tally)
                .await
        };
        tally.stop = result.err();
        tally.end(works)
    }

    fn has_ledger(&self) -> bool {
        self.runtime.contract.semantics != Semantics::AtLeastOnce
    }

    async fn run_plan(
        &self,
        works: &[Work],
        mut plan: Plan,
        use_savepoints: bool,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        // Keys whose message was deferred or quarantined in this batch: what follows goes back.
        let mut blocked = BTreeSet::new();
        while let Some(piece) = plan.next_piece() {
            let end = if piece.is_single() {
                let index = piece.range.start;
                let work = &works[index];
                if !blocked.contains(self.key_of(work)) {
                    self.run_single(works, index, tally).await?;
                    if matches!(
                        tally.fates[index],
                        Fate::Deferred(_) | Fate::Quarantined { .. }
                    ) {
                        blocked.insert(self.key_of(work));
                    }
                }
                PieceEnd::Settled
            } else {
                self.run_piece(works, &piece, use_savepoints, &mut blocked, tally)
                    .await?
            };
            plan.ended(&piece, end);
        }
        tally.seen.rollbacks += plan.rollbacks();
        Ok(())
    }

    fn key_of<'w>(&self, work: &'w Work) -> &'w str {
        match self.runtime.contract.order {
            Order::Key => work.row.envelope.key(),
            // Never equal to another message's.
            Order::None => &work.row.envelope.id,
        }
    }

    /// Runs messages that may have killed a process, one by one, each with a committed start row.
    async fn run_suspects(&self, works: &[Work], tally: &mut Tally) -> Result<(), Stop> {
        let known = if self.has_ledger() {
            self.known(works).await?
        } else {
            BTreeSet::new()
        };
        let mut blocked = BTreeSet::new();
        for (index, work) in works.iter().enumerate() {
            if blocked.contains(self.key_of(work)) {
                continue;
            }
            if known.contains(&index) {
                // The usual way finds it known and checks its payload.
                self.run_single(works, index, tally).await?;
                continue;
            }
            let _alone = self.suspects.lock().await;
            if after_death(&self.runtime.contract.retry, work.spent).is_none() {
                self.start_row(work).await?;
            }
            let mut started = works.to_vec();
            started[index].is_stored = true;
            let result = self.run_single(&started, index, tally).await;
            if tally.fates[index] == Fate::Returned {
                tally.fates[index] = Fate::Uncertain;
            }
            result?;
            if matches!(
                tally.fates[index],
                Fate::Deferred(_) | Fate::Quarantined { .. }
            ) {
                blocked.insert(self.key_of(work));
            }
        }
        Ok(())
    }

    /// Which messages' effects are there already.
    async fn known(&self, works: &[Work]) -> Result<BTreeSet<usize>, Stop> {
        let keys: Vec<LedgerKey> = works.iter().map(|work| self.ledger_key(work)).collect();
        let look = async {
            let mut tx = self
                .store
                .begin(Begin {
                    lease: Some(&self.lease),
                })
                .await?;
            let known = self.store.known(&mut tx, self.known_request(&keys)).await?;
            self.store.end(tx, End::RollBack).await?;
            Ok::<_, StoreError>(known)
        };
        let known = look.await.map_err(|error| self.stop_for(&error))?;
        let found = known
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.is_some());
        Ok(found.map(|(index, _)| index).collect())
    }

    fn known_request<'a>(&'a self, keys: &'a [LedgerKey]) -> Known<'a> {
        Known {
            subscription: &self.runtime.contract.name,
            identity: self.runtime.identity,
            keys,
        }
    }

    pub(super) fn ledger_key(&self, work: &Work) -> LedgerKey {
        LedgerKey::of(&work.row, self.runtime.identity)
    }

    /// Commits a deferral of kind running: a process that dies now leaves a name.
    pub(super) async fn start_row(&self, work: &Work) -> Result<(), Stop> {
        let deferral = Deferral {
            kind: DeferralKind::Running,
            due_in_ms: None,
            ..self.deferral(work, work.spent, work.failure.clone())
        };
        let settle = Settle {
            defer: &[deferral],
            ..self.nothing()
        };
        self.record(settle)
            .await
            .map_err(|error| self.stop_for(&error))
    }

    pub(super) fn nothing(&self) -> Settle<'_> {
        Settle::nothing(&self.runtime.contract.name, self.runtime.identity)
    }

    /// Records without user code, in a transaction of its own.
    pub(super) async fn record(&self, settle: Settle<'_>) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            let attempt = async {
                let mut tx = self
                    .store
                    .begin(Begin {
                        lease: Some(&self.lease),
                    })
                    .await?;
                self.store.settle(&mut tx, settle.clone()).await?;
                self.store.end(tx, End::Commit).await
            };
            match attempt.await {
                Err(error)
                    if error.kind() == StoreErrorKind::Conflict && tries < CONFLICT_TRIES =>
                {
                    tries += 1;
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

    fn deferral(&self, work: &Work, spent: Spent, failure: Option<FailureRecord>) -> Deferral {
        Deferral {
            seq: work.row.seq,
            slot: work.row.slot,
            key: match self.runtime.contract.order {
                Order::Key => work.row.envelope.key().to_owned(),
                Order::None => format!("seq:{}", work.row.seq),
            },
            kind: DeferralKind::Retry,
            due_in_ms: Some(0),
            spent,
            failure,
        }
    }

    /// What becomes of a failed message: the deferral or the case, and its fate.
    fn disposed(
        &self,
        work: &Work,
        failure: &Failure,
        disposition: Disposition,
        draft: &mut Draft,
    ) -> Fate {
        let record = failure.record().cut(FAILURE_TEXT_BYTES_MAX);
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

    fn case(
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
                reason: "at_most_once_failed".to_owned(),
                spent: work.spent,
            },
            _ => decide(retry, work.spent, failure, can_probe, fastrand::u64(..)),
        };
        self.dispose_as(work, failure, disposition).await
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

    async fn run_single(
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
        if self.runtime.contract.semantics == Semantics::AtMostOnce && !self.claim(work).await? {
            tally.seen.duplicates += 1;
            tally.fates[index] = Fate::Finished;
            return Ok(());
        }
        let piece = Piece {
            range: index..index + 1,
        };
        let mut blocked = BTreeSet::new();
        self.run_piece(works, &piece, false, &mut blocked, tally)
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
            let settle = Settle {
                ledger: std::slice::from_ref(&entry),
                clear: &[work.row.seq],
                ..self.nothing()
            };
            let settled = self.store.settle(&mut tx, settle).await?;
            self.store.end(tx, End::Commit).await?;
            Ok::<_, StoreError>(settled.ledger_rows == 1)
        };
        attempt.await.map_err(|error| self.stop_for(&error))
    }

    pub(super) fn entry(&self, work: &Work, ending: Ending, result: Reply) -> LedgerEntry {
        LedgerEntry {
            key: self.ledger_key(work),
            digest: Some(digest_of(work.row.envelope.payload.as_bytes())),
            ending,
            result,
            aggregate_version: work.row.envelope.aggregate_version,
        }
    }

    /// Runs consecutive messages in one transaction.
    async fn run_piece<'w>(
        &self,
        works: &'w [Work],
        piece: &Piece,
        use_savepoints: bool,
        blocked: &mut BTreeSet<&'w str>,
        tally: &mut Tally,
    ) -> Result<PieceEnd, Stop> {
        let mut tries = 0;
        loop {
            let mut attempt = Attempt {
                executor: self,
                works,
                piece,
                use_savepoints: use_savepoints && !piece.is_single(),
                blocked: blocked.clone(),
                draft: Draft::default(),
                started: Instant::now(),
            };
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
                PieceRan::FailedAt(index, _) => return Ok(PieceEnd::FailedAt(index)),
                PieceRan::Failed if !piece.is_single() => return Ok(PieceEnd::Failed),
                // Someone else did it, or a conflict: the same again finds out.
                PieceRan::Failed | PieceRan::Conflict if tries < CONFLICT_TRIES => tries += 1,
                PieceRan::Failed | PieceRan::Conflict => return Err(Stop::Trouble),
                PieceRan::Stop(stop) => return Err(stop),
            }
        }
    }
}

enum PieceRan {
    Committed,
    FailedAt(usize, Failure),
    Failed,
    Conflict,
    Stop(Stop),
}

/// One attempt at a piece.
struct Attempt<'e, 'w, S: Store> {
    executor: &'e Executor<S>,
    works: &'w [Work],
    piece: &'e Piece,
    use_savepoints: bool,
    blocked: BTreeSet<&'w str>,
    draft: Draft,
    started: Instant,
}

impl<S: Store> Attempt<'_, '_, S> {
    fn runtime(&self) -> &Runtime<S> {
        &self.executor.runtime
    }

    fn store(&self) -> &S {
        &self.executor.store
    }

    async fn run(&mut self) -> PieceRan {
        let begun = self
            .store()
            .begin(Begin {
                lease: Some(&self.executor.lease),
            })
            .await;
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => return self.of_error(error),
        };
        if let Err(error) = self.drop_known(&mut tx).await {
            return self.of_error(error);
        }
        let first = Arc::clone(&self.works[self.piece.range.start].row);
        let mut cx = Context::new(self.store().clone(), tx, first);
        let mut at = self.piece.range.start;
        while at < self.piece.range.end {
            match self.step(&mut cx, at).await {
                Ok(next) => at = next,
                Err(StepFailed::Alone(index, failure)) => {
                    let _ = self.store().end(cx.tx, End::RollBack).await;
                    return PieceRan::FailedAt(index, failure);
                }
                // The transaction is dropped with whatever was in flight in it.
                Err(StepFailed::Broken(index, failure)) => {
                    return PieceRan::FailedAt(index, failure);
                }
                Err(StepFailed::Unknown) => {
                    let _ = self.store().end(cx.tx, End::RollBack).await;
                    return PieceRan::Failed;
                }
                Err(StepFailed::Ran(ran)) => {
                    let _ = self.store().end(cx.tx, End::RollBack).await;
                    return ran;
                }
            }
        }
        self.commit(cx).await
    }

    /// Marks messages whose effect is in the ledger, or earlier in this piece, as finished; one
    /// with another payload under the same identity becomes a case.
    async fn drop_known(&mut self, tx: &mut S::Tx) -> Result<(), StoreError> {
        if !self.executor.has_ledger() || self.runtime().contract.semantics == Semantics::AtMostOnce
        {
            return Ok(());
        }
        let range = self.piece.range.clone();
        let keys: Vec<LedgerKey> = self.works[range.clone()]
            .iter()
            .map(|w| self.executor.ledger_key(w))
            .collect();
        let known = self
            .store()
            .known(tx, self.executor.known_request(&keys))
            .await?;
        let mut first_of: BTreeMap<&LedgerKey, Digest> = BTreeMap::new();
        for ((index, key), entry) in range.zip(&keys).zip(known) {
            let work = &self.works[index];
            let digest = digest_of(work.row.envelope.payload.as_bytes());
            let earlier = match entry {
                Some(entry) => entry.digest.unwrap_or(digest),
                None => match first_of.get(key) {
                    Some(earlier) => *earlier,
                    None => {
                        first_of.insert(key, digest);
                        continue;
                    }
                },
            };
            let fate = if earlier == digest {
                self.draft.duplicates += 1;
                if work.is_stored {
                    self.draft.clear.push(work.row.seq);
                }
                Fate::Finished
            } else {
                self.draft.failures += 1;
                let failure = Failure::permanent(
                    "payload_mismatch",
                    "the ledger holds this identity with another payload",
                );
                let executor = self.executor;
                let (record, spent) = (failure.record(), work.spent);
                executor.case(work, "payload_mismatch", record, spent, &mut self.draft)
            };
            self.draft.fates.push((index, fate));
        }
        Ok(())
    }

    fn is_decided(&self, index: usize) -> bool {
        self.draft
            .fates
            .iter()
            .any(|(decided, _)| *decided == index)
    }

    /// Runs the message at `at`, or the run of messages of a batch handler that starts there;
    /// returns where to go on.
    async fn step(&mut self, cx: &mut Context<S>, at: usize) -> Result<usize, StepFailed> {
        let work = &self.works[at];
        if self.is_decided(at) {
            return Ok(at + 1);
        }
        let key = self.executor.key_of(work);
        if self.blocked.contains(key) {
            self.draft.fates.push((at, Fate::Returned));
            return Ok(at + 1);
        }
        let message_type = &work.row.envelope.message_type;
        match self.runtime().handlers.get(message_type).cloned() {
            Some(Handler::Local(handler)) => {
                if self.use_savepoints {
                    self.mark(cx, Mark::Set).await?;
                }
                let outgoing = cx.outgoing.len();
                cx.turn_to(Arc::clone(&work.row), attempt_of(work));
                let timeout_ms = self.runtime().contract.timeout_ms;
                let ran = guarded(timeout_ms, handler.handle(cx, &work.row)).await;
                self.local_ended(cx, at, outgoing, ran).await?;
                Ok(at + 1)
            }
            Some(Handler::Batch(handler)) => {
                let run = self.run_of_type(at);
                let rows: Vec<_> = run.clone().map(|i| &*self.works[i].row).collect();
                if let Some((offset, failure)) = handler.unreadable(&rows) {
                    return Err(StepFailed::Alone(at + offset, failure));
                }
                cx.turn_to(Arc::clone(&work.row), attempt_of(work));
                let timeout_ms = self.runtime().contract.timeout_ms;
                let ran = guarded(timeout_ms, handler.handle(cx, &rows)).await;
                self.batch_ended(run, ran)
            }
            _ => {
                let failure = Failure::operator("no_handler", "no handler takes this type");
                Err(StepFailed::Alone(at, failure))
            }
        }
    }

    /// Undecided messages of one type from `at` on, without a gap.
    fn run_of_type(&self, at: usize) -> Range<usize> {
        let message_type = &self.works[at].row.envelope.message_type;
        let end = (at..self.piece.range.end)
            .find(|i| {
                let work = &self.works[*i];
                work.row.envelope.message_type != *message_type
                    || self.is_decided(*i)
                    || self.blocked.contains(self.executor.key_of(work))
            })
            .unwrap_or(self.piece.range.end);
        at..end
    }

    async fn mark(&self, cx: &mut Context<S>, mark: Mark) -> Result<(), StepFailed> {
        let marked = self.store().mark(&mut cx.tx, mark).await;
        marked.map_err(|error| StepFailed::Ran(self.of_error(error)))
    }

    fn succeed(&mut self, index: usize, ending: Ending, reply: Reply) {
        let work = &self.works[index];
        // At most once, the row was written before.
        if self.runtime().contract.semantics == Semantics::EffectOnce {
            let entry = self.executor.entry(work, ending, reply);
            self.draft.entries.push(entry);
        }
        if work.is_stored {
            self.draft.clear.push(work.row.seq);
        }
        self.draft.fates.push((index, Fate::Finished));
    }

    async fn local_ended(
        &mut self,
        cx: &mut Context<S>,
        index: usize,
        outgoing: usize,
        ran: Ran<Reply>,
    ) -> Result<(), StepFailed> {
        let failure = match ran {
            Ran::Returned(Ok(reply)) => {
                self.succeed(index, Ending::Done, reply);
                return Ok(());
            }
            Ran::Broken(failure) => return Err(StepFailed::Broken(index, failure)),
            Ran::Returned(Err(failure)) => self.judge(index, failure)?,
        };
        if failure.class() == Class::Rejected {
            self.succeed(index, Ending::Rejected, Some(rejection_of(&failure)));
            return Ok(());
        }
        if !self.use_savepoints {
            return Err(StepFailed::Alone(index, failure));
        }
        self.mark(cx, Mark::RollBack).await?;
        cx.outgoing.truncate(outgoing);
        let work = &self.works[index];
        let retry = &self.runtime().contract.retry;
        let disposition = decide(retry, work.spent, &failure, false, fastrand::u64(..));
        let executor = self.executor;
        let fate = executor.disposed(work, &failure, disposition, &mut self.draft);
        self.blocked
            .insert(self.executor.key_of(&self.works[index]));
        self.draft.fates.push((index, fate));
        Ok(())
    }

    fn batch_ended(
        &mut self,
        run: Range<usize>,
        ran: Ran<Vec<Reply>>,
    ) -> Result<usize, StepFailed> {
        let is_single = run.len() == 1;
        let failure = match ran {
            Ran::Returned(Ok(replies)) if replies.len() == run.len() => {
                for (index, reply) in run.clone().zip(replies) {
                    self.succeed(index, Ending::Done, reply);
                }
                return Ok(run.end);
            }
            Ran::Returned(Ok(_)) => Failure::permanent(
                "batch_results",
                "the batch handler must return one result for each message",
            ),
            Ran::Broken(failure) if is_single => {
                return Err(StepFailed::Broken(run.start, failure));
            }
            Ran::Broken(_) => return Err(StepFailed::Ran(PieceRan::Failed)),
            Ran::Returned(Err(failure)) => self.judge(run.start, failure)?,
        };
        if is_single && failure.class() == Class::Rejected {
            self.succeed(run.start, Ending::Rejected, Some(rejection_of(&failure)));
            return Ok(run.end);
        }
        if is_single && self.piece.is_single() {
            return Err(StepFailed::Alone(run.start, failure));
        }
        Err(StepFailed::Unknown)
    }

    /// Separates the message's own failures from the store's.
    fn judge(&self, index: usize, failure: Failure) -> Result<Failure, StepFailed> {
        match of_failure(self.store(), failure) {
            Verdict::Message(failure) => Ok(failure),
            Verdict::Fenced => Err(StepFailed::Ran(PieceRan::Stop(Stop::Fenced))),
            // The server ends a transaction that idles past the lease: that is the handler's doing.
            Verdict::Store(_) if self.has_overstayed() => {
                let failure = Failure::transient(
                    "transaction_idle",
                    "the handler kept its transaction idle past the lease and was ended",
                );
                Err(StepFailed::Broken(index, failure))
            }
            Verdict::Store(StoreErrorKind::Conflict) => Err(StepFailed::Ran(PieceRan::Conflict)),
            Verdict::Store(_) => Err(StepFailed::Ran(PieceRan::Stop(Stop::Trouble))),
        }
    }

    fn has_overstayed(&self) -> bool {
        self.started.elapsed() >= Duration::from_millis(self.executor.lease.lease_ms)
    }

    async fn commit(&mut self, mut cx: Context<S>) -> PieceRan {
        let draft = &self.draft;
        let settle = Settle {
            ledger: &draft.entries,
            defer: &draft.defer,
            clear: &draft.clear,
            cases: &draft.cases,
            append: &cx.outgoing,
            ..self.executor.nothing()
        };
        let expected = draft.entries.len() as u64;
        match self.store().settle(&mut cx.tx, settle).await {
            Ok(settled) if settled.ledger_rows == expected => {}
            // Someone else did some of this work.
            Ok(_) => {
                let _ = self.store().end(cx.tx, End::RollBack).await;
                return PieceRan::Failed;
            }
            Err(error) => {
                let index = self.piece.range.start;
                if self.has_overstayed() && error.kind().is_passing() && self.piece.is_single() {
                    let failure = Failure::transient(
                        "transaction_idle",
                        "the handler kept its transaction idle past the lease and was ended",
                    );
                    return PieceRan::FailedAt(index, failure);
                }
                return self.of_error(error);
            }
        }
        let has_news = !cx.outgoing.is_empty();
        match self.store().end(cx.tx, End::Commit).await {
            Ok(()) => {
                if has_news {
                    ring();
                }
                PieceRan::Committed
            }
            Err(error) => self.of_error(error),
        }
    }

    fn of_error(&self, error: StoreError) -> PieceRan {
        if error.kind() == StoreErrorKind::Conflict {
            return PieceRan::Conflict;
        }
        if error.kind().is_passing() || error.kind() == StoreErrorKind::Fenced {
            return PieceRan::Stop(self.executor.stop_for(&error));
        }
        match of_store(error) {
            Verdict::Message(failure) if self.piece.is_single() => {
                PieceRan::FailedAt(self.piece.range.start, failure)
            }
            Verdict::Message(_) => PieceRan::Failed,
            Verdict::Store(_) => PieceRan::Stop(Stop::Trouble),
            Verdict::Fenced => PieceRan::Stop(Stop::Fenced),
        }
    }
}

enum StepFailed {
    /// This message failed, the transaction can be rolled back.
    Alone(usize, Failure),
    /// This message failed and the transaction is unusable.
    Broken(usize, Failure),
    /// One of several failed.
    Unknown,
    /// The attempt is over.
    Ran(PieceRan),
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
