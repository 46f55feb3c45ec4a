use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::group::{Grouping, Tenants};

const TYPES: [(&str, Priority); 3] = [
    ("h", Priority::High),
    ("n", Priority::Normal),
    ("l", Priority::Low),
];

fn groups(types: &[(&str, Priority)], tenants: Option<u8>) -> Groups {
    Groups::new(&Grouping {
        types: types.iter().map(|(t, p)| ((*t).to_owned(), *p)).collect(),
        tenants: tenants.map(|groups| Tenants {
            attribute: "tenant".to_owned(),
            groups,
        }),
    })
}

fn key() -> Arc<str> {
    Arc::from("k")
}

/// Starts the next batch of one key, and says of which group and origin it is.
fn start(turns: &mut Turns) -> Option<Start> {
    let (group, origin) = turns.next()?;
    let mut start = Start::of(group, origin);
    turns.pop(&start)?;
    turns.gives(&mut start, None, 1);
    turns.started(&start);
    Some(start)
}

/// Each of these groups has ready work for ever.
fn fill_up(turns: &mut Turns, of: impl IntoIterator<Item = usize>) {
    for group in of {
        if turns.is_group_empty(group) {
            turns.push(group, Origin::Fresh, key(), None);
        }
    }
}

#[test]
fn each_class_gets_its_weight_of_the_starts() {
    let mut turns = Turns::new(&groups(&TYPES, None), 0.5);
    let mut started = [0; 3];
    for _ in 0..13 * 20 {
        fill_up(&mut turns, 0..3);
        let start = start(&mut turns).unwrap();
        started[start.group] += 1;
        turns.ended(&start);
    }
    assert_eq!(started, [160, 80, 20]);
}

#[test]
fn whoever_was_away_has_saved_nothing_up() {
    let mut turns = Turns::new(&groups(&TYPES, None), 0.5);
    for _ in 0..1_000 {
        fill_up(&mut turns, [1]);
        let start = start(&mut turns).unwrap();
        turns.ended(&start);
    }
    let mut of_low = 0;
    for _ in 0..15 {
        fill_up(&mut turns, [1, 2]);
        let start = start(&mut turns).unwrap();
        of_low += u32::from(start.group == 2);
        turns.ended(&start);
    }
    assert!((3..=4).contains(&of_low), "{of_low} of 15, one in five");
}

#[test]
fn slow_low_work_keeps_to_its_share_of_the_slots() {
    let mut turns = Turns::new(&groups(&TYPES, None), 0.5);
    let mut running: VecDeque<Start> = VecDeque::new();
    let mut of_low = 0;
    // What is low never ends, everything else at once.
    for _ in 0..500 {
        fill_up(&mut turns, [0, 2]);
        while running.len() + of_low < 8 {
            let start = start(&mut turns).unwrap();
            if start.group == 2 {
                of_low += 1;
            } else {
                running.push_back(start);
            }
            fill_up(&mut turns, [0, 2]);
        }
        turns.ended(&running.pop_front().unwrap());
    }
    assert_eq!(of_low, 1, "a ninth of eight slots, rounded up");
}

#[test]
fn where_only_one_has_work_it_has_all_slots() {
    let mut turns = Turns::new(&groups(&TYPES, Some(3)), 0.5);
    for _ in 0..50 {
        turns.push(8, Origin::Again, key(), None);
        assert_eq!(start(&mut turns).unwrap().group, 8);
    }
}

#[test]
fn tenants_of_one_group_share_by_messages_in_flight() {
    let mut turns = Turns::new(&groups(&TYPES[..1], Some(1)), 0.5);
    let (a, b): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
    for i in 0..100 {
        turns.push(0, Origin::Fresh, Arc::from(format!("a{i}")), Some(&a));
    }
    let mut batch = Start::of(0, Origin::Fresh);
    for _ in 0..10 {
        turns.pop(&batch).unwrap();
        turns.gives(&mut batch, Some(&a), 1);
    }
    for i in 0..20 {
        turns.push(0, Origin::Fresh, Arc::from(format!("b{i}")), Some(&b));
    }
    let mut next = Start::of(0, Origin::Fresh);
    let mut popped = Vec::new();
    for _ in 0..14 {
        let key = turns.pop(&next).unwrap();
        let tenant = if key.starts_with('a') { &a } else { &b };
        turns.gives(&mut next, Some(tenant), 1);
        popped.push(key.chars().next().unwrap());
    }
    // First ten of b, as many as a has in flight; then one each.
    assert_eq!(popped.iter().collect::<String>(), "bbbbbbbbbbabab");
    turns.ended(&batch);
    turns.ended(&next);
    turns.retain(|_| false);
    assert!(turns.is_empty());
    let Ready::ByTenant(tenants) = &turns.groups[0].fresh else {
        panic!("tenants are told apart");
    };
    assert!(
        tenants.tenants.is_empty(),
        "whoever has nothing is forgotten"
    );
}

#[test]
fn what_comes_again_has_its_share_and_no_more() {
    for (share, of_again) in [(0.5, 4), (0.25, 2), (0.01, 1), (0.99, 7)] {
        let mut turns = Turns::new(&groups(&TYPES[..1], None), share);
        for _ in 0..20 {
            turns.push(0, Origin::Again, key(), None);
            turns.push(0, Origin::Fresh, key(), None);
        }
        let started: Vec<Start> = (0..8).map(|_| start(&mut turns).unwrap()).collect();
        let again = started.iter().filter(|s| s.origin == Origin::Again);
        assert_eq!(again.count(), of_again, "{share}");
    }
}

#[test]
fn one_at_a_time_what_comes_again_and_what_is_new_take_turns() {
    let mut turns = Turns::new(&groups(&TYPES[..1], None), 0.25);
    let mut again = 0;
    for _ in 0..100 {
        turns.push(0, Origin::Again, key(), None);
        turns.push(0, Origin::Fresh, key(), None);
        let start = start(&mut turns).unwrap();
        again += u32::from(start.origin == Origin::Again);
        turns.ended(&start);
    }
    assert_eq!(again, 25);
}

#[test]
fn slow_retries_leave_the_other_slots_to_what_is_new() {
    let mut turns = Turns::new(&groups(&TYPES[..1], None), 0.5);
    let mut of_again = 0;
    for _ in 0..1_000 {
        turns.push(0, Origin::Again, key(), None);
        turns.push(0, Origin::Fresh, key(), None);
        if of_again == 8 {
            break;
        }
        let start = start(&mut turns).unwrap();
        match start.origin {
            // It takes for ever.
            Origin::Again => of_again += 1,
            Origin::Fresh => turns.ended(&start),
        }
        // Eight slots, of which one is free now.
        assert!(
            of_again <= 4,
            "all but half of the slots are full of retries"
        );
        for _ in 0..7 - of_again {
            let start = Start::of(0, Origin::Fresh);
            turns.started(&start);
        }
        for _ in 0..7 - of_again {
            turns.ended(&Start::of(0, Origin::Fresh));
        }
    }
    assert!(of_again >= 1);
}

proptest! {
    /// However batches end: a class that has ready work and nothing in flight waits for so many
    /// starts of others at most as their weights say, and one more of each.
    #[test]
    fn nobody_waits_for_more_starts_than_weights_say(
        slots in 1usize..10,
        steps in prop::collection::vec((0u8..8, 0usize..10), 1..400),
    ) {
        let mut turns = Turns::new(&groups(&TYPES, None), 0.5);
        let mut running: Vec<Start> = Vec::new();
        let mut waited = [0u32; 3];
        for (ready, ends) in steps {
            fill_up(&mut turns, (0..3).filter(|g| ready & (1 << g) != 0));
            while running.len() < slots
                && let Some(start) = start(&mut turns)
            {
                for group in 0..3 {
                    let runs = running.iter().any(|r| r.group == group);
                    let is_waiting = !turns.is_group_empty(group) && !runs;
                    waited[group] = match group == start.group || !is_waiting {
                        true => 0,
                        false => waited[group] + 1,
                    };
                    prop_assert!(waited[group] <= 8 + 1 + 4 + 1, "{waited:?}");
                }
                running.push(start);
                fill_up(&mut turns, (0..3).filter(|g| ready & (1 << g) != 0));
            }
            if !running.is_empty() {
                turns.ended(&running.swap_remove(ends % running.len()));
            }
        }
    }

    /// Two tenants with ready work have as many batches in flight, but for one.
    #[test]
    fn tenants_have_equal_shares_of_what_is_in_flight(
        slots in 1usize..10,
        ends in prop::collection::vec(0usize..10, 1..300),
    ) {
        let mut turns = Turns::new(&groups(&TYPES[1..2], Some(2)), 0.5);
        let mut running: Vec<Start> = Vec::new();
        for end in ends {
            while running.len() < slots {
                fill_up(&mut turns, 0..2);
                let before = [0, 1].map(|g| running.iter().filter(|r| r.group == g).count());
                let next = start(&mut turns).unwrap();
                prop_assert!(before[next.group] <= before[1 - next.group]);
                running.push(next);
            }
            turns.ended(&running.swap_remove(end % running.len()));
        }
    }
}
