//! The last version of an aggregate: the highest one that the ledger has.

use onceward_core::store::{
    DeferralKind, DeferredRow, End, HeldKeysQuery, LastVersions, LoadKey, NewCase, Settle, Store,
    StoreError,
};
use onceward_core::version::{Aggregate, VersionKey};
use onceward_core::{Envelope, Identity, LedgerEntry, Row};

use super::seams::*;
use super::steps::{
    SUB, append_rows, case, deferral, entry, ids, load, message, message_of, nothing, open, record,
    settle,
};
use super::{CaseResult, Fixture};

/// Messages of one aggregate with these versions, as the log has them.
async fn versioned<S: Store>(
    store: &S,
    key: &str,
    versions: &[i64],
) -> Result<Vec<Row>, StoreError> {
    let of = |version: &i64| Envelope {
        aggregate_version: Some(*version),
        ..message(&format!("{key}-{version}"), key)
    };
    let envelopes: Vec<Envelope> = versions.iter().map(of).collect();
    append_rows(store, &envelopes).await
}

fn entry_of(row: &Row, identity: Identity) -> LedgerEntry {
    LedgerEntry {
        aggregate_version: row.envelope.aggregate_version,
        aggregate: Some(Aggregate::of(&row.envelope)),
        ..entry(row, identity)
    }
}

fn key_of(row: &Row) -> VersionKey {
    VersionKey::of(row, 0)
}

async fn last<S: Store>(
    store: &S,
    subscription: &str,
    identity: Identity,
    keys: &[VersionKey],
) -> Result<Vec<Option<i64>>, StoreError> {
    let mut tx = open(store).await?;
    let request = LastVersions {
        subscription,
        identity,
        keys,
    };
    let found = store.last_versions(&mut tx, request).await?;
    store.end(tx, End::RollBack).await?;
    Ok(found)
}

/// In whatever order they were recorded, on whatever day; by message and by operation.
pub async fn the_highest_version_is_the_last_one<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let a = versioned(store, "a", &[3, 9, 4]).await?;
    let b = versioned(store, "b", &[1]).await?;
    let c = versioned(store, "c", &[1]).await?;
    for identity in [Identity::Message, Identity::Operation] {
        for (row, days) in a.iter().zip([0, 2, 1]) {
            let mut entry = entry_of(row, identity);
            let days_ms = -days * 86_400_000;
            entry.key.recorded_at = entry.key.recorded_at.plus_millis(days_ms);
            assert_eq!(record(store, identity, &[entry]).await?, 1);
            fixture.advance_ms(1);
        }
        record(store, identity, &[entry_of(&b[0], identity)]).await?;
        let keys = [key_of(&b[0]), key_of(&c[0]), key_of(&a[0])];
        let other = fixture.second().await;
        let found = last(&other, SUB, identity, &keys).await?;
        assert_eq!(found, [Some(1), None, Some(9)], "{identity:?}");
    }
    let nothing_asked = last(store, SUB, Identity::Message, &[]).await?;
    assert!(nothing_asked.is_empty());
    Ok(())
}

/// Of another subscription, source, aggregate type, generation or table, it is another one.
pub async fn versions_of_others_do_not_count<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = versioned(store, "a", &[5]).await?;
    record(
        store,
        Identity::Message,
        &[entry_of(&rows[0], Identity::Message)],
    )
    .await?;
    let own = key_of(&rows[0]);
    let mut of_type = own.clone();
    of_type.aggregate.aggregate_type = "invoice".into();
    let mut of_id = own.clone();
    of_id.aggregate.aggregate_id = "A".into();
    let mut of_source = own.clone();
    of_source.source = "urn:other".into();
    let mut of_generation = own.clone();
    of_generation.generation = 1;
    let keys = [own.clone(), of_type, of_id, of_source, of_generation];
    let found = last(store, SUB, Identity::Message, &keys).await?;
    assert_eq!(found, [Some(5), None, None, None, None]);
    let own = std::slice::from_ref(&own);
    assert_eq!(
        last(store, "billing", Identity::Message, own).await?,
        [None]
    );
    assert_eq!(last(store, SUB, Identity::Operation, own).await?, [None]);
    Ok(())
}

/// Its own records too, and what was undone not any more.
pub async fn a_transaction_sees_the_versions_that_it_recorded<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    let rows = versioned(store, "a", &[1, 2]).await?;
    let keys = [key_of(&rows[0])];
    let request = || LastVersions {
        subscription: SUB,
        identity: Identity::Message,
        keys: &keys,
    };
    let mut tx = open(store).await?;
    let entries: Vec<LedgerEntry> = rows
        .iter()
        .map(|row| entry_of(row, Identity::Message))
        .collect();
    let done = Settle {
        ledger: &entries,
        ..nothing()
    };
    store.settle(&mut tx, done).await?;
    assert_eq!(store.last_versions(&mut tx, request()).await?, [Some(2)]);
    store.end(tx, End::RollBack).await?;
    assert_eq!(last(store, SUB, Identity::Message, &keys).await?, [None]);
    Ok(())
}

/// A row that names no aggregate is of a subscription that does not check.
pub async fn rows_without_an_aggregate_do_not_count<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = versioned(store, "a", &[7, 2]).await?;
    let unchecked = LedgerEntry {
        aggregate: None,
        ..entry_of(&rows[0], Identity::Message)
    };
    let entries = [unchecked, entry_of(&rows[1], Identity::Message)];
    record(store, Identity::Message, &entries).await?;
    let found = last(store, SUB, Identity::Message, &[key_of(&rows[0])]).await?;
    assert_eq!(found, [Some(2)]);
    Ok(())
}

/// Of a key that a gap holds, what may fill it is found, however much is stored before it.
pub async fn a_key_gives_the_versions_asked_for<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let keyed = |envelope: Envelope| Envelope {
        partition_key: Some("k".into()),
        ..envelope
    };
    let of = |id: &str, aggregate: &str, version| {
        keyed(Envelope {
            aggregate_version: version,
            ..message(id, aggregate)
        })
    };
    let other_source = Envelope {
        source: Some("urn:other".into()),
        ..of("m6", "a", Some(1))
    };
    let other_type = Envelope {
        aggregate_type: "invoice".into(),
        ..of("m7", "a", Some(1))
    };
    let envelopes = [
        of("m1", "a", Some(5)),
        of("m2", "b", Some(1)),
        of("m3", "a", None),
        of("m4", "a", Some(6)),
        of("m5", "a", Some(3)),
        other_source,
        other_type,
        keyed(Envelope {
            aggregate_version: Some(4),
            ..message_of("order.other", "m8", "a")
        }),
    ];
    let rows = append_rows(store, &envelopes).await?;
    let held: Vec<_> = rows
        .iter()
        .map(|row| deferral(row, DeferralKind::Held, Some(0)))
        .collect();
    let waiting = deferral(&rows[0], DeferralKind::Gap, Some(600_000));
    let settled = Settle {
        defer: &held[1..],
        ..nothing()
    };
    settle(store, settled).await?;
    let settled = Settle {
        defer: &[waiting],
        ..nothing()
    };
    settle(store, settled).await?;
    let asked = |to| LoadKey {
        subscription: SUB,
        slot: rows[0].slot,
        key: "k",
        after_seq: 0,
        versions_to: Some((&rows[0], to)),
        rows_max: 10,
    };
    let found = |rows: Vec<DeferredRow>| {
        let rows: Vec<Row> = rows.into_iter().map(|row| row.row).collect();
        ids(&rows)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(store.load_key(asked(4)).await?), ["m5", "m8"]);
    assert_eq!(found(store.load_key(asked(5)).await?), ["m1", "m5", "m8"]);
    assert!(store.load_key(asked(2)).await?.is_empty());
    Ok(())
}

/// And one that was released is found by its case's copy like by its row.
pub async fn versions_of_released_messages_are_found<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = versioned(store, "a", &[2, 1]).await?;
    let cases: [NewCase; 1] = [case(&rows[1], "version_gap")];
    let settled = Settle {
        defer: &[
            deferral(&rows[0], DeferralKind::Gap, Some(600_000)),
            deferral(&rows[1], DeferralKind::Retry, Some(0)),
        ],
        cases: &cases,
        ..nothing()
    };
    settle(store, settled).await?;
    let asked = LoadKey {
        subscription: SUB,
        slot: rows[0].slot,
        key: "a",
        after_seq: 0,
        versions_to: Some((&rows[0], 1)),
        rows_max: 10,
    };
    let found = store.load_key(asked).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].row, rows[1]);
    Ok(())
}

/// Whoever takes the key over looks whether what it waits for has come; its own time stays.
pub async fn a_gap_counts_as_due_for_its_key_only<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = versioned(store, "a", &[2]).await?;
    let waiting = [deferral(&rows[0], DeferralKind::Gap, Some(600_000))];
    let settled = Settle {
        defer: &waiting,
        ..nothing()
    };
    settle(store, settled).await?;
    let query = HeldKeysQuery {
        subscription: SUB,
        slots: (rows[0].slot, rows[0].slot),
    };
    let keys = store.held_keys(query).await?;
    assert_eq!(keys[0].due_in_ms, Some(0));
    let found = load(store, &rows[0]).await?.remove(0);
    assert_eq!(found.kind, DeferralKind::Gap);
    let left_ms = found.due_in_ms.unwrap_or_default();
    assert!((590_000..=600_000).contains(&left_ms), "{left_ms} ms left");
    assert!(found.is_due(), "it may be tried at any time");
    Ok(())
}
