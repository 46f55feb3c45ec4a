//! Work that is not handled when its turn comes: it has become useless, or it is shed. Judged by the
//! database's clock.

use onceward_core::dispatcher::{Fate, Work};
use onceward_core::expiry::{EXPIRED, Expired, expired, handed_over, over_at};
use onceward_core::shed::{Paused, shed, waited_ms};
use onceward_core::store::{Begin, End, Pauses, Settle, Store, StoreError};
use onceward_core::{Ending, Envelope, FailureRecord, Timestamp};

use super::execute::{Executor, Stop, deferred_of, rejection_of};
use super::tally::Draft;

/// What a message's end is judged by, where one of a batch may have one.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The database's time.
    now: Option<Timestamp>,
    /// When the subscription was paused, as far back as it matters.
    pauses: Vec<Paused>,
}

/// Why a message is not handled at its turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Over {
    /// Its time was over then.
    At(Timestamp),
    /// Its turn came late.
    Late {
        /// After so long, in milliseconds.
        waited_ms: u64,
        /// It was to come within this, in milliseconds.
        after_ms: u64,
    },
}

impl<S: Store> Executor<S> {
    /// When a message is over, if it ever is and it was said what follows. One that somebody runs
    /// again, or released although it was over, is not.
    fn over_at(&self, work: &Work) -> Option<Timestamp> {
        let is_over = |failure: &FailureRecord| failure.code == EXPIRED;
        let is_let_through = work.is_released && work.failure.as_ref().is_some_and(is_over);
        let is_kept = self.runtime.contract.expired == Expired::Keep;
        if is_kept || is_let_through || work.generation > 0 {
            return None;
        }
        let row = &work.row;
        let useful_for_ms = self.runtime.useful_for.get(&row.envelope.message_type);
        over_at(row, useful_for_ms.copied())
    }

    /// After how long a message is shed, if it ever is, in milliseconds. What was tried is not.
    fn shed_after_ms(&self, work: &Work) -> Option<u64> {
        let policy = self.runtime.contract.shed.as_ref()?;
        let is_of_low_value = policy.types.contains(&work.row.envelope.message_type);
        (is_of_low_value && work.is_untried()).then_some(policy.after_ms)
    }

    /// What the ends of some messages are judged by. Nothing is asked where none has one.
    pub(super) async fn turn_of(&self, tx: &mut S::Tx, works: &[Work]) -> Result<Turn, StoreError> {
        let has_end =
            |work: &Work| self.over_at(work).is_some() || self.shed_after_ms(work).is_some();
        if !works.iter().any(has_end) {
            return Ok(Turn::default());
        }
        let now = self.store.time(tx).await?;
        let late = works.iter().filter(|work| {
            let waited_ms = waited_ms(work.row.recorded_at, now, &[]);
            self.shed_after_ms(work)
                .is_some_and(|after_ms| waited_ms > after_ms)
        });
        let pauses = match late.map(|work| work.row.recorded_at).min() {
            None => Vec::new(),
            Some(since) => {
                let subscription = &self.runtime.contract.name;
                let request = Pauses {
                    subscription,
                    since,
                };
                self.store.pauses(tx, request).await?
            }
        };
        Ok(Turn {
            now: Some(now),
            pauses,
        })
    }

    /// Why a message is not handled, if it is not.
    pub(super) fn over(&self, work: &Work, turn: &Turn) -> Option<Over> {
        let now = turn.now?;
        if let Some(at) = self.over_at(work).filter(|at| now >= *at) {
            return Some(Over::At(at));
        }
        let after_ms = self.shed_after_ms(work)?;
        let waited_ms = waited_ms(work.row.recorded_at, now, &turn.pauses);
        (waited_ms > after_ms).then_some(Over::Late {
            waited_ms,
            after_ms,
        })
    }

    /// What becomes of a message that is over. Its version counts as dealt with only where it
    /// `fits`: what it leaves out may come still.
    pub(super) fn expire(
        &self,
        work: &Work,
        over: Over,
        fits: bool,
        draft: &mut Draft,
        outgoing: &mut Vec<Envelope>,
    ) -> Fate {
        let (ending, failure) = match over {
            Over::At(at) => (Ending::Expired, expired(at)),
            Over::Late {
                waited_ms,
                after_ms,
            } => (Ending::Shed, shed(waited_ms, after_ms)),
        };
        let is_expired = ending == Ending::Expired;
        if is_expired && self.runtime.contract.expired == Expired::Quarantine {
            draft.failures += 1;
            return self.case(work, EXPIRED, failure.record(), work.spent, draft);
        }
        let mut entry = self.entry(work, ending, Some(rejection_of(&failure)));
        entry.aggregate = entry.aggregate.filter(|_| fits);
        draft.entries.push(entry);
        if work.is_stored {
            draft.clear.push(work.row.seq);
        }
        if is_expired && matches!(self.runtime.contract.expired, Expired::Fallback(_)) {
            outgoing.push(handed_over(&work.row));
        }
        Fate::Finished
    }

    /// Ends a message by itself if it is over: before the other side is asked, or before it is
    /// claimed.
    pub(super) async fn end_if_over(&self, work: &Work, fits: bool) -> Result<Option<Fate>, Stop> {
        if self.over_at(work).is_none() && self.shed_after_ms(work).is_none() {
            return Ok(None);
        }
        let ending = async {
            let mut tx = self
                .store
                .begin(Begin {
                    lease: Some(&self.lease),
                })
                .await?;
            let turn = self.turn_of(&mut tx, std::slice::from_ref(work)).await?;
            let Some(over) = self.over(work, &turn) else {
                self.store.end(tx, End::RollBack).await?;
                return Ok(None);
            };
            let (mut draft, mut outgoing) = (Draft::default(), Vec::new());
            let fate = self.expire(work, over, fits, &mut draft, &mut outgoing);
            // The same message appended twice is one: its rows differ in their time.
            let keys: Vec<_> = draft.entries.iter().map(|e| e.key.clone()).collect();
            let deferred = deferred_of(std::slice::from_ref(work));
            let request = self.known_request(&keys, &deferred);
            let found = self.store.known(&mut tx, request).await?;
            if !found.gone.is_empty() {
                self.store.end(tx, End::RollBack).await?;
                return Ok(Some(Fate::Finished));
            }
            if found.entries.iter().any(Option::is_some) {
                draft.entries.clear();
                outgoing.clear();
            }
            let settle = Settle {
                ledger: &draft.entries,
                clear: &draft.clear,
                cases: &draft.cases,
                append: &outgoing,
                ..self.nothing()
            };
            self.store.settle(&mut tx, settle).await?;
            self.store.end(tx, End::Commit).await?;
            if !outgoing.is_empty() {
                self.surroundings.ring();
            }
            self.tell_cases(&draft.cases).await;
            Ok::<_, StoreError>(Some(fate))
        };
        ending.await.map_err(|error| self.stop_for(&error))
    }
}
