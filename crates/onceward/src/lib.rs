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

mod context;
mod digest;
mod engine;
mod handler;
mod outbox;
#[cfg(feature = "push")]
pub mod push;
mod subscription;

pub use context::Context;
pub use digest::digest_of;
pub use engine::{
    Engine, EngineBuilder, EngineOptions, EngineState, Running, StartError, Surroundings,
};
pub use handler::{BatchFn, Boxed, Call, Deliver, Delivery, EffectFn, Probe, Reply};
pub use onceward_core as core;
pub use onceward_core::contract::{OnPoison, Order, Semantics};
pub use onceward_core::store::{Accepted, Start};
pub use onceward_core::{
    Class, Envelope, Failure, FailureRecord, Identity, Message, Payload, RetryPolicy, Timestamp,
};
pub use onceward_macros::Message;
pub use outbox::{ACCEPTANCE_MEMORY_MS, AppendError, Outbox, envelope_of};
pub use subscription::Subscription;

#[cfg(feature = "postgres")]
pub use onceward_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use onceward_sqlite as sqlite;
