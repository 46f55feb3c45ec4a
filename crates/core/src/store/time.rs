//! The database's clock.

use std::future::Future;

use super::{Effects, StoreError};
use crate::shed::Paused;
use crate::timestamp::Timestamp;

/// Asks when a subscription was paused.
#[derive(Clone, Copy, Debug)]
pub struct Pauses<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Pauses that were over by then are left out.
    pub since: Timestamp,
}

/// What time it is, by the clock that decides: no process's own.
pub trait Time: Effects {
    /// The database's time at this moment of a transaction.
    fn time(&self, tx: &mut Self::Tx)
    -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// When operators kept a subscription paused, oldest first.
    fn pauses(
        &self,
        tx: &mut Self::Tx,
        request: Pauses<'_>,
    ) -> impl Future<Output = Result<Vec<Paused>, StoreError>> + Send;
}
