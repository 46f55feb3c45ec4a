//! What a runner is told, and what it tells.

use std::sync::Arc;

use onceward_core::Position;
use onceward_core::dispatcher::{Event, Ruling};
use onceward_core::store::TakenLane;

use super::rereading::LookedUp;

/// What the fleet's task and the runner's own tasks tell it.
pub(super) enum Note {
    Taken(Vec<TakenLane>),
    Release(Vec<u16>),
    /// Operators acted.
    Acted(Acted),
    Drain,
    Event(Box<Event>),
    /// A page, and what was known when its read began.
    Page(Box<Event>, Earlier),
    LookedUp(Box<LookedUp>),
    /// It cannot go on.
    Over(Over),
    /// Stop at once, whatever is under way.
    Halt,
}

/// Why work under a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The lease was taken over.
    Fenced,
    /// The engine's own decision: to go on without knowing would be worse than to start anew.
    Anew,
    /// A bug in the engine: what ran may have been its cause, as when a process dies.
    Panicked,
}

/// What operators made of a subscription, as the last survey has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Acted {
    pub(super) revision: u64,
    pub(super) ruling: Ruling,
}

/// What is known of earlier owners of the lanes: their work is left out of what is read.
#[derive(Clone)]
pub(super) struct Earlier {
    pub(super) cases_to: Option<Arc<Position>>,
    pub(super) is_rereading: bool,
}

/// What a runner tells the fleet's task.
pub(super) enum RunnerReport {
    /// Its lanes changed.
    Lanes(String, Vec<u16>),
    /// It cannot go on.
    Over(Over),
    /// All its lanes are handed back.
    Drained,
}
