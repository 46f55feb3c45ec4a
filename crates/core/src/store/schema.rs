//! The store's own tables: migration, version, declared subscriptions.

use std::collections::BTreeMap;
use std::future::Future;

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::contract::{Order, Semantics};
use crate::group::{Grouping, Groups};
use crate::ledger::Identity;
use crate::position::Position;
use crate::stand::Stand;
use crate::timestamp::Timestamp;

/// How the tables stand against this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// There are none.
    Missing,
    /// As this program needs them.
    Current {
        /// Version.
        version: u32,
    },
    /// Migration is needed.
    Behind {
        /// Version found.
        version: u32,
        /// Version needed.
        needed: u32,
    },
    /// Made by a newer program: this one must not touch them.
    Ahead {
        /// Version found.
        version: u32,
        /// Newest version known here.
        known: u32,
    },
}

/// Where a new subscription starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// With what is appended from now on.
    Now,
    /// With the oldest message that is still there.
    Earliest,
    /// With messages recorded at or after a time.
    At(Timestamp),
}

/// What a subscription promises, kept with its name: whoever plans a replay has to know, and may be
/// in another process than its handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Delivery.
    pub semantics: Semantics,
    /// What identifies an effect.
    pub identity: Identity,
    /// Order.
    pub order: Order,
    /// Whether its handlers may be made to run once more on purpose.
    pub is_repeatable: bool,
    /// By what its messages are divided into lane groups, where there is more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Grouping>,
}

impl Terms {
    /// Where a lane stands for a message: at its group's own position, if it has one.
    #[must_use]
    pub fn position_of<'s>(
        &self,
        stand: &'s Stand,
        message_type: &str,
        attributes: &BTreeMap<String, String>,
    ) -> &'s Position {
        let grouping = self.grouping.as_ref().filter(|_| !stand.groups.is_empty());
        let groups = grouping.map(Groups::new);
        let group = groups
            .as_ref()
            .and_then(|g| g.of_message(message_type, attributes));
        match (groups, group) {
            (Some(groups), Some(group)) => stand.of(groups.name(group)),
            _ => &stand.position,
        }
    }
}

impl Default for Terms {
    /// The most careful ones: effect-once by message, in the order of the key, never repeated.
    fn default() -> Self {
        Self {
            semantics: Semantics::EffectOnce,
            identity: Identity::Message,
            order: Order::Key,
            is_repeatable: false,
            grouping: None,
        }
    }
}

/// A subscription as declared.
#[derive(Clone, Debug)]
pub struct Declared<'a> {
    /// Name.
    pub subscription: &'a str,
    /// Number of lanes; fixed once registered.
    pub lanes: u16,
    /// Message types it takes.
    pub types: &'a [String],
    /// Where it starts when it is new. Required once the log holds messages of its types.
    pub start: Option<Start>,
    /// Its former name, whose positions, ledger rows and deferrals it takes over.
    pub renamed_from: Option<&'a str>,
    /// What it promises; the last declaration counts.
    pub terms: Terms,
}

/// What registering found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It is new and starts where declared (or at the beginning of a log without its types).
    New,
    /// It was there.
    Known {
        /// The number of lanes that holds.
        lanes: u16,
    },
    /// It is new, the log holds messages of its types, and no start was declared.
    StartMissing,
}

/// Migration and registration.
pub trait Schema: Clone + Send + Sync + 'static {
    /// Compares without changing anything. `WrongEra` when the database is a restored or copied
    /// one.
    fn schema_state(&self) -> impl Future<Output = Result<SchemaState, StoreError>> + Send;

    /// Brings the tables up to date. Safe when several processes start at once or one dies half
    /// way; refused when the tables are ahead.
    fn migrate(&self) -> impl Future<Output = Result<SchemaState, StoreError>> + Send;

    /// Takes a restored or copied database into service: seals the old rows, starts a new era.
    /// Returns the era.
    fn start_era(&self) -> impl Future<Output = Result<u32, StoreError>> + Send;

    /// Declares a subscription and creates its lanes.
    fn register(
        &self,
        declared: Declared<'_>,
    ) -> impl Future<Output = Result<Registered, StoreError>> + Send;

    /// One trip to the database and back, within a bound; for readiness.
    fn ping(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}
