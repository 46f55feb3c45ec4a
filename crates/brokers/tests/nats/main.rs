//! The adapter on a real NATS server.

mod fixture;
mod trouble;

onceward_testkit::broker_suite!(fixture::NatsFixture::start().await);
