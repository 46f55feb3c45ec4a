//! Onceward on PostgreSQL (14 or later): outbox, ledger, lanes and quarantine in the application's
//! own database, schema `onceward`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use onceward_core::store::Schema;
//! let store = onceward_postgres::Postgres::connect("postgres://localhost/orders").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! One file per seam of the core, and its statements in `sql/<seam>/<statement>.sql`.

mod acceptance;
mod append;
mod cases;
mod clock;
mod copy;
mod deferrals;
mod dropped;
mod effects;
mod era;
mod error;
mod lanes;
mod log;
mod operate;
mod pooler;
mod positions;
mod registry;
mod replay;
mod retention;
mod row;
mod schema;
mod session;
#[doc(hidden)]
pub mod snapshot;
mod status;
mod time;
mod upkeep;
mod versions;
mod waiting;

pub use append::{Parameter, append_statement};
pub use clock::Clock;
pub use error::ServerFault;
pub use pooler::Pooler;
pub use schema::grants_sql;
pub use session::{Options, Postgres, Tx, connect_options};
