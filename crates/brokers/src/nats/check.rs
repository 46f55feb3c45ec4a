//! What is looked at before anything is sent or received.

use async_nats::jetstream::context::GetStreamByNameError;
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use onceward_core::Failure;
use onceward_core::broker::{Check, Finding};

use super::connect::{Connection, Connector};

/// Whether a look for a stream says that there is none, and not that nobody answered.
pub(super) fn is_none_found(error: &GetStreamByNameError) -> bool {
    matches!(error.kind(), GetStreamByNameErrorKind::NotFound)
}

pub(super) async fn publishing(
    connector: &Connector,
    connection: Result<Connection, Failure>,
    check: Check<'_>,
) -> Vec<Finding> {
    let (mut findings, connection) = match begin(connector, connection, check).await {
        Ok(begun) => begun,
        Err(findings) => return findings,
    };
    for topic in check.topics {
        let what = format!("subject {topic}");
        findings.push(match connection.jetstream.stream_by_subject(topic).await {
            Ok(name) if name == connector.options.stream => {
                Finding::good(what, format!("goes to stream {name}"))
            }
            Ok(name) => Finding::bad(
                what,
                format!(
                    "goes to stream {name} and not to {}",
                    connector.options.stream
                ),
                "name that stream, or another subject",
            ),
            Err(error) => Finding::bad(
                what,
                format!("no stream takes it: {error}"),
                format!(
                    "add it to the subjects of stream {}",
                    connector.options.stream
                ),
            ),
        });
    }
    findings
}

pub(super) async fn receiving(
    connector: &Connector,
    connection: Result<Connection, Failure>,
    check: Check<'_>,
) -> Vec<Finding> {
    let (mut findings, connection) = match begin(connector, connection, check).await {
        Ok(begun) => begun,
        Err(findings) => return findings,
    };
    let (stream, consumer) = (&connector.options.stream, &connector.options.consumer);
    let what = format!("consumer {consumer}");
    let found = connection
        .jetstream
        .get_consumer_from_stream::<async_nats::jetstream::consumer::pull::Config, _, _>(
            consumer, stream,
        )
        .await;
    findings.push(match found {
        Ok(found) => {
            let deliveries_max = found.cached_info().config.max_deliver;
            match deliveries_max {
                ..=0 => Finding::good(what, "delivers for as long as it takes"),
                max => Finding::bad(
                    what,
                    format!("gives up after {max} deliveries: what is left then goes nowhere"),
                    "set its max_deliver to -1; the subscription's own budget decides",
                ),
            }
        }
        Err(error) => Finding::bad(
            what,
            format!("is not there: {error}"),
            format!("make a durable pull consumer of stream {stream}, or let it be declared"),
        ),
    });
    findings
}

/// Connection and stream.
async fn begin(
    connector: &Connector,
    connection: Result<Connection, Failure>,
    _: Check<'_>,
) -> Result<(Vec<Finding>, Connection), Vec<Finding>> {
    let what = format!("connection to {}", connector.address());
    let connection = connection.map_err(|failure| {
        let remedy = "start the server, or correct address, credentials and certificates";
        vec![Finding::bad(what.clone(), failure.to_string(), remedy)]
    })?;
    let version = connection.client.server_info().version;
    let mut findings = vec![Finding::good(what, format!("stands, NATS {version}"))];
    let stream = &connector.options.stream;
    let what = format!("stream {stream}");
    match connection.jetstream.get_stream(stream).await {
        Ok(found) => {
            let config = &found.cached_info().config;
            let says = format!(
                "is there, duplicate window {} s, subjects {}",
                config.duplicate_window.as_secs(),
                config.subjects.join(", ")
            );
            findings.push(Finding::good(what, says));
            Ok((findings, connection))
        }
        Err(error) => {
            let remedy = "make it, or let it be declared; JetStream has to be on (-js)";
            findings.push(Finding::bad(what, format!("is not there: {error}"), remedy));
            Err(findings)
        }
    }
}
