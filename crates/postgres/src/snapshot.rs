//! The server's snapshots, and positions as text. Hidden: public for fuzzing only.

use onceward_core::store::{StoreError, StoreErrorKind};
use onceward_core::{Position, Snapshot, Stand};

/// Reads `xmin:xmax:xip,xip,...`, the text of `pg_snapshot`.
pub fn read_snapshot(text: &str, floor: u64) -> Option<Snapshot> {
    let mut parts = text.splitn(3, ':');
    let xmin = parts.next()?.parse().ok()?;
    let xmax = parts.next()?.parse().ok()?;
    let open = parts.next()?;
    let mut xip = Vec::new();
    for xid in open.split(',').filter(|xid| !xid.is_empty()) {
        xip.push(xid.parse().ok()?);
    }
    xip.sort_unstable();
    let snapshot = Snapshot {
        xmin,
        xmax,
        xip,
        floor,
    };
    is_ordered(&snapshot).then_some(snapshot)
}

/// Whether the open transactions are ascending and between the bounds. Of a snapshot for which this
/// does not hold, one that was open might be taken for seen, and its messages be passed over.
fn is_ordered(snapshot: &Snapshot) -> bool {
    let Snapshot {
        xmin, xmax, xip, ..
    } = snapshot;
    xmin <= xmax && xip.is_sorted() && xip.iter().all(|xid| (xmin..xmax).contains(&xid))
}

/// Most transactions that are listed as open because they had started above the snapshot's xmax.
const STARTED_MAX: u64 = 1_000;

/// Raises `xmax` above every transaction that had started.
///
/// The server's own xmax is one above the last transaction that has *ended*. A transaction above it
/// may have started, and have drawn its sequence, before the floor was read: without this its rows
/// would be below the floor and lost. Those `started` ones are listed as open, so that they are
/// read by transaction. Where there are very many (savepoints count too), the floor is given up
/// instead, and the next read looks the lowest sequence up.
pub(crate) fn above_started(mut snapshot: Snapshot, started: u64) -> Snapshot {
    if started > STARTED_MAX {
        snapshot.floor = 0;
        return snapshot;
    }
    let next = snapshot.xmax + started;
    snapshot.xip.extend(snapshot.xmax..next);
    snapshot.xmax = next;
    snapshot
}

/// Whether a position's floor says nothing, see [`above_started`].
pub(crate) fn has_no_floor(snapshot: &Snapshot) -> bool {
    snapshot.floor == 0 && snapshot.xmax > 0
}

/// Numbers with commas between.
pub fn list(xids: &[u64]) -> String {
    let texts: Vec<String> = xids.iter().map(u64::to_string).collect();
    texts.join(",")
}

/// Where a lane stands, as it is kept.
pub fn stand_text(stand: &Stand) -> Result<String, StoreError> {
    serde_json::to_string(stand)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "write a position", error))
}

/// Where a lane stands, as it was kept.
pub fn read_stand(text: &str) -> Result<Stand, StoreError> {
    let stand: Stand = serde_json::from_str(text)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "read a position", error))?;
    let is_good = |position: &Position| {
        let until = position.within.as_ref().map(|within| &within.until);
        let mut snapshots = std::iter::once(&position.after).chain(until);
        snapshots.all(is_ordered)
    };
    if !stand.positions().all(is_good) {
        let found = "a snapshot in it is out of order";
        return Err(StoreError::found(
            StoreErrorKind::Other,
            "read a position",
            found,
        ));
    }
    Ok(stand)
}

/// Sees every transaction: the end of an era whose last row is `floor`.
pub(crate) fn seal(floor: u64) -> Snapshot {
    Snapshot {
        xmin: u64::MAX,
        xmax: u64::MAX,
        xip: Vec::new(),
        floor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_read_back() {
        let snapshot = read_snapshot("10:20:10,15", 7).unwrap();
        assert_eq!((snapshot.xmin, snapshot.xmax, snapshot.floor), (10, 20, 7));
        assert_eq!(snapshot.xip, [10, 15]);
        assert!(read_snapshot("10:20:", 0).unwrap().xip.is_empty());
        assert_eq!(read_snapshot("10:20", 0), None);
        assert_eq!(read_snapshot("a:20:", 0), None);
    }

    /// Read as they are, an open transaction would count as seen.
    #[test]
    fn snapshots_and_positions_out_of_order_are_refused() {
        for text in ["30:20:", "10:20:9", "10:20:20", "10:20:5,15"] {
            assert_eq!(read_snapshot(text, 0), None, "{text}");
        }
        let after = |xip: &str| {
            format!(r#"{{"era":1,"after":{{"xmin":10,"xmax":20,"xip":[{xip}],"floor":7}}}}"#)
        };
        assert_eq!(
            read_stand(&after("10,15")).unwrap().position.after.xip,
            [10, 15]
        );
        for xip in ["15,10", "9", "20"] {
            assert!(read_stand(&after(xip)).is_err(), "{xip}");
        }
        let within = Position::origin(1).reach(&Snapshot::serial(5), 3);
        let text = stand_text(&within.clone().into()).unwrap();
        assert_eq!(read_stand(&text).unwrap(), within.into());
        let text = text.replace(r#""xmin":6,"xmax":6"#, r#""xmin":7,"xmax":6"#);
        assert!(read_stand(&text).is_err(), "{text}");
    }

    #[test]
    fn transactions_that_had_started_are_open_and_below_xmax() {
        let snapshot = above_started(read_snapshot("10:12:10", 7).unwrap(), 3);
        assert_eq!((snapshot.xmin, snapshot.xmax, snapshot.floor), (10, 15, 7));
        assert_eq!(snapshot.xip, [10, 12, 13, 14]);
        let many = above_started(read_snapshot("10:12:10", 7).unwrap(), 100_000);
        assert_eq!((many.xmax, many.floor, many.xip.len()), (12, 0, 1));
        assert!(has_no_floor(&many) && !has_no_floor(&snapshot));
        assert!(!has_no_floor(&Snapshot::origin()));
    }

    #[test]
    fn a_seal_sees_rows_of_any_cluster() {
        assert!(seal(0).sees(i64::MAX as u64));
    }
}
