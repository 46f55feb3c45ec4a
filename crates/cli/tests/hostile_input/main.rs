//! Input that is broken, hostile or merely unusual: it is carried byte for byte, or refused with its
//! place; it is never altered, and nothing gets stuck behind it.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

#[path = "../common/mod.rs"]
mod common;

mod away;
mod bytes;
mod filters;
mod flood;
mod requests;
mod rows;
mod secrets;
mod tables;

use common::{on_both_stores, place, raw, receiver};
