//! The keys of a subscription behind which messages are held.

use onceward_core::hold::{HoldLimits, Limit};
use onceward_core::store::LongHeld;
use serde_json::{Value, json};

/// The keys of a subscription behind which messages are held.
#[derive(Debug)]
pub struct HeldHere {
    /// What is declared.
    pub limits: HoldLimits,
    /// Each key with the limits that it is beyond: those that have waited the longest, then others
    /// that are beyond a limit.
    pub keys: Vec<(LongHeld, Vec<Limit>)>,
}

impl HeldHere {
    /// From the keys that have waited the longest, and from those beyond a limit. None is told
    /// twice.
    #[must_use]
    pub fn of(limits: HoldLimits, longest: Vec<LongHeld>, beyond: Vec<LongHeld>) -> Self {
        let mut keys = longest;
        for key in beyond {
            if !keys.iter().any(|other| other.key == key.key) {
                keys.push(key);
            }
        }
        let passed = |key: LongHeld| {
            let passed = limits.passed(key.depth, key.age_ms);
            (key, passed)
        };
        Self {
            limits,
            keys: keys.into_iter().map(passed).collect(),
        }
    }

    /// What people are told: the key that has waited the longest, and all that are beyond a limit.
    pub fn told(&self) -> impl Iterator<Item = &(LongHeld, Vec<Limit>)> {
        let keys = self.keys.iter().enumerate();
        let told = keys.filter(|(at, (_, passed))| *at == 0 || !passed.is_empty());
        told.map(|(_, key)| key)
    }

    pub(super) fn json(&self) -> Value {
        let keys = self.keys.iter().map(|(key, passed)| {
            let mut value = json!(key);
            value["beyond"] = json!(passed);
            value
        });
        keys.collect()
    }
}
