//! Broker adapters: one folder per broker with the same files, one feature each.
//!
//! | broker | feature | client | tested on |
//! |---|---|---|---|
//! | NATS JetStream | `nats` | `async-nats` | 2.15 |
//! | RabbitMQ (AMQP 0-9-1) | `rabbitmq` | `lapin` | 3.10 |
//!
//! Each gives a [`Publisher`](onceward_core::broker::Publisher) and a
//! [`Subscriber`](onceward_core::broker::Subscriber). What they can do is
//! [data](onceward_core::broker::Capabilities). They connect when they are first needed and again
//! when a connection is lost; a broker that is away is a failure of the attempt and nothing else.
//! TLS is rustls with the ring provider.

mod address;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;

pub use address::{Address, AddressError};

use onceward_core::broker::Capabilities;

/// What the brokers of this build can do before a server has said more, by name.
#[must_use]
pub fn capabilities() -> Vec<(&'static str, Capabilities)> {
    vec![
        #[cfg(feature = "nats")]
        ("nats", nats::CAPABILITIES),
        #[cfg(feature = "rabbitmq")]
        ("rabbitmq", rabbitmq::CAPABILITIES),
    ]
}
