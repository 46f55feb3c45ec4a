//! Versions of aggregates: judged before a handler runs, by what the ledger has.

use std::collections::BTreeMap;

use onceward_core::dispatcher::{Fate, Work};
use onceward_core::store::{
    Begin, Deferral, DeferralKind, End, LastVersions, Settle, Store, StoreError,
};
use onceward_core::version::{
    Aggregate, Course, Gaps, VERSION_GAP, VersionKey, VersionPolicy, Waited, backward, gap,
};
use onceward_core::{Ending, Failure, LedgerEntry, Row, Spent};

use super::execute::{Executor, Stop, rejection_of};
use super::tally::Draft;

/// The last versions of the aggregates at hand, as they are for whoever comes next.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    policy: Option<VersionPolicy>,
    in_ledger: BTreeMap<VersionKey, i64>,
    last: BTreeMap<VersionKey, i64>,
}

impl Versions {
    /// What is to be done with a message.
    pub(super) fn course(&self, work: &Work) -> Course {
        let version = work.row.envelope.aggregate_version;
        let (Some(mut policy), Some(version)) = (self.policy, version) else {
            return Course::Apply;
        };
        if work.generation > 0 {
            // A rerun is of a selection, which nothing completes.
            policy.gaps = Gaps::Pass;
        }
        let is_gap = |code: &str| code == VERSION_GAP;
        let waited = Waited {
            age_ms: work.spent.age_ms,
            is_alone: work.is_alone,
            is_let_through: work.is_released
                && work.failure.as_ref().is_some_and(|f| is_gap(&f.code)),
        };
        let key = VersionKey::of(&work.row, work.generation);
        policy.course(self.last.get(&key).copied(), version, waited)
    }

    /// A message was dealt with.
    pub(super) fn applied(&mut self, work: &Work) {
        if let (Some(_), Some(version)) = (self.policy, work.row.envelope.aggregate_version) {
            let key = VersionKey::of(&work.row, work.generation);
            raise(&mut self.last, key, version);
        }
    }

    /// Back to the ledger and these entries: the rest was undone.
    pub(super) fn restore(&mut self, entries: &[LedgerEntry]) {
        if self.policy.is_none() {
            return;
        }
        self.last.clone_from(&self.in_ledger);
        for entry in entries {
            if let (Some(aggregate), Some(version)) = (&entry.aggregate, entry.aggregate_version) {
                let key = VersionKey {
                    source: entry.key.source.clone(),
                    aggregate: aggregate.clone(),
                    generation: entry.key.generation,
                };
                raise(&mut self.last, key, version);
            }
        }
    }
}

fn raise(last: &mut BTreeMap<VersionKey, i64>, key: VersionKey, version: i64) {
    let last = last.entry(key).or_insert(version);
    *last = version.max(*last);
}

impl<S: Store> Executor<S> {
    /// The aggregate of which a message's ledger row keeps the version.
    pub(super) fn aggregate_of(&self, row: &Row) -> Option<Aggregate> {
        let is_kept =
            self.runtime.contract.versions.is_some() && row.envelope.aggregate_version.is_some();
        is_kept.then(|| Aggregate::of(&row.envelope))
    }

    /// Reads the last versions of some messages' aggregates.
    pub(super) async fn versions_of(
        &self,
        tx: &mut S::Tx,
        works: impl Iterator<Item = &Work>,
    ) -> Result<Versions, StoreError> {
        let mut versions = Versions {
            policy: self.runtime.contract.versions,
            ..Versions::default()
        };
        if versions.policy.is_none() {
            return Ok(versions);
        }
        let with_version = works.filter(|work| work.row.envelope.aggregate_version.is_some());
        let mut keys: Vec<VersionKey> = with_version
            .map(|work| VersionKey::of(&work.row, work.generation))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(versions);
        }
        let request = LastVersions {
            subscription: &self.runtime.contract.name,
            identity: self.runtime.identity,
            keys: &keys,
        };
        let found = self.store.last_versions(tx, request).await?;
        let found = keys.into_iter().zip(found);
        versions.in_ledger = found.filter_map(|(key, last)| Some((key, last?))).collect();
        versions.last.clone_from(&versions.in_ledger);
        Ok(versions)
    }

    /// What becomes of a message that may not be applied now; nothing when it may.
    pub(super) fn put_aside(&self, work: &Work, course: Course, draft: &mut Draft) -> Option<Fate> {
        let version = work.row.envelope.aggregate_version.unwrap_or_default();
        match course {
            Course::Apply => None,
            Course::Refuse { last } => {
                let reply = Some(rejection_of(&backward(version, last)));
                draft
                    .entries
                    .push(self.entry(work, Ending::Superseded, reply));
                if work.is_stored {
                    draft.clear.push(work.row.seq);
                }
                Some(Fate::Finished)
            }
            Course::Wait { last, due_in_ms } => {
                let deferral = self.waits(work, &gap(version, last), due_in_ms);
                draft.defer.push(deferral.clone());
                Some(Fate::Deferred(deferral))
            }
            Course::GiveUp { last } => {
                draft.failures += 1;
                let record = gap(version, last).record();
                Some(self.case(work, VERSION_GAP, record, work.spent, draft))
            }
        }
    }

    fn waits(&self, work: &Work, failure: &Failure, due_in_ms: u64) -> Deferral {
        let spent = Spent {
            waits: work.spent.waits.saturating_add(1),
            ..work.spent
        };
        Deferral {
            kind: DeferralKind::Gap,
            due_in_ms: Some(due_in_ms),
            ..self.deferral(work, spent, Some(failure.record()))
        }
    }

    /// Judges a message that is about to ask the other side, and records what becomes of it when
    /// it may not.
    pub(super) async fn put_aside_before_call(&self, work: &Work) -> Result<Option<Fate>, Stop> {
        if self.aggregate_of(&work.row).is_none() {
            return self.end_if_over(work, true).await;
        }
        let look = async {
            let mut tx = self
                .store
                .begin(Begin {
                    lease: Some(&self.lease),
                })
                .await?;
            let versions = self.versions_of(&mut tx, std::iter::once(work)).await?;
            self.store.end(tx, End::RollBack).await?;
            Ok::<_, StoreError>(versions.course(work))
        };
        let course = look.await.map_err(|error| self.stop_for(&error))?;
        if !matches!(course, Course::Refuse { .. })
            && let Some(fate) = self.end_if_over(work, course == Course::Apply).await?
        {
            return Ok(Some(fate));
        }
        let mut draft = Draft::default();
        let Some(fate) = self.put_aside(work, course, &mut draft) else {
            return Ok(None);
        };
        let settle = Settle {
            ledger: &draft.entries,
            defer: &draft.defer,
            clear: &draft.clear,
            cases: &draft.cases,
            ..self.nothing()
        };
        let recorded = self.record(settle).await;
        recorded.map_err(|error| self.stop_for(&error))?;
        Ok(Some(fate))
    }
}
