//! How many batches may run at once, and whether any may start.

/// How fast to go on after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pace {
    /// Start nothing for this long: the store or a dependency is away, or a person has to act. 0
    /// ends such a pause.
    pub pause_ms: Option<u64>,
    /// Batches at once from now on, at most as many as the contract says.
    pub concurrency: Option<u16>,
    /// One more each time that so many milliseconds have passed without another word, so that a few
    /// long ones do not keep all others from starting. None: not one more.
    pub more_after_ms: Option<u64>,
}

/// The pace that is kept.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    /// The contract's.
    declared: usize,
    /// What no pace goes beyond: the contract's, or an operator's limit below it.
    most: usize,
    concurrency: usize,
    set_at_ms: u64,
    more_after_ms: Option<u64>,
    paused_until_ms: u64,
}

impl Pacing {
    /// As fast as the contract allows.
    pub(super) const fn new(most: usize, now_ms: u64) -> Self {
        Self {
            declared: most,
            most,
            concurrency: most,
            set_at_ms: now_ms,
            more_after_ms: None,
            paused_until_ms: 0,
        }
    }

    pub(super) fn set(&mut self, now_ms: u64, pace: Pace) {
        if let Some(concurrency) = pace.concurrency {
            self.concurrency = usize::from(concurrency.max(1)).min(self.declared);
            self.set_at_ms = now_ms;
            self.more_after_ms = pace.more_after_ms;
        }
        if let Some(pause_ms) = pace.pause_ms {
            self.paused_until_ms = now_ms.saturating_add(pause_ms);
        }
    }

    /// An operator's limit, or the end of it.
    pub(super) fn limit(&mut self, concurrency_max: Option<u16>) {
        let limit = concurrency_max.map_or(self.declared, |max| usize::from(max.max(1)));
        self.most = limit.min(self.declared);
    }

    /// When a pause ends.
    pub(super) fn paused_until_ms(&self, now_ms: u64) -> Option<u64> {
        (self.paused_until_ms > now_ms).then_some(self.paused_until_ms)
    }

    /// Whether one more batch may start beside so many.
    pub(super) fn has_room(&self, now_ms: u64, running: usize) -> bool {
        self.paused_until_ms <= now_ms && running < self.allowed(now_ms)
    }

    /// Batches that may run at once, but for a pause.
    pub(super) fn allowed(&self, now_ms: u64) -> usize {
        let more = self
            .more_after_ms
            .map_or(0, |every_ms| (now_ms - self.set_at_ms) / every_ms.max(1));
        let more = usize::try_from(more).unwrap_or(usize::MAX);
        self.concurrency.saturating_add(more).min(self.most)
    }

    /// When one more may start beside so many, if time alone brings it.
    pub(super) fn next_more_ms(&self, now_ms: u64, running: usize) -> Option<u64> {
        let every_ms = self.more_after_ms?.max(1);
        let allowed = self.allowed(now_ms);
        if running < allowed || allowed == self.most {
            return None;
        }
        let steps = (now_ms - self.set_at_ms) / every_ms + 1;
        Some(
            self.set_at_ms
                .saturating_add(steps.saturating_mul(every_ms)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(concurrency: u16, more_after_ms: Option<u64>) -> Pace {
        Pace {
            pause_ms: None,
            concurrency: Some(concurrency),
            more_after_ms,
        }
    }

    #[test]
    fn no_pace_goes_beyond_the_contract_or_below_one() {
        let mut pacing = Pacing::new(4, 0);
        assert!(pacing.has_room(0, 3) && !pacing.has_room(0, 4));
        pacing.set(0, slow(9, Some(1)));
        assert!(!pacing.has_room(1_000_000, 4));
        pacing.set(0, slow(0, None));
        assert!(pacing.has_room(0, 0) && !pacing.has_room(0, 1));
    }

    #[test]
    fn long_ones_make_room_for_others_as_time_passes() {
        let mut pacing = Pacing::new(4, 0);
        pacing.set(1_000, slow(1, Some(100)));
        assert!(!pacing.has_room(1_099, 1));
        assert_eq!(pacing.next_more_ms(1_000, 1), Some(1_100));
        assert!(pacing.has_room(1_100, 1));
        assert_eq!(pacing.next_more_ms(1_150, 2), Some(1_200));
        assert!(pacing.has_room(1_300, 3) && !pacing.has_room(1_300, 4));
        assert_eq!(pacing.next_more_ms(1_300, 4), None);
        // Each word starts the wait anew.
        pacing.set(1_300, slow(2, Some(100)));
        assert!(!pacing.has_room(1_350, 2));
    }

    #[test]
    fn an_operators_limit_goes_below_the_contract_and_ends() {
        let mut pacing = Pacing::new(4, 0);
        pacing.limit(Some(2));
        assert!(pacing.has_room(0, 1) && !pacing.has_room(0, 2));
        pacing.set(0, slow(3, Some(100)));
        assert!(!pacing.has_room(1_000_000, 2));
        assert_eq!(pacing.next_more_ms(0, 2), None);
        pacing.limit(Some(9));
        assert!(pacing.has_room(0, 2) && !pacing.has_room(0, 3));
        assert!(!pacing.has_room(1_000_000, 4));
        pacing.limit(Some(0));
        assert!(pacing.has_room(0, 0) && !pacing.has_room(0, 1));
        pacing.limit(None);
        assert!(
            pacing.has_room(0, 2),
            "the other side's pace goes on from where it was"
        );
    }

    #[test]
    fn a_probe_stays_alone_however_long_it_takes() {
        let mut pacing = Pacing::new(4, 0);
        pacing.set(0, slow(1, None));
        assert!(!pacing.has_room(u64::MAX, 1));
        assert_eq!(pacing.next_more_ms(u64::MAX, 1), None);
    }

    #[test]
    fn a_pause_ends_by_time_or_by_word() {
        let mut pacing = Pacing::new(4, 0);
        let pause = |ms| Pace {
            pause_ms: Some(ms),
            ..Pace::default()
        };
        pacing.set(10, pause(100));
        assert!(!pacing.has_room(109, 0) && pacing.has_room(110, 0));
        assert_eq!(pacing.paused_until_ms(50), Some(110));
        pacing.set(50, Pace::default());
        assert_eq!(pacing.paused_until_ms(50), Some(110));
        pacing.set(50, pause(0));
        assert!(pacing.has_room(50, 0));
        assert_eq!(pacing.paused_until_ms(50), None);
    }
}
