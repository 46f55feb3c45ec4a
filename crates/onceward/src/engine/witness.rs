//! A witness of user code, for tests: it sees each moment of a run and may keep it from going on.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use onceward_core::dispatcher::Work;
use onceward_core::store::{End, Store, StoreError};
use onceward_core::{Failure, FailureRecord, Row};

use super::execute::{Executor, Ran, attempt_of, guarded};
use crate::handler::Boxed;

/// User code that an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// A handler, of one message or of many.
    Handler,
    /// A call outside.
    Call,
    /// Asking what became of a call.
    Probe,
    /// Writing what a call's answer means.
    Outcome,
    /// Handing a message on.
    Delivery,
}

/// A moment of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// User code is about to be called.
    Starts(Part),
    /// User code waits for something, for the so-manieth time in this run; 1 is the first.
    Waits(Part, u32),
    /// User code has ended, with a failure or without; nothing of it is committed yet.
    Ended(Part, Option<FailureRecord>),
    /// Everything is written and about to be committed. An error here stands for a commit that
    /// the database refused.
    Commits,
    /// It is committed. An error here stands for a lost answer.
    Committed,
}

/// What a witness sees.
#[derive(Clone, Debug)]
pub struct Sight {
    /// The subscription.
    pub subscription: String,
    /// The messages that it is about, each with its attempt (1 for the first); at a commit, all
    /// that share it.
    pub messages: Vec<(Arc<Row>, u32)>,
    /// The moment.
    pub moment: Moment,
}

/// Sees each moment of the attempts of an engine, by [`Surroundings::watched_by`]; in tests.
///
/// [`Surroundings::watched_by`]: super::Surroundings::watched_by
pub trait Witness: Send + Sync + 'static {
    /// Called at each moment; the attempt goes on when it returns, so one that never returns is a
    /// process that died there. Errors count at [`Moment::Commits`] and [`Moment::Committed`].
    fn at(&self, sight: Sight) -> Boxed<'_, Result<(), StoreError>>;
}

impl<S: Store> Executor<S> {
    fn sight(&self, works: &[Work], moment: Moment) -> Sight {
        Sight {
            subscription: self.runtime.contract.name.clone(),
            messages: works
                .iter()
                .map(|work| (Arc::clone(&work.row), attempt_of(work)))
                .collect(),
            moment,
        }
    }

    /// Runs user code under its timeout, catching panics.
    pub(super) async fn run_part<T>(
        &self,
        part: Part,
        works: &[Work],
        running: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Ran<T> {
        let timeout_ms = self.runtime.contract.timeout_ms;
        let Some(witness) = self.surroundings.witness() else {
            return guarded(timeout_ms, running).await;
        };
        // Only a commit has a result that a witness can change.
        let _ = witness.at(self.sight(works, Moment::Starts(part))).await;
        let at_wait = |waits| witness.at(self.sight(works, Moment::Waits(part, waits)));
        let ran = guarded(timeout_ms, pausing(running, at_wait)).await;
        let failure = match &ran {
            Ran::Returned(Ok(_)) => None,
            Ran::Returned(Err(failure)) | Ran::Broken(failure) => Some(failure.record()),
        };
        let moment = Moment::Ended(part, failure);
        let _ = witness.at(self.sight(works, moment)).await;
        ran
    }

    /// Commits what user code and engine have written for these messages.
    pub(super) async fn commit(&self, works: &[Work], tx: S::Tx) -> Result<(), StoreError> {
        let Some(witness) = self.surroundings.witness() else {
            return self.store.end(tx, End::Commit).await;
        };
        witness.at(self.sight(works, Moment::Commits)).await?;
        self.store.end(tx, End::Commit).await?;
        witness.at(self.sight(works, Moment::Committed)).await
    }
}

/// Lets the witness look each time that a future waits.
async fn pausing<'w, T>(
    running: impl Future<Output = T>,
    at_wait: impl Fn(u32) -> Boxed<'w, Result<(), StoreError>>,
) -> T {
    let mut running = pin!(running);
    let (mut waits, mut looking) = (0, None::<Boxed<'w, _>>);
    poll_fn(move |context| {
        loop {
            if let Some(look) = &mut looking {
                match look.as_mut().poll(context) {
                    Poll::Ready(_) => looking = None,
                    Poll::Pending => return Poll::Pending,
                }
                // Polled before it looked, and nothing has been lost since: it will be woken.
                if waits > 0 {
                    return Poll::Pending;
                }
            }
            match running.as_mut().poll(context) {
                Poll::Ready(done) => return Poll::Ready(done),
                Poll::Pending => {
                    waits += 1;
                    looking = Some(at_wait(waits));
                }
            }
        }
    })
    .await
}
