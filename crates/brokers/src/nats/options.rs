//! Where and how.

use std::path::PathBuf;

use onceward_core::broker::Layout;

use crate::address::{Address, AddressError};

/// How to reach a stream.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// The server. A user without a password is a token.
    pub address: Address,
    /// The stream that messages go to and come from.
    pub stream: String,
    /// The durable consumer that messages are received with.
    pub consumer: String,
    /// Subjects of the stream where it is made here; none: it has to be there.
    pub declare: Vec<String>,
    /// How events are laid out.
    pub layout: Layout,
    /// Certificates of the authorities that the server's is checked against besides the system's,
    /// as PEM.
    pub ca_file: Option<PathBuf>,
    /// Longest wait for a connection, and for answers other than confirmations, in milliseconds.
    pub connect_timeout_ms: u64,
    /// For how long a delivery is its receiver's where the consumer is made here, in milliseconds.
    pub ack_wait_ms: u64,
}

impl NatsOptions {
    /// With every default: nothing is declared, binary, 5 s to connect, 30 s to settle.
    ///
    /// # Errors
    /// [`AddressError`] when it is no address that begins with `nats://` or `tls://`.
    pub fn new(url: &str, stream: impl Into<String>) -> Result<Self, AddressError> {
        Ok(Self {
            address: Address::parse(url, ["nats", "tls"], "nats:// or tls://")?,
            stream: stream.into(),
            consumer: "onceward".to_owned(),
            declare: Vec::new(),
            layout: Layout::default(),
            ca_file: None,
            connect_timeout_ms: 5_000,
            ack_wait_ms: 30_000,
        })
    }
}
