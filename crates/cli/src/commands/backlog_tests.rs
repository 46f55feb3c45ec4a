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
    let lines = held.lines("ship");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("2 message(s) of key old") && lines[0].contains("behind case 7"));
    assert!(lines[0].ends_with("BEYOND hold_age"), "{}", lines[0]);
    assert!(lines[1].contains("key deep") && lines[1].ends_with("BEYOND hold_depth"));
}

#[test]
fn within_its_limits_only_the_longest_is_named() {
    let held = HeldHere::of(LIMITS, vec![key("a", 1, 5_000), key("b", 1, 1_000)], vec![]);
    let lines = held.lines("ship");
    assert_eq!(lines.len(), 1);
    assert!(!lines[0].contains("BEYOND"), "{}", lines[0]);
    assert!(
        HeldHere::of(LIMITS, vec![], vec![])
            .lines("ship")
            .is_empty()
    );
}
