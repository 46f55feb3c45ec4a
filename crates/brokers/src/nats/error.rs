//! What the client's errors mean.

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::{ConnectError, ConnectErrorKind};
use onceward_core::Failure;
use onceward_core::broker::failures;

pub(super) fn of_connect(address: &str, error: ConnectError) -> Failure {
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            let text = format!("{address} does not accept these credentials");
            failures::forbidden(text).with_source(error)
        }
        _ => failures::unconnected(address).with_source(error),
    }
}

/// What a publish's error means, but for a subject that no stream seems to take.
pub(super) fn of_publish(address: &str, timeout_ms: u64, error: PublishError) -> Failure {
    match error.kind() {
        PublishErrorKind::TimedOut => failures::unconfirmed(address, timeout_ms),
        PublishErrorKind::BrokenPipe => failures::cut(address),
        _ => {
            let text = error.to_string();
            failures::refused(&text).with_source(error)
        }
    }
}
