//! Everything a database in memory holds, and its transactions.

use std::collections::BTreeMap;

use onceward_core::store::{StoreErrorKind, Terms};
use onceward_core::{Snapshot, Stand, Timestamp};

use super::journal::{Change, Listener};
use super::replay::Campaigns;
use super::writes::{Tables, Unique, Write};

/// The database.
#[derive(Debug)]
pub(super) struct State {
    pub(super) is_migrated: bool,
    pub(super) era: u32,
    pub(super) tables: Tables,
    pub(super) subscriptions: BTreeMap<String, Subscription>,
    pub(super) campaigns: Campaigns,
    pub(super) lanes: BTreeMap<(String, u16), Lane>,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) last_tidy: Option<(Timestamp, onceward_core::store::UpkeepReport)>,
    /// Open transactions by a number of their own: a transaction has no id before it writes.
    pub(super) open: BTreeMap<u64, OpenTx>,
    /// Transactions that were ended from outside and do not know it yet, with what they will hear.
    pub(super) cut: BTreeMap<u64, StoreErrorKind>,
    /// Who waits for whom.
    pub(super) waits: BTreeMap<u64, u64>,
    /// Counts commits that appended, for those that doze.
    pub(super) appends: u64,
    pub(super) listener: Listener,
    last_tx: u64,
    next_xid: u64,
    last_seq: u64,
    last_fence: i64,
}

/// A registered subscription.
#[derive(Debug, Clone)]
pub(super) struct Subscription {
    pub(super) lanes: u16,
    pub(super) types: Vec<String>,
    pub(super) not_before: Option<Timestamp>,
    pub(super) terms: Terms,
}

/// A lane with its owner and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) epoch: u64,
    pub(super) owner: Option<String>,
    pub(super) stand: Stand,
}

/// A member of the fleet.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) fence: i64,
    pub(super) description: String,
    pub(super) lease_ms: u64,
    pub(super) subscriptions: Vec<String>,
    pub(super) renewed_at: Timestamp,
    pub(super) is_ended: bool,
}

impl Member {
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        let lease_ms = i64::try_from(self.lease_ms).unwrap_or(i64::MAX);
        // Far in the future: from before the clock was set back.
        !self.is_ended && now.millis_since(self.renewed_at).abs() < lease_ms
    }
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct OpenTx {
    /// Given out at the first write.
    pub(super) xid: Option<u64>,
    /// Whose lease it was opened under.
    pub(super) member: Option<String>,
    /// Ended when it idles longer; only under a lease.
    pub(super) idle_max_ms: Option<u64>,
    pub(super) used_at: Timestamp,
    pub(super) writes: Vec<Write>,
    /// How many writes the savepoint keeps.
    pub(super) savepoint: Option<usize>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            is_migrated: false,
            era: 1,
            tables: Tables::default(),
            subscriptions: BTreeMap::new(),
            campaigns: Campaigns::default(),
            lanes: BTreeMap::new(),
            members: BTreeMap::new(),
            last_tidy: None,
            open: BTreeMap::new(),
            cut: BTreeMap::new(),
            waits: BTreeMap::new(),
            appends: 0,
            listener: Listener::default(),
            last_tx: 0,
            next_xid: 1,
            last_seq: 0,
            last_fence: 0,
        }
    }
}

impl State {
    /// What is committed at this moment.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut xip: Vec<u64> = self.open.values().filter_map(|tx| tx.xid).collect();
        xip.sort_unstable();
        Snapshot {
            xmin: xip.first().copied().unwrap_or(self.next_xid),
            xmax: self.next_xid,
            xip,
            floor: self.last_seq,
        }
    }

    /// Opens a transaction and returns its number.
    pub(super) fn open(&mut self, tx: OpenTx) -> u64 {
        self.last_tx += 1;
        self.open.insert(self.last_tx, tx);
        self.last_tx
    }

    /// An open transaction, or what became of it.
    pub(super) fn tx(
        &mut self,
        number: u64,
        now: Timestamp,
    ) -> Result<&mut OpenTx, StoreErrorKind> {
        let cut = self.cut.get(&number).copied();
        let tx = self.open.get_mut(&number);
        let tx = tx.ok_or(cut.unwrap_or(StoreErrorKind::Other))?;
        tx.used_at = now;
        Ok(tx)
    }

    /// The id of a transaction that is about to write.
    pub(super) fn xid(&mut self, number: u64, now: Timestamp) -> Result<u64, StoreErrorKind> {
        let next = self.next_xid;
        let tx = self.tx(number, now)?;
        let xid = *tx.xid.get_or_insert(next);
        if xid == next {
            self.next_xid += 1;
        }
        Ok(xid)
    }

    /// The next number of the log's sequence.
    pub(super) fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// The next fence.
    pub(super) fn next_fence(&mut self) -> i64 {
        self.last_fence += 1;
        self.last_fence
    }

    /// Records a write of an open transaction.
    pub(super) fn write(
        &mut self,
        number: u64,
        now: Timestamp,
        write: Write,
    ) -> Result<(), StoreErrorKind> {
        self.xid(number, now)?;
        self.tx(number, now)?.writes.push(write);
        Ok(())
    }

    /// The other open transaction that holds a unique key.
    pub(super) fn holder(&self, me: u64, unique: &Unique) -> Option<u64> {
        let others = self.open.iter().filter(|(number, _)| **number != me);
        let mut holding = others.filter(|(_, tx)| {
            let mut keys = tx.writes.iter().filter_map(Write::unique);
            keys.any(|held| held == *unique)
        });
        holding.next().map(|(number, _)| *number)
    }

    /// Whether waiting would close a circle.
    pub(super) fn would_deadlock(&self, me: u64, other: u64) -> bool {
        let mut at = other;
        while let Some(next) = self.waits.get(&at) {
            if *next == me {
                return true;
            }
            at = *next;
        }
        false
    }

    /// Makes what a transaction wrote visible.
    pub(super) fn commit(&mut self, number: u64, now: Timestamp) -> Result<(), StoreErrorKind> {
        self.tx(number, now)?;
        if let Some(tx) = self.open.remove(&number) {
            let has_appended = tx.writes.iter().any(|w| matches!(w, Write::Append(_)));
            self.appends += u64::from(has_appended);
            let mut written = Vec::new();
            for write in tx.writes {
                let is_told = self.listener.is_there() && !self.tables.has_already(&write);
                let place = is_told.then(|| write.place());
                self.tables.apply(write);
                written.extend(place.and_then(|place| self.tables.written(place)));
            }
            self.listener.tell(now, || Change::Committed {
                member: tx.member,
                last_seq: self.last_seq,
                writes: written,
            });
        }
        Ok(())
    }

    /// Forgets a transaction.
    pub(super) fn forget(&mut self, number: u64) {
        self.open.remove(&number);
        self.cut.remove(&number);
    }

    /// Ends a member and everything it has open.
    pub(super) fn end_member(&mut self, member: &str) {
        if let Some(member) = self.members.get_mut(member) {
            member.is_ended = true;
        }
        self.cut_where(StoreErrorKind::Fenced, |tx| {
            tx.member.as_deref() == Some(member)
        });
    }

    /// Ends transactions that idled longer than they may. Returns whether there were any.
    pub(super) fn end_idle(&mut self, now: Timestamp) -> bool {
        self.cut_where(StoreErrorKind::Overstayed, |tx| {
            tx.idle_max_ms.is_some_and(|max_ms| {
                let idle_ms = now.millis_since(tx.used_at);
                u64::try_from(idle_ms).is_ok_and(|idle_ms| idle_ms > max_ms)
            })
        })
    }

    fn cut_where(&mut self, kind: StoreErrorKind, which: impl Fn(&OpenTx) -> bool) -> bool {
        let gone: Vec<u64> = self
            .open
            .extract_if(.., |_, tx| which(tx))
            .map(|e| e.0)
            .collect();
        for number in &gone {
            self.cut.insert(*number, kind);
        }
        !gone.is_empty()
    }
}
