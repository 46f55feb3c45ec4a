//! From a decision in a transaction to the effect that completes it: the smallest whole.

use onceward::core::store::Schema;
use onceward::sqlite::Sqlite;
use onceward::{Context, Engine, Failure, Message, Outbox, Semantics, Start, Subscription};
use serde::{Deserialize, Serialize};

#[path = "support/place.rs"]
mod place;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id)]
struct OrderAccepted {
    order_id: String,
}

async fn ship(cx: &mut Context<Sqlite>, order: OrderAccepted) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO shipments (order_id) VALUES (?)").bind(order.order_id);
    insert.execute(cx.tx()).await?; // in one commit with the ledger row that says "done"
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = place::Place::new()?;
    let store = Sqlite::connect(place.file("orders.db")).await?;
    store.migrate().await?;
    place::tables(
        &store,
        "CREATE TABLE orders (order_id TEXT PRIMARY KEY);
         CREATE TABLE shipments (n INTEGER PRIMARY KEY, order_id TEXT NOT NULL)",
    )
    .await?;

    let outbox = Outbox::new(store.clone());
    let order_id = "ord-731".to_owned();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?; // your own transaction
    let insert = sqlx::query("INSERT INTO orders (order_id) VALUES (?)").bind(&order_id);
    insert.execute(&mut *tx).await?;
    let id = outbox.append(&mut tx, &OrderAccepted { order_id }).await?;
    tx.commit().await?;

    let fulfilment = Subscription::new("fulfilment", Semantics::EffectOnce)
        .on::<OrderAccepted, _>(ship)
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone()).subscribe(fulfilment);
    let engine = engine.start().await?;

    place::finished(&store, &id).await?;
    engine.shutdown(std::time::Duration::from_secs(10)).await;
    assert_eq!(
        place::count(&store, "SELECT count(*) FROM shipments").await?,
        1
    );
    Ok(())
}
