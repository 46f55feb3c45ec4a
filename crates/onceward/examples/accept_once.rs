//! Accepting a request once: whoever asks again with the same key gets the stored answer.

use onceward::core::store::{Schema, StoreErrorKind};
use onceward::sqlite::Sqlite;
use onceward::{Accepted, Failure, Message, Outbox};
use serde::{Deserialize, Serialize};

#[path = "support/place.rs"]
mod place;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id)]
struct OrderAccepted {
    order_id: String,
}

/// What a handler of `POST /orders` does with the caller, its `Idempotency-Key` and the body.
async fn accept(
    outbox: &Outbox<Sqlite>,
    caller: &str,
    key: &str,
    body: &[u8],
) -> Result<(u16, String), Failure> {
    let pool = outbox.store().pool();
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    match outbox.accept(&mut tx, caller, key, body).await? {
        Accepted::First => {}
        Accepted::Again { answer } => return Ok((201, answer.into())),
        Accepted::InFlight => return Ok((409, "is being worked on".into())),
        Accepted::Mismatch => return Ok((422, "the key was used with another body".into())),
    }
    let order_id = format!("ord-{key}");
    let answer = format!(r#"{{"order_id":"{order_id}"}}"#);
    let insert = sqlx::query("INSERT INTO orders (order_id) VALUES (?)").bind(&order_id);
    insert.execute(&mut *tx).await?;
    outbox.append(&mut tx, &OrderAccepted { order_id }).await?;
    outbox.answer(&mut tx, caller, key, body, &answer).await?;
    tx.commit().await?; // order, message and answer, or none of them
    outbox.ring();
    Ok((201, answer))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = place::Place::new()?;
    let store = Sqlite::connect(place.file("orders.db")).await?;
    store.migrate().await?;
    place::tables(&store, "CREATE TABLE orders (order_id TEXT PRIMARY KEY)").await?;
    let outbox = Outbox::new(store.clone());

    let first = accept(&outbox, "shop", "k1", b"{}").await;
    let again = accept(&outbox, "shop", "k1", b"{}").await;
    let other_body = accept(&outbox, "shop", "k1", b"[]").await;
    let answer = r#"{"order_id":"ord-k1"}"#;
    assert_eq!(first.ok(), Some((201, answer.into())));
    assert_eq!(again.ok(), Some((201, answer.into())), "the same answer");
    assert_eq!(other_body.ok().map(|(status, _)| status), Some(422));
    assert_eq!(
        place::count(&store, "SELECT count(*) FROM orders").await?,
        1
    );
    assert_eq!(
        place::count(&store, "SELECT count(*) FROM onceward_outbox").await?,
        1
    );

    // Keys of different callers never meet: here the order's own key refuses the second one.
    let failure = accept(&outbox, "another shop", "k1", b"{}").await.err();
    let failure = failure.ok_or("the primary key of orders must refuse it")?;
    let source = failure.source_ref().ok_or("the database said why")?;
    let kind = onceward::core::store::Append::classify(&store, source);
    assert_eq!(kind, Some(StoreErrorKind::Refused));
    Ok(())
}
