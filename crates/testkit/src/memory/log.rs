//! Reading the log by two snapshots.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;

use onceward_core::store::{Log, Page, ReadPage, SavePosition, StoreError, StoreErrorKind};
use onceward_core::{Position, Row, Snapshot, Stand};

use super::journal::Change;
use super::state::State;
use super::{Defect, MemoryStore, Operation, Shared};

impl Shared {
    /// What is kept of where a lane stands.
    pub(super) fn kept(&self, stand: &Stand) -> Stand {
        let mut kept = stand.clone();
        if self.has(Defect::GroupsForgotten) {
            kept.groups.clear();
        }
        if self.has(Defect::FurthestGroupCounts)
            && let Some(furthest) = stand.groups.values().max_by_key(|p| p.after.xmax)
        {
            kept.position = furthest.clone();
        }
        kept
    }
}

impl Log for MemoryStore {
    async fn read(&self, request: ReadPage<'_>) -> Result<Page, StoreError> {
        self.enter(Operation::Read).await?;
        let state = self.shared.state();
        let from = request.from;
        if from.era != state.era {
            let found = format!("the position is of era {}, not {}", from.era, state.era);
            let kind = StoreErrorKind::WrongEra;
            return Err(StoreError::found(kind, Operation::Read.action(), found));
        }
        let (until, behind) = match &from.within {
            Some(within) => (within.until.clone(), within.seq),
            None => (state.snapshot(), 0),
        };
        if from.is_boundary() {
            self.appends_seen.store(state.appends, Ordering::SeqCst);
        }
        let due = self.tick(&state, &from.after, &until);
        let mut due = due.into_iter().filter(|row| row.seq > behind).peekable();
        let mut rows: Vec<Row> = Vec::new();
        let mut bytes = 0;
        while let Some(row) = due.peek() {
            let is_full = rows.len() >= request.rows_max as usize || bytes >= request.bytes_max;
            if is_full && !rows.is_empty() {
                let mut seq = rows[rows.len() - 1].seq;
                if self.shared.has(Defect::PageSkipsRow) {
                    seq = row.seq;
                }
                let next = from.reach(&until, seq);
                return Ok(Page { rows, next });
            }
            bytes += row.envelope.payload.len() as u64;
            rows.extend(due.next().cloned());
        }
        let next = Position::at(state.era, until);
        Ok(Page { rows, next })
    }

    async fn head(&self) -> Result<Position, StoreError> {
        self.enter(Operation::Head).await?;
        let state = self.shared.state();
        Ok(Position::at(state.era, state.snapshot()))
    }

    async fn save_position(&self, request: SavePosition<'_>) -> Result<(), StoreError> {
        self.enter(Operation::SavePosition).await?;
        let now = self.shared.clock.now();
        let honours_all = self.shared.has(Defect::OldEpochHonoured);
        let mut state = self.shared.state();
        for span in request.spans {
            for (number, epoch) in &span.lanes {
                let place = (request.subscription.to_owned(), *number);
                let Some(lane) = state.lanes.get_mut(&place) else {
                    continue;
                };
                let is_owner = lane.owner.as_deref() == Some(request.member);
                if (is_owner && lane.epoch == *epoch) || honours_all {
                    lane.stand = self.shared.kept(&span.stand);
                    state.listener.tell(now, || Change::Saved {
                        member: request.member.to_owned(),
                        subscription: request.subscription.to_owned(),
                        lane: *number,
                        stand: span.stand.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Ends at once when something was appended since this handle last read, so that no append
    /// falls between reading and dozing.
    async fn doze(&self, wait_ms: u64) {
        let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        let until = self.shared.clock.now().plus_millis(wait_ms);
        poll_fn(|context| {
            let seen = self.appends_seen.load(Ordering::SeqCst);
            let has_more = self.shared.state().appends > seen;
            if has_more || self.shared.clock.now() >= until {
                return Poll::Ready(());
            }
            self.shared.clock.wake_me(context.waker());
            Poll::Pending
        })
        .await;
    }
}

impl MemoryStore {
    /// The rows that one snapshot does not see and the next does, by sequence: late ones, whose
    /// sequence is below the first snapshot's floor, then the tail above it.
    fn tick<'a>(&self, state: &'a State, after: &Snapshot, until: &Snapshot) -> Vec<&'a Row> {
        let log = &state.tables.log;
        let mut late: Vec<u64> = Vec::new();
        if !self.shared.has(Defect::CursorOnSequence) {
            for xid in &after.xip {
                let rows = state
                    .tables
                    .log_by_xid
                    .range((*xid, 0)..=(*xid, after.floor));
                late.extend(rows.map(|(_, seq)| *seq));
            }
        }
        late.sort_unstable();
        let late = late.iter().filter_map(|seq| log.get(seq));
        let tail = log.range(after.floor + 1..).map(|(_, row)| row);
        let is_due = |row: &&Row| until.sees(row.xid) && !after.sees(row.xid);
        let mut due: Vec<&Row> = late.chain(tail).filter(is_due).collect();
        if self.shared.has(Defect::OrderByTransaction) {
            due.sort_by_key(|row| (row.xid, row.seq));
        }
        due
    }
}
