//! Versions of aggregates: never one that is behind, and where asked for never one over a gap.
//! Pure decisions.

use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, Row};
use crate::failure::Failure;

/// Code of a message whose version is not above the last one applied.
pub const VERSION_BACKWARD: &str = "version_backward";
/// Code of a message whose version is more than one above the last one applied.
pub const VERSION_GAP: &str = "version_gap";

/// Least wait of a message that somebody else may have waited for already, in milliseconds: the
/// log behind the position is read first.
const WAIT_MIN_MS: u64 = 5_000;

/// What follows a gap in the versions of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gaps {
    /// The message is applied: not every version is one of this subscription.
    #[default]
    Pass,
    /// The message waits for what is missing, up to a limit; after it, it is a case.
    Wait,
}

/// How a subscription checks versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionPolicy {
    /// What follows a gap.
    pub gaps: Gaps,
    /// How long a message waits for an earlier version, in milliseconds. Pauses of the subscription
    /// do not count.
    pub gap_limit_ms: u64,
}

impl Default for VersionPolicy {
    /// Gaps pass; where they do not, ten minutes.
    fn default() -> Self {
        Self {
            gaps: Gaps::Pass,
            gap_limit_ms: 600_000,
        }
    }
}

/// What the versions of messages count: one aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Aggregate {
    /// Its type.
    pub aggregate_type: String,
    /// Its id.
    pub aggregate_id: String,
}

impl Aggregate {
    /// The aggregate of a message.
    #[must_use]
    pub fn of(envelope: &Envelope) -> Self {
        Self {
            aggregate_type: envelope.aggregate_type.clone(),
            aggregate_id: envelope.aggregate_id.clone(),
        }
    }
}

/// What the ledger keeps versions by. Sources do not share their aggregates, and a deliberate rerun
/// counts for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionKey {
    /// Source of the messages.
    pub source: String,
    /// The aggregate.
    pub aggregate: Aggregate,
    /// 0 but for a deliberate rerun.
    pub generation: u32,
}

impl VersionKey {
    /// The key of a row's version.
    #[must_use]
    pub fn of(row: &Row, generation: u32) -> Self {
        Self {
            source: row.envelope.source.clone().unwrap_or_default(),
            aggregate: Aggregate::of(&row.envelope),
            generation,
        }
    }
}

/// Whether one message carries an earlier version of the other's aggregate.
#[must_use]
pub fn is_earlier(one: &Envelope, other: &Envelope) -> bool {
    one.aggregate_version < other.aggregate_version && is_same(one, other)
}

/// Whether two messages carry versions of one aggregate.
#[must_use]
pub fn is_same(one: &Envelope, other: &Envelope) -> bool {
    one.aggregate_version.is_some()
        && other.aggregate_version.is_some()
        && one.aggregate_id == other.aggregate_id
        && one.aggregate_type == other.aggregate_type
        && one.source == other.source
}

/// What is known of a message whose version is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waited {
    /// How long ago it was first put aside, in milliseconds.
    pub age_ms: u64,
    /// It was tried here before, and no earlier version of its aggregate was found waiting.
    pub is_alone: bool,
    /// A person released it from the case that its gap had become.
    pub is_let_through: bool,
}

/// What to do with a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It is the next, the first one seen, or a gap that may pass.
    Apply,
    /// The last version applied is not below it: final.
    Refuse {
        /// The last version applied.
        last: i64,
    },
    /// Versions between are missing: it waits.
    Wait {
        /// The last version applied.
        last: i64,
        /// For so many milliseconds.
        due_in_ms: u64,
    },
    /// They are missing, and it has waited long enough.
    GiveUp {
        /// The last version applied.
        last: i64,
    },
}

impl VersionPolicy {
    /// Judges a version by the last one applied; `None` where none is known, and then any is good.
    #[must_use]
    pub fn course(&self, last: Option<i64>, version: i64, waited: Waited) -> Course {
        let Some(last) = last else {
            return Course::Apply;
        };
        if version <= last {
            return Course::Refuse { last };
        }
        let is_next = version == last.saturating_add(1);
        if is_next || self.gaps == Gaps::Pass || waited.is_let_through {
            return Course::Apply;
        }
        let left_ms = self.gap_limit_ms.saturating_sub(waited.age_ms);
        match waited.is_alone {
            true if left_ms == 0 => Course::GiveUp { last },
            true => Course::Wait {
                last,
                due_in_ms: left_ms,
            },
            false => Course::Wait {
                last,
                due_in_ms: left_ms.max(WAIT_MIN_MS.min(self.gap_limit_ms)),
            },
        }
    }
}

/// Why a version that is behind was refused: the outcome that the ledger keeps.
#[must_use]
pub fn backward(version: i64, last: i64) -> Failure {
    let text = format!("version {version} has come after version {last} was applied");
    let outcome =
        format!("{{\"code\":\"{VERSION_BACKWARD}\",\"version\":{version},\"last\":{last}}}");
    Failure::rejected(VERSION_BACKWARD, text).with_outcome(outcome)
}

/// Why a version waits, or has become a case.
#[must_use]
pub fn gap(version: i64, last: i64) -> Failure {
    let text = format!("version {version} has come while the last one applied is {last}");
    Failure::permanent(VERSION_GAP, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Payload;

    const WAIT: VersionPolicy = VersionPolicy {
        gaps: Gaps::Wait,
        gap_limit_ms: 60_000,
    };

    fn waited(age_ms: u64, is_alone: bool) -> Waited {
        Waited {
            age_ms,
            is_alone,
            is_let_through: false,
        }
    }

    #[test]
    fn the_first_version_seen_is_no_gap() {
        let course = WAIT.course(None, 17, Waited::default());
        assert_eq!(course, Course::Apply);
    }

    #[test]
    fn the_next_is_applied_and_what_is_behind_is_refused_whatever_gaps_do() {
        for policy in [WAIT, VersionPolicy::default()] {
            let course = |version| policy.course(Some(4), version, Waited::default());
            assert_eq!(course(5), Course::Apply);
            assert_eq!(course(4), Course::Refuse { last: 4 });
            assert_eq!(course(0), Course::Refuse { last: 4 });
        }
    }

    #[test]
    fn a_gap_waits_for_what_is_left_of_its_limit_and_is_then_given_up() {
        let course = |waited| WAIT.course(Some(4), 6, waited);
        let wait = |due_in_ms| Course::Wait { last: 4, due_in_ms };
        assert_eq!(course(waited(0, false)), wait(60_000));
        assert_eq!(course(waited(20_000, true)), wait(40_000));
        assert_eq!(course(waited(60_000, true)), Course::GiveUp { last: 4 });
        let passes = VersionPolicy::default().course(Some(4), 6, waited(0, false));
        assert_eq!(passes, Course::Apply);
    }

    #[test]
    fn nobody_is_given_up_before_it_was_looked_for_what_it_waits_for() {
        let course = WAIT.course(Some(4), 6, waited(10_000_000, false));
        let expected = Course::Wait {
            last: 4,
            due_in_ms: WAIT_MIN_MS,
        };
        assert_eq!(course, expected);
        let short = VersionPolicy {
            gap_limit_ms: 10,
            ..WAIT
        };
        let course = short.course(Some(4), 6, waited(50, false));
        assert_eq!(
            course,
            Course::Wait {
                last: 4,
                due_in_ms: 10
            }
        );
    }

    #[test]
    fn a_person_may_let_a_gap_through_but_nothing_that_is_behind() {
        let let_through = Waited {
            is_let_through: true,
            ..Waited::default()
        };
        assert_eq!(WAIT.course(Some(4), 9, let_through), Course::Apply);
        let behind = WAIT.course(Some(4), 3, let_through);
        assert_eq!(behind, Course::Refuse { last: 4 });
    }

    #[test]
    fn the_largest_version_has_no_next() {
        let course = WAIT.course(Some(i64::MAX), i64::MAX, Waited::default());
        assert_eq!(course, Course::Refuse { last: i64::MAX });
    }

    #[test]
    fn earlier_is_of_the_same_aggregate_only() {
        let of = |aggregate: &str, version| Envelope {
            aggregate_version: version,
            ..Envelope::new("m", "order", aggregate, "t", Payload::Json("1".into()))
        };
        assert!(is_earlier(&of("a", Some(1)), &of("a", Some(2))));
        assert!(!is_earlier(&of("a", Some(2)), &of("a", Some(2))));
        assert!(!is_earlier(&of("b", Some(1)), &of("a", Some(2))));
        assert!(!is_earlier(&of("a", None), &of("a", Some(2))));
    }
}
