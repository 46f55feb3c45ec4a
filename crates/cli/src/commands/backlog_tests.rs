use onceward_console::overview::HeldHere;
use onceward_core::hold::HoldLimits;

use super::*;

fn key(name: &str, depth: u64, age_ms: u64) -> LongHeld {
    LongHeld {
        key: name.to_owned(),
        depth,
        held_since: Timestamp::from_micros(0),
        behind: "retry".to_owned(),
        case_id: None,
        age_ms,
    }
}

fn lines(held: &HeldHere) -> Vec<String> {
    held.told()
        .map(|(key, passed)| held_line("ship", key, passed))
        .collect()
}

const LIMITS: HoldLimits = HoldLimits {
    depth: 10,
    age_ms: 60_000,
};

#[test]
fn the_longest_and_all_beyond_a_limit_are_told_once() {
    let mut old = key("old", 2, 90_000);
    old.case_id = Some(7);
    let (deep, calm) = (key("deep", 11, 1_000), key("calm", 1, 2_000));
    let longest = vec![old.clone(), calm];
    let held = HeldHere::of(LIMITS, longest, vec![old, deep]);
    let lines = lines(&held);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("2 message(s) of key old") && lines[0].contains("behind case 7"));
    assert!(lines[0].ends_with("BEYOND hold_age"), "{}", lines[0]);
    assert!(lines[1].contains("key deep") && lines[1].ends_with("BEYOND hold_depth"));
}

#[test]
fn within_its_limits_only_the_longest_is_named() {
    let held = HeldHere::of(LIMITS, vec![key("a", 1, 5_000), key("b", 1, 1_000)], vec![]);
    let lines = lines(&held);
    assert_eq!(lines.len(), 1);
    assert!(!lines[0].contains("BEYOND"), "{}", lines[0]);
    assert_eq!(HeldHere::of(LIMITS, vec![], vec![]).told().count(), 0);
}

#[test]
fn what_waits_is_told_by_class_and_tenants() {
    let mut backlog = Backlog {
        subscription: "ship".to_owned(),
        waiting: 7,
        waiting_is_lower_bound: false,
        waiting_before: 0,
        types: Vec::new(),
        oldest_waiting_at: None,
        groups: Vec::new(),
        deferred: onceward_core::store::DeferredCounts::default(),
        oldest_deferred_at: None,
        due_since: None,
        quarantined: 0,
        paused_at: None,
        still: None,
        rate: None,
        lanes: Vec::new(),
        now: Timestamp::from_micros(120_000_000),
    };
    assert!(group_lines(&backlog).is_empty());
    let group = |priority, tenants, waiting, oldest_at: Option<i64>| GroupBacklog {
        priority,
        tenants,
        waiting,
        oldest_waiting_at: oldest_at.map(Timestamp::from_micros),
    };
    backlog.groups = vec![
        group(Priority::High, None, 0, None),
        group(Priority::Low, None, 7, Some(60_000_000)),
    ];
    let lines = group_lines(&backlog);
    assert_eq!(lines[0], "priority: ship: high 0 waiting");
    assert!(lines[1].starts_with("priority: ship: low 7 waiting, the oldest for"));
    backlog.groups = vec![
        group(Priority::Normal, Some(0), 3, Some(0)),
        group(Priority::Normal, Some(1), 0, None),
        group(Priority::Normal, Some(2), 4, Some(60_000_000)),
    ];
    let lines = group_lines(&backlog);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("normal 7 waiting"), "{}", lines[0]);
    assert!(lines[0].ends_with("; by tenants: 3 in group 0, 4 in group 2"));
}
