//! Replay campaigns over cases: frozen, paced, stoppable, one at a time.

use onceward_core::campaign::{
    CampaignAction, CampaignKind, CampaignState, Counts, Finding, ItemState, Pacing, Verification,
};
use onceward_core::store::{
    ActOnCampaign, Actor, Campaign, CampaignItem, CampaignQuery, CaseAction, CaseState,
    DeferralKind, HistoryQuery, ItemQuery, PlanCampaign, Selection, Settle, Source, StepCampaign,
    Stepped, Store, StoreError, StoreErrorKind,
};
use onceward_core::{Class, Row};

use super::operate::{BY, act, history_of, one_case, open_cases, state_of};
use super::seams::*;
use super::steps::{
    SUB, append_rows, assert_refused, case, deferral, failure, load, messages, nothing, register,
    settle,
};
use super::{CaseResult, Fixture};

/// A canary of two, then at once.
pub(super) const PACING: Pacing = Pacing {
    canary: 2,
    rate_per_s: 1_000,
    ramp_ms: 0,
    in_flight_max: 100,
    stop_at_percent: 10,
    verification: Verification::Outcome,
};

pub(super) fn request<'a>(kind: CampaignKind, selection: &'a Selection) -> PlanCampaign<'a> {
    PlanCampaign {
        subscription: SUB,
        kind,
        selection,
        pacing: PACING,
        accept: &[],
        items_max: 0,
        by: BY,
    }
}

/// Plans a resend of all live cases.
pub(super) async fn plan_cases<S: Store>(store: &S) -> Result<Campaign, StoreError> {
    let selection = Selection::of(Source::Cases);
    store
        .plan_campaign(request(CampaignKind::Resend, &selection))
        .await
}

pub(super) async fn do_to<S: Store>(
    store: &S,
    campaign: &Campaign,
    action: CampaignAction<'_>,
) -> Result<Campaign, StoreError> {
    let request = ActOnCampaign {
        campaign_id: campaign.campaign_id,
        action,
        by: BY,
    };
    store.act_on_campaign(request).await
}

pub(super) const START: CampaignAction<'static> = CampaignAction::Start { approved_by: None };

pub(super) async fn step<S: Store>(store: &S, campaign: &Campaign) -> Result<Stepped, StoreError> {
    let campaign_id = campaign.campaign_id;
    store.step_campaign(StepCampaign { campaign_id }).await
}

pub(super) async fn items<S: Store>(
    store: &S,
    campaign: &Campaign,
) -> Result<Vec<CampaignItem>, StoreError> {
    let query = ItemQuery {
        campaign_id: campaign.campaign_id,
        ..ItemQuery::default()
    };
    store.campaign_items(query).await
}

pub(super) fn states(items: &[CampaignItem]) -> Vec<ItemState> {
    items.iter().map(|item| item.state).collect()
}

/// What the engine does when a message has had its effect.
pub(super) async fn finish<S: Store>(store: &S, rows: &[Row]) -> Result<(), StoreError> {
    let seqs: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    let cleared = Settle {
        clear: &seqs,
        ..nothing()
    };
    settle(store, cleared).await.map(|_| ())
}

/// Cases of so many messages, each its own key, of [`SUB`].
pub(super) async fn cases_of<S: Store>(store: &S, count: u32) -> Result<Vec<Row>, StoreError> {
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, count)).await?;
    open_cases(store, &rows).await?;
    Ok(rows)
}

async fn campaign_history<S: Store>(store: &S) -> Result<Vec<(String, String)>, StoreError> {
    let query = HistoryQuery {
        subscription: Some(SUB),
        ..HistoryQuery::default()
    };
    let history = store.history(query).await?;
    let of_campaigns = history
        .into_iter()
        .filter(|entry| entry.action.starts_with("replay-"));
    Ok(of_campaigns.map(|e| (e.action, e.who)).collect())
}

/// In the order of the log, each with its case; what comes later is not of it.
pub async fn a_plan_freezes_what_it_finds<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 3).await?;
    let campaign = plan_cases(store).await?;
    let later = append_rows(store, &messages(4, 4)).await?;
    open_cases(store, &later).await?;
    let expected = Counts {
        left: 3,
        ..Counts::default()
    };
    assert_eq!(campaign.counts, expected);
    assert_eq!(campaign.standing.state, CampaignState::Planned);
    assert_eq!(
        (campaign.planned_by.as_str(), campaign.has_more),
        ("ada", false)
    );
    let second = fixture.second().await;
    let found = second.campaigns(CampaignQuery::default()).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0], campaign);
    let items = items(&second, &campaign).await?;
    let seqs: Vec<u64> = items.iter().map(|item| item.seq).collect();
    assert_eq!(seqs, rows.iter().map(|row| row.seq).collect::<Vec<_>>());
    for (item, row) in items.iter().zip(&rows) {
        assert_eq!(
            (&item.id, item.state),
            (&row.envelope.id, ItemState::Planned)
        );
        assert_eq!(item.key, row.envelope.key());
        let case = one_case(store, item.case_id.expect("its case")).await?;
        assert_eq!(case.row.seq, row.seq);
        assert_eq!(case.standing.state, CaseState::Open, "nothing has gone out");
    }
    let history = campaign_history(store).await?;
    assert_eq!(history, [("replay-plan".to_owned(), "ada".to_owned())]);
    Ok(())
}

/// Not a plan that names no reason, nothing or nobody.
pub async fn a_plan_that_cannot_be_is_refused<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    cases_of(store, 1).await?;
    let all = Selection::of(Source::Cases);
    let good = request(CampaignKind::Resend, &all);
    let silent = Actor { why: None, ..BY };
    let unknown = Selection {
        fingerprint: Some("0123456789abcdef".to_owned()),
        ..Selection::of(Source::Cases)
    };
    let without_canary = Pacing {
        canary: 0,
        ..PACING
    };
    for (what, bad) in [
        ("without a reason", PlanCampaign { by: silent, ..good }),
        (
            "of nothing",
            PlanCampaign {
                selection: &unknown,
                ..good
            },
        ),
        (
            "of nobody",
            PlanCampaign {
                subscription: "nobody",
                ..good
            },
        ),
        (
            "without a canary",
            PlanCampaign {
                pacing: without_canary,
                ..good
            },
        ),
    ] {
        let planned = store.plan_campaign(bad).await;
        assert_refused(planned, StoreErrorKind::Refused, what)?;
    }
    assert!(store.campaigns(CampaignQuery::default()).await?.is_empty());
    let nowhere = step(store, &plan_cases(store).await?).await?;
    assert_eq!(
        (nowhere.started, nowhere.wait_ms),
        (0, None),
        "it has not started"
    );
    Ok(())
}

/// Each refused item says so; what the first lets go, another may have.
pub async fn two_campaigns_never_have_one_message<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    cases_of(store, 2).await?;
    let first = plan_cases(store).await?;
    let second = plan_cases(store).await?;
    assert_eq!((second.counts.left, second.counts.refused), (0, 2));
    for item in items(store, &second).await? {
        assert_eq!(item.state, ItemState::Refused);
        assert_eq!(item.finding, Some(Finding::InCampaign));
        assert!(item.note.is_some());
    }
    do_to(store, &first, CampaignAction::Stop).await?;
    assert_eq!(states(&items(store, &first).await?), [ItemState::Left; 2]);
    let third = plan_cases(store).await?;
    assert_eq!((third.counts.left, third.counts.refused), (2, 0));
    Ok(())
}

/// As deferrals that are due, with the case released and a row in its history; the survey says that
/// there is something to do.
pub async fn the_canary_goes_out_first_and_then_the_rest<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 5).await?;
    let campaign = plan_cases(store).await?;
    assert!(!state_of(store, SUB).await?.has_campaign);
    do_to(store, &campaign, START).await?;
    let before = state_of(store, SUB).await?;
    assert!(before.has_campaign);
    let stepped = step(store, &campaign).await?;
    assert_eq!(stepped.started, 2);
    assert!(stepped.wait_ms.is_some());
    assert!(state_of(store, SUB).await?.revision > before.revision);
    for (place, row) in rows.iter().enumerate() {
        let deferred = load(store, row).await?;
        assert_eq!(
            deferred.len(),
            usize::from(place < 2),
            "{}",
            row.envelope.id
        );
        assert!(
            deferred
                .iter()
                .all(|d| d.is_released() && d.generation == 0)
        );
    }
    let case_id = items(store, &campaign).await?[0].case_id.expect("its case");
    assert_eq!(
        one_case(store, case_id).await?.standing.state,
        CaseState::Replayed
    );
    let history = history_of(store, case_id).await?;
    assert_eq!(history.last().map(|e| e.action.as_str()), Some("release"));
    finish(store, &rows[..2]).await?;
    let stepped = step(store, &campaign).await?;
    assert_eq!(stepped.campaign.standing.state, CampaignState::Ramping);
    fixture.advance_ms(1_000);
    assert_eq!(step(store, &campaign).await?.started, 3);
    finish(store, &rows[2..]).await?;
    let stepped = step(store, &campaign).await?;
    assert_eq!(stepped.campaign.standing.state, CampaignState::Done);
    let expected = Counts {
        done: 5,
        ..Counts::default()
    };
    assert_eq!((stepped.campaign.counts, stepped.wait_ms), (expected, None));
    assert!(!state_of(store, SUB).await?.has_campaign);
    assert_eq!(
        states(&items(store, &campaign).await?),
        [ItemState::Done; 5]
    );
    let history = campaign_history(store).await?;
    let actions: Vec<&str> = history.iter().map(|(action, _)| action.as_str()).collect();
    assert_eq!(
        actions,
        ["replay-plan", "replay-start", "replay-ramp", "replay-done"]
    );
    Ok(())
}

/// However often the step is made, and by whom.
pub async fn what_went_out_is_not_sent_again<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 5).await?;
    let campaign = plan_cases(store).await?;
    do_to(store, &campaign, START).await?;
    let second = fixture.second().await;
    let (a, b) = tokio::join!(step(store, &campaign), step(&second, &campaign));
    assert_eq!(a?.started + b?.started, 2, "the canary, once");
    fixture.advance_ms(60_000);
    let again = step(&second, &campaign).await?;
    assert_eq!((again.started, again.campaign.counts.running), (0, 2));
    assert_eq!(load(store, &rows[2]).await?.len(), 0);
    let (running, planned) = (ItemState::Running, ItemState::Planned);
    let expected = [running, running, planned, planned, planned];
    assert_eq!(states(&items(store, &campaign).await?), expected);
    Ok(())
}

/// A canary that becomes a case again ends it; what is left stays where it was.
pub async fn failures_stop_it<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 4).await?;
    let campaign = plan_cases(store).await?;
    do_to(store, &campaign, START).await?;
    step(store, &campaign).await?;
    let again = Settle {
        cases: &[case(&rows[0], "attempts_exhausted")],
        clear: &[rows[0].seq],
        ..nothing()
    };
    settle(store, again).await?;
    let stopped = step(store, &campaign).await?.campaign;
    assert_eq!(stopped.standing.state, CampaignState::Stopped);
    assert!(stopped.standing.stopped_by.is_some() && stopped.ended_at.is_some());
    assert!(state_of(store, SUB).await?.has_campaign, "one is still out");
    finish(store, &rows[1..2]).await?;
    let seen = step(store, &campaign).await?;
    assert_eq!(seen.wait_ms, None);
    let (failed, done, left) = (ItemState::Failed, ItemState::Done, ItemState::Left);
    let items = items(store, &campaign).await?;
    assert_eq!(states(&items), [failed, done, left, left]);
    assert_eq!(items[0].note.as_deref(), Some("attempts_exhausted"));
    let last = campaign_history(store).await?.pop();
    assert_eq!(
        last,
        Some(("replay-stop".to_owned(), "onceward".to_owned()))
    );
    let open = one_case(store, items[2].case_id.expect("its case")).await?;
    assert_eq!(open.standing.state, CaseState::Open);
    Ok(())
}

/// A message that waits for a person, and one behind a case of its key, will not end by themselves.
pub async fn what_waits_for_a_person_stops_it<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 3).await?;
    let campaign = plan_cases(store).await?;
    do_to(store, &campaign, START).await?;
    step(store, &campaign).await?;
    let mut waits = deferral(&rows[1], DeferralKind::Operator, None);
    waits.failure = Some(failure(Class::Operator));
    let deferred = Settle {
        defer: &[waits],
        ..nothing()
    };
    settle(store, deferred).await?;
    let stopped = step(store, &campaign).await?.campaign;
    assert_eq!(stopped.counts.waiting, 1);
    assert_eq!(stopped.standing.state, CampaignState::Stopped);
    Ok(())
}

/// Paused, nothing goes out; a person's word is waited for where it was asked for.
pub async fn people_pause_verify_and_stop_it<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 4).await?;
    let selection = Selection::of(Source::Cases);
    let mut planned = request(CampaignKind::Resend, &selection);
    planned.pacing.verification = Verification::Person;
    let campaign = store.plan_campaign(planned).await?;
    let own = CampaignAction::Start {
        approved_by: Some(BY.who),
    };
    assert_refused(
        do_to(store, &campaign, own).await,
        StoreErrorKind::Refused,
        "own approval",
    )?;
    let approved = CampaignAction::Start {
        approved_by: Some("bo"),
    };
    let started = do_to(store, &campaign, approved).await?;
    assert_eq!(started.approved_by.as_deref(), Some("bo"));
    do_to(store, &campaign, CampaignAction::Pause).await?;
    assert_eq!(step(store, &campaign).await?.started, 0);
    do_to(store, &campaign, CampaignAction::Resume).await?;
    assert_eq!(step(store, &campaign).await?.started, 2);
    finish(store, &rows[..2]).await?;
    let waits = step(store, &campaign).await?;
    assert_eq!(waits.campaign.standing.state, CampaignState::Verifying);
    assert_eq!(step(store, &campaign).await?.started, 0);
    do_to(store, &campaign, CampaignAction::Verify).await?;
    let again = do_to(store, &campaign, CampaignAction::Verify).await;
    assert_refused(again, StoreErrorKind::Moved, "verifying twice")?;
    fixture.advance_ms(1_000);
    assert_eq!(step(store, &campaign).await?.started, 2);
    let stopped = do_to(store, &campaign, CampaignAction::Stop).await?;
    assert!(stopped.is_active(), "what is out is seen to its outcome");
    finish(store, &rows[2..]).await?;
    assert_eq!(step(store, &campaign).await?.campaign.counts.done, 4);
    Ok(())
}

/// Somebody was faster: its item says so, and the others go on.
pub async fn a_case_that_ended_meanwhile_is_refused<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = cases_of(store, 2).await?;
    let campaign = plan_cases(store).await?;
    let case_id = items(store, &campaign).await?[0].case_id.expect("its case");
    act(store, case_id, CaseAction::Discard).await?;
    do_to(store, &campaign, START).await?;
    assert_eq!(step(store, &campaign).await?.started, 1);
    let found = items(store, &campaign).await?;
    assert_eq!(states(&found), [ItemState::Refused, ItemState::Running]);
    assert!(
        found[0]
            .note
            .as_ref()
            .is_some_and(|note| note.contains("discarded"))
    );
    assert_eq!(load(store, &rows[0]).await?.len(), 0);
    Ok(())
}

/// By number and by place, and only those asked for.
pub async fn campaigns_and_items_come_in_pages<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    cases_of(store, 5).await?;
    let selection = Selection::of(Source::Cases);
    let mut first = request(CampaignKind::Resend, &selection);
    first.items_max = 3;
    let first = store.plan_campaign(first).await?;
    assert!(first.has_more);
    let rest = Selection {
        after_seq: first.last_seq,
        ..Selection::of(Source::Cases)
    };
    let second = store
        .plan_campaign(request(CampaignKind::Resend, &rest))
        .await?;
    assert_eq!((second.counts.left, second.has_more), (2, false));
    let page = CampaignQuery {
        after_campaign_id: first.campaign_id,
        subscription: Some(SUB),
        ..CampaignQuery::default()
    };
    let found = store.campaigns(page).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0], second);
    let other = CampaignQuery {
        subscription: Some("nobody"),
        ..CampaignQuery::default()
    };
    assert!(store.campaigns(other).await?.is_empty());
    let active = CampaignQuery {
        is_active: true,
        ..CampaignQuery::default()
    };
    assert!(store.campaigns(active).await?.is_empty());
    do_to(store, &second, START).await?;
    let found = store.campaigns(active).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].campaign_id, second.campaign_id);
    let mut query = ItemQuery {
        campaign_id: first.campaign_id,
        rows_max: 2,
        ..ItemQuery::default()
    };
    let page = store.campaign_items(query).await?;
    assert_eq!(page.len(), 2);
    query.after_seq = page[1].seq;
    assert_eq!(store.campaign_items(query).await?.len(), 1);
    query.after_seq = 0;
    query.states = &[ItemState::Done, ItemState::Failed];
    assert!(store.campaign_items(query).await?.is_empty());
    Ok(())
}
