//! Relay: each message as one confirmed publish to a broker, at least once.
//!
//! A relay is a subscription that [delivers](crate::Deliver) to a broker: order per key, budget,
//! breaker, quarantine and status are those of every other one, and its position moves only past
//! messages that the broker has confirmed or that are kept as deferred or as cases. Messages whose
//! turn it is together travel together; each has its own outcome, so one that the broker will never
//! take becomes a case while the rest of its batch is done.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use onceward::core::broker::{Publisher, Topic};
//! use onceward::core::store::Store;
//! use onceward::relay::{Relay, RelayOptions};
//! use onceward::{Semantics, Subscription};
//!
//! fn to_broker<S: Store>(publisher: Arc<dyn Publisher>) -> Subscription<S> {
//!     let mut options = RelayOptions::default();
//!     options.topic = Topic::parse("shop.{aggregatetype}.{type}").expect("a topic");
//!     Subscription::new("to-broker", Semantics::AtLeastOnce)
//!         .deliver(["order.accepted", "order.cancelled"], Relay::new(publisher, options))
//! }
//! ```

use std::fmt;
use std::sync::{Arc, OnceLock};

use onceward_core::broker::{Outgoing, Publish, Publisher, Topic};
use onceward_core::{Failure, Row};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::handler::{Deliver, Delivery};

/// How a relay publishes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelayOptions {
    /// Which topic a message goes to; by its aggregate type unless said otherwise.
    pub topic: Topic,
    /// How long a confirmation may take, connecting included, in milliseconds. What is not confirmed
    /// by then is published again, under the same id.
    pub timeout_ms: u64,
    /// Most messages that are published together.
    pub batch_messages_max: usize,
    /// Most bytes of payloads that are published together; the first message goes whatever its size.
    pub batch_bytes_max: usize,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            topic: Topic::default(),
            timeout_ms: 15_000,
            batch_messages_max: 500,
            batch_bytes_max: 4 << 20,
        }
    }
}

/// Publishes messages to one broker.
#[derive(Clone)]
pub struct Relay {
    publisher: Arc<dyn Publisher>,
    options: RelayOptions,
    /// To the task that puts batches together, which the first message starts.
    queue: Arc<OnceLock<mpsc::Sender<Waiting>>>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("address", &self.publisher.address())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A message whose turn it is, and who waits for its end.
struct Waiting {
    topic: String,
    row: Row,
    ended: oneshot::Sender<Result<(), Failure>>,
}

impl Relay {
    /// A relay over a publisher, which connects when there is something to publish.
    #[must_use]
    pub fn new(publisher: Arc<dyn Publisher>, options: RelayOptions) -> Self {
        Self {
            publisher,
            options,
            queue: Arc::default(),
        }
    }

    fn queue(&self) -> &mpsc::Sender<Waiting> {
        self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(self.options.batch_messages_max.max(1));
            let (publisher, options) = (Arc::clone(&self.publisher), self.options.clone());
            // It ends with the last sender.
            tokio::spawn(batches(receiver, publisher, options));
            sender
        })
    }
}

impl Deliver for Relay {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let gone = || Failure::transient("relay_ended", "the relay ended before it was confirmed");
        let (ended, ends) = oneshot::channel();
        let waiting = Waiting {
            topic: self.options.topic.of(&delivery.row.envelope),
            row: delivery.row.clone(),
            ended,
        };
        self.queue().send(waiting).await.map_err(|_| gone())?;
        ends.await.map_err(|_| gone())?
    }

    fn address(&self) -> Option<String> {
        Some(self.publisher.address())
    }
}

/// Puts together what waits. How many batches are under way is bounded by how many messages are.
async fn batches(
    mut queue: mpsc::Receiver<Waiting>,
    publisher: Arc<dyn Publisher>,
    options: RelayOptions,
) {
    let mut under_way = JoinSet::new();
    while let Some(first) = queue.recv().await {
        let mut bytes = first.row.envelope.payload.len();
        let mut batch = vec![first];
        while batch.len() < options.batch_messages_max && bytes < options.batch_bytes_max {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.row.envelope.payload.len();
            batch.push(next);
        }
        under_way.spawn(publish(batch, Arc::clone(&publisher), options.timeout_ms));
        // One that panicked has dropped its senders, which says it to whoever waits.
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn publish(batch: Vec<Waiting>, publisher: Arc<dyn Publisher>, timeout_ms: u64) {
    let messages = batch.iter().map(|waiting| Outgoing {
        topic: &waiting.topic,
        envelope: &waiting.row.envelope,
        recorded_at: Some(waiting.row.recorded_at),
    });
    let messages: Vec<Outgoing<'_>> = messages.collect();
    let request = Publish {
        messages: &messages,
        timeout_ms,
    };
    let outcomes = publisher.publish(request).await;
    for (waiting, outcome) in batch.into_iter().zip(outcomes) {
        // Nobody may wait any more; then it is published again, under the same id.
        let _ = waiting.ended.send(outcome.map(drop));
    }
}
