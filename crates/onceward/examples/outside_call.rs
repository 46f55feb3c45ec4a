//! An effect outside the database: asked for by the operation's key, looked up before it is asked
//! for again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use onceward::core::store::Schema;
use onceward::sqlite::Sqlite;
use onceward::{
    Call, Context, Engine, Failure, Message, Outbox, Probe, RetryPolicy, Semantics, Start,
    Subscription,
};
use serde::{Deserialize, Serialize};

#[path = "support/place.rs"]
mod place;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "order.accepted", version = 1, key = order_id, operation = checkout_id)]
struct OrderAccepted {
    order_id: String,
    checkout_id: String,
}

/// A carrier that books and then loses the first answer to each request.
#[derive(Default)]
struct Carrier {
    bookings: Mutex<BTreeMap<String, String>>,
}

impl Carrier {
    /// `None` is an answer that never came.
    async fn book(&self, key: &str) -> Option<String> {
        let mut bookings = self.bookings.lock().expect("no user of it panics");
        let number = format!("B-{}", bookings.len() + 1);
        let is_known = bookings.contains_key(key);
        let booking = bookings.entry(key.to_owned()).or_insert(number).clone();
        is_known.then_some(booking)
    }

    async fn find(&self, key: &str) -> Option<String> {
        let bookings = self.bookings.lock().expect("no user of it panics");
        bookings.get(key).cloned()
    }
}

struct Book(Carrier);

impl Call<Sqlite> for Book {
    type Message = OrderAccepted;
    type Answer = String;
    type Reply = String;

    /// No transaction is open here. The operation is the key that the carrier knows it by.
    async fn call(&self, operation: &str, _: &OrderAccepted) -> Result<String, Failure> {
        let booking = self.0.book(operation).await;
        booking.ok_or_else(|| Failure::ambiguous("no_answer", "the carrier did not answer"))
    }

    /// What became of an earlier attempt that nobody knows the end of.
    async fn probe(&self, operation: &str, _: &OrderAccepted) -> Result<Probe<String>, Failure> {
        Ok(match self.0.find(operation).await {
            Some(booking) => Probe::Happened(booking),
            None => Probe::DidNotHappen,
        })
    }

    /// The outcome, in one commit with the ledger row.
    async fn outcome(
        &self,
        cx: &mut Context<Sqlite>,
        order: OrderAccepted,
        booking: String,
    ) -> Result<String, Failure> {
        sqlx::query("INSERT INTO shipments (order_id, booking) VALUES (?, ?)")
            .bind(order.order_id)
            .bind(&booking)
            .execute(cx.tx())
            .await?;
        Ok(booking)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = place::Place::new()?;
    let store = Sqlite::connect(place.file("orders.db")).await?;
    store.migrate().await?;
    place::tables(
        &store,
        "CREATE TABLE shipments (order_id TEXT PRIMARY KEY, booking TEXT NOT NULL)",
    )
    .await?;

    let outbox = Outbox::new(store.clone());
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
    let accepted = OrderAccepted {
        order_id: "ord-731".into(),
        checkout_id: "checkout-284".into(),
    };
    outbox.append(&mut tx, &accepted).await?;
    tx.commit().await?;

    let carrier = Subscription::new("carrier", Semantics::EffectOnce)
        .call(Book(Carrier::default()))
        .retry(RetryPolicy {
            base_ms: 10,
            ..RetryPolicy::default()
        })
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone()).subscribe(carrier);
    let engine = engine.start().await?;
    let results = place::finished(&store, "checkout-284").await?;
    engine.shutdown(std::time::Duration::from_secs(10)).await;

    // The answer was lost, the booking was found: there is one.
    assert_eq!(results, [Some("\"B-1\"".to_owned())]);
    let booked = "SELECT count(*) FROM shipments WHERE booking = 'B-1'";
    assert_eq!(place::count(&store, booked).await?, 1);
    Ok(())
}
