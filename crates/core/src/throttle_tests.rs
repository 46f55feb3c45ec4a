use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(ms).unwrap() * 1_000)
}

/// A look at a subscription that does first what came first.
fn sight(at_ms: u64, waiting: u64, waiting_before: u64, oldest_ms: u64) -> Sight {
    Sight {
        at: at(at_ms),
        waiting,
        is_lower_bound: false,
        waiting_before,
        oldest_at: (waiting > 0).then(|| at(at_ms - oldest_ms)),
        is_paused: false,
    }
}

#[test]
fn what_waits_takes_as_long_as_the_rate_says() {
    let mut gauge = Gauge::default();
    let load = gauge.see(sight(10_000, 100, 0, 3_000));
    assert_eq!((load.oldest_ms, load.drain_ms), (3_000, None));
    // 20 of them are gone after two seconds, and 70 new ones are there.
    let load = gauge.see(sight(12_000, 150, 80, 4_000));
    assert_eq!(load.drain_ms, Some(15_000));
    assert_eq!(load.needed_ms(), 19_000);
}

#[test]
fn where_nothing_waits_nothing_is_in_front() {
    let mut gauge = Gauge::default();
    let load = gauge.see(sight(10_000, 0, 0, 0));
    assert_eq!((load.oldest_ms, load.drain_ms), (0, Some(0)));
}

#[test]
fn a_standstill_leaves_the_rate_and_shows_in_the_age() {
    let mut gauge = Gauge::default();
    gauge.see(sight(10_000, 100, 0, 1_000));
    gauge.see(sight(12_000, 80, 80, 2_000));
    let before = gauge.see(sight(14_000, 80, 80, 4_000));
    assert_eq!((before.oldest_ms, before.drain_ms), (4_000, Some(8_000)));
    let paused = Sight {
        is_paused: true,
        ..sight(60_000, 80, 80, 50_000)
    };
    assert_eq!(gauge.see(paused).drain_ms, Some(8_000));
    assert_eq!(gauge.see(paused).needed_ms(), 58_000);
}

#[test]
fn what_got_done_at_once_says_nothing_about_how_fast_more_would() {
    let mut gauge = Gauge::default();
    gauge.see(sight(10_000, 1, 0, 100));
    let load = gauge.see(sight(12_000, 1_000, 0, 100));
    assert_eq!(load.drain_ms, None);
}

#[test]
fn beyond_the_bound_of_counting_the_last_rate_stays() {
    let mut gauge = Gauge::default();
    gauge.see(sight(10_000, 100, 0, 1_000));
    gauge.see(sight(12_000, 100, 80, 2_000));
    let bound = Sight {
        is_lower_bound: true,
        ..sight(14_000, 1_000, 1_000, 3_000)
    };
    assert_eq!(gauge.see(bound).drain_ms, Some(100_000));
}

#[test]
fn it_opens_again_below_half_the_promise() {
    let load = |drain_ms| Load {
        oldest_ms: 0,
        drain_ms: Some(drain_ms),
    };
    let refused = Verdict::Refuse {
        retry_after_ms: 11_000,
    };
    let judged = |before, drain_ms| judge(before, &[load(drain_ms)], 10_000);
    assert_eq!(judged(Verdict::Open, 10_000), Verdict::Open);
    assert_eq!(judged(Verdict::Open, 11_000), refused);
    assert!(matches!(judged(refused, 5_001), Verdict::Refuse { .. }));
    assert_eq!(judged(refused, 5_000), Verdict::Open);
}

#[test]
fn a_producer_waits_for_what_waits_and_longer_the_longer_it_stands_still() {
    let after = |oldest_ms, drain_ms| {
        let load = Load {
            oldest_ms,
            drain_ms,
        };
        match judge(Verdict::Open, &[load], 1_000) {
            Verdict::Refuse { retry_after_ms } => retry_after_ms,
            Verdict::Open => 0,
        }
    };
    assert_eq!(after(500, Some(40_000)), 40_000);
    assert_eq!(after(1_500, Some(10)), RETRY_AFTER_MS_MIN);
    assert_eq!(after(120_000, Some(10)), 30_000);
    assert_eq!(after(1_500, None), 1_000);
    assert_eq!(after(u64::MAX, Some(u64::MAX)), RETRY_AFTER_MS_MAX);
}

#[test]
fn ignorance_refuses_nothing() {
    assert_eq!(judge(Verdict::Open, &[], 1), Verdict::Open);
    let unknown = Load {
        oldest_ms: 900,
        drain_ms: None,
    };
    assert_eq!(judge(Verdict::Open, &[unknown], 1_000), Verdict::Open);
}

#[test]
fn finished_counts_before_started() {
    let mut promise = Promise::default();
    assert_eq!(promised_ms(&promise), None);
    promise.start_within_ms = Some(1);
    assert_eq!(promised_ms(&promise), Some(1));
    promise.finish_within_ms = Some(2);
    assert_eq!(promised_ms(&promise), Some(2));
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let one = (0_u64..100_000, prop::option::of(0_u64..1_000_000));
    let one = one.prop_map(|(oldest_ms, drain_ms)| Load {
        oldest_ms,
        drain_ms,
    });
    prop::collection::vec(one, 0..4)
}

fn is_refused(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Refuse { .. })
}

proptest! {
    /// More load never opens, a longer promise never refuses, and between the marks the answer
    /// stays what it was.
    #[test]
    fn judging_is_monotone(loads in loads(), promised_ms in 1_u64..1_000_000, was: bool) {
        let before = match was {
            true => Verdict::Refuse { retry_after_ms: 1_000 },
            false => Verdict::Open,
        };
        let verdict = judge(before, &loads, promised_ms);
        let more: Vec<Load> = loads.iter()
            .map(|load| Load { oldest_ms: load.oldest_ms + 1_000, ..*load })
            .collect();
        if is_refused(verdict) {
            prop_assert!(is_refused(judge(before, &more, promised_ms)));
        } else {
            prop_assert!(!is_refused(judge(before, &loads, promised_ms + 1_000)));
        }
        let needed = loads.iter().map(Load::needed_ms).max().unwrap_or(0);
        if needed > promised_ms / 2 && needed <= promised_ms {
            prop_assert_eq!(is_refused(verdict), was);
        }
        if let Verdict::Refuse { retry_after_ms } = verdict {
            prop_assert!((RETRY_AFTER_MS_MIN..=RETRY_AFTER_MS_MAX).contains(&retry_after_ms));
        }
    }

    /// A queue with a steady rate of arrival and of work: the time that the last message really
    /// takes is within the estimate, and a fleet that keeps up refuses nothing.
    #[test]
    fn a_queue_is_estimated_as_it_drains(arrivals in 1_u64..400, rate in 1_u64..400, backlog in 0_u64..5_000) {
        let mut gauge = Gauge::default();
        // Messages come evenly; the backlog was there at the beginning.
        let mut load = Load::default();
        for look in 0..20_u64 {
            let ms = look * 2_000;
            let came = backlog + arrivals * 2 * look;
            let done = came.min(rate * 2 * look);
            let waiting = came - done;
            let came_before = backlog + arrivals * 2 * look.saturating_sub(1);
            let before = came_before.saturating_sub(done);
            let oldest = if done < backlog { ms } else {
                ms - (done - backlog) * 1_000 / arrivals
            };
            load = gauge.see(sight(ms + 1_000_000, waiting, before, oldest.min(ms)));
            if let (Some(drain_ms), true) = (load.drain_ms, waiting > 0) {
                let real_ms = waiting * 1_000 / rate;
                prop_assert!(drain_ms.abs_diff(real_ms) <= real_ms / 50 + 2, "{drain_ms} {real_ms}");
            }
        }
        if backlog == 0 && arrivals <= rate {
            prop_assert_eq!(judge(Verdict::Open, &[load], 5_000), Verdict::Open);
        }
    }
}
