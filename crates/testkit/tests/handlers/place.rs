//! Messages, a table, and panics as texts.

use onceward::sqlite::Sqlite;
use onceward::{Boxed, Context, Failure, Message, RetryPolicy};
use onceward_testkit::handlers::Stage;
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;

#[derive(Clone, Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id)]
pub struct Accepted {
    pub order_id: String,
}

#[derive(Clone, Serialize, Deserialize, Message)]
#[message(type = "order.shipped", version = 1, key = order_id)]
pub struct Shipped {
    pub order_id: String,
}

pub fn accepted(order_id: &str) -> Accepted {
    Accepted {
        order_id: order_id.to_owned(),
    }
}

/// An hour between attempts, five of them.
pub const HOURLY: RetryPolicy = RetryPolicy {
    base_ms: 3_600_000,
    cap_ms: 3_600_000,
    factor: 1.0,
    attempts_max: 5,
    age_max_ms: 86_400_000,
};

/// Writes a row in the effect's transaction.
pub async fn write(cx: &mut Context<Sqlite>, order_id: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO shipments (order_id) VALUES (?)")
        .bind(order_id)
        .execute(cx.tx())
        .await?;
    Ok(())
}

pub async fn with_table(stage: Stage<Sqlite>) -> Stage<Sqlite> {
    sqlx::query("CREATE TABLE shipments (order_id TEXT NOT NULL)")
        .execute(stage.store().pool())
        .await
        .unwrap();
    stage
}

pub async fn shipments(stage: &Stage<Sqlite>) -> Vec<String> {
    sqlx::query_scalar("SELECT order_id FROM shipments ORDER BY order_id")
        .fetch_all(stage.store().pool())
        .await
        .unwrap()
}

/// Gives a closure the type of a handler.
pub fn handler<F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<Sqlite>, Accepted) -> Boxed<'a, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
{
    handle
}

/// The text of the panic that a future has to end with.
pub async fn panic_of<T: 'static>(running: impl Future<Output = T> + 'static) -> String {
    let set = LocalSet::new();
    let ended = set
        .run_until(async { tokio::task::spawn_local(running).await })
        .await;
    let panic = ended.err().expect("it panics").into_panic();
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap()
}
