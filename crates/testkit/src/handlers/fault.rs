//! What can go wrong around a handler, and where.

use std::fmt;

use onceward::{Moment, Part};

/// A point of an attempt at which a process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Point {
    /// Before user code is called.
    Before(Part),
    /// While user code waits for something: a statement, an answer.
    Within(Part),
    /// After user code has ended; nothing of it is committed.
    After(Part),
    /// Everything is written, nothing is committed.
    BeforeCommit,
    /// It is committed, and the process does not live to hear so.
    AfterCommit,
}

impl Point {
    pub(super) fn of(moment: &Moment) -> Option<Self> {
        match moment {
            Moment::Starts(part) => Some(Self::Before(*part)),
            Moment::Waits(part, _) => Some(Self::Within(*part)),
            Moment::Ended(part, _) => Some(Self::After(*part)),
            Moment::Commits => Some(Self::BeforeCommit),
            Moment::Committed => Some(Self::AfterCommit),
            _ => None,
        }
    }
}

/// "the handler", "the call": what people call a part.
pub(super) const fn name_of(part: Part) -> &'static str {
    match part {
        Part::Handler => "the handler",
        Part::Call => "the call",
        Part::Probe => "the probe",
        Part::Outcome => "the outcome",
        Part::Delivery => "the delivery",
        _ => "user code",
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(part) => write!(f, "before {}", name_of(*part)),
            Self::Within(part) => write!(f, "within {}", name_of(*part)),
            Self::After(part) => write!(f, "after {}, before the commit", name_of(*part)),
            Self::BeforeCommit => write!(f, "right before the commit"),
            Self::AfterCommit => write!(f, "right after the commit"),
        }
    }
}

/// Something that goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// A message is appended twice, with one id.
    Duplicate,
    /// A message is appended once more, with its id, after everything has been handled.
    LateDuplicate,
    /// The process dies, and another takes over when the lease is over.
    Crash(Point),
    /// The database refuses a commit, for a conflict with somebody else.
    CommitRefused,
    /// A commit happens and its answer is lost; the process lives on.
    CommitAnswerLost,
}

impl Fault {
    /// The point at which it strikes; duplicates strike at none.
    pub(super) const fn point(self) -> Option<Point> {
        match self {
            Self::Duplicate | Self::LateDuplicate => None,
            Self::Crash(point) => Some(point),
            Self::CommitRefused => Some(Point::BeforeCommit),
            Self::CommitAnswerLost => Some(Point::AfterCommit),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => write!(f, "the message is appended twice"),
            Self::LateDuplicate => write!(f, "the message is appended again when all is done"),
            Self::Crash(point) => write!(f, "the process dies {point}"),
            Self::CommitRefused => write!(f, "the commit is refused for a conflict"),
            Self::CommitAnswerLost => write!(f, "the answer to the commit is lost"),
        }
    }
}
