//! Members, leases and lanes while everybody behaves.

use onceward_core::lane;
use onceward_core::store::{
    BacklogQuery, Begin, End, Join, Renew, Retention, SavePosition, Span, Store, StoreErrorKind,
};

use super::seams::*;
use super::steps::{
    LANES, LEASE_MS, SUB, append, assert_refused, ids, join, messages, origin, read_all, register,
    release, save, take, take_of, take_one,
};
use super::{CaseResult, Fixture};

async fn live_members<S: Store>(
    store: &S,
) -> Result<Vec<String>, onceward_core::store::StoreError> {
    let survey = store.survey().await?;
    let live = survey.members.into_iter().filter(|member| member.is_live);
    let mut names: Vec<String> = live.map(|member| member.member).collect();
    names.sort();
    Ok(names)
}

/// And are seen with what they said of themselves.
pub async fn members_have_fences_of_their_own<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let b = store
        .join(Join {
            member: "b",
            description: "second",
            lease_ms: LEASE_MS,
            subscriptions: &[SUB.to_owned(), "other".to_owned()],
        })
        .await?;
    assert_ne!(a.fence, b.fence);
    assert_eq!((a.member.as_str(), a.lease_ms), ("a", LEASE_MS));
    let survey = fixture.second().await.survey().await?;
    let seen = survey
        .members
        .iter()
        .find(|m| m.member == "b")
        .ok_or("b is not seen")?;
    let mut subscriptions = seen.subscriptions.clone();
    subscriptions.sort();
    assert_eq!((seen.description.as_str(), seen.is_live), ("second", true));
    assert_eq!(subscriptions, [SUB, "other"]);
    let lanes: Vec<u16> = survey.lanes.iter().map(|lane| lane.lane).collect();
    assert_eq!(lanes.len(), usize::from(LANES));
    assert!(
        survey
            .lanes
            .iter()
            .all(|l| l.owner.is_none() && l.subscription == SUB)
    );
    Ok(())
}

/// By the database's clock.
pub async fn a_lease_runs_out_unless_it_is_renewed<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let a = join(store, "a").await?;
    let _b = join(store, "b").await?;
    fixture.advance_ms(LEASE_MS * 6 / 10);
    assert_eq!(live_members(store).await?, ["a", "b"]);
    store.renew(Renew::of(&a)).await?;
    fixture.advance_ms(LEASE_MS * 6 / 10);
    assert_eq!(live_members(store).await?, ["a"]);
    fixture.advance_ms(LEASE_MS * 6 / 10);
    assert!(live_members(store).await?.is_empty());
    Ok(())
}

/// A process that was merely slow goes on, as long as nobody took over.
pub async fn a_lease_nobody_took_over_can_be_renewed_late<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let taken = take_one(store, &a, 0).await?;
    fixture.advance_ms(LEASE_MS * 3);
    store.renew(Renew::of(&a)).await?;
    assert_eq!(live_members(store).await?, ["a"]);
    let b = join(store, "b").await?;
    assert!(
        take(store, &b, &[0]).await?.is_empty(),
        "the lane is still a's"
    );
    let survey = store.survey().await?;
    let lane = survey
        .lanes
        .iter()
        .find(|l| l.lane == 0)
        .ok_or("lane 0 is not seen")?;
    assert_eq!(
        (lane.owner.as_deref(), lane.epoch),
        (Some("a"), taken.epoch)
    );
    Ok(())
}

/// Else a dead member would keep its lanes for as long as the clock was ahead. A step of less than
/// a lease ends nothing.
pub async fn a_lease_from_before_the_clock_was_set_back_has_run_out<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    take_one(store, &a, 0).await?;
    fixture.set_back_ms(LEASE_MS / 2);
    let b = join(store, "b").await?;
    assert_eq!(live_members(store).await?, ["a", "b"]);
    assert!(take(store, &b, &[0]).await?.is_empty(), "the lane is a's");
    fixture.set_back_ms(LEASE_MS * 100);
    store.renew(Renew::of(&b)).await?;
    assert_eq!(live_members(store).await?, ["b"]);
    let backlog = store.backlog(BacklogQuery {
        subscription: SUB,
        count_max: 1,
        before: None,
    });
    let owner = backlog.await?.lanes.into_iter().find(|lane| lane.lane == 0);
    assert!(!owner.ok_or("lane 0 is not seen")?.is_live);
    store.tidy(Retention::default()).await?;
    store.renew(Renew::of(&b)).await?;
    assert!(take_one(store, &b, 0).await?.is_suspect);
    let renewed = store.renew(Renew::of(&a)).await;
    assert_refused(renewed, StoreErrorKind::Fenced, "a renewal of the dead")?;
    Ok(())
}

/// At the subscription's start, without suspicion.
pub async fn a_free_lane_is_taken_from_the_start<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 3)).await?;
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let taken = take(store, &a, &[0, 1, 2, 3]).await?;
    assert_eq!(
        taken.iter().map(|t| t.lane).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    for lane in &taken {
        assert!(!lane.is_suspect);
        assert_eq!(lane.not_before, None);
        let (rows, _) = read_all(store, &lane.stand.position, 10).await?;
        assert_eq!(ids(&rows), ["m1", "m2", "m3"]);
    }
    let survey = store.survey().await?;
    for lane in survey.lanes {
        assert_eq!(lane.owner.as_deref(), Some("a"));
        assert_eq!(lane.epoch, taken[usize::from(lane.lane)].epoch);
    }
    Ok(())
}

/// Taking it gives nothing, other lanes are given all the same.
pub async fn a_living_owner_keeps_its_lane<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let (a, b) = (join(store, "a").await?, join(store, "b").await?);
    take(store, &a, &[0, 1]).await?;
    let taken = take(&fixture.second().await, &b, &[0, 1, 2]).await?;
    assert_eq!(taken.iter().map(|t| t.lane).collect::<Vec<_>>(), [2]);
    Ok(())
}

/// Exactly there, at a later epoch, without suspicion.
pub async fn a_released_lane_goes_on_where_it_stood<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 2)).await?;
    let (a, b) = (join(store, "a").await?, join(store, "b").await?);
    let mine = take_one(store, &a, 1).await?;
    let (rows, boundary) = read_all(store, &mine.stand.position, 10).await?;
    let inside = mine.stand.position.reach(&boundary.after, rows[0].seq);
    release(store, &a, &mine, &inside).await?;
    let theirs = take_one(store, &b, 1).await?;
    assert_eq!(theirs.stand.position, inside);
    assert!(theirs.epoch > mine.epoch);
    assert!(!theirs.is_suspect);
    let (rest, _) = read_all(store, &theirs.stand.position, 10).await?;
    assert_eq!(ids(&rest), ["m2"]);
    Ok(())
}

/// Lanes that were still owned are free, at what was last saved.
pub async fn leaving_hands_over_the_saved_position<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 2)).await?;
    let a = join(store, "a").await?;
    let mine = take(store, &a, &[0, 1]).await?;
    let reached = store.head().await?;
    save(store, &a, &reached, &[(0, mine[0].epoch)]).await?;
    store.leave(&a).await?;
    assert!(live_members(store).await?.is_empty());

    let b = join(store, "b").await?;
    let theirs = take(store, &b, &[0, 1]).await?;
    assert_eq!(theirs.len(), 2);
    assert_eq!(theirs[0].stand.position, reached);
    assert_eq!(theirs[1].stand.position, mine[1].stand.position);
    assert!(theirs.iter().all(|lane| !lane.is_suspect), "a clean end");
    Ok(())
}

/// Neither renew nor act.
pub async fn who_has_left_can_do_nothing_more<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let tx = store.begin(Begin { lease: Some(&a) }).await?;
    store.end(tx, End::Commit).await?;
    store.leave(&a).await?;
    let fenced = StoreErrorKind::Fenced;
    assert_refused(store.renew(Renew::of(&a)).await, fenced, "renewing")?;
    assert_refused(
        store.begin(Begin { lease: Some(&a) }).await,
        fenced,
        "an effect",
    )?;
    Ok(())
}

/// Never the same number for two owners.
pub async fn every_change_of_owner_counts_the_epoch<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let members = [join(store, "a").await?, join(store, "b").await?];
    let position = origin(store).await?;
    let mut epochs = Vec::new();
    for turn in 0..4 {
        let lease = &members[turn % 2];
        let taken = take_one(store, lease, 2).await?;
        epochs.push(taken.epoch);
        release(store, lease, &taken, &position).await?;
    }
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    Ok(())
}

/// One record may hold several places.
pub async fn lanes_of_one_member_stand_apart<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let mine = take(store, &a, &[0, 1, 2]).await?;
    append(store, &messages(1, 1)).await?;
    let early = store.head().await?;
    append(store, &messages(2, 2)).await?;
    let late = store.head().await?;
    let spans = [
        Span {
            stand: early.clone().into(),
            lanes: vec![(0, mine[0].epoch), (2, mine[2].epoch)],
        },
        Span {
            stand: late.clone().into(),
            lanes: vec![(1, mine[1].epoch)],
        },
    ];
    store
        .save_position(SavePosition {
            member: "a",
            subscription: SUB,
            spans: &spans,
        })
        .await?;
    store.leave(&a).await?;
    let b = join(store, "b").await?;
    let theirs = take(store, &b, &[0, 1, 2]).await?;
    let positions: Vec<_> = theirs.into_iter().map(|lane| lane.stand.position).collect();
    assert_eq!(positions, [early.clone(), late, early]);
    Ok(())
}

/// Of many records the last counts, also after upkeep.
pub async fn the_latest_saved_position_holds<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let a = join(store, "a").await?;
    let mine = take_one(store, &a, 0).await?;
    let mut last = mine.stand.position.clone();
    for i in 1..=5 {
        append(store, &messages(i, i)).await?;
        last = store.head().await?;
        save(store, &a, &last, &[(0, mine.epoch)]).await?;
    }
    store.leave(&a).await?;
    let b = join(store, "b").await?;
    assert_eq!(take_one(store, &b, 0).await?.stand.position, last);
    Ok(())
}

/// The same number is another lane there.
pub async fn subscriptions_share_no_lane<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    register(store, "billing").await?;
    let (a, b) = (join(store, "a").await?, join(store, "b").await?);
    let mine = take_one(store, &a, 0).await?;
    append(store, &messages(1, 1)).await?;
    let reached = store.head().await?;
    save(store, &a, &reached, &[(0, mine.epoch)]).await?;
    let theirs = take_of(store, &b, "billing", &[0]).await?;
    assert_eq!(theirs.len(), 1);
    assert_eq!(
        theirs[0].stand.position, mine.stand.position,
        "untouched by the other's progress"
    );
    Ok(())
}

/// From two handles, in one moment: one looks while the other writes, sooner or later.
pub async fn two_that_take_at_once_do_not_both_get_it<F: Fixture>(fixture: &F) -> CaseResult {
    let (store, second) = (fixture.store(), fixture.second().await);
    register(store, SUB).await?;
    let all: Vec<u16> = (0..LANES).collect();
    for round in 0..20 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (a, b) = (join(store, &a).await?, join(&second, &b).await?);
        let (mine, theirs) = tokio::join!(take(store, &a, &all), take(&second, &b, &all));
        let (mine, theirs) = (mine?, theirs?);
        let mut lanes: Vec<u16> = mine.iter().chain(&theirs).map(|lane| lane.lane).collect();
        lanes.sort_unstable();
        assert_eq!(lanes, all, "each lane has one owner, round {round}");
        let survey = store.survey().await?;
        for lane in &survey.lanes {
            let is_mine = mine.iter().any(|taken| taken.lane == lane.lane);
            let owner = if is_mine { &a.member } else { &b.member };
            assert_eq!(lane.owner.as_ref(), Some(owner));
        }
        store.leave(&a).await?;
        store.leave(&b).await?;
    }
    assert!(
        lane::slots_of(LANES - 1, LANES).1 == lane::SLOTS - 1,
        "the lanes are all slots"
    );
    Ok(())
}
