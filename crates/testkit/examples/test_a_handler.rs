//! Tests of a handler: that its effect happens once whatever fails, and what becomes of messages
//! that it cannot handle.

#![allow(missing_docs, clippy::print_stdout)]

use std::time::Duration;

use onceward::sqlite::Sqlite;
use onceward::{Context, Failure, Message, RetryPolicy, Semantics, Subscription};
use onceward_testkit::handlers::{End, Fault, Part, Point, Stage, assert_effect_once};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id)]
struct OrderAccepted {
    order_id: String,
}

/// What is tested.
async fn ship(cx: &mut Context<Sqlite>, order: OrderAccepted) -> Result<(), Failure> {
    if order.order_id == "o-13" && cx.attempt() < 3 {
        return Err(Failure::transient("no_carrier", "no carrier is free"));
    }
    sqlx::query("INSERT INTO shipments (order_id) VALUES (?)")
        .bind(order.order_id)
        .execute(cx.tx())
        .await?;
    Ok(())
}

fn fulfilment() -> Subscription<Sqlite> {
    Subscription::new("fulfilment", Semantics::EffectOnce)
        .on::<OrderAccepted, _>(ship)
        .retry(RetryPolicy {
            base_ms: 600_000,
            attempts_max: 5,
            ..RetryPolicy::default()
        })
}

async fn prepare(stage: &mut Stage<Sqlite>) {
    stage.subscribe(fulfilment());
    sqlx::query("CREATE TABLE shipments (order_id TEXT NOT NULL)")
        .execute(stage.store().pool())
        .await
        .expect("the table is new");
}

async fn shipments(stage: &Stage<Sqlite>) -> Vec<String> {
    sqlx::query_scalar("SELECT order_id FROM shipments ORDER BY order_id")
        .fetch_all(stage.store().pool())
        .await
        .expect("the table can be read")
}

fn order(order_id: &str) -> OrderAccepted {
    OrderAccepted {
        order_id: order_id.to_owned(),
    }
}

async fn an_order_is_shipped_once_whatever_fails() {
    let swept = assert_effect_once(async |trial| {
        let mut stage = trial.sqlite().await;
        prepare(&mut stage).await;
        stage.append(&order("o-1")).await;
        stage.append(&order("o-2")).await;
        stage.drain().await.assert_all_done();
        shipments(&stage).await
    })
    .await;
    println!("the same under {} faults", swept.struck.len());
}

async fn an_order_waits_for_its_carrier() {
    let mut stage = Stage::sqlite().await;
    prepare(&mut stage).await;
    stage.append(&order("o-13")).await;
    let summary = stage.drain().await;
    assert_eq!(summary.only("fulfilment").attempts, 3);
    assert!(summary.passed_ms > 1_000, "two delays have passed");
    assert_eq!(shipments(&stage).await, ["o-13"]);
}

async fn a_crash_before_the_commit_leaves_nothing_half_done() {
    let mut stage = Stage::sqlite().await;
    prepare(&mut stage).await;
    stage.fault(Fault::Crash(Point::After(Part::Handler)));
    stage.append(&order("o-1")).await;
    let summary = stage.drain().await;
    let message = summary.only("fulfilment");
    assert_eq!((message.runs, &message.end), (2, &End::Done));
    assert_eq!(shipments(&stage).await, ["o-1"]);
}

#[tokio::main]
async fn main() {
    let begun = std::time::Instant::now();
    an_order_is_shipped_once_whatever_fails().await;
    an_order_waits_for_its_carrier().await;
    a_crash_before_the_commit_leaves_nothing_half_done().await;
    assert!(begun.elapsed() < Duration::from_secs(600));
}
