//! The API over real sockets, mostly onto a real store.

mod accept;
mod client;
mod guard;
mod health;
mod operations;
mod refuse;
mod server;
