//! Testing handlers of one's own: the real engine runs them, time passes without waiting, and
//! faults strike where a test wants them.
//!
//! | | |
//! |---|---|
//! | [`Stage`] | a store with subscriptions: append messages, drain until idle |
//! | [`Summary`] | what became of each message |
//! | [`Fault`], [`Point`] | duplicates, crashes, refused commits, lost answers |
//! | [`assert_effect_once`] | a scenario under each fault in turn: it has to end the same |
//!
//! ```
//! use onceward::{Context, Failure, Message, Semantics, Subscription};
//! use onceward_testkit::handlers::assert_effect_once;
//! use onceward_testkit::memory::MemoryStore;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Message)]
//! #[message(type = "order.accepted", version = 1, key = order_id)]
//! struct OrderAccepted {
//!     order_id: String,
//! }
//!
//! async fn ship(cx: &mut Context<MemoryStore>, order: OrderAccepted) -> Result<(), Failure> {
//!     cx.tx().insert("shipments", &order.order_id, "on its way").await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let swept = assert_effect_once(async |trial| {
//!     let mut stage = trial.memory().await;
//!     stage.subscribe(
//!         Subscription::new("fulfilment", Semantics::EffectOnce).on::<OrderAccepted, _>(ship),
//!     );
//!     stage.append(&OrderAccepted { order_id: "o-1".into() }).await;
//!     stage.drain().await.assert_all_done();
//!     stage.store().rows("shipments")
//! })
//! .await;
//! assert!(swept.struck.len() > 5);
//! # }
//! ```

mod drain;
mod fault;
mod record;
mod stage;
mod summary;
mod sweep;

pub use fault::{Fault, Point};
pub use onceward::Part;
pub use stage::Stage;
pub use summary::{End, MessageSummary, Summary};
pub use sweep::{Swept, Trial, assert_effect_once};
