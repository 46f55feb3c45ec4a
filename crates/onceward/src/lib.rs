//! Onceward: accept once, act once, prove it.
//!
//! A service decides something in a database transaction; the work that follows happens once, in
//! order where order matters. Append messages in your own transaction with [`Outbox`]; declare
//! what follows with [`Subscription`]; run it with [`Engine`].
//!
//! | what | where |
//! |---|---|
//! | producing and accepting | [`Outbox`] |
//! | handlers | [`Context`], [`Call`], [`Deliver`] |
//! | failures | [`Failure`], [`Class`] |
//! | running | [`Engine`], [`Running`] |
//! | stores | `postgres`, `sqlite` (features) |
//! | signed HTTP push | `push` (feature) |
//! | relaying to a broker | [`relay`] |
//!
//! ```no_run
//! use onceward::core::store::Schema;
//! use onceward::sqlite::Sqlite;
//! use onceward::{Context, Engine, Failure, Message, Outbox, Semantics, Start, Subscription};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Message)]
//! #[message(type = "order.accepted", version = 1, key = order_id)]
//! struct OrderAccepted {
//!     order_id: String,
//! }
//!
//! async fn ship(cx: &mut Context<Sqlite>, order: OrderAccepted) -> Result<(), Failure> {
//!     let insert = sqlx::query("INSERT INTO shipments (order_id) VALUES (?)").bind(order.order_id);
//!     insert.execute(cx.tx()).await?;
//!     Ok(())
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Sqlite::connect("orders.db").await?;
//! store.migrate().await?;
//!
//! // In the transaction that decides it.
//! let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
//! let accepted = OrderAccepted { order_id: "ord-731".into() };
//! Outbox::new(store.clone()).append(&mut tx, &accepted).await?;
//! tx.commit().await?;
//!
//! // In any number of processes.
//! let fulfilment = Subscription::new("fulfilment", Semantics::EffectOnce)
//!     .on::<OrderAccepted, _>(ship)
//!     .start(Start::Earliest);
//! let engine = Engine::builder(store).subscribe(fulfilment).start().await?;
//! engine.shutdown(std::time::Duration::from_secs(10)).await;
//! # Ok(())
//! # }
//! ```
//!
//! A handler's code may run more than once; only its database work is undone. The engine removes
//! nothing: call [`tidy`](core::store::Upkeep::tidy) once a minute, or let `onceward up` do it.

mod context;
mod digest;
mod engine;
mod failure_points;
mod handler;
pub mod intake;
mod outbox;
#[cfg(feature = "push")]
pub mod push;
pub mod relay;
mod subscription;
mod throttle;

pub use context::Context;
pub use digest::digest_of;
pub use engine::{
    Engine, EngineBuilder, EngineOptions, EngineState, IntakeState, Moment, Part, Running, Sight,
    StartError, Surroundings, Witness,
};
#[cfg(feature = "failure-points")]
pub use failure_points::on_failure_point;
pub use handler::{BatchFn, Boxed, Call, Deliver, Delivery, EffectFn, Probe, Reply};
pub use onceward_core as core;
pub use onceward_core::breaker::BreakerPolicy;
pub use onceward_core::contract::{OnPoison, Order, Semantics};
pub use onceward_core::expiry::Expired;
pub use onceward_core::group::{Priority, Tenants};
pub use onceward_core::hold::HoldLimits;
pub use onceward_core::merge::Merge;
pub use onceward_core::shed::Shed;
pub use onceward_core::store::{Accepted, Start};
pub use onceward_core::version::{Gaps, VersionPolicy};
pub use onceward_core::{
    Class, Envelope, Failure, FailureRecord, Identity, Message, Payload, RetryPolicy, Timestamp,
};
pub use onceward_macros::Message;
pub use outbox::{ACCEPTANCE_MEMORY_MS, AppendError, Outbox, envelope_of};
pub use subscription::Subscription;
pub use throttle::{THROTTLE_EVERY_MS, Throttle, Throttled};

#[cfg(feature = "postgres")]
pub use onceward_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use onceward_sqlite as sqlite;
