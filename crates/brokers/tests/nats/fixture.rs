//! A server, a stream and a consumer of one test.

use std::sync::Arc;

use onceward_brokers::nats::{NatsOptions, NatsPublisher, NatsSubscriber};
use onceward_core::broker::{Publisher, Subscriber};
use onceward_testkit::brokers::{Fixture, NatsServer};

/// Short, so that tests need not wait long.
const ACK_WAIT_MS: u64 = 1_000;

pub(crate) struct NatsFixture {
    pub(crate) server: NatsServer,
    pub(crate) options: NatsOptions,
    publisher: Arc<NatsPublisher>,
}

impl NatsFixture {
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    pub(crate) async fn start_with(settings: &str) -> Self {
        let server = NatsServer::start_with(settings).await;
        let mut options = NatsOptions::new(&server.url(), "ORDERS").expect("an address");
        options.declare = vec!["orders.>".to_owned()];
        options.ack_wait_ms = ACK_WAIT_MS;
        Self {
            publisher: Arc::new(NatsPublisher::new(options.clone())),
            options,
            server,
        }
    }
}

impl Fixture for NatsFixture {
    fn publisher(&self) -> Arc<dyn Publisher> {
        self.publisher.clone()
    }

    async fn subscriber(&self) -> Arc<dyn Subscriber> {
        Arc::new(NatsSubscriber::new(self.options.clone()))
    }

    fn topic(&self) -> String {
        "orders.eu".to_owned()
    }

    fn topic_of_nobody(&self) -> String {
        "nobody.listens".to_owned()
    }

    async fn publish_foreign(&self, content_type: Option<&str>, body: &[u8]) {
        // The stream is made by whoever publishes first.
        let none = onceward_core::broker::Check {
            topics: &[],
            timeout_ms: 5_000,
        };
        self.publisher.check(none).await;
        let client = async_nats::connect(self.server.url())
            .await
            .expect("connects");
        let mut headers = async_nats::HeaderMap::new();
        if let Some(content_type) = content_type {
            headers.insert("Content-Type", content_type);
        }
        let jetstream = async_nats::jetstream::new(client);
        let sent = jetstream
            .publish_with_headers("orders.eu", headers, body.to_vec().into())
            .await;
        sent.expect("is sent").await.expect("is stored");
    }

    fn lock_ms(&self) -> Option<u64> {
        Some(ACK_WAIT_MS)
    }

    async fn restart(&self) -> bool {
        self.server.kill();
        self.server.start_again();
        true
    }
}
