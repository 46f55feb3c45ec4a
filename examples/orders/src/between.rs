//! The same example as two services, each with a store of its own, and a broker between them: orders
//! go to fulfilment, how they ended comes back to the shop.

use std::fmt;
use std::sync::Arc;

use onceward::core::broker::{Check, Publisher, Subscriber, Topic};
use onceward::core::store::Store;
use onceward::intake::{Intake, IntakeOptions};
use onceward::relay::{Relay, RelayOptions};
use onceward::{Message, Semantics, Start, Subscription};
use serde::{Deserialize, Serialize};

use crate::fulfilment::retry;
use crate::message::{FulfillmentRejected, OrderAccepted, ShipmentCreated};

/// Names the broker's address, which may hold a password.
pub const BROKER_URL_VARIABLE: &str = "ONCEWARD_DEMO_BROKER_URL";

/// Most messages that are taken in by one transaction: what a process that dies had in hand comes
/// again, so let it not be much.
const BATCH: u32 = 50;

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum BrokerKind {
    /// NATS JetStream.
    Nats,
    /// RabbitMQ.
    #[value(name = "rabbitmq")]
    RabbitMq,
}

impl BrokerKind {
    /// As it is written, which is also the name of the feature that it needs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::RabbitMq => "rabbitmq",
        }
    }

    /// Whether this build has it.
    #[must_use]
    pub const fn is_there(self) -> bool {
        match self {
            Self::Nats => cfg!(feature = "nats"),
            Self::RabbitMq => cfg!(feature = "rabbitmq"),
        }
    }
}

/// Which of the two services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Side {
    /// Sends orders, takes in how they ended, keeps the order book.
    Shop,
    /// Takes orders in, books them, sends how they ended.
    Fulfilment,
}

impl Side {
    /// What comes to it: the name of its queue or stream, and of its intake.
    #[must_use]
    pub const fn incoming(self) -> &'static str {
        match self {
            Self::Shop => "outcomes",
            Self::Fulfilment => "orders",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Shop => Self::Fulfilment,
            Self::Fulfilment => Self::Shop,
        }
    }
}

/// The broker between the services.
#[derive(Clone)]
pub struct Between {
    /// Which.
    pub kind: BrokerKind,
    /// Its address; may hold a password.
    pub url: String,
    /// What the names of its streams, queues and exchanges begin with, so that runs do not meet.
    pub prefix: String,
}

/// Without the address.
impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Between")
            .field("kind", &self.kind)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why the broker cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BetweenError {
    /// Its adapter is not compiled in.
    #[error("this build has no {}: build it with --features {}", .0.as_str(), .0.as_str())]
    NotInThisBuild(BrokerKind),
    /// Its address.
    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    #[error("the address of the broker {0}")]
    Address(#[from] onceward_brokers::AddressError),
    /// Something that is needed is missing there.
    #[error("{0}")]
    NotReady(String),
}

impl Between {
    /// Takes messages in for a service.
    ///
    /// # Errors
    /// When this build has no such broker, or the address is none.
    pub fn intake(&self, side: Side) -> Result<Intake, BetweenError> {
        let mut options = IntakeOptions::default();
        options.batch_messages_max = BATCH;
        let subscriber = self.subscriber(side.incoming())?;
        Ok(Intake::new(side.incoming(), subscriber, options))
    }

    /// Sends what a service says to the other one.
    ///
    /// # Errors
    /// As for [`intake`](Self::intake).
    pub fn relay<S: Store>(&self, side: Side) -> Result<Subscription<S>, BetweenError> {
        let towards = side.other().incoming();
        let mut options = RelayOptions::default();
        // The default topic is the aggregate's type; here everything of one direction goes one way.
        let prefix = &self.prefix;
        options.topic = Topic::parse(&format!("{prefix}-{towards}.{{type}}"))
            .map_err(|error| BetweenError::NotReady(error.to_string()))?;
        options.timeout_ms = 2_000;
        let types = match side {
            Side::Shop => vec![OrderAccepted::TYPE],
            Side::Fulfilment => vec![ShipmentCreated::TYPE, FulfillmentRejected::TYPE],
        };
        Ok(
            Subscription::new(format!("to-{towards}"), Semantics::AtLeastOnce)
                .deliver(types, Relay::new(self.publisher(towards)?, options))
                .retry(retry())
                .start(Start::Earliest),
        )
    }

    /// Makes what messages go through, and looks whether it is there.
    ///
    /// # Errors
    /// When it is not.
    pub async fn prepare(&self) -> Result<(), BetweenError> {
        let check = || Check {
            topics: &[],
            timeout_ms: 10_000,
        };
        for side in [Side::Fulfilment, Side::Shop] {
            let mut findings = self.publisher(side.incoming())?.check(check()).await;
            let subscriber = self.subscriber(side.incoming())?;
            findings.extend(subscriber.check(check()).await);
            if let Some(bad) = findings.iter().find(|finding| !finding.is_good()) {
                let text = format!("{}: {}", bad.what, bad.says);
                return Err(BetweenError::NotReady(text));
            }
        }
        Ok(())
    }

    /// Publishes to the queue or stream of that name.
    ///
    /// # Errors
    /// As for [`intake`](Self::intake).
    pub fn publisher(&self, name: &str) -> Result<Arc<dyn Publisher>, BetweenError> {
        match self.kind {
            #[cfg(feature = "nats")]
            BrokerKind::Nats => {
                let options = self.nats(name)?;
                Ok(Arc::new(onceward_brokers::nats::NatsPublisher::new(
                    options,
                )))
            }
            #[cfg(feature = "rabbitmq")]
            BrokerKind::RabbitMq => {
                let options = self.rabbitmq(name)?;
                Ok(Arc::new(onceward_brokers::rabbitmq::RabbitPublisher::new(
                    options,
                )))
            }
            #[cfg(not(all(feature = "nats", feature = "rabbitmq")))]
            kind => {
                let _ = name;
                Err(BetweenError::NotInThisBuild(kind))
            }
        }
    }

    /// Receives from the queue or stream of that name.
    ///
    /// # Errors
    /// As for [`intake`](Self::intake).
    pub fn subscriber(&self, name: &str) -> Result<Arc<dyn Subscriber>, BetweenError> {
        match self.kind {
            #[cfg(feature = "nats")]
            BrokerKind::Nats => {
                let options = self.nats(name)?;
                Ok(Arc::new(onceward_brokers::nats::NatsSubscriber::new(
                    options,
                )))
            }
            #[cfg(feature = "rabbitmq")]
            BrokerKind::RabbitMq => {
                let options = self.rabbitmq(name)?;
                Ok(Arc::new(onceward_brokers::rabbitmq::RabbitSubscriber::new(
                    options,
                )))
            }
            #[cfg(not(all(feature = "nats", feature = "rabbitmq")))]
            kind => {
                let _ = name;
                Err(BetweenError::NotInThisBuild(kind))
            }
        }
    }

    /// A stream for one direction, with one consumer.
    #[cfg(feature = "nats")]
    fn nats(&self, name: &str) -> Result<onceward_brokers::nats::NatsOptions, BetweenError> {
        let name = format!("{}-{name}", self.prefix);
        let mut options = onceward_brokers::nats::NatsOptions::new(&self.url, &name)?;
        options.declare = vec![format!("{name}.>")];
        options.consumer = name;
        options.connect_timeout_ms = 2_000;
        // Whoever dies with messages in hand is not waited for long.
        options.ack_wait_ms = 5_000;
        Ok(options)
    }

    /// A queue for one direction, bound to one exchange.
    #[cfg(feature = "rabbitmq")]
    fn rabbitmq(
        &self,
        name: &str,
    ) -> Result<onceward_brokers::rabbitmq::RabbitOptions, BetweenError> {
        let (name, exchange) = (format!("{}-{name}", self.prefix), self.prefix.as_str());
        let options = onceward_brokers::rabbitmq::RabbitOptions::new(&self.url, exchange);
        let mut options = options?;
        options.bindings = vec![format!("{name}.#")];
        options.queue = name;
        options.declares = true;
        options.connect_timeout_ms = 5_000;
        options.prefetch = u16::try_from(BATCH * 2).unwrap_or(u16::MAX);
        Ok(options)
    }
}
