//! How much may wait behind a key, and for how long, before somebody is told. Pure decisions:
//! nothing is ever dropped for it.

use serde::{Deserialize, Serialize};

/// Limits of what is held behind one key. Beyond them is an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLimits {
    /// Messages.
    pub depth: u64,
    /// How long the first of them waits, in milliseconds.
    pub age_ms: u64,
}

impl Default for HoldLimits {
    /// A thousand messages, one hour.
    fn default() -> Self {
        Self {
            depth: 1_000,
            age_ms: 3_600_000,
        }
    }
}

/// A limit that a key is beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Too many messages wait.
    Depth,
    /// They wait for too long.
    Age,
}

impl HoldLimits {
    /// Which limits a key is beyond.
    #[must_use]
    pub fn passed(&self, depth: u64, age_ms: u64) -> Vec<Limit> {
        let passed = [
            (depth > self.depth, Limit::Depth),
            (age_ms > self.age_ms, Limit::Age),
        ];
        let passed = passed.into_iter().filter(|(is_passed, _)| *is_passed);
        passed.map(|(_, limit)| limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_itself_is_not_beyond_it() {
        let limits = HoldLimits {
            depth: 10,
            age_ms: 1_000,
        };
        assert_eq!(limits.passed(10, 1_000), []);
        assert_eq!(limits.passed(11, 1_000), [Limit::Depth]);
        assert_eq!(limits.passed(0, 1_001), [Limit::Age]);
        assert_eq!(limits.passed(11, 1_001), [Limit::Depth, Limit::Age]);
    }
}
