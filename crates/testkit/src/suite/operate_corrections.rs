//! A message is corrected: another one takes its place, as the same effect.

use onceward_core::case::AT_MOST_ONCE_FAILED;
use onceward_core::store::{
    ActOnCase, Actor, Case, CaseAction, CaseState, Correction, DeferralKind, HeldKeysQuery,
    NewCase, Settle, Store, StoreError, StoreErrorKind,
};
use onceward_core::{Identity, LedgerKey, Payload, Row};

use super::operate::{BY, act, all_history, history_of, one_case, open_cases, state_of};
use super::seams::*;
use super::steps::{
    ALL_SLOTS, SUB, append_rows, assert_refused, case, defer, deferral, load, message, messages,
    nothing, register, settle,
};
use super::{CaseResult, Fixture};

fn correction(id: &str, text: &str) -> Correction {
    Correction {
        id: id.to_owned(),
        payload: Payload::Json(text.into()),
    }
}

async fn correct<S: Store>(
    store: &S,
    case_id: i64,
    correction: &Correction,
) -> Result<onceward_core::store::Standing, StoreError> {
    let action = CaseAction::Correct {
        id: &correction.id,
        payload: &correction.payload,
    };
    act(store, case_id, action).await
}

async fn held_keys<S: Store>(store: &S) -> Result<usize, StoreError> {
    let query = HeldKeysQuery {
        subscription: SUB,
        slots: ALL_SLOTS,
    };
    Ok(store.held_cases(query).await?.len())
}

/// Kept beside the original until it is released; then it comes first of its key, as the same
/// effect, with its bytes as they were given.
pub async fn a_correction_runs_in_the_originals_place<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &[1, 2].map(|i| message(&format!("m{i}"), "k"))).await?;
    defer(store, &[deferral(&rows[1], DeferralKind::Held, Some(0))]).await?;
    let found = open_cases(store, &rows[..1]).await?.remove(0);
    let better = correction("c1", "{\"z\": 1.50,  \"a\": \"\u{e9}\"}");
    let after = correct(store, found.case_id, &better).await?;
    assert_eq!(after.state, CaseState::Corrected);
    assert_eq!(after.corrected_id.as_deref(), Some("c1"));
    let second = fixture.second().await;
    let seen = one_case(&second, found.case_id).await?;
    let expected = Case {
        standing: after,
        correction: Some(better.clone()),
        ..found.clone()
    };
    assert_eq!(seen, expected, "the original stays as it was");
    assert_eq!(
        held_keys(&second).await?,
        1,
        "its key waits until it is released"
    );
    assert_eq!(
        load(&second, &rows[0]).await?.len(),
        1,
        "nothing is to be done yet"
    );
    let entry = history_of(&second, found.case_id).await?.remove(0);
    assert_eq!(
        (entry.action.as_str(), entry.who.as_str()),
        ("correct", BY.who)
    );
    assert!(
        entry.after.contains("\"c1\"") && !entry.after.contains("1.50"),
        "{entry:?}"
    );
    act(store, found.case_id, CaseAction::Release).await?;
    assert_eq!(held_keys(&second).await?, 0);
    let loaded = load(&second, &rows[0]).await?;
    let loaded: Vec<&Row> = loaded.iter().map(|deferred| &deferred.row).collect();
    assert_eq!(loaded, [&better.of(&rows[0]), &rows[1]]);
    assert_eq!(loaded[0].envelope.attributes["causationid"], "m1");
    for identity in [Identity::Message, Identity::Operation, Identity::Seq] {
        let keys = [&rows[0], loaded[0]].map(|row| LedgerKey::of(row, identity));
        assert_eq!(keys[0], keys[1], "one effect by {identity:?}");
    }
    Ok(())
}

/// The same case again, with both; corrected once more, the last correction runs.
pub async fn a_correction_that_fails_is_a_case_with_both<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    let first = open_cases(store, &rows).await?.remove(0);
    let (wrong, right) = (
        correction("c1", "{\"zip\":1}"),
        correction("c2", "{\"zip\":2}"),
    );
    correct(store, first.case_id, &wrong).await?;
    act(store, first.case_id, CaseAction::Release).await?;
    let failed = Settle {
        clear: &[rows[0].seq],
        cases: &[case(&wrong.of(&rows[0]), "permanent")],
        ..nothing()
    };
    settle(store, failed).await?;
    let again = one_case(&fixture.second().await, first.case_id).await?;
    assert_eq!(again.row, rows[0], "the original");
    assert_eq!(again.correction, Some(wrong), "and what took its place");
    assert_eq!(again.standing.state, CaseState::Open);
    assert_eq!((again.standing.replays, again.standing.regressions), (1, 1));
    let groups = store
        .case_groups(onceward_core::store::GroupQuery::default())
        .await?;
    let counted: Vec<_> = groups.iter().map(|g| (g.live, g.all)).collect();
    assert_eq!(counted, [(1, 1)], "it is one case, and open again");
    correct(store, first.case_id, &right).await?;
    // The record's answer was lost: a live case stays as it is.
    let twice = Settle {
        cases: &[case(&rows[0], "permanent")],
        ..nothing()
    };
    settle(store, twice).await?;
    let seen = one_case(store, first.case_id).await?;
    assert_eq!(seen.standing.state, CaseState::Corrected);
    act(store, first.case_id, CaseAction::Release).await?;
    let loaded = load(store, &rows[0]).await?;
    assert_eq!(loaded[0].row, right.of(&rows[0]));
    let ids: Vec<String> = history_of(store, first.case_id)
        .await?
        .iter()
        .map(|entry| entry.action.clone())
        .collect();
    assert_eq!(ids, ["correct", "release", "correct", "release"]);
    Ok(())
}

/// Any bytes, as they were given.
pub async fn a_correction_may_be_binary<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let mut original = message("m1", "k");
    original.payload = Payload::Binary(Box::from(*b"\x00\xff\n"));
    let rows = append_rows(store, &[original]).await?;
    let case_id = open_cases(store, &rows).await?[0].case_id;
    let better = Correction {
        id: "c1".to_owned(),
        payload: Payload::Binary(Box::from(*b"\xfe\x00 ")),
    };
    correct(store, case_id, &better).await?;
    let seen = one_case(&fixture.second().await, case_id).await?;
    assert_eq!(seen.correction.as_ref(), Some(&better));
    act(store, case_id, CaseAction::Release).await?;
    assert_eq!(load(store, &rows[0]).await?[0].row, better.of(&rows[0]));
    Ok(())
}

/// What is over, without a reason, under no id, under one that was used, of what may not run twice.
pub async fn a_correction_that_is_refused_leaves_no_trace<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 3)).await?;
    let cases = open_cases(store, &rows).await?;
    let once = NewCase {
        reason: AT_MOST_ONCE_FAILED.to_owned(),
        ..case(&rows[2], "")
    };
    let opened = Settle {
        cases: &[once],
        ..nothing()
    };
    settle(store, opened).await?;
    act(store, cases[0].case_id, CaseAction::Discard).await?;
    let better = correction("c1", "{}");
    correct(store, cases[1].case_id, &better).await?;
    let before = (state_of(store, SUB).await?, all_history(store).await?);
    let refused = StoreErrorKind::Refused;
    let ended = correct(store, cases[0].case_id, &better).await;
    assert_refused(ended, StoreErrorKind::Moved, "correcting what is over")?;
    let ended = correct(store, cases[2].case_id, &better).await;
    assert_refused(ended, refused, "correcting what was to be tried once")?;
    let ended = correct(store, cases[1].case_id, &correction("", "{}")).await;
    assert_refused(ended, refused, "correcting under no id")?;
    let ended = correct(store, cases[1].case_id, &correction("c1", "[]")).await;
    assert!(
        ended.is_err(),
        "another content under the id of a correction"
    );
    let silent = ActOnCase {
        case_id: cases[1].case_id,
        action: CaseAction::Correct {
            id: "c2",
            payload: &better.payload,
        },
        expected: None,
        by: Actor {
            who: "ada",
            why: None,
        },
    };
    let ended = store.act_on_case(silent).await;
    assert_refused(ended, refused, "correcting without a reason")?;
    let after = (state_of(store, SUB).await?, all_history(store).await?);
    assert_eq!(before, after);
    let seen = one_case(store, cases[1].case_id).await?;
    assert_eq!(seen.correction, Some(better));
    Ok(())
}

/// Only what is over, what the log has forgotten, and what is not under way; its history stays.
pub async fn a_case_goes_when_nothing_can_need_it<F: Fixture>(fixture: &F) -> CaseResult {
    const NAME: &str = "operate_corrections::a_case_goes_when_nothing_can_need_it";
    let store = fixture.store();
    let refused = StoreErrorKind::Refused;
    let (rows, _) = super::upkeep::all_read(fixture).await?;
    let cases = open_cases(store, &rows[..2]).await?;
    let [first, second] = [cases[0].case_id, cases[1].case_id];
    let ended = act(store, first, CaseAction::Purge).await;
    assert_refused(ended, StoreErrorKind::Moved, "removing an open case")?;
    correct(store, first, &correction("c1", "{}")).await?;
    act(store, first, CaseAction::Discard).await?;
    let ended = act(store, first, CaseAction::Purge).await;
    assert_refused(ended, refused, "removing what the log would bring again")?;
    assert_eq!(
        one_case(store, first).await?.standing.state,
        CaseState::Discarded
    );
    let has = fixture.capabilities().removes_single_log_rows;
    if !super::allows(has, NAME, "the log goes by whole partitions") {
        return Ok(());
    }
    act(store, second, CaseAction::Release).await?;
    fixture.advance_ms(400 * 86_400_000);
    super::upkeep::tidy_all(store).await?;
    let ended = act(store, second, CaseAction::Purge).await;
    assert_refused(ended, refused, "removing what is under way")?;
    act(store, first, CaseAction::Purge).await?;
    let left = store
        .cases(onceward_core::store::CaseQuery::default())
        .await?;
    let left: Vec<i64> = left.iter().map(|case| case.case_id).collect();
    assert_eq!(left, [second]);
    let all = onceward_core::store::GroupQuery {
        with_resolved: true,
        ..onceward_core::store::GroupQuery::default()
    };
    let groups = store.case_groups(all).await?;
    let counted: Vec<_> = groups
        .iter()
        .map(|g| (g.live, g.all, g.oldest_case_id))
        .collect();
    assert_eq!(counted, [(0, 1, second)]);
    let actions: Vec<String> = history_of(store, first)
        .await?
        .into_iter()
        .map(|entry| entry.action)
        .collect();
    assert_eq!(actions, ["correct", "discard", "purge"]);
    let ended = act(store, first, CaseAction::Purge).await;
    assert_refused(ended, refused, "removing what is gone")?;
    Ok(())
}

/// A row for each subscription, with a reason where it is shown; and one where it may not be.
pub async fn a_reveal_of_an_operation_is_on_record<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let reveal = |is_permitted, why| onceward_core::store::RevealOperation {
        operation: "checkout-7",
        subscriptions: &[SUB, "billing"],
        is_permitted,
        by: Actor { who: "ada", why },
    };
    let ended = store.reveal_operation(reveal(true, None)).await;
    assert_refused(ended, StoreErrorKind::Refused, "a reveal without a reason")?;
    assert!(all_history(store).await?.is_empty(), "nothing is on record");
    let revision = state_of(store, SUB).await?.revision;
    store
        .reveal_operation(reveal(true, Some("the bank asks")))
        .await?;
    store.reveal_operation(reveal(false, None)).await?;
    let history = all_history(store).await?;
    let told: Vec<_> = history
        .iter()
        .map(|entry| (entry.action.as_str(), entry.subscription.as_str()))
        .collect();
    let expected = [
        ("reveal", SUB),
        ("reveal", "billing"),
        ("reveal-refused", SUB),
        ("reveal-refused", "billing"),
    ];
    assert_eq!(told, expected);
    assert_eq!(history[0].why.as_deref(), Some("the bank asks"));
    assert!(
        history
            .iter()
            .all(|entry| entry.after.contains("checkout-7"))
    );
    assert_eq!(
        state_of(store, SUB).await?.revision,
        revision,
        "nothing else"
    );
    Ok(())
}

/// Seen in the survey, with the revision raised, by every process; with a new name too.
pub async fn a_limit_is_seen_and_ends<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let limit = async |store: &F::Store, concurrency_max, why| {
        let request = onceward_core::store::SetLimit {
            subscription: SUB,
            concurrency_max,
            rate: None,
            by: Actor { who: "ada", why },
        };
        store.set_limit(request).await
    };
    let why = Some("the carrier asks");
    let before = state_of(store, SUB).await?;
    assert_eq!(before.concurrency_max, None);
    let refused = StoreErrorKind::Refused;
    let ended = limit(store, Some(2), None).await;
    assert_refused(ended, refused, "a limit without a reason")?;
    let ended = limit(store, Some(0), why).await;
    assert_refused(ended, refused, "a limit under which nothing runs")?;
    let ended = limit(store, None, why).await;
    assert_refused(ended, StoreErrorKind::Moved, "ending no limit")?;
    assert_eq!(state_of(store, SUB).await?, before, "nothing was changed");
    limit(store, Some(2), why).await?;
    let second = fixture.second().await;
    let limited = state_of(&second, SUB).await?;
    assert_eq!(limited.concurrency_max, Some(2));
    assert!(limited.revision > before.revision);
    let ended = limit(&second, Some(2), why).await;
    assert_refused(ended, StoreErrorKind::Moved, "the same limit again")?;
    limit(&second, Some(3), why).await?;
    limit(&second, None, None).await?;
    assert_eq!(state_of(store, SUB).await?.concurrency_max, None);
    let accounts: Vec<(String, String)> = all_history(store)
        .await?
        .into_iter()
        .filter(|entry| entry.action == "limit")
        .map(|entry| (entry.before, entry.after))
        .collect();
    let value = |concurrency_max| {
        let rate = None;
        let limits = onceward_core::store::Limits {
            concurrency_max,
            rate,
        };
        serde_json::from_str::<serde_json::Value>(&limits.account()).ok()
    };
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text);
    let steps = [(None, Some(2)), (Some(2), Some(3)), (Some(3), None)];
    assert_eq!(accounts.len(), steps.len());
    for ((before, after), (from, to)) in accounts.iter().zip(steps) {
        assert_eq!(
            (read(before).ok(), read(after).ok()),
            (value(from), value(to))
        );
    }
    Ok(())
}
