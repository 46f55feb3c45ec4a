//! One attempt at a piece of a batch: one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use onceward_core::coalesce::Piece;
use onceward_core::contract::Semantics;
use onceward_core::dispatcher::{Fate, Work};
use onceward_core::disposition::decide;
use onceward_core::store::{Begin, End, Mark, Settle, Store, StoreError, StoreErrorKind};
use onceward_core::{Class, Digest, Ending, Failure, LedgerKey};

use super::execute::{Executor, Ran, Stop, attempt_of, guarded, rejection_of};
use super::runner::Runtime;
use super::tally::{Checkpoint, Draft};
use super::verdict::{Verdict, of_failure, of_store};
use crate::context::Context;
use crate::digest::digest_of;
use crate::handler::Reply;
use crate::subscription::Handler;

/// How an attempt ended.
pub(super) enum PieceRan {
    Committed,
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
    pub(super) blocked: BTreeSet<&'w str>,
    pub(super) draft: Draft,
}

impl<'e, 'w, S: Store> Attempt<'e, 'w, S> {
    pub(super) fn new(
        executor: &'e Executor<S>,
        works: &'w [Work],
        piece: &'e Piece,
        savepoint_every: u32,
        blocked: BTreeSet<&'w str>,
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
            blocked,
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
                self.set_checkpoint(cx, at).await?;
                cx.turn_to(Arc::clone(&work.row), attempt_of(work));
                let timeout_ms = self.runtime().contract.timeout_ms;
                let ran = guarded(timeout_ms, handler.handle(cx, &work.row)).await;
                self.local_ended(cx, at, ran).await
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
        Ok(())
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
        self.blocked.insert(executor.key_of(work));
        self.draft.fates.push((index, fate));
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
            Verdict::Ended(failure) if self.piece.is_single() => {
                Err(StepFailed::Broken(index, failure))
            }
            Verdict::Ended(_) => Err(StepFailed::Ran(PieceRan::Failed)),
            Verdict::Store(StoreErrorKind::Conflict) => Err(StepFailed::Ran(PieceRan::Conflict)),
            Verdict::Store(_) => Err(StepFailed::Ran(PieceRan::Stop(Stop::Trouble))),
        }
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
            Err(error) => return self.of_error(error),
        }
        let has_news = !cx.outgoing.is_empty();
        match self.store().end(cx.tx, End::Commit).await {
            Ok(()) => {
                if has_news {
                    self.executor.surroundings.ring();
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
    /// The attempt is over.
    Ran(PieceRan),
}
