//! What the carrier does with a first request, from a seed.

use std::time::Duration;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Done, and answered after this time.
    Fine(Duration),
    /// Done, and answered after this time, when its client may have left.
    DoneLate(Duration),
    /// Nothing done, and nothing said for this time.
    Lost(Duration),
    /// Nothing done, and said so at once.
    Busy,
}

/// Moods that follow from a seed and the operation, so that a run can be repeated.
#[derive(Clone, Copy, Debug)]
pub struct Moods {
    seed: u64,
    stall_ms: u64,
    is_silent: bool,
}

impl Moods {
    /// Moods of a seed. A stalled answer takes from half of `stall_ms` milliseconds to all of it.
    #[must_use]
    pub const fn new(seed: u64, stall_ms: u64) -> Self {
        Self {
            seed,
            stall_ms,
            is_silent: false,
        }
    }

    /// Moods of a carrier that answers no first request in time: half of them it has done.
    #[must_use]
    pub const fn silent(seed: u64, stall_ms: u64) -> Self {
        Self {
            is_silent: true,
            ..Self::new(seed, stall_ms)
        }
    }

    /// The mood for an operation's first request.
    #[must_use]
    pub fn of(&self, operation: &str) -> Mood {
        let mut random = fastrand::Rng::with_seed(self.seed ^ hash(operation));
        let stall = random.u64(self.stall_ms / 2..=self.stall_ms);
        let stall = Duration::from_millis(stall);
        let roll = random.u32(..100);
        if self.is_silent {
            return match roll {
                0..50 => Mood::DoneLate(stall),
                _ => Mood::Lost(stall),
            };
        }
        match roll {
            0..4 => Mood::DoneLate(stall),
            4..6 => Mood::Lost(stall),
            6..9 => Mood::Busy,
            _ => Mood::Fine(Duration::from_millis(random.u64(2..15))),
        }
    }
}

/// FNV-1a, 64 bits. Constants: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_carrier_answers_nobody_in_time() {
        let moods = Moods::silent(7, 1_000);
        let of = |i: u32| moods.of(&format!("checkout-{i}"));
        let late = |mood: &Mood| matches!(mood, Mood::DoneLate(_));
        let lost = |mood: &Mood| matches!(mood, Mood::Lost(_));
        let all: Vec<Mood> = (0..100).map(of).collect();
        assert!(all.iter().all(|mood| late(mood) || lost(mood)));
        assert!(all.iter().any(late) && all.iter().any(lost));
    }

    #[test]
    fn every_mood_occurs_and_can_be_repeated() {
        let moods = Moods::new(7, 1_000);
        let (mut late, mut lost, mut busy) = (0, 0, 0);
        for i in 0..1_000 {
            let operation = format!("checkout-{i}");
            let mood = moods.of(&operation);
            assert_eq!(mood, Moods::new(7, 1_000).of(&operation));
            match mood {
                Mood::DoneLate(after) => {
                    assert!((500..=1_000).contains(&after.as_millis()));
                    late += 1;
                }
                Mood::Lost(_) => lost += 1,
                Mood::Busy => busy += 1,
                Mood::Fine(_) => {}
            }
        }
        assert!(late > 10 && lost > 5 && busy > 5, "{late} {lost} {busy}");
    }
}
