//! What Onceward's own tests, and tests of services that use it, stand on.
//!
//! | module | what is in it |
//! |---|---|
//! | [`postgres`] | fresh databases on a real PostgreSQL, and servers to stop, kill and freeze |

pub mod postgres;
