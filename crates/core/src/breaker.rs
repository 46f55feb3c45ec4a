//! A breaker in front of what a subscription depends on: a pure decision.
//!
//! Closed, it looks at how messages fare. When one message after another fails, different ones and
//! none of them well in between, it is not the messages: it opens, and nothing is started. One that
//! finds nobody there at all is enough. After a
//! pause one message is let through. If it succeeds the breaker closes; if it fails, the next
//! pause is longer. What fails while it is not closed burns nothing of the message's budget. One
//! that opened because nobody was there closes on any answer: somebody is there again, and whether
//! the trouble is the message's is judged anew.
//!
//! Closed, open and half-open are the states of M. Nygard, *Release It!*, 2nd edition, 2018,
//! chapter 5, "Circuit Breaker".

use serde::{Deserialize, Serialize};

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerPolicy {
    /// It opens when so many different messages have failed with no success in between; 0 switches
    /// it off.
    pub messages_min: u32,
    /// Ceiling of the first pause, in milliseconds.
    pub pause_ms: u64,
    /// Ceiling of any pause, in milliseconds.
    pub pause_max_ms: u64,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            messages_min: 5,
            pause_ms: 1_000,
            pause_max_ms: 60_000,
        }
    }
}

/// How often a pause doubles while the other side answers, if only with trouble: the next message
/// may fare better.
const ANSWERED_MAX: u32 = 3;

/// How an attempt says that the dependency fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It answered: well, or with a word about the message alone.
    Answered,
    /// It was too slow, or in trouble: its own, or what the message made of it.
    Failed,
    /// It was not there: whatever the message, it is away.
    Away,
}

/// Whether work may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// As much as the limits allow.
    Open,
    /// One message, if none is under way as a probe.
    Probe,
    /// Nothing before this moment, in milliseconds on the clock of [`Breaker::gate`].
    Shut {
        /// The moment.
        until_ms: u64,
    },
}

/// What an attempt changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    None,
    /// Work stops.
    Opened,
    /// Work goes on.
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Closed { failed: Vec<u64> },
    Open(Pause),
    HalfOpen(Pause),
}

/// Why and how long it is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    until_ms: u64,
    probes: u32,
    /// Nobody was there, from the first sign on.
    is_away: bool,
}

/// A breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    policy: BreakerPolicy,
    state: State,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub const fn new(policy: BreakerPolicy) -> Self {
        Self {
            policy,
            state: State::Closed { failed: Vec::new() },
        }
    }

    /// Whether work may start at a moment.
    #[must_use]
    pub const fn gate(&self, now_ms: u64) -> Gate {
        match self.state {
            State::Closed { .. } => Gate::Open,
            State::Open(Pause { until_ms, .. }) if until_ms > now_ms => Gate::Shut { until_ms },
            State::Open(_) | State::HalfOpen(_) => Gate::Probe,
        }
    }

    /// Whether it is closed: only then a failure is the message's own.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// A message is let through as a probe.
    pub fn probing(&mut self) {
        if let State::Open(pause) = self.state {
            self.state = State::HalfOpen(pause);
        }
    }

    /// The probe came back without a sign (it was handed back, or ended before it asked): another
    /// may go at once.
    pub fn probe_lost(&mut self, now_ms: u64) {
        if let State::HalfOpen(pause) = self.state {
            self.state = State::Open(Pause {
                until_ms: now_ms,
                ..pause
            });
        }
    }

    /// Takes an attempt's sign in. `message` names the message, `random` are 64 random bits for the
    /// pause, so that a fleet does not come back in the same instant.
    pub fn observe(&mut self, now_ms: u64, message: u64, sign: Sign, random: u64) -> Turn {
        match (&mut self.state, sign) {
            (State::Closed { failed }, Sign::Answered) => {
                failed.clear();
                Turn::None
            }
            (State::Closed { .. }, Sign::Away) if self.policy.messages_min > 0 => {
                self.open(now_ms, 0, true, random);
                Turn::Opened
            }
            (State::Closed { .. }, Sign::Failed | Sign::Away) => {
                self.failed(now_ms, message, random)
            }
            // Whatever answers says that it is back, also what was under way before it opened.
            (State::Open(_) | State::HalfOpen(_), Sign::Answered) => {
                self.state = State::Closed { failed: Vec::new() };
                Turn::Closed
            }
            // What was under way when it opened says nothing new.
            (State::Open(_), Sign::Failed | Sign::Away) => Turn::None,
            // Else the last message of a queue that always fails would be tried for ever.
            (State::HalfOpen(Pause { is_away: true, .. }), Sign::Failed) => {
                self.state = State::Closed { failed: Vec::new() };
                match self.failed(now_ms, message, random) {
                    Turn::Opened => Turn::None,
                    Turn::None | Turn::Closed => Turn::Closed,
                }
            }
            (State::HalfOpen(pause), sign) => {
                let most = match sign {
                    Sign::Away => u32::MAX,
                    Sign::Failed | Sign::Answered => ANSWERED_MAX,
                };
                let probes = pause.probes.saturating_add(1).min(most);
                let is_away = pause.is_away;
                self.open(now_ms, probes, is_away, random);
                Turn::None
            }
        }
    }

    /// One more message failed while it is closed.
    fn failed(&mut self, now_ms: u64, message: u64, random: u64) -> Turn {
        let State::Closed { failed } = &mut self.state else {
            return Turn::None;
        };
        if !failed.contains(&message) {
            failed.push(message);
        }
        let many = self.policy.messages_min;
        if many == 0 || failed.len() < many as usize {
            return Turn::None;
        }
        self.open(now_ms, 0, false, random);
        Turn::Opened
    }

    /// A pause in the upper half of a ceiling that doubles: never at once, never all together.
    fn open(&mut self, now_ms: u64, probes: u32, is_away: bool, random: u64) {
        let longest = self.policy.pause_max_ms.max(1);
        let doubled = self.policy.pause_ms.max(1).checked_shl(probes.min(63));
        let ceiling = doubled
            .filter(|ms| ms >> probes.min(63) == self.policy.pause_ms.max(1))
            .map_or(longest, |ms| ms.min(longest));
        let pause_ms = ceiling - random % (ceiling / 2 + 1);
        self.state = State::Open(Pause {
            until_ms: now_ms.saturating_add(pause_ms.max(1)),
            probes,
            is_away,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: BreakerPolicy = BreakerPolicy {
        messages_min: 3,
        pause_ms: 100,
        pause_max_ms: 1_000,
    };

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(POLICY);
        for message in 1..=3 {
            assert!(breaker.is_closed());
            breaker.observe(0, message, Sign::Failed, 0);
        }
        breaker
    }

    #[test]
    fn different_messages_that_fail_one_after_another_open_it() {
        let breaker = opened();
        assert_eq!(breaker.gate(0), Gate::Shut { until_ms: 100 });
        assert_eq!(breaker.gate(100), Gate::Probe);
    }

    #[test]
    fn one_message_that_finds_nobody_there_opens_it() {
        let mut breaker = Breaker::new(POLICY);
        assert_eq!(breaker.observe(0, 1, Sign::Away, 0), Turn::Opened);
        assert_eq!(breaker.gate(0), Gate::Shut { until_ms: 100 });
    }

    #[test]
    fn one_that_found_nobody_closes_it_with_any_answer_and_others_do_not() {
        for (first, closes) in [(Sign::Away, true), (Sign::Failed, false)] {
            let mut breaker = Breaker::new(POLICY);
            for message in 1..=3 {
                breaker.observe(0, message, first, 0);
            }
            breaker.probing();
            breaker.observe(100, 9, Sign::Away, 0);
            breaker.probing();
            let turn = breaker.observe(300, 9, Sign::Failed, 0);
            assert_eq!(
                (turn == Turn::Closed, breaker.is_closed()),
                (closes, closes)
            );
        }
        // Where one failure is enough it opens for that instead.
        let mut strict = Breaker::new(BreakerPolicy {
            messages_min: 1,
            ..POLICY
        });
        strict.observe(0, 1, Sign::Away, 0);
        strict.probing();
        assert_eq!(strict.observe(100, 1, Sign::Failed, 0), Turn::None);
        assert_eq!(strict.gate(100), Gate::Shut { until_ms: 200 });
    }

    #[test]
    fn one_message_that_fails_again_and_again_does_not() {
        let mut breaker = Breaker::new(POLICY);
        for _ in 0..100 {
            assert_eq!(breaker.observe(0, 7, Sign::Failed, 0), Turn::None);
        }
        assert_eq!(breaker.gate(0), Gate::Open);
    }

    #[test]
    fn a_success_in_between_says_that_it_is_the_messages() {
        let mut breaker = Breaker::new(POLICY);
        for message in 0..100 {
            assert_eq!(breaker.observe(0, message, Sign::Failed, 0), Turn::None);
            assert_eq!(breaker.observe(0, message, Sign::Failed, 0), Turn::None);
            breaker.observe(0, message + 1_000, Sign::Answered, 0);
        }
        assert!(breaker.is_closed());
    }

    #[test]
    fn a_probe_that_succeeds_closes_it_and_one_that_fails_makes_the_pause_longer() {
        assert_eq!(pauses(Sign::Away), [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(pauses(Sign::Failed), [100, 200, 400, 800, 800, 800]);
    }

    fn pauses(sign: Sign) -> Vec<u64> {
        let mut breaker = opened();
        let (mut now_ms, mut pauses) = (0, Vec::new());
        for _ in 0..6 {
            let Gate::Shut { until_ms } = breaker.gate(now_ms) else {
                panic!("{breaker:?}");
            };
            pauses.push(until_ms - now_ms);
            now_ms = until_ms;
            breaker.probing();
            assert_eq!(breaker.gate(now_ms), Gate::Probe);
            assert_eq!(breaker.observe(now_ms, 9, sign, 0), Turn::None);
        }
        breaker.probing();
        assert_eq!(breaker.observe(now_ms, 9, Sign::Answered, 0), Turn::Closed);
        assert_eq!(breaker.gate(now_ms), Gate::Open);
        pauses
    }

    #[test]
    fn a_probe_without_a_sign_lets_another_go() {
        let mut breaker = opened();
        breaker.probing();
        breaker.probe_lost(250);
        assert_eq!(breaker.gate(250), Gate::Probe);
        assert!(!breaker.is_closed());
    }

    #[test]
    fn what_was_under_way_when_it_opened_changes_no_pause() {
        let mut breaker = opened();
        let before = breaker.clone();
        assert_eq!(breaker.observe(50, 4, Sign::Failed, 7), Turn::None);
        assert_eq!(breaker, before);
        assert_eq!(breaker.observe(60, 5, Sign::Answered, 7), Turn::Closed);
    }

    #[test]
    fn with_no_number_it_never_opens() {
        let policy = BreakerPolicy {
            messages_min: 0,
            ..POLICY
        };
        let mut breaker = Breaker::new(policy);
        for message in 0..1_000 {
            breaker.observe(0, message, Sign::Failed, 0);
        }
        assert_eq!(breaker.gate(0), Gate::Open);
    }

    proptest! {
        #[test]
        fn pauses_stay_between_one_and_their_ceiling(
            pause_ms in prop::sample::select(vec![0, 1, 1_000, u64::MAX]),
            pause_max_ms in prop::sample::select(vec![0, 1, 60_000, u64::MAX]),
            now_ms in prop::sample::select(vec![0, 1_000_000, u64::MAX - 1]),
            fails in 0_u32..100,
            random: u64,
        ) {
            let policy = BreakerPolicy { messages_min: 1, pause_ms, pause_max_ms };
            let mut breaker = Breaker::new(policy);
            breaker.observe(now_ms, 1, Sign::Failed, random);
            for _ in 0..fails {
                breaker.probing();
                breaker.observe(now_ms, 1, Sign::Failed, random);
            }
            let Gate::Shut { until_ms } = breaker.gate(now_ms) else {
                return Err(TestCaseError::fail(format!("{breaker:?}")));
            };
            prop_assert!(until_ms > now_ms);
            prop_assert!(until_ms - now_ms <= pause_max_ms.max(1));
        }
    }
}
