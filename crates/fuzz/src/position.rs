//! Snapshots and positions as text.

use onceward_core::Snapshot;
use onceward_postgres::snapshot::{list, read_snapshot, read_stand, stand_text};

/// The text of a snapshot, or of a position.
pub(crate) fn read(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Some(snapshot) = read_snapshot(text, 7) {
        holds(&snapshot);
        let (xmin, xmax) = (snapshot.xmin, snapshot.xmax);
        let written = format!("{xmin}:{xmax}:{}", list(&snapshot.xip));
        assert_eq!(read_snapshot(&written, 7), Some(snapshot));
    }
    if let Ok(stand) = read_stand(text) {
        for position in stand.positions() {
            holds(&position.after);
            if let Some(within) = &position.within {
                holds(&within.until);
                assert_eq!(
                    position.is_past(u64::MAX, within.seq),
                    within.until.sees(u64::MAX) || position.after.sees(u64::MAX)
                );
            }
            // What both have behind them is behind each.
            holds(&position.meet(&stand.position).after);
        }
        let written = stand_text(&stand).expect("what is read can be written");
        assert_eq!(
            read_stand(&written).expect("what is written can be read"),
            stand
        );
    }
}

/// No transaction that was open is seen, or its messages would be passed over.
fn holds(snapshot: &Snapshot) {
    for xid in &snapshot.xip {
        assert!(!snapshot.sees(*xid), "{xid} was open and is seen");
    }
    assert!(
        !snapshot.sees(snapshot.xmax),
        "what had not started is seen"
    );
    assert!(snapshot.covers(snapshot));
}
