//! How much may be under way at once, from what the dependency can take: a pure decision.
//!
//! The limit follows the dependency's own latency and errors, never the backlog: many waiting
//! messages are no reason to press harder. It grows while answers come as fast as they came when
//! little was under way, shrinks as they become slower, and falls at once on an error.
//!
//! The arithmetic is that of the gradient limit of Netflix's *concurrency-limits* (a queue of the
//! square root of the limit is tolerated), with the slow start and the multiplicative decrease of
//! RFC 5681. Unlike there, what an answer takes at best is learnt only while little is under way:
//! under steady load it would drift towards whatever the load makes of it.

/// A limit between a floor and a ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    floor: f64,
    ceiling: f64,
    limit: f64,
    /// What an answer takes with little under way.
    base_us: f64,
    /// What an answer takes now.
    recent_us: f64,
    /// Answers since one that was well, all of them too slow.
    slow: u32,
    /// It doubles per round trip until something says that it is enough.
    is_starting: bool,
    /// Answers and failures since the limit fell: what was under way then says nothing new.
    since_fall: u32,
}

/// Weight of the newest answer in what answers take.
const NEWEST: f64 = 0.1;
/// After so many answers that were slow it is looked again what they take at best.
const SLOW_MAX: u32 = 1_000;
/// With so little more than the floor, what answers take is not the load's doing.
const LITTLE: f64 = 4.0;
/// So much slower than at best is still well.
const TOLERANCE: f64 = 1.5;
/// The most that slow answers take off at once.
const GRADIENT_MIN: f64 = 0.5;
/// How fast the limit follows.
const SMOOTHING: f64 = 0.2;
/// What is left of the limit after an error.
const AFTER_ERROR: f64 = 0.8;

impl Limit {
    /// Begins at the floor: what comes after a start comes step by step.
    #[must_use]
    pub fn new(floor: u16, ceiling: u16) -> Self {
        let floor = f64::from(floor.max(1));
        Self {
            floor,
            ceiling: f64::from(ceiling).max(floor),
            limit: floor,
            base_us: 0.0,
            recent_us: 0.0,
            slow: 0,
            is_starting: true,
            since_fall: 0,
        }
    }

    /// How much may be under way.
    #[must_use]
    pub fn get(&self) -> u16 {
        // Both bounds came from a u16.
        self.limit.clamp(self.floor, self.ceiling) as u16
    }

    /// What an answer takes now, in microseconds; 0 before the first.
    #[must_use]
    pub fn recent_us(&self) -> u64 {
        // Never negative, and a cast of what is too large saturates.
        self.recent_us as u64
    }

    /// An answer came after so many microseconds, while `under_way` were asked (it included).
    pub fn answered(&mut self, took_us: u64, under_way: u16) {
        let took_us = took_us.max(1) as f64;
        let under_way = f64::from(under_way);
        self.since_fall = self.since_fall.saturating_add(1);
        if self.base_us == 0.0 {
            self.base_us = took_us;
        }
        if self.recent_us == 0.0 {
            self.recent_us = took_us;
        }
        self.recent_us += NEWEST * (took_us - self.recent_us);
        let is_little = under_way * 4.0 <= self.limit || self.limit < self.floor + LITTLE;
        if is_little {
            self.base_us += NEWEST * (took_us - self.base_us);
        }
        // What is not used says nothing about more.
        if under_way * 2.0 < self.limit {
            return;
        }
        let gradient = (TOLERANCE * self.base_us / self.recent_us).clamp(GRADIENT_MIN, 1.0);
        self.is_starting &= gradient >= 1.0;
        self.slow = if gradient < 1.0 { self.slow + 1 } else { 0 };
        if self.slow > SLOW_MAX {
            // Under steady load nobody can tell whether it is the load (BBR's PROBE_RTT asks the
            // same question in the same way).
            self.restart();
            return;
        }
        let step = if self.is_starting {
            1.0
        } else {
            let wanted = self.limit * gradient + self.limit.sqrt();
            // As many answers as are under way make one step, so that it is one per round trip.
            SMOOTHING * (wanted - self.limit) / self.limit
        };
        self.limit = (self.limit + step).clamp(self.floor, self.ceiling);
    }

    /// The dependency failed, timed out or asked for less. Of all that was under way together, the
    /// first failure counts.
    pub fn failed(&mut self) {
        self.is_starting = false;
        let is_same = self.since_fall > 0 && f64::from(self.since_fall) < self.limit;
        if is_same {
            self.since_fall = self.since_fall.saturating_add(1);
            return;
        }
        self.since_fall = 1;
        self.limit = (self.limit * AFTER_ERROR).clamp(self.floor, self.ceiling);
    }

    /// After an outage: begins at the floor again, with what is known of the latency.
    pub fn restart(&mut self) {
        self.limit = self.floor;
        self.recent_us = 0.0;
        self.is_starting = true;
        self.since_fall = 0;
        self.slow = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A dependency that takes `capacity` at once: more only waits longer.
    fn took_us(under_way: u16, capacity: u16) -> u64 {
        10_000 * u64::from(under_way.max(capacity)) / u64::from(capacity)
    }

    fn settle(limit: &mut Limit, capacity: u16, answers: u32) {
        for _ in 0..answers {
            let under_way = limit.get();
            limit.answered(took_us(under_way, capacity), under_way);
        }
    }

    #[test]
    fn it_finds_what_a_dependency_takes() {
        for capacity in [4, 16, 64] {
            let mut limit = Limit::new(1, 256);
            settle(&mut limit, capacity, 1_000);
            let (mut within, answers) = (0, 20_000);
            for _ in 0..answers {
                settle(&mut limit, capacity, 1);
                within += u32::from((capacity..=capacity * 4).contains(&limit.get()));
            }
            // But for the moments in which it looks again from the floor.
            assert!(within > answers * 8 / 10, "{within} for {capacity}");
        }
    }

    #[test]
    fn it_gives_way_when_the_dependency_takes_less() {
        let mut limit = Limit::new(1, 256);
        settle(&mut limit, 64, 20_000);
        let before = limit.get();
        settle(&mut limit, 8, 900);
        assert!(limit.get() < before / 2, "{} of {before}", limit.get());
    }

    #[test]
    fn a_burst_of_failures_counts_once_and_failures_alone_lead_to_the_floor() {
        let mut limit = Limit::new(2, 100);
        settle(&mut limit, 100, 20_000);
        let before = limit.get();
        for _ in 0..10 {
            limit.failed();
        }
        let after = limit.get();
        assert!(after >= before * 3 / 4, "{after} of {before}");
        for _ in 0..10_000 {
            limit.failed();
        }
        assert_eq!(limit.get(), 2);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut limit = Limit::new(1, 256);
        for _ in 0..10_000 {
            limit.answered(5_000, 1);
        }
        assert!(limit.get() <= 3, "{}", limit.get());
    }

    #[test]
    fn after_an_outage_it_begins_at_the_floor_and_ramps_up() {
        let mut limit = Limit::new(1, 256);
        settle(&mut limit, 32, 20_000);
        let before = limit.get();
        limit.restart();
        assert_eq!(limit.get(), 1);
        settle(&mut limit, 32, 10);
        assert!(limit.get() < before / 2);
        settle(&mut limit, 32, 500);
        assert!(limit.get() >= 32);
    }

    /// Half of the messages take a hundred times as long as the others, whatever the load.
    #[test]
    fn messages_of_different_length_are_no_sign_of_trouble() {
        let mut limit = Limit::new(1, 64);
        for n in 0..20_000_u32 {
            let took_us = if n.wrapping_mul(2_654_435_761) >> 31 == 0 {
                1_000
            } else {
                100_000
            };
            limit.answered(took_us, limit.get());
        }
        assert!(limit.get() >= 32, "{}", limit.get());
    }

    #[test]
    fn a_dependency_that_has_become_slow_for_good_is_learnt_anew() {
        let mut limit = Limit::new(1, 64);
        settle(&mut limit, 1_000, 5_000);
        for _ in 0..200_000 {
            limit.answered(80_000, limit.get());
        }
        assert!(limit.get() >= 32, "{}", limit.get());
    }

    proptest! {
        #[test]
        fn it_stays_between_floor_and_ceiling(
            floor: u16,
            ceiling: u16,
            events in prop::collection::vec((any::<bool>(), any::<u64>(), any::<u16>()), 0..200),
        ) {
            let mut limit = Limit::new(floor, ceiling);
            for (is_failure, took_us, under_way) in events {
                if is_failure { limit.failed() } else { limit.answered(took_us, under_way) }
                prop_assert!(limit.get() >= floor.max(1));
                prop_assert!(limit.get() <= ceiling.max(floor).max(1));
            }
        }
    }
}
