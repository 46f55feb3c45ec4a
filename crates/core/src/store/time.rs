//! The database's clock.

use std::future::Future;

use super::{Effects, StoreError};
use crate::timestamp::Timestamp;

/// What time it is, by the clock that decides: no process's own.
pub trait Time: Effects {
    /// The database's time at this moment of a transaction.
    fn time(&self, tx: &mut Self::Tx)
    -> impl Future<Output = Result<Timestamp, StoreError>> + Send;
}
