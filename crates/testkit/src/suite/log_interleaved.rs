//! The log under writers that commit in any order.

use std::collections::{BTreeMap, BTreeSet};

use onceward_core::Position;
use onceward_core::store::{End, Store};

use super::seams::*;
use super::steps::{append, append_in, ids, message, messages, open, origin, read, read_all};
use super::{CaseResult, Fixture, allows};

const ONE_WRITER: &str = "the store has one writer at a time, so commits cannot interleave";

fn interleaves<F: Fixture>(fixture: &F, case: &str) -> bool {
    allows(
        fixture.capabilities().has_concurrent_writers,
        case,
        ONE_WRITER,
    )
}

/// Others are read meanwhile; what was open comes when it commits, once.
pub async fn an_open_transaction_delays_only_its_own_rows<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "an_open_transaction_delays_only_its_own_rows") {
        return Ok(());
    }
    let store = fixture.store();
    let mut slow = open(store).await?;
    append_in(store, &mut slow, &messages(1, 2)).await?;
    append(&fixture.second().await, &messages(3, 5)).await?;

    let (rows, next) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m3", "m4", "m5"]);
    let (rows, next) = read_all(store, &next, 10).await?;
    assert!(rows.is_empty(), "nothing twice: {:?}", ids(&rows));
    store.end(slow, End::Commit).await?;
    let (rows, next) = read_all(store, &next, 10).await?;
    assert_eq!(ids(&rows), ["m1", "m2"]);
    assert!(read(store, &next, 10).await?.rows.is_empty());
    Ok(())
}

/// A tick's end is fixed when it is begun.
pub async fn a_commit_while_a_tick_is_read_comes_in_the_next<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    if !interleaves(fixture, "a_commit_while_a_tick_is_read_comes_in_the_next") {
        return Ok(());
    }
    let store = fixture.store();
    let mut slow = open(store).await?;
    append_in(store, &mut slow, &messages(1, 1)).await?;
    append(store, &messages(2, 6)).await?;

    let first = read(store, &origin(store).await?, 2).await?;
    assert_eq!(ids(&first.rows), ["m2", "m3"]);
    store.end(slow, End::Commit).await?;
    append(store, &messages(7, 7)).await?;
    let (rest, next) = read_all(store, &first.next, 2).await?;
    assert_eq!(ids(&rest), ["m4", "m5", "m6"]);
    let (later, _) = read_all(store, &next, 2).await?;
    assert_eq!(ids(&later), ["m1", "m7"]);
    Ok(())
}

/// Inside a tick the order is that of appending, whoever committed first.
pub async fn late_rows_are_merged_by_sequence<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "late_rows_are_merged_by_sequence") {
        return Ok(());
    }
    let store = fixture.store();
    let mut slow = open(store).await?;
    append_in(store, &mut slow, &messages(1, 1)).await?;
    append(store, &messages(2, 2)).await?;
    let (rows, next) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m2"]);

    append(store, &messages(3, 3)).await?;
    append_in(store, &mut slow, &messages(4, 4)).await?;
    append(store, &messages(5, 5)).await?;
    append_in(store, &mut slow, &messages(6, 6)).await?;
    store.end(slow, End::Commit).await?;
    append(store, &messages(7, 7)).await?;
    for rows_max in [1, 2, 3, 10] {
        let (rows, _) = read_all(store, &next, rows_max).await?;
        let expected = ["m1", "m3", "m4", "m5", "m6", "m7"];
        assert_eq!(ids(&rows), expected, "in pages of {rows_max}");
    }
    Ok(())
}

/// A cursor on the sequence or on the transaction would be past them.
pub async fn rows_appended_after_a_newer_commit_are_not_lost<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    if !interleaves(fixture, "rows_appended_after_a_newer_commit_are_not_lost") {
        return Ok(());
    }
    let store = fixture.store();
    let mut older = open(store).await?;
    append_in(store, &mut older, &messages(1, 1)).await?;
    let mut newer = open(store).await?;
    append_in(store, &mut newer, &messages(2, 2)).await?;
    append_in(store, &mut older, &messages(3, 3)).await?;
    append_in(store, &mut newer, &messages(4, 4)).await?;
    store.end(newer, End::Commit).await?;
    let (rows, next) = read_all(store, &origin(store).await?, 1).await?;
    assert_eq!(ids(&rows), ["m2", "m4"]);
    store.end(older, End::Commit).await?;
    let (rows, _) = read_all(store, &next, 1).await?;
    assert_eq!(ids(&rows), ["m1", "m3"]);
    Ok(())
}

/// What was open at the head is due after it.
pub async fn the_head_leaves_open_transactions_due<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "the_head_leaves_open_transactions_due") {
        return Ok(());
    }
    let store = fixture.store();
    let mut slow = open(store).await?;
    append_in(store, &mut slow, &messages(1, 1)).await?;
    append(store, &messages(2, 2)).await?;
    let head = store.head().await?;
    store.end(slow, End::Commit).await?;
    append(store, &messages(3, 3)).await?;
    let (rows, _) = read_all(store, &head, 10).await?;
    assert_eq!(ids(&rows), ["m1", "m3"]);
    Ok(())
}

/// Also when nothing that started after it has ended: a snapshot's upper end may then be at it.
pub async fn the_newest_open_transaction_is_due_too<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "the_newest_open_transaction_is_due_too") {
        return Ok(());
    }
    let store = fixture.store();
    append(store, &messages(1, 1)).await?;
    let (mut older, mut newest) = (open(store).await?, open(store).await?);
    append_in(store, &mut older, &messages(2, 2)).await?;
    append_in(store, &mut newest, &messages(3, 3)).await?;
    let head = store.head().await?;
    let (rows, next) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m1"]);
    store.end(newest, End::Commit).await?;
    store.end(older, End::Commit).await?;
    for from in [&head, &next] {
        let (rows, _) = read_all(store, from, 1).await?;
        assert_eq!(ids(&rows), ["m2", "m3"]);
    }
    Ok(())
}

/// Its rows never come, and nothing waits for them.
pub async fn a_late_rollback_leaves_a_gap_and_nothing_else<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "a_late_rollback_leaves_a_gap_and_nothing_else") {
        return Ok(());
    }
    let store = fixture.store();
    let mut slow = open(store).await?;
    append_in(store, &mut slow, &messages(1, 2)).await?;
    append(store, &messages(3, 3)).await?;
    let (_, next) = read_all(store, &origin(store).await?, 10).await?;
    store.end(slow, End::RollBack).await?;
    append(store, &messages(4, 4)).await?;
    let (rows, _) = read_all(store, &next, 10).await?;
    assert_eq!(ids(&rows), ["m4"]);
    Ok(())
}

/// A few hundred steps of four writers that append, commit and roll back in turns, with a reader
/// that takes small pages in between. The schedule is fixed by its seed.
pub async fn interleaved_writers_lose_nothing<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "interleaved_writers_lose_nothing") {
        return Ok(());
    }
    for seed in [1, 2, 3] {
        let run = run_schedule(fixture, seed, 250).await?;
        let read: BTreeSet<&String> = run.read.iter().collect();
        assert_eq!(
            read.len(),
            run.read.len(),
            "seed {seed}: something was read twice"
        );
        let committed: BTreeSet<&String> = run.committed.iter().collect();
        let lost: Vec<_> = committed.difference(&read).collect();
        let foreign: Vec<_> = read.difference(&committed).collect();
        assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
        assert!(
            foreign.is_empty(),
            "seed {seed}: never committed {foreign:?}"
        );
    }
    Ok(())
}

/// Where one append follows the commit of another, their order is kept.
pub async fn a_key_keeps_the_order_of_its_commits<F: Fixture>(fixture: &F) -> CaseResult {
    if !interleaves(fixture, "a_key_keeps_the_order_of_its_commits") {
        return Ok(());
    }
    let run = run_schedule(fixture, 7, 250).await?;
    let place: BTreeMap<&String, usize> = run.read.iter().zip(0..).collect();
    let mut pairs = 0;
    for (first, appended_at, committed_at) in &run.history {
        for (second, later_append, _) in &run.history {
            if committed_at < later_append {
                pairs += 1;
                assert!(place[first] < place[second], "{first} was before {second}");
            }
            debug_assert!(appended_at < committed_at);
        }
    }
    assert!(
        pairs > 1_000,
        "the schedule orders enough to mean something: {pairs}"
    );
    Ok(())
}

/// What a schedule did.
#[derive(Default)]
struct Run {
    committed: Vec<String>,
    /// Message, step of its append, step of its commit.
    history: Vec<(String, u32, u32)>,
    read: Vec<String>,
}

/// A writer's open transaction with what it appended, and at which step.
struct Writer<T> {
    tx: T,
    appended: Vec<(String, u32)>,
}

async fn run_schedule<F: Fixture>(
    fixture: &F,
    seed: u64,
    steps: u32,
) -> Result<Run, Box<dyn std::error::Error + Send + Sync>> {
    let store = fixture.store();
    let mut chance = Chance(seed);
    let mut run = Run::default();
    let mut writers = [const { None }; 4];
    let mut at = store.head().await?;
    for step in 1..=steps {
        let writer: &mut Option<Writer<_>> = &mut writers[chance.below(4)];
        match (writer.take(), chance.below(10)) {
            (None, _) => {
                let (tx, appended) = (open(store).await?, Vec::new());
                *writer = Some(Writer { tx, appended });
            }
            (Some(open), 0..6) => *writer = Some(append_step(store, open, seed, step).await?),
            (Some(open), 6) => store.end(open.tx, End::RollBack).await?,
            (Some(open), _) => {
                store.end(open.tx, End::Commit).await?;
                for (id, appended_at) in open.appended {
                    run.committed.push(id.clone());
                    run.history.push((id, appended_at, step));
                }
            }
        }
        if chance.below(3) == 0 {
            at = read_step(store, &at, &mut run, 1 + chance.below(3) as u32).await?;
        }
    }
    for open in writers.into_iter().flatten() {
        store.end(open.tx, End::RollBack).await?;
    }
    // The tick that was begun, then whatever became visible since.
    for _ in 0..2 {
        let (rows, next) = read_all(store, &at, 3).await?;
        run.read.extend(rows.into_iter().map(|row| row.envelope.id));
        at = next;
    }
    Ok(run)
}

async fn append_step<S: Store>(
    store: &S,
    mut open: Writer<S::Tx>,
    seed: u64,
    step: u32,
) -> Result<Writer<S::Tx>, onceward_core::store::StoreError> {
    let id = format!("s{seed}-{step}");
    append_in(store, &mut open.tx, &[message(&id, "k")]).await?;
    open.appended.push((id, step));
    Ok(open)
}

async fn read_step<S: Store>(
    store: &S,
    at: &Position,
    run: &mut Run,
    rows_max: u32,
) -> Result<Position, onceward_core::store::StoreError> {
    let page = read(store, at, rows_max).await?;
    run.read
        .extend(page.rows.into_iter().map(|row| row.envelope.id));
    Ok(page.next)
}

/// Numbers that repeat under one seed: a linear congruential generator, the high bits of it.
/// Constants: Knuth's MMIX, <https://en.wikipedia.org/wiki/Linear_congruential_generator>.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}
