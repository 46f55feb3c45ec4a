//! What Onceward's own tests, and tests of services that use it, stand on.
//!
//! | module | what is in it |
//! |---|---|
//! | [`postgres`] | fresh databases on a real PostgreSQL, and servers to stop, kill and freeze |
//! | [`suite`] | the cases that every store passes, and [`store_suite!`] |
//! | [`memory`] | a store in memory that repeats exactly, with faults and defects on demand |
//! | [`clock`] | a clock that moves only when told |

pub mod clock;
pub mod memory;
pub mod postgres;
pub mod suite;
