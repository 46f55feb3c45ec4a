//! One attempt at a piece of a batch: one transaction.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use onceward_core::coalesce::Piece;
use onceward_core::contract::Semantics;
use onceward_core::dispatcher::{Blocked, Fate, Work};
use onceward_core::disposition::decide;
use onceward_core::store::{Begin, End, Mark, Settle, Store, StoreError, StoreErrorKind};
use onceward_core::version::Course;
use onceward_core::{Class, Digest, Ending, Failure, LedgerKey};
use tokio::time::Instant;

use super::execute::{Executor, Ran, Stop, attempt_of, deferred_of, rejection_of};
use super::expiry::{Over, Turn};
use super::runner::Runtime;
use super::tally::{Checkpoint, Draft};
use super::verdict::{Verdict, of_failure, of_store};
use super::versions::Versions;
use super::witness::Part;
use crate::context::Context;
use crate::digest::{digest_of_row, is_same};
use crate::failure_points::failure_point;
use crate::handler::Reply;
use crate::subscription::Handler;

/// How an attempt ended.
pub(super) enum PieceRan {
    Committed,
    /// Whether it committed is not known, and it recorded failures.
    Unknown,
    FailedAt(usize, Failure),
    Failed,
    Conflict,
    Stop(Stop),
}

/// One attempt at a piece.
pub(super) struct Attempt<'e, 'w, S: Store> {
    executor: &'e Executor<S>,
    works: &'w [Work],
    piece: &'e Piece,
    savepoint_every: u32,
    /// The open savepoint.
    checkpoint: Option<Checkpoint>,
    /// Messages below this run under a savepoint each.
    careful_until: usize,
    /// Messages whose identity was seen before.
    seen: BTreeMap<usize, Seen>,
    /// Messages whose deferral is gone, and with it what there was to do.
    gone: Vec<u64>,
    versions: Versions,
    turn: Turn,
    pub(super) blocked: Blocked<'w>,
    /// The same when the open savepoint was set.
    blocked_before: Blocked<'w>,
    pub(super) draft: Draft,
}

/// Where an identity was seen before.
#[derive(Clone, Copy)]
struct Seen {
    /// Earlier in this piece; else in the ledger.
    first: Option<usize>,
    /// With the same payload.
    is_same: bool,
}

impl Seen {
    /// The ledger has the same.
    const AGAIN: Self = Self {
        first: None,
        is_same: true,
    };
}

impl<'e, 'w, S: Store> Attempt<'e, 'w, S> {
    pub(super) fn new(
        executor: &'e Executor<S>,
        works: &'w [Work],
        piece: &'e Piece,
        savepoint_every: u32,
        blocked: Blocked<'w>,
    ) -> Self {
        Self {
            executor,
            works,
            piece,
            savepoint_every: if piece.is_single() {
                0
            } else {
                savepoint_every
            },
            checkpoint: None,
            careful_until: 0,
            seen: BTreeMap::new(),
            gone: Vec::new(),
            versions: Versions::default(),
            turn: Turn::default(),
            blocked,
            blocked_before: Blocked::default(),
            draft: Draft::default(),
        }
    }

    fn runtime(&self) -> &Runtime<S> {
        &self.executor.runtime
    }

    fn store(&self) -> &S {
        &self.executor.store
    }

    pub(super) async fn run(&mut self) -> PieceRan {
        failure_point!("before-begin");
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
        failure_point!("after-begin");
        if let Err(error) = self.look_up(&mut tx).await {
            return self.of_error(error);
        }
        let works = &self.works[self.piece.range.clone()];
        self.turn = match self.executor.turn_of(&mut tx, works).await {
            Ok(turn) => turn,
            Err(error) => return self.of_error(error),
        };
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
                Err(StepFailed::BrokenUnknown) => return PieceRan::Failed,
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

    /// Looks up whose effect is in the ledger already, and whose identity comes twice in this piece.
    async fn look_up(&mut self, tx: &mut S::Tx) -> Result<(), StoreError> {
        let has_ledger = self.executor.has_ledger();
        let is_claimed = self.runtime().contract.semantics == Semantics::AtMostOnce;
        if !(has_ledger || self.executor.drops()) || is_claimed {
            return Ok(());
        }
        let range = self.piece.range.clone();
        let keys: Vec<LedgerKey> = self.works[range.clone()]
            .iter()
            .map(|w| self.executor.ledger_key(w))
            .collect();
        let deferred = deferred_of(&self.works[range.clone()]);
        let request = self.executor.known_request(&keys, &deferred);
        let found = self.store().known(tx, request).await?;
        if !has_ledger {
            // Only what ended in another way than well is there; copies of a message are handled each.
            let known = range.zip(found.entries);
            let known = known.filter_map(|(index, entry)| entry.map(|_| index));
            self.seen = known.map(|index| (index, Seen::AGAIN)).collect();
            return Ok(());
        }
        self.gone = found.gone;
        // Without the time of recording: the same message appended twice is one effect.
        let mut first_of: BTreeMap<_, (usize, Option<Digest>)> = BTreeMap::new();
        for ((index, key), entry) in range.zip(&keys).zip(found.entries) {
            let digest = digest_of_row(&self.works[index].row);
            let key = (
                &key.source,
                &key.message_type,
                &key.identity,
                key.generation,
            );
            let seen = match entry {
                Some(entry) => Seen {
                    first: None,
                    is_same: is_same(entry.digest, digest),
                },
                None => match first_of.get(&key) {
                    Some((first, earlier)) => Seen {
                        first: Some(*first),
                        is_same: is_same(*earlier, digest),
                    },
                    None => {
                        first_of.insert(key, (index, digest));
                        continue;
                    }
                },
            };
            self.seen.insert(index, seen);
        }
        let range = self.piece.range.clone();
        let new = range.filter(|index| !self.seen.contains_key(index));
        let works = new.map(|index| &self.works[index]);
        self.versions = self.executor.versions_of(tx, works).await?;
        Ok(())
    }

    /// Settles a message whose identity was seen before: done already, or a case when its payload
    /// is another one. Where the first has just failed in this piece, it goes back to its place.
    fn settle_seen(&mut self, index: usize, seen: Seen) {
        let work = &self.works[index];
        let is_done = |first| self.draft.fates.contains(&(first, Fate::Finished));
        let fate = if !seen.first.is_none_or(is_done) {
            Fate::Returned
        } else if seen.is_same {
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
            let (record, spent) = (failure.record(), work.spent);
            let reason = "payload_mismatch";
            self.executor
                .case(work, reason, record, spent, &mut self.draft)
        };
        self.put_down(index, fate);
    }

    /// Notes a fate, and what it means for those behind.
    fn put_down(&mut self, index: usize, fate: Fate) {
        let work = &self.works[index];
        let key = self.executor.key_of(work);
        self.blocked.ended(key, &work.row, &fate);
        self.draft.fates.push((index, fate));
    }

    /// Runs the message at `at`, or the run of messages of a batch handler that starts there;
    /// returns where to go on.
    async fn step(&mut self, cx: &mut Context<S>, at: usize) -> Result<usize, StepFailed> {
        let work = &self.works[at];
        if self.blocked.holds(self.executor.key_of(work), &work.row) {
            self.draft.fates.push((at, Fate::Returned));
            return Ok(at + 1);
        }
        if self.gone.contains(&work.row.seq) {
            self.draft.duplicates += 1;
            self.draft.fates.push((at, Fate::Finished));
            return Ok(at + 1);
        }
        if let Some(seen) = self.seen.get(&at).copied() {
            self.settle_seen(at, seen);
            return Ok(at + 1);
        }
        let course = self.versions.course(work);
        let executor = self.executor;
        if let Some(over) = self.over(at)
            && !matches!(course, Course::Refuse { .. })
        {
            return self.expire(cx, at, over, course == Course::Apply).await;
        }
        if let Some(fate) = executor.put_aside(work, course, &mut self.draft) {
            self.put_down(at, fate);
            return Ok(at + 1);
        }
        let message_type = &work.row.envelope.message_type;
        match self.runtime().handlers.get(message_type).cloned() {
            Some(Handler::Local(handler)) => {
                self.set_checkpoint(cx, at).await?;
                cx.turn_to(Arc::clone(&work.row), attempt_of(work));
                let begun = Instant::now();
                // Called inside, so that one that panics at once is caught like any other.
                let running = async { handler.handle(cx, &work.row).await };
                let works = std::slice::from_ref(work);
                let ran = self.executor.run_part(Part::Handler, works, running).await;
                self.draft.handlers += begun.elapsed();
                self.local_ended(cx, at, ran).await
            }
            Some(Handler::Batch(handler)) => {
                let run = self.run_of_type(at);
                let rows: Vec<_> = run.clone().map(|i| &*self.works[i].row).collect();
                if let Some((offset, failure)) = handler.unreadable(&rows) {
                    return Err(StepFailed::Alone(at + offset, failure));
                }
                cx.turn_to(Arc::clone(&work.row), attempt_of(work));
                let begun = Instant::now();
                let running = async { handler.handle(cx, &rows).await };
                let works = &self.works[run.clone()];
                let ran = self.executor.run_part(Part::Handler, works, running).await;
                self.draft.handlers += begun.elapsed();
                self.batch_ended(run, ran)
            }
            _ => {
                let failure = Failure::operator("no_handler", "no handler takes this type");
                Err(StepFailed::Alone(at, failure))
            }
        }
    }

    /// Why the message at `at` is not handled, if it is not. At most once, that was looked at before.
    fn over(&self, at: usize) -> Option<Over> {
        let is_claimed = self.runtime().contract.semantics == Semantics::AtMostOnce;
        let over = self.executor.over(&self.works[at], &self.turn);
        over.filter(|_| !is_claimed)
    }

    async fn expire(
        &mut self,
        cx: &mut Context<S>,
        at: usize,
        over: Over,
        fits: bool,
    ) -> Result<usize, StepFailed> {
        let (executor, work) = (self.executor, &self.works[at]);
        if !executor.has_ledger() {
            // Its ledger has only what ended in another way than well: it may not have been looked up.
            let keys = [executor.ledger_key(work)];
            let own = self.draft.entries.iter().any(|entry| entry.key == keys[0]);
            let mut is_known = own;
            if !executor.drops() {
                let request = executor.known_request(&keys, &[]);
                let found = self.store().known(&mut cx.tx, request).await;
                let found = found.map_err(|error| StepFailed::Ran(self.of_error(error)))?;
                is_known |= found.entries.iter().any(Option::is_some);
            }
            if is_known {
                if work.is_stored {
                    self.draft.clear.push(work.row.seq);
                }
                self.put_down(at, Fate::Finished);
                return Ok(at + 1);
            }
        }
        let (draft, outgoing) = (&mut self.draft, &mut cx.outgoing);
        let fate = executor.expire(work, over, fits, draft, outgoing);
        if fits {
            self.versions.applied(work);
        }
        self.put_down(at, fate);
        Ok(at + 1)
    }

    /// New messages of one type from `at` on that may be applied one after the other.
    fn run_of_type(&self, at: usize) -> Range<usize> {
        let message_type = &self.works[at].row.envelope.message_type;
        let mut ahead = self.versions.clone();
        let end = (at..self.piece.range.end)
            .find(|i| {
                let work = &self.works[*i];
                let is_over = work.row.envelope.message_type != *message_type
                    || self.seen.contains_key(i)
                    || self.gone.contains(&work.row.seq)
                    || self.blocked.holds(self.executor.key_of(work), &work.row)
                    || ahead.course(work) != Course::Apply
                    || self.over(*i).is_some();
                ahead.applied(work);
                is_over
            })
            .unwrap_or(self.piece.range.end);
        at..end
    }

    /// Sets a savepoint before the message at `at` where one is due.
    async fn set_checkpoint(&mut self, cx: &mut Context<S>, at: usize) -> Result<(), StepFailed> {
        if self.savepoint_every == 0 {
            return Ok(());
        }
        if let Some(checkpoint) = &self.checkpoint {
            let is_careful = at < self.careful_until;
            if !is_careful && at - checkpoint.at < self.savepoint_every as usize {
                return Ok(());
            }
            self.mark(cx, Mark::Release).await?;
        }
        self.mark(cx, Mark::Set).await?;
        self.checkpoint = Some(Checkpoint::of(at, &self.draft, &cx.outgoing));
        self.blocked_before = self.blocked.clone();
        Ok(())
    }

    async fn mark(&self, cx: &mut Context<S>, mark: Mark) -> Result<(), StepFailed> {
        let marked = self.store().mark(&mut cx.tx, mark).await;
        marked.map_err(|error| StepFailed::Ran(self.of_error(error)))
    }

    fn succeed(&mut self, index: usize, ending: Ending, reply: Reply) {
        let work = &self.works[index];
        self.versions.applied(work);
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
        ran: Ran<Reply>,
    ) -> Result<usize, StepFailed> {
        let failure = match ran {
            Ran::Returned(Ok(reply)) => {
                self.succeed(index, Ending::Done, reply);
                return Ok(index + 1);
            }
            Ran::Broken(failure) => return Err(StepFailed::Broken(index, failure)),
            Ran::Returned(Err(failure)) => self.judge(index, failure)?,
        };
        if failure.class() == Class::Rejected {
            self.succeed(index, Ending::Rejected, Some(rejection_of(&failure)));
            return Ok(index + 1);
        }
        let Some(checkpoint) = self.checkpoint.take() else {
            return Err(StepFailed::Alone(index, failure));
        };
        self.mark(cx, Mark::RollBack).await?;
        checkpoint.restore(&mut self.draft, &mut cx.outgoing);
        self.versions.restore(&self.draft.entries);
        self.blocked = self.blocked_before.clone();
        if checkpoint.at < index {
            // The others since then run again, each under a savepoint of its own.
            self.careful_until = index + 1;
            return Ok(checkpoint.at);
        }
        let work = &self.works[index];
        let retry = &self.runtime().contract.retry;
        let disposition = decide(retry, work.spent, &failure, false, fastrand::u64(..));
        let executor = self.executor;
        let fate = executor.disposed(work, &failure, disposition, &mut self.draft);
        self.put_down(index, fate);
        Ok(index + 1)
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
            Ran::Broken(_) => return Err(StepFailed::BrokenUnknown),
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
            Verdict::Ended(failure) if self.piece.is_single() => {
                Err(StepFailed::Broken(index, failure))
            }
            Verdict::Ended(_) => Err(StepFailed::Ran(PieceRan::Failed)),
            Verdict::Store(StoreErrorKind::Conflict) => Err(StepFailed::Ran(PieceRan::Conflict)),
            Verdict::Store(_) => Err(StepFailed::Ran(PieceRan::Stop(Stop::Trouble))),
        }
    }

    async fn commit(&mut self, mut cx: Context<S>) -> PieceRan {
        failure_point!("after-effect-before-ledger");
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
            Err(error) => return self.of_error(error),
        }
        failure_point!("after-ledger-before-commit");
        let has_news = !cx.outgoing.is_empty();
        let works = &self.works[self.piece.range.clone()];
        match self.executor.commit(works, cx.tx).await {
            Ok(()) => {
                failure_point!("after-commit");
                if has_news {
                    self.executor.surroundings.ring();
                }
                self.executor.tell_cases(&self.draft.cases).await;
                PieceRan::Committed
            }
            Err(error)
                if error.kind() == StoreErrorKind::CommitUnknown
                    && !(self.draft.defer.is_empty() && self.draft.cases.is_empty()) =>
            {
                PieceRan::Unknown
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
            Verdict::Message(failure) | Verdict::Ended(failure) if self.piece.is_single() => {
                PieceRan::FailedAt(self.piece.range.start, failure)
            }
            Verdict::Message(_) | Verdict::Ended(_) => PieceRan::Failed,
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
    /// One of several failed and the transaction is unusable: asked to roll back, the server would
    /// first go on with what it was given.
    BrokenUnknown,
    /// The attempt is over.
    Ran(PieceRan),
}
