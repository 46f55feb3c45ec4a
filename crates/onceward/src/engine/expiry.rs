//! Work that has become useless: judged by the database's clock, when its turn comes.

use onceward_core::dispatcher::{Fate, Work};
use onceward_core::expiry::{EXPIRED, Expired, expired, handed_over, over_at};
use onceward_core::store::{Begin, End, Settle, Store, StoreError};
use onceward_core::{Ending, Envelope, FailureRecord, Timestamp};

use super::execute::{Executor, Stop, deferred_of, rejection_of};
use super::tally::Draft;

impl<S: Store> Executor<S> {
    /// When a message is over, if it ever is and it was said what follows. One that somebody runs
    /// again, or released although it was over, is not.
    pub(super) fn over_at(&self, work: &Work) -> Option<Timestamp> {
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

    /// The database's time, where one of the messages has an end.
    pub(super) async fn time_for(
        &self,
        tx: &mut S::Tx,
        works: &[Work],
    ) -> Result<Option<Timestamp>, StoreError> {
        if works.iter().all(|work| self.over_at(work).is_none()) {
            return Ok(None);
        }
        self.store.time(tx).await.map(Some)
    }

    /// What becomes of a message that is over. Its version counts as dealt with only where it
    /// `fits`: what it leaves out may come still.
    pub(super) fn expire(
        &self,
        work: &Work,
        over_at: Timestamp,
        fits: bool,
        draft: &mut Draft,
        outgoing: &mut Vec<Envelope>,
    ) -> Fate {
        let failure = expired(over_at);
        if self.runtime.contract.expired == Expired::Quarantine {
            draft.failures += 1;
            return self.case(work, EXPIRED, failure.record(), work.spent, draft);
        }
        let mut entry = self.entry(work, Ending::Expired, Some(rejection_of(&failure)));
        entry.aggregate = entry.aggregate.filter(|_| fits);
        draft.entries.push(entry);
        if work.is_stored {
            draft.clear.push(work.row.seq);
        }
        if matches!(self.runtime.contract.expired, Expired::Fallback(_)) {
            outgoing.push(handed_over(&work.row));
        }
        Fate::Finished
    }

    /// Ends a message by itself if it is over: before the other side is asked, or before it is
    /// claimed.
    pub(super) async fn end_if_over(&self, work: &Work, fits: bool) -> Result<Option<Fate>, Stop> {
        let Some(over_at) = self.over_at(work) else {
            return Ok(None);
        };
        let ending = async {
            let mut tx = self
                .store
                .begin(Begin {
                    lease: Some(&self.lease),
                })
                .await?;
            if self.store.time(&mut tx).await? < over_at {
                self.store.end(tx, End::RollBack).await?;
                return Ok(None);
            }
            let (mut draft, mut outgoing) = (Draft::default(), Vec::new());
            let fate = self.expire(work, over_at, fits, &mut draft, &mut outgoing);
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
