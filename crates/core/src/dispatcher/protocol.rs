//! What goes into the dispatcher and what comes out.

use std::sync::Arc;

use super::Pace;
use crate::coalesce::BatchSeen;
use crate::envelope::Row;
use crate::failure::FailureRecord;
use crate::position::Position;
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
    /// The last failure, if any.
    pub failure: Option<FailureRecord>,
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

/// What the outside tells the dispatcher.
#[derive(Clone, Debug)]
pub enum Event {
    /// A lane was taken, with what is deferred and quarantined in it.
    LaneTaken {
        /// The lane.
        taken: TakenLane,
        /// Keys with deferred messages.
        held: Vec<HeldKey>,
        /// Keys held by open cases.
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
        /// Most rows.
        rows_max: u32,
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
    /// Clear deferrals; answered by [`Event::Stored`]. Retried until it succeeds.
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
