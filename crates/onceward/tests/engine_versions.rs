//! Versions of aggregates: never back, and where asked for never over a gap.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{effects, options, sqlite, until};
use onceward::core::case::{Actor, CaseAction};
use onceward::core::contract::FaultKind;
use onceward::core::store::{
    ActOnCase, BacklogQuery, Case, CaseQuery, Cases, MessageState, Operate, OperationQuery, Status,
};
use onceward::core::version::{Gaps, VersionPolicy};
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Engine, Envelope, Failure, Message, OnPoison, Outbox, Payload, Running, Semantics,
    Start, StartError, Subscription,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.changed", version = 1, key = key)]
struct Changed {
    key: String,
    value: String,
}

/// The same aggregate's other type.
#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.renamed", version = 1, key = key)]
struct Renamed {
    key: String,
    value: String,
}

const WAIT: VersionPolicy = VersionPolicy {
    gaps: Gaps::Wait,
    gap_limit_ms: 600_000,
};

async fn apply(cx: &mut Context<Sqlite>, key: &str, value: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
        .bind(key)
        .bind(value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

fn subscription(versions: VersionPolicy) -> Subscription<Sqlite> {
    Subscription::new("views", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Changed| apply(cx, &m.key, &m.value).await)
        .on(async |cx: &mut Context<Sqlite>, m: Renamed| apply(cx, &m.key, &m.value).await)
        .versions(versions)
        .start(Start::Earliest)
}

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    Engine::builder(store.clone())
        .options(options())
        .subscribe(subscription)
        .start()
        .await
        .unwrap()
}

fn envelope(id: &str, key: &str, version: i64) -> Envelope {
    let payload = format!(r#"{{"key":"{key}","value":"{version}"}}"#);
    let message_type = match version % 2 {
        0 => Renamed::TYPE,
        _ => Changed::TYPE,
    };
    Envelope {
        aggregate_version: Some(version),
        ..Envelope::new(
            id,
            "thing",
            key,
            message_type,
            Payload::Json(payload.into()),
        )
    }
}

/// Appends versions of one aggregate with one transaction.
async fn append(store: &Sqlite, key: &str, versions: &[(&str, i64)]) {
    let outbox = Outbox::new(store.clone());
    let envelopes: Vec<Envelope> = versions
        .iter()
        .map(|(id, version)| envelope(id, key, *version))
        .collect();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox.append_envelopes(&mut tx, &envelopes).await.unwrap();
    tx.commit().await.unwrap();
    outbox.ring();
}

/// The versions that were applied, by key.
async fn applied(store: &Sqlite) -> BTreeMap<String, Vec<i64>> {
    let mut by_key: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (key, value) in effects(store).await {
        by_key.entry(key).or_default().push(value.parse().unwrap());
    }
    by_key
}

async fn until_applied(store: &Sqlite, key: &str, versions: &[i64]) {
    until("these versions are applied", || async {
        applied(store).await.get(key).map(Vec::as_slice) == Some(versions)
    })
    .await;
}

async fn state(store: &Sqlite, id: &str) -> Option<MessageState> {
    let query = OperationQuery {
        operation: id,
        rows_max: 1,
    };
    let found = store.operation(query).await.unwrap();
    Some(found.first()?.subscriptions.first()?.1.clone())
}

/// The ending that the ledger has of a message, and the code kept with it.
async fn ending(store: &Sqlite, id: &str) -> (String, String) {
    let found: (String, Option<String>) =
        sqlx::query_as("SELECT ending, result FROM onceward_ledger WHERE identity = ?")
            .bind(id)
            .fetch_one(store.pool())
            .await
            .unwrap();
    let result: serde_json::Value =
        serde_json::from_str(found.1.as_deref().unwrap_or("null")).unwrap();
    let code = result["code"].as_str().unwrap_or_default().to_owned();
    (found.0, code)
}

async fn cases(store: &Sqlite) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

#[tokio::test]
async fn a_version_that_is_behind_is_refused_and_recorded_coalesced_or_not() {
    for batch_max in [100, 1] {
        let (_folder, store) = sqlite().await;
        append(&store, "a", &[("a1", 1), ("a3", 3), ("late", 2), ("a4", 4)]).await;
        append(&store, "a", &[("same", 4), ("a5", 5)]).await;
        let subscription = subscription(VersionPolicy::default()).batch_max(batch_max);
        let engine = start(&store, subscription).await;
        until_applied(&store, "a", &[1, 3, 4, 5]).await;
        for id in ["late", "same"] {
            let refused = ("superseded".to_owned(), "version_backward".to_owned());
            assert_eq!(ending(&store, id).await, refused);
        }
        assert!(cases(&store).await.is_empty());
        engine.shutdown(std::time::Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_message_delivered_again_is_done_and_not_behind() {
    let (_folder, store) = sqlite().await;
    let engine = start(&store, subscription(VersionPolicy::default())).await;
    append(&store, "a", &[("a1", 1), ("a2", 2)]).await;
    until_applied(&store, "a", &[1, 2]).await;
    append(&store, "a", &[("a1", 1), ("a2", 2), ("a3", 3)]).await;
    until_applied(&store, "a", &[1, 2, 3]).await;
    assert_eq!(ending(&store, "a1").await.0, "done");
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_gap_waits_and_what_comes_is_applied_in_the_order_of_versions() {
    for batch_max in [100, 1] {
        let (_folder, store) = sqlite().await;
        let engine = start(&store, subscription(WAIT).batch_max(batch_max)).await;
        append(&store, "a", &[("a1", 1), ("a4", 4), ("a5", 5), ("a3", 3)]).await;
        append(&store, "b", &[("b7", 7), ("b8", 8)]).await;
        until_applied(&store, "b", &[7, 8]).await;
        let query = BacklogQuery {
            subscription: "views",
            count_max: 10,
            before: None,
        };
        until("the gap is to be seen", || async {
            let deferred = store.backlog(query.clone()).await.unwrap().deferred;
            deferred.gap > 0 && deferred.gap + deferred.held == 3
        })
        .await;
        assert_eq!(applied(&store).await["a"], [1]);
        append(&store, "a", &[("a2", 2)]).await;
        until_applied(&store, "a", &[1, 2, 3, 4, 5]).await;
        engine.shutdown(std::time::Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_gap_outlives_its_process() {
    let (_folder, store) = sqlite().await;
    let engine = start(&store, subscription(WAIT)).await;
    append(&store, "a", &[("a1", 1), ("a3", 3)]).await;
    until("it waits", || async {
        matches!(state(&store, "a3").await, Some(MessageState::Deferred { kind, .. }) if kind == "gap")
    })
    .await;
    engine.shutdown(std::time::Duration::from_secs(5)).await;
    append(&store, "a", &[("a2", 2)]).await;
    let engine = start(&store, subscription(WAIT)).await;
    until_applied(&store, "a", &[1, 2, 3]).await;
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_gap_that_nothing_fills_becomes_a_case_and_a_person_may_let_it_through() {
    let (_folder, store) = sqlite().await;
    let short = VersionPolicy {
        gap_limit_ms: 100,
        ..WAIT
    };
    let subscription = subscription(short).on_poison(OnPoison::HoldKey);
    let engine = start(&store, subscription).await;
    append(&store, "a", &[("a1", 1), ("a3", 3), ("a4", 4)]).await;
    until("there is a case", || async {
        !cases(&store).await.is_empty()
    })
    .await;
    let case = cases(&store).await.remove(0);
    assert_eq!(
        (case.reason.as_str(), case.row.envelope.id.as_str()),
        ("version_gap", "a3")
    );
    assert_eq!(case.failure.code, "version_gap");
    assert_eq!(applied(&store).await["a"], [1], "the key is held");
    let release = ActOnCase {
        case_id: case.case_id,
        expected: None,
        action: CaseAction::Release,
        by: Actor {
            who: "kim",
            why: Some("version 2 was never given out"),
        },
    };
    store.act_on_case(release).await.unwrap();
    until_applied(&store, "a", &[1, 3, 4]).await;
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_message_released_after_later_versions_is_refused() {
    let (_folder, store) = sqlite().await;
    let subscription = Subscription::new("views", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Changed| apply(cx, &m.key, &m.value).await)
        .on(async |_: &mut Context<Sqlite>, _: Renamed| {
            Err::<(), _>(Failure::permanent("broken", "not today"))
        })
        .versions(VersionPolicy::default())
        .start(Start::Earliest);
    let engine = start(&store, subscription).await;
    append(&store, "a", &[("a1", 1), ("a2", 2), ("a3", 3)]).await;
    until_applied(&store, "a", &[1, 3]).await;
    until("there is a case", || async {
        !cases(&store).await.is_empty()
    })
    .await;
    let case = cases(&store).await.remove(0);
    let release = ActOnCase {
        case_id: case.case_id,
        expected: None,
        action: CaseAction::Release,
        by: Actor {
            who: "kim",
            why: Some("mended"),
        },
    };
    store.act_on_case(release).await.unwrap();
    until("it is refused", || async {
        matches!(
            state(&store, "a2").await,
            Some(MessageState::Finished { .. })
        )
    })
    .await;
    assert_eq!(ending(&store, "a2").await.1, "version_backward");
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn gaps_are_waited_for_only_where_every_type_comes() {
    let (_folder, store) = sqlite().await;
    let half = Subscription::new("views", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Changed| apply(cx, &m.key, &m.value).await)
        .versions(WAIT);
    let other = Subscription::new("names", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Renamed| apply(cx, &m.key, &m.value).await);
    let refused = Engine::builder(store.clone())
        .subscribe(half)
        .subscribe(other)
        .start()
        .await;
    let Err(StartError::Contract(faults)) = refused else {
        panic!("must be refused");
    };
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].kind, FaultKind::Contradiction);
    assert_eq!(faults[0].path, "subscription.views.gaps");
    assert!(faults[0].message.contains("thing.renamed"), "{}", faults[0]);
}
