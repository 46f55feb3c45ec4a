//! The connection and its channel: made when they are first needed, and anew when they are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapin::options::{
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use onceward_core::Failure;
use onceward_core::broker::failures;
use tokio::sync::Mutex;

use super::error;
use super::options::RabbitOptions;

struct Kept {
    connection: Arc<Connection>,
    channel: Channel,
    /// Which of all that were opened, one after the other.
    number: u64,
}

/// The one connection of a publisher or subscriber, with its one channel.
pub(super) struct Connector {
    pub(super) options: RabbitOptions,
    kept: Mutex<Option<Kept>>,
    opened: AtomicU64,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(options: RabbitOptions) -> Self {
        Self {
            options,
            kept: Mutex::default(),
            opened: AtomicU64::new(0),
        }
    }

    pub(super) fn address(&self) -> String {
        self.options.address.to_string()
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.options.connect_timeout_ms)
    }

    /// A channel that stood when last looked at.
    pub(super) async fn channel(&self) -> Result<Channel, Failure> {
        self.numbered().await.map(|(channel, _)| channel)
    }

    /// A channel with its number, by which it can be given up.
    pub(super) async fn numbered(&self) -> Result<(Channel, u64), Failure> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref()
            && kept.connection.status().connected()
            && kept.channel.status().connected()
        {
            return Ok((kept.channel.clone(), kept.number));
        }
        let connection = match kept.take() {
            Some(kept) if kept.connection.status().connected() => kept.connection,
            _ => Arc::new(self.within(self.connect()).await?),
        };
        let channel = self.within(self.open(&connection)).await?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        *kept = Some(Kept {
            connection,
            channel: channel.clone(),
            number,
        });
        Ok((channel, number))
    }

    async fn within<T>(
        &self,
        step: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let ended = tokio::time::timeout(self.timeout(), step).await;
        ended.unwrap_or_else(|_| Err(failures::unconnected(&self.address())))
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let address = self.address();
        let url = self.options.address.url().as_str();
        let uri = url.parse().map_err(|_| {
            // What the parser says may quote the address.
            failures::forbidden(format!("{address} cannot be used as an address of AMQP"))
        })?;
        let properties = ConnectionProperties::default().with_connection_name("onceward".into());
        let mut tls = OwnedTLSConfig::default();
        if let Some(file) = &self.options.ca_file {
            let chain = tokio::fs::read_to_string(file).await.map_err(|error| {
                let text = format!("the certificates in {} cannot be read", file.display());
                failures::forbidden(text).with_source(error)
            })?;
            tls.cert_chain = Some(chain);
        }
        let runtime = lapin::runtime::default_runtime()
            .map_err(|error| error::of(&address, error, "no runtime"))?;
        Connection::connect_uri_with_config(uri, properties, tls, runtime)
            .await
            .map_err(|error| error::of_connect(&address, error))
    }

    async fn open(&self, connection: &Connection) -> Result<Channel, Failure> {
        let address = self.address();
        let failed = |what: &'static str| {
            let address = address.clone();
            move |error| error::of(&address, error, what)
        };
        let channel = connection
            .create_channel()
            .await
            .map_err(failed("no channel"))?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        confirms.await.map_err(failed("no confirmations"))?;
        if self.options.declares {
            self.declare(&channel).await?;
        }
        Ok(channel)
    }

    /// Makes what is not there. What is there with other settings is an error of the broker's.
    async fn declare(&self, channel: &Channel) -> Result<(), Failure> {
        let (options, address) = (&self.options, self.address());
        let failed = |error| error::of(&address, error, "it cannot be declared");
        if !options.exchange.is_empty() {
            let durable = ExchangeDeclareOptions {
                durable: true,
                ..ExchangeDeclareOptions::default()
            };
            let (name, kind) = (short(&options.exchange)?, ExchangeKind::Topic);
            let declaring = channel.exchange_declare(name, kind, durable, FieldTable::default());
            declaring.await.map_err(failed)?;
        }
        if options.queue.is_empty() {
            return Ok(());
        }
        let durable = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let mut quorum = FieldTable::default();
        quorum.insert(
            "x-queue-type".into(),
            AMQPValue::LongString("quorum".into()),
        );
        let declaring = channel.queue_declare(short(&options.queue)?, durable, quorum);
        declaring.await.map_err(failed)?;
        for key in &options.bindings {
            let (queue, exchange) = (short(&options.queue)?, short(&options.exchange)?);
            let (binding, none) = (QueueBindOptions::default(), FieldTable::default());
            let declaring = channel.queue_bind(queue, exchange, short(key)?, binding, none);
            declaring.await.map_err(failed)?;
        }
        Ok(())
    }

    /// Gives up a channel over which nothing comes any more, and its connection: it may look well for
    /// as long as nobody misses a heartbeat.
    pub(super) async fn give_up(&self, number: u64) {
        let mut kept = self.kept.lock().await;
        if let Some(Kept { connection, .. }) = kept.take_if(|kept| kept.number == number) {
            let timeout = self.timeout();
            tokio::spawn(async move {
                let closing = connection.close(200, "silent".into());
                let _ = tokio::time::timeout(timeout, closing).await;
            });
        }
    }

    /// Closes it; the next call connects again.
    pub(super) async fn close(&self) {
        if let Some(Kept { connection, .. }) = self.kept.lock().await.take() {
            let closing = connection.close(200, "closing".into());
            let _ = tokio::time::timeout(self.timeout(), closing).await;
        }
    }
}

/// A short text of AMQP, 255 bytes at most.
pub(super) fn short(text: &str) -> Result<ShortString, Failure> {
    ShortString::try_new(text)
        .map_err(|_| failures::unsendable(format!("{} bytes are too long a name", text.len())))
}
