//! What handlers do with each message.

use fastrand::Rng;

use super::fault::Fault;
use super::setup::{Role, Setup};

/// How a handler fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// A transient failure.
    Transient,
    /// Any error through `?`.
    Unclassified,
    /// A window was named.
    RateLimited,
    /// A panic.
    Panic,
    /// It takes longer than its timeout.
    TimeOut,
    /// A permanent failure.
    Permanent,
    /// A message that cannot be read.
    Schema,
    /// A business refusal.
    Rejected,
    /// Needs a person.
    Operator,
    /// Nobody knows: outside, the work was done and its answer lost.
    Ambiguous,
    /// A constraint of the database.
    Refused,
    /// The process dies.
    Kill,
}

impl Trouble {
    /// Whether it ends the message at once when it happens.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Permanent | Self::Schema | Self::Rejected | Self::Operator | Self::Refused
        )
    }
}

/// What a handler does with one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conduct {
    /// How it fails, if it does.
    pub trouble: Option<Trouble>,
    /// So many attempts fail; after them it succeeds.
    pub times: u32,
    /// How long each attempt takes.
    pub work_ms: u64,
    /// Whether it appends a follow-up.
    pub follows: bool,
}

impl Setup {
    /// What a handler does with a message.
    #[must_use]
    pub fn conduct(&self, role: Role, number: u64) -> Conduct {
        let mut rng = Rng::with_seed(self.seed.rotate_left(17) ^ number << 8 ^ role as u64);
        let mut conduct = Conduct {
            trouble: None,
            times: 0,
            work_ms: if rng.u32(..4) == 0 { rng.u64(..60) } else { 0 },
            follows: rng.u32(..3) == 0,
        };
        let times = rng.u32(1..self.retry.attempts_max + 2);
        let trouble = match rng.u32(..40) {
            0 | 1 => Trouble::Transient,
            2 => Trouble::Unclassified,
            3 => Trouble::RateLimited,
            4 => Trouble::Panic,
            5 => Trouble::TimeOut,
            6 => Trouble::Permanent,
            7 => Trouble::Schema,
            8 => Trouble::Rejected,
            9 if rng.u32(..4) == 0 => Trouble::Operator,
            10 | 11 => Trouble::Ambiguous,
            12 => Trouble::Refused,
            13 if rng.u32(..3) == 0 => Trouble::Kill,
            _ => return conduct,
        };
        let is_on = match trouble {
            Trouble::Kill => self.has(Fault::Kill),
            _ => self.has(Fault::Handler),
        };
        if is_on {
            conduct.trouble = Some(trouble);
            conduct.times = times;
        }
        conduct
    }
}
