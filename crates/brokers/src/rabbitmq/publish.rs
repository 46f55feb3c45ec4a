//! Publishing: all of a batch under way at once, and each message's own confirmation.

use std::time::Duration;

use futures_util::future::join_all;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm};
use onceward_core::broker::{
    self, Boxed, Capabilities, Check, Confirmed, Finding, Layout, Outgoing, Publish, Publisher,
    failures,
};
use onceward_core::cloudevents::{self, PROPERTY_PREFIX};
use onceward_core::{Envelope, Failure};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, short};
use super::options::RabbitOptions;
use super::{CAPABILITIES, check, error};

/// Largest block of properties in bytes: it has to fit into one frame, 128 KiB unless the server
/// says otherwise, with some room for what surrounds it.
const PROPERTIES_BYTES_MAX: u64 = 120 << 10;

/// Delivery mode of messages that are written to disk.
const PERSISTENT: u8 = 2;

/// Publishes to an exchange.
#[derive(Debug)]
pub struct RabbitPublisher {
    connector: Connector,
}

/// A message as it is sent.
struct Encoded {
    properties: BasicProperties,
    payload: Vec<u8>,
}

/// How far a message has come.
enum Step {
    Sent(PublisherConfirm),
    Ended(Result<Confirmed, Failure>),
    /// The broker refused one of the batch for a property of it, and says not which.
    Suspect,
}

impl RabbitPublisher {
    /// Connects when it is first used.
    #[must_use]
    pub fn new(options: RabbitOptions) -> Self {
        Self {
            connector: Connector::new(options),
        }
    }

    fn encode(&self, outgoing: &Outgoing<'_>) -> Result<Encoded, Failure> {
        let fault = |fault: cloudevents::EventFault| {
            // A fault names the place and quotes nothing.
            failures::unsendable(format!("no CloudEvent can be made of it: {fault}"))
        };
        let (mut headers, mut bytes) = (FieldTable::default(), 0);
        let (content_type, payload) = match self.connector.options.layout {
            Layout::Binary => {
                let event = cloudevents::to_properties(outgoing.envelope, outgoing.recorded_at);
                let event = event.map_err(fault)?;
                for (name, value) in event.attributes {
                    let name = short(&format!("{PROPERTY_PREFIX}{name}"))?;
                    bytes += name.as_str().len() + value.len() + 6;
                    headers.insert(name, AMQPValue::LongString(LongString::from(value)));
                }
                (event.content_type.map(str::to_owned), event.body.to_vec())
            }
            Layout::Structured => {
                let event = cloudevents::to_structured(outgoing.envelope, outgoing.recorded_at);
                let content_type = Some(cloudevents::STRUCTURED.to_owned());
                (content_type, event.map_err(fault)?.into_bytes())
            }
        };
        let sizes = [
            (bytes as u64, PROPERTIES_BYTES_MAX),
            (
                payload.len() as u64,
                self.connector.options.message_bytes_max,
            ),
        ];
        if let Some((bytes, max)) = sizes.into_iter().find(|(bytes, max)| bytes > max) {
            return Err(failures::too_large(bytes, max));
        }
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_headers(headers);
        if let Some(content_type) = content_type {
            properties = properties.with_content_type(short(&content_type)?);
        }
        // For programs that look there. What tells messages apart is among the headers.
        if let Some(id) = message_id(outgoing.envelope) {
            properties = properties.with_message_id(id);
        }
        Ok(Encoded {
            properties,
            payload,
        })
    }

    async fn publish_all(&self, batch: Publish<'_>) -> Vec<Result<Confirmed, Failure>> {
        let until = Instant::now() + Duration::from_millis(batch.timeout_ms);
        let steps = self
            .publish_together(batch.messages, batch.timeout_ms, until)
            .await;
        let mut outcomes = Vec::with_capacity(steps.len());
        for (step, outgoing) in steps.into_iter().zip(batch.messages) {
            outcomes.push(match step {
                Step::Ended(outcome) => outcome,
                Step::Sent(_) | Step::Suspect => {
                    self.publish_alone(outgoing, batch.timeout_ms, until).await
                }
            });
        }
        outcomes
    }

    /// One message on a channel that nothing else is under way on: what is said is said of it.
    async fn publish_alone(
        &self,
        outgoing: &Outgoing<'_>,
        timeout_ms: u64,
        until: Instant,
    ) -> Result<Confirmed, Failure> {
        let one = std::slice::from_ref(outgoing);
        match self.publish_together(one, timeout_ms, until).await.pop() {
            Some(Step::Ended(outcome)) => outcome,
            _ => Err(failures::unsendable(
                "the broker refuses it for its size or its properties",
            )),
        }
    }

    async fn publish_together(
        &self,
        messages: &[Outgoing<'_>],
        timeout_ms: u64,
        until: Instant,
    ) -> Vec<Step> {
        let failed = |failure: &Failure| {
            let alike = messages.iter().map(|_| Step::Ended(Err(failure.alike())));
            alike.collect::<Vec<_>>()
        };
        let (channel, number) = match timeout_at(until, self.connector.numbered()).await {
            Ok(Ok(numbered)) => numbered,
            Ok(Err(failure)) => return failed(&failure),
            Err(_) => return failed(&failures::unconnected(&self.address())),
        };
        let mut steps = Vec::with_capacity(messages.len());
        for outgoing in messages {
            steps.push(self.send(&channel, outgoing, timeout_ms, until).await);
        }
        let confirming = steps
            .into_iter()
            .zip(messages)
            .map(|(step, outgoing)| async {
                match step {
                    Step::Sent(confirm) => self.confirm(confirm, outgoing, timeout_ms, until).await,
                    ended => ended,
                }
            });
        let ended = join_all(confirming).await;
        if ended.iter().all(is_unconfirmed) {
            self.connector.give_up(number).await;
        }
        ended
    }

    async fn send(
        &self,
        channel: &Channel,
        outgoing: &Outgoing<'_>,
        timeout_ms: u64,
        until: Instant,
    ) -> Step {
        let prepared = self.encode(outgoing).and_then(|encoded| {
            let exchange = short(&self.connector.options.exchange)?;
            Ok::<_, Failure>((encoded, exchange, short(outgoing.topic)?))
        });
        let (encoded, exchange, key) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => return Step::Ended(Err(failure)),
        };
        let options = BasicPublishOptions {
            mandatory: true,
            immediate: false,
        };
        let Encoded {
            properties,
            payload,
        } = encoded;
        let sending = channel.basic_publish(exchange, key, options, &payload, properties);
        match timeout_at(until, sending).await {
            Ok(Ok(confirm)) => Step::Sent(confirm),
            Ok(Err(error)) => self.stopped(error),
            Err(_) => Step::Ended(Err(failures::unconfirmed(&self.address(), timeout_ms))),
        }
    }

    async fn confirm(
        &self,
        confirm: PublisherConfirm,
        outgoing: &Outgoing<'_>,
        timeout_ms: u64,
        until: Instant,
    ) -> Step {
        Step::Ended(match timeout_at(until, confirm).await {
            Ok(Ok(Confirmation::Ack(None))) => Ok(Confirmed::default()),
            Ok(Ok(Confirmation::Ack(Some(_)))) => Err(failures::unroutable(outgoing.topic)),
            Ok(Ok(Confirmation::Nack(_))) => {
                Err(failures::refused("a queue is full or could not store it"))
            }
            Ok(Ok(Confirmation::NotRequested)) => {
                Err(failures::refused("the channel gives no confirmations"))
            }
            Ok(Err(error)) => return self.stopped(error),
            Err(_) => Err(failures::unconfirmed(&self.address(), timeout_ms)),
        })
    }

    /// The channel or the connection has ended.
    fn stopped(&self, error: lapin::Error) -> Step {
        if error::is_precondition(&error) {
            return Step::Suspect;
        }
        Step::Ended(Err(error::of(
            &self.address(),
            error,
            "the broker does not take it",
        )))
    }
}

impl Publisher for RabbitPublisher {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            message_bytes_max: Some(self.connector.options.message_bytes_max),
            ..CAPABILITIES
        }
    }

    fn address(&self) -> String {
        self.connector.address()
    }

    fn publish<'a>(&'a self, batch: Publish<'a>) -> Boxed<'a, Vec<Result<Confirmed, Failure>>> {
        Box::pin(self.publish_all(batch))
    }

    fn check<'a>(&'a self, request: Check<'a>) -> Boxed<'a, Vec<Finding>> {
        Box::pin(check::publishing(&self.connector, request))
    }

    fn close(&self) -> Boxed<'_, ()> {
        Box::pin(self.connector.close())
    }
}

fn is_unconfirmed(step: &Step) -> bool {
    matches!(step, Step::Ended(Err(failure)) if failure.code() == broker::UNCONFIRMED)
}

fn message_id(envelope: &Envelope) -> Option<lapin::types::ShortString> {
    short(&envelope.id).ok()
}
