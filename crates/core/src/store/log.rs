//! Reading the log and keeping positions.

use std::future::Future;

use super::StoreError;
use crate::envelope::Row;
use crate::position::Position;
use crate::stand::Stand;

/// A request for the next rows.
#[derive(Clone, Debug)]
pub struct ReadPage<'a> {
    /// Read what follows this.
    pub from: &'a Position,
    /// Most rows to return; at least 1.
    pub rows_max: u32,
    /// Payload bytes at which to stop; at least one row is returned all the same.
    pub bytes_max: u64,
}

/// Rows in order, and where the next page starts.
///
/// From a boundary, the store takes a new snapshot and returns the first rows of the tick up to it:
/// `next` is that boundary when the tick is complete, else a place inside it. From a place inside a
/// tick it goes on to the tick's own end. Inside a tick rows are ordered by `seq`.
#[derive(Clone, Debug)]
pub struct Page {
    /// Rows of all types and lanes.
    pub rows: Vec<Row>,
    /// Where to go on.
    pub next: Position,
}

/// Lanes that stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Everything before this is finished, or stored as deferred or quarantined.
    pub stand: Stand,
    /// Lanes and the epoch at which this member took each.
    pub lanes: Vec<(u16, u64)>,
}

/// Appends a position record. A record of an epoch that is over is never looked at again, so a
/// stale member cannot move anybody's position.
#[derive(Clone, Debug)]
pub struct SavePosition<'a> {
    /// Who writes.
    pub member: &'a str,
    /// For which subscription.
    pub subscription: &'a str,
    /// All lanes that the member owns there.
    pub spans: &'a [Span],
}

/// The log, read.
pub trait Log: Clone + Send + Sync + 'static {
    /// The next rows after a position. Never blocks on writers, never loses a late commit.
    fn read(&self, request: ReadPage<'_>) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// The boundary of this moment: nothing committed so far is due after it.
    fn head(&self) -> impl Future<Output = Result<Position, StoreError>> + Send;

    /// Keeps where a member stands.
    fn save_position(
        &self,
        request: SavePosition<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Waits until another process may have appended, at most `wait_ms`. A store without such a
    /// signal just waits.
    fn doze(&self, wait_ms: u64) -> impl Future<Output = ()> + Send;
}
