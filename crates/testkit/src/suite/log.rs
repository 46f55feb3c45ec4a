//! The log: what was appended comes back, in order, wherever a page is cut.

use onceward_core::store::{End, ReadPage, StoreErrorKind};
use onceward_core::{Envelope, Payload, Position, Timestamp, lane};

use super::seams::*;
use super::steps::{
    append, append_in, append_rows, assert_refused, ids, message, messages, open, origin, read,
    read_all,
};
use super::{CaseResult, Fixture};

/// Every field of a message is there again.
pub async fn a_message_comes_back_as_it_was_appended<F: Fixture>(fixture: &F) -> CaseResult {
    let mut full = message("m1", "order-1");
    full.source = Some("/shop/eu".to_owned());
    full.operation_id = Some("checkout-1".to_owned());
    full.partition_key = Some("customer-1".to_owned());
    full.schema_version = Some(3);
    full.aggregate_version = Some(9_007_199_254_740_993);
    full.occurred_at = Some(Timestamp::from_micros(1_764_511_200_123_456));
    full.expires_at = Some(Timestamp::from_micros(1_864_511_200_654_321));
    full.priority = -3;
    full.attributes
        .insert("traceparent".to_owned(), "00-a-b-01".to_owned());
    full.attributes
        .insert("note".to_owned(), "\"quoted\" \u{e9} \\ {}".to_owned());
    let mut bare = message("m2", "order-2");
    bare.source = Some("/shop/eu".to_owned());

    let rows = append_rows(fixture.store(), &[full.clone(), bare.clone()]).await?;
    let envelopes: Vec<&Envelope> = rows.iter().map(|row| &row.envelope).collect();
    assert_eq!(envelopes, [&full, &bare]);
    for row in &rows {
        assert!(
            row.recorded_at > Timestamp::from_micros(0),
            "recorded by a real clock"
        );
    }
    Ok(())
}

/// As many as a whole transaction of a bulk load, for which a store may have another way.
pub async fn many_messages_come_back_as_they_were_appended<F: Fixture>(fixture: &F) -> CaseResult {
    let of = |i: u32| {
        let every = |n: u32| i.is_multiple_of(n);
        let mut envelope = message(&format!("m{i}"), &format!("order-{}", i % 7));
        envelope.source = Some(format!("/shop/{}", i % 2));
        envelope.operation_id = every(2).then(|| format!("checkout-{i}"));
        envelope.partition_key = every(3).then(|| format!("customer-{}", i % 5));
        envelope.schema_version = every(4).then_some(i as i32);
        envelope.aggregate_version = every(5).then_some(i64::MAX - i64::from(i));
        envelope.occurred_at =
            every(6).then(|| Timestamp::from_micros(1_764_511_200_123_456 + i64::from(i)));
        envelope.expires_at =
            every(7).then(|| Timestamp::from_micros(-1_764_511_200_000_001 - i64::from(i)));
        envelope.priority = (i % 9) as i16 - 4;
        if every(8) {
            let note = format!("\"quoted\" \u{e9} \\ {i}");
            envelope.attributes.insert("note".to_owned(), note);
        }
        if every(10) {
            envelope.payload = Payload::Binary((0..=255).collect());
        }
        envelope
    };
    let envelopes: Vec<Envelope> = (1..=200).map(of).collect();
    let rows = append_rows(fixture.store(), &envelopes).await?;
    let found: Vec<&Envelope> = rows.iter().map(|row| &row.envelope).collect();
    assert_eq!(found, envelopes.iter().collect::<Vec<_>>());
    Ok(())
}

/// Blanks, the order of keys, doubled keys, long numbers, and any byte at all.
pub async fn payload_bytes_are_never_altered<F: Fixture>(fixture: &F) -> CaseResult {
    let payloads = [
        Payload::Json("{ \"b\":1,\n\t\"a\" : 2, \"a\": 3 }".into()),
        Payload::Json("12345678901234567890.000100e+2".into()),
        Payload::Json("\"\\u00e9 \u{e9} \\/ '; drop table x --\"".into()),
        Payload::Json("null".into()),
        Payload::Binary((0..=255).collect()),
        Payload::Binary(Box::default()),
    ];
    let envelopes: Vec<Envelope> = (1..)
        .zip(&payloads)
        .map(|(i, payload)| Envelope {
            payload: payload.clone(),
            ..message(&format!("m{i}"), "k")
        })
        .collect();
    let rows = append_rows(fixture.store(), &envelopes).await?;
    for (row, payload) in rows.iter().zip(&payloads) {
        assert!(
            row.envelope.payload == *payload,
            "payload of {}",
            row.envelope.id
        );
    }
    Ok(())
}

/// A message without a source gets the store's, always the same.
pub async fn a_missing_source_becomes_the_stores_own<F: Fixture>(fixture: &F) -> CaseResult {
    append(fixture.store(), &[message("m1", "k")]).await?;
    append(&fixture.second().await, &[message("m2", "k")]).await?;
    let from = origin(fixture.store()).await?;
    let (rows, _) = read_all(fixture.store(), &from, 10).await?;
    let sources: Vec<Option<&str>> = rows.iter().map(|r| r.envelope.source.as_deref()).collect();
    assert!(sources[0].is_some_and(|source| !source.is_empty()));
    assert_eq!(sources[0], sources[1]);
    Ok(())
}

/// Within a transaction and from one to the next.
pub async fn rows_come_in_the_order_of_appending<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let mut tx = open(store).await?;
    append_in(store, &mut tx, &messages(1, 2)).await?;
    append_in(store, &mut tx, &messages(3, 3)).await?;
    store.end(tx, End::Commit).await?;
    append(store, &messages(4, 5)).await?;
    let (rows, _) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m1", "m2", "m3", "m4", "m5"]);
    assert!(rows.is_sorted_by(|a, b| a.seq < b.seq), "sequences rise");
    Ok(())
}

/// Neither now nor later.
pub async fn what_is_rolled_back_is_never_read<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let mut tx = open(store).await?;
    append_in(store, &mut tx, &messages(1, 2)).await?;
    store.end(tx, End::RollBack).await?;
    append(store, &messages(3, 3)).await?;
    let (rows, next) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m3"]);
    assert!(read(store, &next, 10).await?.rows.is_empty());
    Ok(())
}

/// Every size of page gives the same rows.
pub async fn pages_cut_anywhere_go_on_exactly_there<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for i in 1..=4 {
        append(store, &messages(i * 3, i * 3 + 2)).await?;
    }
    let from = origin(store).await?;
    let (whole, _) = read_all(store, &from, 100).await?;
    assert_eq!(whole.len(), 12);
    for rows_max in 1..=13 {
        let (rows, end) = read_all(store, &from, rows_max).await?;
        assert_eq!(ids(&rows), ids(&whole), "in pages of {rows_max}");
        assert!(read(store, &end, rows_max).await?.rows.is_empty());
    }
    Ok(())
}

/// So a reader that is behind meets one that is ahead: with the tick's end, and none of its rows
/// read.
pub async fn a_tick_entered_at_its_beginning_has_only_its_own_rows<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 3)).await?;
    let from = store.head().await?;
    append(store, &messages(4, 6)).await?;
    let until = store.head().await?;
    append(store, &messages(7, 8)).await?;
    for rows_max in [1, 2, 3, 100] {
        let entered = from.reach(&until.after, 0);
        let (rows, end) = read_all(store, &entered, rows_max).await?;
        assert_eq!(ids(&rows), ["m4", "m5", "m6"], "in pages of {rows_max}");
        assert_eq!(end.after, until.after);
    }
    Ok(())
}

/// As JSON, inside a tick and at its end, read by another handle.
pub async fn a_position_survives_being_written_down<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 5)).await?;
    let mut at = origin(store).await?;
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let text = serde_json::to_string(&at)?;
        let read_back: Position = serde_json::from_str(&text)?;
        assert_eq!(read_back, at);
        let page = read(&fixture.second().await, &read_back, 2).await?;
        assert!(!page.rows.is_empty(), "rows are left: {seen:?}");
        seen.extend(page.rows.into_iter().map(|row| row.envelope.id));
        at = page.next;
    }
    assert_eq!(seen, ["m1", "m2", "m3", "m4", "m5"]);
    Ok(())
}

/// A page ends at its bytes, but never empty.
pub async fn pages_stop_at_their_bytes<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let envelopes: Vec<Envelope> = (1..=6)
        .map(|i| Envelope {
            payload: Payload::Binary(vec![b'x'; 1_000].into()),
            ..message(&format!("m{i}"), "k")
        })
        .collect();
    append(store, &envelopes).await?;
    for bytes_max in [0, 1, 2_500, 1_000_000] {
        let mut at = origin(store).await?;
        let mut seen = Vec::new();
        while seen.len() < 6 {
            let from = &at;
            let page = store
                .read(ReadPage {
                    from,
                    rows_max: 100,
                    bytes_max,
                })
                .await?;
            let (_, before_last) = page.rows.split_last().ok_or("a page without a row")?;
            let bytes: usize = before_last.iter().map(|r| r.envelope.payload.len()).sum();
            assert!(
                bytes as u64 <= bytes_max,
                "{bytes} bytes before the last row"
            );
            seen.extend(ids(&page.rows).into_iter().map(str::to_owned));
            at = page.next;
        }
        assert_eq!(
            seen,
            ["m1", "m2", "m3", "m4", "m5", "m6"],
            "at {bytes_max} bytes"
        );
    }
    Ok(())
}

/// Reading from the head gives only what comes after it.
pub async fn the_head_is_past_everything_committed<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 3)).await?;
    let head = store.head().await?;
    assert!(head.is_boundary());
    assert!(read(store, &head, 10).await?.rows.is_empty());
    append(store, &messages(4, 5)).await?;
    assert_eq!(ids(&read(store, &head, 10).await?.rows), ["m4", "m5"]);
    Ok(())
}

/// No rows, and a boundary from which later rows are read.
pub async fn an_empty_log_reads_as_empty<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let page = read(store, &origin(store).await?, 10).await?;
    assert!(page.rows.is_empty());
    assert!(page.next.is_boundary());
    let again = read(store, &page.next, 10).await?;
    assert!(
        again.next.after.covers(&page.next.after),
        "positions do not go back"
    );
    append(store, &messages(1, 1)).await?;
    assert_eq!(ids(&read(store, &again.next, 10).await?.rows), ["m1"]);
    Ok(())
}

/// The position's own arithmetic agrees with what pages hold.
pub async fn rows_read_are_behind_the_position_and_no_others<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 3)).await?;
    append(store, &messages(4, 7)).await?;
    let from = origin(store).await?;
    let (all, _) = read_all(store, &from, 100).await?;
    let mut at = from;
    let mut read_so_far = 0;
    while read_so_far < all.len() {
        let page = read(store, &at, 2).await?;
        read_so_far += page.rows.len();
        at = page.next;
        for (i, row) in all.iter().enumerate() {
            assert_eq!(
                at.is_past(row.xid, row.seq),
                i < read_so_far,
                "row {i} at {at:?}"
            );
        }
    }
    Ok(())
}

/// One key, one slot; the partition key wins over the aggregate.
pub async fn the_slot_follows_the_key<F: Fixture>(fixture: &F) -> CaseResult {
    let mut envelopes = messages(1, 20);
    for i in 1..=20 {
        let mut by_partition = message(&format!("p{i}"), "elsewhere");
        by_partition.partition_key = Some(format!("k{i}"));
        envelopes.push(by_partition);
    }
    let rows = append_rows(fixture.store(), &envelopes).await?;
    let (by_aggregate, by_partition) = rows.split_at(20);
    for (a, p) in by_aggregate.iter().zip(by_partition) {
        assert!(a.slot < lane::SLOTS);
        assert_eq!(a.slot, p.slot, "key {}", a.envelope.key());
    }
    let mut slots: Vec<u16> = by_aggregate.iter().map(|row| row.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert!(slots.len() > 10, "keys spread over slots: {slots:?}");
    Ok(())
}

/// Two handles, one log.
pub async fn another_handle_reads_the_same<F: Fixture>(fixture: &F) -> CaseResult {
    let (store, second) = (fixture.store(), fixture.second().await);
    append(store, &messages(1, 2)).await?;
    append(&second, &messages(3, 4)).await?;
    let from = origin(store).await?;
    let (here, _) = read_all(store, &from, 100).await?;
    let (there, _) = read_all(&second, &from, 100).await?;
    assert_eq!(ids(&here), ["m1", "m2", "m3", "m4"]);
    assert_eq!(here, there);
    Ok(())
}

/// A position that belongs to another life of the database is not read from.
pub async fn a_position_of_another_era_is_refused<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    append(store, &messages(1, 1)).await?;
    let foreign = Position::origin(store.head().await?.era + 1);
    let ended = read(store, &foreign, 10).await;
    Ok(assert_refused(
        ended,
        StoreErrorKind::WrongEra,
        "reading from another era",
    )?)
}
