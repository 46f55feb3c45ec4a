//! What is produced, and who takes it: known to workers and checker alike, and to nobody else.

use onceward::Message;
use serde::{Deserialize, Serialize};

/// How a message behaves in every handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mood {
    /// Succeeds.
    Well,
    /// Fails with `transient` in its first two attempts.
    Transient,
    /// Panics in its first attempt.
    Panic,
    /// Is told to wait, now and then.
    RateLimited,
    /// Ends as a final answer of the business.
    Rejected,
    /// Fails with `permanent`.
    Poison,
    /// Its payload cannot be read.
    Unreadable,
    /// Needs a person.
    Operator,
    /// Ends its process, each time.
    Killer,
}

impl Mood {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Well,
        Self::Transient,
        Self::Panic,
        Self::RateLimited,
        Self::Rejected,
        Self::Poison,
        Self::Unreadable,
        Self::Operator,
        Self::Killer,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Transient => "transient",
            Self::Panic => "panic",
            Self::RateLimited => "rate-limited",
            Self::Rejected => "rejected",
            Self::Poison => "poison",
            Self::Unreadable => "unreadable",
            Self::Operator => "operator",
            Self::Killer => "killer",
        }
    }

    /// The mood of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mood| mood.as_str() == name)
    }
}

/// An order: taken by all but two subscriptions.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "task.ordered", version = 1, key = key, operation = operation)]
pub struct Ordered {
    /// What stays in order.
    pub key: String,
    /// The business operation; two messages may have the same.
    pub operation: String,
    /// How it behaves.
    pub mood: Mood,
}

/// Appended by the handler of an order, in the same transaction as its effect.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "task.followed", version = 1, key = key)]
pub struct Followed {
    /// What stays in order.
    pub key: String,
    /// The order's message.
    pub id: String,
}

/// May end the process that handles it.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "task.deadly", version = 1, key = key, operation = operation)]
pub struct Deadly {
    /// What stays in order.
    pub key: String,
    /// The business operation.
    pub operation: String,
    /// How it behaves.
    pub mood: Mood,
}

/// Attempts of a message before it becomes a case. Many, because whatever ends a process counts
/// against the messages that ran alone in it, and here processes end all the time.
pub const ATTEMPTS: u32 = 200;
/// Attempts in the subscription for deadly messages.
pub const DEADLY_ATTEMPTS: u32 = 4;

/// What identifies an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Each message is an effect.
    Message,
    /// Each operation is an effect.
    Operation,
}

/// Where an effect is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A row of the business, in the effect's transaction.
    Row,
    /// The same, and a booking in the carrier's own record.
    Booking,
    /// A line in the receiver's own record, at least one.
    Handed,
    /// A line in the receiver's own record, at most one.
    Claimed,
}

/// What a subscription promises.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Its name.
    pub name: &'static str,
    /// The message type that it takes.
    pub message_type: &'static str,
    /// What identifies an effect.
    pub unit: Unit,
    /// Where effects are found.
    pub trace: Trace,
    /// Whether a case holds its key.
    pub holds_key: bool,
    /// Whether the latest of a key takes the place of those that wait with it.
    pub merges: bool,
    /// Attempts before a case.
    pub attempts: u32,
    /// Lanes that its work is shared in.
    pub lanes: u16,
}

const fn promise(name: &'static str, unit: Unit, trace: Trace) -> Promise {
    Promise {
        name,
        message_type: Ordered::TYPE,
        unit,
        trace,
        holds_key: false,
        merges: false,
        attempts: ATTEMPTS,
        lanes: 4,
    }
}

/// One message at a time, coalesced.
pub const EFFECTS: Promise = Promise {
    lanes: 16,
    ..promise("effects", Unit::Message, Trace::Row)
};
/// Many messages with one call, an effect for each operation.
pub const BATCHES: Promise = promise("batches", Unit::Operation, Trace::Row);
/// A quarantined message holds its key.
pub const HELD: Promise = Promise {
    holds_key: true,
    ..promise("held", Unit::Message, Trace::Row)
};
/// An effect outside the database, with a probe.
pub const CARRIED: Promise = promise("carried", Unit::Operation, Trace::Booking);
/// Handed on at least once.
pub const HANDED: Promise = promise("handed", Unit::Message, Trace::Handed);
/// Handed on at most once.
pub const CLAIMED: Promise = promise("claimed", Unit::Message, Trace::Claimed);
/// Of messages of a key that wait together, the latest.
pub const LATEST: Promise = Promise {
    merges: true,
    ..promise("latest", Unit::Message, Trace::Row)
};
/// What effects append.
pub const FOLLOWED: Promise = Promise {
    message_type: Followed::TYPE,
    ..promise("followed", Unit::Message, Trace::Row)
};
/// What may end its process.
pub const DEADLY: Promise = Promise {
    message_type: Deadly::TYPE,
    attempts: DEADLY_ATTEMPTS,
    ..promise("deadly", Unit::Message, Trace::Row)
};

/// All subscriptions.
pub const PROMISES: [Promise; 9] = [
    EFFECTS, BATCHES, HELD, CARRIED, HANDED, CLAIMED, LATEST, FOLLOWED, DEADLY,
];
