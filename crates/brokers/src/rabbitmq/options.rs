//! Where and how.

use std::path::PathBuf;

use onceward_core::broker::Layout;

use super::CAPABILITIES;
use crate::address::{Address, AddressError};

/// How to reach an exchange and a queue.
#[derive(Clone, Debug)]
pub struct RabbitOptions {
    /// The server and its virtual host.
    pub address: Address,
    /// The exchange that messages go to; the default exchange, which knows queues by their names,
    /// where it is empty.
    pub exchange: String,
    /// The queue that messages come from.
    pub queue: String,
    /// Whether exchange (of type topic) and queue (of type quorum) are made here where they are not
    /// there. What is there with other settings is never changed.
    pub declares: bool,
    /// Binding keys of the queue where it is made here.
    pub bindings: Vec<String>,
    /// How events are laid out.
    pub layout: Layout,
    /// Certificates of the authorities that the server's is checked against instead of the
    /// system's, as PEM.
    pub ca_file: Option<PathBuf>,
    /// Longest wait for a connection, and for answers other than confirmations, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Largest payload in bytes; what the server says with `max_message_size`.
    pub message_bytes_max: u64,
    /// Messages that are on their way to a receiver before it asks, 1 at least: without a limit a
    /// long queue would come as a whole.
    pub prefetch: u16,
}

impl RabbitOptions {
    /// With every default: nothing is declared, binary, 5 s to connect, 16 MiB, prefetch 100.
    ///
    /// # Errors
    /// [`AddressError`] when it is no address that begins with `amqp://` or `amqps://`.
    pub fn new(url: &str, exchange: impl Into<String>) -> Result<Self, AddressError> {
        Ok(Self {
            address: Address::parse(url, ["amqp", "amqps"], "amqp:// or amqps://")?,
            exchange: exchange.into(),
            queue: String::new(),
            declares: false,
            bindings: Vec::new(),
            layout: Layout::default(),
            ca_file: None,
            connect_timeout_ms: 5_000,
            message_bytes_max: CAPABILITIES.message_bytes_max.unwrap_or(u64::MAX),
            prefetch: 100,
        })
    }
}
