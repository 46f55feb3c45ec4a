//! RabbitMQ over AMQP 0-9-1.
//!
//! A message goes to an exchange with the topic as its routing key, persistent and mandatory, and
//! counts as confirmed when the broker has confirmed it and returned nothing: a message that no
//! queue takes comes back before its confirmation, and the return is matched to the message.
//! Receiving is from a quorum queue, which counts deliveries. Events are laid out as the CloudEvents
//! binding for AMQP says: `cloudEvents:` headers as they are, or one JSON document.

mod check;
mod connect;
mod error;
mod options;
mod publish;
mod receive;

use onceward_core::broker::{Capabilities, DeliveryCount, KeyOrder};

pub use options::RabbitOptions;
pub use publish::RabbitPublisher;
pub use receive::RabbitSubscriber;

/// What RabbitMQ can do with quorum queues, and as much of a message as every version takes by
/// itself.
pub const CAPABILITIES: Capabilities = Capabilities {
    order: KeyOrder::UntilRedelivery,
    dedupe_window_ms: None,
    message_bytes_max: Some(16 << 20),
    delay_ms_max: None,
    can_extend: false,
    has_transactions: false,
    delivery_count: DeliveryCount::Exact,
    tells_unroutable: true,
    has_coordinates: false,
};
