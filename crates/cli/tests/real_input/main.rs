//! Real senders and receivers against the real program: Python packages, `psql`, processes that are
//! killed, and every answer that a receiver can give.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod crashes;
mod rows;
mod senders;

use common::{on_both_stores, place, python, receiver};

/// A secret of 32 bytes as receivers get it.
pub(crate) const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Another.
pub(crate) const OTHER_SECRET: &str = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

/// One event type pushed to an address with the secret in `hook.secret`.
pub(crate) fn push_with_secret(place: &place::Place, url: &str) -> String {
    place.write_secret("hook.secret", &format!("{SECRET}\n"));
    place::push_to(url).replace("push = {", "push = { secret_file = \"hook.secret\",")
}
