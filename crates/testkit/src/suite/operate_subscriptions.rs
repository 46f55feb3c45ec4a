//! What operators do with a subscription and what waits in it; and what they find.

use onceward_core::store::{
    Actor, BacklogQuery, Case, CaseAction, CaseQuery, CaseState, Deferral, DeferralKind,
    GroupQuery, HistoryQuery, NewCase, ResumeDeferred, SetPause, Settle, Store, StoreError,
    StoreErrorKind,
};
use onceward_core::{Class, FailureRecord, Spent};

use super::operate::{BY, act, all_history, open_cases, state_of};
use super::seams::*;
use super::steps::{
    SUB, append_rows, assert_refused, case, defer, deferral, failure, load, message, message_of,
    messages, nothing, register, settle,
};
use super::{CaseResult, Fixture, allows};

async fn pause<S: Store>(store: &S, is_paused: bool) -> Result<(), StoreError> {
    store
        .set_pause(SetPause {
            subscription: SUB,
            is_paused,
            by: BY,
        })
        .await
}

/// Of one key or all, and nothing else; what they had used of their budget stays.
pub async fn what_waits_for_a_person_is_due_again<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for name in [SUB, "billing"] {
        register(store, name).await?;
    }
    let rows = append_rows(store, &messages(1, 4)).await?;
    let spent = Spent {
        failures: 2,
        waits: 3,
        ..Spent::default()
    };
    let waits = |row| Deferral {
        spent,
        failure: Some(failure(Class::Operator)),
        ..deferral(row, DeferralKind::Operator, None)
    };
    let retry = deferral(&rows[3], DeferralKind::Retry, Some(600_000));
    defer(
        store,
        &[waits(&rows[0]), waits(&rows[1]), waits(&rows[2]), retry],
    )
    .await?;
    let elsewhere = Settle {
        defer: &[waits(&rows[0])],
        ..Settle::nothing("billing", onceward_core::Identity::Message)
    };
    settle(store, elsewhere).await?;
    let resume = |key| ResumeDeferred {
        subscription: SUB,
        key,
        by: BY,
    };
    assert_eq!(store.resume_deferred(resume(Some("k2"))).await?, 1);
    let due = load(store, &rows[1]).await?.remove(0);
    assert_eq!((due.kind, due.due_in_ms), (DeferralKind::Retry, Some(0)));
    assert_eq!((due.spent.failures, due.spent.waits), (2, 3));
    assert_eq!(due.failure, Some(failure(Class::Operator)));
    assert_eq!(load(store, &rows[0]).await?[0].kind, DeferralKind::Operator);
    assert_eq!(store.resume_deferred(resume(None)).await?, 2);
    assert_eq!(load(store, &rows[2]).await?[0].due_in_ms, Some(0));
    let untouched = load(store, &rows[3]).await?[0].due_in_ms;
    assert!(untouched.is_some_and(|ms| ms > 500_000), "{untouched:?}");
    let backlog = BacklogQuery {
        subscription: "billing",
        count_max: 10,
        before: None,
    };
    assert_eq!(store.backlog(backlog).await?.deferred.operator, 1);
    assert_eq!(store.resume_deferred(resume(None)).await?, 0);
    let history = all_history(store).await?;
    let actions: Vec<&str> = history.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(
        actions,
        ["resume-deferred", "resume-deferred"],
        "nothing done, nothing said"
    );
    let unknown = ResumeDeferred {
        subscription: "nobody",
        ..resume(None)
    };
    let ended = store.resume_deferred(unknown).await;
    assert_refused(ended, StoreErrorKind::Refused, "resuming what is not there")?;
    Ok(())
}

/// In surveys and backlogs of all, once, and with a reason.
pub async fn a_pause_is_seen_and_ends<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for name in [SUB, "billing"] {
        register(store, name).await?;
    }
    assert!(!state_of(store, SUB).await?.is_paused);
    let without = SetPause {
        subscription: SUB,
        is_paused: true,
        by: Actor {
            who: "ada",
            why: None,
        },
    };
    let ended = store.set_pause(without).await;
    assert_refused(ended, StoreErrorKind::Refused, "a pause without a reason")?;
    let ended = pause(store, false).await;
    assert_refused(ended, StoreErrorKind::Moved, "ending no pause")?;
    pause(store, true).await?;
    let second = fixture.second().await;
    assert!(state_of(&second, SUB).await?.is_paused);
    assert!(!state_of(&second, "billing").await?.is_paused);
    let ended = pause(&second, true).await;
    assert_refused(ended, StoreErrorKind::Moved, "a second pause")?;
    let query = BacklogQuery {
        subscription: SUB,
        count_max: 1,
        before: None,
    };
    let backlog = second.backlog(query.clone()).await?;
    let paused_at = backlog.paused_at.ok_or("the backlog says nothing")?;
    assert!(paused_at <= backlog.now);
    pause(&second, false).await?;
    assert!(!state_of(store, SUB).await?.is_paused);
    assert_eq!(store.backlog(query).await?.paused_at, None);
    pause(store, true).await?;
    assert!(state_of(store, SUB).await?.is_paused);
    let query = HistoryQuery {
        subscription: Some(SUB),
        ..HistoryQuery::default()
    };
    let history = store.history(query).await?;
    let actions: Vec<&str> = history.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["pause", "resume", "pause"]);
    assert_eq!(history[0].case_id, None);
    let unknown = SetPause {
        subscription: "nobody",
        is_paused: true,
        by: BY,
    };
    let ended = store.set_pause(unknown).await;
    assert_refused(ended, StoreErrorKind::Refused, "pausing what is not there")?;
    Ok(())
}

/// Neither of what was deferred before nor of what was deferred in it, while it lasts and after.
pub async fn no_age_counts_in_a_pause<F: Fixture>(fixture: &F) -> CaseResult {
    const HOUR_MS: u64 = 3_600_000;
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 2)).await?;
    let age = async |index: usize| -> Result<u64, StoreError> {
        Ok(load(store, &rows[index]).await?[0].spent.age_ms)
    };
    let about = |age_ms: u64, hours: u64| {
        let (least, most) = (hours * HOUR_MS, hours * HOUR_MS + 60_000);
        assert!(
            (least..most).contains(&age_ms),
            "{age_ms} ms, not {hours} h"
        );
    };
    defer(store, &[deferral(&rows[0], DeferralKind::Retry, Some(0))]).await?;
    fixture.advance_ms(2 * HOUR_MS);
    pause(store, true).await?;
    fixture.advance_ms(HOUR_MS);
    defer(store, &[deferral(&rows[1], DeferralKind::Retry, Some(0))]).await?;
    about(age(0).await?, 2);
    fixture.advance_ms(10 * HOUR_MS);
    about(age(0).await?, 2);
    about(age(1).await?, 0);
    pause(store, false).await?;
    fixture.advance_ms(HOUR_MS);
    about(age(0).await?, 3);
    about(age(1).await?, 1);
    pause(store, true).await?;
    fixture.advance_ms(HOUR_MS);
    about(age(0).await?, 3);
    pause(store, false).await?;
    fixture.advance_ms(HOUR_MS);
    about(age(0).await?, 4);
    // Of its subscription alone.
    register(store, "billing").await?;
    let elsewhere = SetPause {
        subscription: "billing",
        is_paused: true,
        by: BY,
    };
    store.set_pause(elsewhere).await?;
    fixture.advance_ms(HOUR_MS);
    about(age(0).await?, 5);
    Ok(())
}

/// And of its subscription alone; what changes nothing that may run raises nothing.
pub async fn what_changes_work_raises_the_revision<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for name in [SUB, "billing"] {
        register(store, name).await?;
    }
    let rows = append_rows(store, &messages(1, 4)).await?;
    let cases = open_cases(store, &rows[..3]).await?;
    defer(store, &[deferral(&rows[3], DeferralKind::Operator, None)]).await?;
    let mut last = state_of(store, SUB).await?.revision;
    let other = state_of(store, "billing").await?;
    let due_at = None;
    for quiet in [
        CaseAction::Acknowledge,
        CaseAction::Assign { owner: Some("bo") },
        CaseAction::SetDue { due_at },
        CaseAction::Note,
    ] {
        act(store, cases[0].case_id, quiet).await?;
    }
    assert_eq!(state_of(store, SUB).await?.revision, last);
    let mut raised = async |what: &str| -> Result<(), StoreError> {
        let now = state_of(store, SUB).await?.revision;
        assert!(now > last, "{what} raises the revision");
        last = now;
        Ok(())
    };
    act(store, cases[0].case_id, CaseAction::Release).await?;
    raised("releasing").await?;
    act(store, cases[1].case_id, CaseAction::Discard).await?;
    raised("discarding").await?;
    act(store, cases[2].case_id, CaseAction::Waive).await?;
    raised("waiving").await?;
    let resume = ResumeDeferred {
        subscription: SUB,
        key: None,
        by: BY,
    };
    store.resume_deferred(resume).await?;
    raised("resuming").await?;
    pause(store, true).await?;
    raised("pausing").await?;
    pause(store, false).await?;
    raised("going on").await?;
    assert_eq!(state_of(store, "billing").await?, other);
    Ok(())
}

/// By case, by subscription, in pages.
pub async fn the_history_is_asked_in_pages<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 2)).await?;
    let cases = open_cases(store, &rows).await?;
    for case in &cases {
        act(store, case.case_id, CaseAction::Acknowledge).await?;
        act(store, case.case_id, CaseAction::Release).await?;
    }
    pause(store, true).await?;
    let all = all_history(store).await?;
    assert_eq!(all.len(), 5);
    let first = HistoryQuery {
        rows_max: 2,
        ..HistoryQuery::default()
    };
    assert_eq!(store.history(first).await?, all[..2]);
    let next = HistoryQuery {
        after_audit_id: all[1].audit_id,
        ..HistoryQuery::default()
    };
    assert_eq!(store.history(next).await?, all[2..]);
    let of_case = HistoryQuery {
        case_id: Some(cases[1].case_id),
        ..HistoryQuery::default()
    };
    assert_eq!(store.history(of_case).await?, all[2..4]);
    let elsewhere = HistoryQuery {
        subscription: Some("billing"),
        ..HistoryQuery::default()
    };
    assert!(store.history(elsewhere).await?.is_empty());
    Ok(())
}

/// By state, owner, cause, type, key and time, alone and together.
pub async fn cases_are_found_by_what_they_are<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let mut envelopes = messages(1, 3);
    envelopes.push(message_of("order.cancelled", "m4", "k1"));
    let rows = append_rows(store, &envelopes).await?;
    open_cases(store, &rows[..2]).await?;
    fixture.advance_ms(3_600_000);
    let cases = open_cases(store, &rows[2..]).await?;
    act(store, cases[0].case_id, CaseAction::Acknowledge).await?;
    act(store, cases[1].case_id, CaseAction::Discard).await?;
    let found = async |query: CaseQuery<'_>| -> Result<Vec<i64>, StoreError> {
        let found = store.cases(query).await?;
        Ok(found.iter().map(|case| case.case_id).collect())
    };
    let number = |index: usize| cases[index].case_id;
    let any = CaseQuery::default();
    let live = [CaseState::Open, CaseState::Acknowledged];
    let by_state = CaseQuery {
        states: &live,
        ..any.clone()
    };
    assert_eq!(
        found(by_state.clone()).await?,
        [number(0), number(2), number(3)]
    );
    let by_owner = CaseQuery {
        owner: Some("ada"),
        ..any.clone()
    };
    assert_eq!(found(by_owner).await?, [number(0)]);
    let by_type = CaseQuery {
        message_type: Some("order.cancelled"),
        ..any.clone()
    };
    assert_eq!(found(by_type).await?, [number(3)]);
    let by_key = CaseQuery {
        key: Some("k1"),
        ..any.clone()
    };
    assert_eq!(found(by_key.clone()).await?, [number(0), number(3)]);
    let by_print = CaseQuery {
        fingerprint: Some(&cases[0].fingerprint),
        ..any.clone()
    };
    assert_eq!(found(by_print).await?, [number(0), number(1), number(2)]);
    let later = CaseQuery {
        opened_from: Some(cases[2].opened_at),
        ..any.clone()
    };
    assert_eq!(found(later).await?, [number(2), number(3)]);
    let earlier = CaseQuery {
        opened_before: Some(cases[2].opened_at),
        ..any.clone()
    };
    assert_eq!(found(earlier.clone()).await?, [number(0), number(1)]);
    let together = CaseQuery {
        key: Some("k1"),
        states: &live,
        ..earlier
    };
    assert_eq!(found(together).await?, [number(0)]);
    Ok(())
}

/// The most live ones first, with their first and last, and those that are over where asked for.
pub async fn cases_are_grouped_by_their_cause<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 5)).await?;
    let of = |row, code: &str| NewCase {
        failure: FailureRecord {
            code: code.to_owned(),
            ..failure(Class::Schema)
        },
        ..case(row, "schema")
    };
    for (index, code) in ["rare", "often", "often", "often", "over"]
        .iter()
        .enumerate()
    {
        let opened = Settle {
            cases: &[of(&rows[index], code)],
            ..nothing()
        };
        settle(store, opened).await?;
        fixture.advance_ms(60_000);
    }
    let cases: Vec<Case> = store.cases(CaseQuery::default()).await?;
    act(store, cases[1].case_id, CaseAction::Discard).await?;
    act(store, cases[4].case_id, CaseAction::Discard).await?;
    let groups = store.case_groups(GroupQuery::default()).await?;
    let codes: Vec<_> = groups
        .iter()
        .map(|g| (g.code.as_str(), g.live, g.all, g.oldest_case_id))
        .collect();
    let expected = [
        ("often", 2, 3, cases[2].case_id),
        ("rare", 1, 1, cases[0].case_id),
    ];
    assert_eq!(codes, expected);
    let often = &groups[0];
    assert_eq!(often.fingerprint, cases[1].fingerprint);
    assert_eq!(often.first_at, cases[1].first_opened_at);
    assert_eq!(often.last_at, cases[3].opened_at);
    assert_eq!(
        (often.class, often.subscription.as_str()),
        (Class::Schema, SUB)
    );
    let all = GroupQuery {
        with_resolved: true,
        ..GroupQuery::default()
    };
    let all = store.case_groups(all).await?;
    assert_eq!(all.len(), 3);
    assert_eq!(
        (all[2].code.as_str(), all[2].live, all[2].all),
        ("over", 0, 1)
    );
    let first = GroupQuery {
        rows_max: 1,
        ..GroupQuery::default()
    };
    assert_eq!(store.case_groups(first).await?, groups[..1]);
    let elsewhere = GroupQuery {
        subscription: Some("billing"),
        ..GroupQuery::default()
    };
    assert!(store.case_groups(elsewhere).await?.is_empty());
    Ok(())
}

/// From the case's copy; and what the ledger knows of it stays as long as it may run.
pub async fn a_released_message_outlives_its_row<F: Fixture>(fixture: &F) -> CaseResult {
    const NAME: &str = "operate_subscriptions::a_released_message_outlives_its_row";
    let has = fixture.capabilities().removes_single_log_rows;
    if !allows(has, NAME, "the log goes by whole partitions") {
        return Ok(());
    }
    let store = fixture.store();
    let (rows, _) = super::upkeep::all_read(fixture).await?;
    super::upkeep::record_both(store, &rows[0]).await?;
    let case = open_cases(store, &rows[..1]).await?.remove(0);
    fixture.advance_ms(400 * 86_400_000);
    super::upkeep::tidy_all(store).await?;
    assert_eq!(
        super::upkeep::remembers(store, &rows[0]).await?,
        [true, true]
    );
    act(store, case.case_id, CaseAction::Release).await?;
    super::upkeep::tidy_all(store).await?;
    assert_eq!(
        super::upkeep::remembers(store, &rows[0]).await?,
        [true, true]
    );
    let found = load(store, &rows[0]).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].row, rows[0]);
    let cleared = Settle {
        clear: &[rows[0].seq],
        ..nothing()
    };
    settle(store, cleared).await?;
    super::upkeep::tidy_all(store).await?;
    assert_eq!(
        super::upkeep::remembers(store, &rows[0]).await?,
        [false, false]
    );
    Ok(())
}

/// A subscription that is renamed keeps its pause and its revision.
pub async fn a_pause_goes_along_with_a_new_name<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let row = append_rows(store, &[message("m1", "k")]).await?.remove(0);
    defer(store, &[deferral(&row, DeferralKind::Retry, Some(0))]).await?;
    pause(store, true).await?;
    let before = state_of(store, SUB).await?;
    let types = [super::steps::TYPE.to_owned()];
    store
        .register(onceward_core::store::Declared {
            subscription: "dispatch",
            lanes: super::steps::LANES,
            types: &types,
            start: None,
            renamed_from: Some(SUB),
            terms: onceward_core::store::Terms::default(),
        })
        .await?;
    let after = state_of(store, "dispatch").await?;
    assert_eq!((after.is_paused, after.revision), (true, before.revision));
    fixture.advance_ms(3_600_000);
    let request = onceward_core::store::LoadKey {
        subscription: "dispatch",
        slot: row.slot,
        key: "k",
        after_seq: 0,
        versions_to: None,
        rows_max: 10,
    };
    let age_ms = store.load_key(request).await?[0].spent.age_ms;
    assert!(age_ms < 60_000, "{age_ms} ms");
    Ok(())
}
