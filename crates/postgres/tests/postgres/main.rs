//! What only PostgreSQL can show, against a real server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
mod effects;
mod eras;
mod faults;
mod field_cases;
mod grants;
mod log;
mod migrations;
mod operate;
mod order;
mod pooler;
mod replay;
mod room;
mod standby;
mod statements;
mod status;
mod support;
mod upkeep;
