//! What a run came to.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checker::{Finding, Findings, Kind};

/// The last line of `--json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// `postgres` or `sqlite`.
    pub store: String,
    /// What everything followed from.
    pub seed: u64,
    /// Rounds, of one fault or more each.
    pub rounds: u64,
    /// Length of the run.
    pub seconds: u64,
    /// Workers killed, at points and at random.
    pub kills: u64,
    /// The same by failure point; `random` are those at none.
    pub kills_by_point: BTreeMap<String, u64>,
    /// Workers frozen past their lease.
    pub stops: u64,
    /// Connections of a process cut in one direction, or a commit or its answer lost.
    pub cuts: u64,
    /// Commits lost, or whose answer was lost.
    pub commits_lost: u64,
    /// Restarts and crashes of the database.
    pub restarts: u64,
    /// All faults by name.
    pub faults: BTreeMap<String, u64>,
    /// Faults that this place cannot have, each with the reason.
    pub not_run: Vec<String>,
    /// Times everything was compared.
    pub checks: u64,
    /// Longest time from the last fault until all work was done, in milliseconds.
    pub drained_ms_max: u64,
    /// Messages accepted.
    pub messages: u64,
    /// Final states compared.
    pub states: u64,
    /// Times the carrier was asked to book what it had booked: calls cannot be fenced.
    pub asked_again: u64,
    /// Accepted messages without a final state, effects of which nothing is left.
    pub lost: u64,
    /// Effects that are there twice.
    pub doubled: u64,
    /// Effects out of the order of their key.
    pub out_of_order: u64,
    /// Anything else that must not be.
    pub wrong: u64,
    /// The first findings.
    pub findings: Vec<Finding>,
    /// Where everything is kept, when something was found.
    pub kept: Option<String>,
}

/// Findings that are reported one by one.
const FINDINGS_MAX: usize = 40;

impl Report {
    /// Adds what a look found wrong.
    pub(super) fn find(&mut self, found: &Findings) {
        self.lost += found.count(Kind::Lost);
        self.doubled += found.count(Kind::Doubled);
        self.out_of_order += found.count(Kind::OutOfOrder);
        self.wrong += found.count(Kind::Wrong);
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(found.wrong.iter().take(room).cloned());
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.out_of_order + self.wrong == 0
    }
}
