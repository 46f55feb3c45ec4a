//! The `onceward` command as a library, so that it can be tested: [`config`] reads
//! `onceward.toml`, [`error`] holds what a command can end with.

pub mod config;
pub mod error;
pub mod store_url;
pub mod target;
