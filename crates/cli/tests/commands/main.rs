//! Runs the real program, on SQLite and on PostgreSQL, including commands that must fail.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where something is not as it should be"
)]

#[path = "../common/mod.rs"]
mod common;

mod brokers;
mod corrections;
mod daemon;
mod doctor;
mod first_use;
mod operate;
mod overload;
mod pooler;
mod refusals;
mod send;
mod setup;

use common::{on_both_stores, place, receiver};
