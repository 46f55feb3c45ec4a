//! Publishing: all of a batch under way at once, and each message's own confirmation.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishAckFuture, PublishErrorKind};
use bytes::Bytes;
use futures_util::future::join_all;
use onceward_core::broker::{
    self, Boxed, Capabilities, Check, Confirmed, Finding, Layout, Outgoing, Publish, Publisher,
    failures,
};
use onceward_core::{Failure, cloudevents};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connection, Connector};
use super::options::NatsOptions;
use super::{CAPABILITIES, check, error};

/// The beginning of a block of headers, and its end.
const HEADERS_FRAME_BYTES: usize = "NATS/1.0\r\n\r\n".len();

/// Publishes to a stream.
#[derive(Debug)]
pub struct NatsPublisher {
    connector: Connector,
    /// What the server said last; its own default before.
    message_bytes_max: std::sync::atomic::AtomicU64,
}

/// A message as it is sent.
struct Encoded {
    headers: HeaderMap,
    payload: Bytes,
}

impl NatsPublisher {
    /// Connects when it is first used.
    #[must_use]
    pub fn new(options: NatsOptions) -> Self {
        let default = CAPABILITIES.message_bytes_max.unwrap_or(u64::MAX);
        Self {
            connector: Connector::new(options),
            message_bytes_max: default.into(),
        }
    }

    async fn connection(&self) -> Result<Connection, Failure> {
        let connection = self.connector.connection().await?;
        let max = connection.client.server_info().max_payload as u64;
        self.message_bytes_max
            .store(max, std::sync::atomic::Ordering::Relaxed);
        Ok(connection)
    }

    fn encode(&self, outgoing: &Outgoing<'_>) -> Result<Encoded, Failure> {
        check_subject(outgoing.topic)?;
        let fault = |fault: cloudevents::EventFault| {
            // A fault names the place and quotes nothing.
            failures::unsendable(format!("no CloudEvent can be made of it: {fault}"))
        };
        let mut headers = HeaderMap::new();
        let mut bytes = HEADERS_FRAME_BYTES;
        let mut add = |name: &str, value: &str| {
            bytes += name.len() + value.len() + ": \r\n".len();
            headers.append(name, value);
        };
        add("Nats-Msg-Id", &broker::name_of(outgoing.envelope));
        add("Nats-Expected-Stream", &self.connector.options.stream);
        let payload = match self.connector.options.layout {
            Layout::Binary => {
                let event = cloudevents::to_binary(outgoing.envelope, outgoing.recorded_at);
                let event = event.map_err(fault)?;
                for (name, value) in &event.headers {
                    add(name, value);
                }
                Bytes::copy_from_slice(event.body)
            }
            Layout::Structured => {
                let event = cloudevents::to_structured(outgoing.envelope, outgoing.recorded_at);
                add("content-type", cloudevents::STRUCTURED);
                Bytes::from(event.map_err(fault)?)
            }
        };
        let (bytes, max) = ((bytes + payload.len()) as u64, self.bytes_max());
        if bytes > max {
            return Err(failures::too_large(bytes, max));
        }
        Ok(Encoded { headers, payload })
    }

    fn bytes_max(&self) -> u64 {
        self.message_bytes_max
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    async fn publish_all(&self, batch: Publish<'_>) -> Vec<Result<Confirmed, Failure>> {
        let until = Instant::now() + Duration::from_millis(batch.timeout_ms);
        let connection = match timeout_at(until, self.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(failure)) => return all_alike(batch, &failure),
            Err(_) => return all_alike(batch, &failures::unconnected(&self.address())),
        };
        let mut under_way = Vec::with_capacity(batch.messages.len());
        for outgoing in batch.messages {
            under_way.push(
                self.send(&connection, outgoing, batch.timeout_ms, until)
                    .await,
            );
        }
        let confirming = under_way.into_iter().zip(batch.messages);
        let confirming = confirming.map(|(sent, outgoing)| async {
            self.confirm(&connection, outgoing, sent?, batch.timeout_ms, until)
                .await
        });
        join_all(confirming).await
    }

    /// Hands a message to the client, in the order of the batch.
    async fn send(
        &self,
        connection: &Connection,
        outgoing: &Outgoing<'_>,
        timeout_ms: u64,
        until: Instant,
    ) -> Result<PublishAckFuture, Failure> {
        let Encoded { headers, payload } = self.encode(outgoing)?;
        let topic = outgoing.topic.to_owned();
        let sending = connection
            .jetstream
            .publish_with_headers(topic, headers, payload);
        match timeout_at(until, sending).await {
            Ok(Ok(sent)) => Ok(sent),
            Ok(Err(error)) => Err(error::of_publish(&self.address(), timeout_ms, error)),
            Err(_) => Err(failures::unconfirmed(&self.address(), timeout_ms)),
        }
    }

    async fn confirm(
        &self,
        connection: &Connection,
        outgoing: &Outgoing<'_>,
        sent: PublishAckFuture,
        timeout_ms: u64,
        until: Instant,
    ) -> Result<Confirmed, Failure> {
        let error = match timeout_at(until, sent).await {
            Ok(Ok(ack)) => {
                return Ok(Confirmed {
                    is_duplicate: ack.duplicate,
                });
            }
            Ok(Err(error)) => error,
            Err(_) => return Err(failures::unconfirmed(&self.address(), timeout_ms)),
        };
        if error.kind() == PublishErrorKind::StreamNotFound {
            return Err(self.nobody(connection, outgoing.topic, until).await);
        }
        Err(error::of_publish(&self.address(), timeout_ms, error))
    }

    /// Nobody answered for a subject. While a server starts nobody does for any, so only what the
    /// list of streams says counts.
    async fn nobody(&self, connection: &Connection, topic: &str, until: Instant) -> Failure {
        let looking = connection.jetstream.stream_by_subject(topic);
        match timeout_at(until, looking).await {
            Ok(Err(error)) if check::is_none_found(&error) => failures::unroutable(topic),
            _ => failures::refused("no stream answers"),
        }
    }
}

impl Publisher for NatsPublisher {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            message_bytes_max: Some(self.bytes_max()),
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
        Box::pin(async move {
            let connection = self.connection().await;
            check::publishing(&self.connector, connection, request).await
        })
    }

    fn close(&self) -> Boxed<'_, ()> {
        Box::pin(self.connector.close())
    }
}

/// The same failure for each message.
fn all_alike(batch: Publish<'_>, failure: &Failure) -> Vec<Result<Confirmed, Failure>> {
    batch
        .messages
        .iter()
        .map(|_| Err(failure.alike()))
        .collect()
}

/// Whether messages can be published to a subject: tokens between dots, without wildcards.
fn check_subject(subject: &str) -> Result<(), Failure> {
    let is_good = |token: &str| {
        let is_bad = |c: char| c.is_whitespace() || c.is_control() || "*>".contains(c);
        !token.is_empty() && !token.contains(is_bad)
    };
    if subject.split('.').all(is_good) {
        return Ok(());
    }
    let text =
        format!("{subject:?} is no subject of NATS: it has an empty token, a blank or a wildcard");
    Err(failures::unsendable(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_checked_before_they_are_sent() {
        for good in ["a", "shop.order.accepted", "é.$x"] {
            assert!(check_subject(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "a..b",
            ".a",
            "a.",
            "a b",
            "a.*",
            "a.>",
            "a\r\nPUB x",
            "a\0",
        ] {
            let failure = check_subject(bad).unwrap_err();
            assert_eq!(failure.code(), broker::UNSENDABLE, "{bad:?}");
        }
    }
}
