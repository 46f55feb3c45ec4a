//! Messages that wait together, of which only the latest is handled: recorded before it is tried.
//!
//! What is merged commits by itself, with one statement, before the survivor's own attempt: whatever
//! becomes of that one, no message is ever recorded as merged that came after it, and until then all
//! of them are still in the log.

use std::collections::BTreeSet;

use onceward_core::LedgerEntry;
use onceward_core::dispatcher::Work;
use onceward_core::merge::{Merge, Stand, Waiting, merged_into, survivors};
use onceward_core::store::{Begin, End, Found, Settle, Store, StoreError, StoreErrorKind};
use onceward_core::{Ending, LedgerKey};

use super::execute::{CONFLICT_TRIES, Executor, Stop, deferred_of};
use super::expiry::Turn;
use crate::failure_points::failure_point;

impl<S: Store> Executor<S> {
    /// Records what is merged in a batch. Returns which of its messages have had their end so.
    pub(super) async fn merge(&self, works: &[Work]) -> Result<BTreeSet<usize>, Stop> {
        let of_policy = self.runtime.contract.merge == Merge::Latest;
        if !of_policy || !self.may_merge(works) {
            return Ok(BTreeSet::new());
        }
        let mut tries = 0;
        loop {
            match self.merge_once(works).await {
                Ok(Some(ended)) => return Ok(ended),
                // Somebody else did some of it: the ledger knows now.
                Ok(None) if tries < CONFLICT_TRIES => tries += 1,
                Ok(None) => return Err(Stop::Trouble),
                Err(error)
                    if error.kind() == StoreErrorKind::Conflict && tries < CONFLICT_TRIES =>
                {
                    tries += 1;
                }
                Err(error) => return Err(self.stop_for(&error)),
            }
        }
    }

    /// Whether anything could be merged, before the store is asked.
    fn may_merge(&self, works: &[Work]) -> bool {
        let stands = works.iter().map(stand_by_itself);
        let merged = survivors(&self.waiting(works, stands));
        merged.iter().any(Option::is_some)
    }

    fn waiting<'w>(
        &self,
        works: &'w [Work],
        stands: impl Iterator<Item = Stand>,
    ) -> Vec<Waiting<'w>> {
        let waiting = works.iter().zip(stands).map(|(work, stand)| Waiting {
            key: self.key_of(work),
            message_type: &work.row.envelope.message_type,
            stand,
        });
        waiting.collect()
    }

    /// `None` when somebody else was faster with one of them.
    async fn merge_once(&self, works: &[Work]) -> Result<Option<BTreeSet<usize>>, StoreError> {
        let mut tx = self
            .store
            .begin(Begin {
                lease: Some(&self.lease),
            })
            .await?;
        let keys: Vec<LedgerKey> = works.iter().map(|work| self.ledger_key(work)).collect();
        let deferred = deferred_of(works);
        let found = self
            .store
            .known(&mut tx, self.known_request(&keys, &deferred))
            .await?;
        let turn = self.turn_of(&mut tx, works).await?;
        let stands = self.stands(works, &keys, &found, &turn);
        let merged = survivors(&self.waiting(works, stands.into_iter()));
        let mut ended = self.dropped_before(works, &found);
        let mut entries: Vec<LedgerEntry> = Vec::new();
        for (work, survivor) in works.iter().zip(&merged) {
            if let Some(survivor) = *survivor {
                let result = Some(merged_into(&works[survivor].row));
                entries.push(self.entry(work, Ending::Merged, result));
            }
        }
        ended.extend((0..works.len()).filter(|index| merged[*index].is_some()));
        let clear = deferred_of_ended(works, &ended);
        let settle = Settle {
            ledger: &entries,
            clear: &clear,
            ..self.nothing()
        };
        let settled = self.store.settle(&mut tx, settle).await?;
        if settled.ledger_rows < entries.len() as u64 {
            self.store.end(tx, End::RollBack).await?;
            return Ok(None);
        }
        failure_point!("before-merge-commit");
        self.store.end(tx, End::Commit).await?;
        failure_point!("after-merge");
        Ok(Some(ended))
    }

    /// How each message stands, by the ledger and by what else may end it.
    fn stands(&self, works: &[Work], keys: &[LedgerKey], found: &Found, turn: &Turn) -> Vec<Stand> {
        let mut seen = BTreeSet::new();
        let stand = |(index, work): (usize, &Work)| {
            let key = &keys[index];
            // Without the time of recording: the same message appended twice is one effect.
            let same = (&key.source, &key.message_type, &key.identity);
            let is_new = seen.insert((same, key.generation));
            let is_known = found.entries[index].is_some() || found.gone.contains(&work.row.seq);
            if is_known || !is_new {
                Stand::Ended
            } else if self.over(work, turn).is_some() {
                Stand::Apart
            } else {
                stand_by_itself(work)
            }
        };
        works.iter().enumerate().map(stand).collect()
    }

    /// Which messages a policy had ended before, where a message's turn does not look for that: the
    /// answer to that commit was lost.
    fn dropped_before(&self, works: &[Work], found: &Found) -> BTreeSet<usize> {
        if self.has_ledger() {
            return BTreeSet::new();
        }
        let is_dropped = |index: &usize| {
            let entry = found.entries[*index].as_ref();
            entry.is_some_and(|entry| Ending::DROPPED.contains(&entry.ending))
        };
        (0..works.len()).filter(is_dropped).collect()
    }
}

fn stand_by_itself(work: &Work) -> Stand {
    match work.is_untried() {
        true => Stand::Untried,
        false => Stand::Apart,
    }
}

fn deferred_of_ended(works: &[Work], ended: &BTreeSet<usize>) -> Vec<u64> {
    let stored = ended.iter().map(|index| &works[*index]);
    let stored = stored.filter(|work| work.is_stored);
    stored.map(|work| work.row.seq).collect()
}
