//! An exchange and a queue of one test.

use std::sync::Arc;

use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Connection, ConnectionProperties};
use onceward_brokers::rabbitmq::{RabbitOptions, RabbitPublisher, RabbitSubscriber};
use onceward_core::broker::{Check, Publisher, Subscriber};
use onceward_testkit::brokers::{Fixture, RabbitServer};

/// Small, so that a test can go beyond it.
const MESSAGE_BYTES_MAX: u64 = 200_000;

pub(crate) struct RabbitFixture {
    pub(crate) options: RabbitOptions,
    url: String,
    publisher: Arc<RabbitPublisher>,
}

impl RabbitFixture {
    pub(crate) async fn shared() -> Self {
        Self::at(RabbitServer::shared_url().await).await
    }

    /// On a server; its exchange and its queue are new.
    pub(crate) async fn at(url: String) -> Self {
        let name = format!("test-{:016x}", unique());
        let mut options = RabbitOptions::new(&url, name.as_str()).expect("an address");
        options.queue = name;
        options.declares = true;
        options.bindings = vec!["orders.#".to_owned()];
        options.message_bytes_max = MESSAGE_BYTES_MAX;
        let fixture = Self {
            publisher: Arc::new(RabbitPublisher::new(options.clone())),
            options,
            url,
        };
        let none = Check {
            topics: &[],
            timeout_ms: 5_000,
        };
        let findings = fixture.publisher.check(none).await;
        assert!(
            findings.iter().all(|finding| finding.is_good()),
            "{findings:?}"
        );
        fixture
    }

    /// Another connection, without the adapter.
    pub(crate) async fn connection(&self) -> Connection {
        let connecting = Connection::connect(&self.url, ConnectionProperties::default());
        connecting.await.expect("connects")
    }
}

fn unique() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

impl Fixture for RabbitFixture {
    fn publisher(&self) -> Arc<dyn Publisher> {
        self.publisher.clone()
    }

    async fn subscriber(&self) -> Arc<dyn Subscriber> {
        Arc::new(RabbitSubscriber::new(self.options.clone()))
    }

    fn topic(&self) -> String {
        "orders.eu".to_owned()
    }

    fn topic_of_nobody(&self) -> String {
        "nobody.listens".to_owned()
    }

    async fn publish_foreign(&self, content_type: Option<&str>, body: &[u8]) {
        let connection = self.connection().await;
        let channel = connection.create_channel().await.expect("a channel");
        let mut properties = BasicProperties::default();
        if let Some(content_type) = content_type {
            properties = properties.with_content_type(content_type.into());
        }
        let options = BasicPublishOptions::default();
        let exchange = ShortString::from(self.options.exchange.as_str());
        let publishing =
            channel.basic_publish(exchange, "orders.eu".into(), options, body, properties);
        publishing.await.expect("is sent").await.expect("is taken");
        connection.close(200, "done".into()).await.expect("closes");
    }

    fn lock_ms(&self) -> Option<u64> {
        None
    }

    async fn restart(&self) -> bool {
        false
    }
}
