//! What a fleet has agreed on: message types with their promises, subscriptions with their
//! semantics. Data, checked as a whole before anything starts.

mod groups;
mod overload;
mod sources;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::breaker::BreakerPolicy;
use crate::envelope::Row;
use crate::expiry::{Expired, type_of_expired};
use crate::group::{Grouping, Priority, Tenants};
use crate::hold::HoldLimits;
use crate::lane::SLOTS;
use crate::ledger::Identity;
use crate::merge::Merge;
use crate::message::KeyField;
use crate::retry::RetryPolicy;
use crate::shed::Shed;
use crate::store::{Start, Terms};
use crate::throttle::Throttle;
use crate::version::{Gaps, VersionPolicy};

use overload::check_shed;

/// What kind of message a type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Something to be done, by exactly one owning subscription.
    Command,
    /// Something that happened; any number of independent subscriptions.
    #[default]
    Event,
    /// A retained log with independent positions and deliberate rewind.
    Log,
}

/// What a subscription promises about deliveries and effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// Recorded before it is tried; never tried twice.
    AtMostOnce,
    /// Tried until it succeeds; may repeat, always with the same id.
    AtLeastOnce,
    /// Observably one effect inside the store's database.
    EffectOnce,
}

/// What order a subscription keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Messages of one key in the log's order, different keys in parallel.
    #[default]
    Key,
    /// None: nothing waits for anything but the same message, should it be there twice.
    None,
}

impl Order {
    /// What a message waits behind: its key, or without order its identity, so that two rows of one
    /// message never run at once and the second finds what the first left in the ledger.
    #[must_use]
    pub fn key_of(self, row: &Row) -> Cow<'_, str> {
        let envelope = &row.envelope;
        self.key_from(
            envelope.key(),
            envelope.source.as_deref().unwrap_or_default(),
            &envelope.message_type,
            row.effect_id(),
        )
    }

    /// The same from the parts of a message, of which `key` is its own.
    #[must_use]
    pub fn key_from<'a>(
        self,
        key: &'a str,
        source: &str,
        message_type: &str,
        id: &str,
    ) -> Cow<'a, str> {
        match self {
            Self::Key => Cow::Borrowed(key),
            Self::None => Cow::Owned(format!("id:{source} {message_type} {id}")),
        }
    }
}

/// What happens to later messages of a key when one is quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnPoison {
    /// They go on. Default for events.
    Skip,
    /// They wait until the case is closed. Default for commands.
    HoldKey,
}

/// What users of a message type may rely on. All times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Promise {
    /// Accepted within.
    pub accept_within_ms: Option<u64>,
    /// Started within.
    pub start_within_ms: Option<u64>,
    /// Finished within.
    pub finish_within_ms: Option<u64>,
    /// Useless after.
    pub useful_for_ms: Option<u64>,
}

/// A message type.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageContract {
    /// Command, event or log.
    pub kind: Kind,
    /// Which field the key goes to.
    #[serde(skip)]
    pub key: KeyField,
    /// The type of the aggregates that its messages belong to, where that is known.
    pub aggregate: Option<String>,
    /// Who repairs what goes wrong with it.
    pub owner: Option<String>,
    /// Where the repair is described.
    pub runbook: Option<String>,
    /// What a user sees while it is pending.
    pub pending_text: Option<String>,
    /// The promise.
    pub promise: Promise,
    /// What acceptance does while the promise cannot be kept.
    pub throttle: Throttle,
    /// Its business value: who starts first where there is more to do than can be done.
    pub priority: Priority,
}

/// The source of messages that are appended in this database, and come from no broker.
pub const OUTBOX: &str = "outbox";

/// A subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionContract {
    /// Name; part of every ledger key.
    pub name: String,
    /// Message types it takes.
    pub types: Vec<String>,
    /// Where its messages come from: [`OUTBOX`], or names of brokers. All subscriptions of a type
    /// take it from the same.
    pub sources: Vec<String>,
    /// What it promises.
    pub semantics: Semantics,
    /// What identifies an effect; by default the operation for commands, the message for events.
    pub identity: Option<Identity>,
    /// Order.
    pub order: Order,
    /// What a quarantined message does to its key; by default hold for commands, skip for events.
    pub on_poison: Option<OnPoison>,
    /// Whether and how the versions of aggregates are checked; `None` leaves them alone.
    pub versions: Option<VersionPolicy>,
    /// What becomes of work whose time is over.
    pub expired: Expired,
    /// How long its messages are useful here, in milliseconds, where that is shorter than what
    /// their type promises.
    pub useful_for_ms: Option<u64>,
    /// What becomes of messages of one key and type that wait together.
    pub merge: Merge,
    /// What is given up when its turn comes late.
    pub shed: Option<Shed>,
    /// How much may wait behind a key before somebody is told.
    pub hold: HoldLimits,
    /// Retry budget.
    pub retry: RetryPolicy,
    /// Batches, or messages that are not coalesced, in work at once in one process. For effects
    /// outside the database it is the ceiling of what the other side is found to take.
    pub concurrency: u16,
    /// The floor of what the other side is found to take.
    pub concurrency_min: u16,
    /// When the other side of effects outside the database counts as away.
    pub breaker: BreakerPolicy,
    /// Lanes: the most processes that can share the work.
    pub lanes: u16,
    /// Most messages that commit together.
    pub batch_max: u32,
    /// Messages held in memory at once.
    pub window_rows: u32,
    /// Bytes held in memory at once.
    pub window_bytes: u64,
    /// A handler that takes longer than this is cancelled and counted as failed.
    pub timeout_ms: u64,
    /// Whose its messages are, where each is to have a share.
    pub tenants: Option<Tenants>,
    /// Which part of what runs at once is for messages that come again (retries, releases,
    /// replays) while there are new ones as well; the rest is for those.
    pub catch_up_share: f64,
    /// Where it starts when it is new.
    pub start: Option<Start>,
    /// Former name.
    pub renamed_from: Option<String>,
    /// Its handlers may be made to run once more on purpose, by a replay campaign.
    pub is_repeatable: bool,
}

impl SubscriptionContract {
    /// A subscription with every default.
    #[must_use]
    pub fn new(name: impl Into<String>, types: &[&str], semantics: Semantics) -> Self {
        Self {
            name: name.into(),
            types: types.iter().map(|t| (*t).to_owned()).collect(),
            sources: vec![OUTBOX.to_owned()],
            semantics,
            identity: None,
            order: Order::Key,
            on_poison: None,
            versions: None,
            expired: Expired::Keep,
            useful_for_ms: None,
            merge: Merge::None,
            shed: None,
            hold: HoldLimits::default(),
            retry: RetryPolicy::default(),
            concurrency: 8,
            concurrency_min: 1,
            breaker: BreakerPolicy::default(),
            lanes: 16,
            batch_max: 100,
            window_rows: 4_096,
            window_bytes: 8 << 20,
            timeout_ms: 60_000,
            tenants: None,
            catch_up_share: 0.5,
            start: None,
            renamed_from: None,
            is_repeatable: false,
        }
    }
}

/// What is wrong with a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// A subscription takes a type that nobody declared.
    UnknownType,
    /// A command has more than one owning subscription.
    TwoOwners,
    /// A command has no owning subscription.
    NoOwner,
    /// A name is empty or has characters that cannot travel.
    BadName,
    /// A number is outside its range.
    OutOfRange,
    /// A subscription takes no type at all, or one twice.
    BadTypes,
    /// Settings that contradict one another.
    Contradiction,
}

/// A fault, with the path of the setting (`subscription.billing.messages[1]`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ContractFault {
    /// What kind.
    pub kind: FaultKind,
    /// Which setting, as a dotted path.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Message types and subscriptions together.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Contract {
    /// By type.
    pub messages: BTreeMap<String, MessageContract>,
    /// By name.
    pub subscriptions: BTreeMap<String, SubscriptionContract>,
}

impl Contract {
    /// The kind of a type; event where it is not declared.
    #[must_use]
    pub fn kind_of(&self, message_type: &str) -> Kind {
        self.messages
            .get(message_type)
            .map_or(Kind::Event, |m| m.kind)
    }

    /// What identifies an effect of a subscription.
    #[must_use]
    pub fn identity_of(&self, subscription: &SubscriptionContract) -> Identity {
        subscription
            .identity
            .unwrap_or(if self.takes_commands(subscription) {
                Identity::Operation
            } else {
                Identity::Message
            })
    }

    /// What a quarantined message does to its key.
    #[must_use]
    pub fn on_poison_of(&self, subscription: &SubscriptionContract) -> OnPoison {
        subscription
            .on_poison
            .unwrap_or(if self.takes_commands(subscription) {
                OnPoison::HoldKey
            } else {
                OnPoison::Skip
            })
    }

    /// What a subscription promises, for those who work with its records.
    #[must_use]
    pub fn terms_of(&self, subscription: &SubscriptionContract) -> Terms {
        Terms {
            semantics: subscription.semantics,
            identity: self.identity_of(subscription),
            order: subscription.order,
            is_repeatable: subscription.is_repeatable,
            grouping: Some(self.grouping_of(subscription)).filter(|g| g.count() > 1),
        }
    }

    /// By what a subscription's messages are divided into lane groups.
    #[must_use]
    pub fn grouping_of(&self, subscription: &SubscriptionContract) -> Grouping {
        let priority = |t: &String| self.messages.get(t).map(|m| m.priority).unwrap_or_default();
        let types = subscription.types.iter();
        Grouping {
            types: types.map(|t| (t.clone(), priority(t))).collect(),
            tenants: subscription.tenants.clone(),
        }
    }

    fn takes_commands(&self, subscription: &SubscriptionContract) -> bool {
        subscription
            .types
            .iter()
            .any(|t| self.kind_of(t) == Kind::Command)
    }

    /// All faults, in the order of their paths. Empty means that it may start.
    #[must_use]
    pub fn faults(&self) -> Vec<ContractFault> {
        let mut faults = Vec::new();
        for name in self.messages.keys() {
            check_name(&format!("message.{name:?}"), name, &mut faults);
        }
        self.check_throttles(&mut faults);
        self.check_owners(&mut faults);
        self.check_sources(&mut faults);
        for subscription in self.subscriptions.values() {
            self.check_subscription(subscription, &mut faults);
        }
        faults
    }

    fn check_owners(&self, faults: &mut Vec<ContractFault>) {
        let mut owners_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for subscription in self.subscriptions.values() {
            for message_type in &subscription.types {
                let owners = owners_of.entry(message_type).or_default();
                // A type that is named twice is another fault.
                if owners.last() != Some(&subscription.name.as_str()) {
                    owners.push(&subscription.name);
                }
            }
        }
        for (message_type, message) in &self.messages {
            if message.kind != Kind::Command {
                continue;
            }
            let owners = owners_of
                .get(message_type.as_str())
                .map_or(&[][..], Vec::as_slice);
            let (kind, problem) = match owners.len() {
                1 => continue,
                0 => (FaultKind::NoOwner, "no subscription takes it".to_owned()),
                _ => (
                    FaultKind::TwoOwners,
                    format!("{} all take it", owners.join(", ")),
                ),
            };
            faults.push(ContractFault {
                kind,
                path: format!("message.{message_type:?}.kind"),
                message: format!("a command has exactly one owning subscription, but {problem}"),
            });
        }
    }

    fn check_subscription(&self, s: &SubscriptionContract, faults: &mut Vec<ContractFault>) {
        let path = format!("subscription.{}", s.name);
        let mut fault = |kind, setting: &str, message: String| {
            faults.push(ContractFault {
                kind,
                path: format!("{path}.{setting}"),
                message,
            });
        };
        if s.types.is_empty() {
            fault(
                FaultKind::BadTypes,
                "messages",
                "name at least one message type".into(),
            );
        }
        let mut named = BTreeSet::new();
        for (i, message_type) in s.types.iter().enumerate() {
            let setting = format!("messages[{i}]");
            if !self.messages.contains_key(message_type) {
                let message = format!("no message type is called {message_type:?}");
                fault(FaultKind::UnknownType, &setting, message);
            }
            if !named.insert(message_type) {
                fault(
                    FaultKind::BadTypes,
                    &setting,
                    format!("{message_type:?} is named twice"),
                );
            }
        }
        let ranges = [
            ("lanes", u64::from(s.lanes), 1, u64::from(SLOTS)),
            ("concurrency", u64::from(s.concurrency), 1, 4_096),
            (
                "concurrency_min",
                u64::from(s.concurrency_min),
                1,
                u64::from(s.concurrency.max(1)),
            ),
            ("batch_max", u64::from(s.batch_max), 1, 10_000),
            ("window_rows", u64::from(s.window_rows), 16, 1_000_000),
            ("window_bytes", s.window_bytes, 1 << 16, 1 << 34),
            ("timeout_ms", s.timeout_ms, 1, 86_400_000),
            (
                "retry.attempts_max",
                u64::from(s.retry.attempts_max),
                1,
                1_000_000,
            ),
        ];
        for (setting, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let message = format!("{value} is not between {least} and {most}");
                fault(FaultKind::OutOfRange, setting, message);
            }
        }
        if !(s.retry.factor.is_finite() && s.retry.factor >= 1.0) {
            fault(
                FaultKind::OutOfRange,
                "retry.factor",
                "must be at least 1".into(),
            );
        }
        if s.order == Order::None && s.on_poison == Some(OnPoison::HoldKey) {
            let message = "order = \"none\" keeps nothing back, so no key can be held".into();
            fault(FaultKind::Contradiction, "on_poison", message);
        }
        check_name(&path, &s.name, faults);
        self.check_versions(&path, s, faults);
        self.check_expired(&path, s, faults);
        self.check_merge(&path, s, faults);
        check_shed(&path, s, faults);
        self.check_groups(&path, s, faults);
    }

    /// What is handed over must be taken.
    fn check_expired(&self, path: &str, s: &SubscriptionContract, faults: &mut Vec<ContractFault>) {
        let Expired::Fallback(name) = &s.expired else {
            return;
        };
        let Some(fallback) = self.subscriptions.get(name) else {
            faults.push(ContractFault {
                kind: FaultKind::Contradiction,
                path: format!("{path}.fallback"),
                message: format!("no subscription is called {name:?}"),
            });
            return;
        };
        for handed in s.types.iter().map(|t| type_of_expired(t)) {
            if !fallback.types.contains(&handed) {
                faults.push(ContractFault {
                    kind: FaultKind::Contradiction,
                    path: format!("{path}.fallback"),
                    message: format!("{name:?} does not take {handed:?}, which it would be handed"),
                });
            }
        }
    }

    /// How long messages of a type are useful in a subscription, in milliseconds.
    #[must_use]
    pub fn useful_for_ms(&self, s: &SubscriptionContract, message_type: &str) -> Option<u64> {
        let promised = self.messages.get(message_type);
        let promised = promised.and_then(|message| message.promise.useful_for_ms);
        match (promised, s.useful_for_ms) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Versions are read from the ledger, in the order of keys; and a gap may only be waited for
    /// where everything that could fill it comes.
    fn check_versions(
        &self,
        path: &str,
        s: &SubscriptionContract,
        faults: &mut Vec<ContractFault>,
    ) {
        let Some(policy) = s.versions else {
            return;
        };
        let mut fault = |kind, setting: &str, message: String| {
            faults.push(ContractFault {
                kind,
                path: format!("{path}.{setting}"),
                message,
            });
        };
        if s.semantics != Semantics::EffectOnce {
            let message = "the last version of an aggregate is read from the ledger, which only \
                           semantics = \"effect-once\" keeps of every message";
            fault(FaultKind::Contradiction, "versions", message.into());
        }
        if s.order == Order::None {
            let message = "order = \"none\" lets later versions go first, so that earlier ones \
                           would be refused";
            fault(FaultKind::Contradiction, "versions", message.into());
        }
        let most = 30 * 86_400_000;
        if !(1..=most).contains(&policy.gap_limit_ms) {
            let message = format!("{} is not between 1 and {most}", policy.gap_limit_ms);
            fault(FaultKind::OutOfRange, "gap_limit_ms", message);
        }
        if policy.gaps == Gaps::Wait {
            for message in self.missing_of_aggregates(s) {
                fault(FaultKind::Contradiction, "gaps", message);
            }
        }
    }

    /// What keeps a subscription from seeing every version of its aggregates.
    fn missing_of_aggregates(&self, s: &SubscriptionContract) -> Vec<String> {
        let aggregate_of = |t: &str| self.messages.get(t).and_then(|m| m.aggregate.as_deref());
        let mut missing = Vec::new();
        for message_type in &s.types {
            let Some(aggregate) = aggregate_of(message_type) else {
                missing.push(format!(
                    "a gap can only be waited for where every version comes, and the aggregate of \
                     {message_type:?} is not known: declare it with its type"
                ));
                continue;
            };
            for other in self.messages.keys() {
                if aggregate_of(other) == Some(aggregate) && !s.types.contains(other) {
                    missing.push(format!(
                        "a gap can only be waited for where every version comes, and {other:?}, of \
                         the aggregate {aggregate:?} like {message_type:?}, is not taken"
                    ));
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        missing
    }
}

/// Names travel in headers, SQL and metrics: printable ASCII without blanks or quotes.
fn check_name(path: &str, name: &str, faults: &mut Vec<ContractFault>) {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"._-/:+".contains(&b);
    if name.is_empty() || name.len() > 200 || !name.bytes().all(is_good) {
        faults.push(ContractFault {
            kind: FaultKind::BadName,
            path: path.to_owned(),
            message: format!(
                "{name:?} is not a name: 1 to 200 letters, digits and . _ - / : + are allowed"
            ),
        });
    }
}

#[cfg(test)]
#[path = "contract_tests.rs"]
mod tests;
