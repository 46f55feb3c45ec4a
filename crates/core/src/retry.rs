//! The arithmetic of retrying: one budget, full jitter, no overflow.

use serde::{Deserialize, Serialize};

/// How a subscription retries. All times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Ceiling of the first delay.
    pub base_ms: u64,
    /// Ceiling of any delay.
    pub cap_ms: u64,
    /// How the ceiling grows from one attempt to the next; at least 1.
    pub factor: f64,
    /// Attempts in all, worker deaths and broker redeliveries included.
    pub attempts_max: u32,
    /// Age since first put aside at which the budget ends; time paused, behind a breaker,
    /// rate-limited or in need of a person for all does not count.
    pub age_max_ms: u64,
}

impl Default for RetryPolicy {
    /// 1 s doubling to 5 min, 12 attempts, one day.
    fn default() -> Self {
        Self {
            base_ms: 1_000,
            cap_ms: 300_000,
            factor: 2.0,
            attempts_max: 12,
            age_max_ms: 86_400_000,
        }
    }
}

/// What a message has used of its budget in one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Times the handler ran and failed.
    pub failures: u32,
    /// Times the process died while the handler ran.
    pub deaths: u32,
    /// Times it was put off without running or without blame (rate limits, operator waits).
    pub waits: u32,
    /// Age that counts, in milliseconds.
    pub age_ms: u64,
}

impl Spent {
    /// Whether nothing was tried or put off; a message that merely waited behind another is older.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.failures == 0 && self.deaths == 0 && self.waits == 0
    }
}

/// Why a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// No attempts are left, and the last one failed.
    Attempts,
    /// No attempts are left, and the last one killed its process.
    WorkerDied,
    /// Too old.
    Age,
}

impl Exhausted {
    /// The code kept with the case.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Attempts => "attempts_exhausted",
            Self::WorkerDied => "worker_died",
            Self::Age => "age_exhausted",
        }
    }
}

impl RetryPolicy {
    /// The largest delay before attempt number `attempt` + 1, where `attempt` attempts were made:
    /// `min(cap, base · factor^(attempt − 1))`, never below 1 ms so that no retry is immediate.
    ///
    /// Formula: "full jitter" of the AWS architecture blog, Exponential Backoff and Jitter (2015).
    #[must_use]
    pub fn ceiling_ms(&self, attempt: u32) -> u64 {
        let base = self.base_ms.max(1);
        let cap = self.cap_ms.max(1);
        let factor = if self.factor.is_finite() {
            self.factor.max(1.0)
        } else {
            1.0
        };
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = base as f64 * factor.powi(exponent);
        // `grown` may be infinite; comparing before casting keeps the cast in range.
        if grown >= cap as f64 {
            cap
        } else {
            (grown as u64).clamp(1, cap)
        }
    }

    /// A delay in `1..=ceiling`, from 64 random bits.
    #[must_use]
    pub fn delay_ms(&self, attempt: u32, random: u64) -> u64 {
        1 + random % self.ceiling_ms(attempt)
    }

    /// Whether the budget is used up, counted after an attempt.
    #[must_use]
    pub fn exhausted(&self, spent: Spent, last_was_death: bool) -> Option<Exhausted> {
        let attempts = spent.failures.saturating_add(spent.deaths);
        if attempts >= self.attempts_max.max(1) {
            Some(if last_was_death {
                Exhausted::WorkerDied
            } else {
                Exhausted::Attempts
            })
        } else if spent.age_ms >= self.age_max_ms {
            Some(Exhausted::Age)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bc_45_delays_stay_between_floor_and_cap(
            base_ms in prop::sample::select(vec![0, 1, 1_000, 86_400_000, u64::MAX]),
            cap_ms in prop::sample::select(vec![0, 1, 500, 300_000, u64::MAX]),
            factor in prop::sample::select(vec![0.0, 1.0, 1.5, 2.0, 1e9, f64::NAN, f64::INFINITY]),
            attempt in prop::sample::select(vec![0, 1, 2, 10, 63, 64, 200, 40_000, u32::MAX]),
            random: u64,
        ) {
            let policy = RetryPolicy { base_ms, cap_ms, factor, ..RetryPolicy::default() };
            let delay = policy.delay_ms(attempt, random);
            prop_assert!(delay >= 1);
            prop_assert!(delay <= cap_ms.max(1));
            prop_assert!(policy.ceiling_ms(attempt) <= policy.ceiling_ms(attempt.saturating_add(1)));
        }
    }

    #[test]
    fn a_budget_ends_by_attempts_deaths_or_age() {
        let policy = RetryPolicy {
            attempts_max: 3,
            age_max_ms: 1_000,
            ..RetryPolicy::default()
        };
        let spent = |failures, deaths, age_ms| Spent {
            failures,
            deaths,
            waits: 30,
            age_ms,
        };
        assert_eq!(policy.exhausted(spent(2, 0, 0), false), None);
        assert_eq!(
            policy.exhausted(spent(2, 1, 0), false),
            Some(Exhausted::Attempts)
        );
        assert_eq!(
            policy.exhausted(spent(0, 3, 0), true),
            Some(Exhausted::WorkerDied)
        );
        assert_eq!(
            policy.exhausted(spent(1, 0, 1_000), false),
            Some(Exhausted::Age)
        );
        assert_eq!(
            policy.exhausted(spent(u32::MAX, u32::MAX, 0), false),
            Some(Exhausted::Attempts)
        );
    }
}
