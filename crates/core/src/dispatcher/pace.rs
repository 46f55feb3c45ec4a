//! How many batches may run at once, how many messages may start, and whether any may.

use crate::rate::{Bucket, RateLimit};

/// How fast to go on after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pace {
    /// Start nothing for this long: the store or a dependency is away. 0 ends such a pause.
    pub pause_ms: Option<u64>,
    /// Start nothing for this long, or until operators act: the next message would fare as the last
    /// one until a person has done something. No other pause ends this one.
    pub person_pause_ms: Option<u64>,
    /// Batches at once from now on, at most as many as the contract says.
    pub concurrency: Option<u16>,
    /// One more each time that so many milliseconds have passed without another word, so that a few
    /// long ones do not keep all others from starting. None: not one more.
    pub more_after_ms: Option<u64>,
    /// The next one finds out whether the other side is back: rather one that has failed before.
    /// Taken in together with `concurrency`.
    pub is_probe: bool,
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
    person_until_ms: u64,
    is_probing: bool,
    /// An operator's limit of starts per second.
    rate: Option<Bucket>,
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
            person_until_ms: 0,
            is_probing: false,
            rate: None,
        }
    }

    pub(super) fn set(&mut self, now_ms: u64, pace: Pace) {
        if let Some(concurrency) = pace.concurrency {
            self.concurrency = usize::from(concurrency.max(1)).min(self.declared);
            self.set_at_ms = now_ms;
            self.more_after_ms = pace.more_after_ms;
            self.is_probing = pace.is_probe;
        }
        if let Some(pause_ms) = pace.pause_ms {
            self.paused_until_ms = now_ms.saturating_add(pause_ms);
        }
        if let Some(pause_ms) = pace.person_pause_ms {
            self.person_until_ms = now_ms.saturating_add(pause_ms);
        }
    }

    /// Operators acted: what a person was waited for may be done.
    pub(super) const fn person_acted(&mut self) {
        self.person_until_ms = 0;
    }

    /// An operator's limit, or the end of it.
    pub(super) fn limit(&mut self, concurrency_max: Option<u16>) {
        let limit = concurrency_max.map_or(self.declared, |max| usize::from(max.max(1)));
        self.most = limit.min(self.declared);
    }

    /// An operator's limit of starts per second, or the end of it.
    pub(super) fn limit_rate(&mut self, now_ms: u64, limit: Option<RateLimit>, lanes: u16) {
        match (&mut self.rate, limit.filter(|limit| limit.per_second > 0)) {
            (Some(bucket), Some(limit)) => bucket.limit(now_ms, limit),
            (rate, limit) => *rate = limit.map(|limit| Bucket::new(limit, lanes, now_ms)),
        }
    }

    /// How many messages may start now, where so many lanes are this process's.
    pub(super) fn starts(&mut self, now_ms: u64, owned: impl FnOnce() -> u16) -> usize {
        let Some(bucket) = &mut self.rate else {
            return usize::MAX;
        };
        bucket.share(now_ms, owned());
        usize::try_from(bucket.available(now_ms)).unwrap_or(usize::MAX)
    }

    /// So many messages have started.
    pub(super) fn started(&mut self, messages: usize) {
        if let Some(bucket) = &mut self.rate {
            bucket.take(messages as u64);
        }
    }

    /// When the next message may start, where the limit of starts is reached.
    pub(super) fn next_start_ms(&self) -> Option<u64> {
        self.rate.as_ref().and_then(Bucket::next_ms)
    }

    /// Whether the next one finds out if the other side is back.
    pub(super) const fn is_probing(&self) -> bool {
        self.is_probing
    }

    /// When a pause ends.
    pub(super) fn paused_until_ms(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.paused_until_ms.max(self.person_until_ms);
        (until_ms > now_ms).then_some(until_ms)
    }

    /// Whether one more batch may start beside so many.
    pub(super) fn has_room(&self, now_ms: u64, running: usize) -> bool {
        self.paused_until_ms(now_ms).is_none() && running < self.allowed(now_ms)
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
            concurrency: Some(concurrency),
            more_after_ms,
            ..Pace::default()
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

    #[test]
    fn a_pause_for_a_person_outlasts_the_end_of_another() {
        let mut pacing = Pacing::new(4, 0);
        pacing.set(
            10,
            Pace {
                pause_ms: Some(0),
                person_pause_ms: Some(1_000),
                ..Pace::default()
            },
        );
        assert_eq!(pacing.paused_until_ms(10), Some(1_010));
        let over = Pace {
            pause_ms: Some(0),
            ..Pace::default()
        };
        pacing.set(20, over);
        assert!(!pacing.has_room(20, 0));
        pacing.person_acted();
        assert!(pacing.has_room(20, 0));
        pacing.set(
            30,
            Pace {
                pause_ms: Some(50),
                ..over
            },
        );
        pacing.person_acted();
        assert!(!pacing.has_room(79, 0) && pacing.has_room(80, 0));
    }

    #[test]
    fn an_operators_limit_of_starts_is_kept_and_ends() {
        let mut pacing = Pacing::new(4, 0);
        assert_eq!(pacing.starts(0, || 0), usize::MAX);
        let limit = RateLimit {
            per_second: 10,
            burst: 4,
        };
        pacing.limit_rate(0, Some(limit), 16);
        assert_eq!(pacing.starts(0, || 8), 0);
        assert_eq!(
            pacing.next_start_ms(),
            Some(200),
            "half of the lanes, half of it"
        );
        assert_eq!(pacing.starts(200, || 8), 1);
        pacing.started(1);
        assert_eq!(pacing.starts(10_000, || 8), 2);
        pacing.limit_rate(10_000, Some(RateLimit { burst: 2, ..limit }), 16);
        assert_eq!(pacing.starts(10_000, || 8), 1);
        pacing.limit_rate(10_000, None, 16);
        assert_eq!(pacing.starts(10_000, || 8), usize::MAX);
        assert_eq!(pacing.next_start_ms(), None);
    }
}
