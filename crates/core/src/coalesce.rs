//! How a batch of one-message handlers is committed, and taken apart when it fails.
//!
//! A failed batch must be invisible to the author of the handler: what succeeded before the
//! culprit commits first, the culprit runs alone, the rest follows. Where nobody knows the culprit
//! (a commit that failed, an insert that counted short) the batch is bisected, left half first.

use std::collections::VecDeque;
use std::ops::Range;

/// A run of consecutive messages of a batch that is to commit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Indices into the batch.
    pub range: Range<usize>,
}

impl Piece {
    /// Whether it is a single message, whose failure is then its own.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.range.len() == 1
    }
}

/// How a piece ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceEnd {
    /// Committed, or a single message's failure was recorded.
    Settled,
    /// Rolled back because of the message at this index of the batch.
    FailedAt(usize),
    /// Rolled back and nobody knows why.
    Failed,
}

/// The pieces of one batch still to be run, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    todo: VecDeque<Piece>,
    rollbacks: u32,
}

impl Plan {
    /// A plan that starts with the whole batch of `len` messages as one piece.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let mut todo = VecDeque::new();
        if len > 0 {
            todo.push_back(Piece { range: 0..len });
        }
        Self { todo, rollbacks: 0 }
    }

    /// A plan in which every message commits alone.
    #[must_use]
    pub fn singles(len: usize) -> Self {
        let todo = (0..len).map(|i| Piece { range: i..i + 1 }).collect();
        Self { todo, rollbacks: 0 }
    }

    /// The next piece.
    pub fn next_piece(&mut self) -> Option<Piece> {
        self.todo.pop_front()
    }

    /// Takes a piece's end into account.
    ///
    /// A single message always settles: whatever its end, it is not run again from this plan.
    pub fn ended(&mut self, piece: &Piece, end: PieceEnd) {
        if end == PieceEnd::Settled || piece.is_single() {
            return;
        }
        self.rollbacks += 1;
        let Range { start, end: stop } = piece.range;
        let parts = match end {
            PieceEnd::FailedAt(at) if piece.range.contains(&at) => {
                [start..at, at..at + 1, at + 1..stop]
            }
            _ => {
                let middle = start + (stop - start).div_ceil(2);
                [start..middle, middle..stop, stop..stop]
            }
        };
        for range in parts.into_iter().rev().filter(|range| !range.is_empty()) {
            self.todo.push_front(Piece { range });
        }
    }

    /// How often a piece was rolled back.
    #[must_use]
    pub const fn rollbacks(&self) -> u32 {
        self.rollbacks
    }
}

/// How many messages to commit together: grows by steps on success, halves on a rollback, and is
/// bounded by how long a batch may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSize {
    target: u32,
    max: u32,
    mean_us: f64,
    failure_rate: f64,
}

/// Longest time the handlers of a batch should take together, in microseconds.
const BATCH_US_MAX: f64 = 100_000.0;
/// Share of failing messages below which rolling a whole batch back is cheaper than savepoints.
const SAVEPOINT_RATE_MIN: f64 = 0.003;
/// Most messages between two savepoints.
const SAVEPOINT_EVERY_MAX: u32 = 32;
/// Weight of the newest observation in the running means.
const NEWEST: f64 = 0.1;

impl BatchSize {
    /// Starts at an eighth of `max`.
    #[must_use]
    pub fn new(max: u32) -> Self {
        let max = max.max(1);
        Self {
            target: (max / 8).max(1),
            max,
            mean_us: 0.0,
            failure_rate: 0.0,
        }
    }

    /// Messages for the next batch.
    #[must_use]
    pub fn next(&self) -> u32 {
        if self.mean_us <= 0.0 {
            return self.target;
        }
        let fit = BATCH_US_MAX / self.mean_us;
        if fit >= f64::from(self.target) {
            self.target
        } else {
            (fit as u32).max(1)
        }
    }

    /// Messages between two savepoints; 0 for none.
    ///
    /// With a share `f` of failing messages and a savepoint every `n`, a message costs `1/n`
    /// savepoints and `f·n` reruns: least at `n = 1/√f`.
    #[must_use]
    pub fn savepoint_every(&self) -> u32 {
        if self.failure_rate < SAVEPOINT_RATE_MIN {
            return 0;
        }
        let best = (1.0 / self.failure_rate.sqrt()).round();
        (best as u32).clamp(1, SAVEPOINT_EVERY_MAX)
    }

    /// Takes a finished batch into account.
    pub fn observe(&mut self, seen: BatchSeen) {
        if seen.messages == 0 {
            return;
        }
        let each_us = seen.handlers_us as f64 / f64::from(seen.messages);
        self.mean_us = if self.mean_us <= 0.0 {
            each_us
        } else {
            self.mean_us * (1.0 - NEWEST) + each_us * NEWEST
        };
        let rate = f64::from(seen.failures) / f64::from(seen.messages);
        self.failure_rate = self.failure_rate * (1.0 - NEWEST) + rate * NEWEST;
        if seen.rollbacks > 0 {
            self.target = (self.target / 2).max(1);
        } else if seen.messages >= self.target {
            self.target = (self.target + (self.max / 8).max(1)).min(self.max);
        }
    }
}

/// What was seen of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BatchSeen {
    /// Messages in it.
    pub messages: u32,
    /// Messages that failed, each counted once.
    pub failures: u32,
    /// Messages whose effect was there already.
    pub duplicates: u32,
    /// Pieces rolled back.
    pub rollbacks: u32,
    /// Time in handlers, in microseconds. The cost of a transaction itself is left out: it falls
    /// with the size of the batch, and must not make batches small.
    pub handlers_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a plan in which the messages in `bad` fail; returns the order in which messages
    /// settled and how often each ran.
    fn run(len: usize, bad: &[usize], culprit_known: bool) -> (Vec<usize>, Vec<u32>) {
        let mut plan = Plan::new(len);
        let mut settled = Vec::new();
        let mut runs = vec![0; len];
        while let Some(piece) = plan.next_piece() {
            let culprit = piece.range.clone().find(|i| bad.contains(i));
            for i in piece.range.clone() {
                runs[i] += 1;
                if culprit_known && Some(i) == culprit {
                    break;
                }
            }
            let end = match culprit {
                None => PieceEnd::Settled,
                Some(at) if culprit_known => PieceEnd::FailedAt(at),
                Some(_) => PieceEnd::Failed,
            };
            if culprit.is_none() || piece.is_single() {
                settled.extend(piece.range.clone());
            }
            plan.ended(&piece, end);
        }
        (settled, runs)
    }

    proptest! {
        /// Order and completeness are those of running each alone, whoever fails.
        #[test]
        fn every_message_settles_once_and_in_order(
            len in 0usize..80,
            bad in prop::collection::vec(0usize..80, 0..10),
            culprit_known: bool,
        ) {
            let (settled, _) = run(len, &bad, culprit_known);
            prop_assert_eq!(settled, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_known_culprit_costs_one_rerun_of_what_came_before() {
        let (_, runs) = run(10, &[4], true);
        assert_eq!(runs, [2, 2, 2, 2, 2, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn size_grows_on_success_and_halves_on_rollback() {
        let mut size = BatchSize::new(80);
        let ok = |messages| BatchSeen {
            messages,
            handlers_us: 1_000,
            ..BatchSeen::default()
        };
        assert_eq!(size.next(), 10);
        size.observe(ok(10));
        assert_eq!(size.next(), 20);
        size.observe(ok(3));
        assert_eq!(size.next(), 20, "a batch that was not full says nothing");
        size.observe(BatchSeen {
            rollbacks: 1,
            failures: 1,
            ..ok(20)
        });
        assert_eq!(size.next(), 10);
    }

    #[test]
    fn slow_handlers_are_not_coalesced() {
        let mut size = BatchSize::new(100);
        size.observe(BatchSeen {
            messages: 1,
            handlers_us: 400_000,
            ..BatchSeen::default()
        });
        assert_eq!(size.next(), 1);
    }

    #[test]
    fn savepoints_are_used_only_while_failures_are_frequent() {
        let mut size = BatchSize::new(100);
        for _ in 0..50 {
            size.observe(BatchSeen {
                messages: 100,
                failures: 5,
                handlers_us: 1,
                ..BatchSeen::default()
            });
        }
        assert_eq!(size.savepoint_every(), 4);
        for _ in 0..50 {
            size.observe(BatchSeen {
                messages: 100,
                handlers_us: 1,
                ..BatchSeen::default()
            });
        }
        assert_eq!(size.savepoint_every(), 0);
    }
}
