//! Receiving through a durable pull consumer.

use std::collections::BTreeMap;
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

use super::connect::Connector;
use super::options::NatsOptions;
use super::{CAPABILITIES, check};

/// How much longer a receive may take than the server was told, so that its own end comes first.
const RECEIVE_MARGIN: Duration = Duration::from_secs(2);

/// Receives from a stream through a consumer.
pub struct NatsSubscriber {
    connector: Connector,
    tags: AtomicU64,
    /// How what is out is settled.
    out: Mutex<BTreeMap<Tag, Arc<Acker>>>,
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

    /// One request; the messages that came before its end, and whether the first one is larger
    /// than was asked for.
    async fn fetch(
        &self,
        consumer: &PullConsumer,
        messages_max: u32,
        bytes_max: Option<u64>,
        wait: Duration,
    ) -> Result<(Vec<jetstream::Message>, bool), Failure> {
        let mut request = consumer
            .fetch()
            .max_messages(messages_max as usize)
            .expires(wait);
        if let Some(bytes) = bytes_max {
            request = request.max_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        let address = self.connector.address();
        let mut messages = Vec::new();
        let fetching = async {
            let mut batch = request
                .messages()
                .await
                .map_err(|error| failures::refused("it gives no messages").with_source(error))?;
            while let Some(message) = batch.next().await {
                match message {
                    Ok(message) => messages.push(message),
                    Err(error) if error.to_string().contains("Exceeds MaxBytes") => {
                        return Ok(true);
                    }
                    // What has come is worth more than why no more did.
                    Err(error) if messages.is_empty() => {
                        return Err(failures::cut(&address).with_source(error));
                    }
                    Err(_) => break,
                }
            }
            Ok(false)
        };
        let fetched = tokio::time::timeout(wait + RECEIVE_MARGIN, fetching).await;
        let is_larger = match fetched {
            Ok(fetched) => fetched?,
            Err(_) => false,
        };
        Ok((messages, is_larger))
    }

    async fn receive_some(&self, request: Receive) -> Result<Vec<Received>, Failure> {
        let timeout = self.connector.timeout();
        let consumer = tokio::time::timeout(timeout, self.consumer()).await;
        let consumer = consumer.map_err(|_| failures::unconnected(&self.connector.address()))??;
        let wait = Duration::from_millis(request.wait_ms.max(1));
        let bytes_max = Some(request.bytes_max);
        let (mut messages, is_larger) = self
            .fetch(&consumer, request.messages_max, bytes_max, wait)
            .await?;
        if messages.is_empty() && is_larger {
            (messages, _) = self.fetch(&consumer, 1, None, wait).await?;
        }
        let received = messages.into_iter().map(|message| self.received(message));
        received.collect()
    }

    fn received(&self, message: jetstream::Message) -> Result<Received, Failure> {
        let info = message.info().map_err(|error| {
            failures::refused("a delivery says nothing of itself").with_source(error)
        })?;
        let delivery_count = u32::try_from(info.delivered).ok();
        let place = Some(info.stream_sequence.to_string());
        let topic = message.subject.to_string();
        let coordinates = Coordinates::new("nats", info.stream, topic, place);
        let (message, acker) = message.split();
        let headers = message.headers.unwrap_or_default();
        let tag = Tag(self.tags.fetch_add(1, Ordering::Relaxed));
        self.out().insert(tag, Arc::new(acker));
        Ok(Received {
            tag,
            delivery_count,
            bytes: (bytes_of(&headers) + message.payload.len()) as u64,
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

fn bytes_of(headers: &HeaderMap) -> usize {
    pairs(headers)
        .map(|(name, value)| name.len() + value.len())
        .sum()
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
