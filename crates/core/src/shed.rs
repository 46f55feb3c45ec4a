//! Work of low value that is given up when its turn comes late. Pure decisions.
//!
//! Not the same as work that has become useless ([`expiry`](crate::expiry)): that is about what a
//! message is worth to its reader, and time goes on for it whatever happens here. This is about
//! the load: the subscription is behind, and gets through what matters more by leaving this out.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::timestamp::Timestamp;

/// Code of a message that was given up because its turn came late.
pub const SHED: &str = "shed";

/// Which messages are given up, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shed {
    /// Message types.
    pub types: Vec<String>,
    /// They are given up when they have waited for longer than this at their turn, in milliseconds.
    /// Time in which an operator kept the subscription paused does not count.
    pub after_ms: u64,
}

/// A time in which a subscription was paused by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// When it began.
    pub from: Timestamp,
    /// When it ended; `None` while it goes on.
    pub to: Option<Timestamp>,
}

/// How long a message has waited while its subscription was not paused, in milliseconds.
#[must_use]
pub fn waited_ms(recorded_at: Timestamp, now: Timestamp, pauses: &[Paused]) -> u64 {
    let mut pauses: Vec<(Timestamp, Timestamp)> = pauses
        .iter()
        .map(|pause| {
            let to = pause.to.unwrap_or(now).min(now);
            (pause.from.max(recorded_at), to)
        })
        .collect();
    pauses.sort_unstable();
    let mut waited_ms = now.millis_since(recorded_at).max(0);
    let mut counted_to = recorded_at;
    for (from, to) in pauses {
        let from = from.max(counted_to);
        waited_ms -= to.millis_since(from).max(0);
        counted_to = counted_to.max(to);
    }
    u64::try_from(waited_ms).unwrap_or(0)
}

/// Why a message is given up.
#[must_use]
pub fn shed(waited_ms: u64, after_ms: u64) -> Failure {
    Failure::permanent(
        SHED,
        format!("its turn came after {waited_ms} ms, and it is given up after {after_ms} ms"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(ms * 1_000)
    }

    fn paused(from: i64, to: Option<i64>) -> Paused {
        Paused {
            from: at(from),
            to: to.map(at),
        }
    }

    #[test]
    fn pauses_do_not_count() {
        let waited = |pauses: &[Paused]| waited_ms(at(1_000), at(2_000), pauses);
        assert_eq!(waited(&[]), 1_000);
        assert_eq!(waited(&[paused(1_200, Some(1_500))]), 700);
        assert_eq!(waited(&[paused(0, Some(1_500))]), 500);
        assert_eq!(waited(&[paused(1_900, None)]), 900);
        assert_eq!(waited(&[paused(0, None)]), 0);
        assert_eq!(waited(&[paused(0, Some(900)), paused(2_100, None)]), 1_000);
    }

    #[test]
    fn a_clock_that_went_back_makes_nothing_old() {
        assert_eq!(waited_ms(at(2_000), at(1_000), &[]), 0);
        assert_eq!(waited_ms(at(2_000), at(1_000), &[paused(0, None)]), 0);
    }

    proptest! {
        #[test]
        fn it_is_the_milliseconds_outside_all_pauses(
            recorded in 0_i64..60,
            now in 0_i64..60,
            pauses in prop::collection::vec((0_i64..60, prop::option::of(0_i64..60)), 0..5),
        ) {
            let of: Vec<Paused> = pauses.iter().map(|(from, to)| paused(*from, *to)).collect();
            let is_paused = |ms: i64| pauses.iter()
                .any(|(from, to)| ms >= *from && to.is_none_or(|to| ms < to));
            let counted = (recorded..now).filter(|ms| !is_paused(*ms)).count() as u64;
            prop_assert_eq!(waited_ms(at(recorded), at(now), &of), counted);
        }
    }
}
