//! A broker in memory: one queue with everything that a broker may be able to do, and with defects
//! on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::broker::{
    Act, Boxed, Capabilities, Check, Confirmed, Content, Coordinates, DeliveryCount, Extend,
    Faulty, Finding, KeyOrder, Outgoing, Publish, Publisher, Receive, Received, Settlement,
    Subscriber, Tag, failures,
};
use onceward_core::{Failure, cloudevents};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{BrokerDefect, Fixture};

const MESSAGE_BYTES_MAX: u64 = 256 << 10;
const DEDUPE_WINDOW_MS: u64 = 120_000;
const LOCK_MS: u64 = 400;

/// The topic that the queue takes.
const TOPIC: &str = "orders";

#[derive(Clone)]
struct Message {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Message {
    fn bytes(&self) -> u64 {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len());
        (headers.sum::<usize>() + self.body.len()) as u64
    }
}

enum Stand {
    Ready { since: Instant },
    Out { connection: u64, until: Instant },
    Done,
}

struct Stored {
    message: Message,
    stand: Stand,
    deliveries: u32,
}

#[derive(Default)]
struct State {
    stored: Vec<Stored>,
    /// Confirmed and not stored.
    volatile: Vec<Message>,
    ids: BTreeMap<(String, String), Instant>,
    connections: u64,
    deliveries: u64,
    /// Which message a delivery is of.
    tags: BTreeMap<Tag, usize>,
}

/// A queue in memory and the way to it.
#[derive(Clone)]
pub struct MemoryBroker {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
    defect: Option<BrokerDefect>,
}

impl MemoryBroker {
    /// An empty queue, with a defect or none.
    #[must_use]
    pub fn new(defect: Option<BrokerDefect>) -> Self {
        Self {
            state: Arc::default(),
            news: Arc::default(),
            defect,
        }
    }

    fn has(&self, defect: BrokerDefect) -> bool {
        self.defect == Some(defect)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const CAPABILITIES: Capabilities = Capabilities {
        order: KeyOrder::UntilRedelivery,
        dedupe_window_ms: Some(DEDUPE_WINDOW_MS),
        message_bytes_max: Some(MESSAGE_BYTES_MAX),
        delay_ms_max: Some(u64::MAX),
        can_extend: true,
        has_transactions: false,
        delivery_count: DeliveryCount::Exact,
        tells_unroutable: true,
        has_coordinates: true,
    };

    fn put(&self, state: &mut State, message: Message) {
        let stored = Stored {
            message,
            stand: Stand::Ready {
                since: Instant::now(),
            },
            deliveries: 0,
        };
        let is_odd = state.stored.len() % 2 == 1;
        if is_odd && self.has(BrokerDefect::ReordersKey) {
            let before_last = state.stored.len() - 1;
            state.stored.insert(before_last, stored);
        } else {
            state.stored.push(stored);
        }
    }

    fn publish_one(&self, outgoing: &Outgoing<'_>) -> Result<Confirmed, Failure> {
        let event = cloudevents::to_binary(outgoing.envelope, outgoing.recorded_at)
            .map_err(|fault| failures::unsendable(fault.to_string()))?;
        let mut message = Message {
            headers: event.headers,
            body: event.body.to_vec(),
        };
        if message.bytes() > MESSAGE_BYTES_MAX {
            return match self.has(BrokerDefect::SwallowsOversize) {
                true => Ok(Confirmed::default()),
                false => Err(failures::too_large(message.bytes(), MESSAGE_BYTES_MAX)),
            };
        }
        if outgoing.topic != TOPIC {
            return match self.has(BrokerDefect::SwallowsUnroutable) {
                true => Ok(Confirmed::default()),
                false => Err(failures::unroutable(outgoing.topic)),
            };
        }
        if self.has(BrokerDefect::AltersAttributes) {
            for (name, value) in &mut message.headers {
                if name == "ce-subject" {
                    value.make_ascii_uppercase();
                }
            }
        }
        let mut state = self.state();
        let source = outgoing.envelope.source.clone().unwrap_or_default();
        let id = (source, outgoing.envelope.id.clone());
        let window = Duration::from_millis(DEDUPE_WINDOW_MS);
        let before = state.ids.insert(id, Instant::now());
        let is_duplicate = before.is_some_and(|before| before.elapsed() < window);
        if is_duplicate && !self.has(BrokerDefect::DedupeForgotten) {
            return Ok(Confirmed { is_duplicate });
        }
        if self.has(BrokerDefect::ConfirmsBeforeStoring) {
            state.volatile.push(message);
        } else {
            self.put(&mut state, message);
        }
        drop(state);
        self.news.notify_waiters();
        Ok(Confirmed::default())
    }
}

impl Publisher for MemoryBroker {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn publish<'a>(&'a self, batch: Publish<'a>) -> Boxed<'a, Vec<Result<Confirmed, Failure>>> {
        let mut has_stopped = false;
        let mut outcomes: Vec<Result<Confirmed, Failure>> = Vec::new();
        for outgoing in batch.messages {
            if has_stopped {
                outcomes.push(Err(failures::refused("an earlier message was too large")));
                continue;
            }
            let outcome = self.publish_one(outgoing);
            let is_large = outcome
                .as_ref()
                .is_err_and(|failure| failure.code() == onceward_core::broker::TOO_LARGE);
            has_stopped |= is_large && self.has(BrokerDefect::OversizeStopsBatch);
            outcomes.push(outcome);
        }
        if self.has(BrokerDefect::OutcomesShifted) && !outcomes.is_empty() {
            outcomes.rotate_right(1);
        }
        Box::pin(async move { outcomes })
    }

    fn check<'a>(&'a self, check: Check<'a>) -> Boxed<'a, Vec<Finding>> {
        let findings = check.topics.iter().map(|topic| match topic == TOPIC {
            true => Finding::good(format!("topic {topic}"), "is taken"),
            false => Finding::bad(format!("topic {topic}"), "nothing takes it", "take it"),
        });
        let findings = findings.collect();
        Box::pin(async move { findings })
    }

    fn close(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }
}

/// A connection that receives.
struct MemorySubscriber {
    broker: MemoryBroker,
    connection: u64,
}

/// What it had and did not settle is for others.
impl Drop for MemorySubscriber {
    fn drop(&mut self) {
        if self.broker.has(BrokerDefect::LosesUnsettled) {
            let mut state = self.broker.state();
            for stored in &mut state.stored {
                if matches!(stored.stand, Stand::Out { connection, .. } if connection == self.connection)
                {
                    stored.stand = Stand::Done;
                }
            }
        }
        self.broker.news.notify_waiters();
    }
}

impl MemorySubscriber {
    fn take(&self, request: Receive) -> Vec<Received> {
        let now = Instant::now();
        let broker = &self.broker;
        let mut state = broker.state();
        for message in std::mem::take(&mut state.volatile) {
            broker.put(&mut state, message);
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for index in 0..state.stored.len() {
            let stored = &state.stored[index];
            let is_ready = match stored.stand {
                Stand::Ready { since } => since <= now,
                Stand::Out { until, .. } => until <= now,
                Stand::Done => false,
            };
            if !is_ready {
                continue;
            }
            let size = stored.message.bytes();
            let too_many = taken.len() >= request.messages_max as usize;
            let too_much = !taken.is_empty() && bytes + size > request.bytes_max;
            if (too_many && !broker.has(BrokerDefect::IgnoresMessagesMax))
                || (too_much && !broker.has(BrokerDefect::IgnoresBytesMax))
            {
                break;
            }
            bytes += size;
            state.deliveries += 1;
            let (tag, delivery) = (Tag(state.deliveries), state.deliveries);
            state.tags.insert(tag, index);
            let stored = &mut state.stored[index];
            stored.deliveries += 1;
            stored.stand = Stand::Out {
                connection: self.connection,
                until: now + Duration::from_millis(LOCK_MS),
            };
            let place = match broker.has(BrokerDefect::PlacePerDelivery) {
                true => delivery.to_string(),
                false => index.to_string(),
            };
            let coordinates = Coordinates::new("memory", "queue", TOPIC, Some(place));
            let count = match broker.has(BrokerDefect::ForgetsCount) {
                true => 1,
                false => stored.deliveries,
            };
            taken.push(Received {
                tag,
                content: content(&stored.message, &coordinates),
                coordinates,
                delivery_count: Some(count),
                bytes: size,
            });
        }
        taken
    }

    fn settle_one(&self, settlement: Settlement) -> Result<(), Failure> {
        let broker = &self.broker;
        let mut state = broker.state();
        let mut index = state.tags.get(&settlement.tag).copied();
        if broker.has(BrokerDefect::SettlesAnother) {
            index = state.tags.values().next_back().copied();
        }
        let stored = index.and_then(|index| state.stored.get_mut(index));
        let stored = stored.ok_or_else(|| failures::refused("no such delivery"))?;
        let now = Instant::now();
        let ready = |ms| Stand::Ready {
            since: now + Duration::from_millis(ms),
        };
        stored.stand = match settlement.act {
            Act::Done if broker.has(BrokerDefect::DoneComesAgain) => ready(0),
            Act::Done => Stand::Done,
            Act::Again { .. } if broker.has(BrokerDefect::LosesAgain) => Stand::Done,
            Act::Again { .. } if broker.has(BrokerDefect::IgnoresDelay) => ready(0),
            Act::Again { delay_ms } => ready(delay_ms),
            Act::HandBack if broker.has(BrokerDefect::KeepsHandedBack) => Stand::Out {
                connection: self.connection,
                until: now + Duration::from_secs(3_600),
            },
            Act::HandBack => ready(0),
        };
        drop(state);
        broker.news.notify_waiters();
        Ok(())
    }
}

fn content(message: &Message, coordinates: &Coordinates) -> Content {
    let headers = message.headers.iter();
    let find = |wanted: &str| {
        let found = message.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let read = match find("ce-specversion") {
        Some(_) => {
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
            let event = cloudevents::from_binary(headers, &message.body);
            event.map(|envelope| Content::Event(Box::new(envelope)))
        }
        None => {
            let foreign = coordinates.foreign(None, find("content-type"), &message.body);
            foreign.map(|envelope| Content::Foreign(Box::new(envelope)))
        }
    };
    read.unwrap_or_else(|fault| Faulty::content(fault, &message.body))
}

impl Subscriber for MemorySubscriber {
    fn capabilities(&self) -> Capabilities {
        MemoryBroker::CAPABILITIES
    }

    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn receive(&self, request: Receive) -> Boxed<'_, Result<Vec<Received>, Failure>> {
        Box::pin(async move {
            let until = Instant::now() + Duration::from_millis(request.wait_ms);
            loop {
                let news = self.broker.news.notified();
                let taken = self.take(request);
                if !taken.is_empty() || Instant::now() >= until {
                    return Ok(taken);
                }
                // Locks and delays end without news.
                let soon = Instant::now() + Duration::from_millis(20);
                let _ = tokio::time::timeout_at(until.min(soon), news).await;
            }
        })
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Boxed<'a, Vec<Result<(), Failure>>> {
        let settled = settlements.iter().map(|one| self.settle_one(*one));
        let settled = settled.collect();
        Box::pin(async move { settled })
    }

    fn extend<'a>(&'a self, extend: Extend<'a>) -> Boxed<'a, Result<(), Failure>> {
        let mut state = self.broker.state();
        for tag in extend.tags {
            let index = state.tags.get(tag).copied();
            if let Some(index) = index
                && matches!(state.stored[index].stand, Stand::Out { connection, .. } if connection == self.connection)
                && !self.broker.has(BrokerDefect::ExtendsNothing)
            {
                state.stored[index].stand = Stand::Out {
                    connection: self.connection,
                    until: Instant::now() + Duration::from_millis(LOCK_MS),
                };
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn give_back(&self) -> Boxed<'_, ()> {
        let now = Instant::now();
        if self.broker.has(BrokerDefect::GivesNothingBack) {
            return Box::pin(async {});
        }
        for stored in &mut self.broker.state().stored {
            if matches!(stored.stand, Stand::Out { connection, .. } if connection == self.connection)
            {
                stored.stand = Stand::Ready { since: now };
            }
        }
        self.broker.news.notify_waiters();
        Box::pin(async {})
    }

    fn check<'a>(&'a self, _: Check<'a>) -> Boxed<'a, Vec<Finding>> {
        Box::pin(async { vec![Finding::good("queue", "is there")] })
    }
}

/// A fresh queue for a case.
pub struct MemoryFixture {
    broker: MemoryBroker,
}

impl MemoryFixture {
    /// Without a defect.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a fixture is made for one case")]
    pub fn new() -> Self {
        Self {
            broker: MemoryBroker::new(None),
        }
    }

    /// With one.
    #[must_use]
    pub fn with_defect(defect: BrokerDefect) -> Self {
        Self {
            broker: MemoryBroker::new(Some(defect)),
        }
    }
}

impl Fixture for MemoryFixture {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.broker.clone())
    }

    async fn subscriber(&self) -> Arc<dyn Subscriber> {
        let mut state = self.broker.state();
        state.connections += 1;
        Arc::new(MemorySubscriber {
            broker: self.broker.clone(),
            connection: state.connections,
        })
    }

    fn topic(&self) -> String {
        TOPIC.to_owned()
    }

    fn topic_of_nobody(&self) -> String {
        "nobody".to_owned()
    }

    async fn publish_foreign(&self, content_type: Option<&str>, body: &[u8]) {
        let headers = content_type.map(|kind| ("content-type".to_owned(), kind.to_owned()));
        let message = Message {
            headers: headers.into_iter().collect(),
            body: body.to_vec(),
        };
        self.broker.put(&mut self.broker.state(), message);
    }

    fn lock_ms(&self) -> Option<u64> {
        Some(LOCK_MS)
    }

    async fn restart(&self) -> bool {
        self.broker.state().volatile.clear();
        true
    }
}
