//! What happened in a run, step by step: plain data for the checkers and for people.

use std::fmt;
use std::hash::{DefaultHasher, Hash};

use onceward_core::Timestamp;

use super::setup::Role;
use crate::memory::{Change, Written};

/// How something outside the database ended, seen from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was done and confirmed.
    Done,
    /// It was refused for good, as a business answer.
    Rejected,
    /// Nothing was done.
    Failed,
    /// It was done and nobody heard of it.
    DoneUnheard,
    /// Nobody was there to be asked.
    Away,
}

/// Something that happened outside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process started.
    Started,
    /// Its engine refused to start, for good.
    NotStarted(String),
    /// It died.
    Died(&'static str),
    /// It stands still.
    Paused,
    /// It goes on.
    Resumed,
    /// It was told to stop.
    Stopping,
    /// It stopped by itself.
    Stopped,
    /// A fault met a store call.
    Fault(&'static str, &'static str),
    /// The database's clock was moved, in milliseconds.
    ClockStepped(i64),
    /// From now on there are no faults.
    Calm,
    /// A handler started with a message.
    Ran {
        /// Subscription.
        role: Role,
        /// The message.
        seq: u64,
        /// Its number.
        number: u64,
        /// As the engine says.
        attempt: u32,
        /// Number of the run.
        run: u64,
    },
    /// Work outside was asked for, and so it ended there.
    Outside {
        /// Subscription.
        role: Role,
        /// The message's number.
        number: u64,
        /// Operation or message id.
        operation: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// The outside was asked about an operation.
    Probed {
        /// Operation.
        operation: String,
        /// Whether it was done.
        is_done: bool,
    },
    /// The outside was to be asked about an operation, and was away.
    ProbedNobody {
        /// Subscription.
        role: Role,
        /// The message's number.
        number: u64,
    },
    /// A message was delivered: the other side confirmed or refused it.
    Delivered {
        /// Subscription.
        role: Role,
        /// The message.
        seq: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Somebody asked how a subscription stands, and was told this.
    Asked {
        /// Subscription.
        role: Role,
        /// Messages that wait.
        waiting: u64,
        /// When the oldest of them was recorded.
        oldest_waiting_at: Option<Timestamp>,
        /// When the oldest deferred message was first deferred.
        oldest_deferred_at: Option<Timestamp>,
    },
    /// A deferred message was loaded, with its age.
    Loaded {
        /// Subscription.
        subscription: String,
        /// The message.
        seq: u64,
        /// Age in milliseconds.
        age_ms: u64,
    },
}

/// What a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The database changed.
    Database(Change),
    /// Something else happened.
    Outside(Event),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Milliseconds since the run began.
    pub at_ms: u64,
    /// The database's clock.
    pub now: Timestamp,
    /// Which process, `-` for none.
    pub process: String,
    /// What.
    pub what: What,
}

impl Step {
    /// A number that differs where steps differ.
    pub fn mix_into(&self, hasher: &mut DefaultHasher) {
        format!("{self:?}").hash(hasher);
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} ms  {:<5} ", self.at_ms, self.process)?;
        match &self.what {
            What::Outside(event) => write!(f, "{event:?}"),
            What::Database(Change::Committed { member, writes, .. }) => {
                write!(f, "COMMIT by {}", member.as_deref().unwrap_or("-"))?;
                writes.iter().try_for_each(|written| {
                    write!(f, "\n{:21}", "")?;
                    show(f, written)
                })
            }
            What::Database(change) => write!(f, "{change:?}"),
        }
    }
}

fn show(f: &mut fmt::Formatter<'_>, written: &Written) -> fmt::Result {
    match written {
        Written::Appended(row) => {
            let e = &row.envelope;
            let (seq, xid, slot) = (row.seq, row.xid, row.slot);
            write!(
                f,
                "append {seq} (xid {xid}, slot {slot}) {} {}",
                e.message_type, e.id
            )?;
            write!(f, " key {} operation {}", e.key(), e.operation())
        }
        Written::Recorded {
            subscription,
            entry,
            ..
        } => {
            let (identity, ending) = (&entry.key.identity, entry.ending.as_str());
            write!(f, "ledger of {subscription}: {identity} {ending}")
        }
        Written::Put { table, key, value } => write!(f, "{table}: {key} = {value}"),
        other => write!(f, "{other:?}"),
    }
}
