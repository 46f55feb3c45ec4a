//! How many messages of a subscription may start per second, in all processes together: a token
//! bucket per process, each filled by its share of the lanes.
//!
//! A lane has one owner, so the shares of all processes never add up to more than the whole, and
//! nobody has to ask anybody. Counted in whole parts of a start (one part is what one of `n` lanes
//! may start in a millisecond at one per second), so nothing is rounded:
//!
//! - In any `t` seconds at most `per_second · (t + 0.001) + burst + m` messages start, where `m` is
//!   the number of processes that own lanes, however lanes change hands meanwhile: each bucket holds
//!   at most its share of the burst, or one where that is less, and what comes in a millisecond; and
//!   it begins empty.
//! - A process with work at all times starts its share to within one message. One without work
//!   leaves its share unused: where keys with work lie in a few lanes only, the fleet stays below
//!   the limit in that proportion.
//!
//! A. S. Tanenbaum, *Computer Networks*, 4th edition, 2003, section 5.3.2, "The token bucket
//! algorithm".

use serde::{Deserialize, Serialize};

/// A limit of starts per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Messages per second, in all processes together. 0 stands for no limit where it is set.
    pub per_second: u32,
    /// How many may start at once after a quiet time.
    pub burst: u32,
}

impl RateLimit {
    /// The burst where nobody named one: what may start in a tenth of a second.
    #[must_use]
    pub const fn of(per_second: u32) -> Self {
        let burst = if per_second < 10 { 1 } else { per_second / 10 };
        Self { per_second, burst }
    }
}

/// A process's part of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    limit: RateLimit,
    owned: u64,
    lanes: u64,
    /// In parts of a start; see [`Bucket::cost`].
    level: u64,
    at_ms: u64,
}

impl Bucket {
    /// An empty one of a process that owns none of so many lanes.
    #[must_use]
    pub fn new(limit: RateLimit, lanes: u16, now_ms: u64) -> Self {
        Self {
            limit,
            owned: 0,
            lanes: u64::from(lanes.max(1)),
            level: 0,
            at_ms: now_ms,
        }
    }

    /// Parts of one start.
    const fn cost(&self) -> u64 {
        1_000 * self.lanes
    }

    /// Parts that come with each millisecond.
    fn per_ms(&self) -> u64 {
        u64::from(self.limit.per_second).saturating_mul(self.owned)
    }

    fn capacity(&self) -> u64 {
        if self.owned == 0 {
            return 0;
        }
        let share = u64::from(self.limit.burst)
            .saturating_mul(1_000)
            .saturating_mul(self.owned);
        // What comes in the millisecond in which one is complete is not lost.
        share.max(self.cost()).saturating_add(self.per_ms())
    }

    fn fill(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let more = passed_ms.saturating_mul(self.per_ms());
        self.level = self.level.saturating_add(more).min(self.capacity());
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// It owns so many lanes from now on. What comes with them is time, not what their last owner
    /// had left.
    pub fn share(&mut self, now_ms: u64, owned: u16) {
        self.fill(now_ms);
        self.owned = u64::from(owned).min(self.lanes);
        self.level = self.level.min(self.capacity());
    }

    /// Another limit from now on.
    pub fn limit(&mut self, now_ms: u64, limit: RateLimit) {
        self.fill(now_ms);
        self.limit = limit;
        self.level = self.level.min(self.capacity());
    }

    /// How many may start now.
    #[must_use]
    pub fn available(&mut self, now_ms: u64) -> u64 {
        self.fill(now_ms);
        self.level / self.cost()
    }

    /// So many have started; no more than were available.
    pub fn take(&mut self, starts: u64) {
        self.level = self
            .level
            .saturating_sub(starts.saturating_mul(self.cost()));
    }

    /// When the next one may start, if not now; none where time alone does not bring it.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let missing = self.cost().saturating_sub(self.level);
        let per_ms = self.per_ms();
        (missing > 0 && per_ms > 0).then(|| self.at_ms.saturating_add(missing.div_ceil(per_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANES: u16 = 16;

    #[test]
    fn a_burst_is_a_tenth_of_a_second_where_nobody_says() {
        assert_eq!(RateLimit::of(1).burst, 1);
        assert_eq!(RateLimit::of(19).burst, 1);
        assert_eq!(RateLimit::of(200).burst, 20);
    }

    #[test]
    fn a_process_without_lanes_starts_nothing() {
        let mut bucket = Bucket::new(RateLimit::of(100), LANES, 0);
        assert_eq!(bucket.available(1_000_000), 0);
        assert_eq!(bucket.next_ms(), None);
        bucket.share(1_000_000, LANES);
        assert_eq!(bucket.available(1_000_000), 0, "what was before is not its");
        assert_eq!(bucket.next_ms(), Some(1_000_010));
        bucket.share(2_000_000, 0);
        bucket.share(2_000_000, LANES);
        assert_eq!(bucket.available(2_000_000), 0, "nor what it had given away");
    }

    #[test]
    fn a_share_too_small_for_a_message_is_saved_up_for_one() {
        let limit = RateLimit {
            per_second: 1,
            burst: 1,
        };
        let mut bucket = Bucket::new(limit, LANES, 0);
        bucket.share(0, 1);
        assert_eq!(bucket.next_ms(), Some(16_000));
        assert_eq!(bucket.available(15_999), 0);
        assert_eq!(bucket.available(16_000), 1);
        assert_eq!(bucket.available(1_000_000), 1);
    }

    /// What happens to a fleet.
    #[derive(Clone, Debug)]
    enum Step {
        /// Time passes.
        Pass(u64),
        /// A lane goes to a member, or to nobody.
        Move { lane: usize, to: usize },
        /// A member starts all that it may.
        Start(usize),
        /// A member's process starts anew.
        Restart(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0_u64..400).prop_map(Step::Pass),
            2 => (0_usize..16, 0_usize..5).prop_map(|(lane, to)| Step::Move { lane, to }),
            6 => (0_usize..4).prop_map(Step::Start),
            1 => (0_usize..4).prop_map(Step::Restart),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn a_fleet_never_starts_more_than_the_bound_in_any_window(
            per_second in 1_u32..2_000, burst in 1_u32..100, steps in steps(),
        ) {
            let limit = RateLimit { per_second, burst };
            let mut owners: Vec<usize> = (0..16).map(|lane| lane % 4).collect();
            let mut now_ms = 0;
            let mut buckets = vec![Bucket::new(limit, LANES, 0); 4];
            let mut starts: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Pass(ms) => now_ms += ms,
                    Step::Move { lane, to } => owners[lane] = to,
                    Step::Restart(member) => {
                        buckets[member] = Bucket::new(limit, LANES, now_ms);
                    }
                    Step::Start(member) => {
                        let all = buckets[member].available(now_ms);
                        buckets[member].take(all);
                        starts.push((now_ms, all));
                    }
                }
                for (member, bucket) in buckets.iter_mut().enumerate() {
                    let owned = owners.iter().filter(|owner| **owner == member).count();
                    bucket.share(now_ms, owned as u16);
                }
            }
            for (first, (from_ms, _)) in starts.iter().enumerate() {
                let mut sum = 0;
                for (at_ms, count) in &starts[first..] {
                    sum += count;
                    let by_time = u64::from(per_second) * (at_ms - from_ms + 1) / 1_000;
                    prop_assert!(sum <= by_time + u64::from(burst) + 4, "{sum} in {from_ms}..{at_ms}");
                }
            }
        }

        #[test]
        fn one_that_starts_whenever_it_may_has_its_share_to_within_one(
            per_second in 1_u32..2_000, owned in 1_u16..=16, seconds in 1_u64..50,
        ) {
            let mut bucket = Bucket::new(RateLimit::of(per_second), LANES, 0);
            bucket.share(0, owned);
            let (mut now_ms, mut started) = (0, 0);
            let share = |ms: u64| u64::from(per_second) * u64::from(owned) * ms / 16_000;
            while now_ms <= seconds * 1_000 {
                let all = bucket.available(now_ms);
                bucket.take(all);
                started += all;
                prop_assert_eq!(started, share(now_ms));
                let next_ms = bucket.next_ms().unwrap_or(now_ms);
                prop_assert!(next_ms > now_ms);
                now_ms = next_ms;
            }
        }

        #[test]
        fn nothing_overflows(
            per_second: u32, burst: u32, lanes: u16, owned: u16, now_ms: u64, later_ms: u64,
        ) {
            let mut bucket = Bucket::new(RateLimit { per_second, burst }, lanes, now_ms);
            bucket.share(now_ms, owned);
            let all = bucket.available(later_ms);
            bucket.take(all);
            let next_ms = bucket.next_ms();
            prop_assert!(next_ms.is_none_or(|at_ms| at_ms >= now_ms));
            bucket.limit(later_ms, RateLimit::of(per_second));
            let most = u64::from(burst.max(1)) + u64::from(per_second) / 1_000 + 1;
            prop_assert!(bucket.available(later_ms) <= most);
        }
    }
}
