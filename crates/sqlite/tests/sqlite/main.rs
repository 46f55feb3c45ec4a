//! What is particular to SQLite: one writer, one file, several processes and languages.

#![allow(clippy::unwrap_used, reason = "an error here is a failed test")]

mod cancel;
mod content;
mod effects;
mod errors;
mod file;
mod operate;
mod processes;
mod renewals;
mod statements;
mod upkeep;
