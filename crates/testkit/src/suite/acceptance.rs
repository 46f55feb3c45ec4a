//! A request accepted once: the first does the work, the next gets its answer.

use onceward_core::store::{AcceptRequest, Accepted, End, NO_ANSWER, Retention, Store, StoreError};

use super::seams::*;
use super::steps::{append_in, ids, messages, open, origin, read_all};
use super::{CaseResult, Fixture, allows};

const ANSWER: &str = "{ \"order\" : \"o-1\", \"total\": 10.00 }";

/// How long answers are kept here.
const MEMORY_MS: u64 = 3_600_000;

const fn request<'a>(caller: &'a str, key: &'a str, body: u8) -> AcceptRequest<'a> {
    AcceptRequest {
        caller,
        key,
        digest: [body; 16],
        memory_ms: MEMORY_MS,
    }
}

/// Accepts in a transaction of its own, and answers where it is the first.
async fn accept<S: Store>(
    store: &S,
    request: AcceptRequest<'_>,
    end: End,
) -> Result<Accepted, StoreError> {
    let mut tx = open(store).await?;
    let found = store
        .accept(store.connection(&mut tx), request.clone())
        .await?;
    if found == Accepted::First {
        store
            .answer(store.connection(&mut tx), request, ANSWER)
            .await?;
    }
    store.end(tx, end).await?;
    Ok(found)
}

fn again() -> Accepted {
    Accepted::Again {
        answer: ANSWER.into(),
    }
}

/// A batch may have one event twice.
pub async fn a_transaction_knows_what_it_accepted_itself<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let asked = request("shop", "key-1", 1);
    let mut tx = open(store).await?;
    let connection = store.connection(&mut tx);
    let first = store.accept(connection, asked.clone()).await?;
    assert_eq!(first, Accepted::First);
    store.answer(connection, asked.clone(), ANSWER).await?;
    assert_eq!(store.accept(connection, asked).await?, again());
    let other = store
        .accept(connection, request("shop", "key-1", 2))
        .await?;
    assert_eq!(other, Accepted::Mismatch);
    store.end(tx, End::Commit).await?;
    Ok(())
}

/// Each key of many by itself, as if it had been asked for alone.
pub async fn many_keys_are_accepted_at_once<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let known = || Accepted::Again {
        answer: NO_ANSWER.into(),
    };
    let asked = [
        request("orders", "key-1", 1),
        request("orders", "key-2", 1),
        request("orders", "key-1", 1),
        request("orders", "key-2", 2),
        request("others", "key-1", 3),
    ];
    let found = [
        Accepted::First,
        Accepted::First,
        known(),
        Accepted::Mismatch,
        Accepted::First,
    ];
    for end in [End::RollBack, End::Commit] {
        let mut tx = open(store).await?;
        let connection = store.connection(&mut tx);
        assert_eq!(store.accept_all(connection, &asked).await?, found);
        store.end(tx, end).await?;
    }
    let mut tx = open(store).await?;
    let connection = store.connection(&mut tx);
    let again = store.accept_all(connection, &asked).await?;
    let found = [known(), known(), known(), Accepted::Mismatch, known()];
    assert_eq!(again, found);
    assert!(store.accept_all(connection, &[]).await?.is_empty());
    store.end(tx, End::Commit).await?;
    Ok(())
}

/// Byte for byte, as often as it is asked, together with what the transaction appended.
pub async fn the_first_does_the_work_and_the_next_gets_the_answer<F: Fixture>(
    fixture: &F,
) -> CaseResult {
    let store = fixture.store();
    let asked = request("shop", "key-1", 1);
    let mut tx = open(store).await?;
    assert_eq!(
        store
            .accept(store.connection(&mut tx), asked.clone())
            .await?,
        Accepted::First
    );
    append_in(store, &mut tx, &messages(1, 1)).await?;
    store
        .answer(store.connection(&mut tx), asked.clone(), ANSWER)
        .await?;
    store.end(tx, End::Commit).await?;
    for _ in 0..2 {
        let found = accept(&fixture.second().await, asked.clone(), End::Commit).await?;
        assert_eq!(found, again());
    }
    let (rows, _) = read_all(store, &origin(store).await?, 10).await?;
    assert_eq!(ids(&rows), ["m1"]);
    Ok(())
}

/// What failed was not accepted.
pub async fn a_rollback_forgets_the_claim<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let asked = request("shop", "key-1", 1);
    assert_eq!(
        accept(store, asked.clone(), End::RollBack).await?,
        Accepted::First
    );
    assert_eq!(
        accept(store, asked.clone(), End::Commit).await?,
        Accepted::First
    );
    assert_eq!(accept(store, asked, End::Commit).await?, again());
    Ok(())
}

/// And the answer of the first body stays.
pub async fn another_body_under_the_key_is_refused<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    accept(store, request("shop", "key-1", 1), End::Commit).await?;
    let found = accept(store, request("shop", "key-1", 2), End::Commit).await?;
    assert_eq!(found, Accepted::Mismatch);
    assert_eq!(
        accept(store, request("shop", "key-1", 1), End::Commit).await?,
        again()
    );
    Ok(())
}

/// Nor do keys of one caller meet.
pub async fn callers_share_no_keys<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    for (caller, key) in [("shop", "key-1"), ("app", "key-1"), ("shop", "key-2")] {
        let found = accept(store, request(caller, key, 1), End::Commit).await?;
        assert_eq!(found, Accepted::First, "{caller} {key}");
    }
    Ok(())
}

/// Never waits for it.
pub async fn a_claim_in_another_transaction_is_in_flight<F: Fixture>(fixture: &F) -> CaseResult {
    let has = fixture.capabilities().has_concurrent_writers;
    let why = "with one writer the second transaction cannot begin";
    if !allows(has, "a_claim_in_another_transaction_is_in_flight", why) {
        return Ok(());
    }
    let (store, second) = (fixture.store(), fixture.second().await);
    let asked = request("shop", "key-1", 1);
    let mut tx = open(store).await?;
    assert_eq!(
        store
            .accept(store.connection(&mut tx), asked.clone())
            .await?,
        Accepted::First
    );
    let found = accept(&second, asked.clone(), End::Commit).await?;
    assert_eq!(found, Accepted::InFlight);
    let other = accept(&second, request("shop", "key-2", 1), End::Commit).await?;
    assert_eq!(other, Accepted::First, "another key is not in the way");
    store
        .answer(store.connection(&mut tx), asked.clone(), ANSWER)
        .await?;
    store.end(tx, End::Commit).await?;
    assert_eq!(accept(&second, asked, End::Commit).await?, again());
    Ok(())
}

/// After it the same key is a new request; before, upkeep forgets nothing.
pub async fn the_memory_ends<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    let asked = request("shop", "key-1", 1);
    accept(store, asked.clone(), End::Commit).await?;
    fixture.advance_ms(MEMORY_MS - 600_000);
    store.tidy(Retention::default()).await?;
    assert_eq!(accept(store, asked.clone(), End::Commit).await?, again());
    fixture.advance_ms(1_200_000);
    store.tidy(Retention::default()).await?;
    assert_eq!(accept(store, asked, End::Commit).await?, Accepted::First);
    Ok(())
}
