//! Intake: a broker's deliveries, taken into the log and acknowledged after the commit.
//!
//! What a broker delivers becomes rows of the log, each once, and from there on it is like anything
//! that was appended here: order per key, effects that happen once, budget, deferral, quarantine,
//! replay and status are those of every other subscription. The broker is told that a message is
//! done when the transaction that took it in has been committed, so nothing is lost between the two;
//! what it delivers again is known by its source, type and id for as long as
//! [`memory_ms`](IntakeOptions::memory_ms) says.
//!
//! One process of a fleet takes in at a time, so that what comes in order stays in order: the one
//! that owns the lane of the subscription `intake.NAME`. That subscription holds what nobody takes
//! as [cases](crate::core::store::Case): messages of a type that no subscription names (released
//! once one does), deliveries that are no event, and such as have the id of another message.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use onceward::core::broker::Subscriber;
//! use onceward::core::store::Store;
//! use onceward::intake::{Intake, IntakeOptions};
//! use onceward::{Engine, Running, StartError, Subscription};
//!
//! async fn run<S: Store>(
//!     store: S,
//!     orders: Arc<dyn Subscriber>,
//!     billing: Subscription<S>,
//! ) -> Result<Running<S>, StartError> {
//!     Engine::builder(store)
//!         .intake(Intake::new("orders", orders, IntakeOptions::default()))
//!         .subscribe(billing.from(["orders"]))
//!         .start()
//!         .await
//! }
//! ```

mod aside;
mod sort;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use onceward_core::broker::Subscriber;
use onceward_core::contract::Semantics;
use onceward_core::store::Store;

use crate::handler::LocalHandler;
use crate::subscription::Subscription;

pub(crate) use sort::{Form, Sorted, sort};

/// Most messages that one transaction takes in, whatever the options say: PostgreSQL keeps a lock for
/// each until it ends, and has room for some thousands of all transactions together.
pub const BATCH_MESSAGES_MOST: u32 = 1_000;

/// How a broker's deliveries are taken in. All times in milliseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IntakeOptions {
    /// Most messages that are taken in by one transaction, [`BATCH_MESSAGES_MOST`] at most.
    pub batch_messages_max: u32,
    /// Most bytes that are taken in by one transaction; the first message comes whatever its size.
    pub batch_bytes_max: u64,
    /// How many messages may wait in any of its subscriptions before no more are taken in: the rest
    /// waits at the broker.
    pub ahead_max: u64,
    /// For how long a message that comes again is known. It has to be longer than the broker may
    /// keep a message that nobody acknowledged, and than anybody may send one again by hand.
    pub memory_ms: u64,
    /// How often more time is asked for while the store cannot take what was received, where the
    /// broker gives it.
    pub extend_every_ms: u64,
}

impl Default for IntakeOptions {
    /// 500 messages or 4 MiB a transaction, 100,000 ahead, 30 days of memory, asked for more time
    /// every 10 s.
    fn default() -> Self {
        Self {
            batch_messages_max: 500,
            batch_bytes_max: 4 << 20,
            ahead_max: 100_000,
            memory_ms: 30 * 86_400_000,
            extend_every_ms: 10_000,
        }
    }
}

/// A broker that messages are taken in from.
#[derive(Clone)]
pub struct Intake {
    pub(crate) name: String,
    pub(crate) subscriber: Arc<dyn Subscriber>,
    pub(crate) options: IntakeOptions,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake")
            .field("name", &self.name)
            .field("address", &self.subscriber.address())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Intake {
    /// Takes in what `subscriber` receives, for the subscriptions that name this intake as their
    /// source.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        subscriber: Arc<dyn Subscriber>,
        options: IntakeOptions,
    ) -> Self {
        Self {
            name: name.into(),
            subscriber,
            options,
        }
    }

    /// Name of the subscription that holds what nobody takes. While it is paused nothing is taken
    /// in.
    #[must_use]
    pub fn subscription_name(&self) -> String {
        subscription_of(&self.name)
    }

    /// The subscription for what is put aside, which knows the types that are wanted.
    pub(crate) fn subscription<S: Store>(&self, wanted: BTreeSet<String>) -> Subscription<S> {
        let types = sort::Aside::ALL.map(|aside| aside.type_of(&self.name));
        let handler: Arc<dyn LocalHandler<S>> = Arc::new(aside::PutAside { wanted });
        Subscription::new(self.subscription_name(), Semantics::EffectOnce)
            .lanes(1)
            .local(types, &handler)
    }
}

/// Name of the subscription that goes with the intake of a broker.
pub(crate) fn subscription_of(name: &str) -> String {
    format!("intake.{name}")
}
