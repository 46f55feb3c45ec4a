//! Retention: what is unfinished is never removed, the rest goes when its time has come.

use onceward_core::store::{
    CaseQuery, DeferralKind, Retention, Settle, Store, StoreError, UpkeepReport,
};
use onceward_core::{Identity, Position, Row};

use super::seams::*;
use super::steps::{
    LANES, SUB, append_rows, case, defer, deferral, entry, ids, join, known, load, messages,
    nothing, origin, read_all, record, register, release, save, settle, take,
};
use super::{CaseResult, Fixture, allows};

const DAY_MS: u64 = 86_400_000;

/// Tidies until nothing more is to be done, and adds up what was.
pub(super) async fn tidy_all<S: Store>(store: &S) -> Result<UpkeepReport, StoreError> {
    let mut sum = UpkeepReport::default();
    for _ in 0..100 {
        let round = store.tidy(Retention::default()).await?;
        sum.log_removed += round.log_removed;
        sum.ledger_removed += round.ledger_removed;
        sum.records_removed += round.records_removed;
        if !round.has_more {
            sum.held_back_by = round.held_back_by;
            return Ok(sum);
        }
    }
    panic!("upkeep had more to do after a hundred rounds");
}

/// Rows, and a subscription of which every lane stands at the head behind them.
pub(super) async fn all_read<F: Fixture>(fixture: &F) -> Result<(Vec<Row>, Position), StoreError> {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 5)).await?;
    let lease = join(store, "a").await?;
    let lanes: Vec<u16> = (0..LANES).collect();
    let taken = take(store, &lease, &lanes).await?;
    let head = store.head().await?;
    let epochs: Vec<(u16, u64)> = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    save(store, &lease, &head, &epochs).await?;
    store.leave(&lease).await?;
    Ok((rows, head))
}

/// However old it is.
pub async fn nothing_a_position_still_needs_is_removed<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 5)).await?;
    fixture.advance_ms(400 * DAY_MS);
    tidy_all(store).await?;
    let (left, _) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(left, rows);
    Ok(())
}

/// It can be loaded after any time.
pub async fn nothing_a_deferral_refers_to_is_removed<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (rows, _) = all_read(fixture).await?;
    defer(store, &[deferral(&rows[2], DeferralKind::Operator, None)]).await?;
    fixture.advance_ms(400 * DAY_MS);
    tidy_all(store).await?;
    let found = load(store, &rows[2]).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].row, rows[2]);
    Ok(())
}

/// It has a copy.
pub async fn a_case_outlives_its_row<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (rows, _) = all_read(fixture).await?;
    settle(
        store,
        Settle {
            cases: &[case(&rows[0], "permanent")],
            ..nothing()
        },
    )
    .await?;
    fixture.advance_ms(400 * DAY_MS);
    tidy_all(store).await?;
    let found = store.cases(CaseQuery::default()).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].row, rows[0]);
    Ok(())
}

/// After its time, not before.
pub async fn what_everybody_is_past_goes<F: Fixture>(fixture: &F) -> CaseResult {
    let has = fixture.capabilities().removes_single_log_rows;
    let why = "the log is emptied by whole partitions, which the store's own tests fill";
    if !allows(has, "what_everybody_is_past_goes", why) {
        return Ok(());
    }
    let store = fixture.store();
    all_read(fixture).await?;
    fixture.advance_ms(6 * DAY_MS);
    assert_eq!(tidy_all(store).await?.log_removed, 0);
    fixture.advance_ms(2 * DAY_MS);
    let report = tidy_all(store).await?;
    assert_eq!((report.log_removed, report.held_back_by), (5, None));
    let (left, _) = read_all(store, &origin(store).await?, 10).await?;
    assert!(left.is_empty(), "still there: {:?}", ids(&left));
    Ok(())
}

/// Each table has its own.
pub async fn the_ledger_keeps_its_memory_and_no_longer<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let row = append_rows(store, &messages(1, 1)).await?.remove(0);
    let keys = [entry(&row, Identity::Message).key];
    for identity in [Identity::Message, Identity::Operation] {
        record(store, identity, &[entry(&row, identity)]).await?;
    }
    // Message rows are kept for 30 days, operations for 90.
    for (advance_days, expected) in [(28, [true, true]), (4, [false, true]), (60, [false, false])] {
        fixture.advance_ms(advance_days * DAY_MS);
        tidy_all(store).await?;
        let found = [
            known(store, SUB, Identity::Message, &keys).await?[0].is_some(),
            known(store, SUB, Identity::Operation, &keys).await?[0].is_some(),
        ];
        assert_eq!(found, expected, "{advance_days} days later");
    }
    Ok(())
}

/// Which of the ledgers knows a row's effect: by message, by operation.
pub(super) async fn remembers<S: Store>(store: &S, row: &Row) -> Result<[bool; 2], StoreError> {
    let mut found = [false; 2];
    for (is_known, identity) in found
        .iter_mut()
        .zip([Identity::Message, Identity::Operation])
    {
        let keys = [entry(row, identity).key];
        *is_known = known(store, SUB, identity, &keys).await?[0].is_some();
    }
    Ok(found)
}

/// Records the effect of a row in both ledgers.
pub(super) async fn record_both<S: Store>(store: &S, row: &Row) -> Result<(), StoreError> {
    for identity in [Identity::Message, Identity::Operation] {
        record(store, identity, &[entry(row, identity)]).await?;
    }
    Ok(())
}

/// A lane that stands before a message will read it again, however late.
pub async fn the_ledger_remembers_what_a_position_will_read_again<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let row = append_rows(store, &messages(1, 1)).await?.remove(0);
    record_both(store, &row).await?;
    fixture.advance_ms(100 * DAY_MS);
    tidy_all(store).await?;
    assert_eq!(remembers(store, &row).await?, [true, true], "not read yet");
    let lease = join(store, "a").await?;
    let lanes: Vec<u16> = (0..LANES).collect();
    for lane in take(store, &lease, &lanes).await? {
        release(store, &lease, &lane, &store.head().await?).await?;
    }
    tidy_all(store).await?;
    assert_eq!(remembers(store, &row).await?, [false, false], "read");
    Ok(())
}

/// A deferral brings its message again, also one that says that it is running.
pub async fn the_ledger_remembers_what_is_deferred<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (rows, _) = all_read(fixture).await?;
    for (row, kind) in [
        (&rows[0], DeferralKind::Running),
        (&rows[1], DeferralKind::Retry),
    ] {
        record_both(store, row).await?;
        defer(store, &[deferral(row, kind, Some(0))]).await?;
    }
    record_both(store, &rows[2]).await?;
    fixture.advance_ms(100 * DAY_MS);
    tidy_all(store).await?;
    for row in &rows[..2] {
        assert_eq!(remembers(store, row).await?, [true, true], "it is deferred");
    }
    let [_, by_operation] = remembers(store, &rows[2]).await?;
    assert!(!by_operation, "nothing brings this one again");
    let clear: Vec<u64> = rows[..2].iter().map(|row| row.seq).collect();
    let clear = Settle {
        clear: &clear,
        ..nothing()
    };
    settle(store, clear).await?;
    tidy_all(store).await?;
    for row in &rows[..3] {
        let found = remembers(store, row).await?;
        assert_eq!(found, [false, false], "nothing brings {} again", row.seq);
    }
    Ok(())
}

/// A person may send the message of an open case again.
pub async fn the_ledger_remembers_what_has_an_open_case<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (rows, _) = all_read(fixture).await?;
    record_both(store, &rows[0]).await?;
    let opened = Settle {
        cases: &[case(&rows[0], "ambiguous")],
        ..nothing()
    };
    settle(store, opened).await?;
    fixture.advance_ms(100 * DAY_MS);
    let report = tidy_all(store).await?;
    assert_eq!(remembers(store, &rows[0]).await?, [true, true]);
    let reason = report.held_back_by.ok_or("no reason given")?;
    assert!(reason.contains("case"), "{reason}");
    Ok(())
}

/// Of many records the one that counts is not among those removed.
pub async fn saved_positions_survive<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let lease = join(store, "a").await?;
    let taken = take(store, &lease, &[0, 1]).await?;
    let start = taken[1].stand.position.clone();
    let mut last = start.clone();
    for i in 1..=20 {
        append_rows(store, &messages(i, i)).await?;
        last = store.head().await?;
        save(store, &lease, &last, &[(0, taken[0].epoch)]).await?;
    }
    fixture.advance_ms(400 * DAY_MS);
    tidy_all(store).await?;
    let b = join(store, "b").await?;
    let theirs = take(store, &b, &[0, 1]).await?;
    assert_eq!(theirs.len(), 2);
    assert_eq!(theirs[0].stand.position, last);
    assert_eq!(theirs[1].stand.position, start);
    Ok(())
}

/// To anybody, with its time.
pub async fn the_last_round_is_reported<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    assert_eq!(store.last_tidy().await?, None);
    let first = store.tidy(Retention::default()).await?;
    let (at, report) = fixture
        .second()
        .await
        .last_tidy()
        .await?
        .ok_or("no report")?;
    assert_eq!(report, first);
    fixture.advance_ms(DAY_MS);
    store.tidy(Retention::default()).await?;
    let (later, _) = store.last_tidy().await?.ok_or("no report")?;
    let between_ms = later.millis_since(at);
    assert!(
        between_ms >= 86_000_000,
        "{between_ms} ms between two rounds a day apart"
    );
    Ok(())
}
