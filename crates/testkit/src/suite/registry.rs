//! Subscriptions get another name, or end.

use onceward_core::Identity;
use onceward_core::store::{
    CaseAction, DeferralKind, Registered, Remove, Removed, Rename, Settle, Start, Store,
    StoreError, StoreErrorKind,
};

use super::operate::{BY, act, all_history, open_cases, state_of};
use super::seams::*;
use super::steps::{
    LANES, SUB, TYPE, append_rows, assert_refused, declare, defer, deferral, entry, join, known,
    load, messages, nothing, register, settle,
};
use super::{CaseResult, Fixture};

async fn remove<S: Store>(
    store: &S,
    subscription: &str,
    discards_deferred: bool,
) -> Result<Removed, StoreError> {
    let request = Remove {
        subscription,
        discards_deferred,
        by: BY,
    };
    store.remove(request).await
}

async fn rename<S: Store>(store: &S, from: &str, to: &str) -> Result<(), StoreError> {
    store.rename(Rename { from, to, by: BY }).await
}

/// What is done stays done, what is deferred and quarantined goes along; and it is on record.
pub async fn a_new_name_takes_everything_along<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for name in [SUB, "billing"] {
        register(store, name).await?;
    }
    let rows = append_rows(store, &messages(1, 3)).await?;
    let done = Settle {
        ledger: &[entry(&rows[0], Identity::Message)],
        ..nothing()
    };
    settle(store, done).await?;
    defer(store, &[deferral(&rows[1], DeferralKind::Retry, Some(0))]).await?;
    let case_id = open_cases(store, &rows[2..]).await?[0].case_id;
    let lease = join(store, "a").await?;
    let ended = rename(store, SUB, "shipping").await;
    assert_refused(ended, StoreErrorKind::Conflict, "renaming under a process")?;
    store.leave(&lease).await?;
    let refused = StoreErrorKind::Refused;
    let ended = rename(store, SUB, "billing").await;
    assert_refused(ended, refused, "a name that is taken")?;
    let ended = rename(store, "nobody", "somebody").await;
    assert_refused(ended, refused, "renaming what is not there")?;
    rename(store, SUB, "shipping").await?;
    let second = fixture.second().await;
    assert_eq!(second.subscriptions().await?, ["billing", "shipping"]);
    let keys = [entry(&rows[0], Identity::Message).key];
    assert!(known(&second, "shipping", Identity::Message, &keys).await?[0].is_some());
    let query = onceward_core::store::BacklogQuery {
        subscription: "shipping",
        count_max: 10,
        before: None,
    };
    let backlog = second.backlog(query).await?;
    assert_eq!((backlog.deferred.retry, backlog.quarantined), (1, 1));
    act(&second, case_id, CaseAction::Release).await?;
    let history = all_history(&second).await?;
    let renamed = history.iter().find(|entry| entry.action == "rename");
    let renamed = renamed.ok_or("it is not on record")?;
    assert_eq!(
        (renamed.subscription.as_str(), renamed.who.as_str()),
        ("shipping", BY.who)
    );
    assert!(renamed.before.contains(SUB), "{renamed:?}");
    Ok(())
}

/// One of its name is new, and finds what was done.
pub async fn a_subscription_ends_and_repeats_nothing<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 1)).await?;
    let done = Settle {
        ledger: &[entry(&rows[0], Identity::Message)],
        ..nothing()
    };
    settle(store, done).await?;
    let lease = join(store, "a").await?;
    let ended = remove(store, SUB, false).await;
    assert_refused(ended, StoreErrorKind::Conflict, "removing under a process")?;
    store.leave(&lease).await?;
    let removed = remove(store, SUB, false).await?;
    let expected = Removed {
        lanes: u64::from(LANES),
        deferred: 0,
    };
    assert_eq!(removed, expected);
    let second = fixture.second().await;
    assert!(second.subscriptions().await?.is_empty());
    let survey = second.survey().await?;
    assert!(
        survey.lanes.is_empty() && survey.subscriptions.is_empty(),
        "{survey:?}"
    );
    let ended = remove(&second, SUB, false).await;
    assert_refused(ended, StoreErrorKind::Refused, "removing it again")?;
    let found = declare(&second, SUB, &[TYPE], Some(Start::Earliest)).await?;
    assert_eq!(found, Registered::New);
    let keys = [entry(&rows[0], Identity::Message).key];
    assert!(known(&second, SUB, Identity::Message, &keys).await?[0].is_some());
    let state = state_of(&second, SUB).await?;
    assert_eq!((state.is_paused, state.concurrency_max), (false, None));
    Ok(())
}

/// A case that is not over, and what is deferred unless it is to be given up.
pub async fn what_is_left_keeps_a_subscription<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 2)).await?;
    let case_id = open_cases(store, &rows[..1]).await?[0].case_id;
    defer(store, &[deferral(&rows[1], DeferralKind::Retry, Some(0))]).await?;
    let refused = StoreErrorKind::Refused;
    let ended = remove(store, SUB, true).await;
    assert_refused(ended, refused, "removing it with an open case")?;
    act(store, case_id, CaseAction::Discard).await?;
    let silent = Remove {
        subscription: SUB,
        discards_deferred: true,
        by: onceward_core::store::Actor {
            who: "ada",
            why: None,
        },
    };
    let ended = store.remove(silent).await;
    assert_refused(ended, refused, "removing it without a reason")?;
    let ended = remove(store, SUB, false).await;
    assert_refused(ended, refused, "removing it with a deferred message")?;
    assert_eq!(
        load(store, &rows[1]).await?.len(),
        1,
        "nothing was given up"
    );
    let removed = remove(store, SUB, true).await?;
    assert_eq!(removed.deferred, 1);
    assert!(load(store, &rows[1]).await?.is_empty());
    let history = all_history(store).await?;
    let last = history.last().ok_or("nothing is on record")?;
    assert_eq!(
        (last.action.as_str(), last.why.as_deref()),
        ("remove", BY.why)
    );
    assert!(last.before.contains("1"), "how much went: {}", last.before);
    Ok(())
}
