//! One suite that every broker adapter passes, and brokers to run it against.
//!
//! An adapter's tests write a [`Fixture`] and one line, which becomes a named test per case:
//!
//! ```
//! onceward_testkit::broker_suite!(onceward_testkit::brokers::MemoryFixture::new());
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `ONCEWARD_TEST_NATS_SERVER` | the program `nats-server`; by default the one in the path |
//! | `ONCEWARD_TEST_RABBITMQ` | address of a server on which queues may be made; without it a server is started |
//! | `ONCEWARD_TEST_RABBITMQ_SERVER` | the server's own program; by default Debian's |
//!
//! The expression is evaluated once for each case and must give a fixture on an empty queue. What a
//! broker cannot do it says in its [`Capabilities`]; a case that needs it says out loud what it
//! leaves out, and why.

use std::future::Future;
use std::sync::Arc;

use onceward_core::broker::{Capabilities, Publisher, Subscriber};

pub use crate::suite::{CaseFuture, CaseResult, guarded};

mod defect;
mod expand;
pub mod foreign;
mod memory;
mod nats;
pub mod publishing;
mod rabbitmq;
pub mod receiving;
mod server;
mod steps;

pub use defect::BrokerDefect;
pub use memory::{MemoryBroker, MemoryFixture};
pub use nats::{NATS_VARIABLE, NatsServer};
pub use rabbitmq::{RABBITMQ_PROGRAM_VARIABLE, RABBITMQ_VARIABLE, RabbitServer};

/// An empty queue, stream or subscription at a broker, of one test.
pub trait Fixture: Send + Sync + 'static {
    /// Publishes to it.
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// A new connection that receives from it, as another process would have.
    fn subscriber(&self) -> impl Future<Output = Arc<dyn Subscriber>> + Send;

    /// A topic that it takes.
    fn topic(&self) -> String;

    /// A topic that nothing takes.
    fn topic_of_nobody(&self) -> String;

    /// Publishes what is no event, as a program without Onceward would.
    fn publish_foreign(
        &self,
        content_type: Option<&str>,
        body: &[u8],
    ) -> impl Future<Output = ()> + Send;

    /// For how long a delivery belongs to whoever has it, in milliseconds; none where it is for as
    /// long as the connection.
    fn lock_ms(&self) -> Option<u64>;

    /// Kills the broker and starts it again with what it had stored; false where that is not for
    /// this fixture to do.
    fn restart(&self) -> impl Future<Output = bool> + Send;
}

/// Says what a case leaves out. Returns whether the broker can do it.
fn allows(has: bool, case: &str, why: &str) -> bool {
    if !has {
        eprintln!("left out of {case}: {why}");
    }
    has
}

fn capabilities(fixture: &impl Fixture) -> Capabilities {
    fixture.publisher().capabilities()
}
