//! The ledger: an effect is recorded once, and its record comes back.

use onceward_core::store::{End, Settle};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Row};

use super::seams::*;
use super::steps::{SUB, append_rows, entry, known, message, messages, open, record, settle};
use super::{CaseResult, Fixture, allows};

async fn one_row<F: Fixture>(fixture: &F) -> Result<Row, Box<dyn std::error::Error + Send + Sync>> {
    Ok(append_rows(fixture.store(), &[message("m1", "k")])
        .await?
        .remove(0))
}

/// Under each identity.
pub async fn the_first_insert_counts_and_the_second_does_not<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let row = one_row(fixture).await?;
    let second = fixture.second().await;
    for identity in [Identity::Message, Identity::Operation, Identity::Seq] {
        let entry = entry(&row, identity);
        let ledger = std::slice::from_ref(&entry);
        assert_eq!(
            record(fixture.store(), identity, ledger).await?,
            1,
            "{identity:?}"
        );
        assert_eq!(
            record(fixture.store(), identity, ledger).await?,
            0,
            "{identity:?}"
        );
        assert_eq!(record(&second, identity, ledger).await?, 0, "{identity:?}");
    }
    Ok(())
}

/// Digest, ending, result and version, with and without; the first record stays.
pub async fn what_was_stored_comes_back<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 3)).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let full = LedgerEntry {
            ending: Ending::Rejected,
            result: Some("{ \"why\" : \"no such street\",\"n\": 1.00 }".into()),
            digest: Some([
                0, 255, 1, 254, 2, 253, 3, 252, 4, 251, 5, 250, 6, 249, 7, 248,
            ]),
            aggregate_version: Some(i64::MAX),
            ..entry(&rows[0], identity)
        };
        let bare = LedgerEntry {
            result: None,
            digest: None,
            ..entry(&rows[1], identity)
        };
        let large = LedgerEntry {
            result: Some(format!("\"{}\"", "\u{e9}".repeat(100_000)).into()),
            ..entry(&rows[2], identity)
        };
        let entries = [full, bare, large];
        assert_eq!(record(fixture.store(), identity, &entries).await?, 3);
        let keys: Vec<LedgerKey> = entries.iter().map(|e| e.key.clone()).collect();
        let other = LedgerEntry {
            result: Some("1".into()),
            ..entries[0].clone()
        };
        record(fixture.store(), identity, &[other]).await?;
        let found = known(&fixture.second().await, SUB, identity, &keys).await?;
        assert_eq!(found, entries.map(Some), "{identity:?}");
    }
    Ok(())
}

/// Unknown keys stay empty where they stand.
pub async fn known_answers_in_the_order_asked<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 6)).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let entries: Vec<LedgerEntry> = rows.iter().map(|row| entry(row, identity)).collect();
        record(
            fixture.store(),
            identity,
            &[entries[4].clone(), entries[1].clone()],
        )
        .await?;
        let asked: Vec<LedgerKey> = [5, 4, 0, 1]
            .iter()
            .map(|i| entries[*i].key.clone())
            .collect();
        let found = known(fixture.store(), SUB, identity, &asked).await?;
        let expected = [None, Some(&entries[4]), None, Some(&entries[1])];
        assert_eq!(
            found.iter().map(Option::as_ref).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(known(fixture.store(), SUB, identity, &[]).await?, []);
    }
    Ok(())
}

/// The count is what decides whether an effect stays.
pub async fn a_batch_counts_only_what_is_new<F: Fixture>(fixture: &F) -> CaseResult {
    let rows = append_rows(fixture.store(), &messages(1, 3)).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let entries: Vec<LedgerEntry> = rows.iter().map(|row| entry(row, identity)).collect();
        assert_eq!(record(fixture.store(), identity, &entries[1..2]).await?, 1);
        assert_eq!(record(fixture.store(), identity, &entries).await?, 2);
        assert_eq!(record(fixture.store(), identity, &entries).await?, 0);
        assert_eq!(record(fixture.store(), identity, &[]).await?, 0);
    }
    Ok(())
}

/// As many as a whole batch.
pub async fn many_at_once_are_recorded_or_told(fixture: &impl Fixture) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 60)).await?;
    for identity in [Identity::Message, Identity::Operation, Identity::Seq] {
        let of = |(i, row): (usize, &Row)| LedgerEntry {
            ending: Ending::ALL[i % Ending::ALL.len()],
            result: i
                .is_multiple_of(3)
                .then(|| format!("{{\"n\": {i}}}").into()),
            digest: (i % 4 > 0).then_some([i as u8; 16]),
            aggregate_version: i.is_multiple_of(2).then_some(i as i64),
            ..entry(row, identity)
        };
        // Not in the order of their keys.
        let entries: Vec<LedgerEntry> = rows.iter().enumerate().rev().map(of).collect();
        let keys: Vec<LedgerKey> = entries.iter().map(|e| e.key.clone()).collect();
        assert_eq!(record(store, identity, &entries[7..8]).await?, 1);

        let mut tx = open(store).await?;
        let request = Settle {
            ledger: &entries,
            ..Settle::nothing(SUB, identity)
        };
        let settled = store.settle(&mut tx, request).await?;
        assert_eq!(settled.ledger_rows, 59, "{identity:?}");
        store.end(tx, End::RollBack).await?;
        let found = known(store, SUB, identity, &keys).await?;
        assert_eq!(found.iter().flatten().count(), 1, "{identity:?}");

        let rest = [&entries[..7], &entries[8..]].concat();
        assert_eq!(record(store, identity, &rest).await?, 59, "{identity:?}");
        let found = known(&fixture.second().await, SUB, identity, &keys).await?;
        let found: Vec<LedgerEntry> = found.into_iter().flatten().collect();
        assert_eq!(found, entries, "{identity:?}");
    }
    Ok(())
}

/// The second of the two is the duplicate.
pub async fn one_key_twice_in_a_batch_is_one_effect<F: Fixture>(fixture: &F) -> CaseResult {
    let row = one_row(fixture).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let entries = [entry(&row, identity), entry(&row, identity)];
        assert_eq!(
            record(fixture.store(), identity, &entries).await?,
            1,
            "{identity:?}"
        );
    }
    Ok(())
}

/// Each subscription has its own effect.
pub async fn subscriptions_do_not_suppress_each_other<F: Fixture>(fixture: &F) -> CaseResult {
    let row = one_row(fixture).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let entries = [entry(&row, identity)];
        assert_eq!(record(fixture.store(), identity, &entries).await?, 1);
        let keys = [entries[0].key.clone()];
        assert_eq!(
            known(fixture.store(), "billing", identity, &keys).await?,
            [None]
        );
        let ledger = &entries;
        let other = Settle {
            ledger,
            ..Settle::nothing("billing", identity)
        };
        assert_eq!(
            settle(fixture.store(), other).await?.ledger_rows,
            1,
            "{identity:?}"
        );
    }
    Ok(())
}

/// Keys that differ in one part only are different effects.
pub async fn sources_types_and_generations_are_apart<F: Fixture>(fixture: &F) -> CaseResult {
    let row = one_row(fixture).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let base = entry(&row, identity);
        let mut entries = vec![base.clone(); 4];
        entries[1].key.source = "/elsewhere".to_owned();
        entries[2].key.message_type = "order.cancelled".to_owned();
        entries[3].key.generation = 1;
        assert_eq!(
            record(fixture.store(), identity, &entries).await?,
            4,
            "{identity:?}"
        );
        assert_eq!(
            record(fixture.store(), identity, &entries).await?,
            0,
            "{identity:?}"
        );
        let mut unknown = base.key.clone();
        unknown.generation = 2;
        assert_eq!(
            known(fixture.store(), SUB, identity, &[unknown]).await?,
            [None]
        );
    }
    Ok(())
}

/// A message id that equals an operation is not that operation.
pub async fn tables_of_different_identities_are_apart<F: Fixture>(fixture: &F) -> CaseResult {
    let row = one_row(fixture).await?;
    let entries = [entry(&row, Identity::Message)];
    assert_eq!(
        entries[0].key,
        entry(&row, Identity::Operation).key,
        "the same key in both"
    );
    assert_eq!(
        record(fixture.store(), Identity::Message, &entries).await?,
        1
    );
    let keys = [entries[0].key.clone()];
    let as_operation = known(fixture.store(), SUB, Identity::Operation, &keys).await?;
    assert_eq!(as_operation, [None]);
    assert_eq!(
        record(fixture.store(), Identity::Operation, &entries).await?,
        1
    );
    Ok(())
}

/// An operation is unique over its whole memory, whenever its messages were recorded.
pub async fn an_operation_is_known_whenever_it_comes_again<F: Fixture>(fixture: &F) -> CaseResult {
    let row = one_row(fixture).await?;
    let first = entry(&row, Identity::Operation);
    assert_eq!(
        record(
            fixture.store(),
            Identity::Operation,
            std::slice::from_ref(&first)
        )
        .await?,
        1
    );
    let mut later = first.clone();
    later.key.recorded_at = first.key.recorded_at.plus_millis(3 * 86_400_000);
    let keys = [later.key.clone()];
    let found = known(fixture.store(), SUB, Identity::Operation, &keys).await?;
    let result = found[0].as_ref().map(|entry| entry.result.clone());
    assert_eq!(result, Some(first.result), "found under another time");
    assert_eq!(
        record(fixture.store(), Identity::Operation, &[later]).await?,
        0
    );
    Ok(())
}

/// Two rows with one id are two effects under it, by choice.
pub async fn a_sequence_is_an_identity<F: Fixture>(fixture: &F) -> CaseResult {
    let twice = [message("m1", "k"), message("m1", "k")];
    let rows = append_rows(fixture.store(), &twice).await?;
    let entries = [
        entry(&rows[0], Identity::Seq),
        entry(&rows[1], Identity::Seq),
    ];
    assert_eq!(record(fixture.store(), Identity::Seq, &entries).await?, 2);
    let keys = [entries[1].key.clone()];
    let found = known(fixture.store(), SUB, Identity::Seq, &keys).await?;
    assert_eq!(found, [Some(entries[1].clone())]);
    assert_eq!(record(fixture.store(), Identity::Seq, &entries).await?, 0);
    Ok(())
}

/// Two transactions settle one key at once, the first commits.
pub async fn two_at_once_are_one_effect<F: Fixture>(fixture: &F) -> CaseResult {
    two_at_once(fixture, "two_at_once_are_one_effect", End::Commit, 0).await
}

/// Two transactions settle one key at once, the first rolls back.
pub async fn a_rollback_lets_the_other_have_it<F: Fixture>(fixture: &F) -> CaseResult {
    two_at_once(
        fixture,
        "a_rollback_lets_the_other_have_it",
        End::RollBack,
        1,
    )
    .await
}

async fn two_at_once<F: Fixture>(
    fixture: &F,
    case: &str,
    first_ends: End,
    second_counts: u64,
) -> CaseResult {
    let has = fixture.capabilities().has_concurrent_writers;
    if !allows(has, case, "the store has one writer at a time") {
        return Ok(());
    }
    let (store, second) = (fixture.store(), fixture.second().await);
    let row = one_row(fixture).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let entries = [entry(&row, identity)];
        let request = || Settle {
            ledger: &entries,
            ..Settle::nothing(SUB, identity)
        };
        let mut mine = open(store).await?;
        let mut theirs = open(&second).await?;
        assert_eq!(store.settle(&mut mine, request()).await?.ledger_rows, 1);
        let (settled, ended) = tokio::join!(
            second.settle(&mut theirs, request()),
            store.end(mine, first_ends)
        );
        ended?;
        assert_eq!(settled?.ledger_rows, second_counts, "{identity:?}");
        second.end(theirs, End::Commit).await?;
        assert_eq!(record(store, identity, &entries).await?, 0, "{identity:?}");
    }
    Ok(())
}

/// The handler's own, and those that the engine gives.
pub async fn every_ending_comes_back<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, Ending::ALL.len() as u32)).await?;
    for identity in [Identity::Message, Identity::Operation] {
        let entries: Vec<LedgerEntry> = rows
            .iter()
            .zip(Ending::ALL)
            .map(|(row, ending)| LedgerEntry {
                ending,
                ..entry(row, identity)
            })
            .collect();
        record(store, identity, &entries).await?;
        let keys: Vec<_> = entries.iter().map(|entry| entry.key.clone()).collect();
        let found = known(store, SUB, identity, &keys).await?;
        let endings: Vec<_> = found.into_iter().flatten().map(|e| e.ending).collect();
        assert_eq!(endings, Ending::ALL);
    }
    Ok(())
}
