//! Messages whose key is one of another lane group: refused before anything runs, because nothing
//! would keep them in order.

use onceward_core::Failure;
use onceward_core::dispatcher::{Fate, Work};
use onceward_core::group::{GROUP_CONFLICT, conflict};
use onceward_core::store::{Begin, End, Settle, Store, StoreError};

use super::execute::{Executor, Stop, deferred_of};
use super::tally::{Draft, Tally};

impl<S: Store> Executor<S> {
    /// Refuses what is of another group, and runs the rest of a batch as if it were alone.
    pub(super) async fn run_without_conflicts(
        &self,
        works: &[Work],
        savepoint_every: u32,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        let (refused, kept): (Vec<usize>, Vec<usize>) =
            (0..works.len()).partition(|index| works[*index].is_conflict);
        let failure = conflict();
        for index in refused {
            tally.fates[index] = self.refuse(&works[index], &failure).await?;
            tally.seen.failures += 1;
        }
        let rest: Vec<Work> = kept.iter().map(|index| works[*index].clone()).collect();
        if rest.is_empty() {
            return Ok(());
        }
        let mut own = Tally::new(rest.len());
        let result = self.run_works(&rest, savepoint_every, &mut own).await;
        tally.take_in(&kept, own);
        result
    }

    /// A case that holds nothing: its key is somebody else's. What is done already stays done.
    async fn refuse(&self, work: &Work, failure: &Failure) -> Result<Fate, Stop> {
        let mut draft = Draft::default();
        let record = self.runtime.record_of(failure, &work.row);
        self.case(work, GROUP_CONFLICT, record, work.spent, &mut draft);
        for case in &mut draft.cases {
            case.holds_key = false;
        }
        let refusing = async {
            let mut tx = self
                .store
                .begin(Begin {
                    lease: Some(&self.lease),
                })
                .await?;
            let keys = [self.ledger_key(work)];
            let deferred = deferred_of(std::slice::from_ref(work));
            let request = self.known_request(&keys, &deferred);
            let found = self.store.known(&mut tx, request).await?;
            let is_done = !found.gone.is_empty() || found.entries.iter().any(Option::is_some);
            let settle = Settle {
                clear: &draft.clear,
                cases: if is_done { &[] } else { &draft.cases },
                ..self.nothing()
            };
            self.store.settle(&mut tx, settle).await?;
            self.store.end(tx, End::Commit).await?;
            Ok::<_, StoreError>(is_done)
        };
        let is_done = refusing.await.map_err(|error| self.stop_for(&error))?;
        Ok(match is_done {
            true => Fate::Finished,
            false => Fate::Quarantined { holds_key: false },
        })
    }
}
