//! What goes into the dispatcher and what comes out.

use std::sync::Arc;

use super::Pace;
use crate::coalesce::BatchSeen;
use crate::envelope::Row;
use crate::failure::FailureRecord;
use crate::position::Position;
use crate::rate::RateLimit;
use crate::retry::Spent;
use crate::store::{Deferral, DeferredRow, HeldCase, HeldKey, ReleasedLane, Span, TakenLane};

/// A message ready for its handler.
#[derive(Clone, Debug)]
pub struct Work {
    /// Names it in this dispatcher.
    pub token: u64,
    /// The message.
    pub row: Arc<Row>,
    /// Budget used so far.
    pub spent: Spent,
    /// Whether a deferral exists, to be cleared with the effect.
    pub is_stored: bool,
    /// It may have killed its process: run alone, with a committed start row.
    pub is_suspect: bool,
    /// An earlier attempt may have had its effect outside the database: look first.
    pub must_probe: bool,
    /// Somebody released it from its case and it has not run since. An earlier attempt may have had
    /// its effect outside the database; where nobody can look, the person's word counts.
    pub is_released: bool,
    /// Its key is one of another lane group: it is to be refused, see
    /// [`conflict`](crate::group::conflict).
    pub is_conflict: bool,
    /// Which run of it this is in the ledger: 0 but for a deliberate rerun.
    pub generation: u32,
    /// It waits for an earlier version, was tried before, and nothing that it waits for is stored, or
    /// queued behind it.
    pub is_alone: bool,
    /// The last failure, if any.
    pub failure: Option<FailureRecord>,
}

impl Work {
    /// Whether nothing of it was ever tried, as far as anybody knows, and nobody released it.
    #[must_use]
    pub fn is_untried(&self) -> bool {
        let is_marked = self.is_suspect || self.must_probe || self.is_released || self.is_conflict;
        !is_marked && self.generation == 0 && self.failure.is_none() && self.spent.is_unused()
    }
}

/// Messages handed to the executor together, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Names it in this dispatcher.
    pub batch: u64,
    /// The messages.
    pub works: Vec<Work>,
    /// Messages between two savepoints; 0 for none.
    pub savepoint_every: u32,
}

/// How a message left the executor.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// Its effect is committed (now or earlier), or it was delivered.
    Finished,
    /// This deferral was written.
    Deferred(Deferral),
    /// A case was opened.
    Quarantined {
        /// Whether the case holds the key.
        holds_key: bool,
    },
    /// Nothing happened: it is to be tried again in its place.
    Returned,
    /// Its effect outside the database may have happened, and a deferral of kind running is there:
    /// it is to be tried again in its place, beginning with a probe.
    Uncertain,
}

/// What operators have decided about a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ruling {
    /// Whether it is paused.
    pub is_paused: bool,
    /// Batches that may run at once, where that is fewer than declared.
    pub concurrency_max: Option<u16>,
    /// Messages that may start per second, in all processes together.
    pub rate: Option<RateLimit>,
}

/// What the outside tells the dispatcher.
#[derive(Clone, Debug)]
pub enum Event {
    /// A lane was taken, with what is quarantined and deferred in it, looked up in this order.
    LaneTaken {
        /// The lane.
        taken: TakenLane,
        /// Keys with deferred messages.
        held: Vec<HeldKey>,
        /// Keys held by live cases.
        cases: Vec<HeldCase>,
    },
    /// A lane is to be handed back.
    ReleaseLane {
        /// The lane.
        lane: u16,
    },
    /// All lanes are to be handed back.
    Drain,
    /// Rows that follow `from`, for a feed that asked.
    Page {
        /// The feed.
        feed: u32,
        /// Where the page starts; the reader may have set an end for the tick.
        from: Position,
        /// All rows, wanted or not.
        rows: Vec<Arc<Row>>,
        /// Where the next page starts.
        next: Position,
    },
    /// A read failed; it will be asked for again.
    ReadFailed {
        /// The feed.
        feed: u32,
    },
    /// A key's deferred messages.
    Loaded {
        /// Which load this answers.
        load: u64,
        /// The key.
        key: String,
        /// In order; shorter than asked for when there are no more.
        rows: Vec<DeferredRow>,
    },
    /// Deferrals are written, or cleared.
    Stored {
        /// Of these messages.
        tokens: Vec<u64>,
    },
    /// Operators acted: what is deferred or quarantined may be another.
    Acted(Ruling),
    /// What is deferred and quarantined in a lane.
    Looked {
        /// Which look-up this answers.
        look: u64,
        /// The lane.
        lane: u16,
        /// Keys with deferred messages, looked up after the cases.
        held: Vec<HeldKey>,
        /// Keys held by live cases.
        cases: Vec<HeldCase>,
    },
    /// A batch ended.
    Finished {
        /// Which.
        batch: u64,
        /// Each message's fate, in the batch's order.
        fates: Vec<(u64, Fate)>,
        /// For sizing the next batches.
        seen: BatchSeen,
        /// How to go on.
        pace: Pace,
    },
    /// Time passed.
    Tick,
}

/// What the dispatcher asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Read on; answered by [`Event::Page`] or [`Event::ReadFailed`].
    Read {
        /// The feed.
        feed: u32,
        /// From here.
        from: Position,
    },
    /// Load a key's deferred messages; answered by [`Event::Loaded`].
    Load {
        /// Names it in this dispatcher.
        load: u64,
        /// The key.
        key: String,
        /// Its slot.
        slot: u16,
        /// Only messages with a sequence above this.
        after_seq: u64,
        /// Only versions of this message's aggregate, up to this one.
        versions_to: Option<(Arc<Row>, i64)>,
        /// Most rows.
        rows_max: u32,
    },
    /// Look a lane's live cases up, then its deferred keys; answered by [`Event::Looked`]. In this
    /// order: a case that is released between the two is seen as held, and not as gone without its
    /// message.
    Look {
        /// Names it in this dispatcher.
        look: u64,
        /// The lane.
        lane: u16,
    },
    /// Run handlers; answered by [`Event::Finished`].
    Run(Batch),
    /// Write deferrals; answered by [`Event::Stored`]. Retried until it succeeds.
    Store {
        /// Of these messages.
        tokens: Vec<u64>,
        /// The deferrals.
        deferrals: Vec<Deferral>,
    },
    /// Clear deferrals of kind running; answered by [`Event::Stored`]. Retried until it succeeds.
    Clear {
        /// Of these messages.
        tokens: Vec<u64>,
        /// Their sequences.
        seqs: Vec<u64>,
    },
    /// Keep positions. Needs no answer.
    Save(Vec<Span>),
    /// A lane is quiet: hand it back.
    Released(ReleasedLane),
}
