//! The adapter on a real RabbitMQ server.

mod fixture;
mod trouble;

onceward_testkit::broker_suite!(fixture::RabbitFixture::shared().await);
