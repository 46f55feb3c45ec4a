//! The next step of a campaign, from how it stands.

use super::{CampaignStanding, CampaignState, Counts, Pacing, Verification};
use crate::timestamp::Timestamp;

/// Most items that one step starts: a step is one short transaction.
pub const STEP_ITEMS_MAX: u64 = 200;
/// Rate that nobody used is lost after this, in milliseconds: who takes over goes on, and does not
/// catch up.
const BURST_MS: i64 = 2_000;
/// With fewer outcomes the share of failures says little.
const OUTCOMES_MIN: u64 = 10;
/// Shortest and longest time to the next step, in milliseconds.
const WAIT_MS: (u64, u64) = (100, 1_000);
/// The rate begins with this share, in thousandths.
const RAMP_FROM: u64 = 100;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// How it stands then.
    pub standing: CampaignStanding,
    /// Items to start now, in the order of the log.
    pub start: u64,
    /// When to look again, in milliseconds; `None` when nothing is to be expected by itself.
    pub wait_ms: Option<u64>,
}

impl CampaignStanding {
    /// Decides the next step, after outcomes were counted.
    #[must_use]
    pub fn advance(&self, pacing: &Pacing, counts: &Counts, now: Timestamp) -> Advance {
        let mut standing = self.clone();
        let start = match standing.state {
            CampaignState::Canary => standing.canary(pacing, counts, now),
            CampaignState::Ramping => standing.next_of_ramp(pacing, counts, now),
            _ => 0,
        };
        let has_moved = standing.state != self.state;
        let goes_on = matches!(
            standing.state,
            CampaignState::Canary | CampaignState::Ramping
        );
        let wait_ms = if goes_on && has_moved {
            Some(WAIT_MS.0)
        } else if standing.state == CampaignState::Ramping {
            Some(standing.next_in_ms(pacing, now))
        } else {
            (goes_on || counts.running > 0).then_some(WAIT_MS.1)
        };
        Advance {
            standing,
            start,
            wait_ms,
        }
    }

    fn canary(&mut self, pacing: &Pacing, counts: &Counts, now: Timestamp) -> u64 {
        let canary = u64::from(pacing.canary);
        let size = canary.min(counts.started() + counts.left);
        if self.stop_if_failing(pacing, counts, size) {
            return 0;
        }
        let missing = size.saturating_sub(counts.started());
        if missing == 0 && counts.running == 0 {
            match pacing.verification {
                Verification::Person if counts.started() > 0 => {
                    self.state = CampaignState::Verifying;
                }
                _ => {
                    self.ramp(now);
                    self.end_if_all_have(counts);
                }
            }
            return 0;
        }
        let room = u64::from(pacing.in_flight_max).saturating_sub(counts.running);
        missing.min(room).min(STEP_ITEMS_MAX)
    }

    fn next_of_ramp(&mut self, pacing: &Pacing, counts: &Counts, now: Timestamp) -> u64 {
        let outcomes = counts.done + counts.failed + counts.waiting;
        if self.stop_if_failing(pacing, counts, outcomes.max(OUTCOMES_MIN))
            || self.end_if_all_have(counts)
        {
            return 0;
        }
        let rate = self.rate_per_1000_s(pacing, now);
        let paced_to = self.paced_to(now);
        let since_us = u64::try_from(now.as_micros() - paced_to.as_micros()).unwrap_or(0);
        let due = since_us.saturating_mul(rate) / 1_000_000_000;
        let room = u64::from(pacing.in_flight_max).saturating_sub(counts.running);
        let start = due.min(counts.left).min(room).min(STEP_ITEMS_MAX);
        let used_us = (start * 1_000_000_000).div_ceil(rate);
        let paced_us = paced_to.as_micros() + i64::try_from(used_us).unwrap_or(i64::MAX);
        self.paced_to = Some(Timestamp::from_micros(paced_us).min(now));
        start
    }

    /// Up to when the rate is used, at most [`BURST_MS`] back.
    fn paced_to(&self, now: Timestamp) -> Timestamp {
        let oldest = now.plus_millis(-BURST_MS);
        self.paced_to.unwrap_or(now).clamp(oldest, now)
    }

    /// Items in a thousand seconds; at least one in ten seconds.
    fn rate_per_1000_s(&self, pacing: &Pacing, now: Timestamp) -> u64 {
        let since = self.ramping_since.unwrap_or(now);
        let elapsed_ms = u64::try_from(now.millis_since(since)).unwrap_or(0);
        let share = if elapsed_ms >= pacing.ramp_ms {
            1_000
        } else {
            RAMP_FROM + (1_000 - RAMP_FROM).saturating_mul(elapsed_ms) / pacing.ramp_ms
        };
        u64::from(pacing.rate_per_s) * share
    }

    fn next_in_ms(&self, pacing: &Pacing, now: Timestamp) -> u64 {
        let rate = self.rate_per_1000_s(pacing, now);
        let next_us = self.paced_to(now).as_micros()
            + i64::try_from(1_000_000_000_u64.div_ceil(rate)).unwrap_or(i64::MAX);
        let in_ms = u64::try_from((next_us - now.as_micros()).max(0) / 1_000 + 1);
        in_ms.unwrap_or(WAIT_MS.1).clamp(WAIT_MS.0, WAIT_MS.1)
    }

    /// Stops it where as many failed as stop it, of `of` items. What waits for a person counts as
    /// failed: nothing more is learned from it by waiting.
    fn stop_if_failing(&mut self, pacing: &Pacing, counts: &Counts, of: u64) -> bool {
        let failed = counts.failed + counts.waiting;
        let is_failing = failed > 0 && failed * 100 >= of * u64::from(pacing.stop_at_percent);
        if is_failing {
            self.stop(&format!(
                "{failed} of {} item(s) failed or wait for a person, which stops it from {} % on",
                counts.started(),
                pacing.stop_at_percent
            ));
        }
        is_failing
    }

    fn end_if_all_have(&mut self, counts: &Counts) -> bool {
        let is_done = counts.left == 0 && counts.running == 0;
        if is_done {
            self.state = CampaignState::Done;
        }
        is_done
    }
}
