//! Whether new work may still be accepted without breaking what was promised of it. Pure decisions.
//!
//! What is waiting is looked at now and then. Two looks give a rate: of what waited at the first,
//! how much is gone at the second. The work in front of a new message takes what waits divided by
//! that rate. While nothing at all gets done (a pause, an outage on the other side, no process at
//! work) the rate says nothing new, and the age of the oldest waiting message tells how long that
//! has been going on. Both together must fit into the promise.

use serde::{Deserialize, Serialize};

use crate::contract::Promise;
use crate::store::Backlog;
use crate::timestamp::Timestamp;

/// What acceptance does with new messages of a type while its promise cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttle {
    /// It accepts them all the same.
    #[default]
    Off,
    /// It refuses them, with a time after which to try again.
    Refuse,
}

/// Shortest time that a refused producer is told to wait, in milliseconds.
pub const RETRY_AFTER_MS_MIN: u64 = 1_000;
/// Longest time that a refused producer is told to wait, in milliseconds.
pub const RETRY_AFTER_MS_MAX: u64 = 300_000;
/// What was seen longer ago than this says nothing, in milliseconds: nothing is refused.
pub const CURRENT_FOR_MS: u64 = 30_000;

/// Share of the promise below which what was refused is accepted again.
const LOW_MARK: f64 = 0.5;
/// After this time an earlier rate counts half, in milliseconds.
const RATE_HALF_LIFE_MS: f64 = 10_000.0;
/// Part of the oldest message's age that a refused producer is told to wait at least.
const STANDSTILL_SHARE: u64 = 4;
/// Longest standstill that counts against the rate of what follows it, in milliseconds.
const STANDSTILL_MS_MAX: u64 = 30_000;

/// What is measured against: the time within which work is to be finished, else started, in
/// milliseconds.
#[must_use]
pub fn promised_ms(promise: &Promise) -> Option<u64> {
    promise.finish_within_ms.or(promise.start_within_ms)
}

/// What a look at one subscription saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Messages that wait.
    pub waiting: u64,
    /// There are more than were counted.
    pub is_lower_bound: bool,
    /// How many of them had been recorded by the time of the look before.
    pub waiting_before: u64,
    /// When the oldest of them was recorded.
    pub oldest_at: Option<Timestamp>,
    /// Whether an operator keeps the subscription paused, or it stands still by itself: behind a
    /// breaker, in a window that the other side asked for.
    pub is_paused: bool,
}

impl Sight {
    /// What an answer about a subscription says, where it was asked with the time of the look before.
    #[must_use]
    pub fn of(backlog: &Backlog) -> Self {
        Self {
            at: backlog.now,
            waiting: backlog.waiting,
            is_lower_bound: backlog.waiting_is_lower_bound,
            waiting_before: backlog.waiting_before,
            oldest_at: backlog.oldest_waiting_at,
            is_paused: backlog.paused_at.is_some() || backlog.still.is_some(),
        }
    }
}

/// What is in front of a new message in one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Load {
    /// Age of the oldest message that waits, in milliseconds.
    pub oldest_ms: u64,
    /// How long what waits will take, in milliseconds; `None` while nobody knows.
    pub drain_ms: Option<u64>,
}

impl Load {
    /// What has to fit into the promise, in milliseconds.
    #[must_use]
    pub fn needed_ms(&self) -> u64 {
        self.oldest_ms
            .saturating_add(self.drain_ms.unwrap_or_default())
    }
}

/// Looks at one subscription, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Gauge {
    last: Option<Sight>,
    /// Messages per millisecond.
    rate: Option<f64>,
    /// How long nothing has got done although something waited.
    standstill_ms: u64,
}

impl Gauge {
    /// When the look before was, for [`Sight::waiting_before`].
    #[must_use]
    pub fn looked_at(&self) -> Option<Timestamp> {
        self.last.map(|last| last.at)
    }

    /// Takes a look in; says what is in front of a new message.
    pub fn see(&mut self, sight: Sight) -> Load {
        if let Some(last) = self.last.replace(sight) {
            self.measure(&last, &sight);
        }
        let oldest_ms = sight.oldest_at.map_or(0, |at| sight.at.millis_since(at));
        let drain_ms = match self.rate {
            _ if sight.waiting == 0 => Some(0),
            Some(rate) => Some((sight.waiting as f64 / rate) as u64),
            None => None,
        };
        Load {
            oldest_ms: u64::try_from(oldest_ms).unwrap_or(0),
            drain_ms,
        }
    }

    fn measure(&mut self, last: &Sight, sight: &Sight) {
        let elapsed_ms = u64::try_from(sight.at.millis_since(last.at)).unwrap_or(0);
        let is_stopped = last.is_paused || sight.is_paused;
        // Where counting stopped before the end, what is gone cannot be told.
        let is_counted = !last.is_lower_bound && !sight.is_lower_bound;
        if elapsed_ms == 0 || last.waiting == 0 || is_stopped || !is_counted {
            self.standstill_ms = 0;
            return;
        }
        let done = last.waiting.saturating_sub(sight.waiting_before);
        if done == 0 {
            let standstill_ms = self.standstill_ms.saturating_add(elapsed_ms);
            self.standstill_ms = standstill_ms.min(STANDSTILL_MS_MAX);
            return;
        }
        let took_ms = (elapsed_ms + std::mem::take(&mut self.standstill_ms)) as f64;
        let measured = done as f64 / took_ms;
        self.rate = match self.rate {
            // All of it got done, and more might have been.
            rate if sight.waiting_before == 0 => rate.map(|rate| rate.max(measured)),
            None => Some(measured),
            Some(rate) => {
                let kept = 0.5_f64.powf(took_ms / RATE_HALF_LIFE_MS);
                Some(rate * kept + measured * (1.0 - kept))
            }
        };
    }
}

/// Whether new messages of a type are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// They are.
    #[default]
    Open,
    /// They are not.
    Refuse {
        /// When to try again, in milliseconds from now. Whoever waits adds chance to it.
        retry_after_ms: u64,
    },
}

/// A message type whose new messages may be refused, as it was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// What was promised of it, in milliseconds.
    pub promised_ms: u64,
    /// What is in front of a new message, by subscription.
    pub loads: Vec<(String, Load)>,
    /// Whether new messages are accepted.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Judged {
    /// Judges a type by the load of the subscriptions that take it; see [`judge`].
    #[must_use]
    pub fn of(
        message_type: String,
        promised_ms: u64,
        before: Verdict,
        loads: Vec<(String, Load)>,
    ) -> Self {
        let only: Vec<Load> = loads.iter().map(|(_, load)| *load).collect();
        Self {
            verdict: judge(before, &only, promised_ms),
            message_type,
            promised_ms,
            loads,
        }
    }
}

/// Judges a type by the load of the subscriptions that take it. What is refused is accepted again
/// when half the promise is enough, so that the answer does not change with every message. Without
/// a subscription nothing is refused.
#[must_use]
pub fn judge(before: Verdict, loads: &[Load], promised_ms: u64) -> Verdict {
    let Some(worst) = loads.iter().max_by_key(|load| load.needed_ms()) else {
        return Verdict::Open;
    };
    let needed_ms = worst.needed_ms();
    let mark_ms = match before {
        Verdict::Open => promised_ms,
        Verdict::Refuse { .. } => (promised_ms as f64 * LOW_MARK) as u64,
    };
    if needed_ms <= mark_ms {
        return Verdict::Open;
    }
    // Where nobody knows how long it takes, the promise is a measure of what is worth asking for. And
    // what has stood still for long is not asked after every second.
    let wait_ms = worst.drain_ms.unwrap_or(promised_ms);
    let wait_ms = wait_ms.max(worst.oldest_ms / STANDSTILL_SHARE);
    Verdict::Refuse {
        retry_after_ms: wait_ms.clamp(RETRY_AFTER_MS_MIN, RETRY_AFTER_MS_MAX),
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
