//! The effect's transaction: everything in it commits together, or nothing does.

use onceward_core::store::{CaseQuery, DeferralKind, End, Mark, Settle};
use onceward_core::{Identity, LedgerKey};

use super::seams::*;
use super::steps::{
    ALL_SLOTS, SUB, append, append_in, append_rows, case, deferral, entry, held, ids, known,
    message, messages, nothing, open, read_all,
};
use super::{CaseResult, Fixture};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What is left of a transaction that recorded one of everything.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    ledger_rows: usize,
    deferred_keys: usize,
    cases: usize,
    appended: Vec<String>,
}

/// Ends a transaction in some way.
#[derive(Clone, Copy)]
enum Ending {
    Commit,
    RollBack,
    Drop,
}

/// Records one of everything in a transaction, ends it, and looks at what is left.
async fn one_of_everything<F: Fixture>(fixture: &F, ending: Ending) -> Outcome<Left> {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 4)).await?;
    let cleared = [deferral(&rows[3], DeferralKind::Retry, Some(0))];
    super::steps::defer(store, &cleared).await?;
    let head = store.head().await?;

    let entries = [entry(&rows[0], Identity::Message)];
    let deferrals = [deferral(&rows[1], DeferralKind::Retry, Some(1_000))];
    let cases = [case(&rows[2], "permanent")];
    let mut tx = open(store).await?;
    append_in(store, &mut tx, &[message("by-hand", "k")]).await?;
    let settled = store
        .settle(
            &mut tx,
            Settle {
                ledger: &entries,
                defer: &deferrals,
                clear: &[rows[3].seq],
                cases: &cases,
                append: &[message("by-settle", "k")],
                ..nothing()
            },
        )
        .await?;
    assert_eq!(settled.ledger_rows, 1);
    match ending {
        Ending::Commit => store.end(tx, End::Commit).await?,
        Ending::RollBack => store.end(tx, End::RollBack).await?,
        Ending::Drop => drop(tx),
    }

    // Whatever was left open would be in the way of this.
    append(store, &[message("after", "k")]).await?;
    let second = fixture.second().await;
    let keys = [entries[0].key.clone()];
    let (after, _) = read_all(&second, &head, 10).await?;
    Ok(Left {
        ledger_rows: known(&second, SUB, Identity::Message, &keys)
            .await?
            .iter()
            .flatten()
            .count(),
        deferred_keys: held(&second, ALL_SLOTS).await?.len(),
        cases: second.cases(CaseQuery::default()).await?.len(),
        appended: ids(&after).into_iter().map(str::to_owned).collect(),
    })
}

/// Ledger, deferral, clearing, case and both kinds of appending.
pub async fn everything_commits_together<F: Fixture>(fixture: &F) -> CaseResult {
    let left = one_of_everything(fixture, Ending::Commit).await?;
    let expected = Left {
        ledger_rows: 1,
        deferred_keys: 1,
        cases: 1,
        appended: ["by-hand", "by-settle", "after"]
            .map(str::to_owned)
            .to_vec(),
    };
    assert_eq!(left, expected);
    Ok(())
}

fn untouched() -> Left {
    Left {
        ledger_rows: 0,
        deferred_keys: 1,
        cases: 0,
        appended: vec!["after".to_owned()],
    }
}

/// As if it had never been; the deferral it cleared is there again.
pub async fn a_rollback_leaves_no_trace<F: Fixture>(fixture: &F) -> CaseResult {
    assert_eq!(
        one_of_everything(fixture, Ending::RollBack).await?,
        untouched()
    );
    Ok(())
}

/// The same when the future that held it was dropped, and the next transaction is a clean one.
pub async fn dropping_a_transaction_leaves_no_trace<F: Fixture>(fixture: &F) -> CaseResult {
    assert_eq!(one_of_everything(fixture, Ending::Drop).await?, untouched());
    Ok(())
}

/// Rows and records alike; what was before it stays, and the transaction goes on.
pub async fn a_savepoint_undoes_what_came_after<F: Fixture>(fixture: &F) -> CaseResult {
    let found = with_savepoint(fixture, Mark::RollBack).await?;
    assert_eq!(
        found,
        (
            [true, false, true],
            vec!["before".to_owned(), "after".to_owned()]
        )
    );
    Ok(())
}

/// Releasing keeps it.
pub async fn a_released_savepoint_keeps_what_came_after<F: Fixture>(fixture: &F) -> CaseResult {
    let found = with_savepoint(fixture, Mark::Release).await?;
    let all = ["before", "within", "after"].map(str::to_owned).to_vec();
    assert_eq!(found, ([true, true, true], all));
    Ok(())
}

/// Which of three effects are known, and which messages came, when the second is in a savepoint.
async fn with_savepoint<F: Fixture>(fixture: &F, end: Mark) -> Outcome<([bool; 3], Vec<String>)> {
    let store = fixture.store();
    let rows = append_rows(store, &messages(1, 3)).await?;
    let head = store.head().await?;
    let entries: Vec<_> = rows
        .iter()
        .map(|row| entry(row, Identity::Message))
        .collect();
    let mut tx = open(store).await?;
    for (i, id) in ["before", "within", "after"].into_iter().enumerate() {
        if i == 1 {
            store.mark(&mut tx, Mark::Set).await?;
        }
        append_in(store, &mut tx, &[message(id, "k")]).await?;
        let ledger = &entries[i..=i];
        let settled = store
            .settle(
                &mut tx,
                Settle {
                    ledger,
                    ..nothing()
                },
            )
            .await?;
        assert_eq!(settled.ledger_rows, 1);
        if i == 1 {
            store.mark(&mut tx, end).await?;
        }
    }
    store.end(tx, End::Commit).await?;
    let keys: Vec<LedgerKey> = entries.into_iter().map(|entry| entry.key).collect();
    let found = known(store, SUB, Identity::Message, &keys).await?;
    let (after, _) = read_all(store, &head, 10).await?;
    Ok((
        [found[0].is_some(), found[1].is_some(), found[2].is_some()],
        ids(&after).into_iter().map(str::to_owned).collect(),
    ))
}

/// Messages appended by user code and by settling come in the order in which they were.
pub async fn appending_and_settling_share_the_transaction<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let head = store.head().await?;
    let mut tx = open(store).await?;
    append_in(store, &mut tx, &messages(1, 1)).await?;
    for i in 2..=3 {
        let append = messages(i, i);
        store
            .settle(
                &mut tx,
                Settle {
                    append: &append,
                    ..nothing()
                },
            )
            .await?;
    }
    append_in(store, &mut tx, &messages(4, 4)).await?;
    store.end(tx, End::Commit).await?;
    let (rows, _) = read_all(store, &head, 10).await?;
    assert_eq!(ids(&rows), ["m1", "m2", "m3", "m4"]);
    assert!(
        rows.iter()
            .all(|row| row.envelope.source == rows[0].envelope.source)
    );
    Ok(())
}

/// An error that did not come from the database says nothing about it.
pub async fn a_foreign_error_is_not_classified<F: Fixture>(fixture: &F) -> CaseResult {
    let foreign = std::io::Error::other("the disk of somebody else");
    assert_eq!(fixture.store().classify(&foreign), None);
    Ok(())
}
