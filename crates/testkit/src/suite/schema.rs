//! Migration, subscriptions and where they start.

use onceward_core::Identity;
use onceward_core::store::{
    Declared, DeferralKind, Registered, SchemaState, Settle, Start, Store, StoreError,
    StoreErrorKind,
};

use super::seams::*;
use super::steps::{
    LANES, SUB, TYPE, append, append_rows, assert_refused, case, declare, deferral, entry, ids,
    join, known, message_of, messages, nothing, read, read_all, register, save, settle, take_of,
    take_one,
};
use super::{CaseResult, Fixture};

/// Nor does looking.
pub async fn migrating_again_changes_nothing<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 1)).await?;
    let before = store.schema_state().await?;
    assert!(matches!(before, SchemaState::Current { .. }), "{before:?}");
    assert_eq!(store.migrate().await?, before);
    assert_eq!(fixture.second().await.schema_state().await?, before);
    let (rows, _) = read_all(store, &super::steps::origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m1"]);
    Ok(())
}

/// All find the same end.
pub async fn several_may_migrate_at_once<F: Fixture>(fixture: &F) -> CaseResult {
    let (a, b, c) = (
        fixture.second().await,
        fixture.second().await,
        fixture.second().await,
    );
    let states = tokio::join!(a.migrate(), b.migrate(), c.migrate());
    let states = [states.0?, states.1?, states.2?];
    assert!(matches!(states[0], SchemaState::Current { .. }));
    assert!(states.iter().all(|state| *state == states[0]));
    Ok(())
}

/// After that it is known, and keeps its number of lanes.
pub async fn a_subscription_is_new_once<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let again = Declared {
        subscription: SUB,
        lanes: LANES * 2,
        types: &[TYPE.to_owned(), "order.cancelled".to_owned()],
        start: None,
        renamed_from: None,
        terms: onceward_core::store::Terms::default(),
    };
    let found = fixture.second().await.register(again).await?;
    assert_eq!(found, Registered::Known { lanes: LANES });
    assert_eq!(store.survey().await?.lanes.len(), usize::from(LANES));
    Ok(())
}

/// And not before; refusing leaves nothing behind.
pub async fn a_start_is_required_once_its_types_are_there<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &[message_of("order.cancelled", "m1", "k")]).await?;
    assert_eq!(declare(store, SUB, &[TYPE], None).await?, Registered::New);
    append(store, &messages(2, 2)).await?;
    let found = declare(store, "late", &[TYPE], None).await?;
    assert_eq!(found, Registered::StartMissing);
    assert_eq!(store.subscriptions().await?, [SUB]);
    let found = declare(store, "late", &[TYPE], Some(Start::Now)).await?;
    assert_eq!(found, Registered::New);
    Ok(())
}

/// What comes after it is read.
pub async fn starting_now_leaves_out_what_is_there<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 2)).await?;
    declare(store, SUB, &[TYPE], Some(Start::Now)).await?;
    declare(store, "all", &[TYPE], Some(Start::Earliest)).await?;
    append(store, &messages(3, 3)).await?;
    let lease = join(store, "a").await?;
    let now = take_one(store, &lease, 0).await?;
    assert_eq!(
        ids(&read_all(store, &now.stand.position, 10).await?.0),
        ["m3"]
    );
    let all = take_of(store, &lease, "all", &[0]).await?.remove(0);
    assert_eq!(
        ids(&read_all(store, &all.stand.position, 10).await?.0),
        ["m1", "m2", "m3"]
    );
    Ok(())
}

/// To whoever takes a lane: rows recorded before are not wanted.
pub async fn starting_at_a_time_says_so<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    let at = rows[0].recorded_at.plus_millis(-1);
    declare(store, SUB, &[TYPE], Some(Start::At(at))).await?;
    let lease = join(store, "a").await?;
    let taken = take_one(store, &lease, 3).await?;
    assert_eq!(taken.not_before, Some(at));
    let (rows, _) = read_all(store, &taken.stand.position, 10).await?;
    assert_eq!(
        ids(&rows),
        ["m1"],
        "what was recorded at or after it is not skipped"
    );
    Ok(())
}

/// Position, ledger, deferrals and cases, under the new name only.
pub async fn a_renamed_subscription_keeps_what_it_had<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 3)).await?;
    let lease = join(store, "a").await?;
    let taken = take_one(store, &lease, 0).await?;
    let reached = store.head().await?;
    save(store, &lease, &reached, &[(0, taken.epoch)]).await?;
    store.leave(&lease).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let ledger = [entry(&rows[0], identity)];
        settle(
            store,
            Settle {
                ledger: &ledger,
                ..Settle::nothing(SUB, identity)
            },
        )
        .await?;
    }
    let deferrals = [deferral(&rows[1], DeferralKind::Retry, Some(0))];
    let cases = [case(&rows[2], "permanent")];
    settle(
        store,
        Settle {
            defer: &deferrals,
            cases: &cases,
            ..nothing()
        },
    )
    .await?;

    let renamed = Declared {
        subscription: "shipping",
        lanes: LANES,
        types: &[TYPE.to_owned()],
        start: None,
        renamed_from: Some(SUB),
        terms: onceward_core::store::Terms::default(),
    };
    let found = store.register(renamed).await?;
    assert_eq!(found, Registered::Known { lanes: LANES });
    assert_eq!(store.subscriptions().await?, ["shipping"]);
    for identity in [Identity::Message, Identity::Operation] {
        let keys = [entry(&rows[0], identity).key];
        assert!(known(store, "shipping", identity, &keys).await?[0].is_some());
    }
    assert_eq!(counts(store, "shipping").await?, (1, 1));
    let lease = join(store, "b").await?;
    let taken = take_of(store, &lease, "shipping", &[0]).await?.remove(0);
    assert_eq!(taken.stand.position, reached);
    Ok(())
}

async fn counts<S: Store>(store: &S, subscription: &str) -> Result<(u64, u64), StoreError> {
    let query = onceward_core::store::BacklogQuery {
        subscription,
        count_max: 100,
        before: None,
    };
    let backlog = store.backlog(query).await?;
    Ok((backlog.deferred.retry, backlog.quarantined))
}

/// By name.
pub async fn subscriptions_are_listed_in_order<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    assert!(store.subscriptions().await?.is_empty());
    for name in ["c", "a", "b"] {
        register(store, name).await?;
    }
    assert_eq!(store.subscriptions().await?, ["a", "b", "c"]);
    Ok(())
}

/// And lanes go on in the new one.
pub async fn a_new_era_refuses_old_positions<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 1)).await?;
    let old = store.head().await?;
    let era = store.start_era().await?;
    assert!(era > old.era);
    assert_eq!(store.head().await?.era, era);
    let ended = read(store, &old, 10).await;
    assert_refused(ended, StoreErrorKind::WrongEra, "reading from the old era")?;
    let lease = join(store, "a").await?;
    let taken = take_one(store, &lease, 0).await?;
    assert_eq!(taken.stand.position.era, era);
    append(store, &messages(2, 2)).await?;
    let (rows, _) = read_all(store, &taken.stand.position, 10).await?;
    assert!(
        ids(&rows).contains(&"m2"),
        "new rows are read in the new era"
    );
    Ok(())
}

/// From every handle.
pub async fn the_store_answers<F: Fixture>(fixture: &F) -> CaseResult {
    fixture.store().ping().await?;
    fixture.second().await.ping().await?;
    Ok(())
}
