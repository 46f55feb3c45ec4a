//! What a handler can do besides succeeding: follow up, refuse, fail for good, take many at once.

use onceward::core::store::Schema;
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Engine, Failure, Message, Outbox, RetryPolicy, Semantics, Start, Subscription,
};
use serde::{Deserialize, Serialize};

#[path = "support/place.rs"]
mod place;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id, operation = checkout_id)]
struct OrderAccepted {
    order_id: String,
    checkout_id: String,
    country: String,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "shipment.created", version = 1, key = order_id, operation = checkout_id)]
struct ShipmentCreated {
    order_id: String,
    checkout_id: String,
}

async fn ship(cx: &mut Context<Sqlite>, order: OrderAccepted) -> Result<ShipmentCreated, Failure> {
    if order.country == "atlantis" {
        // A business outcome: what was written so far stays and commits with the reason.
        return Err(Failure::rejected(
            "unsupported_address",
            "we do not deliver there",
        ));
    }
    sqlx::query("INSERT INTO shipments (order_id) VALUES (?)")
        .bind(&order.order_id)
        .execute(cx.tx())
        .await?; // any error: the store says whether it passes (a conflict) or stays (a constraint)
    let created = ShipmentCreated {
        order_id: order.order_id,
        checkout_id: order.checkout_id,
    };
    cx.append(&created)?; // commits with the effect, or not at all
    Ok(created) // kept in the ledger
}

/// Many messages with one statement; one result for each, in order.
async fn count(
    cx: &mut Context<Sqlite>,
    created: Vec<ShipmentCreated>,
) -> Result<Vec<()>, Failure> {
    sqlx::query("UPDATE totals SET shipments = shipments + ?")
        .bind(created.len() as i64)
        .execute(cx.tx())
        .await?;
    Ok(vec![(); created.len()])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = place::Place::new()?;
    let store = Sqlite::connect(place.file("orders.db")).await?;
    store.migrate().await?;
    place::tables(
        &store,
        "CREATE TABLE shipments (order_id TEXT PRIMARY KEY);
         CREATE TABLE totals (shipments INTEGER NOT NULL);
         INSERT INTO totals VALUES (0)",
    )
    .await?;

    let outbox = Outbox::new(store.clone());
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
    for (n, country) in [(1, "lu"), (2, "atlantis"), (3, "fr")] {
        let accepted = OrderAccepted {
            order_id: format!("ord-{n}"),
            checkout_id: format!("checkout-{n}"),
            country: country.to_owned(),
        };
        outbox.append(&mut tx, &accepted).await?;
    }
    tx.commit().await?;

    let retry = RetryPolicy {
        attempts_max: 5,
        ..RetryPolicy::default()
    };
    let engine = Engine::builder(store.clone())
        .subscribe(
            Subscription::new("fulfilment", Semantics::EffectOnce)
                .on::<OrderAccepted, _>(ship)
                .retry(retry)
                .start(Start::Earliest),
        )
        .subscribe(
            Subscription::new("statistics", Semantics::EffectOnce)
                .on_batch::<ShipmentCreated, _>(count)
                .start(Start::Earliest),
        )
        .start()
        .await?;
    let shipped = place::finished(&store, "checkout-1").await?;
    let refused = place::finished(&store, "checkout-2").await?;
    place::finished(&store, "checkout-3").await?;
    engine.shutdown(std::time::Duration::from_secs(10)).await;

    let result = r#"{"order_id":"ord-1","checkout_id":"checkout-1"}"#;
    assert_eq!(shipped, [Some(result.to_owned()), None]);
    let reason = r#"{"code":"unsupported_address","message":"we do not deliver there"}"#;
    assert_eq!(refused, [Some(reason.to_owned())]);
    assert_eq!(
        place::count(&store, "SELECT shipments FROM totals").await?,
        2
    );
    Ok(())
}
