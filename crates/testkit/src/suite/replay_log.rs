//! Replay campaigns over the log: what is found out before a message goes out again, generations,
//! and what has to stay for them.

use onceward_core::Identity;
use onceward_core::Row;
use onceward_core::campaign::{CampaignKind, Finding, ItemState};
use onceward_core::store::{
    ActOnCase, Campaign, CaseAction, Declared, DeferralKind, LoadKey, PlanCampaign, Retention,
    Selection, Settle, Source, Store, StoreError, StoreErrorKind, Terms,
};

use super::operate::BY;
use super::replay::{START, do_to, finish, items, request, states, step};
use super::seams::*;
use super::steps::{
    LANES, SUB, TYPE, append_rows, assert_refused, case, defer, deferral, entry, join, load,
    message, message_of, nothing, record, register, save, settle, take,
};
use super::upkeep::tidy_all;
use super::{CaseResult, Fixture, allows};

/// Declares [`SUB`] again with terms.
async fn declare_terms<S: Store>(
    store: &S,
    subscription: &str,
    renamed_from: Option<&str>,
    terms: Terms,
) -> Result<(), StoreError> {
    let types = [TYPE.to_owned()];
    let declared = Declared {
        subscription,
        lanes: LANES,
        types: &types,
        start: None,
        renamed_from,
        terms,
    };
    store.register(declared).await.map(|_| ())
}

const REPEATABLE: Terms = Terms {
    semantics: onceward_core::contract::Semantics::EffectOnce,
    identity: Identity::Message,
    order: onceward_core::contract::Order::Key,
    is_repeatable: true,
    grouping: None,
};

/// Every lane comes to the head.
async fn read_on<S: Store>(store: &S, member: &str) -> Result<(), StoreError> {
    let lease = join(store, member).await?;
    let lanes: Vec<u16> = (0..LANES).collect();
    let taken = take(store, &lease, &lanes).await?;
    let epochs: Vec<(u16, u64)> = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    save(store, &lease, &store.head().await?, &epochs).await?;
    store.leave(&lease).await
}

/// Rows of [`SUB`] with these keys that have had their effect.
async fn done_rows<S: Store>(store: &S, keys: &[&str]) -> Result<Vec<Row>, StoreError> {
    register(store, SUB).await?;
    let envelopes: Vec<_> = (1..)
        .zip(keys)
        .map(|(i, key)| message(&format!("m{i}"), key))
        .collect();
    let rows = append_rows(store, &envelopes).await?;
    let entries: Vec<_> = rows.iter().map(|r| entry(r, Identity::Message)).collect();
    record(store, Identity::Message, &entries).await?;
    read_on(store, "reader").await?;
    Ok(rows)
}

async fn plan<S: Store>(
    store: &S,
    kind: CampaignKind,
    selection: &Selection,
    accept: &[Finding],
) -> Result<Campaign, StoreError> {
    let planned = PlanCampaign {
        accept,
        ..request(kind, selection)
    };
    store.plan_campaign(planned).await
}

async fn findings<S: Store>(
    store: &S,
    campaign: &Campaign,
) -> Result<Vec<Option<Finding>>, StoreError> {
    let items = items(store, campaign).await?;
    Ok(items.iter().map(|item| item.finding).collect())
}

/// By place, time, type and key; what the subscription has not come past is not of it.
pub async fn done_messages_are_found_by_what_they_are<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1", "k2", "k1"]).await?;
    fixture.advance_ms(60_000);
    append_rows(store, &[message_of("order.cancelled", "other", "k1")]).await?;
    append_rows(store, &[message("unread", "k1")]).await?;
    let all = Selection::of(Source::Log);
    let ids = async |selection: Selection| {
        let campaign = plan(store, CampaignKind::Resend, &selection, &[]).await?;
        let items = items(store, &campaign).await?;
        do_to(
            store,
            &campaign,
            onceward_core::campaign::CampaignAction::Stop,
        )
        .await?;
        Ok::<_, StoreError>(items.into_iter().map(|item| item.id).collect::<Vec<_>>())
    };
    assert_eq!(ids(all.clone()).await?, ["m1", "m2", "m3"]);
    let after = Selection {
        after_seq: rows[0].seq,
        ..all.clone()
    };
    assert_eq!(ids(after).await?, ["m2", "m3"]);
    let of_key = Selection {
        key: Some("k1".to_owned()),
        ..all.clone()
    };
    assert_eq!(ids(of_key).await?, ["m1", "m3"]);
    let now = rows[2].recorded_at.plus_millis(1_000);
    let before = Selection {
        before: Some(now),
        ..all.clone()
    };
    assert_eq!(ids(before).await?.len(), 3);
    let from = Selection {
        from: Some(now),
        ..all.clone()
    };
    let nothing_there = plan(store, CampaignKind::Resend, &from, &[]).await;
    assert_refused(nothing_there, StoreErrorKind::Refused, "a plan of nothing")?;
    read_on(store, "again").await?;
    let other_type = Selection {
        message_type: Some("order.cancelled".to_owned()),
        ..all
    };
    let campaign = plan(store, CampaignKind::Resend, &other_type, &[]).await?;
    assert_eq!(
        findings(store, &campaign).await?,
        [Some(Finding::TypeNotTaken)]
    );
    assert_eq!(campaign.counts.refused, 1);
    Ok(())
}

/// Done already, on its way, quarantined, behind a case, given up, never done.
pub async fn each_message_is_looked_at<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1", "k2", "k3", "k4", "k3", "k7"]).await?;
    defer(store, &[deferral(&rows[1], DeferralKind::Retry, Some(0))]).await?;
    let cased = Settle {
        cases: &[case(&rows[2], "permanent"), case(&rows[5], "permanent")],
        ..nothing()
    };
    settle(store, cased).await?;
    let given_up = ActOnCase {
        case_id: store.cases(Default::default()).await?[1].case_id,
        action: CaseAction::Waive,
        expected: None,
        by: BY,
    };
    store.act_on_case(given_up).await?;
    append_rows(store, &[message("m8", "k8")]).await?;
    read_on(store, "again").await?;
    let all = Selection::of(Source::Log);
    let campaign = plan(store, CampaignKind::Resend, &all, &[]).await?;
    let expected = [
        Finding::DoneAlready,
        Finding::InFlight,
        Finding::InFlight,
        Finding::DoneAlready,
        Finding::BehindCase,
        Finding::GivenUp,
        Finding::NotDone,
    ];
    assert_eq!(findings(store, &campaign).await?, expected.map(Some));
    assert_eq!((campaign.counts.left, campaign.counts.refused), (2, 5));
    let stop = onceward_core::campaign::CampaignAction::Stop;
    do_to(store, &campaign, stop).await?;
    let accepting = plan(store, CampaignKind::Resend, &all, &[Finding::NotDone]).await?;
    assert_eq!((accepting.counts.left, accepting.counts.refused), (3, 4));
    Ok(())
}

/// By the retention that upkeep goes by; of what the ledger still has, nothing is forgotten.
pub async fn what_the_ledger_may_have_forgotten_is_told<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let retention = Retention {
        log_ms: 10_000,
        ledger_ms: 20_000,
        operation_ledger_ms: 20_000,
        replay_window_ms: 10_000,
    };
    store.tidy(retention).await?;
    done_rows(store, &["k1"]).await?;
    append_rows(store, &[message("m2", "k2")]).await?;
    read_on(store, "again").await?;
    fixture.advance_ms(60_000);
    let all = Selection::of(Source::Log);
    let campaign = plan(store, CampaignKind::Resend, &all, &[]).await?;
    let expected = [Some(Finding::DoneAlready), Some(Finding::Forgotten)];
    assert_eq!(findings(store, &campaign).await?, expected);
    Ok(())
}

/// An earlier message of a key is not put on top of a later one unasked.
pub async fn a_later_message_of_the_key_is_told<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1", "k2", "k1"]).await?;
    let cases: Vec<_> = rows[..2].iter().map(|row| case(row, "permanent")).collect();
    let cased = Settle {
        cases: &cases,
        ..nothing()
    };
    settle(store, cased).await?;
    let again = append_rows(store, &[message("m4", "k4"), message("m5", "k4")]).await?;
    read_on(store, "again").await?;
    let cased = Settle {
        cases: &[case(&again[0], "permanent")],
        defer: &[deferral(&again[1], DeferralKind::Held, None)],
        ..nothing()
    };
    settle(store, cased).await?;
    declare_terms(store, SUB, None, REPEATABLE).await?;
    let cases = Selection::of(Source::Cases);
    let campaign = plan(store, CampaignKind::Rerun, &cases, &[]).await?;
    let expected = [Some(Finding::Overtaken), None, None];
    assert_eq!(findings(store, &campaign).await?, expected);
    let stop = onceward_core::campaign::CampaignAction::Stop;
    do_to(store, &campaign, stop).await?;
    let accepting = plan(store, CampaignKind::Rerun, &cases, &[Finding::Overtaken]).await?;
    assert_eq!(accepting.counts.left, 3);
    Ok(())
}

/// Declared now, it may; and what was declared before does not count.
pub async fn a_rerun_needs_a_repeatable_subscription<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    done_rows(store, &["k1"]).await?;
    let all = Selection::of(Source::Log);
    let planned = plan(store, CampaignKind::Rerun, &all, &[]).await;
    assert_refused(
        planned,
        StoreErrorKind::Refused,
        "a rerun that nobody declared",
    )?;
    declare_terms(store, SUB, None, REPEATABLE).await?;
    let planned = plan(store, CampaignKind::Rerun, &all, &[]).await?;
    assert_eq!((planned.generation, planned.counts.left), (1, 1));
    declare_terms(store, SUB, None, Terms::default()).await?;
    let planned = plan(store, CampaignKind::Rerun, &all, &[]).await;
    assert_refused(planned, StoreErrorKind::Refused, "a rerun after that")?;
    Ok(())
}

/// Each rerun has a generation of its own, and a message keeps it until it is done, whatever
/// becomes of it on the way.
pub async fn a_rerun_comes_under_its_generation<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1"]).await?;
    declare_terms(store, SUB, None, REPEATABLE).await?;
    let all = Selection::of(Source::Log);
    for generation in 1..=2 {
        let campaign = plan(store, CampaignKind::Rerun, &all, &[]).await?;
        assert_eq!(campaign.generation, generation);
        do_to(store, &campaign, START).await?;
        assert_eq!(step(store, &campaign).await?.started, 1);
        let deferred = load(store, &rows[0]).await?;
        assert_eq!((deferred.len(), deferred[0].generation), (1, generation));
        assert_eq!(deferred[0].kind, DeferralKind::Retry);
        assert_eq!(deferred[0].due_in_ms, Some(0));
        assert!(deferred[0].is_released());
        let failed = Settle {
            cases: &[case(&rows[0], "permanent")],
            clear: &[rows[0].seq],
            ..nothing()
        };
        settle(store, failed).await?;
        let seen = step(store, &campaign).await?.campaign;
        assert_eq!(seen.counts.failed, 1);
        let case_id = store.cases(Default::default()).await?[0].case_id;
        let release = ActOnCase {
            case_id,
            action: CaseAction::Release,
            expected: None,
            by: BY,
        };
        store.act_on_case(release).await?;
        let deferred = load(store, &rows[0]).await?;
        assert_eq!((deferred.len(), deferred[0].generation), (1, generation));
        finish(store, &rows).await?;
    }
    Ok(())
}

/// A resend of what is done goes out all the same: the ledger answers.
pub async fn a_resend_comes_under_the_first_generation<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1", "k2"]).await?;
    let all = Selection::of(Source::Log);
    let campaign = plan(store, CampaignKind::Resend, &all, &[]).await?;
    do_to(store, &campaign, START).await?;
    assert_eq!(step(store, &campaign).await?.started, 2);
    assert_eq!(load(store, &rows[0]).await?[0].generation, 0);
    let sent = items(store, &campaign).await?;
    assert_eq!(states(&sent), [ItemState::Running; 2]);
    finish(store, &rows).await?;
    let done = step(store, &campaign).await?.campaign;
    assert_eq!(done.counts.done, 2);
    let expected = [Some(Finding::DoneAlready); 2];
    assert_eq!(findings(store, &campaign).await?, expected);
    Ok(())
}

/// However old it is; and it goes when the campaign has let it go.
pub async fn what_is_to_go_out_stays_in_the_log<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1", "k2"]).await?;
    let all = Selection::of(Source::Log);
    let campaign = plan(store, CampaignKind::Resend, &all, &[]).await?;
    fixture.advance_ms(400 * 86_400_000);
    let tidied = tidy_all(store).await?;
    assert_eq!(tidied.log_removed, 0);
    let known = super::upkeep::remembers(store, &rows[0]).await?;
    assert!(known[0], "the ledger has it too");
    let why = "the store does not remove single rows";
    let name = "what_is_to_go_out_stays_in_the_log";
    if allows(fixture.capabilities().removes_single_log_rows, name, why) {
        let held = tidied.held_back_by.expect("a reason");
        assert!(held.contains("replay campaign"), "{held}");
    }
    let stop = onceward_core::campaign::CampaignAction::Stop;
    do_to(store, &campaign, stop).await?;
    let tidied = tidy_all(store).await?;
    if allows(fixture.capabilities().removes_single_log_rows, name, why) {
        assert_eq!(tidied.log_removed, 2);
    }
    Ok(())
}

/// With its items and generations.
pub async fn a_campaign_goes_along_with_a_new_name<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = done_rows(store, &["k1"]).await?;
    declare_terms(store, SUB, None, REPEATABLE).await?;
    let all = Selection::of(Source::Log);
    let campaign = plan(store, CampaignKind::Rerun, &all, &[]).await?;
    declare_terms(store, "dispatch", Some(SUB), REPEATABLE).await?;
    let started = do_to(store, &campaign, START).await?;
    assert_eq!(started.subscription, "dispatch");
    assert_eq!(step(store, &campaign).await?.started, 1);
    let deferred = store
        .load_key(LoadKey {
            subscription: "dispatch",
            slot: rows[0].slot,
            key: "k1",
            after_seq: 0,
            rows_max: 10,
            versions_to: None,
        })
        .await?;
    assert_eq!((deferred.len(), deferred[0].generation), (1, 1));
    Ok(())
}
