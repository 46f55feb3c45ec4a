//! What is recorded after a commit whose answer was lost.

use std::collections::BTreeSet;

use onceward_core::dispatcher::{Fate, Work};
use onceward_core::store::{Settle, Store};

use super::execute::{Executor, Stop};
use super::tally::Draft;

impl<S: Store> Executor<S> {
    /// After a commit of which nobody knows whether it happened: what failed in it is recorded by
    /// itself, as it was counted. The rest goes back to its place, where the ledger knows; so does
    /// what came after it in its key, which it would else wait for.
    pub(super) async fn record_failures(
        &self,
        works: &[Work],
        draft: &mut Draft,
    ) -> Result<(), Stop> {
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
        let clear: Vec<u64> = draft.cases.iter().map(|case| case.row.seq).collect();
        let settle = Settle {
            defer: &draft.defer,
            clear: &clear,
            cases: &draft.cases,
            ..self.nothing()
        };
        let recorded = self.record(settle).await;
        recorded.map_err(|error| self.stop_for(&error))
    }
}
