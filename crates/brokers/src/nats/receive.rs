//! Receiving through a durable pull consumer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{self, AckKind};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use onceward_core::broker::{
    Act, Boxed, Capabilities, Check, Content, Coordinates, Extend, Faulty, Finding, Receive,
    Received, Settlement, Subscriber, Tag, failures,
};
use onceward_core::cloudevents::{self, Mode};
use onceward_core::{Envelope, Failure};
use tokio::time::{Instant, timeout_at};

use super::connect::Connector;
use super::options::NatsOptions;
use super::{CAPABILITIES, check};

/// How much longer a receive may take than the server was told, so that its own end comes first.
const RECEIVE_MARGIN: Duration = Duration::from_secs(2);

/// Receives from a stream through a consumer.
pub struct NatsSubscriber {
    connector: Connector,
    incoming: tokio::sync::Mutex<Incoming>,
    tags: AtomicU64,
    /// How what is out is settled.
    out: Mutex<BTreeMap<Tag, Arc<Acker>>>,
}

/// What comes for a request, and what came and was not received yet: whoever asked may have gone.
#[derive(Default)]
struct Incoming {
    request: Option<(pull::Batch, Instant)>,
    waiting: VecDeque<jetstream::Message>,
}

impl Incoming {
    /// Waits until the request is over; whether the first message is larger than was asked for.
    /// Dropped at a wait, what has come stays in `waiting`.
    async fn fill(&mut self, address: &str) -> Result<bool, Failure> {
        while let Some((batch, until)) = &mut self.request {
            let ended = match timeout_at(*until, batch.next()).await {
                Ok(Some(Ok(message))) => {
                    self.waiting.push_back(message);
                    continue;
                }
                Ok(Some(Err(error))) if error.to_string().contains("Exceeds MaxBytes") => Ok(true),
                // What has come is worth more than why no more did.
                Ok(Some(Err(error))) if self.waiting.is_empty() => {
                    Err(failures::cut(address).with_source(error))
                }
                Ok(Some(Err(_)) | None) | Err(_) => Ok(false),
            };
            self.request = None;
            return ended;
        }
        Ok(false)
    }

    /// What has come, as far as it is asked for.
    fn take(&mut self, request: Receive) -> Vec<jetstream::Message> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(message) = self.waiting.front() {
            bytes += bytes_of(message);
            let is_full = taken.len() >= request.messages_max as usize;
            if is_full || (!taken.is_empty() && bytes > request.bytes_max) {
                break;
            }
            taken.extend(self.waiting.pop_front());
        }
        taken
    }
}

impl std::fmt::Debug for NatsSubscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsSubscriber")
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}

impl NatsSubscriber {
    /// Connects when it is first used.
    #[must_use]
    pub fn new(options: NatsOptions) -> Self {
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

    /// The consumer; made where the stream is declared here and it is not there.
    async fn consumer(&self) -> Result<PullConsumer, Failure> {
        let connection = self.connector.connection().await?;
        let options = &self.connector.options;
        let refused = |error: Box<dyn std::error::Error + Send + Sync>| {
            let (stream, name) = (&options.stream, &options.consumer);
            let text = format!("consumer {name} of stream {stream} cannot be used");
            failures::refused(&text).with_source(error)
        };
        let stream = connection
            .jetstream
            .get_stream_no_info(&options.stream)
            .await;
        let stream = stream.map_err(|error| refused(error.into()))?;
        if options.declare.is_empty() {
            return stream
                .get_consumer(&options.consumer)
                .await
                .map_err(refused);
        }
        let config = pull::Config {
            durable_name: Some(options.consumer.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: Duration::from_millis(options.ack_wait_ms),
            // Who gives up is the budget of the subscription, which keeps the message.
            max_deliver: -1,
            ..pull::Config::default()
        };
        let made = stream
            .get_or_create_consumer(&options.consumer, config)
            .await;
        made.map_err(|error| refused(error.into()))
    }

    /// Asks for messages and waits until no more come for it; see [`Incoming::fill`].
    async fn fetch(
        &self,
        incoming: &mut Incoming,
        messages_max: u32,
        bytes_max: Option<u64>,
        wait: Duration,
    ) -> Result<bool, Failure> {
        let timeout = self.connector.timeout();
        let address = self.connector.address();
        let asking = async {
            let consumer = self.consumer().await?;
            let mut request = consumer
                .fetch()
                .max_messages(messages_max as usize)
                .expires(wait);
            if let Some(bytes) = bytes_max {
                // The server's number is signed.
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                request = request.max_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            let batch = request.messages().await;
            batch.map_err(|error| failures::refused("it gives no messages").with_source(error))
        };
        let batch = tokio::time::timeout(timeout, asking).await;
        let batch = batch.map_err(|_| failures::unconnected(&address))??;
        incoming.request = Some((batch, Instant::now() + wait + RECEIVE_MARGIN));
        incoming.fill(&address).await
    }

    async fn receive_some(&self, request: Receive) -> Result<Vec<Received>, Failure> {
        let wait = Duration::from_millis(request.wait_ms.max(1));
        let mut incoming = self.incoming.lock().await;
        // What was asked for by somebody who has gone comes first.
        let mut is_larger = incoming.fill(&self.connector.address()).await?;
        if incoming.waiting.is_empty() && !is_larger {
            let (messages_max, bytes_max) = (request.messages_max, Some(request.bytes_max));
            let fetching = self.fetch(&mut incoming, messages_max, bytes_max, wait);
            is_larger = fetching.await?;
        }
        if incoming.waiting.is_empty() && is_larger {
            self.fetch(&mut incoming, 1, None, wait).await?;
        }
        let messages = incoming.take(request).into_iter();
        let received = messages.filter_map(|message| self.received(message));
        Ok(received.collect())
    }

    /// Everything, in the order in which it came.
    async fn give_all_back(&self) {
        let mut incoming = self.incoming.lock().await;
        // Were it cut off, nobody would have what is on the way.
        let _ = incoming.fill(&self.connector.address()).await;
        let out = std::mem::take(&mut *self.out()).into_values();
        let waiting = incoming.waiting.drain(..);
        let all = out.chain(waiting.map(|message| Arc::new(message.split().1)));
        let all: Vec<Arc<Acker>> = all.collect();
        if all.is_empty() {
            return;
        }
        let giving = async {
            for acker in all {
                // What it does not hear of comes again after its time.
                let _ = acker.ack_with(AckKind::Nak(None)).await;
            }
            if let Ok(connection) = self.connector.connection().await {
                let _ = connection.client.flush().await;
            }
        };
        let _ = tokio::time::timeout(self.connector.timeout(), giving).await;
    }

    /// None for what did not come from the stream.
    fn received(&self, message: jetstream::Message) -> Option<Received> {
        let info = message.info().ok()?;
        let delivery_count = u32::try_from(info.delivered).ok();
        // A stream that is made anew begins at 1 again: with its time a place is one of a kind.
        let (sequence, published) = (info.stream_sequence, info.published);
        let place = Some(format!("{sequence}-{}", published.unix_timestamp_nanos()));
        let topic = message.subject.to_string();
        let coordinates = Coordinates::new("nats", info.stream, topic, place);
        let bytes = bytes_of(&message);
        let (message, acker) = message.split();
        let headers = message.headers.unwrap_or_default();
        let tag = Tag(self.tags.fetch_add(1, Ordering::Relaxed));
        self.out().insert(tag, Arc::new(acker));
        Some(Received {
            tag,
            delivery_count,
            bytes,
            content: content(&headers, &message.payload, &coordinates),
            coordinates,
        })
    }

    async fn settle_one(&self, settlement: Settlement) -> Result<(), Failure> {
        let acker = self.out().remove(&settlement.tag);
        let acker = acker.ok_or_else(|| failures::refused("no such delivery is out"))?;
        let address = self.connector.address();
        let acking = async {
            match settlement.act {
                // With the server's own word: without it, it comes again.
                Act::Done => acker.double_ack().await,
                Act::Again { delay_ms: 0 } | Act::HandBack => {
                    acker.ack_with(AckKind::Nak(None)).await
                }
                Act::Again { delay_ms } => {
                    let delay = Duration::from_millis(delay_ms);
                    acker.ack_with(AckKind::Nak(Some(delay))).await
                }
            }
        };
        match tokio::time::timeout(self.connector.timeout(), acking).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failures::cut(&address).with_source(error)),
            Err(_) => Err(failures::unconfirmed(
                &address,
                self.connector.options.connect_timeout_ms,
            )),
        }
    }

    async fn extend_all(&self, tags: &[Tag]) -> Result<(), Failure> {
        let address = self.connector.address();
        for tag in tags {
            let acker = self.out().get(tag).cloned();
            let Some(acker) = acker else { continue };
            let asking = acker.ack_with(AckKind::Progress);
            match tokio::time::timeout(self.connector.timeout(), asking).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(failures::cut(&address).with_source(error)),
                Err(_) => return Err(failures::unconnected(&address)),
            }
        }
        Ok(())
    }
}

impl Subscriber for NatsSubscriber {
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

    fn extend<'a>(&'a self, extend: Extend<'a>) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(self.extend_all(extend.tags))
    }

    fn give_back(&self) -> Boxed<'_, ()> {
        Box::pin(self.give_all_back())
    }

    fn check<'a>(&'a self, request: Check<'a>) -> Boxed<'a, Vec<Finding>> {
        Box::pin(async move {
            // Makes the consumer where that is wanted; whether it went well is found below.
            let _ = tokio::time::timeout(self.connector.timeout(), self.consumer()).await;
            let connection = self.connector.connection().await;
            check::receiving(&self.connector, connection, request).await
        })
    }
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers.iter().flat_map(|(name, values)| {
        values
            .iter()
            .map(move |value| (name.as_ref(), value.as_str()))
    })
}

fn bytes_of(message: &jetstream::Message) -> u64 {
    let headers = message.headers.iter().flat_map(pairs);
    let headers = headers.map(|(name, value)| name.len() + value.len());
    (headers.sum::<usize>() + message.payload.len()) as u64
}

fn content(headers: &HeaderMap, payload: &[u8], coordinates: &Coordinates) -> Content {
    let find = |wanted: &str| {
        let found = pairs(headers).find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value)
    };
    let content_type = find("content-type");
    let event: fn(Box<Envelope>) -> Content = Content::Event;
    let (read, kind) = match Mode::of(content_type, find("ce-specversion").is_some()) {
        Some(Mode::Structured) => (cloudevents::from_structured(payload), event),
        Some(Mode::Binary) => {
            let headers = pairs(headers).map(|(name, value)| (name, value.as_bytes()));
            (cloudevents::from_binary(headers, payload), event)
        }
        // A batch is another program's business: one message is one message here.
        Some(Mode::Batch) | None => {
            let foreign = coordinates.foreign(find("Nats-Msg-Id"), content_type, payload);
            (foreign, Content::Foreign as fn(Box<Envelope>) -> Content)
        }
    };
    let faulty = |fault| Faulty::content(fault, payload);
    read.map_or_else(faulty, |envelope| kind(Box::new(envelope)))
}
