//! What stands still without an operator's word: no age counts, and the backlog says why. And what
//! is late, and what is limited.

use onceward_core::rate::RateLimit;
use onceward_core::store::{
    Actor, Backlog, BacklogQuery, DeferralKind, Lease, Limits, Renew, SetLimit, SetPause, Still,
    StillBecause, Store, StoreError, StoreErrorKind,
};
use onceward_core::{Row, Timestamp};

use super::operate::{BY, all_history, state_of};
use super::seams::*;
use super::steps::{
    SUB, append_rows, assert_refused, defer, deferral, join, load, messages, register,
};
use super::upkeep::tidy_all;
use super::{CaseResult, Fixture};

const HOUR_MS: u64 = 3_600_000;

async fn age<S: Store>(store: &S, row: &Row) -> Result<u64, StoreError> {
    Ok(load(store, row).await?[0].spent.age_ms)
}

/// So many hours, give or take what a test takes.
fn about(age_ms: u64, hours: u64) {
    let (least, most) = (hours * HOUR_MS, hours * HOUR_MS + 60_000);
    assert!(
        (least..most).contains(&age_ms),
        "{age_ms} ms, not {hours} h"
    );
}

const fn still(because: StillBecause, since_ms: u64) -> Still<'static> {
    Still {
        subscription: SUB,
        because,
        since_ms,
        until_ms: None,
    }
}

async fn say<S: Store>(
    store: &S,
    lease: &Lease,
    still: Still<'_>,
    still_for_ms: u64,
) -> Result<(), StoreError> {
    let still = &[still];
    let request = Renew {
        lease,
        still,
        still_for_ms,
    };
    store.renew(request).await
}

async fn backlog<S: Store>(store: &S) -> Result<Backlog, StoreError> {
    let query = BacklogQuery {
        subscription: SUB,
        count_max: 100,
        before: None,
    };
    store.backlog(query).await
}

/// Neither of what was deferred before nor of what was deferred meanwhile; it ends by itself, and
/// time in which nobody could say so counts as said, back to when it began.
pub async fn no_age_counts_while_something_stands_still<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    register(store, "billing").await?;
    let lease = join(store, "a").await?;
    let rows = append_rows(store, &messages(1, 2)).await?;
    defer(store, &[deferral(&rows[0], DeferralKind::Retry, Some(0))]).await?;
    fixture.advance_ms(3 * HOUR_MS);
    // It has for an hour.
    let breaker = |since_ms| still(StillBecause::Breaker, since_ms);
    say(store, &lease, breaker(HOUR_MS), HOUR_MS).await?;
    about(age(store, &rows[0]).await?, 2);
    defer(store, &[deferral(&rows[1], DeferralKind::Retry, Some(0))]).await?;
    // Said again before it has ended, by whoever.
    let other = join(store, "b").await?;
    fixture.advance_ms(HOUR_MS / 2);
    say(store, &other, breaker(HOUR_MS), HOUR_MS).await?;
    fixture.advance_ms(HOUR_MS / 2);
    about(age(store, &rows[0]).await?, 2);
    about(age(store, &rows[1]).await?, 0);
    // Nobody could say anything for five hours; it is still the same.
    fixture.advance_ms(5 * HOUR_MS);
    say(store, &lease, breaker(8 * HOUR_MS), HOUR_MS).await?;
    about(age(store, &rows[0]).await?, 2);
    about(age(store, &rows[1]).await?, 0);
    // Over, an hour after the last word; and once more, from later on.
    fixture.advance_ms(4 * HOUR_MS);
    about(age(store, &rows[0]).await?, 5);
    let window = still(StillBecause::RateWindow, 0);
    say(store, &lease, window, HOUR_MS).await?;
    fixture.advance_ms(2 * HOUR_MS);
    about(age(store, &rows[0]).await?, 6);
    about(age(store, &rows[1]).await?, 4);
    // Of its subscription alone.
    let elsewhere = Still {
        subscription: "billing",
        ..breaker(HOUR_MS)
    };
    say(store, &lease, elsewhere, HOUR_MS).await?;
    fixture.advance_ms(HOUR_MS);
    about(age(store, &rows[0]).await?, 7);
    // Nor does it keep a lease from being renewed that a subscription is not there any more.
    let nobody = Still {
        subscription: "nobody",
        ..breaker(HOUR_MS)
    };
    say(store, &lease, nobody, HOUR_MS).await?;
    Ok(())
}

/// Time that is both counts once.
pub async fn an_operators_pause_takes_the_place_of_what_stands_still<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let lease = join(store, "a").await?;
    let rows = append_rows(store, &messages(1, 1)).await?;
    defer(store, &[deferral(&rows[0], DeferralKind::Retry, Some(0))]).await?;
    fixture.advance_ms(2 * HOUR_MS);
    let breaker = |since_ms| still(StillBecause::Breaker, since_ms);
    let pause = |is_paused| SetPause {
        subscription: SUB,
        is_paused,
        by: BY,
    };
    say(store, &lease, breaker(0), 10 * HOUR_MS).await?;
    fixture.advance_ms(HOUR_MS);
    store.set_pause(pause(true)).await?;
    assert!(state_of(store, SUB).await?.is_paused);
    assert_eq!(backlog(store).await?.still, None, "a person has said more");
    fixture.advance_ms(HOUR_MS);
    say(store, &lease, breaker(2 * HOUR_MS), 10 * HOUR_MS).await?;
    fixture.advance_ms(HOUR_MS);
    store.set_pause(pause(false)).await?;
    assert!(!state_of(store, SUB).await?.is_paused);
    fixture.advance_ms(HOUR_MS);
    about(age(store, &rows[0]).await?, 3);
    // What stood still before the pause ended is in the pause already.
    say(store, &lease, breaker(5 * HOUR_MS), HOUR_MS).await?;
    about(age(store, &rows[0]).await?, 2);
    fixture.advance_ms(3 * HOUR_MS);
    about(age(store, &rows[0]).await?, 4);
    Ok(())
}

/// By a clock that was set back a pause begins before the last one ended.
pub async fn time_that_comes_twice_is_paused_once<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let rows = append_rows(store, &messages(1, 1)).await?;
    defer(store, &[deferral(&rows[0], DeferralKind::Retry, Some(0))]).await?;
    let pause = |is_paused| SetPause {
        subscription: SUB,
        is_paused,
        by: BY,
    };
    fixture.advance_ms(HOUR_MS);
    store.set_pause(pause(true)).await?;
    fixture.advance_ms(4 * HOUR_MS);
    store.set_pause(pause(false)).await?;
    fixture.set_back_ms(2 * HOUR_MS);
    store.set_pause(pause(true)).await?;
    fixture.advance_ms(5 * HOUR_MS);
    store.set_pause(pause(false)).await?;
    fixture.advance_ms(HOUR_MS);
    // Nine hours after it was deferred, of which seven were paused.
    about(age(store, &rows[0]).await?, 2);
    // One that ends before the earlier one did leaves the rest of its time to count.
    fixture.set_back_ms(2 * HOUR_MS);
    store.set_pause(pause(true)).await?;
    store.set_pause(pause(false)).await?;
    fixture.advance_ms(2 * HOUR_MS);
    about(age(store, &rows[0]).await?, 3);
    Ok(())
}

/// Why, since when, and until when where that is known.
pub async fn the_backlog_says_what_stands_still<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let lease = join(store, "a").await?;
    assert_eq!(backlog(store).await?.still, None);
    let window = Still {
        until_ms: Some(3 * HOUR_MS),
        ..still(StillBecause::RateWindow, HOUR_MS)
    };
    say(store, &lease, window, HOUR_MS).await?;
    let second = fixture.second().await;
    let seen = backlog(&second).await?;
    let found = seen.still.ok_or("it is not seen")?;
    assert_eq!(found.because, StillBecause::RateWindow);
    let about_ago = |at: Timestamp| u64::try_from(seen.now.millis_since(at));
    about(about_ago(found.since)?, 1);
    let until = found.until.ok_or("its end is not seen")?;
    about(u64::try_from(until.millis_since(seen.now))? + 30_000, 3);
    assert_eq!(seen.paused_at, None, "nobody paused it");
    let breaker = still(StillBecause::Breaker, HOUR_MS);
    say(store, &lease, breaker, HOUR_MS).await?;
    let found = backlog(&second).await?.still.ok_or("it is not seen")?;
    assert_eq!((found.because, found.until), (StillBecause::Breaker, None));
    for because in StillBecause::ALL {
        say(store, &lease, still(because, HOUR_MS), HOUR_MS).await?;
        let found = backlog(&second).await?.still.ok_or("it is not seen")?;
        assert_eq!(found.because, because);
    }
    fixture.advance_ms(HOUR_MS + 60_000);
    assert_eq!(backlog(store).await?.still, None, "nobody says so any more");
    Ok(())
}

/// After a quarter of a year, unless it counts for the age of a message that is still deferred.
pub async fn old_standstills_are_forgotten<F: Fixture>(fixture: &F) -> CaseResult {
    const DAY_MS: u64 = 24 * HOUR_MS;
    let store = fixture.store();
    register(store, SUB).await?;
    let lease = join(store, "a").await?;
    let rows = append_rows(store, &messages(1, 1)).await?;
    let retry = deferral(&rows[0], DeferralKind::Retry, Some(0));
    defer(store, std::slice::from_ref(&retry)).await?;
    say(store, &lease, still(StillBecause::Breaker, 0), HOUR_MS).await?;
    fixture.advance_ms(89 * DAY_MS);
    tidy_all(store).await?;
    about(age(store, &rows[0]).await?, 89 * 24 - 1);
    fixture.advance_ms(2 * DAY_MS);
    tidy_all(store).await?;
    about(age(store, &rows[0]).await?, 91 * 24 - 1);
    let clear = onceward_core::store::Settle {
        clear: &[rows[0].seq],
        ..super::steps::nothing()
    };
    super::steps::settle(store, clear).await?;
    let removed = tidy_all(store).await?.records_removed;
    assert!(removed >= 1, "the pause is gone");
    assert_eq!(tidy_all(store).await?.records_removed, 0);
    Ok(())
}

/// Only what could be worked on now is late: a message that is due in ten hours is not.
pub async fn what_is_due_later_is_not_late<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let lease = join(store, "a").await?;
    let rows = append_rows(store, &messages(1, 1)).await?;
    // Read by everybody: nothing waits in the log.
    let taken = super::steps::take(store, &lease, &[0, 1, 2, 3]).await?;
    let epochs: Vec<(u16, u64)> = taken.iter().map(|lane| (lane.lane, lane.epoch)).collect();
    let head = store.head().await?;
    super::steps::save(store, &lease, &head, &epochs).await?;
    let later = deferral(&rows[0], DeferralKind::Retry, Some(10 * HOUR_MS));
    defer(store, &[later]).await?;
    fixture.advance_ms(HOUR_MS);
    let seen = backlog(store).await?;
    assert_eq!((seen.waiting, seen.deferred.retry), (0, 1));
    assert_eq!((seen.due_since, seen.ready_age_ms()), (None, 0));
    assert!(seen.oldest_deferred_at.is_some(), "it is there, apart");
    fixture.advance_ms(9 * HOUR_MS + 60_000);
    let seen = backlog(store).await?;
    assert!(seen.due_since.is_some());
    let late_ms = seen.ready_age_ms();
    assert!((59_000..120_000).contains(&late_ms), "{late_ms} ms");
    Ok(())
}

/// Seen in the survey and the backlog, with the revision raised; one limit ends without the other.
pub async fn a_limit_of_starts_is_seen_and_ends<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    let limit = async |concurrency_max, rate, why| {
        let request = SetLimit {
            subscription: SUB,
            concurrency_max,
            rate,
            by: Actor { who: "ada", why },
        };
        store.set_limit(request).await
    };
    let why = Some("the carrier asks");
    let before = state_of(store, SUB).await?;
    assert_eq!(before.rate, None);
    let rate = |per_second, burst| Some(RateLimit { per_second, burst });
    let ended = limit(None, rate(20, 5), None).await;
    assert_refused(ended, StoreErrorKind::Refused, "a limit without a reason")?;
    let ended = limit(None, rate(0, 1), why).await;
    assert_refused(ended, StoreErrorKind::Moved, "ending no limit")?;
    assert_eq!(state_of(store, SUB).await?, before, "nothing was changed");
    limit(None, rate(20, 5), why).await?;
    let second = fixture.second().await;
    let limited = state_of(&second, SUB).await?;
    assert_eq!((limited.rate, limited.concurrency_max), (rate(20, 5), None));
    assert!(limited.revision > before.revision);
    assert_eq!(backlog(&second).await?.rate, rate(20, 5));
    let ended = limit(None, rate(20, 5), why).await;
    assert_refused(ended, StoreErrorKind::Moved, "the same limit again")?;
    limit(Some(3), None, why).await?;
    let both = state_of(store, SUB).await?;
    assert_eq!((both.rate, both.concurrency_max), (rate(20, 5), Some(3)));
    limit(None, rate(0, 0), None).await?;
    let one = state_of(store, SUB).await?;
    assert_eq!((one.rate, one.concurrency_max), (None, Some(3)));
    limit(Some(2), rate(u32::MAX, u32::MAX), why).await?;
    assert_eq!(state_of(store, SUB).await?.rate, rate(u32::MAX, u32::MAX));
    limit(None, None, None).await?;
    let none = state_of(store, SUB).await?;
    assert_eq!((none.rate, none.concurrency_max), (None, None));
    let history = all_history(store).await?;
    let last = history.last().ok_or("nothing is recorded")?;
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text);
    assert_eq!(last.action, "limit");
    assert_eq!(read(&last.after)?, read(&Limits::default().account())?);
    assert_eq!(read(&last.before)?["per_second"], u32::MAX);
    Ok(())
}
