//! What is recorded after a commit whose answer was lost.

use std::collections::BTreeSet;

use onceward_core::LedgerKey;
use onceward_core::contract::Semantics;
use onceward_core::dispatcher::{Fate, Work};
use onceward_core::store::{Settle, Store, StoreError};

use super::again::again;
use super::execute::{Executor, Stop};
use super::tally::Draft;

impl<S: Store> Executor<S> {
    /// After a commit of which nobody knows whether it happened: what failed in it is recorded by
    /// itself, as it was counted, however long that takes. Otherwise it would be counted once too
    /// little where the commit did happen.
    ///
    /// Returns whether the effects are there: then all of the draft holds. Else only what failed
    /// is left of it; the rest goes back to its place, where the ledger knows, and so does what came
    /// after it in its key, which it would else wait for.
    pub(super) async fn record_failures(
        &self,
        works: &[Work],
        draft: &mut Draft,
    ) -> Result<bool, Stop> {
        let happened = self.has_happened(draft).await;
        let happened = happened.map_err(|error| self.stop_for(&error))?;
        if !happened {
            self.keep_failures(works, draft);
        }
        // The same again is the same where it happened.
        let cased: Vec<u64> = draft.cases.iter().map(|case| case.row.seq).collect();
        let settle = Settle {
            defer: &draft.defer,
            clear: &cased,
            cases: &draft.cases,
            ..self.nothing()
        };
        let recorded = again("record what failed", || self.record(settle.clone())).await;
        recorded.map_err(|error| self.stop_for(&error))?;
        Ok(happened)
    }

    /// Whether every effect of a draft is in the ledger, and nothing that it cleared is deferred any
    /// more; without an effect there is nothing to be heard of.
    async fn has_happened(&self, draft: &Draft) -> Result<bool, StoreError> {
        if self.runtime.contract.semantics != Semantics::EffectOnce {
            return Ok(false);
        }
        if draft.entries.is_empty() && draft.clear.len() == draft.cases.len() {
            return Ok(true);
        }
        let keys = draft.entries.iter().map(|entry| entry.key.clone());
        let keys: Vec<LedgerKey> = keys.collect();
        let clear = &draft.clear;
        let found = again("look for what was committed", || self.look_up(&keys, clear)).await?;
        let is_there = found.entries.iter().all(Option::is_some);
        Ok(is_there && clear.iter().all(|seq| found.gone.contains(seq)))
    }

    /// Leaves of a draft what failed in it, but for what came after an effect of its key.
    fn keep_failures(&self, works: &[Work], draft: &mut Draft) {
        draft.duplicates = 0;
        let failed = |fate: &Fate| matches!(fate, Fate::Deferred(_) | Fate::Quarantined { .. });
        let unheard = draft
            .fates
            .iter()
            .filter(|(_, fate)| *fate == Fate::Finished);
        let keys: BTreeSet<&str> = unheard.map(|(i, _)| self.key_of(&works[*i])).collect();
        let is_kept = |index: usize| !keys.contains(self.key_of(&works[index]));
        draft
            .fates
            .retain(|(index, fate)| failed(fate) && is_kept(*index));
        let kept = draft.fates.iter().map(|(index, _)| works[*index].row.seq);
        let kept: BTreeSet<u64> = kept.collect();
        draft.defer.retain(|deferral| kept.contains(&deferral.seq));
        draft.cases.retain(|case| kept.contains(&case.row.seq));
    }
}
