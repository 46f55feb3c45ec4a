//! What an operator may ask, and what is answered.

use onceward_core::hold::HoldLimits;
use onceward_core::store::{
    BacklogQuery, DeferralKind, End, HeldQuery, LongHeld, MessageState, OperationQuery, Settle,
    Start, Store, StoreError,
};
use onceward_core::{Class, Ending, Identity, LedgerEntry};

use super::seams::*;
use super::steps::{
    LANES, LEASE_MS, SUB, TYPE, append, append_rows, case, declare, defer, deferral, entry,
    failure, join, message, message_of, messages, nothing, open, register, save, settle, take,
    take_one,
};
use super::{CaseResult, Fixture};

/// Pending, deferred, finished, quarantined: each in its own, and only where the type is taken.
pub async fn an_operation_shows_where_each_subscription_stands<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    for name in ["deferring", "finishing", "pending", "quarantining"] {
        register(store, name).await?;
    }
    declare(
        store,
        "elsewhere",
        &["order.cancelled"],
        Some(Start::Earliest),
    )
    .await?;
    let mut envelope = message("m1", "order-1");
    envelope.operation_id = Some("checkout-1".to_owned());
    let row = append_rows(store, &[envelope]).await?.remove(0);

    let mut deferred = deferral(&row, DeferralKind::Retry, Some(60_000));
    deferred.failure = Some(failure(Class::Transient));
    deferred.spent.failures = 2;
    let finished = LedgerEntry {
        ending: Ending::Rejected,
        ..entry(&row, Identity::Operation)
    };
    for settled in [
        Settle {
            defer: &[deferred],
            ..Settle::nothing("deferring", Identity::Operation)
        },
        Settle {
            ledger: &[finished],
            ..Settle::nothing("finishing", Identity::Operation)
        },
        Settle {
            cases: &[case(&row, "permanent")],
            ..Settle::nothing("quarantining", Identity::Operation)
        },
    ] {
        settle(store, settled).await?;
    }

    let query = OperationQuery {
        operation: "checkout-1",
        rows_max: 10,
    };
    let found = fixture.second().await.operation(query).await?;
    assert_eq!(found.len(), 1);
    let status = &found[0];
    assert_eq!(
        (status.id.as_str(), status.subject.as_str()),
        ("m1", "order-1")
    );
    assert_eq!(
        (status.message_type.as_str(), status.operation.as_str()),
        (TYPE, "checkout-1")
    );
    assert_eq!(Some(&status.source), row.envelope.source.as_ref());
    assert_eq!(status.recorded_at, row.recorded_at);
    let state = |name: &str| {
        let mut found = status
            .subscriptions
            .iter()
            .filter(|(known, _)| known == name);
        found.next().map(|(_, state)| state)
    };
    assert_eq!(state("elsewhere"), None);
    assert_eq!(state("pending"), Some(&MessageState::Pending));
    let Some(MessageState::Deferred {
        kind,
        due_at,
        spent,
        failure,
    }) = state("deferring")
    else {
        panic!("not deferred: {:?}", state("deferring"));
    };
    assert_eq!(
        (kind.as_str(), spent.failures, due_at.is_some()),
        ("retry", 2, true)
    );
    assert_eq!(
        failure.as_ref().map(|f| f.code.as_str()),
        Some("address_unknown")
    );
    let Some(MessageState::Finished { ending, result, .. }) = state("finishing") else {
        panic!("not finished: {:?}", state("finishing"));
    };
    assert_eq!(
        (*ending, result.as_deref()),
        (Ending::Rejected, Some("{\"shipped\": true}"))
    );
    let Some(MessageState::Quarantined { reason, .. }) = state("quarantining") else {
        panic!("not quarantined: {:?}", state("quarantining"));
    };
    assert_eq!(reason, "permanent");
    Ok(())
}

/// Where it names no other; what nobody knows is empty.
pub async fn a_message_is_its_own_operation<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let row = append_rows(store, &messages(1, 1)).await?.remove(0);
    let ledger = [entry(&row, Identity::Message)];
    settle(
        store,
        Settle {
            ledger: &ledger,
            ..nothing()
        },
    )
    .await?;
    let query = |operation| OperationQuery {
        operation,
        rows_max: 10,
    };
    let found = store.operation(query("m1")).await?;
    assert_eq!(found.len(), 1);
    let (name, state) = &found[0].subscriptions[0];
    assert_eq!(name, SUB);
    assert!(
        matches!(
            state,
            MessageState::Finished {
                ending: Ending::Done,
                ..
            }
        ),
        "{state:?}"
    );
    assert!(store.operation(query("m2")).await?.is_empty());
    Ok(())
}

/// An at-least-once subscription writes nothing else.
pub async fn past_the_position_is_delivered<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 1)).await?;
    let lease = join(store, "a").await?;
    let taken = take(store, &lease, &(0..LANES).collect::<Vec<_>>()).await?;
    let state = async || -> Result<MessageState, StoreError> {
        let query = OperationQuery {
            operation: "m1",
            rows_max: 1,
        };
        Ok(store
            .operation(query)
            .await?
            .remove(0)
            .subscriptions
            .remove(0)
            .1)
    };
    assert_eq!(state().await?, MessageState::Pending);
    let epochs: Vec<(u16, u64)> = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    save(store, &lease, &store.head().await?, &epochs).await?;
    assert_eq!(state().await?, MessageState::Delivered);
    Ok(())
}

/// No more than asked for.
pub async fn an_operations_messages_come_oldest_first<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let mut envelopes = messages(1, 4);
    for envelope in &mut envelopes[..3] {
        envelope.operation_id = Some("op".to_owned());
    }
    append(store, &envelopes).await?;
    for (rows_max, expected) in [(10, &["m1", "m2", "m3"][..]), (2, &["m1", "m2"])] {
        let found = store
            .operation(OperationQuery {
                operation: "op",
                rows_max,
            })
            .await?;
        let ids: Vec<&str> = found.iter().map(|status| status.id.as_str()).collect();
        assert_eq!(ids, expected);
    }
    Ok(())
}

async fn backlog<S: Store>(
    store: &S,
    count_max: u64,
) -> Result<onceward_core::store::Backlog, StoreError> {
    store
        .backlog(BacklogQuery {
            subscription: SUB,
            count_max,
            before: None,
        })
        .await
}

/// Of its types, behind no position; and since when.
pub async fn the_backlog_counts_what_waits<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let empty = backlog(store, 100).await?;
    assert_eq!((empty.waiting, empty.oldest_waiting_at), (0, None));
    append(store, &[message_of("order.cancelled", "other", "k")]).await?;
    let rows = append_rows(store, &messages(1, 3)).await?;
    let found = backlog(store, 100).await?;
    assert_eq!((found.waiting, found.waiting_is_lower_bound), (3, false));
    assert_eq!(found.oldest_waiting_at, Some(rows[0].recorded_at));

    let lease = join(store, "a").await?;
    let taken = take(store, &lease, &(0..LANES).collect::<Vec<_>>()).await?;
    let epochs: Vec<(u16, u64)> = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    save(store, &lease, &store.head().await?, &epochs).await?;
    append(store, &messages(4, 4)).await?;
    assert_eq!(backlog(store, 100).await?.waiting, 1);
    let before = backlog(store, 100).await?.now;
    fixture.advance_ms(3_600_000);
    assert!(backlog(store, 100).await?.now.millis_since(before) >= 3_600_000);
    Ok(())
}

/// And says that it did.
pub async fn the_backlog_stops_counting_where_told<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 5)).await?;
    let found = backlog(store, 3).await?;
    assert!(found.waiting_is_lower_bound);
    assert!(
        (3..5).contains(&found.waiting),
        "{} of 5 counted up to 3",
        found.waiting
    );
    Ok(())
}

/// By kind, and not as waiting.
pub async fn the_backlog_counts_deferred_and_quarantined<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 7)).await?;
    let kinds = [
        DeferralKind::Retry,
        DeferralKind::Retry,
        DeferralKind::Held,
        DeferralKind::Running,
        DeferralKind::Operator,
    ];
    let written: Vec<_> = rows
        .iter()
        .zip(kinds)
        .map(|(row, kind)| deferral(row, kind, None))
        .collect();
    defer(store, &written).await?;
    settle(
        store,
        Settle {
            cases: &[case(&rows[5], "permanent")],
            ..nothing()
        },
    )
    .await?;
    let found = backlog(store, 100).await?;
    let deferred = found.deferred;
    let counts = [
        deferred.retry,
        deferred.held,
        deferred.running,
        deferred.operator,
    ];
    assert_eq!(counts, [2, 1, 1, 1]);
    assert_eq!((found.quarantined, found.waiting), (1, 1));
    let oldest_at = found.oldest_deferred_at;
    assert!(oldest_at.is_some());
    fixture.advance_ms(100_000);
    defer(store, &[deferral(&rows[6], DeferralKind::Retry, None)]).await?;
    let found = backlog(store, 100).await?;
    assert_eq!(found.oldest_deferred_at, oldest_at, "a later one hides it");
    Ok(())
}

/// Each lane, its owner's description, and whether it lives.
pub async fn the_backlog_names_owners<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let lease = join(store, "a").await?;
    take_one(store, &lease, 1).await?;
    for is_live in [true, false] {
        let mut lanes = backlog(store, 100).await?.lanes;
        lanes.sort_by_key(|lane| lane.lane);
        assert_eq!(lanes.len(), usize::from(LANES));
        assert_eq!(lanes[0].owner, None);
        assert_eq!(lanes[1].owner.as_deref(), Some("a on this host"));
        assert_eq!(lanes[1].is_live, is_live);
        fixture.advance_ms(LEASE_MS + 1_000);
    }
    Ok(())
}

/// Those behind which something waits, the longest first; beyond limits only where asked.
pub async fn keys_that_are_held_the_longest_are_named<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let of = |id: &str, key: &str| message(id, key);
    let envelopes = [
        of("m1", "a"),
        of("m2", "a"),
        of("m3", "a"),
        of("m4", "b"),
        of("m5", "b"),
        of("m6", "alone"),
    ];
    let rows = append_rows(store, &envelopes).await?;
    // Behind a case, which holds the key.
    let cases = [case(&rows[3], "broken")];
    let settled = Settle {
        cases: &cases,
        defer: &[deferral(&rows[4], DeferralKind::Held, Some(0))],
        ..nothing()
    };
    settle(store, settled).await?;
    fixture.advance_ms(600_000);
    let waiting = [
        deferral(&rows[0], DeferralKind::Retry, Some(3_600_000)),
        deferral(&rows[1], DeferralKind::Held, Some(0)),
        deferral(&rows[2], DeferralKind::Held, Some(0)),
        deferral(&rows[5], DeferralKind::Retry, Some(3_600_000)),
    ];
    defer(store, &waiting).await?;
    let held = async |beyond: Option<(u64, u64)>, keys_max| {
        let query = HeldQuery {
            subscription: SUB,
            beyond: beyond.map(|(depth, age_ms)| HoldLimits { depth, age_ms }),
            keys_max,
        };
        fixture.second().await.longest_held(query).await
    };
    let all = held(None, 10).await?;
    let seen: Vec<_> = all
        .iter()
        .map(|key| (key.key.as_str(), key.depth, key.behind.as_str()))
        .collect();
    assert_eq!(seen, [("b", 1, "held"), ("a", 2, "retry")]);
    assert!(all[0].case_id.is_some() && all[1].case_id.is_none());
    assert!(
        (600_000..660_000).contains(&all[0].age_ms),
        "{}",
        all[0].age_ms
    );
    assert!(all[1].age_ms < 60_000, "{}", all[1].age_ms);
    let keys = |held: Vec<LongHeld>| held.into_iter().map(|key| key.key).collect::<Vec<_>>();
    assert_eq!(keys(held(None, 1).await?), ["b"]);
    assert_eq!(keys(held(Some((1, u64::MAX)), 10).await?), ["a"]);
    assert_eq!(keys(held(Some((100, 300_000)), 10).await?), ["b"]);
    assert!(held(Some((2, 3_600_000)), 10).await?.is_empty());
    Ok(())
}

/// It moves with the clock that decides all else.
pub async fn the_time_is_the_databases<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let time = async || {
        let mut tx = open(store).await?;
        let time = store.time(&mut tx).await?;
        store.end(tx, End::RollBack).await?;
        Ok::<_, StoreError>(time)
    };
    let before = time().await?;
    fixture.advance_ms(3_600_000);
    let passed_ms = time().await?.millis_since(before);
    assert!((3_600_000..3_660_000).contains(&passed_ms), "{passed_ms}");
    Ok(())
}
