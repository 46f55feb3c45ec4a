//! What happens to a message that failed: a pure decision.

use crate::failure::{Class, Failure};
use crate::retry::{RetryPolicy, Spent};
use crate::store::DeferralKind;

/// Longest wait that another service may ask for, in milliseconds: one hour.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;

/// What happens to a failed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// A final business outcome: what was written stays, the ledger keeps the reason.
    Reject,
    /// Off the hot path, back later.
    Defer {
        /// Why.
        kind: DeferralKind,
        /// Back after this many milliseconds; `None` waits for a person.
        due_in_ms: Option<u64>,
        /// The budget after this failure.
        spent: Spent,
    },
    /// A case.
    Quarantine {
        /// Short stable reason.
        reason: String,
        /// The budget after this failure.
        spent: Spent,
    },
}

/// Decides, from the budget before this attempt and 64 random bits for the jitter. `can_probe`
/// says whether an ambiguous end can be looked into before the next attempt.
#[must_use]
pub fn decide(
    policy: &RetryPolicy,
    before: Spent,
    failure: &Failure,
    can_probe: bool,
    random: u64,
) -> Disposition {
    let class = failure.class();
    match class {
        Class::Rejected => Disposition::Reject,
        Class::Permanent | Class::Schema => quarantine(class.as_str(), failed(before)),
        Class::Ambiguous if !can_probe => quarantine(class.as_str(), failed(before)),
        // Nothing was tried.
        Class::Transient if failure.is_outage() => {
            let spent = waited(before);
            Disposition::Defer {
                kind: DeferralKind::Retry,
                due_in_ms: Some(policy.delay_ms(spent.waits, random)),
                spent,
            }
        }
        Class::Transient | Class::Ambiguous => {
            let spent = failed(before);
            if let Some(end) = policy.exhausted(spent, false) {
                return quarantine(end.code(), spent);
            }
            let delay_ms = policy.delay_ms(spent.failures.saturating_add(spent.deaths), random);
            let asked_ms = failure
                .retry_after_ms()
                .unwrap_or(0)
                .min(RETRY_AFTER_MAX_MS);
            let due_in_ms = Some(delay_ms.max(asked_ms));
            Disposition::Defer {
                kind: DeferralKind::Retry,
                due_in_ms,
                spent,
            }
        }
        Class::RateLimited => {
            let spent = waited(before);
            let window_ms = match failure.retry_after_ms() {
                // A floor named by the service, spread upwards so that a fleet does not return in
                // the same instant.
                Some(asked) => {
                    let asked = asked.clamp(1, RETRY_AFTER_MAX_MS);
                    asked + random % (asked / 10 + 1)
                }
                None => policy.delay_ms(spent.waits, random),
            };
            Disposition::Defer {
                kind: DeferralKind::Retry,
                due_in_ms: Some(window_ms),
                spent,
            }
        }
        Class::Operator => Disposition::Defer {
            kind: DeferralKind::Operator,
            due_in_ms: None,
            spent: waited(before),
        },
    }
}

/// What happens to a message whose process died while it ran, when its budget is looked at again.
#[must_use]
pub fn after_death(policy: &RetryPolicy, spent: Spent) -> Option<Disposition> {
    (spent.deaths > 0)
        .then(|| policy.exhausted(spent, true))
        .flatten()
        .map(|end| quarantine(end.code(), spent))
}

fn failed(before: Spent) -> Spent {
    Spent {
        failures: before.failures.saturating_add(1),
        ..before
    }
}

fn waited(before: Spent) -> Spent {
    Spent {
        waits: before.waits.saturating_add(1),
        ..before
    }
}

fn quarantine(reason: &str, spent: Spent) -> Disposition {
    Disposition::Quarantine {
        reason: reason.to_owned(),
        spent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        base_ms: 100,
        cap_ms: 1_000,
        factor: 2.0,
        attempts_max: 3,
        age_max_ms: 60_000,
    };

    fn spent(failures: u32) -> Spent {
        Spent {
            failures,
            ..Spent::default()
        }
    }

    #[test]
    fn transient_failures_burn_the_budget_and_end_in_quarantine() {
        let failure = Failure::transient("busy", "try later");
        let first = decide(&POLICY, spent(0), &failure, false, 7);
        assert_eq!(
            first,
            Disposition::Defer {
                kind: DeferralKind::Retry,
                due_in_ms: Some(8),
                spent: spent(1)
            }
        );
        let last = decide(&POLICY, spent(2), &failure, false, 7);
        assert_eq!(last, quarantine("attempts_exhausted", spent(3)));
    }

    #[test]
    fn ex_14_rate_limits_burn_nothing_and_keep_the_named_window() {
        let failure = Failure::rate_limited(5_000, "slow down");
        let mut before = spent(2);
        for waits in 1..=30 {
            let Disposition::Defer {
                due_in_ms, spent, ..
            } = decide(&POLICY, before, &failure, false, u64::MAX)
            else {
                panic!("a rate limit must defer")
            };
            assert!((5_000..=5_500).contains(&due_in_ms.unwrap()));
            assert_eq!((spent.failures, spent.waits), (2, waits));
            before = spent;
        }
    }

    #[test]
    fn a_named_window_is_capped() {
        let failure = Failure::rate_limited(u64::MAX, "never");
        let Disposition::Defer { due_in_ms, .. } = decide(&POLICY, spent(0), &failure, false, 0)
        else {
            panic!("a rate limit must defer")
        };
        assert_eq!(due_in_ms, Some(RETRY_AFTER_MAX_MS));
    }

    #[test]
    fn an_ambiguous_end_is_retried_only_where_it_can_be_probed() {
        let failure = Failure::ambiguous("timeout", "no answer");
        let blind = decide(&POLICY, spent(0), &failure, false, 0);
        assert_eq!(blind, quarantine("ambiguous", spent(1)));
        let probed = decide(&POLICY, spent(0), &failure, true, 0);
        assert!(matches!(
            probed,
            Disposition::Defer {
                kind: DeferralKind::Retry,
                ..
            }
        ));
    }

    #[test]
    fn an_operator_failure_has_no_due_time() {
        let failure = Failure::operator("gone", "the endpoint is gone");
        let Disposition::Defer {
            kind, due_in_ms, ..
        } = decide(&POLICY, spent(0), &failure, true, 0)
        else {
            panic!("must defer")
        };
        assert_eq!((kind, due_in_ms), (DeferralKind::Operator, None));
    }

    #[test]
    fn bc_28_deaths_alone_use_the_budget_up() {
        let died = |deaths| Spent {
            deaths,
            ..Spent::default()
        };
        assert_eq!(after_death(&POLICY, died(2)), None);
        assert_eq!(
            after_death(&POLICY, died(3)),
            Some(quarantine("worker_died", died(3)))
        );
        assert_eq!(
            after_death(&POLICY, spent(3)),
            None,
            "handler failures are judged elsewhere"
        );
    }
}
