//! A batch, from what is merged in it to the fates of its messages.

use std::borrow::Cow;
use std::collections::BTreeSet;

use onceward_core::coalesce::Plan;
use onceward_core::dispatcher::{Batch, Fate, Pace, Work};
use onceward_core::store::{DeferralKind, Store};

use super::execute::{Executor, Stop};
use super::tally::{BatchEnd, Tally};
use crate::subscription::Handler;

/// Pause of a subscription whose receiver needs a person; one message is tried after it, in
/// milliseconds.
const OPERATOR_PAUSE_MS: u64 = 60_000;

impl<S: Store> Executor<S> {
    /// Runs a batch to its end.
    pub(super) async fn run(&self, batch: &Batch) -> BatchEnd {
        let ended = match batch.works.iter().any(|work| work.is_suspect) {
            true => Ok(BTreeSet::new()),
            false => self.merge(&batch.works).await,
        };
        let works = match &ended {
            Ok(ended) if !ended.is_empty() => Cow::Owned(without(&batch.works, ended)),
            _ => Cow::Borrowed(&batch.works),
        };
        let mut tally = Tally::new(works.len());
        let result = match &ended {
            Ok(_) if works.iter().any(|work| work.is_conflict) => {
                self.run_without_conflicts(&works, batch.savepoint_every, &mut tally)
                    .await
            }
            Ok(_) => {
                self.run_works(&works, batch.savepoint_every, &mut tally)
                    .await
            }
            Err(stop) => Err(*stop),
        };
        tally.stop = result.err();
        let mut end = tally.end(&works);
        let pace = self.dependency.pace();
        end.pace = Pace {
            // Of two pauses the longer one counts.
            pause_ms: end.pace.pause_ms.max(pace.pause_ms),
            ..pace
        };
        if self.is_refused_by_operator(&works, &end.fates) {
            end.pace.person_pause_ms = Some(OPERATOR_PAUSE_MS);
            self.dependency.needs_person(OPERATOR_PAUSE_MS);
        }
        let ended = ended.unwrap_or_default().into_iter();
        let ended = ended.map(|index| (batch.works[index].token, Fate::Finished));
        end.fates.extend(ended);
        end
    }

    pub(super) async fn run_works(
        &self,
        works: &[Work],
        savepoint_every: u32,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        if works.iter().any(|work| work.is_suspect) {
            return self.run_suspects(works, tally).await;
        }
        // What is not coalesced comes one by one, but for what waited to be merged.
        let plan = match self.runtime.batch_max {
            1 => Plan::singles(works.len()),
            _ => Plan::new(works.len()),
        };
        self.run_plan(works, plan, savepoint_every, tally).await
    }

    /// Whether a receiver refused in a way that only a person can change: the next message would
    /// fare the same.
    fn is_refused_by_operator(&self, works: &[Work], fates: &[(u64, Fate)]) -> bool {
        works.iter().zip(fates).any(|(work, (_, fate))| {
            let handler = self.runtime.handlers.get(&work.row.envelope.message_type);
            matches!(handler, Some(Handler::Deliver(_) | Handler::Call(_)))
                && matches!(fate, Fate::Deferred(d) if d.kind == DeferralKind::Operator)
        })
    }
}

/// All but some of them.
fn without(works: &[Work], ended: &BTreeSet<usize>) -> Vec<Work> {
    let left = works.iter().enumerate();
    let left = left.filter(|(index, _)| !ended.contains(index));
    left.map(|(_, work)| work.clone()).collect()
}
