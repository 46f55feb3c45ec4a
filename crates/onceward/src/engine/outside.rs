//! Effects outside the database: calls with a probe, and deliveries.
//!
//! No transaction is open while the other side works. Before a call a deferral of kind running is
//! committed: it is the intent. What is found there after a crash, or after an end that nobody
//! knows, is probed before any new attempt.

use std::time::Duration;

use onceward_core::contract::Semantics;
use onceward_core::dispatcher::{Fate, Work};
use onceward_core::store::{Begin, End, Settle, Store, StoreErrorKind};
use onceward_core::{Class, Ending, Failure};

use super::execute::{Executor, Ran, Stop, attempt_of, rejection_of};
use super::verdict::{Verdict, of_failure, of_store};
use super::witness::Part;
use crate::context::Context;
use crate::failure_points::failure_point;
use crate::handler::{AnyAnswer, AnyDeliver, CallHandler, Delivery, Probe, Reply};

/// How often an outcome is tried again while its answer is at hand.
const OUTCOME_TRIES: u32 = 5;

enum Outcome {
    Committed,
    Failed(Failure),
    /// The ledger had it already.
    Known,
}

impl<S: Store> Executor<S> {
    pub(super) async fn run_call(
        &self,
        work: &Work,
        call: &dyn CallHandler<S>,
    ) -> Result<Fate, Stop> {
        if self.is_known(work).await? {
            return self.finish(work).await;
        }
        // Nobody can call with it, nor ask about an earlier call.
        if let Some(failure) = call.unreadable(&work.row) {
            return self.dispose(work, &failure, false).await;
        }
        let happened = if work.must_probe {
            match self.probe(work, call).await? {
                Ok(answer) => answer,
                Err(fate) => return Ok(fate),
            }
        } else {
            None
        };
        let answer = match happened {
            Some(answer) => Ok(answer),
            None => match self.put_aside_before_call(work).await? {
                Some(fate) => return Ok(fate),
                None => self.call(work, call).await?,
            },
        };
        let fate = match answer {
            Ok(answer) => self.conclude(work, call, answer).await,
            Err(failure) if failure.class() == Class::Rejected => {
                let reply = Some(rejection_of(&failure));
                self.reject(work, reply).await
            }
            Err(failure) => self.dispose_asked(work, &failure, call.can_probe()).await,
        };
        match fate {
            // The intent is there and the call was made, but not what became of it.
            Err(Stop::Trouble) => Ok(Fate::Uncertain),
            fate => fate,
        }
    }

    async fn is_known(&self, work: &Work) -> Result<bool, Stop> {
        if self.runtime.contract.semantics == Semantics::AtLeastOnce {
            return Ok(false);
        }
        let known = self.known(std::slice::from_ref(work)).await?;
        Ok(!known.is_empty())
    }

    /// Clears what is deferred of a message whose effect is there.
    pub(super) async fn finish(&self, work: &Work) -> Result<Fate, Stop> {
        if work.is_stored {
            let settle = Settle {
                clear: &[work.row.seq],
                ..self.nothing()
            };
            self.record(settle)
                .await
                .map_err(|error| self.stop_for(&error))?;
        }
        Ok(Fate::Finished)
    }

    /// Looks what became of an earlier attempt: an answer, nothing, or the fate that follows when
    /// it cannot be told.
    async fn probe(
        &self,
        work: &Work,
        call: &dyn CallHandler<S>,
    ) -> Result<Result<Option<AnyAnswer>, Fate>, Stop> {
        failure_point!("before-probe");
        let running = async { call.probe(&work.row).await };
        let failure = match self.ask(Part::Probe, work, running).await {
            Ran::Returned(Ok(Probe::Happened(answer))) => return Ok(Ok(Some(answer))),
            Ran::Returned(Ok(Probe::DidNotHappen)) => return Ok(Ok(None)),
            // Somebody looked before releasing it.
            Ran::Returned(Ok(Probe::Unsupported)) if work.is_released => return Ok(Ok(None)),
            Ran::Returned(Ok(Probe::Unsupported)) => {
                let failure = Failure::ambiguous(
                    "no_probe",
                    "an earlier attempt may have had its effect and nobody can tell",
                );
                return Ok(Err(self.dispose(work, &failure, false).await?));
            }
            Ran::Returned(Err(failure)) | Ran::Broken(failure) => failure,
        };
        // It is still unknown what the earlier attempt did: whatever the probe's own failure was,
        // the next attempt begins with a probe again.
        let unknown = Failure::ambiguous("probe_failed", "the probe itself failed")
            .with_source(std::io::Error::other(failure.to_string()));
        Ok(Err(self.dispose_asked(work, &unknown, true).await?))
    }

    async fn call(
        &self,
        work: &Work,
        call: &dyn CallHandler<S>,
    ) -> Result<Result<AnyAnswer, Failure>, Stop> {
        failure_point!("before-intent");
        self.start_rows(std::slice::from_ref(work)).await?;
        failure_point!("after-intent");
        let running = async { call.call(&work.row).await };
        Ok(match self.ask(Part::Call, work, running).await {
            Ran::Returned(result) => result,
            // Nobody knows how far it came.
            Ran::Broken(failure) => Err(Failure::ambiguous(
                failure.code().to_owned(),
                format!("{}; the other side may have done it", failure.message()),
            )),
        })
    }

    /// Writes the outcome of an answered call. The answer is not asked for again while it is at
    /// hand; when the store stays in trouble the next attempt begins with a probe.
    async fn conclude(
        &self,
        work: &Work,
        call: &dyn CallHandler<S>,
        answer: AnyAnswer,
    ) -> Result<Fate, Stop> {
        failure_point!("after-answer");
        // The answer is consumed by the first try; later tries get it again from the probe.
        let mut answer = Some(answer);
        for tries in 0..OUTCOME_TRIES {
            let at_hand = match answer.take() {
                Some(answer) => answer,
                None => {
                    tokio::time::sleep(Duration::from_millis(50 << tries)).await;
                    // The last try may have been committed all the same: then a probe that fails
                    // would make a case of what is done.
                    if self.is_known(work).await? {
                        return self.finish(work).await;
                    }
                    match self.probe(work, call).await? {
                        Ok(Some(answer)) => answer,
                        Ok(None) => return Ok(Fate::Uncertain),
                        Err(fate) => return Ok(fate),
                    }
                }
            };
            match self.outcome(work, call, at_hand).await {
                Ok(Outcome::Committed) => return Ok(Fate::Finished),
                Ok(Outcome::Known) => return self.finish(work).await,
                Ok(Outcome::Failed(failure)) if failure.class() == Class::Transient => {
                    // The call itself succeeded: what failed is only its outcome, so the next
                    // attempt has to begin with a probe.
                    let failure = Failure::ambiguous("outcome_failed", failure.message())
                        .with_source(std::io::Error::other(failure.to_string()));
                    return self.dispose(work, &failure, call.can_probe()).await;
                }
                Ok(Outcome::Failed(failure)) => {
                    return self.dispose(work, &failure, call.can_probe()).await;
                }
                Err(Stop::Fenced) => return Err(Stop::Fenced),
                Err(Stop::Trouble) => {}
            }
        }
        Ok(Fate::Uncertain)
    }

    async fn outcome(
        &self,
        work: &Work,
        call: &dyn CallHandler<S>,
        answer: AnyAnswer,
    ) -> Result<Outcome, Stop> {
        let begun = self
            .store
            .begin(Begin {
                lease: Some(&self.lease),
            })
            .await;
        let tx = begun.map_err(|error| self.stop_for(&error))?;
        let mut cx = Context::new(self.store.clone(), tx, std::sync::Arc::clone(&work.row));
        cx.turn_to(std::sync::Arc::clone(&work.row), attempt_of(work));
        let running = async { call.outcome(&mut cx, &work.row, answer).await };
        let works = std::slice::from_ref(work);
        let (ending, reply) = match self.run_part(Part::Outcome, works, running).await {
            Ran::Returned(Ok(reply)) => (Ending::Done, reply),
            Ran::Broken(failure) => return Ok(Outcome::Failed(failure)),
            Ran::Returned(Err(failure)) => match of_failure(&self.store, failure) {
                Verdict::Message(failure) if failure.class() == Class::Rejected => {
                    (Ending::Rejected, Some(rejection_of(&failure)))
                }
                Verdict::Message(failure) | Verdict::Ended(failure) => {
                    let _ = self.store.end(cx.tx, End::RollBack).await;
                    return Ok(Outcome::Failed(failure));
                }
                Verdict::Fenced => return Err(Stop::Fenced),
                Verdict::Store(_) => return Err(Stop::Trouble),
            },
        };
        self.commit_outcome(work, cx, ending, reply).await
    }

    async fn commit_outcome(
        &self,
        work: &Work,
        mut cx: Context<S>,
        ending: Ending,
        reply: Reply,
    ) -> Result<Outcome, Stop> {
        let entries = match (self.runtime.contract.semantics, ending) {
            // A success of this kind needs no row: done means that the position is past it.
            (Semantics::AtLeastOnce, Ending::Done) => Vec::new(),
            _ => vec![self.entry(work, ending, reply)],
        };
        let settle = Settle {
            ledger: &entries,
            clear: &[work.row.seq],
            append: &cx.outgoing,
            ..self.nothing()
        };
        let settled = match self.store.settle(&mut cx.tx, settle).await {
            Ok(settled) => settled,
            Err(error) => {
                return match of_store(error) {
                    Verdict::Message(failure) | Verdict::Ended(failure) => {
                        Ok(Outcome::Failed(failure))
                    }
                    Verdict::Fenced => Err(Stop::Fenced),
                    Verdict::Store(_) => Err(Stop::Trouble),
                };
            }
        };
        if settled.ledger_rows < entries.len() as u64 {
            let _ = self.store.end(cx.tx, End::RollBack).await;
            return Ok(Outcome::Known);
        }
        failure_point!("before-outcome-commit");
        match self.commit(std::slice::from_ref(work), cx.tx).await {
            Ok(()) => {
                failure_point!("after-outcome");
                if !cx.outgoing.is_empty() {
                    self.surroundings.ring();
                }
                Ok(Outcome::Committed)
            }
            Err(error) if error.kind() == StoreErrorKind::CommitUnknown => {
                if self.is_known(work).await? {
                    Ok(Outcome::Known)
                } else {
                    Err(Stop::Trouble)
                }
            }
            Err(error) => Err(self.stop_for(&error)),
        }
    }

    /// Keeps a rejection that the other side gave, with every kind of semantics: without its row it
    /// would look like a success.
    async fn reject(&self, work: &Work, reply: Reply) -> Result<Fate, Stop> {
        let entries = [self.entry(work, Ending::Rejected, reply)];
        let settle = Settle {
            ledger: &entries,
            clear: &[work.row.seq],
            ..self.nothing()
        };
        self.record(settle)
            .await
            .map_err(|error| self.stop_for(&error))?;
        Ok(Fate::Finished)
    }

    pub(super) async fn run_delivery(
        &self,
        work: &Work,
        deliver: &dyn AnyDeliver,
    ) -> Result<Fate, Stop> {
        let is_at_most_once = self.runtime.contract.semantics == Semantics::AtMostOnce;
        if is_at_most_once && !self.claim(work).await? {
            return Ok(Fate::Finished);
        }
        let delivery = Delivery {
            subscription: &self.runtime.contract.name,
            row: &work.row,
            attempt: attempt_of(work),
        };
        let running = async { deliver.deliver(&delivery).await };
        let failure = match self.ask(Part::Delivery, work, running).await {
            Ran::Returned(Ok(())) => {
                failure_point!("after-delivery");
                return self.finish(work).await;
            }
            Ran::Returned(Err(failure)) | Ran::Broken(failure) => failure,
        };
        if failure.class() == Class::Rejected {
            return self.reject(work, Some(rejection_of(&failure))).await;
        }
        self.dispose_asked(work, &failure, false).await
    }

    /// Runs user code that asks the other side, and notes how that one fares.
    async fn ask<T>(
        &self,
        part: Part,
        work: &Work,
        running: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Ran<T> {
        let asked = self.dependency.ask();
        let ran = self
            .run_part(part, std::slice::from_ref(work), running)
            .await;
        let failure = match &ran {
            Ran::Returned(Ok(_)) => None,
            Ran::Returned(Err(failure)) | Ran::Broken(failure) => Some(failure),
        };
        asked.answered(work.row.seq, failure);
        ran
    }
}
