//! The connection: made when it is first needed, kept up by the client from then on.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context, stream};
use async_nats::{Client, ConnectOptions};
use onceward_core::Failure;
use onceward_core::broker::failures;
use percent_encoding::percent_decode_str;
use tokio::sync::Mutex;

use super::error;
use super::options::NatsOptions;

/// Longest pause between two tries of the client to connect again.
const RECONNECT_MAX: Duration = Duration::from_secs(4);

/// A connection to a server.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) jetstream: Context,
}

/// The one connection of a publisher or subscriber.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) options: NatsOptions,
    connection: Mutex<Option<Connection>>,
}

impl Connector {
    pub(super) fn new(options: NatsOptions) -> Self {
        Self {
            options,
            connection: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> String {
        self.options.address.to_string()
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.options.connect_timeout_ms)
    }

    /// The connection as it stands.
    pub(super) async fn connection(&self) -> Result<Connection, Failure> {
        let mut kept = self.connection.lock().await;
        if kept.is_none() {
            *kept = Some(self.connect().await?);
        }
        let connection = kept
            .clone()
            .ok_or_else(|| failures::unconnected(&self.address()))?;
        match connection.client.connection_state() {
            State::Connected => Ok(connection),
            State::Pending | State::Disconnected => Err(failures::unconnected(&self.address())),
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let url = self.options.address.url();
        let mut options = ConnectOptions::new()
            .name("onceward")
            .connection_timeout(self.timeout())
            .request_timeout(Some(self.timeout()))
            .reconnect_delay_callback(|tries| {
                let ms = 50 << tries.min(10);
                Duration::from_millis(ms).min(RECONNECT_MAX)
            })
            .max_reconnects(None)
            .require_tls(url.scheme() == "tls");
        if let Some(file) = &self.options.ca_file {
            options = options.add_root_certificates(file.clone());
        }
        let text = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match (url.username(), url.password()) {
            ("", _) => {}
            (token, None) => options = options.token(text(token)),
            (user, Some(password)) => {
                options = options.user_and_password(text(user), text(password));
            }
        }
        // Without the credentials: the client writes addresses into its log.
        let connecting = options.connect(self.address());
        let client = match tokio::time::timeout(self.timeout(), connecting).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(error::of_connect(&self.address(), error)),
            Err(_) => return Err(failures::unconnected(&self.address())),
        };
        let jetstream = jetstream::context::ContextBuilder::new()
            .timeout(self.timeout())
            .build(client.clone());
        let connection = Connection { client, jetstream };
        self.declare(&connection).await?;
        Ok(connection)
    }

    /// Makes the stream where that is wanted and there is none. One that is there stays as it is.
    async fn declare(&self, connection: &Connection) -> Result<(), Failure> {
        if self.options.declare.is_empty() {
            return Ok(());
        }
        let config = stream::Config {
            name: self.options.stream.clone(),
            subjects: self.options.declare.clone(),
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        let made = connection.jetstream.get_or_create_stream(config).await;
        made.map(drop).map_err(|error| {
            let text = format!("the stream {} cannot be made", self.options.stream);
            failures::refused(&text).with_source(error)
        })
    }

    /// Closes it; the next call connects again.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.connection.lock().await.take() {
            let _ = tokio::time::timeout(self.timeout(), connection.client.drain()).await;
        }
    }
}
