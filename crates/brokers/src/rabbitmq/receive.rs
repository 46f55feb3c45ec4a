//! Receiving from a queue.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use lapin::Acker;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use onceward_core::broker::{
    Act, Boxed, Capabilities, Check, Content, Coordinates, Extend, Faulty, Finding, Receive,
    Received, Settlement, Subscriber, Tag, failures,
};
use onceward_core::cloudevents::{self, Mode};
use onceward_core::{Envelope, Failure};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, short};
use super::options::RabbitOptions;
use super::{CAPABILITIES, check, error};

/// How many deliveries there were before, on quorum queues.
const DELIVERY_COUNT: &str = "x-delivery-count";

/// Receives from a queue.
pub struct RabbitSubscriber {
    connector: Connector,
    incoming: tokio::sync::Mutex<Incoming>,
    tags: AtomicU64,
    /// How what is out is settled.
    out: Mutex<BTreeMap<Tag, Arc<Acker>>>,
}

/// What comes from the server, and what came and was not asked for yet.
#[derive(Default)]
struct Incoming {
    consumer: Option<(Channel, Consumer)>,
    /// Asked for; the answer may have come when nobody waited for it any more.
    is_unknown: bool,
    waiting: VecDeque<Delivery>,
}

impl std::fmt::Debug for RabbitSubscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitSubscriber")
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}

impl RabbitSubscriber {
    /// Connects when it is first used.
    #[must_use]
    pub fn new(options: RabbitOptions) -> Self {
        Self {
            connector: Connector::new(options),
            incoming: tokio::sync::Mutex::default(),
            tags: AtomicU64::new(0),
            out: Mutex::default(),
        }
    }

    fn out(&self) -> MutexGuard<'_, BTreeMap<Tag, Arc<Acker>>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn consume(&self, incoming: &mut Incoming) -> Result<(), Failure> {
        if let Some((channel, _)) = &incoming.consumer
            && channel.status().connected()
        {
            return Ok(());
        }
        // What came over a channel that has ended will come again; what comes to a consumer that
        // nobody knows never would.
        if incoming.is_unknown {
            self.connector.close().await;
        }
        *incoming = Incoming::default();
        let address = self.connector.address();
        let channel = self.connector.channel().await?;
        let prefetch = self.connector.options.prefetch.max(1);
        let failed = |error| error::of(&address, error, "it cannot be received from");
        let limiting = channel.basic_qos(prefetch, BasicQosOptions::default());
        limiting.await.map_err(failed)?;
        let queue = short(&self.connector.options.queue)?;
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming = channel.basic_consume(queue, "".into(), options, none);
        incoming.is_unknown = true;
        let consumer = consuming.await.map_err(failed)?;
        incoming.is_unknown = false;
        incoming.consumer = Some((channel, consumer));
        Ok(())
    }

    async fn receive_some(&self, request: Receive) -> Result<Vec<Received>, Failure> {
        let until = Instant::now() + Duration::from_millis(request.wait_ms);
        let mut incoming = self.incoming.lock().await;
        let preparing = tokio::time::timeout(self.connector.timeout(), self.consume(&mut incoming));
        let prepared = preparing.await;
        prepared.map_err(|_| failures::unconnected(&self.connector.address()))??;
        // Dropped at one of the waits, what has come stays in `waiting`.
        while incoming.waiting.is_empty() {
            let Some((_, consumer)) = &mut incoming.consumer else {
                break;
            };
            match timeout_at(until, consumer.next()).await {
                Ok(Some(Ok(delivery))) => incoming.waiting.push_back(delivery),
                Ok(Some(Err(error))) => {
                    incoming.consumer = None;
                    return Err(error::of(
                        &self.connector.address(),
                        error,
                        "receiving ended",
                    ));
                }
                Ok(None) => {
                    incoming.consumer = None;
                    return Err(failures::cut(&self.connector.address()));
                }
                Err(_) => break,
            }
        }
        let wanted = request.messages_max as usize;
        while incoming.waiting.len() < wanted {
            let Some((_, consumer)) = &mut incoming.consumer else {
                break;
            };
            // Only what is here already. An end is found by the next call.
            match futures_util::FutureExt::now_or_never(consumer.next()) {
                Some(Some(Ok(delivery))) => incoming.waiting.push_back(delivery),
                _ => break,
            }
        }
        Ok(self.take(&mut incoming.waiting, request))
    }

    fn take(&self, waiting: &mut VecDeque<Delivery>, request: Receive) -> Vec<Received> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(delivery) = waiting.front() {
            let size = bytes_of(delivery);
            let is_full = taken.len() >= request.messages_max as usize;
            if is_full || (!taken.is_empty() && bytes + size > request.bytes_max) {
                break;
            }
            bytes += size;
            if let Some(delivery) = waiting.pop_front() {
                taken.push(self.received(delivery, size));
            }
        }
        taken
    }

    fn received(&self, delivery: Delivery, bytes: u64) -> Received {
        let topic = delivery.routing_key.as_str();
        let queue = &self.connector.options.queue;
        let coordinates = Coordinates::new("rabbitmq", queue, topic, None);
        let content = content(&delivery, &coordinates);
        let delivery_count = delivery_count(&delivery);
        let tag = Tag(self.tags.fetch_add(1, Ordering::Relaxed));
        self.out().insert(tag, Arc::new(delivery.acker));
        Received {
            tag,
            coordinates,
            delivery_count,
            bytes,
            content,
        }
    }

    async fn settle_one(&self, settlement: Settlement) -> Result<(), Failure> {
        let acker = self.out().remove(&settlement.tag);
        let acker = acker.ok_or_else(|| failures::refused("no such delivery is out"))?;
        let address = self.connector.address();
        let again = BasicNackOptions {
            requeue: true,
            multiple: false,
        };
        let settling = async {
            match settlement.act {
                Act::Done => acker.ack(BasicAckOptions::default()).await,
                // The broker cannot wait: whoever asks for it waits before asking.
                Act::Again { .. } | Act::HandBack => acker.nack(again).await,
            }
        };
        match tokio::time::timeout(self.connector.timeout(), settling).await {
            Ok(Ok(true)) => Ok(()),
            // Its channel has ended: it comes again.
            Ok(Ok(false)) => Err(failures::cut(&address)),
            Ok(Err(error)) => Err(failures::cut(&address).with_source(error)),
            Err(_) => Err(failures::unconnected(&address)),
        }
    }
}

impl Subscriber for RabbitSubscriber {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn address(&self) -> String {
        self.connector.address()
    }

    fn receive(&self, request: Receive) -> Boxed<'_, Result<Vec<Received>, Failure>> {
        Box::pin(self.receive_some(request))
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement]) -> Boxed<'a, Vec<Result<(), Failure>>> {
        Box::pin(join_all(
            settlements.iter().map(|one| self.settle_one(*one)),
        ))
    }

    /// A delivery is its connection's for as long as that stands.
    fn extend<'a>(&'a self, _: Extend<'a>) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// With its connection: whatever is on the way over it goes back as well, in its order.
    fn give_back(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let mut incoming = self.incoming.lock().await;
            *incoming = Incoming::default();
            self.out().clear();
            self.connector.close().await;
        })
    }

    fn check<'a>(&'a self, request: Check<'a>) -> Boxed<'a, Vec<Finding>> {
        Box::pin(check::receiving(&self.connector, request))
    }
}

fn headers(delivery: &Delivery) -> impl Iterator<Item = (&str, &AMQPValue)> {
    let headers = delivery.properties.headers().as_ref();
    let headers = headers
        .into_iter()
        .flat_map(|headers| headers.inner().iter());
    headers.map(|(name, value)| (name.as_str(), value))
}

/// A header as a text; none where it holds something that is none.
fn text_of(value: &AMQPValue) -> Option<std::borrow::Cow<'_, [u8]>> {
    Some(match value {
        AMQPValue::LongString(text) => text.as_bytes().into(),
        AMQPValue::ShortString(text) => text.as_str().as_bytes().into(),
        AMQPValue::Boolean(is) => is.to_string().into_bytes().into(),
        other => integer_of(other)?.to_string().into_bytes().into(),
    })
}

fn integer_of(value: &AMQPValue) -> Option<i64> {
    Some(match value {
        AMQPValue::ShortShortInt(n) => i64::from(*n),
        AMQPValue::ShortShortUInt(n) => i64::from(*n),
        AMQPValue::ShortInt(n) => i64::from(*n),
        AMQPValue::ShortUInt(n) => i64::from(*n),
        AMQPValue::LongInt(n) => i64::from(*n),
        AMQPValue::LongUInt(n) => i64::from(*n),
        AMQPValue::LongLongInt(n) => *n,
        _ => return None,
    })
}

fn bytes_of(delivery: &Delivery) -> u64 {
    let headers = headers(delivery)
        .map(|(name, value)| name.len() + text_of(value).map_or(8, |text| text.len()));
    (headers.sum::<usize>() + delivery.data.len()) as u64
}

fn delivery_count(delivery: &Delivery) -> Option<u32> {
    let before = headers(delivery).find(|(name, _)| *name == DELIVERY_COUNT);
    let before = before.and_then(|(_, value)| integer_of(value));
    let before = before.unwrap_or(i64::from(delivery.redelivered));
    u32::try_from(before.saturating_add(1)).ok()
}

fn content(delivery: &Delivery, coordinates: &Coordinates) -> Content {
    let properties = &delivery.properties;
    let content_type = properties.content_type().as_ref().map(|text| text.as_str());
    let attributes: Vec<(&str, std::borrow::Cow<'_, [u8]>)> = headers(delivery)
        .filter_map(|(name, value)| Some((cloudevents::attribute_of(name)?, text_of(value)?)))
        .collect();
    let has_version = attributes.iter().any(|(name, _)| *name == "specversion");
    let event: fn(Box<Envelope>) -> Content = Content::Event;
    let (read, kind) = match Mode::of(content_type, has_version) {
        Some(Mode::Structured) => (cloudevents::from_structured(&delivery.data), event),
        Some(Mode::Binary) => {
            let attributes = attributes
                .iter()
                .map(|(name, value)| (*name, value.as_ref()));
            (
                cloudevents::from_properties(attributes, content_type, &delivery.data),
                event,
            )
        }
        // A batch is another program's business: one message is one message here.
        Some(Mode::Batch) | None => {
            let id = properties.message_id().as_ref().map(|text| text.as_str());
            let foreign = coordinates.foreign(id, content_type, &delivery.data);
            (foreign, Content::Foreign as fn(Box<Envelope>) -> Content)
        }
    };
    let faulty = |fault| Faulty::content(fault, &delivery.data);
    read.map_or_else(faulty, |envelope| kind(Box::new(envelope)))
}
