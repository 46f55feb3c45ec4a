//! How publishing fails, said in one way by every adapter.

use super::{FORBIDDEN, REFUSED, TOO_LARGE, UNCONFIRMED, UNCONNECTED, UNROUTABLE, UNSENDABLE};
use crate::failure::Failure;

/// There is no connection to the broker at this address, and nothing was sent.
#[must_use]
pub fn unconnected(address: &str) -> Failure {
    Failure::unavailable(UNCONNECTED, format!("no connection to {address}"))
}

/// It was sent, and no confirmation came.
#[must_use]
pub fn unconfirmed(address: &str, timeout_ms: u64) -> Failure {
    let text = format!("{address} did not confirm it within {timeout_ms} ms; it may have arrived");
    Failure::transient(UNCONFIRMED, text)
}

/// It was sent, and the connection ended before a confirmation.
#[must_use]
pub fn cut(address: &str) -> Failure {
    let text = format!("the connection to {address} ended before it was confirmed");
    Failure::transient(UNCONFIRMED, text)
}

/// The broker did not take it now.
#[must_use]
pub fn refused(why: &str) -> Failure {
    Failure::transient(REFUSED, format!("the broker refused it for now: {why}"))
}

/// Nothing takes the topic.
#[must_use]
pub fn unroutable(topic: &str) -> Failure {
    let text = format!("unroutable: nothing takes the topic {topic:?}");
    Failure::permanent(UNROUTABLE, text)
}

/// It is larger than the broker takes.
#[must_use]
pub fn too_large(bytes: u64, bytes_max: u64) -> Failure {
    let text = format!("{bytes} bytes with its headers; the broker takes {bytes_max}");
    Failure::permanent(TOO_LARGE, text)
}

/// No message can be made of it.
pub fn unsendable(why: impl Into<String>) -> Failure {
    Failure::permanent(UNSENDABLE, why)
}

/// The broker does not permit it.
pub fn forbidden(why: impl Into<String>) -> Failure {
    Failure::unavailable(FORBIDDEN, why)
}
