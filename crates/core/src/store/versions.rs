//! Versions of aggregates, read.

use std::future::Future;

use super::{Effects, StoreError};
use crate::ledger::Identity;
use crate::version::VersionKey;

/// Asks for the last versions that were applied.
#[derive(Clone, Debug)]
pub struct LastVersions<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Which ledger table its entries are in.
    pub identity: Identity,
    /// The aggregates.
    pub keys: &'a [VersionKey],
}

/// The versions in the ledger. They are written with its entries by
/// [`settle`](super::Effects::settle), where these name an aggregate.
pub trait Versions: Effects {
    /// The highest version of each aggregate that the ledger still has, in the order of the keys;
    /// what the transaction itself has recorded included.
    fn last_versions(
        &self,
        tx: &mut Self::Tx,
        request: LastVersions<'_>,
    ) -> impl Future<Output = Result<Vec<Option<i64>>, StoreError>> + Send;
}
