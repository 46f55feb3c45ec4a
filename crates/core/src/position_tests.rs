use super::*;
use proptest::prelude::*;

fn snapshot(xmin: u64, xmax: u64, xip: &[u64], floor: u64) -> Snapshot {
    Snapshot {
        xmin,
        xmax,
        xip: xip.to_vec(),
        floor,
    }
}

#[test]
fn an_open_transaction_is_not_seen_and_its_neighbours_are() {
    let s = snapshot(10, 20, &[10, 15], 0);
    assert!(s.sees(9) && s.sees(14) && s.sees(19));
    assert!(!s.sees(10) && !s.sees(15) && !s.sees(20));
}

#[test]
fn a_late_commit_with_a_low_sequence_is_not_past_the_next_tick() {
    // Transaction 10 drew sequence 1 and stayed open; 11 drew 2 and committed.
    let first = snapshot(10, 12, &[10], 2);
    let position = Position::at(1, first);
    assert!(position.is_past(11, 2));
    assert!(
        !position.is_past(10, 1),
        "a cursor on the sequence would lose this row"
    );
}

#[test]
fn inside_a_tick_only_rows_up_to_the_sequence_are_behind() {
    let start = Position::at(1, snapshot(10, 12, &[10], 2));
    let inside = start.reach(&snapshot(14, 14, &[], 9), 5);
    assert!(inside.is_past(12, 4));
    assert!(!inside.is_past(13, 6));
    assert!(!inside.is_past(14, 5), "not part of this tick");
}

#[test]
fn position_text_is_stable() {
    let position = Position::at(1, snapshot(10, 12, &[10], 2)).reach(&snapshot(14, 14, &[], 9), 5);
    let text = serde_json::to_string(&position).unwrap();
    assert_eq!(
        text,
        r#"{"era":1,"after":{"xmin":10,"xmax":12,"xip":[10],"floor":2},"within":{"until":{"xmin":14,"xmax":14,"floor":9},"seq":5}}"#
    );
    assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), position);
}

proptest! {
    /// Whatever the order of commits, the ticks of a reader partition the committed rows.
    #[test]
    fn ticks_partition_the_rows(
        // For each transaction: when it starts, how long it stays open, whether it commits.
        transactions in prop::collection::vec((0u32..40, 0u32..40, any::<bool>()), 1..40),
        reads in prop::collection::btree_set(0u32..90, 1..8),
    ) {
        let mut by_start: Vec<_> = transactions;
        by_start.sort_by_key(|t| t.0);
        let state_at = |now: u32| {
            let started = by_start.iter().filter(|t| t.0 < now).count() as u64;
            let open: Vec<u64> = by_start.iter().enumerate()
                .filter(|(_, t)| t.0 < now && t.0 + t.1 >= now)
                .map(|(i, _)| i as u64 + 1).collect();
            let xmax = started + 1;
            let xmin = open.first().copied().unwrap_or(xmax);
            Snapshot { xmin, xmax, xip: open, floor: 0 }
        };
        let mut seen = std::collections::BTreeMap::new();
        let mut previous = Snapshot::origin();
        for now in reads.into_iter().chain([200]) {
            let next = state_at(now);
            prop_assert!(next.covers(&previous));
            for (i, t) in by_start.iter().enumerate() {
                let xid = i as u64 + 1;
                if t.2 && next.sees(xid) && !previous.sees(xid) {
                    *seen.entry(xid).or_insert(0) += 1;
                }
            }
            previous = next;
        }
        for (i, t) in by_start.iter().enumerate() {
            prop_assert_eq!(seen.get(&(i as u64 + 1)).copied().unwrap_or(0), u32::from(t.2));
        }
    }
}

/// Any position of one era: a boundary, or a place in a tick.
fn some_position() -> impl Strategy<Value = Position> {
    let snapshot = (
        1u64..12,
        0u64..6,
        prop::collection::btree_set(1u64..18, 0..4),
        0u64..20,
    );
    let snapshot = snapshot.prop_map(|(xmin, more, open, floor)| {
        let xmax = xmin + more;
        let xip: Vec<u64> = open
            .into_iter()
            .filter(|xid| (xmin..xmax).contains(xid))
            .collect();
        self::snapshot(xmin, xmax, &xip, floor)
    });
    (snapshot.clone(), prop::option::of((snapshot, 0u64..20))).prop_map(|(after, within)| {
        let position = Position::at(1, after);
        match within {
            Some((until, seq)) => position.reach(&until, seq),
            None => position,
        }
    })
}

proptest! {
    #[test]
    fn where_two_meet_nothing_is_past_that_one_of_them_has_before_it(
        one in some_position(),
        two in some_position(),
    ) {
        let meet = one.meet(&two);
        for xid in 1..20 {
            for seq in 1..22 {
                let both = one.is_past(xid, seq) && two.is_past(xid, seq);
                prop_assert!(both || !meet.is_past(xid, seq), "{meet:?} {xid} {seq}");
            }
        }
        for snapshot in [&meet.after].into_iter().chain(meet.within.as_ref().map(|w| &w.until)) {
            prop_assert!(snapshot.xip.is_sorted() && snapshot.xmin <= snapshot.xmax);
            prop_assert!(snapshot.xip.iter().all(|xid| *xid < snapshot.xmax));
        }
    }

    #[test]
    fn of_two_places_in_a_serial_log_the_earlier_one_is_where_they_meet(
        one in 0u64..50, two in 0u64..50, end in 50u64..60, cuts in any::<[bool; 2]>(),
    ) {
        let place = |seq: u64, is_cut: bool| match is_cut {
            true => Position::origin(1).reach(&Snapshot::serial(end), seq),
            false => Position::at(1, Snapshot::serial(seq)),
        };
        let meet = place(one, cuts[0]).meet(&place(two, cuts[1]));
        for seq in 1..60 {
            prop_assert_eq!(meet.is_past(seq, seq), seq <= one.min(two));
        }
    }
}

#[test]
fn what_is_left_of_an_era_that_is_over_comes_first() {
    // Its transactions are those of another cluster, and may have any number.
    let seal = Snapshot {
        xmin: u64::MAX,
        xmax: u64::MAX,
        xip: Vec::new(),
        floor: 40,
    };
    let sealed = Position::at(2, snapshot(900, 900, &[], 30)).reach(&seal, 35);
    let new = Position::at(2, snapshot(10, 12, &[10], 41));
    assert_eq!(sealed.meet(&new), sealed);
    assert_eq!(new.meet(&sealed), sealed);
    let further = Position::at(2, snapshot(900, 900, &[], 30)).reach(&seal, 37);
    assert_eq!(further.meet(&sealed), sealed);
}
