//! The checker: compares what producers, the carrier and receivers recorded with what is in the
//! database, by plain SQL and files. It shares no code with the engine.

mod books;
mod facts;
mod rules;

pub use books::Books;
pub use facts::{Case, Deferral, Effect, Facts, Order};
pub use rules::check;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An accepted message without a final state, an acknowledged one that is not there, an effect
    /// of which nothing is left.
    Lost,
    /// An effect twice, or two final states.
    Doubled,
    /// Effects of a key in another order than its messages were accepted.
    OutOfOrder,
    /// Anything else that must not be: a final state that the message cannot have, a budget that
    /// does not add up.
    Wrong,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// In which subscription, or whose record.
    pub place: &'static str,
    /// Of which message, operation or key.
    pub of: String,
    /// What was found.
    pub text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind,
            place,
            of,
            text,
        } = self;
        write!(f, "{kind:?} in {place}: {of}: {text}")
    }
}

/// What a look found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is wrong for good.
    pub wrong: Vec<Finding>,
    /// What has no final state yet: lost, once no more time is left.
    pub pending: Vec<Finding>,
    /// Messages looked at.
    pub messages: u64,
    /// Final states looked at.
    pub states: u64,
    /// Times the carrier was asked to book an operation that it had booked.
    pub asked_again: u64,
}

impl Findings {
    /// Time is up: what has no final state is lost.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.wrong.append(&mut self.pending);
        self
    }

    /// How much of a kind is wrong.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        let of_kind = self.wrong.iter().filter(|finding| finding.kind == kind);
        of_kind.count() as u64
    }
}
