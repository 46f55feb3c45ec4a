//! Messages off the hot path: they come back with what was known of them, in their key's order.

use onceward_core::store::{Deferral, DeferralKind, End, HeldKeysQuery, LoadKey, Settle};
use onceward_core::{Class, Row, Spent, lane};

use super::seams::*;
use super::steps::{
    ALL_SLOTS, SUB, append_rows, defer, deferral, failure, gone, held, ids, load, message,
    messages, nothing, open, settle,
};
use super::{CaseResult, Fixture};

/// A real clock may run a little during a case.
const TOLERANCE_MS: u64 = 10_000;

fn about(actual: Option<u64>, expected_ms: u64, what: &str) {
    let near = actual.is_some_and(|ms| ms <= expected_ms && ms + TOLERANCE_MS >= expected_ms);
    assert!(
        near,
        "{what} is {actual:?}, and should be about {expected_ms} ms"
    );
}

async fn of_one_key<F: Fixture>(
    fixture: &F,
    count: usize,
) -> Result<Vec<Row>, onceward_core::store::StoreError> {
    let envelopes: Vec<_> = (1..=count)
        .map(|i| message(&format!("m{i}"), "k"))
        .collect();
    append_rows(fixture.store(), &envelopes).await
}

/// The whole message, why, the budget and the last failure.
pub async fn what_was_deferred_comes_back<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 5)).await?;
    let kinds = [
        (DeferralKind::Retry, Some(0)),
        (DeferralKind::Held, None),
        (DeferralKind::Running, None),
        (DeferralKind::Operator, None),
        (DeferralKind::Gap, Some(0)),
    ];
    let written: Vec<Deferral> = rows
        .iter()
        .zip(kinds)
        .map(|(row, (kind, due_in_ms))| Deferral {
            spent: Spent {
                failures: 3,
                deaths: 2,
                waits: 7,
                age_ms: 0,
            },
            failure: (kind == DeferralKind::Retry).then(|| failure(Class::Transient)),
            ..deferral(row, kind, due_in_ms)
        })
        .collect();
    defer(fixture.store(), &written).await?;
    for (row, written) in rows.iter().zip(&written) {
        let found = load(&fixture.second().await, row).await?;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].row, *row);
        assert_eq!(found[0].kind, written.kind);
        assert_eq!(found[0].due_in_ms, written.due_in_ms);
        assert_eq!(found[0].failure, written.failure);
        let spent = Spent {
            age_ms: 0,
            ..found[0].spent
        };
        assert_eq!(spent, written.spent);
        assert!(found[0].spent.age_ms < TOLERANCE_MS);
    }
    Ok(())
}

/// By sequence, in whatever order they were written.
pub async fn a_keys_messages_come_in_their_order<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = of_one_key(fixture, 4).await?;
    for i in [2, 0, 3, 1] {
        defer(
            fixture.store(),
            &[deferral(&rows[i], DeferralKind::Held, None)],
        )
        .await?;
    }
    let found: Vec<Row> = load(fixture.store(), &rows[0])
        .await?
        .into_iter()
        .map(|d| d.row)
        .collect();
    assert_eq!(ids(&found), ["m1", "m2", "m3", "m4"]);
    Ok(())
}

/// They come nearer as it moves, and stop at now.
pub async fn due_times_follow_the_databases_clock<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 2)).await?;
    let written = [
        deferral(&rows[0], DeferralKind::Retry, Some(600_000)),
        deferral(&rows[1], DeferralKind::Operator, None),
    ];
    defer(fixture.store(), &written).await?;
    for (advance_ms, expected_ms) in [(0, 600_000), (200_000, 400_000)] {
        fixture.advance_ms(advance_ms);
        about(
            load(fixture.store(), &rows[0]).await?[0].due_in_ms,
            expected_ms,
            "the due time",
        );
        let key = &held(fixture.store(), (rows[0].slot, rows[0].slot)).await?[0];
        about(key.due_in_ms, expected_ms, "the key's due time");
    }
    fixture.advance_ms(500_000);
    assert_eq!(load(fixture.store(), &rows[0]).await?[0].due_in_ms, Some(0));
    assert_eq!(
        load(fixture.store(), &rows[1]).await?[0].due_in_ms,
        None,
        "waits for a person"
    );
    Ok(())
}

/// Overwriting changes everything but that.
pub async fn the_age_counts_from_the_first_time<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 1)).await?;
    defer(
        fixture.store(),
        &[deferral(&rows[0], DeferralKind::Held, None)],
    )
    .await?;
    fixture.advance_ms(100_000);
    let again = Deferral {
        spent: Spent {
            failures: 1,
            deaths: 0,
            waits: 0,
            age_ms: 5,
        },
        failure: Some(failure(Class::Transient)),
        ..deferral(&rows[0], DeferralKind::Retry, Some(50_000))
    };
    defer(fixture.store(), &[again]).await?;
    fixture.advance_ms(100_000);
    let found = load(fixture.store(), &rows[0]).await?;
    assert_eq!(found.len(), 1, "overwritten, not doubled");
    let found = &found[0];
    assert_eq!(
        (found.kind, found.due_in_ms),
        (DeferralKind::Retry, Some(0))
    );
    assert_eq!(found.spent.failures, 1);
    assert_eq!(found.failure, Some(failure(Class::Transient)));
    let age_ms = found.spent.age_ms;
    assert!(
        (200_000..200_000 + TOLERANCE_MS).contains(&age_ms),
        "its age is {age_ms} ms"
    );
    Ok(())
}

/// A message read again after a crash is held at first; what was known of it stays.
pub async fn holding_overwrites_nothing<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 2)).await?;
    let known = Deferral {
        spent: Spent {
            failures: 4,
            ..Spent::default()
        },
        failure: Some(failure(Class::Transient)),
        ..deferral(&rows[0], DeferralKind::Retry, Some(0))
    };
    defer(store, &[known]).await?;
    let held: Vec<_> = rows
        .iter()
        .map(|row| deferral(row, DeferralKind::Held, Some(0)))
        .collect();
    defer(store, &held).await?;
    let found = load(store, &rows[0]).await?.remove(0);
    assert_eq!(found.kind, DeferralKind::Retry);
    assert_eq!(found.spent.failures, 4);
    assert_eq!(found.failure, Some(failure(Class::Transient)));
    assert_eq!(load(store, &rows[1]).await?[0].kind, DeferralKind::Held);
    Ok(())
}

/// And what is cleared in the same step as others are written.
pub async fn clearing_removes_just_that<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = of_one_key(fixture, 3).await?;
    let written: Vec<_> = rows
        .iter()
        .map(|r| deferral(r, DeferralKind::Held, None))
        .collect();
    defer(fixture.store(), &written[..2]).await?;
    let request = Settle {
        defer: &written[2..],
        clear: &[rows[0].seq, 999_999_999],
        ..nothing()
    };
    settle(fixture.store(), request).await?;
    let left: Vec<Row> = load(fixture.store(), &rows[0])
        .await?
        .into_iter()
        .map(|d| d.row)
        .collect();
    assert_eq!(ids(&left), ["m2", "m3"]);
    let clear = [rows[1].seq, rows[2].seq];
    settle(
        fixture.store(),
        Settle {
            clear: &clear,
            ..nothing()
        },
    )
    .await?;
    assert!(load(fixture.store(), &rows[0]).await?.is_empty());
    assert!(held(fixture.store(), ALL_SLOTS).await?.is_empty());
    Ok(())
}

/// A deferral cleared in a transaction that failed is there again.
pub async fn clearing_rolls_back_too<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 1)).await?;
    defer(store, &[deferral(&rows[0], DeferralKind::Retry, Some(0))]).await?;
    let mut tx = open(store).await?;
    store
        .settle(
            &mut tx,
            Settle {
                clear: &[rows[0].seq],
                ..nothing()
            },
        )
        .await?;
    store.end(tx, End::RollBack).await?;
    assert_eq!(load(store, &rows[0]).await?.len(), 1);
    Ok(())
}

/// Who takes a message for deferred hears when it is not: its effect cleared it, and nobody heard.
pub async fn what_is_gone_is_told<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = of_one_key(fixture, 3).await?;
    let seqs = [rows[0].seq, rows[1].seq, rows[2].seq];
    let written = [DeferralKind::Retry, DeferralKind::Running];
    let written = rows.iter().zip(written);
    let written: Vec<_> = written
        .map(|(row, kind)| deferral(row, kind, None))
        .collect();
    defer(store, &written).await?;
    assert_eq!(gone(store, SUB, &seqs).await?, [seqs[2]]);
    let clear = Settle {
        clear: &seqs[..1],
        ..nothing()
    };
    settle(store, clear).await?;
    assert_eq!(gone(store, SUB, &seqs).await?, [seqs[0], seqs[2]]);
    assert_eq!(gone(store, "another", &seqs).await?, seqs);
    assert_eq!(gone(store, SUB, &[]).await?, [0; 0]);
    Ok(())
}

/// Strictly after it, and no more than asked for.
pub async fn pages_of_a_key_go_on_after_a_sequence<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = of_one_key(fixture, 5).await?;
    let written: Vec<_> = rows
        .iter()
        .map(|r| deferral(r, DeferralKind::Held, None))
        .collect();
    defer(fixture.store(), &written).await?;
    let mut after_seq = 0;
    let mut pages = Vec::new();
    for _ in 0..4 {
        let page = fixture
            .store()
            .load_key(LoadKey {
                subscription: SUB,
                slot: rows[0].slot,
                key: "k",
                after_seq,
                versions_to: None,
                rows_max: 2,
            })
            .await?;
        after_seq = page.last().map_or(after_seq, |deferred| deferred.row.seq);
        pages.push(page.len());
    }
    assert_eq!(pages, [2, 2, 1, 0]);
    Ok(())
}

/// The first by sequence decides, whatever is due behind it.
pub async fn held_keys_count_and_tell_when_the_first_is_due<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(
        fixture.store(),
        &[
            ("m1", "a"),
            ("m2", "a"),
            ("m3", "b"),
            ("m4", "b"),
            ("m5", "c"),
        ]
        .map(|(id, key)| message(id, key)),
    )
    .await?;
    let written = [
        deferral(&rows[0], DeferralKind::Retry, Some(300_000)),
        deferral(&rows[1], DeferralKind::Retry, Some(0)),
        deferral(&rows[2], DeferralKind::Retry, Some(0)),
        deferral(&rows[3], DeferralKind::Held, None),
        deferral(&rows[4], DeferralKind::Operator, None),
    ];
    defer(fixture.store(), &written).await?;
    let keys = held(&fixture.second().await, ALL_SLOTS).await?;
    let counts: Vec<_> = keys.iter().map(|k| (k.key.as_str(), k.count)).collect();
    assert_eq!(counts, [("a", 2), ("b", 2), ("c", 1)]);
    about(keys[0].due_in_ms, 300_000, "a's due time");
    assert_eq!(keys[1].due_in_ms, Some(0));
    assert_eq!(keys[2].due_in_ms, None);
    assert_eq!(keys[0].slot, rows[0].slot);
    Ok(())
}

/// What merely waited, or ran when its process ended, can be taken up at once.
pub async fn only_a_persons_turn_has_no_time<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 3)).await?;
    let kinds = [
        DeferralKind::Held,
        DeferralKind::Running,
        DeferralKind::Operator,
    ];
    let written: Vec<_> = rows
        .iter()
        .zip(kinds)
        .map(|(row, kind)| deferral(row, kind, None))
        .collect();
    defer(fixture.store(), &written).await?;
    let keys = held(fixture.store(), ALL_SLOTS).await?;
    let due: Vec<_> = keys.iter().map(|key| key.due_in_ms).collect();
    assert_eq!(due, [Some(0), Some(0), None]);
    Ok(())
}

/// First and last included, nothing beyond.
pub async fn held_keys_are_those_of_the_slots_asked<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 12)).await?;
    let written: Vec<_> = rows
        .iter()
        .map(|r| deferral(r, DeferralKind::Held, None))
        .collect();
    defer(fixture.store(), &written).await?;
    let mut found = 0;
    for number in 0..4 {
        let slots = lane::slots_of(number, 4);
        let expected = rows
            .iter()
            .filter(|r| (slots.0..=slots.1).contains(&r.slot))
            .count();
        let keys = held(fixture.store(), slots).await?;
        assert_eq!(keys.len(), expected, "in slots {slots:?}");
        found += keys.len();
    }
    assert_eq!(found, 12);
    let one = rows[0].slot;
    let query = HeldKeysQuery {
        subscription: SUB,
        slots: (one, one),
    };
    let keys = fixture.store().held_keys(query).await?;
    assert!(keys.iter().any(|key| key.key == rows[0].envelope.key()));
    Ok(())
}

/// Slots are only how an index finds them.
pub async fn keys_of_one_slot_do_not_mix<F: Fixture>(fixture: &F) -> CaseResult {
    // Among 300 keys in 1024 slots two share one, but for one chance in 10^18.
    let rows = append_rows(fixture.store(), &messages(1, 300)).await?;
    let pair = rows.iter().enumerate().find_map(|(i, row)| {
        let other = rows[..i].iter().find(|other| other.slot == row.slot)?;
        Some((other, row))
    });
    let (a, b) = pair.ok_or("no two of 300 keys share a slot")?;
    let written = [a, b].map(|row| deferral(row, DeferralKind::Held, None));
    defer(fixture.store(), &written).await?;
    for row in [a, b] {
        let found = load(fixture.store(), row).await?;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].row, *row);
    }
    assert_eq!(held(fixture.store(), (a.slot, a.slot)).await?.len(), 2);
    Ok(())
}

/// One message deferred in one subscription is nothing to another.
pub async fn deferrals_of_subscriptions_are_apart<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 1)).await?;
    let mine = [deferral(&rows[0], DeferralKind::Retry, Some(0))];
    let theirs = [deferral(&rows[0], DeferralKind::Operator, None)];
    defer(fixture.store(), &mine).await?;
    let other = Settle {
        defer: &theirs,
        ..Settle::nothing("billing", onceward_core::Identity::Message)
    };
    settle(fixture.store(), other).await?;
    assert_eq!(
        load(fixture.store(), &rows[0]).await?[0].kind,
        DeferralKind::Retry
    );
    settle(
        fixture.store(),
        Settle {
            clear: &[rows[0].seq],
            ..nothing()
        },
    )
    .await?;
    assert!(load(fixture.store(), &rows[0]).await?.is_empty());
    let query = HeldKeysQuery {
        subscription: "billing",
        slots: ALL_SLOTS,
    };
    assert_eq!(
        fixture.store().held_keys(query).await?.len(),
        1,
        "the other's stays"
    );
    Ok(())
}

/// A mark that a message runs may be written, and cleared again, after its case was there: not in
/// the place of what an operator made of the case meanwhile.
pub async fn what_was_released_meanwhile_is_neither_overwritten_nor_cleared<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 2)).await?;
    let released = Deferral {
        failure: Some(failure(Class::Transient)),
        ..deferral(&rows[0], DeferralKind::Retry, Some(0))
    };
    defer(store, &[released]).await?;
    let marks = [&rows[0], &rows[1]].map(|row| deferral(row, DeferralKind::Running, None));
    defer(store, &marks).await?;
    assert_eq!(load(store, &rows[0]).await?[0].kind, DeferralKind::Retry);
    assert_eq!(load(store, &rows[1]).await?[0].kind, DeferralKind::Running);
    let over = Settle {
        clear_running: &[rows[0].seq, rows[1].seq],
        ..nothing()
    };
    settle(store, over).await?;
    assert_eq!(load(store, &rows[0]).await?.len(), 1);
    assert!(load(store, &rows[1]).await?.is_empty());
    // One that knows of the failure is the message's own: it started again.
    let started = Deferral {
        failure: Some(failure(Class::Transient)),
        ..deferral(&rows[0], DeferralKind::Running, None)
    };
    defer(store, &[started]).await?;
    assert_eq!(load(store, &rows[0]).await?[0].kind, DeferralKind::Running);
    Ok(())
}

/// What was marked as running and not begun after all waits behind its key again, with everything
/// that is known of it: no death is its own. What is not marked is left alone.
pub async fn what_was_not_begun_after_all_is_held_again<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 4)).await?;
    let failed = Spent {
        failures: 2,
        ..Spent::default()
    };
    let known = |row, kind| Deferral {
        spent: failed,
        failure: Some(failure(Class::Transient)),
        ..deferral(row, kind, None)
    };
    defer(store, &[known(&rows[0], DeferralKind::Retry)]).await?;
    fixture.advance_ms(60_000);
    let marks = [
        known(&rows[0], DeferralKind::Running),
        deferral(&rows[1], DeferralKind::Running, None),
        deferral(&rows[2], DeferralKind::Operator, None),
    ];
    defer(store, &marks).await?;
    let seqs: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    let held = Settle {
        hold_running: &seqs,
        ..nothing()
    };
    settle(store, held).await?;
    let first = &load(store, &rows[0]).await?[0];
    assert_eq!((first.kind, first.due_in_ms), (DeferralKind::Held, Some(0)));
    assert_eq!((first.spent.failures, first.spent.age_ms), (2, 60_000));
    assert_eq!(first.failure, Some(failure(Class::Transient)));
    assert_eq!(load(store, &rows[1]).await?[0].kind, DeferralKind::Held);
    assert_eq!(load(store, &rows[2]).await?[0].kind, DeferralKind::Operator);
    assert!(load(store, &rows[3]).await?.is_empty(), "none is made");
    Ok(())
}
