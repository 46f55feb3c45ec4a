//! Real PostgreSQL for tests: a fresh database per test, and servers of one's own to kill.
//!
//! | variable | meaning |
//! |---|---|
//! | `ONCEWARD_TEST_POSTGRES` | URL of a server on which databases may be created and dropped; without it a server is started |
//! | `ONCEWARD_TEST_POSTGRES_BIN` | folder with `initdb` and `postgres`; by default the newest below `/usr/lib/postgresql` |
//! | `ONCEWARD_TEST_PGBOUNCER` | the program `pgbouncer`; by default Debian's, or the one in the path |
//!
//! Nothing here is ever skipped: where one of them is missing, tests fail and say what to install.

mod database;
mod files;
mod pgbouncer;
mod server;
mod template;
mod watcher;

pub use database::TestDatabase;
pub(crate) use files::signal;
pub use pgbouncer::PgBouncer;
pub(crate) use server::in_background;
pub use server::{PostgresOptions, PostgresServer};
pub(crate) use watcher::Watcher;

/// Names the server for tests: `postgres://user@host:port/database`.
pub const SERVER_VARIABLE: &str = "ONCEWARD_TEST_POSTGRES";

/// Names the folder with PostgreSQL's programs.
pub const PROGRAMS_VARIABLE: &str = "ONCEWARD_TEST_POSTGRES_BIN";

/// Names the program `pgbouncer`.
pub const PGBOUNCER_VARIABLE: &str = "ONCEWARD_TEST_PGBOUNCER";
