//! After an unclean takeover: what was not finished may have killed the last owner.
//!
//! Each message gets a committed start row before it runs, so that a death leaves names. Messages
//! that were never named share one commit of start rows and run together: should the process die,
//! all of them have one death, and only they are run one by one then. The one that kills is named
//! alone by its second death; the others finish with one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use onceward_core::coalesce::Plan;
use onceward_core::dispatcher::{Blocked, Fate, Work};
use onceward_core::disposition::after_death;
use onceward_core::store::{Begin, Deferral, DeferralKind, End, Found, Settle, Store, StoreError};
use onceward_core::{LedgerKey, Row};

use super::execute::{Executor, Stop, deferred_of};
use super::tally::Tally;
use crate::digest::{digest_of_row, is_same};
use crate::subscription::Handler;

/// Messages that share a commit of start rows.
const GROUP_MAX: usize = 50;

impl<S: Store> Executor<S> {
    /// Runs messages that may have killed a process.
    pub(super) async fn run_suspects(&self, works: &[Work], tally: &mut Tally) -> Result<(), Stop> {
        let known = if self.has_ledger() || self.drops() {
            self.known(works).await?
        } else {
            BTreeSet::new()
        };
        let mut blocked = Blocked::default();
        let mut at = 0;
        while at < works.len() {
            let is_grouped =
                |index: &usize| !known.contains(index) && self.may_share(&works[*index]);
            let most = works.len().min(at + GROUP_MAX);
            let end = (at..most).find(|index| !is_grouped(index)).unwrap_or(most);
            if end > at {
                self.run_group(works, at..end, &mut blocked, tally).await?;
                at = end;
                continue;
            }
            self.run_suspect(works, at, known.contains(&at), &mut blocked, tally)
                .await?;
            at += 1;
        }
        Ok(())
    }

    /// Whether a death of this message with others would still leave each its budget.
    fn may_share(&self, work: &Work) -> bool {
        let handler = self.runtime.handlers.get(&work.row.envelope.message_type);
        work.spent.deaths == 0
            && work.spent.failures.saturating_add(2) <= self.runtime.contract.retry.attempts_max
            && self.runtime.batch_max > 1
            && handler.is_some_and(Handler::is_coalesced)
    }

    async fn run_group<'w>(
        &self,
        works: &'w [Work],
        range: Range<usize>,
        blocked: &mut Blocked<'w>,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        let indices: Vec<usize> = range
            .filter(|index| {
                let work = &works[*index];
                !blocked.holds(self.key_of(work), &work.row)
            })
            .collect();
        if indices.is_empty() {
            return Ok(());
        }
        let _alone = self.suspects.lock().await;
        let group: Vec<Work> = indices.iter().map(|index| works[*index].clone()).collect();
        self.start_rows(&group).await?;
        let started: Vec<Work> = group
            .into_iter()
            .map(|work| Work {
                is_stored: true,
                ..work
            })
            .collect();
        let mut own = Tally::new(started.len());
        let result = self
            .run_plan(&started, Plan::new(started.len()), 0, &mut own)
            .await;
        let result = match result {
            Ok(()) => self.put_back(&started, &mut own).await,
            stopped => stopped,
        };
        for (index, fate) in indices.iter().zip(&mut own.fates) {
            if *fate == Fate::Returned {
                *fate = Fate::Uncertain;
            }
            let work = &works[*index];
            blocked.ended(self.key_of(work), &work.row, fate);
        }
        tally.take_in(&indices, own);
        result
    }

    /// What waits behind another of its group that failed has not run: the next death is not its
    /// own, and it is held like everything else behind its key. What somebody released stays known
    /// as that.
    async fn put_back(&self, started: &[Work], own: &mut Tally) -> Result<(), Stop> {
        let is_back = |(_, fate): &(&Work, &Fate)| **fate == Fate::Returned;
        let back = started.iter().zip(&own.fates).filter(is_back);
        let deferrals: Vec<Deferral> = back
            .map(|(work, _)| Deferral {
                kind: match work.is_released {
                    true => DeferralKind::Retry,
                    false => DeferralKind::Held,
                },
                ..self.deferral(work, work.spent, work.failure.clone())
            })
            .collect();
        if deferrals.is_empty() {
            return Ok(());
        }
        let (held, released): (Vec<Deferral>, Vec<Deferral>) = deferrals
            .iter()
            .cloned()
            .partition(|deferral| deferral.kind == DeferralKind::Held);
        let seqs: Vec<u64> = held.iter().map(|deferral| deferral.seq).collect();
        let settle = Settle {
            defer: &released,
            hold_running: &seqs,
            ..self.nothing()
        };
        let recorded = self.record(settle).await;
        recorded.map_err(|error| self.stop_for(&error))?;
        let mut deferrals = deferrals.into_iter();
        for fate in own.fates.iter_mut().filter(|f| **f == Fate::Returned) {
            *fate = deferrals.next().map_or(Fate::Returned, Fate::Deferred);
        }
        Ok(())
    }

    async fn run_suspect<'w>(
        &self,
        works: &'w [Work],
        index: usize,
        is_known: bool,
        blocked: &mut Blocked<'w>,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        let work = &works[index];
        if blocked.holds(self.key_of(work), &work.row) {
            return Ok(());
        }
        let result = if is_known && !self.has_ledger() {
            // It was given up, or refused: nothing looks for that on the usual way.
            self.finish(work)
                .await
                .map(|fate| tally.fates[index] = fate)
        } else if is_known {
            // The usual way finds it known and checks its payload: it may still become a case.
            self.run_single(works, index, tally).await
        } else {
            let _alone = self.suspects.lock().await;
            if after_death(&self.runtime.contract.retry, work.spent).is_none() {
                self.start_rows(std::slice::from_ref(work)).await?;
            }
            let mut started = works.to_vec();
            started[index].is_stored = true;
            let result = self.run_single(&started, index, tally).await;
            if tally.fates[index] == Fate::Returned {
                tally.fates[index] = Fate::Uncertain;
            }
            result
        };
        blocked.ended(self.key_of(work), &work.row, &tally.fates[index]);
        result
    }

    /// Takes rows out that have had their effect, when the log is read again. Nothing is left to be
    /// done for them, so they must not wait behind what holds their key. One with another payload
    /// under its identity stays: it becomes a case.
    pub(super) async fn leave_done_out(&self, rows: &mut Vec<Arc<Row>>) -> Result<(), StoreError> {
        let handlers = &self.runtime.handlers;
        let is_its = |row: &&Arc<Row>| handlers.contains_key(&row.envelope.message_type);
        let own: Vec<&Arc<Row>> = rows.iter().filter(is_its).collect();
        if !(self.has_ledger() || self.drops()) || own.is_empty() {
            return Ok(());
        }
        let identity = self.runtime.identity;
        let keys: Vec<LedgerKey> = own.iter().map(|row| LedgerKey::of(row, identity)).collect();
        let known = self.look_up(&keys, &[]).await?.entries;
        let done = own.iter().zip(known).filter(|(row, entry)| {
            entry
                .as_ref()
                .is_some_and(|entry| is_same(entry.digest, digest_of_row(row)))
        });
        let done: BTreeSet<u64> = done.map(|(row, _)| row.seq).collect();
        rows.retain(|row| !done.contains(&row.seq));
        Ok(())
    }

    pub(super) async fn look_up(
        &self,
        keys: &[LedgerKey],
        deferred: &[u64],
    ) -> Result<Found, StoreError> {
        let mut tx = self
            .store
            .begin(Begin {
                lease: Some(&self.lease),
            })
            .await?;
        let request = self.known_request(keys, deferred);
        let found = self.store.known(&mut tx, request).await?;
        self.store.end(tx, End::RollBack).await?;
        Ok(found)
    }

    /// Which messages' effects are there already.
    pub(super) async fn known(&self, works: &[Work]) -> Result<BTreeSet<usize>, Stop> {
        let keys: Vec<LedgerKey> = works.iter().map(|work| self.ledger_key(work)).collect();
        let found = self.look_up(&keys, &deferred_of(works)).await;
        let found = found.map_err(|error| self.stop_for(&error))?;
        let is_known = |index: &usize| {
            found.entries[*index].is_some() || found.gone.contains(&works[*index].row.seq)
        };
        Ok((0..works.len()).filter(is_known).collect())
    }

    /// Commits deferrals of kind running: a process that dies now leaves names.
    pub(super) async fn start_rows(&self, works: &[Work]) -> Result<(), Stop> {
        let deferrals: Vec<Deferral> = works
            .iter()
            .map(|work| Deferral {
                kind: DeferralKind::Running,
                due_in_ms: None,
                ..self.deferral(work, work.spent, work.failure.clone())
            })
            .collect();
        let settle = Settle {
            defer: &deferrals,
            ..self.nothing()
        };
        self.record(settle)
            .await
            .map_err(|error| self.stop_for(&error))
    }
}
