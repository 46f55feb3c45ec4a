//! The same on PostgreSQL, with the service's own pool.
//!
//! Run with an address: `cargo run -p onceward --features postgres --example on_postgres -- postgres://localhost/orders`

use std::error::Error;
use std::time::Duration;

use onceward::core::store::{OperationQuery, Schema, Status};
use onceward::postgres::Postgres;
use onceward::{Context, Engine, Failure, Message, Outbox, Semantics, Start, Subscription};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id)]
struct OrderAccepted {
    order_id: String,
}

async fn ship(cx: &mut Context<Postgres>, order: OrderAccepted) -> Result<(), Failure> {
    sqlx::query("insert into shipments (order_id) values ($1)")
        .bind(order.order_id)
        .execute(cx.tx())
        .await?;
    Ok(())
}

/// Accepts an order in a transaction of the service's own pool; returns the message id.
async fn accept(
    pool: &PgPool,
    outbox: &Outbox<Postgres>,
    order_id: &str,
) -> Result<String, Box<dyn Error>> {
    let mut tx = pool.begin().await?;
    sqlx::query("insert into orders (order_id) values ($1)")
        .bind(order_id)
        .execute(&mut *tx)
        .await?;
    let accepted = OrderAccepted {
        order_id: order_id.to_owned(),
    };
    let id = outbox.append(&mut tx, &accepted).await?;
    tx.commit().await?;
    outbox.ring();
    Ok(id)
}

/// Accepts an order and ships it; returns how many shipments there are.
pub async fn run(url: &str) -> Result<i64, Box<dyn Error>> {
    let pool = PgPool::connect(url).await?;
    let tables = "create table orders (order_id text primary key);
                  create table shipments (n bigserial, order_id text not null)";
    sqlx::raw_sql(tables).execute(&pool).await?;

    let store = Postgres::connect(url).await?;
    store.migrate().await?;
    let engine = Engine::builder(store.clone()).subscribe(
        Subscription::new("fulfilment", Semantics::EffectOnce)
            .on::<OrderAccepted, _>(ship)
            .start(Start::Earliest),
    );
    let engine = engine.start().await?;
    let id = accept(&pool, &Outbox::new(store.clone()), "ord-731").await?;

    let query = OperationQuery {
        operation: &id,
        rows_max: 1,
    };
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    loop {
        looks.tick().await;
        let message = store.operation(query.clone()).await?.pop();
        let state = message.and_then(|m| m.subscriptions.into_iter().next());
        match state {
            Some((_, onceward::core::store::MessageState::Finished { .. })) => break,
            Some((_, onceward::core::store::MessageState::Quarantined { reason, .. })) => {
                return Err(reason.into());
            }
            _ => {}
        }
    }
    engine.shutdown(Duration::from_secs(10)).await;
    let shipments = sqlx::query_scalar("select count(*) from shipments");
    Ok(shipments.fetch_one(&pool).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("give an address")?;
    eprintln!("{} shipped", run(&url).await?);
    Ok(())
}
