//! Where rows find no partition: none made for too long, or one that went while it could be needed.

use onceward_core::store::{
    Append, Begin, Effects, End, Known, Retention, Settle, StoreErrorKind, Upkeep,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey, Position, Timestamp};
use onceward_postgres::{Clock, Postgres};
use onceward_testkit::postgres::TestDatabase;

use crate::support::{SUB, append, drain, envelope, execute, ids, session, store};

const DAY_MS: i64 = 86_400_000;

async fn clocked() -> (TestDatabase, Postgres, Clock, Timestamp) {
    let (database, store) = store().await;
    let now = database.psql("select onceward.micros(now())").await;
    let now = Timestamp::from_micros(now.trim().parse().unwrap());
    let clock = Clock::fixed(now);
    (database, store.with_clock(clock.clone()), clock, now)
}

fn advance_days(clock: &Clock, days: u64) {
    clock.advance_ms(days * DAY_MS as u64);
}

async fn tidy(store: &Postgres) -> u64 {
    let mut removed = 0;
    for _ in 0..20 {
        let report = store.tidy(Retention::default()).await.unwrap();
        removed += report.log_removed;
        if !report.has_more {
            return removed;
        }
    }
    panic!("upkeep never ends");
}

fn entry(identity: &str, recorded_at: Timestamp) -> LedgerEntry {
    LedgerEntry {
        key: LedgerKey {
            source: "urn:s".into(),
            message_type: "t".into(),
            identity: identity.into(),
            generation: 0,
            recorded_at,
        },
        digest: None,
        ending: Ending::Done,
        result: None,
        aggregate_version: None,
        aggregate: None,
    }
}

/// Records an effect, and what the ledger said.
async fn record(store: &Postgres, entry: LedgerEntry) -> Result<u64, StoreErrorKind> {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let ledger = [entry];
    let settle = Settle {
        ledger: &ledger,
        ..Settle::nothing(SUB, Identity::Message)
    };
    match store.settle(&mut tx, settle).await {
        Ok(settled) => {
            store.end(tx, End::Commit).await.unwrap();
            Ok(settled.ledger_rows)
        }
        Err(error) => {
            store.end(tx, End::RollBack).await.unwrap();
            Err(error.kind())
        }
    }
}

/// Upkeep was away for longer than the days that were made ahead. That is the database's trouble,
/// not the message's: nothing is refused, and the next round repairs it.
#[tokio::test]
async fn ex_27_a_ledger_without_a_day_is_full_until_upkeep_comes_back() {
    let (_database, store, clock, start) = clocked().await;
    advance_days(&clock, 60);
    let late = start.plus_millis(60 * DAY_MS);
    assert_eq!(
        record(&store, entry("m", late)).await,
        Err(StoreErrorKind::Full)
    );
    // What belongs to a day that is there goes on.
    let early = start.plus_millis(40 * DAY_MS);
    assert_eq!(record(&store, entry("early", early)).await, Ok(1));
    tidy(&store).await;
    assert_eq!(record(&store, entry("m", late)).await, Ok(1));
    assert_eq!(record(&store, entry("m", late)).await, Ok(0));
}

/// The same for the log, whose ranges last for longer.
#[tokio::test]
async fn ex_27_a_log_without_a_range_is_full_until_upkeep_comes_back() {
    let (database, store, _, _) = clocked().await;
    append(&store, &[envelope("first", "a")]).await;
    let beyond = "select setval('onceward.outbox_seq', (select max(next) from onceward.ranges))";
    database.psql(beyond).await;
    let mut connection = session(&database).await;
    for n in 0..3 {
        let message = [envelope(&format!("lost-{n}"), "a")];
        let error = store.append(&mut connection, &message).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}");
    }
    tidy(&store).await;
    append(&store, &[envelope("second", "a")]).await;
    let rows = drain(&store, &mut Position::origin(1), 10).await;
    assert_eq!(ids(&rows), ["first", "second"]);
}

/// A session holds numbers of a range in advance. However old and empty the range is, its next
/// append finds it, and is read before it goes.
#[tokio::test]
async fn a_range_stays_while_a_session_may_hold_its_numbers() {
    let (database, store, clock, _) = clocked().await;
    let mut holder = session(&database).await;
    execute(&mut holder, "alter sequence onceward.outbox_seq cache 50").await;
    store
        .append(&mut holder, &[envelope("old", "a")])
        .await
        .unwrap();
    advance_days(&clock, 1);
    tidy(&store).await;
    advance_days(&clock, 8);
    assert_eq!(tidy(&store).await, 1, "emptied");
    tidy(&store).await;

    let mut position = store_head(&store).await;
    store
        .append(&mut holder, &[envelope("late", "a")])
        .await
        .unwrap();
    let place = "select seq < 50 from onceward.outbox where id = 'late'";
    assert_eq!(database.psql(place).await.trim(), "t", "in the old range");
    tidy(&store).await;
    assert_eq!(ids(&drain(&store, &mut position, 10).await), ["late"]);

    // Without a cache nobody holds numbers any more. The range has its time once more, then goes.
    execute(&mut holder, "alter sequence onceward.outbox_seq cache 1").await;
    store
        .append(&mut holder, &[envelope("last", "a")])
        .await
        .unwrap();
    let place = "select seq > 50 from onceward.outbox where id = 'last'";
    assert_eq!(database.psql(place).await.trim(), "t", "a new number");
    assert_eq!(tidy(&store).await, 0);
    advance_days(&clock, 8);
    assert_eq!(tidy(&store).await, 2, "with the range of the last one");
    let gone = "select to_regclass('onceward.outbox_0') is null";
    assert_eq!(database.psql(gone).await.trim(), "t");
}

/// With a cache above one a range goes too, once every session is over that may hold its numbers.
#[tokio::test]
async fn a_range_goes_when_the_sessions_that_may_hold_its_numbers_are_over() {
    let (database, store) = store().await;
    let mut holder = session(&database).await;
    execute(&mut holder, "alter sequence onceward.outbox_seq cache 50").await;
    store
        .append(&mut holder, &[envelope("old", "a")])
        .await
        .unwrap();
    store.close().await;
    // By the database's own clock, as sessions' ages are.
    let short = Retention {
        log_ms: 0,
        ..Retention::default()
    };
    let gone = "select to_regclass('onceward.outbox_0') is null";
    let tidy_anew = async || {
        let store = Postgres::connect(database.url()).await.unwrap();
        for _ in 0..2 {
            store.tidy(short).await.unwrap();
        }
        store.close().await;
    };
    tidy_anew().await;
    let emptied = "select emptied_at is not null from onceward.ranges where first = 0";
    assert_eq!(database.psql(emptied).await.trim(), "t");
    tidy_anew().await;
    assert_eq!(database.psql(gone).await.trim(), "f");
    sqlx::Connection::close(holder).await.unwrap();
    // Sessions end a moment after they are closed.
    for _ in 0..1_000 {
        tidy_anew().await;
        if database.psql(gone).await.trim() == "t" {
            return;
        }
    }
    panic!("the range stays");
}

/// One message appended twice has two rows with one id and two times: within a day of each other,
/// also across midnight, where the ledger's days meet, it is known; later it is another.
#[tokio::test]
async fn a_message_appended_twice_within_a_day_is_known() {
    let (database, store) = store().await;
    let midnight = "select onceward.micros((current_date + 2)::timestamp at time zone 'UTC')";
    let midnight = database.psql(midnight).await.trim().parse().unwrap();
    let first = Timestamp::from_micros(midnight).plus_millis(DAY_MS / 2);
    let mut done = entry("m", first);
    done.result = Some("\"shipped\"".into());
    assert_eq!(record(&store, done).await, Ok(1));
    let asked: Vec<LedgerKey> = [
        first.plus_millis(1),
        first.plus_millis(DAY_MS - 1),
        first.plus_millis(DAY_MS + 1),
        first.plus_millis(20 * DAY_MS),
        Timestamp::from_micros(midnight).plus_millis(1),
    ]
    .map(|at| entry("m", at).key)
    .into();
    let found = known(&store, &asked).await;
    let results: Vec<_> = found
        .iter()
        .map(|entry| entry.as_ref().and_then(|e| e.result.as_deref()))
        .collect();
    let result = Some("\"shipped\"");
    assert_eq!(results, [result, result, None, None, result]);
    let others = ["urn:s", "other"].map(|source| LedgerKey {
        source: source.into(),
        ..entry(if source == "other" { "m" } else { "n" }, first).key
    });
    assert_eq!(known(&store, &others).await, [None, None]);
}

async fn known(store: &Postgres, keys: &[LedgerKey]) -> Vec<Option<LedgerEntry>> {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let request = Known {
        subscription: SUB,
        identity: Identity::Message,
        keys,
        deferred: &[],
    };
    let found = store.known(&mut tx, request).await.unwrap().entries;
    store.end(tx, End::RollBack).await.unwrap();
    found
}

async fn store_head(store: &Postgres) -> Position {
    onceward_core::store::Log::head(store).await.unwrap()
}
