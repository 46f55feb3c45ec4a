//! What Onceward's own tests, and tests of services that use it, stand on.
//!
//! | module | what is in it |
//! |---|---|
//! | [`postgres`] | fresh databases on a real PostgreSQL, and servers to stop, kill and freeze |
//! | [`suite`] | the cases that every store passes, and [`store_suite!`] |
//! | [`memory`] | a store in memory that repeats exactly, with faults and defects on demand |
//! | [`brokers`] | the cases that every broker adapter passes, [`broker_suite!`], and brokers to run them on |
//! | [`clock`] | a clock that moves only when told |
//! | `handlers` | the same for handlers of one's own (feature `handlers`; `sqlite`, `postgres`) |
//! | `simulation` | the engine under simulation, with faults and checkers (feature `engine`) |

pub mod brokers;
pub mod clock;
#[cfg(feature = "handlers")]
pub mod handlers;
pub mod memory;
pub mod postgres;
#[cfg(feature = "engine")]
pub mod simulation;
pub mod suite;
