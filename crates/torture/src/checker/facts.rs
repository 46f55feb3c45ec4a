//! What was recorded, by whoever recorded it.

use std::collections::BTreeSet;

use crate::messages::Mood;
use crate::processes::carrier::Entry;

/// The business's own row: exists exactly if the message was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The message.
    pub id: String,
    /// Its key.
    pub key: String,
    /// Its number in the key: the order in which the key's transactions committed.
    pub number: i64,
    /// How it behaves.
    pub mood: Mood,
    /// Its operation.
    pub operation: String,
}

/// The business's row of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Counts up.
    pub n: i64,
    /// Which subscription's.
    pub subscription: String,
    /// Of which message or operation.
    pub id: String,
    /// `done` or `rejected`.
    pub outcome: String,
}

/// A deferral.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// Which subscription's.
    pub subscription: String,
    /// The row of the log.
    pub seq: i64,
    /// `retry`, `held`, `running` or `operator`.
    pub kind: String,
    /// Failed attempts.
    pub failures: i64,
    /// Attempts that ended their process.
    pub deaths: i64,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Which subscription's.
    pub subscription: String,
    /// Of which message.
    pub id: String,
    /// Why.
    pub reason: String,
    /// Failed attempts.
    pub failures: i64,
    /// Attempts that ended their process.
    pub deaths: i64,
    /// Whether its key waits.
    pub holds_key: bool,
}

/// Everything that was recorded about the messages of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The business's orders.
    pub orders: Vec<Order>,
    /// Ids of which a producer was told that they are committed.
    pub acknowledged: BTreeSet<String>,
    /// The log: id and sequence.
    pub log: Vec<(String, i64)>,
    /// The business's effects.
    pub effects: Vec<Effect>,
    /// The ledgers: subscription, identity, ending.
    pub ledger: Vec<(String, String, String)>,
    /// Deferrals.
    pub deferrals: Vec<Deferral>,
    /// Cases.
    pub cases: Vec<Case>,
    /// The carrier's record, in order.
    pub carrier: Vec<Entry>,
    /// Ids that were handed on at least once, in order.
    pub handed: Vec<String>,
    /// Ids that were handed on at most once, in order.
    pub claimed: Vec<String>,
}
