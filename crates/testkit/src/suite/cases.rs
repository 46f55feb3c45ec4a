//! Quarantine: a case keeps what a person needs.

use onceward_core::case::fingerprint;
use onceward_core::store::{CaseQuery, DeferralKind, HeldKeysQuery, NewCase, Settle, Standing};
use onceward_core::{Class, Payload, Spent};

use super::seams::*;
use super::steps::{
    ALL_SLOTS, SUB, TYPE, append_rows, case, defer, deferral, failure, message, messages, nothing,
    settle,
};
use super::{CaseResult, Fixture};

/// The message byte for byte, the failure, the budget.
pub async fn a_case_keeps_everything<F: Fixture>(fixture: &F) -> CaseResult {
    let mut odd = message("m1", "k");
    odd.payload = Payload::Binary(vec![0, 255, 10].into());
    odd.operation_id = Some("op".to_owned());
    odd.attributes
        .insert("correlationid".to_owned(), "c".to_owned());
    let row = append_rows(fixture.store(), &[odd]).await?.remove(0);
    let written = NewCase {
        reason: "attempts_exhausted".to_owned(),
        failure: failure(Class::Schema),
        spent: Spent {
            failures: 12,
            deaths: 1,
            waits: 4,
            age_ms: 86_400_000,
        },
        holds_key: false,
        key: row.envelope.key().to_owned(),
        row: row.clone(),
    };
    settle(
        fixture.store(),
        Settle {
            cases: std::slice::from_ref(&written),
            ..nothing()
        },
    )
    .await?;
    let found = fixture.second().await.cases(CaseQuery::default()).await?;
    assert_eq!(found.len(), 1);
    let found = &found[0];
    assert_eq!(found.subscription, SUB);
    assert_eq!(found.row, row);
    assert_eq!(found.reason, written.reason);
    assert_eq!(found.failure, written.failure);
    assert_eq!(found.spent, written.spent);
    assert_eq!(found.standing, Standing::default());
    let print = fingerprint(SUB, TYPE, &written.failure);
    assert_eq!(found.fingerprint, print);
    assert_eq!(found.first_opened_at, found.opened_at);
    assert!(!found.holds_key);
    assert_eq!(found.first_deferred_at, None);
    Ok(())
}

/// By number, after a number, of one subscription, one alone.
pub async fn cases_are_listed_in_pages<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 5)).await?;
    for row in &rows {
        settle(
            store,
            Settle {
                cases: &[case(row, "permanent")],
                ..nothing()
            },
        )
        .await?;
    }
    let other = Settle {
        cases: &[case(&rows[0], "permanent")],
        ..Settle::nothing("billing", onceward_core::Identity::Message)
    };
    settle(store, other).await?;

    let all = store.cases(CaseQuery::default()).await?;
    assert_eq!(all.len(), 6);
    assert!(all.is_sorted_by(|a, b| a.case_id < b.case_id));
    let mine = CaseQuery {
        subscription: Some(SUB),
        rows_max: 2,
        ..CaseQuery::default()
    };
    let first = store.cases(mine.clone()).await?;
    assert_eq!(first, all[..2]);
    let next = CaseQuery {
        after_case_id: first[1].case_id,
        rows_max: 10,
        ..mine
    };
    assert_eq!(store.cases(next).await?, all[2..5]);
    let one = CaseQuery {
        case_id: Some(all[5].case_id),
        ..CaseQuery::default()
    };
    let one = store.cases(one).await?;
    assert_eq!((one.len(), one[0].subscription.as_str()), (1, "billing"));
    Ok(())
}

/// One message has one case in a subscription.
pub async fn a_second_case_for_a_message_replaces_the_first<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let row = append_rows(store, &messages(1, 1)).await?.remove(0);
    for reason in ["permanent", "worker_died"] {
        settle(
            store,
            Settle {
                cases: &[case(&row, reason)],
                ..nothing()
            },
        )
        .await?;
    }
    let found = store.cases(CaseQuery::default()).await?;
    let reasons: Vec<&str> = found.iter().map(|case| case.reason.as_str()).collect();
    assert_eq!(reasons, ["worker_died"]);
    Ok(())
}

/// Although the deferral is cleared as the case is opened.
pub async fn the_first_deferral_is_remembered<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let row = append_rows(store, &messages(1, 1)).await?.remove(0);
    defer(store, &[deferral(&row, DeferralKind::Retry, Some(0))]).await?;
    fixture.advance_ms(3_600_000);
    let request = Settle {
        clear: &[row.seq],
        cases: &[case(&row, "attempts_exhausted")],
        ..nothing()
    };
    settle(store, request).await?;
    let found = store.cases(CaseQuery::default()).await?.remove(0);
    let first = found
        .first_deferred_at
        .ok_or("the first time is forgotten")?;
    let between_ms = found.opened_at.millis_since(first);
    assert!(
        (3_500_000..3_700_000).contains(&between_ms),
        "{between_ms} ms between"
    );
    Ok(())
}

/// And only in the slots asked for.
pub async fn only_holding_cases_hold_their_key<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 2)).await?;
    let free = NewCase {
        holds_key: false,
        ..case(&rows[1], "permanent")
    };
    settle(
        store,
        Settle {
            cases: &[case(&rows[0], "permanent"), free],
            ..nothing()
        },
    )
    .await?;
    let held = store
        .held_cases(HeldKeysQuery {
            subscription: SUB,
            slots: ALL_SLOTS,
        })
        .await?;
    let keys: Vec<_> = held
        .iter()
        .map(|case| (case.key.as_str(), case.slot))
        .collect();
    assert_eq!(keys, [("k1", rows[0].slot)]);
    let beside = (rows[0].slot + 1) % 1024;
    let slots = (beside, beside);
    let held = store
        .held_cases(HeldKeysQuery {
            subscription: SUB,
            slots,
        })
        .await?;
    assert!(held.is_empty());
    let other = HeldKeysQuery {
        subscription: "billing",
        slots: ALL_SLOTS,
    };
    assert!(store.held_cases(other).await?.is_empty());
    Ok(())
}
