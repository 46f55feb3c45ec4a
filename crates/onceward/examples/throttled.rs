//! A producer that asks, before its transaction, whether the work can still be done in time.

use std::time::Duration;

use onceward::core::contract::{Contract, MessageContract, Promise, SubscriptionContract};
use onceward::core::store::{Declared, Schema, Start};
use onceward::core::throttle::Throttle as Policy;
use onceward::sqlite::Sqlite;
use onceward::{Failure, Message, Outbox, Semantics, THROTTLE_EVERY_MS, Throttle};
use serde::{Deserialize, Serialize};

#[path = "support/place.rs"]
mod place;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id)]
struct OrderAccepted {
    order_id: String,
}

/// What is promised of orders: finished within five minutes, or refused.
fn contract() -> Contract {
    let mut contract = Contract::default();
    let promise = Promise {
        finish_within_ms: Some(300_000),
        ..Promise::default()
    };
    let accepted = MessageContract {
        promise,
        throttle: Policy::Refuse,
        ..MessageContract::default()
    };
    let name = OrderAccepted::TYPE.to_owned();
    contract.messages.insert(name, accepted);
    contract
}

/// What a handler of `POST /orders` answers: a status, and after how many seconds to try again.
async fn accept(
    outbox: &Outbox<Sqlite>,
    throttle: &Throttle,
    order_id: String,
) -> Result<(u16, Option<u64>), Failure> {
    if let Err(throttled) = throttle.check_for::<OrderAccepted>() {
        return Ok((429, Some(throttled.retry_after_ms.div_ceil(1_000))));
    }
    let pool = outbox.store().pool();
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    outbox.append(&mut tx, &OrderAccepted { order_id }).await?;
    tx.commit().await?;
    outbox.ring();
    Ok((202, None))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = place::Place::new()?;
    let store = Sqlite::connect(place.file("orders.db")).await?;
    store.migrate().await?;
    // Another process works on orders; here it is only declared, so that they wait.
    let fulfilment =
        SubscriptionContract::new("fulfilment", &[OrderAccepted::TYPE], Semantics::EffectOnce);
    let declared = Declared {
        subscription: "fulfilment",
        lanes: 1,
        types: &[OrderAccepted::TYPE.to_owned()],
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: Contract::default().terms_of(&fulfilment),
    };
    store.register(declared).await?;
    let outbox = Outbox::new(store.clone());

    // An engine in this process has one already: `engine.throttle()`.
    let throttle = Throttle::watch(store.clone(), &contract(), THROTTLE_EVERY_MS);
    let first = accept(&outbox, &throttle, "ord-1".into()).await;
    assert_eq!(first.ok(), Some((202, None)));

    // Ten minutes later it still waits.
    let age = "UPDATE onceward_outbox SET recorded_at = recorded_at - 600000000";
    sqlx::query(age).execute(store.pool()).await?;
    let refused = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match accept(&outbox, &throttle, "ord-2".into()).await {
                Ok((429, retry_after_s)) => return retry_after_s,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    assert_eq!(refused.await?, Some(300));
    Ok(())
}
