//! Messages that wait together, of which only the latest is handled.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{append, effects, idle, options, sqlite, until};
use onceward::core::Ending;
use onceward::core::contract::FaultKind;
use onceward::core::store::{
    BacklogQuery, DeferredCounts, DropCountQuery, Dropped, DroppedQuery, MessageState,
    OperationQuery, Status,
};
use onceward::sqlite::Sqlite;
use onceward::{
    Boxed, Context, Deliver, Delivery, Engine, Failure, Merge, Message, Order, RetryPolicy,
    Running, Semantics, Start, StartError, Subscription,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "price.changed", version = 1, key = key)]
struct Price {
    key: String,
    value: String,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "price.removed", version = 1, key = key)]
struct Removed {
    key: String,
    value: String,
}

async fn put(cx: &mut Context<Sqlite>, key: &str, value: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
        .bind(key)
        .bind(value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

fn prices() -> Subscription<Sqlite> {
    Subscription::new("prices", Semantics::EffectOnce)
        .on(async |cx: &mut Context<Sqlite>, m: Price| put(cx, &m.key, &m.value).await)
        .on(async |cx: &mut Context<Sqlite>, m: Removed| put(cx, &m.key, &m.value).await)
        .merge(Merge::Latest)
        .start(Start::Earliest)
        .retry(RetryPolicy {
            base_ms: 1,
            cap_ms: 20,
            ..RetryPolicy::default()
        })
}

/// Gives a closure the type of a handler.
fn handler<F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<Sqlite>, Price) -> Boxed<'a, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
{
    handle
}

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    let builder = Engine::builder(store.clone()).options(options());
    builder.subscribe(subscription).start().await.unwrap()
}

async fn stop(engine: Running<Sqlite>) {
    engine.shutdown(Duration::from_secs(5)).await;
}

/// How a message ended, and what took its place.
async fn state(store: &Sqlite, id: &str) -> Option<(Ending, Option<String>)> {
    let query = OperationQuery {
        operation: id,
        rows_max: 1,
    };
    let found = store.operation(query).await.unwrap();
    match &found.first()?.subscriptions.first()?.1 {
        MessageState::Finished {
            ending,
            merged_into,
            ..
        } => Some((*ending, merged_into.clone())),
        _ => None,
    }
}

fn merged(into: &str) -> Option<(Ending, Option<String>)> {
    Some((Ending::Merged, Some(into.to_owned())))
}

/// Ids of what was given up, with what took their place.
async fn dropped(store: &Sqlite) -> Vec<(String, Option<String>)> {
    let query = DroppedQuery {
        subscription: "prices",
        endings: &Ending::DROPPED,
        after: None,
        rows_max: 100,
    };
    let dropped = store.dropped(query).await.unwrap().into_iter();
    let of = |dropped: Dropped| (dropped.place.identity, dropped.merged_into);
    let mut dropped: Vec<_> = dropped.map(of).collect();
    dropped.sort();
    dropped
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

#[tokio::test]
async fn only_the_latest_of_a_run_is_handled_and_the_others_name_it() {
    let (_folder, store) = sqlite().await;
    append(&store, Price::TYPE, &[("a", "1"), ("b", "1"), ("a", "2")]).await;
    append(&store, Price::TYPE, &[("a", "3")]).await;
    append(&store, Removed::TYPE, &[("a", "gone")]).await;
    append(&store, Price::TYPE, &[("a", "4"), ("a", "5")]).await;
    let engine = start(&store, prices()).await;
    until("all have ended", || async {
        state(&store, "price.changed-a-5").await.is_some()
    })
    .await;
    idle(&store, "prices").await;
    let of_a = effects(&store).await.into_iter().filter(|e| e.0 == "a");
    let expected = pairs(&[("a", "3"), ("a", "gone"), ("a", "5")]);
    assert_eq!(of_a.collect::<Vec<_>>(), expected);
    for (id, into) in [("1", "3"), ("2", "3"), ("4", "5")] {
        let id = format!("price.changed-a-{id}");
        let into = format!("price.changed-a-{into}");
        assert_eq!(state(&store, &id).await, merged(&into));
    }
    let done = Some((Ending::Done, None));
    assert_eq!(state(&store, "price.changed-a-3").await, done);
    assert_eq!(dropped(&store).await.len(), 3);
    let query = DropCountQuery {
        subscription: "prices",
        count_max: 2,
    };
    let counts = store.drop_counts(query).await.unwrap();
    let counts: Vec<_> = counts
        .iter()
        .map(|count| (count.ending, count.last_hour, count.last_day))
        .collect();
    let none = |ending| (ending, 0, 0);
    let expected = [
        none(Ending::Expired),
        (Ending::Merged, 2, 2),
        none(Ending::Shed),
    ];
    assert_eq!(counts, expected);
    stop(engine).await;
}

/// The survivor runs while its process dies: what was merged into it stays, it itself runs again.
#[tokio::test]
async fn a_crash_while_the_survivor_runs_leaves_it_to_the_next_process() {
    let (_folder, store) = sqlite().await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (started, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let blocked = {
        let (ran, started, gate) = (Arc::clone(&ran), Arc::clone(&started), Arc::clone(&gate));
        prices().on::<Price, _>(handler(move |cx, m| {
            let (ran, started) = (Arc::clone(&ran), Arc::clone(&started));
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                ran.lock().unwrap().push(m.value.clone());
                put(cx, &m.key, &m.value).await?;
                started.add_permits(1);
                drop(gate.acquire().await?);
                Ok(())
            })
        }))
    };
    let messages = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")];
    append(&store, Price::TYPE, &messages).await;
    let engine = start(&store, blocked.clone()).await;
    started.acquire().await.unwrap().forget();
    // Without a word, like a killed process.
    drop(engine);
    assert_eq!(effects(&store).await, []);
    gate.add_permits(100);
    let engine = start(&store, blocked).await;
    idle(&store, "prices").await;
    until("the survivor has its effect", || async {
        effects(&store).await == pairs(&[("a", "4")])
    })
    .await;
    assert_eq!(*ran.lock().unwrap(), ["4", "4"]);
    let into = "price.changed-a-4";
    for value in ["1", "2", "3"] {
        let id = format!("price.changed-a-{value}");
        assert_eq!(state(&store, &id).await, merged(into));
    }
    stop(engine).await;
}

/// Notes what it is given, and fails as often as it is told to.
struct Post {
    given: Arc<Mutex<Vec<String>>>,
    failures: Mutex<u32>,
}

impl Deliver for Post {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = delivery.row.envelope.id.clone();
        self.given.lock().unwrap().push(id);
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(Failure::transient("away", "not now"));
        }
        Ok(())
    }
}

/// What is held behind a message that is tried again comes together when its turn comes; what was
/// tried is not merged. The survivor fails too, and is tried again by itself.
#[tokio::test]
async fn what_was_held_is_merged_for_deliveries_and_what_was_tried_is_not() {
    let (_folder, store) = sqlite().await;
    let given = Arc::new(Mutex::new(Vec::new()));
    let post = Post {
        given: Arc::clone(&given),
        failures: Mutex::new(1),
    };
    let work = Subscription::new("prices", Semantics::AtLeastOnce)
        .deliver([Price::TYPE], post)
        .merge(Merge::Latest)
        .start(Start::Earliest)
        .retry(RetryPolicy {
            base_ms: 400,
            cap_ms: 400,
            factor: 1.0,
            ..RetryPolicy::default()
        });
    append(&store, Price::TYPE, &[("a", "1")]).await;
    let engine = start(&store, work).await;
    until("the first one has failed", || async {
        given.lock().unwrap().len() == 1
    })
    .await;
    let later = [("a", "2"), ("a", "3"), ("a", "4")];
    append(&store, Price::TYPE, &later).await;
    until("the last one is given", || async {
        let given = given.lock().unwrap().clone();
        given.last().is_some_and(|id| id == "price.changed-a-4")
    })
    .await;
    idle(&store, "prices").await;
    let query = BacklogQuery::new("prices", 10);
    let deferred = store.backlog(query).await.unwrap().deferred;
    assert_eq!(
        deferred,
        DeferredCounts::default(),
        "nothing is left behind"
    );
    let given = given.lock().unwrap().clone();
    let first = "price.changed-a-1";
    assert_eq!(given, [first, first, "price.changed-a-4"]);
    assert_eq!(
        dropped(&store).await,
        ["2", "3"].map(|value| (
            format!("price.changed-a-{value}"),
            Some("price.changed-a-4".to_owned())
        ))
    );
    stop(engine).await;
}

/// The same message appended again is the first one, which was merged: it is no survivor.
#[tokio::test]
async fn a_copy_of_what_came_before_takes_no_place() {
    let (_folder, store) = sqlite().await;
    append(&store, Price::TYPE, &[("a", "1"), ("a", "2"), ("a", "1")]).await;
    let engine = start(&store, prices()).await;
    until("the latest has its effect", || async {
        !effects(&store).await.is_empty()
    })
    .await;
    idle(&store, "prices").await;
    assert_eq!(effects(&store).await, pairs(&[("a", "2")]));
    let into = Some("price.changed-a-2".to_owned());
    assert_eq!(
        dropped(&store).await,
        [("price.changed-a-1".to_owned(), into)]
    );
    stop(engine).await;
}

#[tokio::test]
async fn it_does_not_start_where_merging_contradicts_the_rest() {
    let (_folder, store) = sqlite().await;
    for subscription in [prices().order(Order::None), prices().owns::<Price>()] {
        let builder = Engine::builder(store.clone()).subscribe(subscription);
        let Err(StartError::Contract(faults)) = builder.start().await else {
            panic!("it started");
        };
        assert_eq!(faults[0].kind, FaultKind::Contradiction);
        assert_eq!(faults[0].path, "subscription.prices.merge");
    }
}
