//! What the client's errors mean.

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Error, ErrorKind};
use onceward_core::Failure;
use onceward_core::broker::failures;

/// What the broker said, where it was the broker.
pub(super) fn said(error: &Error) -> Option<&AMQPErrorKind> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.kind()),
        _ => None,
    }
}

/// Whether it was refused for its size or another of its properties.
pub(super) fn is_precondition(error: &Error) -> bool {
    matches!(
        said(error),
        Some(AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED))
    )
}

/// An error before a connection stands.
pub(super) fn of_connect(address: &str, error: Error) -> Failure {
    match said(&error) {
        Some(
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)
            | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED),
        ) => {
            let text = format!("{address} does not accept these credentials or this virtual host");
            failures::forbidden(text).with_source(error)
        }
        _ => failures::unconnected(address).with_source(error),
    }
}

/// An error of a connection that stands. What the broker will not do for any message is an outage.
pub(super) fn of(address: &str, error: Error, what: &str) -> Failure {
    match said(&error) {
        Some(kind) => failures::forbidden(format!("{what}: {kind}")).with_source(error),
        None => failures::cut(address).with_source(error),
    }
}
