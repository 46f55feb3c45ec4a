//! NATS JetStream.
//!
//! A message goes to a subject that a stream takes, and is confirmed when the stream has stored it.
//! Its source and id are its `Nats-Msg-Id`, so that a repetition within the stream's duplicate
//! window is the same message. Receiving is by a durable pull consumer. Events are laid out as the
//! CloudEvents binding for NATS says: percent-encoded `ce-` headers, or one JSON document.

mod check;
mod connect;
mod error;
mod options;
mod publish;
mod receive;

use onceward_core::broker::{Capabilities, DeliveryCount, KeyOrder};

pub use options::NatsOptions;
pub use publish::NatsPublisher;
pub use receive::NatsSubscriber;

/// What JetStream can do with the settings of a server and a stream that nobody has changed.
pub const CAPABILITIES: Capabilities = Capabilities {
    order: KeyOrder::UntilRedelivery,
    dedupe_window_ms: Some(120_000),
    message_bytes_max: Some(1 << 20),
    delay_ms_max: Some(u64::MAX),
    can_extend: true,
    has_transactions: false,
    delivery_count: DeliveryCount::Exact,
    tells_unroutable: true,
    has_coordinates: true,
};
