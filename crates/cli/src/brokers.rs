//! The brokers of this build.

use std::sync::Arc;

use onceward_core::broker::Publisher;

use crate::config::{BrokerConfig, BrokerKind, BrokerUrl};
use crate::error::{Code, Error};

/// A publisher to a broker. It connects when there is something to publish.
///
/// # Errors
/// When this build has no such broker, and when the address cannot be read or used.
pub(crate) fn publisher(name: &str, config: &BrokerConfig) -> Result<Arc<dyn Publisher>, Error> {
    let url = match &config.url {
        BrokerUrl::Plain(url) => url.clone(),
        BrokerUrl::Secret(source) => source.read()?.reveal().to_owned(),
    };
    match &config.kind {
        BrokerKind::Nats { stream, subjects } => nats(name, config, &url, stream, subjects),
        BrokerKind::RabbitMq {
            exchange,
            declare,
            message_bytes_max,
        } => rabbitmq(name, config, &url, exchange, *declare, *message_bytes_max),
    }
}

#[cfg(feature = "nats")]
fn nats(
    name: &str,
    config: &BrokerConfig,
    url: &str,
    stream: &str,
    subjects: &[String],
) -> Result<Arc<dyn Publisher>, Error> {
    use onceward_brokers::nats::{NatsOptions, NatsPublisher};

    let mut options = NatsOptions::new(url, stream).map_err(|error| unusable(name, &error))?;
    options.declare = subjects.to_vec();
    options.layout = config.layout;
    options.ca_file.clone_from(&config.ca_file);
    options.connect_timeout_ms = config.connect_timeout_ms;
    Ok(Arc::new(NatsPublisher::new(options)))
}

#[cfg(not(feature = "nats"))]
fn nats(
    name: &str,
    config: &BrokerConfig,
    _: &str,
    _: &str,
    _: &[String],
) -> Result<Arc<dyn Publisher>, Error> {
    Err(not_in_this_build(name, config))
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq(
    name: &str,
    config: &BrokerConfig,
    url: &str,
    exchange: &str,
    declare: bool,
    message_bytes_max: Option<u64>,
) -> Result<Arc<dyn Publisher>, Error> {
    use onceward_brokers::rabbitmq::{RabbitOptions, RabbitPublisher};

    let mut options = RabbitOptions::new(url, exchange).map_err(|error| unusable(name, &error))?;
    options.declares = declare;
    options.layout = config.layout;
    options.ca_file.clone_from(&config.ca_file);
    options.connect_timeout_ms = config.connect_timeout_ms;
    if let Some(bytes) = message_bytes_max {
        options.message_bytes_max = bytes;
    }
    Ok(Arc::new(RabbitPublisher::new(options)))
}

#[cfg(not(feature = "rabbitmq"))]
fn rabbitmq(
    name: &str,
    config: &BrokerConfig,
    _: &str,
    _: &str,
    _: bool,
    _: Option<u64>,
) -> Result<Arc<dyn Publisher>, Error> {
    Err(not_in_this_build(name, config))
}

#[cfg(any(feature = "nats", feature = "rabbitmq"))]
fn unusable(name: &str, error: &onceward_brokers::AddressError) -> Error {
    // What it says quotes nothing of the address.
    Error::new(
        Code::Broker,
        format!("the address of broker {name} {error}"),
    )
}

#[cfg(not(all(feature = "nats", feature = "rabbitmq")))]
fn not_in_this_build(name: &str, config: &BrokerConfig) -> Error {
    let kind = config.kind.as_str();
    let message = format!(
        "broker {name} is a {kind}, which this build of onceward does not contain: build it with \
         --features {kind}, or with --features brokers for all of them"
    );
    Error::new(Code::Broker, message)
}
