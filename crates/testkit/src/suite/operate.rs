//! What operators do with cases: checked, recorded, and seen by whoever works.

use onceward_core::case::{AT_MOST_ONCE_FAILED, WHY_BYTES_MAX};
use onceward_core::store::{
    ActOnCase, Actor, AuditEntry, Case, CaseAction, CaseQuery, CaseState, DeferralKind,
    HeldKeysQuery, HistoryQuery, MessageState, NewCase, OperationQuery, Settle, Standing, Store,
    StoreError, StoreErrorKind, SubscriptionState,
};
use onceward_core::{Class, Row, Spent, Timestamp};

use super::seams::*;
use super::steps::{
    ALL_SLOTS, SUB, append_rows, assert_refused, case, defer, deferral, failure, ids, load,
    message, messages, nothing, register, settle,
};
use super::{CaseResult, Fixture};

/// Who acts in these cases.
pub(super) const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("asked by the customer"),
};

pub(super) async fn act<S: Store>(
    store: &S,
    case_id: i64,
    action: CaseAction<'_>,
) -> Result<Standing, StoreError> {
    store
        .act_on_case(ActOnCase {
            case_id,
            action,
            expected: None,
            by: BY,
        })
        .await
}

/// Opens cases of [`SUB`] for rows and returns them.
pub(super) async fn open_cases<S: Store>(store: &S, rows: &[Row]) -> Result<Vec<Case>, StoreError> {
    let cases: Vec<NewCase> = rows.iter().map(|row| case(row, "permanent")).collect();
    let opened = Settle {
        cases: &cases,
        ..nothing()
    };
    settle(store, opened).await?;
    store.cases(CaseQuery::default()).await
}

pub(super) async fn one_case<S: Store>(store: &S, case_id: i64) -> Result<Case, StoreError> {
    let query = CaseQuery {
        case_id: Some(case_id),
        ..CaseQuery::default()
    };
    let mut found = store.cases(query).await?;
    assert_eq!(found.len(), 1, "case {case_id}");
    Ok(found.remove(0))
}

pub(super) async fn history_of<S: Store>(
    store: &S,
    case_id: i64,
) -> Result<Vec<AuditEntry>, StoreError> {
    let query = HistoryQuery {
        case_id: Some(case_id),
        ..HistoryQuery::default()
    };
    store.history(query).await
}

pub(super) async fn state_of<S: Store>(
    store: &S,
    subscription: &str,
) -> Result<SubscriptionState, StoreError> {
    let survey = store.survey().await?;
    let mut states = survey.subscriptions.into_iter();
    let found = states.find(|state| state.subscription == subscription);
    Ok(found.unwrap_or_else(|| panic!("{subscription} is not in the survey")))
}

async fn holding<S: Store>(store: &S) -> Result<Vec<String>, StoreError> {
    let query = HeldKeysQuery {
        subscription: SUB,
        slots: ALL_SLOTS,
    };
    let held = store.held_cases(query).await?;
    Ok(held.into_iter().map(|case| case.key).collect())
}

fn field(json: &str, name: &str) -> serde_json::Value {
    let mut value: serde_json::Value = serde_json::from_str(json).expect("an account is JSON");
    value[name].take()
}

/// Each with its row in the audit log: who, what, why, before and after.
pub async fn a_case_gets_an_owner_and_a_date<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    let case_id = open_cases(store, &rows).await?[0].case_id;
    let due_at = Some(Timestamp::from_micros(1_900_000_000_000_000));
    act(store, case_id, CaseAction::Assign { owner: Some("bo") }).await?;
    act(store, case_id, CaseAction::SetDue { due_at }).await?;
    let after = act(store, case_id, CaseAction::Acknowledge).await?;
    let expected = Standing {
        state: CaseState::Acknowledged,
        owner: Some("bo".to_owned()),
        due_at,
        ..Standing::default()
    };
    assert_eq!(after, expected);
    let second = fixture.second().await;
    assert_eq!(one_case(&second, case_id).await?.standing, expected);
    let history = history_of(&second, case_id).await?;
    let actions: Vec<&str> = history.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["assign", "set-due", "acknowledge"]);
    for entry in &history {
        assert_eq!((entry.who.as_str(), entry.why.as_deref()), (BY.who, BY.why));
        assert_eq!(entry.case_id, Some(case_id));
        assert_eq!(entry.subscription, SUB);
    }
    assert_eq!(field(&history[0].before, "owner"), serde_json::Value::Null);
    assert_eq!(field(&history[0].after, "owner"), "bo");
    assert_eq!(field(&history[2].before, "state"), "open");
    assert_eq!(field(&history[2].after, "state"), "acknowledged");
    act(store, case_id, CaseAction::Assign { owner: None }).await?;
    act(store, case_id, CaseAction::SetDue { due_at: None }).await?;
    let standing = one_case(store, case_id).await?.standing;
    assert_eq!((standing.owner, standing.due_at), (None, None));
    Ok(())
}

/// Also on what is over.
pub async fn notes_stay_in_their_order<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    let case_id = open_cases(store, &rows).await?[0].case_id;
    let note = |text| ActOnCase {
        case_id,
        action: CaseAction::Note,
        expected: None,
        by: Actor {
            who: "bo",
            why: Some(text),
        },
    };
    store.act_on_case(note("it rains \u{2014} \u{e9}")).await?;
    act(store, case_id, CaseAction::Discard).await?;
    store.act_on_case(note("second\nline")).await?;
    let history = history_of(store, case_id).await?;
    let notes: Vec<_> = history
        .iter()
        .filter(|entry| entry.action == "note")
        .map(|entry| (entry.who.as_str(), entry.why.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(
        notes,
        [("bo", "it rains \u{2014} \u{e9}"), ("bo", "second\nline")]
    );
    assert!(history.is_sorted_by(|a, b| a.audit_id < b.audit_id && a.acted_at <= b.acted_at));
    Ok(())
}

/// By a second one, by one who saw it otherwise, without a reason, of none that is there. Nothing
/// is recorded of it.
pub async fn what_is_refused_leaves_no_trace<F: Fixture>(fixture: &F) -> CaseResult {
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
    act(store, cases[0].case_id, CaseAction::Release).await?;
    let before = (state_of(store, SUB).await?, all_history(store).await?);
    let moved = StoreErrorKind::Moved;
    let refused = StoreErrorKind::Refused;
    for action in [
        CaseAction::Release,
        CaseAction::Discard,
        CaseAction::Acknowledge,
        CaseAction::Assign { owner: Some("bo") },
    ] {
        let again = act(store, cases[0].case_id, action).await;
        assert_refused(again, moved, "acting on what is over")?;
    }
    let with = |action, expected, why| ActOnCase {
        case_id: cases[1].case_id,
        action,
        expected,
        by: Actor { who: "ada", why },
    };
    let other = with(CaseAction::Release, Some(CaseState::Acknowledged), None);
    let ended = store.act_on_case(other).await;
    assert_refused(ended, moved, "releasing what was not as it was seen")?;
    let long = "x".repeat(WHY_BYTES_MAX + 1);
    for why in [None, Some(" "), Some(long.as_str())] {
        let ended = store
            .act_on_case(with(CaseAction::Discard, None, why))
            .await;
        assert_refused(ended, refused, "giving up without a reason")?;
    }
    let ended = act(store, cases[2].case_id, CaseAction::Release).await;
    assert_refused(ended, refused, "releasing what was to be tried once")?;
    let ended = act(store, 4_711, CaseAction::Release).await;
    assert_refused(ended, refused, "releasing what is not there")?;
    let after = (state_of(store, SUB).await?, all_history(store).await?);
    assert_eq!(before, after);
    assert_eq!(one_case(store, cases[1].case_id).await?, cases[1]);
    assert!(load(store, &rows[1]).await?.is_empty());
    Ok(())
}

pub(super) async fn all_history<S: Store>(store: &S) -> Result<Vec<AuditEntry>, StoreError> {
    store.history(HistoryQuery::default()).await
}

/// From two handles: one of them is told that the other was faster.
pub async fn two_at_once_act_once<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let second = fixture.second().await;
    let rows = append_rows(store, &messages(1, 10)).await?;
    for case in open_cases(store, &rows).await? {
        let (first, other) = tokio::join!(
            act(store, case.case_id, CaseAction::Release),
            act(&second, case.case_id, CaseAction::Discard),
        );
        let ended = [first, other];
        let done = ended.iter().filter(|ended| ended.is_ok()).count();
        assert_eq!(done, 1, "{ended:?}");
        for ended in ended {
            if ended.is_err() {
                assert_refused(ended, StoreErrorKind::Moved, "acting second")?;
            }
        }
        assert_eq!(history_of(store, case.case_id).await?.len(), 1);
    }
    Ok(())
}

/// Before those that waited for it, due, with nothing used of its budget and its failure known.
pub async fn a_released_message_is_first_of_its_key_again<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &[1, 2, 3].map(|i| message(&format!("m{i}"), "k"))).await?;
    let waiting = [&rows[1], &rows[2]].map(|row| deferral(row, DeferralKind::Held, Some(0)));
    defer(store, &waiting).await?;
    let spent = Spent {
        failures: 5,
        deaths: 2,
        waits: 1,
        age_ms: 90_000_000,
    };
    let poison = NewCase {
        spent,
        ..case(&rows[0], "attempts_exhausted")
    };
    let opened = Settle {
        cases: &[poison],
        ..nothing()
    };
    settle(store, opened).await?;
    let case_id = store.cases(CaseQuery::default()).await?[0].case_id;
    assert_eq!(holding(store).await?, ["k"]);
    fixture.advance_ms(50_000_000);
    let after = act(store, case_id, CaseAction::Release).await?;
    assert_eq!((after.state, after.replays), (CaseState::Replayed, 1));
    assert!(holding(store).await?.is_empty());
    let found = load(&fixture.second().await, &rows[0]).await?;
    let loaded: Vec<Row> = found.iter().map(|deferred| deferred.row.clone()).collect();
    assert_eq!(ids(&loaded), ["m1", "m2", "m3"]);
    assert_eq!(loaded[0], rows[0]);
    let released = &found[0];
    assert_eq!(released.kind, DeferralKind::Retry);
    assert_eq!(released.due_in_ms, Some(0));
    assert!(released.spent.age_ms < 10_000, "{:?}", released.spent);
    let counts = Spent {
        age_ms: 0,
        ..released.spent
    };
    assert_eq!(counts, Spent::default());
    assert_eq!(released.failure, Some(failure(Class::Permanent)));
    // What it had used stays with the case, and with its history.
    assert_eq!(one_case(store, case_id).await?.spent, spent);
    let history = history_of(store, case_id).await?;
    assert_eq!(field(&history[0].before, "spent")["failures"], 5);
    Ok(())
}

/// It is put back under what it waits behind where its subscription keeps no order.
pub async fn a_released_message_waits_behind_what_it_waited_behind<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    let row = append_rows(store, &messages(1, 1)).await?.remove(0);
    let unordered = NewCase {
        key: "id:/memory t m1".to_owned(),
        holds_key: false,
        ..case(&row, "permanent")
    };
    let opened = Settle {
        cases: &[unordered],
        ..nothing()
    };
    settle(store, opened).await?;
    let case_id = store.cases(CaseQuery::default()).await?[0].case_id;
    act(store, case_id, CaseAction::Release).await?;
    let keys = super::steps::held(store, ALL_SLOTS).await?;
    let keys: Vec<_> = keys.iter().map(|k| (k.key.as_str(), k.slot)).collect();
    assert_eq!(keys, [("id:/memory t m1", row.slot)]);
    Ok(())
}

/// The same case, open again and counted; its key waits again. Written twice it is none.
pub async fn what_comes_back_is_a_regression<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    let first = open_cases(store, &rows).await?.remove(0);
    act(
        store,
        first.case_id,
        CaseAction::Assign { owner: Some("bo") },
    )
    .await?;
    act(store, first.case_id, CaseAction::Acknowledge).await?;
    // The record's answer was lost.
    let twice = open_cases(store, &rows).await?.remove(0);
    assert_eq!(twice.case_id, first.case_id);
    assert_eq!(twice.standing.state, CaseState::Acknowledged);
    assert_eq!(twice.standing.regressions, 0);
    act(store, first.case_id, CaseAction::Release).await?;
    fixture.advance_ms(3_600_000);
    let again = Settle {
        clear: &[rows[0].seq],
        cases: &[case(&rows[0], "worker_died")],
        ..nothing()
    };
    settle(store, again).await?;
    let found = one_case(store, first.case_id).await?;
    let expected = Standing {
        state: CaseState::Open,
        owner: Some("bo".to_owned()),
        due_at: None,
        replays: 1,
        regressions: 1,
        corrected_id: None,
    };
    assert_eq!(found.standing, expected);
    assert_eq!(found.reason, "worker_died");
    assert_eq!(found.first_opened_at, first.first_opened_at);
    assert!(found.opened_at.millis_since(first.opened_at) >= 3_600_000);
    assert_eq!(holding(store).await?, ["k1"]);
    act(store, first.case_id, CaseAction::Discard).await?;
    Ok(())
}

/// And the message says how it ended.
pub async fn giving_up_lets_the_key_go<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 3)).await?;
    let cases = open_cases(store, &rows).await?;
    act(store, cases[0].case_id, CaseAction::Acknowledge).await?;
    let mut held = holding(store).await?;
    held.sort();
    assert_eq!(
        held,
        ["k1", "k2", "k3"],
        "an acknowledged one holds as well"
    );
    act(store, cases[0].case_id, CaseAction::Discard).await?;
    act(store, cases[1].case_id, CaseAction::Waive).await?;
    assert_eq!(holding(store).await?, ["k3"]);
    let stands = async |operation| -> Result<MessageState, StoreError> {
        let query = OperationQuery {
            operation,
            rows_max: 1,
        };
        Ok(store.operation(query).await?[0].subscriptions[0].1.clone())
    };
    let resolved = |case: &Case, resolution| MessageState::Resolved {
        case_id: case.case_id,
        resolution,
    };
    assert_eq!(
        stands("m1").await?,
        resolved(&cases[0], CaseState::Discarded)
    );
    assert_eq!(stands("m2").await?, resolved(&cases[1], CaseState::Waived));
    assert!(matches!(
        stands("m3").await?,
        MessageState::Quarantined { .. }
    ));
    let query = onceward_core::store::BacklogQuery {
        subscription: SUB,
        count_max: 10,
        before: None,
    };
    let backlog = store.backlog(query).await?;
    assert_eq!((backlog.quarantined, backlog.waiting), (1, 0));
    Ok(())
}
