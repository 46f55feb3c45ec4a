//! A dispatcher by hand: what may be merged comes together.

use super::super::*;
use super::tests::{Desk, contract, retry, row};
use crate::store::DeferredRow;

/// A dispatcher that merges, with messages of these keys behind a batch of each of two other keys.
fn merging(batch_max: u32, keys: &[&str]) -> Desk {
    let mut merging = contract();
    merging.merge = Merge::Latest;
    let mut desk = Desk::new(&merging, batch_max, Vec::new());
    desk.read(keys);
    desk
}

#[test]
fn what_may_be_merged_comes_together_and_uses_the_room_of_one() {
    let mut desk = merging(1, &[&["a"; 300][..], &["b"; 5]].concat());
    let a = desk.batch_with("a").expect("a runs");
    assert_eq!(a.works.len(), 300, "whatever a batch may take");
    let b = desk.batch_with("b").expect("b runs beside it");
    assert_eq!(b.works.len(), 5);
    desk.end(&a, vec![Fate::Finished; 300]);
    desk.end(&b, vec![Fate::Finished; 5]);
    assert!(desk.dispatcher.is_quiet());
}

#[test]
fn what_was_tried_is_handed_over_alone() {
    let mut desk = merging(1, &["a", "a", "a"]);
    let batch = desk.batch_with("a").expect("it runs");
    assert_eq!(batch.works.len(), 3);
    // The survivor fails, what was merged has its end.
    let failed = Deferral {
        spent: Spent {
            failures: 1,
            ..Spent::default()
        },
        ..retry(&batch.works[2], 0)
    };
    let fates = vec![
        Fate::Finished,
        Fate::Finished,
        Fate::Deferred(failed.clone()),
    ];
    desk.end(&batch, fates);
    let load = desk.take(|command| match command {
        Command::Load { load, .. } => Some(*load),
        _ => None,
    });
    let load = load.expect("it is due at once");
    // The log is read as far as what is loaded.
    desk.read(&["b", "b"]);
    desk.finish_all_but("a");
    let held = |seq: u64, spent| DeferredRow {
        row: (*row(seq, "a")).clone(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(0),
        spent,
        failure: None,
        generation: 0,
    };
    desk.handle(Event::Loaded {
        load,
        key: "a".into(),
        rows: vec![
            held(3, failed.spent),
            held(4, Spent::default()),
            held(5, Spent::default()),
        ],
    });
    let batch = desk.batch_with("a").expect("it runs again");
    assert_eq!(batch.works.len(), 1, "what was tried is not merged");
    assert!(!batch.works[0].is_untried());
    desk.end(&batch, vec![Fate::Finished]);
    let batch = desk.batch_with("a").expect("the others follow");
    assert_eq!(batch.works.len(), 2);
}

#[test]
fn without_merging_a_batch_takes_what_it_may() {
    let mut desk = Desk::new(&contract(), 1, Vec::new());
    desk.read(&["a", "a", "a"]);
    assert_eq!(desk.batch_with("a").expect("it runs").works.len(), 1);
}
