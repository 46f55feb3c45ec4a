//! What a bench needs of a database.

use onceward::{BatchFn, EffectFn};
use onceward_core::store::Store;
use serde_json::Value;

use super::work::Order;
use crate::error::Error;

/// The server's own counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) inserted: i64,
    pub(super) updated: i64,
    pub(super) deleted: i64,
    pub(super) commits: i64,
    pub(super) wal_bytes: i64,
}

impl Counts {
    /// What was added since `before`, by message.
    pub(super) fn per_message(self, before: Self, messages: u32) -> Value {
        let each = |after: i64, before: i64| {
            let per = (after - before) as f64 / f64::from(messages.max(1));
            (per * 10_000.0).round() / 10_000.0
        };
        serde_json::json!({
            "rows_inserted_per_message": each(self.inserted, before.inserted),
            "rows_updated_per_message": each(self.updated, before.updated),
            "rows_deleted_per_message": each(self.deleted, before.deleted),
            "commits_per_message": each(self.commits, before.commits),
            "wal_bytes_per_message": each(self.wal_bytes, before.wal_bytes),
        })
    }
}

/// A kind of database to measure on. Each scratch is empty but for Onceward's tables and the
/// business table of the bench.
pub(super) trait Ground: Sync {
    type Store: Store;
    type Scratch: Scratch<Store = Self::Store>;

    /// What it is, for the report.
    async fn describe(&self) -> Result<String, Error>;

    /// A new scratch database.
    async fn scratch(&self) -> Result<Self::Scratch, Error>;
}

/// A scratch database.
pub(super) trait Scratch: Sized + Sync {
    type Store: Store;

    /// The store on it.
    fn store(&self) -> &Self::Store;

    /// The business insert of one message.
    fn one() -> impl for<'x> EffectFn<'x, Self::Store, Order> + Copy + 'static;

    /// The business inserts of many, with one statement where there is one.
    fn many() -> impl for<'x> BatchFn<'x, Self::Store, Order> + Copy + 'static;

    /// Appends with one statement and commits.
    async fn append(&self, orders: &[Order]) -> Result<(), Error>;

    /// Business rows; where there are surely fewer than wanted, it may be 0.
    async fn effects(&self, wanted: u64) -> Result<u64, Error>;

    /// Ledger and business inserts by hand, many rows a statement; one transaction.
    async fn floor_many(&self, orders: &[Order]) -> Result<(), Error>;

    /// Ledger and business inserts by hand, one by one; one transaction.
    async fn floor_ones(&self, orders: &[Order]) -> Result<(), Error>;

    /// The server's counts, complete only when nothing else works on the scratch. `None` where
    /// the database keeps none.
    async fn counts(&self) -> Result<Option<Counts>, Error>;

    /// Removes it.
    async fn remove(self) -> Result<(), Error>;
}
