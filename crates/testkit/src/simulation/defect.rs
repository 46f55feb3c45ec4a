//! What can be wrong on purpose, to show that the checkers notice it.
//!
//! Most defects stand where the store is called, so that the engine's own code stays as it is and
//! behaves as if it, or the store, did the wrong thing.

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;

use onceward_core::store::*;
use onceward_core::{Ending, Envelope, LedgerEntry, LedgerKey, Position, Timestamp};

use super::process::Process;
use super::store::{SimStore, SimTx, commit_unknown};
use super::world::{World, lock};
use crate::memory::{self, MemoryStore};

/// One thing that is wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Defect {
    /// A commit is acknowledged before it happens.
    AcknowledgesEarly,
    /// Positions are kept beyond unfinished work.
    AdvancesPastUnfinished,
    /// What is deferred is forgotten when a lane is taken.
    ForgetsDeferrals,
    /// An attempt counts twice.
    CountsTwice,
    /// A commit whose answer was lost is taken for a failure, and its work is done again without
    /// looking at the ledger.
    RerunsOutsideLedger,
    /// What a rolled back batch did before the error stays.
    HalfApplies,
    /// What a failed handler appended goes out with what its process commits next.
    KeepsAppended,
    /// How often a message was tried is lost when it is loaded again.
    RedeliveryCountLost,
    /// A lane is handed over while its owner still works on it.
    HandsOverEarly,
    /// Whether a lease is over is judged by the clock of the process that wants its lanes.
    ClaimsByOwnClock,
    /// A process that stops hands its lanes back as if all it had read were done.
    DropsBuffer,
    /// The last versions of aggregates are not known.
    ForgetsVersions,
    /// What a message over a gap waits for is not found among what is deferred.
    ForgetsEarlier,
    /// What is merged is left out of the ledger.
    MergesUnrecorded,
    /// What is merged names itself as what took its place.
    MergesIntoItself,
    /// What was merged is not known any more.
    ForgetsMerged,
    /// The time by which lateness is judged is ahead.
    ShedsEarly,
    /// Messages are retried for as long as it takes.
    AgeUnlimited,
    /// Messages are given up before their time.
    AgeCutShort,
    /// Nobody was there, and the message pays for it.
    OutageCounts,
    /// What matters most counts as what matters least, and the other way round.
    ClassesTurned,
    /// The store is wrong.
    Store(memory::Defect),
}

impl Defect {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let own = [
            Self::AcknowledgesEarly,
            Self::AdvancesPastUnfinished,
            Self::ForgetsDeferrals,
            Self::CountsTwice,
            Self::RerunsOutsideLedger,
            Self::HalfApplies,
            Self::KeepsAppended,
            Self::RedeliveryCountLost,
            Self::HandsOverEarly,
            Self::ClaimsByOwnClock,
            Self::DropsBuffer,
            Self::ForgetsVersions,
            Self::ForgetsEarlier,
            Self::MergesUnrecorded,
            Self::MergesIntoItself,
            Self::ForgetsMerged,
            Self::ShedsEarly,
            Self::AgeUnlimited,
            Self::AgeCutShort,
            Self::OutageCounts,
            Self::ClassesTurned,
        ];
        own.into_iter()
            .chain(memory::Defect::ALL.into_iter().map(Self::Store))
            .collect()
    }

    /// The name used on the command line.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Store(defect) => format!("{defect:?}"),
            own => format!("{own:?}"),
        }
    }
}

impl FromStr for Defect {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::all().into_iter().find(|defect| defect.name() == name);
        found.ok_or_else(|| format!("no defect is called {name:?}"))
    }
}

/// What defects need to remember, beside the world.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    leases: Vec<Lease>,
    /// Lanes as they were taken.
    taken: Vec<(String, TakenLane)>,
    /// Ledger rows of commits whose answers were lost.
    lost: Vec<LedgerKey>,
    /// Ledger rows that are being committed.
    committing: Vec<LedgerKey>,
    /// What failed handlers appended, by process.
    kept: Vec<(String, Envelope)>,
}

impl World {
    /// A handler that is going to fail appends something.
    pub(super) fn keep(&self, process: &Process, envelope: &Envelope) {
        if self.setup.defect == Some(Defect::KeepsAppended) {
            let kept = (process.name.clone(), envelope.clone());
            lock(&self.remembered).kept.push(kept);
        }
    }
}

impl SimStore {
    fn is(&self, defect: Defect) -> bool {
        self.process.world.setup.defect == Some(defect)
    }

    pub(super) async fn spans_to_save(&self, spans: &[Span]) -> Result<Vec<Span>, StoreError> {
        let mut spans = spans.to_vec();
        if self.is(Defect::AdvancesPastUnfinished) {
            let head = self.inner.head().await?;
            for span in &mut spans {
                span.stand = head.clone().into();
            }
        }
        Ok(spans)
    }

    pub(super) async fn lanes_to_release(
        &self,
        lanes: &[ReleasedLane],
    ) -> Result<Vec<ReleasedLane>, StoreError> {
        let mut lanes = lanes.to_vec();
        if self.is(Defect::DropsBuffer) && self.process.is_stopping() {
            let head: Position = self.inner.head().await?;
            for lane in &mut lanes {
                lane.stand = head.clone().into();
            }
        }
        Ok(lanes)
    }

    pub(super) fn remembered(&self, held: Vec<HeldKey>) -> Vec<HeldKey> {
        if self.is(Defect::ForgetsDeferrals) {
            return Vec::new();
        }
        held
    }

    pub(super) fn forget_versions(&self, last: &mut [Option<i64>]) {
        if self.is(Defect::ForgetsVersions) {
            last.fill(None);
        }
    }

    pub(super) fn forget_earlier(&self, is_of_versions: bool, rows: &mut Vec<DeferredRow>) {
        if is_of_versions && self.is(Defect::ForgetsEarlier) {
            rows.clear();
        }
    }

    pub(super) fn forget_count(&self, row: &mut DeferredRow) {
        if self.is(Defect::RedeliveryCountLost) {
            row.spent.failures = 0;
            row.spent.deaths = 0;
        }
    }

    pub(super) fn forget_known(&self, request: &Known<'_>, found: &mut Found) {
        if self.is(Defect::ForgetsMerged) {
            let is_merged = |entry: &LedgerEntry| entry.ending == Ending::Merged;
            for entry in &mut found.entries {
                *entry = entry.take().filter(|entry| !is_merged(entry));
            }
        }
        if !self.is(Defect::RerunsOutsideLedger) {
            return;
        }
        found.gone.clear();
        let remembered = lock(&self.process.world.remembered);
        for (key, entry) in request.keys.iter().zip(&mut found.entries) {
            if remembered.lost.contains(key) {
                *entry = None;
            }
        }
    }

    pub(super) async fn settle_or_worse(
        &self,
        tx: &mut SimTx,
        request: Settle<'_>,
    ) -> Result<Settled, StoreError> {
        if self.is(Defect::CountsTwice) {
            let mut defer = request.defer.to_vec();
            for deferral in &mut defer {
                deferral.spent.failures += u32::from(deferral.kind == DeferralKind::Retry);
            }
            let request = Settle {
                defer: &defer,
                ..request
            };
            return self.inner.settle(tx.memory(), request).await;
        }
        if self.is(Defect::RerunsOutsideLedger) {
            let asked = request.ledger.len() as u64;
            let lost = lock(&self.process.world.remembered).lost.clone();
            let ledger: Vec<LedgerEntry> = request.ledger.to_vec();
            let ledger: Vec<LedgerEntry> = ledger
                .into_iter()
                .filter(|entry| !lost.contains(&entry.key))
                .collect();
            lock(&self.process.world.remembered).committing =
                ledger.iter().map(|entry| entry.key.clone()).collect();
            let left_out = asked - ledger.len() as u64;
            let request = Settle {
                ledger: &ledger,
                ..request
            };
            let settled = self.inner.settle(tx.memory(), request).await?;
            return Ok(Settled {
                ledger_rows: settled.ledger_rows + left_out,
            });
        }
        let mut append = request.append.to_vec();
        if self.is(Defect::KeepsAppended) {
            let mut remembered = lock(&self.process.world.remembered);
            let own = |kept: &mut (String, Envelope)| kept.0 == self.process.name;
            let kept = remembered.kept.extract_if(.., own);
            append.extend(kept.map(|(_, envelope)| envelope));
        }
        let is_merged = |entry: &LedgerEntry| entry.ending == Ending::Merged;
        let mut ledger = request.ledger.to_vec();
        if self.is(Defect::MergesUnrecorded) {
            ledger.retain(|entry| !is_merged(entry));
        }
        if self.is(Defect::MergesIntoItself) {
            for entry in ledger.iter_mut().filter(|entry| is_merged(entry)) {
                let itself = serde_json::json!({ "merged_into": entry.key.identity });
                entry.result = Some(itself.to_string().into());
            }
        }
        let left_out = (request.ledger.len() - ledger.len()) as u64;
        let request = Settle {
            ledger: &ledger,
            append: &append,
            ..request
        };
        let settled = self.inner.settle(tx.memory(), request).await?;
        Ok(Settled {
            ledger_rows: settled.ledger_rows + left_out,
        })
    }

    pub(super) fn ahead(&self, time: Timestamp) -> Timestamp {
        match self.is(Defect::ShedsEarly) {
            true => time.plus_millis(60_000),
            false => time,
        }
    }

    /// Ends a transaction whose answer is lost: what the engine hears.
    pub(super) fn lost_commit(&self) -> StoreError {
        if self.is(Defect::RerunsOutsideLedger) {
            let mut remembered = lock(&self.process.world.remembered);
            let committing = std::mem::take(&mut remembered.committing);
            remembered.lost.extend(committing);
            let kind = StoreErrorKind::Unavailable;
            return StoreError::found(kind, "commit", "simulated: answer lost");
        }
        commit_unknown()
    }

    pub(super) async fn roll_back_or_worse(&self, tx: SimTx) -> Result<(), StoreError> {
        let end = match self.is(Defect::HalfApplies) {
            true => End::Commit,
            false => End::RollBack,
        };
        self.inner.end(tx.into_memory(), end).await
    }

    /// Hands the transaction back, unless it is acknowledged now and commits later.
    pub(super) fn commit_early(&self, tx: SimTx) -> Option<SimTx> {
        if !self.is(Defect::AcknowledgesEarly) {
            return Some(tx);
        }
        let (inner, process) = (self.inner.clone(), Arc::clone(&self.process));
        tokio::spawn(async move {
            process.step(50).await;
            // Nobody waits for this any more.
            let _ = inner.end(tx.into_memory(), End::Commit).await;
        });
        None
    }

    pub(super) fn joined(&self, lease: &Lease) {
        if self.is(Defect::HandsOverEarly) {
            lock(&self.process.world.remembered)
                .leases
                .push(lease.clone());
        }
    }

    pub(super) fn taken(&self, subscription: &str, lanes: &[TakenLane]) {
        if self.is(Defect::HandsOverEarly) {
            let mut remembered = lock(&self.process.world.remembered);
            let lanes = lanes
                .iter()
                .map(|lane| (subscription.to_owned(), lane.clone()));
            remembered.taken.extend(lanes);
        }
    }

    /// Does something by the database's clock, or by the process's own.
    pub(super) async fn by_its_clock<T>(
        &self,
        doing: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if !self.is(Defect::ClaimsByOwnClock) {
            return doing.await;
        }
        let clock = &self.process.world.clock;
        let now = clock.now();
        clock.set(now.plus_millis(self.process.skew_ms));
        // The store in memory does not wait here.
        let done = doing.await;
        clock.set(now);
        done
    }

    /// By its own clock its own lease always runs.
    pub(super) fn lives_by_its_clock(&self, survey: &mut Survey) {
        let is_mine = |member: &&mut MemberState| member.description == self.process.name;
        if self.is(Defect::ClaimsByOwnClock) {
            for member in survey.members.iter_mut().filter(is_mine) {
                member.is_live = true;
            }
        }
    }

    /// Hands a lane over behind its owner's back.
    pub(super) async fn hand_over_early(&self) -> Result<(), StoreError> {
        if !self.is(Defect::HandsOverEarly) || !self.process.world.chance(4) {
            return Ok(());
        }
        let survey = self.inner.survey().await?;
        let (lane, lease) = {
            let remembered = lock(&self.process.world.remembered);
            let owned = survey.lanes.iter().find_map(|state| {
                let owner = state.owner.as_deref()?;
                let lease = remembered.leases.iter().find(|l| l.member == owner)?;
                let taken = remembered.taken.iter().find(|(name, taken)| {
                    *name == state.subscription
                        && taken.lane == state.lane
                        && taken.epoch == state.epoch
                })?;
                Some((taken.clone(), lease.clone()))
            });
            match owned {
                Some(owned) => owned,
                None => return Ok(()),
            }
        };
        let (subscription, taken) = lane;
        let released = ReleasedLane {
            lane: taken.lane,
            epoch: taken.epoch,
            stand: taken.stand,
        };
        let request = Release {
            lease: &lease,
            subscription: &subscription,
            lanes: std::slice::from_ref(&released),
        };
        self.inner.release(request).await
    }
}

/// The database of a run.
pub(super) fn database(defect: Option<Defect>, clock: crate::clock::SimClock) -> MemoryStore {
    match defect {
        Some(Defect::Store(defect)) => MemoryStore::with_defect(clock, defect),
        _ => MemoryStore::new(clock),
    }
}
