//! An owner that is gone without a word, and may come back.

use onceward_core::Identity;
use onceward_core::lane::lane_of;
use onceward_core::store::{
    Begin, DeferralKind, End, Lease, Renew, Settle, Store, StoreError, StoreErrorKind, TakenLane,
};

use super::seams::*;
use super::steps::{
    LANES, LEASE_MS, SUB, append, append_rows, assert_refused, defer, deferral, entry, join, known,
    load, message, messages, nothing, register, release, save, take, take_one,
};
use super::{CaseResult, Fixture, allows};

/// `a` holds lanes, its lease runs out, `b` joins.
async fn dead_owner<F: Fixture>(
    fixture: &F,
    lanes: &[u16],
) -> Result<(Lease, Vec<TakenLane>, Lease), StoreError> {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let mine = take(store, &a, lanes).await?;
    assert_eq!(mine.len(), lanes.len());
    fixture.advance_ms(LEASE_MS + 1_000);
    let b = join(&fixture.second().await, "b").await?;
    Ok((a, mine, b))
}

/// What the dead one saved holds; a lane for which it saved nothing goes on where it was taken.
pub async fn the_new_owner_goes_on_at_the_saved_position<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 3)).await?;
    let a = join(store, "a").await?;
    let mine = take(store, &a, &[0, 1]).await?;
    let reached = store.head().await?;
    save(store, &a, &reached, &[(0, mine[0].epoch)]).await?;
    fixture.advance_ms(LEASE_MS + 1_000);

    let second = fixture.second().await;
    let b = join(&second, "b").await?;
    let theirs = take(&second, &b, &[0, 1]).await?;
    assert_eq!(theirs.len(), 2, "both lanes are there to take");
    assert_eq!(theirs[0].stand.position, reached);
    assert_eq!(theirs[1].stand.position, mine[1].stand.position);
    assert!(theirs[0].epoch > mine[0].epoch);
    Ok(())
}

/// It can neither prolong its lease nor begin an effect.
pub async fn the_old_owner_is_fenced<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (a, _, b) = dead_owner(fixture, &[0]).await?;
    let tx = store.begin(Begin { lease: Some(&a) }).await?;
    store.end(tx, End::RollBack).await?;
    take_one(store, &b, 0).await?;
    let fenced = StoreErrorKind::Fenced;
    assert_refused(
        store.begin(Begin { lease: Some(&a) }).await,
        fenced,
        "an effect",
    )?;
    assert_refused(store.renew(Renew::of(&a)).await, fenced, "renewing")?;
    let tx = store.begin(Begin { lease: Some(&b) }).await?;
    store.end(tx, End::Commit).await?;
    Ok(())
}

/// And only once: a clean end clears it.
pub async fn only_the_lane_of_a_dead_owner_is_suspect<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (_, _, b) = dead_owner(fixture, &[0]).await?;
    let taken = take(store, &b, &[0, 1]).await?;
    let suspect: Vec<bool> = taken.iter().map(|lane| lane.is_suspect).collect();
    assert_eq!(suspect, [true, false]);
    let position = taken[0].stand.position.clone();
    release(store, &b, &taken[0], &position).await?;
    let c = join(store, "c").await?;
    assert!(!take_one(store, &c, 0).await?.is_suspect);
    Ok(())
}

/// Also from a member that is alive and once had the lane.
pub async fn a_position_of_an_old_epoch_is_ignored<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let (a, b) = (join(store, "a").await?, join(store, "b").await?);
    let mine = take_one(store, &a, 0).await?;
    let handed_over = mine.stand.position.clone();
    release(store, &a, &mine, &handed_over).await?;
    take_one(store, &b, 0).await?;
    append(store, &messages(1, 2)).await?;
    let forged = store.head().await?;
    // Refusing it is as good as ignoring it.
    let _ = save(store, &a, &forged, &[(0, mine.epoch)]).await;
    store.leave(&b).await?;
    let c = join(store, "c").await?;
    assert_eq!(take_one(store, &c, 0).await?.stand.position, handed_over);
    Ok(())
}

/// Neither before the new owner saved nor after.
pub async fn a_late_save_of_the_dead_moves_nothing<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (a, mine, b) = dead_owner(fixture, &[0, 1]).await?;
    let theirs = take(store, &b, &[0, 1]).await?;
    append(store, &messages(1, 1)).await?;
    let reached = store.head().await?;
    save(store, &b, &reached, &[(1, theirs[1].epoch)]).await?;
    append(store, &messages(2, 2)).await?;
    let forged = store.head().await?;
    let stale = [(0, mine[0].epoch), (1, mine[1].epoch)];
    let _ = save(store, &a, &forged, &stale).await;
    store.leave(&b).await?;
    let c = join(store, "c").await?;
    let last = take(store, &c, &[0, 1]).await?;
    assert_eq!(last[0].stand.position, theirs[0].stand.position);
    assert_eq!(last[1].stand.position, reached);
    Ok(())
}

/// Its other lanes are there to take, and suspect, for whoever comes.
pub async fn one_takeover_ends_the_member_everywhere<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let (a, _, b) = dead_owner(fixture, &[0, 1]).await?;
    take_one(store, &b, 0).await?;
    let ended = store.begin(Begin { lease: Some(&a) }).await;
    assert_refused(ended, StoreErrorKind::Fenced, "an effect on the other lane")?;
    let c = join(store, "c").await?;
    assert!(take_one(store, &c, 1).await?.is_suspect);
    let survey = store.survey().await?;
    assert!(
        survey.members.iter().all(|member| member.member != "a"),
        "a has ended"
    );
    Ok(())
}

/// Whatever it had done in there is as if it had never been.
pub async fn an_open_transaction_of_the_dead_cannot_commit<F: Fixture>(fixture: &F) -> CaseResult {
    let has = fixture.capabilities().has_concurrent_writers;
    let why = "with one writer a takeover cannot begin while an effect is open";
    if !allows(has, "an_open_transaction_of_the_dead_cannot_commit", why) {
        return Ok(());
    }
    let store = fixture.store();
    let row = append_rows(store, &[message("m1", "k")]).await?.remove(0);
    let (a, _, b) = dead_owner(fixture, &[0]).await?;
    let entries = [entry(&row, Identity::Message)];
    let effect = || Settle {
        ledger: &entries,
        ..nothing()
    };
    let mut tx = store.begin(Begin { lease: Some(&a) }).await?;
    store.settle(&mut tx, effect()).await?;
    let second = fixture.second().await;
    assert!(take_one(&second, &b, 0).await?.is_suspect);
    assert!(
        store.end(tx, End::Commit).await.is_err(),
        "the dead one's commit went through"
    );

    let keys = [entries[0].key.clone()];
    assert_eq!(known(store, SUB, Identity::Message, &keys).await?, [None]);
    let mut tx = second.begin(Begin { lease: Some(&b) }).await?;
    assert_eq!(second.settle(&mut tx, effect()).await?.ledger_rows, 1);
    second.end(tx, End::Commit).await?;
    Ok(())
}

/// In the lanes taken, and for nothing else.
pub async fn a_death_is_counted_for_what_was_running<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 2)).await?;
    let lanes: Vec<u16> = (0..LANES).collect();
    let (_, _, b) = dead_owner(fixture, &lanes).await?;
    let mut retried = deferral(&rows[1], DeferralKind::Retry, Some(0));
    retried.spent.deaths = 1;
    defer(
        store,
        &[deferral(&rows[0], DeferralKind::Running, None), retried],
    )
    .await?;
    assert_eq!(deaths(store, &rows).await?, [0, 1]);
    take(store, &b, &lanes).await?;
    assert_eq!(deaths(store, &rows).await?, [1, 1]);
    // Nothing runs any more, and both are due.
    for row in &rows {
        let found = load(store, row).await?.remove(0);
        assert_eq!(
            (found.kind, found.due_in_ms),
            (DeferralKind::Retry, Some(0))
        );
    }
    Ok(())
}

/// Who leaves or hands back has killed nothing, and what ran then may have happened: the next
/// owner has to be able to tell.
pub async fn a_clean_end_counts_no_death<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let lane = lane_of(rows[0].slot, LANES);
    take_one(store, &a, lane).await?;
    defer(store, &[deferral(&rows[0], DeferralKind::Running, None)]).await?;
    store.leave(&a).await?;
    let b = join(store, "b").await?;
    take_one(store, &b, lane).await?;
    assert_eq!(deaths(store, &rows).await?, [0]);
    let kinds: Vec<_> = load(store, &rows[0])
        .await?
        .iter()
        .map(|d| d.kind)
        .collect();
    assert_eq!(kinds, [DeferralKind::Running]);
    Ok(())
}

async fn deaths<S: Store>(store: &S, rows: &[onceward_core::Row]) -> Result<Vec<u32>, StoreError> {
    let mut counts = Vec::new();
    for row in rows {
        counts.extend(
            load(store, row)
                .await?
                .iter()
                .map(|deferred| deferred.spent.deaths),
        );
    }
    Ok(counts)
}
