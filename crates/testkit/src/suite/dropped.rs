//! What policies gave up: listed, counted; and the pauses that are taken off a wait.

use onceward_core::merge::merged_into;
use onceward_core::shed::Paused;
use onceward_core::store::{
    BacklogQuery, DropCountQuery, Dropped, DroppedPlace, DroppedQuery, End, Pauses, SetPause,
    Store, StoreError,
};
use onceward_core::{Ending, Identity, LedgerEntry, Row, Timestamp};

use super::operate::BY;
use super::seams::*;
use super::steps::{
    SUB, append, append_rows, entry, messages, nothing, open, record, register, settle,
};
use super::{CaseResult, Fixture};

const HOUR_MS: u64 = 3_600_000;

fn given_up(row: &Row, identity: Identity, ending: Ending) -> LedgerEntry {
    LedgerEntry {
        ending,
        result: Some(merged_into(row)),
        ..entry(row, identity)
    }
}

async fn list<S: Store>(
    store: &S,
    endings: &[Ending],
    after: Option<&DroppedPlace>,
    rows_max: u32,
) -> Result<Vec<Dropped>, StoreError> {
    let query = DroppedQuery {
        subscription: SUB,
        endings,
        after,
        rows_max,
    };
    store.dropped(query).await
}

fn names(dropped: &[Dropped]) -> Vec<&str> {
    let names = dropped.iter();
    names.map(|d| d.place.identity.as_str()).collect()
}

/// In pages that neither overlap nor leave anything out, from both ledgers, whatever was recorded at
/// one moment; and nothing that was done.
pub async fn what_was_given_up_is_listed_from_the_latest_on<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 9)).await?;
    let endings = [Ending::Merged, Ending::Shed, Ending::Expired];
    for (at, ending) in endings.into_iter().enumerate() {
        // Two of each in one commit.
        let both = [&rows[2 * at], &rows[2 * at + 1]];
        let of = |row: &&Row| given_up(row, Identity::Message, ending);
        let entries: Vec<LedgerEntry> = both.iter().map(of).collect();
        assert_eq!(record(store, Identity::Message, &entries).await?, 2);
        fixture.advance_ms(1);
    }
    let others = [
        entry(&rows[6], Identity::Message),
        given_up(&rows[7], Identity::Message, Ending::Superseded),
    ];
    record(store, Identity::Message, &others).await?;
    let by_operation = [given_up(&rows[8], Identity::Operation, Ending::Shed)];
    record(store, Identity::Operation, &by_operation).await?;
    let other = given_up(&rows[0], Identity::Message, Ending::Shed);
    let elsewhere = onceward_core::store::Settle {
        subscription: "billing",
        ledger: std::slice::from_ref(&other),
        ..nothing()
    };
    settle(store, elsewhere).await?;

    let second = fixture.second().await;
    let all = list(&second, &Ending::DROPPED, None, 100).await?;
    assert_eq!(all.len(), 7, "{all:?}");
    assert!(all.is_sorted_by(|a, b| a.place > b.place), "{all:?}");
    assert_eq!(all[0].place.identity, by_operation[0].key.identity);
    let merged = list(store, &[Ending::Merged], None, 100).await?;
    let mut merged_names = names(&merged);
    merged_names.sort_unstable();
    assert_eq!(merged_names, ["m1", "m2"]);
    for merged in &merged {
        assert_eq!(merged.merged_into.as_deref(), Some(&*merged.place.identity));
        assert_eq!(merged.ending, Ending::Merged);
    }
    let shed = list(store, &[Ending::Shed], None, 100).await?;
    assert_eq!(shed.len(), 3);
    assert!(shed.iter().all(|shed| shed.merged_into.is_none()));
    for rows_max in 1..=3 {
        let mut seen: Vec<Dropped> = Vec::new();
        loop {
            let after = seen.last().map(|last| last.place.clone());
            let page = list(store, &Ending::DROPPED, after.as_ref(), rows_max).await?;
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= rows_max as usize);
            seen.extend(page);
            assert!(seen.len() <= all.len(), "pages overlap: {seen:?}");
        }
        assert_eq!(seen, all, "in pages of {rows_max}");
    }
    Ok(())
}

/// For an hour, for a day, up to a bound.
pub async fn what_was_given_up_of_late_is_counted<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 5)).await?;
    let shed = |row: &Row| given_up(row, Identity::Message, Ending::Shed);
    let entries: Vec<LedgerEntry> = rows[..3].iter().map(shed).collect();
    record(store, Identity::Message, &entries).await?;
    let by_operation = [given_up(&rows[3], Identity::Operation, Ending::Shed)];
    record(store, Identity::Operation, &by_operation).await?;
    let expired = [given_up(&rows[4], Identity::Message, Ending::Expired)];
    record(store, Identity::Message, &expired).await?;
    let counts = async |subscription, count_max| {
        let query = DropCountQuery {
            subscription,
            count_max,
        };
        let counts = store.drop_counts(query).await?;
        let mut counts: Vec<_> = counts
            .iter()
            .map(|count| (count.ending.as_str(), count.last_hour, count.last_day))
            .collect();
        counts.sort_unstable();
        Ok::<_, StoreError>(counts)
    };
    let now = [("expired", 1, 1), ("merged", 0, 0), ("shed", 4, 4)];
    assert_eq!(counts(SUB, 100).await?, now);
    let bounded = [("expired", 1, 1), ("merged", 0, 0), ("shed", 2, 2)];
    assert_eq!(counts(SUB, 2).await?, bounded);
    let none = [("expired", 0, 0), ("merged", 0, 0), ("shed", 0, 0)];
    assert_eq!(counts("billing", 100).await?, none);
    fixture.advance_ms(2 * HOUR_MS);
    let later = [("expired", 0, 1), ("merged", 0, 0), ("shed", 0, 4)];
    assert_eq!(counts(SUB, 100).await?, later);
    fixture.advance_ms(23 * HOUR_MS);
    assert_eq!(counts(SUB, 100).await?, none);
    Ok(())
}

/// Of one subscription, oldest first, with those that go on and without those that were over.
pub async fn pauses_are_told_as_far_back_as_they_matter<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for name in [SUB, "billing"] {
        register(store, name).await?;
    }
    let pause = async |subscription, is_paused| {
        let request = SetPause {
            subscription,
            is_paused,
            by: BY,
        };
        store.set_pause(request).await
    };
    let time = async || {
        let mut tx = open(store).await?;
        let time = store.time(&mut tx).await?;
        store.end(tx, End::RollBack).await?;
        Ok::<_, StoreError>(time)
    };
    let pauses = async |subscription, since: Timestamp| {
        let mut tx = open(store).await?;
        let request = Pauses {
            subscription,
            since,
        };
        let pauses: Vec<Paused> = store.pauses(&mut tx, request).await?;
        store.end(tx, End::RollBack).await?;
        Ok::<_, StoreError>(pauses)
    };
    let begin = time().await?;
    assert_eq!(pauses(SUB, begin).await?, []);
    pause(SUB, true).await?;
    fixture.advance_ms(HOUR_MS);
    pause(SUB, false).await?;
    fixture.advance_ms(HOUR_MS);
    let between = time().await?;
    fixture.advance_ms(HOUR_MS);
    pause(SUB, true).await?;
    fixture.advance_ms(HOUR_MS);
    let all = pauses(SUB, begin).await?;
    assert_eq!(all.len(), 2, "{all:?}");
    let first = all[0];
    let lasted_ms = first.to.map(|to| to.millis_since(first.from));
    let is_an_hour = |ms: i64| (3_600_000..3_660_000).contains(&ms);
    assert!(lasted_ms.is_some_and(is_an_hour), "{first:?}");
    assert!(first.from >= begin && first.from < between);
    assert!(all[1].from > between && all[1].to.is_none(), "{all:?}");
    assert_eq!(pauses(SUB, between).await?, all[1..]);
    assert_eq!(pauses("billing", begin).await?, []);
    Ok(())
}

/// Up to a moment, and only where one is asked about.
pub async fn the_backlog_counts_apart_what_was_there_before<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 3)).await?;
    let query = BacklogQuery::new(SUB, 100);
    let first = store.backlog(query.clone()).await?;
    assert_eq!((first.waiting, first.waiting_before), (3, 0));
    let mut types = first.types.clone();
    types.sort_unstable();
    assert!(types.iter().any(|t| t == super::steps::TYPE), "{types:?}");
    fixture.advance_ms(1_000);
    let last = append_rows(store, &messages(4, 4)).await?[0].recorded_at;
    let oldest = first.oldest_waiting_at.ok_or("nothing waits")?;
    let right_before = |at: Timestamp| Timestamp::from_micros(at.as_micros() - 1);
    let moments = [
        (None, 0),
        (Some(right_before(oldest)), 0),
        (Some(right_before(last)), 3),
        (Some(last), 4),
    ];
    for (before, expected) in moments {
        let query = BacklogQuery {
            before,
            ..query.clone()
        };
        let found = store.backlog(query).await?;
        let counted = (found.waiting, found.waiting_before);
        assert_eq!(counted, (4, expected), "before {before:?}");
    }
    Ok(())
}
