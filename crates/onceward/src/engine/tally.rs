//! What a batch came to, message by message.

use std::time::Duration;

use onceward_core::coalesce::BatchSeen;
use onceward_core::dispatcher::{Fate, Pace, Work};
use onceward_core::store::{Deferral, NewCase};
use onceward_core::{Envelope, LedgerEntry};

use super::execute::Stop;

/// Pause of a subscription whose store is in trouble, in milliseconds; as much again at random.
const TROUBLE_PAUSE_MS: u64 = 250;

/// How a batch ended.
pub(super) struct BatchEnd {
    pub(super) fates: Vec<(u64, Fate)>,
    pub(super) seen: BatchSeen,
    pub(super) pace: Pace,
    pub(super) is_fenced: bool,
}

/// What a transaction will record, applied only when it commits.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) entries: Vec<LedgerEntry>,
    pub(super) clear: Vec<u64>,
    pub(super) defer: Vec<Deferral>,
    pub(super) cases: Vec<NewCase>,
    pub(super) fates: Vec<(usize, Fate)>,
    pub(super) failures: u32,
    pub(super) duplicates: u32,
    pub(super) handlers: Duration,
}

/// How far a draft had come when a savepoint was set.
pub(super) struct Checkpoint {
    /// The first message after it.
    pub(super) at: usize,
    entries: usize,
    clear: usize,
    defer: usize,
    cases: usize,
    fates: usize,
    outgoing: usize,
    failures: u32,
    duplicates: u32,
}

impl Checkpoint {
    pub(super) fn of(at: usize, draft: &Draft, outgoing: &[Envelope]) -> Self {
        Self {
            at,
            entries: draft.entries.len(),
            clear: draft.clear.len(),
            defer: draft.defer.len(),
            cases: draft.cases.len(),
            fates: draft.fates.len(),
            outgoing: outgoing.len(),
            failures: draft.failures,
            duplicates: draft.duplicates,
        }
    }

    /// Forgets what was added since.
    pub(super) fn restore(&self, draft: &mut Draft, outgoing: &mut Vec<Envelope>) {
        draft.entries.truncate(self.entries);
        draft.clear.truncate(self.clear);
        draft.defer.truncate(self.defer);
        draft.cases.truncate(self.cases);
        draft.fates.truncate(self.fates);
        draft.failures = self.failures;
        draft.duplicates = self.duplicates;
        outgoing.truncate(self.outgoing);
    }
}

/// The fates of a batch as they become known.
pub(super) struct Tally {
    pub(super) fates: Vec<Fate>,
    pub(super) seen: BatchSeen,
    pub(super) stop: Option<Stop>,
}

impl Tally {
    pub(super) fn new(len: usize) -> Self {
        Self {
            fates: vec![Fate::Returned; len],
            seen: BatchSeen::default(),
            stop: None,
        }
    }

    pub(super) fn apply(&mut self, draft: Draft) {
        self.seen.failures += draft.failures;
        self.seen.duplicates += draft.duplicates;
        let handlers_us = u64::try_from(draft.handlers.as_micros()).unwrap_or(u64::MAX);
        self.seen.handlers_us = self.seen.handlers_us.saturating_add(handlers_us);
        for (index, fate) in draft.fates {
            self.fates[index] = fate;
        }
    }

    /// Takes in what a part of the batch came to, of which these are the places.
    pub(super) fn take_in(&mut self, indices: &[usize], part: Self) {
        for (index, fate) in indices.iter().zip(part.fates) {
            self.fates[*index] = fate;
        }
        self.seen.failures += part.seen.failures;
        self.seen.duplicates += part.seen.duplicates;
        self.seen.rollbacks += part.seen.rollbacks;
        self.seen.handlers_us += part.seen.handlers_us;
    }

    pub(super) fn end(mut self, works: &[Work]) -> BatchEnd {
        let settled = self
            .fates
            .iter()
            .filter(|fate| **fate != Fate::Returned)
            .count();
        self.seen.messages = u32::try_from(settled).unwrap_or(u32::MAX);
        BatchEnd {
            fates: works
                .iter()
                .map(|work| work.token)
                .zip(self.fates)
                .collect(),
            seen: self.seen,
            pace: Pace {
                pause_ms: self
                    .stop
                    .map(|_| TROUBLE_PAUSE_MS + fastrand::u64(..TROUBLE_PAUSE_MS)),
                ..Pace::default()
            },
            is_fenced: matches!(self.stop, Some(Stop::Fenced)),
        }
    }
}
