//! What only PostgreSQL can show, against a real server.

mod client;
mod effects;
mod eras;
mod faults;
mod grants;
mod log;
mod migrations;
mod order;
mod statements;
mod support;
mod upkeep;
