//! How far a subscription has come in the log.
//!
//! Reading goes by what became visible between two snapshots, the model of PgQ's batches: a row is
//! due when the later snapshot sees the transaction that appended it and the earlier one does not.
//! No order of commits can hide a row from that, and an open transaction delays only its own rows.

use serde::{Deserialize, Serialize};

/// What was committed at one moment: `pg_current_snapshot()` and a floor for the log's sequence.
///
/// A store whose writers are serial (SQLite) uses `xid == seq` and [`Snapshot::serial`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// Every transaction below this had ended.
    pub xmin: u64,
    /// No transaction at or above this had started.
    pub xmax: u64,
    /// Transactions between `xmin` and `xmax` that were still open, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xip: Vec<u64>,
    /// A row whose transaction is at or above `xmax` has a sequence above this, as long as the
    /// sequence hands out numbers one by one.
    pub floor: u64,
}

impl Snapshot {
    /// Before the first row.
    #[must_use]
    pub const fn origin() -> Self {
        Self {
            xmin: 0,
            xmax: 0,
            xip: Vec::new(),
            floor: 0,
        }
    }

    /// All rows up to `seq`, in a store whose writers are serial and whose `xid` equals `seq`.
    #[must_use]
    pub const fn serial(seq: u64) -> Self {
        Self {
            xmin: seq + 1,
            xmax: seq + 1,
            xip: Vec::new(),
            floor: seq,
        }
    }

    /// Whether a committed transaction had already ended at this moment.
    #[must_use]
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.xip.binary_search(&xid).is_err())
    }

    /// Whether everything that `other` sees is seen here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.xmax >= other.xmax && self.xip.iter().all(|xid| !other.sees(*xid))
    }

    /// What both see.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let xmax = self.xmax.min(other.xmax);
        let both = self.xip.iter().chain(&other.xip);
        let mut xip: Vec<u64> = both.copied().filter(|xid| *xid < xmax).collect();
        xip.sort_unstable();
        xip.dedup();
        Self {
            xmin: self.xmin.min(other.xmin),
            xmax,
            xip,
            floor: self.floor.min(other.floor),
        }
    }

    /// Whether every transaction is seen: the end of the one tick of an era that is over.
    #[must_use]
    pub const fn is_seal(&self) -> bool {
        self.xmin == u64::MAX
    }
}

/// Where inside a tick: rows up to `seq` are behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Within {
    /// The snapshot that ends the tick.
    pub until: Snapshot,
    /// Rows of the tick up to and including this sequence are behind.
    pub seq: u64,
}

/// A place in the log: everything `after` sees is behind, and inside a tick its rows up to a
/// sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Era of the store; changes when a restored or copied database is taken into service.
    pub era: u32,
    /// The last finished snapshot.
    pub after: Snapshot,
    /// Set while a tick is only partly behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

impl Position {
    /// Before the first row of `era`.
    #[must_use]
    pub const fn origin(era: u32) -> Self {
        Self {
            era,
            after: Snapshot::origin(),
            within: None,
        }
    }

    /// At the end of a tick.
    #[must_use]
    pub const fn at(era: u32, after: Snapshot) -> Self {
        Self {
            era,
            after,
            within: None,
        }
    }

    /// The same tick with rows up to `seq` behind.
    #[must_use]
    pub fn reach(&self, until: &Snapshot, seq: u64) -> Self {
        Self {
            era: self.era,
            after: self.after.clone(),
            within: Some(Within {
                until: until.clone(),
                seq,
            }),
        }
    }

    /// Whether a row is behind this position, that is, must not be due any more.
    #[must_use]
    pub fn is_past(&self, xid: u64, seq: u64) -> bool {
        self.after.sees(xid)
            || self
                .within
                .as_ref()
                .is_some_and(|w| seq <= w.seq && w.until.sees(xid))
    }

    /// A place that has nothing behind it but what both have behind them. It is one of the two
    /// wherever one of them comes before the other.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        // Snapshots of different eras say nothing of one another: what was there before comes first.
        let seal = |position: &Self| match &position.within {
            Some(within) if within.until.is_seal() => within.until.floor,
            _ => u64::MAX,
        };
        let (own, others) = ((self.era, seal(self)), (other.era, seal(other)));
        if own != others {
            return if own < others { self } else { other }.clone();
        }
        let after = self.after.meet(&other.after);
        let tick = |position: &Self| match &position.within {
            Some(within) => within.clone(),
            None => Within {
                until: position.after.clone(),
                seq: u64::MAX,
            },
        };
        let (one, two) = (tick(self), tick(other));
        let until = one.until.meet(&two.until);
        // Nothing lies between the two, or all of it is behind both.
        if after.covers(&until) {
            return Self::at(self.era, after);
        }
        let seq = one.seq.min(two.seq);
        Self {
            era: self.era,
            after,
            within: Some(Within { until, seq }),
        }
    }

    /// Whether this is the end of a tick rather than a place inside one.
    #[must_use]
    pub const fn is_boundary(&self) -> bool {
        self.within.is_none()
    }
}

#[cfg(test)]
#[path = "position_tests.rs"]
mod tests;
