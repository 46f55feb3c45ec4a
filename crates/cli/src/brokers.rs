//! The brokers of this build.

use std::sync::Arc;

use onceward_core::broker::{Publisher, Subscriber};

use crate::config::{BrokerConfig, IntakeConfig};
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
use crate::config::{BrokerKind, BrokerUrl};
use crate::error::{Code, Error};

/// A publisher to a broker. It connects when there is something to publish.
///
/// # Errors
/// When this build has no such broker, and when the address cannot be read or used.
pub(crate) fn publisher(name: &str, config: &BrokerConfig) -> Result<Arc<dyn Publisher>, Error> {
    match &config.kind {
        #[cfg(feature = "nats")]
        BrokerKind::Nats { stream, subjects } => {
            let options = nats(name, config, stream, subjects)?;
            Ok(Arc::new(onceward_brokers::nats::NatsPublisher::new(
                options,
            )))
        }
        #[cfg(feature = "rabbitmq")]
        BrokerKind::RabbitMq {
            exchange,
            declare,
            message_bytes_max,
        } => {
            let exchange = exchange.as_deref();
            let options = rabbitmq(name, config, exchange, *declare, *message_bytes_max)?;
            Ok(Arc::new(onceward_brokers::rabbitmq::RabbitPublisher::new(
                options,
            )))
        }
        #[cfg(not(all(feature = "nats", feature = "rabbitmq")))]
        _ => Err(not_in_this_build(name, config)),
    }
}

/// A subscriber to what a broker's intake says. It connects when it is asked for messages.
///
/// # Errors
/// As for [`publisher`].
pub(crate) fn subscriber(
    name: &str,
    config: &BrokerConfig,
    intake: &IntakeConfig,
) -> Result<Arc<dyn Subscriber>, Error> {
    match &config.kind {
        #[cfg(feature = "nats")]
        BrokerKind::Nats { stream, subjects } => {
            let mut options = nats(name, config, stream, subjects)?;
            options.consumer.clone_from(&intake.from);
            if let Some(ack_wait_ms) = intake.ack_wait_ms {
                options.ack_wait_ms = ack_wait_ms;
            }
            Ok(Arc::new(onceward_brokers::nats::NatsSubscriber::new(
                options,
            )))
        }
        #[cfg(feature = "rabbitmq")]
        BrokerKind::RabbitMq {
            exchange,
            declare,
            message_bytes_max,
        } => {
            let exchange = exchange.as_deref();
            let mut options = rabbitmq(name, config, exchange, *declare, *message_bytes_max)?;
            options.queue.clone_from(&intake.from);
            options.bindings.clone_from(&intake.bindings);
            // While some are taken in, the next are on their way.
            options.prefetch = u16::try_from(intake.prefetch * 2).unwrap_or(u16::MAX);
            Ok(Arc::new(onceward_brokers::rabbitmq::RabbitSubscriber::new(
                options,
            )))
        }
        #[cfg(not(all(feature = "nats", feature = "rabbitmq")))]
        _ => {
            let _ = intake;
            Err(not_in_this_build(name, config))
        }
    }
}

#[cfg(any(feature = "nats", feature = "rabbitmq"))]
fn url_of(config: &BrokerConfig) -> Result<String, Error> {
    match &config.url {
        BrokerUrl::Plain(url) => Ok(url.clone()),
        BrokerUrl::Secret(source) => Ok(source.read()?.reveal().to_owned()),
    }
}

#[cfg(feature = "nats")]
fn nats(
    name: &str,
    config: &BrokerConfig,
    stream: &str,
    subjects: &[String],
) -> Result<onceward_brokers::nats::NatsOptions, Error> {
    use onceward_brokers::nats::NatsOptions;

    let options = NatsOptions::new(&url_of(config)?, stream);
    let mut options = options.map_err(|error| unusable(name, &error))?;
    options.declare = subjects.to_vec();
    options.layout = config.layout;
    options.ca_file.clone_from(&config.ca_file);
    options.connect_timeout_ms = config.connect_timeout_ms;
    Ok(options)
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq(
    name: &str,
    config: &BrokerConfig,
    exchange: Option<&str>,
    declares: bool,
    message_bytes_max: Option<u64>,
) -> Result<onceward_brokers::rabbitmq::RabbitOptions, Error> {
    use onceward_brokers::rabbitmq::RabbitOptions;

    let options = RabbitOptions::new(&url_of(config)?, exchange.unwrap_or_default());
    let mut options = options.map_err(|error| unusable(name, &error))?;
    options.declares = declares;
    options.layout = config.layout;
    options.ca_file.clone_from(&config.ca_file);
    options.connect_timeout_ms = config.connect_timeout_ms;
    if let Some(bytes) = message_bytes_max {
        options.message_bytes_max = bytes;
    }
    Ok(options)
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
