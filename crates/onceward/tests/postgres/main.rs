//! The engine on PostgreSQL: once, in order, whatever fails, and with several processes that are
//! killed, stopped and restarted.
//!
//! A test with several processes starts this program again for itself alone and tells it in its
//! environment to work instead of testing, see `worker`.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout
)]

mod place;
mod stub;
#[path = "../common/volume.rs"]
mod volume;
mod worker;

mod coalescing;
mod crowd;
mod dropping;
mod ends;
mod field_blocking;
mod field_claims;
mod field_poolers;
mod field_pools;
mod field_replay;
mod field_rooms;
mod field_times;
mod fleet;
mod groups;
mod hostile;
mod identity;
mod intake;
mod outside;
mod restarts;
mod trouble;
mod versions;
