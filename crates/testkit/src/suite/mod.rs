//! One suite that every store passes.
//!
//! A store's crate writes a [`Fixture`] and one line, which becomes a named test per case:
//!
//! ```
//! onceward_testkit::store_suite!(onceward_testkit::memory::MemoryFixture::new().await?);
//! ```
//!
//! The expression is evaluated once for each case and must give a fixture on an empty, migrated
//! store. What a store cannot do it says in its [`Capabilities`]; a case that needs it says out
//! loud what it leaves out, and why.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use onceward_core::store::Store;

pub mod acceptance;
pub mod cases;
pub mod deferrals;
pub mod dropped;
pub mod effects;
mod expand;
pub mod groups;
pub mod lanes;
pub mod ledger;
pub mod log;
pub mod log_interleaved;
pub mod operate;
pub mod operate_corrections;
pub mod operate_subscriptions;
pub mod registry;
pub mod replay;
pub mod replay_log;
pub mod schema;
pub mod status;
mod steps;
pub mod still;
pub mod takeover;
pub mod upkeep;
pub mod versions;

/// The methods of all seams.
mod seams {
    pub(super) use onceward_core::store::{
        Acceptance as _, Append as _, Cases as _, Deferrals as _, Effects as _, Lanes as _,
        Log as _, Operate as _, Registry as _, Replay as _, Schema as _, Status as _, Time as _,
        Upkeep as _, Versions as _,
    };
}

/// How a case ends: assertions panic, errors of the store are returned.
pub type CaseResult = Result<(), Box<dyn Error + Send + Sync>>;

/// A case as a value, for running cases outside a test harness.
pub type CaseFuture = Pin<Box<dyn Future<Output = CaseResult> + Send>>;

/// A case that takes longer waits for something that does not come.
const CASE_WITHIN: Duration = Duration::from_secs(120);

/// What a store can do, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Two transactions may hold uncommitted writes at the same time. Without it there is one
    /// writer, and interleaved schedules cannot happen.
    pub has_concurrent_writers: bool,
    /// Upkeep removes single rows of the log; else it removes whole partitions, of which a test
    /// fills none.
    pub removes_single_log_rows: bool,
}

impl Capabilities {
    /// All of it.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            has_concurrent_writers: true,
            removes_single_log_rows: true,
        }
    }
}

/// An empty, migrated store of one test.
pub trait Fixture: Send + Sync + 'static {
    /// The store.
    type Store: Store;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// The store, migrated, with nothing in it.
    fn store(&self) -> &Self::Store;

    /// Another handle to the same database, as another process would have. It follows the same
    /// clock.
    fn second(&self) -> impl Future<Output = Self::Store> + Send;

    /// Moves the clock that all handles decide by forward by `by_ms` milliseconds. It starts near
    /// the database's own time and may run on by itself.
    fn advance_ms(&self, by_ms: u64);

    /// Sets that clock back by `by_ms` milliseconds, as clocks are now and then.
    fn set_back_ms(&self, by_ms: u64);
}

/// Says what a case leaves out. Returns whether the store has the capability.
fn allows(has: bool, case: &str, why: &str) -> bool {
    if !has {
        eprintln!("left out of {case}: {why}");
    }
    has
}

/// Runs a case within a bound, so that a store that waits for ever fails instead of hanging.
///
/// # Errors
/// Those of the case, and when it is not over within two minutes.
pub async fn guarded(
    name: &'static str,
    case: impl Future<Output = CaseResult> + Send,
) -> CaseResult {
    match tokio::time::timeout(CASE_WITHIN, case).await {
        Ok(ended) => ended,
        Err(_) => Err(format!("{name} was not over within {CASE_WITHIN:?}").into()),
    }
}
