//! Retention and other upkeep, in small steps that never make an append wait.

use std::future::Future;

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::ledger::Identity;
use crate::timestamp::Timestamp;

/// How long things are kept, in milliseconds. Positions, deferrals and cases always win over
/// these: nothing unfinished is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Rows of the log.
    pub log_ms: u64,
    /// Ledger rows by message identity.
    pub ledger_ms: u64,
    /// Ledger rows by operation identity.
    pub operation_ledger_ms: u64,
    /// Longest time after which a message may still come again (retries, replays by hand).
    pub replay_window_ms: u64,
}

impl Default for Retention {
    /// Log 7 days, ledger 30 days, operations 90 days, replay window 14 days.
    fn default() -> Self {
        const DAY_MS: u64 = 86_400_000;
        Self {
            log_ms: 7 * DAY_MS,
            ledger_ms: 30 * DAY_MS,
            operation_ledger_ms: 90 * DAY_MS,
            replay_window_ms: 14 * DAY_MS,
        }
    }
}

/// The ledger would forget a message that may still come again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{setting} is {kept_ms} ms, but a message may come again for {needed_ms} ms (log retention \
     plus replay window): a shorter memory would repeat effects"
)]
pub struct UnsafeRetention {
    /// The setting that is too short.
    pub setting: &'static str,
    /// What it says.
    pub kept_ms: u64,
    /// What it must be at least.
    pub needed_ms: u64,
}

impl Retention {
    /// How long effects of an identity are remembered.
    #[must_use]
    pub const fn memory_ms(&self, identity: Identity) -> u64 {
        match identity {
            Identity::Operation => self.operation_ledger_ms,
            Identity::Message | Identity::Seq => self.ledger_ms,
        }
    }

    /// Refuses settings under which an effect could be repeated.
    ///
    /// # Errors
    /// When a ledger's memory is shorter than log retention and replay window together.
    pub fn check(&self) -> Result<(), UnsafeRetention> {
        let needed_ms = self.log_ms.saturating_add(self.replay_window_ms);
        for (setting, kept_ms) in [
            ("ledger", self.ledger_ms),
            ("operation_ledger", self.operation_ledger_ms),
        ] {
            if kept_ms < needed_ms {
                return Err(UnsafeRetention {
                    setting,
                    kept_ms,
                    needed_ms,
                });
            }
        }
        Ok(())
    }
}

/// What one round of upkeep did and found.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct UpkeepReport {
    /// Log partitions emptied or rows deleted, whichever the store does.
    pub log_removed: u64,
    /// Ledger partitions dropped or rows deleted.
    pub ledger_removed: u64,
    /// Old positions, leases, members and acceptance records deleted.
    pub records_removed: u64,
    /// Room made ahead (partitions).
    pub made_ahead: u64,
    /// Whether another round at once would find more to do.
    pub has_more: bool,
    /// The oldest row of the log that is kept.
    pub log_oldest_at: Option<Timestamp>,
    /// Why something of the log or of the ledger is kept although it is old enough to go, in words;
    /// `None` when nothing is.
    pub held_back_by: Option<String>,
    /// Days for which room is made ahead at ten times the highest rate seen.
    pub days_ahead: Option<f64>,
    /// The settings of the round: whoever plans a replay has to know how long the ledger remembers.
    #[serde(default)]
    pub retention: Option<Retention>,
}

/// Upkeep.
pub trait Upkeep: Clone + Send + Sync + 'static {
    /// One bounded round. Any number of processes may call it at once.
    fn tidy(
        &self,
        retention: Retention,
    ) -> impl Future<Output = Result<UpkeepReport, StoreError>> + Send;

    /// The report of the last round that anybody made, with its time.
    fn last_tidy(
        &self,
    ) -> impl Future<Output = Result<Option<(Timestamp, UpkeepReport)>, StoreError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_shorter_than_what_may_come_again_is_refused() {
        assert_eq!(Retention::default().check(), Ok(()));
        let short = Retention {
            ledger_ms: 1_000,
            ..Retention::default()
        };
        assert_eq!(short.check().unwrap_err().setting, "ledger");
    }
}
