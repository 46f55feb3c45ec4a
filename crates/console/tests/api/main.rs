//! The API over real sockets, mostly onto a real store.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod accept;
mod board;
mod client;
mod guard;
mod health;
mod operations;
mod postgres;
mod quarantine;
mod refuse;
mod server;
mod throttle;
