//! A corrected message is the same effect as the one whose place it takes, and what failures say
//! holds nothing of payloads.

#![allow(clippy::unwrap_used)]

mod common;

use common::{append, effects, options, sqlite, until};
use onceward::core::case::CaseAction;
use onceward::core::sensitivity::Sensitivity;
use onceward::core::store::{ActOnCase, Actor, Case, CaseQuery, Cases, Operate};
use onceward::sqlite::Sqlite;
use onceward::{
    Boxed, Context, Engine, Failure, Message, Payload, Running, Semantics, Start, Subscription,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("looked up"),
};

/// Refuses what is bad and quotes it; writes the rest down.
fn handle<'x>(cx: &'x mut Context<Sqlite>, thing: Thing) -> Boxed<'x, Result<(), Failure>> {
    Box::pin(async move {
        if thing.value.starts_with("bad") {
            let text = format!("{} of {} is no value", thing.value, thing.key);
            return Err(Failure::permanent("no_value", text));
        }
        sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
            .bind(&thing.key)
            .bind(&thing.value)
            .execute(cx.tx())
            .await?;
        Ok(())
    })
}

async fn start(
    store: &Sqlite,
    change: fn(Subscription<Sqlite>) -> Subscription<Sqlite>,
) -> Running<Sqlite> {
    let work = Subscription::new("things", Semantics::EffectOnce)
        .on::<Thing, _>(handle)
        .start(Start::Earliest);
    Engine::builder(store.clone())
        .options(options())
        .subscribe(change(work))
        .start()
        .await
        .unwrap()
}

async fn cases(store: &Sqlite) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

async fn act(store: &Sqlite, case_id: i64, action: CaseAction<'_>) {
    let request = ActOnCase {
        case_id,
        action,
        expected: None,
        by: BY,
    };
    store.act_on_case(request).await.unwrap();
}

/// Corrects the only case and releases it.
async fn correct(store: &Sqlite, value: &str) {
    let case_id = cases(store).await[0].case_id;
    let payload = Payload::Json(format!(r#"{{"key":"a","value":"{value}"}}"#).into());
    let action = CaseAction::Correct {
        id: "c1",
        payload: &payload,
    };
    act(store, case_id, action).await;
    act(store, case_id, CaseAction::Release).await;
}

async fn none_deferred(store: &Sqlite) -> bool {
    let sql = "SELECT count(*) FROM onceward_deferral";
    let count: i64 = sqlx::query_scalar(sql)
        .fetch_one(store.pool())
        .await
        .unwrap();
    count == 0
}

#[tokio::test]
async fn a_correction_runs_and_its_original_is_a_duplicate_from_then_on() {
    let (_folder, store) = sqlite().await;
    let engine = start(&store, |work| work).await;
    append(&store, Thing::TYPE, &[("a", "bad-one")]).await;
    until("there is a case", || async {
        cases(&store).await.len() == 1
    })
    .await;
    correct(&store, "good").await;
    until("it ran", || async { effects(&store).await.len() == 1 }).await;
    // The same message once more, as a producer sends it that lost its answer.
    append(&store, Thing::TYPE, &[("a", "bad-one"), ("b", "last")]).await;
    until("all ran", || async { effects(&store).await.len() == 2 }).await;
    until("nothing waits", || none_deferred(&store)).await;
    let pairs = [("a", "good"), ("b", "last")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(effects(&store).await, pairs);
    assert_eq!(cases(&store).await.len(), 1, "no payload mismatch");
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_correction_of_what_was_done_after_all_is_a_duplicate() {
    let (_folder, store) = sqlite().await;
    let engine = start(&store, |work| work).await;
    append(&store, Thing::TYPE, &[("a", "bad-one")]).await;
    until("there is a case", || async {
        cases(&store).await.len() == 1
    })
    .await;
    engine.shutdown(std::time::Duration::from_secs(5)).await;
    // Its effect came by another way, with the digest of what was sent.
    let original = cases(&store).await.remove(0).row;
    let digest = onceward::digest_of(original.envelope.payload.as_bytes());
    sqlx::query(
        "INSERT INTO onceward_ledger
         (subscription, source, type, identity, recordedtime, digest)
         VALUES ('things', ?, ?, ?, ?, ?)",
    )
    .bind(&original.envelope.source)
    .bind(&original.envelope.message_type)
    .bind(&original.envelope.id)
    .bind(original.recorded_at.as_micros())
    .bind(&digest[..])
    .execute(store.pool())
    .await
    .unwrap();
    correct(&store, "good").await;
    let engine = start(&store, |work| work).await;
    until("nothing waits", || none_deferred(&store)).await;
    assert!(effects(&store).await.is_empty());
    let states: Vec<_> = cases(&store)
        .await
        .iter()
        .map(|c| c.standing.state)
        .collect();
    assert_eq!(states, [onceward::core::case::CaseState::Replayed]);
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn texts_of_failures_hold_nothing_of_the_payload_but_what_may_be_seen() {
    let shows = |work: Subscription<Sqlite>| {
        work.sensitivity(Thing::TYPE, Sensitivity::of(Vec::new(), Some(Vec::new())))
    };
    let hides = |work| work;
    let changes: [(fn(_) -> _, &str); 2] = [
        (hides, "<hidden> of keyword is no value"),
        (shows, "bad-one of keyword is no value"),
    ];
    for (change, expected) in changes {
        let (_folder, store) = sqlite().await;
        let engine = start(&store, change).await;
        append(&store, Thing::TYPE, &[("keyword", "bad-one")]).await;
        until("there is a case", || async {
            cases(&store).await.len() == 1
        })
        .await;
        assert_eq!(cases(&store).await[0].failure.message, expected);
        engine.shutdown(std::time::Duration::from_secs(5)).await;
    }
}
