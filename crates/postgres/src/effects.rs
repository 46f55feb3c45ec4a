//! The transaction in which an effect and its record commit together.

use onceward_core::store::{
    Begin, Effects, End, Found, Known, Mark, Settle, Settled, StoreError, StoreErrorKind,
};
use onceward_core::{Digest, Ending, Identity, LedgerEntry, LedgerKey};
use sqlx::postgres::{PgQueryResult, PgRow};
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::session::{BEGIN_WRITE, Postgres, Tx};
use crate::{cases, deferrals};

const SETTLE: &str = "record what happened";
/// Two rows of the log with one identity that were recorded within a day are copies of one message.
const COPIES_WITHIN_MICROS: u64 = 86_400_000_000;

impl Effects for Postgres {
    type Tx = Tx;

    async fn begin(&self, request: Begin<'_>) -> Result<Tx, StoreError> {
        const ACTION: &str = "begin a transaction";
        let begin = match request.lease {
            // One trip: numbers only, so nothing needs quoting.
            Some(lease) => format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT onceward.enter({}, {})",
                lease.fence,
                i64::try_from(lease.lease_ms).unwrap_or(i64::MAX)
            ),
            None => BEGIN_WRITE.to_owned(),
        };
        self.open(&self.effects, begin, ACTION).await
    }

    fn connection<'t>(&self, tx: &'t mut Tx) -> &'t mut PgConnection {
        tx.was_lent = true;
        tx.connection()
    }

    async fn known(&self, tx: &mut Tx, request: Known<'_>) -> Result<Found, StoreError> {
        let (subscription, seqs) = (request.subscription, request.deferred);
        // First, as it may have to wait for what the ledger then has.
        let gone = deferrals::gone(tx.connection(), subscription, seqs).await?;
        let entries = known_in(tx.connection(), &request).await?;
        Ok(Found { entries, gone })
    }

    async fn settle(&self, tx: &mut Tx, request: Settle<'_>) -> Result<Settled, StoreError> {
        let connection = tx.connection();
        let ledger_rows = if request.ledger.is_empty() {
            0
        } else {
            let done = match request.identity {
                Identity::Operation => record_operations(connection, &request).await,
                Identity::Message | Identity::Seq => record(connection, &request).await,
            };
            done.map_err(while_doing(SETTLE))?.rows_affected()
        };
        // Cases first: they copy the time of the first deferral before it is cleared.
        for case in request.cases {
            cases::open(connection, request.subscription, case, self.now()).await?;
        }
        deferrals::put(connection, request.subscription, request.defer, self.now()).await?;
        deferrals::clear(connection, request.subscription, request.clear).await?;
        deferrals::clear_running(connection, request.subscription, request.clear_running).await?;
        let held = request.hold_running;
        deferrals::hold_running(connection, request.subscription, held, self.now()).await?;
        self.append_by_statement(connection, request.append).await?;
        // A statement of ours would have failed in a transaction that has failed.
        let is_empty = request.ledger.is_empty()
            && request.cases.is_empty()
            && request.defer.is_empty()
            && request.clear.is_empty()
            && request.clear_running.is_empty()
            && request.hold_running.is_empty()
            && request.append.is_empty();
        tx.was_lent &= is_empty;
        Ok(Settled { ledger_rows })
    }

    async fn mark(&self, tx: &mut Tx, mark: Mark) -> Result<(), StoreError> {
        let statement = match mark {
            Mark::Set => "SAVEPOINT onceward_mark",
            Mark::Release => "RELEASE SAVEPOINT onceward_mark",
            // Released as well, so that at most one savepoint exists.
            Mark::RollBack => {
                "ROLLBACK TO SAVEPOINT onceward_mark; RELEASE SAVEPOINT onceward_mark"
            }
        };
        let done = sqlx::raw_sql(statement).execute(tx.connection()).await;
        done.map_err(while_doing("set a savepoint"))?;
        tx.was_lent = false;
        Ok(())
    }

    async fn end(&self, tx: Tx, end: End) -> Result<(), StoreError> {
        match end {
            End::Commit => tx.commit("commit").await,
            End::RollBack => {
                tx.roll_back().await;
                Ok(())
            }
        }
    }
}

/// A ledger's keys, one vector per column.
struct KeyColumns<'a> {
    sources: Vec<&'a str>,
    types: Vec<&'a str>,
    identities: Vec<&'a str>,
    generations: Vec<i32>,
    times: Vec<i64>,
}

impl<'a> KeyColumns<'a> {
    fn of(keys: impl Iterator<Item = &'a LedgerKey> + Clone) -> Self {
        Self {
            sources: keys.clone().map(|k| k.source.as_str()).collect(),
            types: keys.clone().map(|k| k.message_type.as_str()).collect(),
            identities: keys.clone().map(|k| k.identity.as_str()).collect(),
            generations: keys.clone().map(|k| k.generation as i32).collect(),
            times: keys.map(|k| k.recorded_at.as_micros()).collect(),
        }
    }
}

/// What the ledger has, in the order of the keys.
pub(crate) async fn known_in(
    connection: &mut PgConnection,
    request: &Known<'_>,
) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
    const ACTION: &str = "look into the ledger";
    if request.keys.is_empty() {
        return Ok(Vec::new());
    }
    let is_by_time = request.identity != Identity::Operation;
    let rows = if is_by_time {
        known(connection, request).await
    } else {
        known_operations(connection, request).await
    };
    let rows = rows.map_err(while_doing(ACTION))?;
    let mut found: Vec<Option<LedgerEntry>> = vec![None; request.keys.len()];
    // When what was found for each was recorded: of two copies the earlier one is meant.
    let mut times = vec![i64::MAX; request.keys.len()];
    for row in &rows {
        let (place, entry) = read_entry(row, request.keys).map_err(while_doing(ACTION))?;
        if is_by_time {
            let time = row.try_get("recordedtime").map_err(while_doing(ACTION))?;
            let asked = request.keys[place].recorded_at.as_micros();
            if asked.abs_diff(time) > COPIES_WITHIN_MICROS || time > times[place] {
                continue;
            }
            times[place] = time;
        }
        found[place] = Some(entry);
    }
    Ok(found)
}

async fn known(
    connection: &mut PgConnection,
    request: &Known<'_>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let keys = KeyColumns::of(request.keys.iter());
    let first = keys.times.iter().copied().min();
    let last = keys.times.iter().copied().max();
    let query = sqlx::query(include_str!("../sql/effects/known.sql"))
        .bind(request.subscription)
        .bind(keys.sources)
        .bind(keys.types)
        .bind(keys.identities)
        .bind(keys.generations)
        .bind(first)
        .bind(last);
    query.fetch_all(connection).await
}

async fn known_operations(
    connection: &mut PgConnection,
    request: &Known<'_>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let keys = KeyColumns::of(request.keys.iter());
    let query = sqlx::query(include_str!("../sql/effects/known_operations.sql"))
        .bind(request.subscription)
        .bind(keys.sources)
        .bind(keys.types)
        .bind(keys.identities)
        .bind(keys.generations);
    query.fetch_all(connection).await
}

async fn record(
    connection: &mut PgConnection,
    request: &Settle<'_>,
) -> Result<PgQueryResult, sqlx::Error> {
    let keys = KeyColumns::of(request.ledger.iter().map(|e| &e.key));
    let values = ValueColumns::of(request.ledger);
    let query = sqlx::query(include_str!("../sql/effects/record.sql"))
        .bind(request.subscription)
        .bind(keys.sources)
        .bind(keys.types)
        .bind(keys.identities)
        .bind(keys.generations)
        .bind(keys.times)
        .bind(values.digests)
        .bind(values.endings)
        .bind(values.results)
        .bind(values.versions)
        .bind(values.aggregate_types)
        .bind(values.aggregate_ids);
    query.execute(connection).await
}

async fn record_operations(
    connection: &mut PgConnection,
    request: &Settle<'_>,
) -> Result<PgQueryResult, sqlx::Error> {
    let keys = KeyColumns::of(request.ledger.iter().map(|e| &e.key));
    let values = ValueColumns::of(request.ledger);
    let query = sqlx::query(include_str!("../sql/effects/record_operations.sql"))
        .bind(request.subscription)
        .bind(keys.sources)
        .bind(keys.types)
        .bind(keys.identities)
        .bind(keys.generations)
        .bind(values.digests)
        .bind(values.endings)
        .bind(values.results)
        .bind(values.versions)
        .bind(values.aggregate_types)
        .bind(values.aggregate_ids);
    query.execute(connection).await
}

/// What a ledger keeps under its keys, one vector per column.
struct ValueColumns<'a> {
    digests: Vec<Option<&'a [u8]>>,
    endings: Vec<&'static str>,
    results: Vec<Option<&'a str>>,
    versions: Vec<Option<i64>>,
    aggregate_types: Vec<Option<&'a str>>,
    aggregate_ids: Vec<Option<&'a str>>,
}

impl<'a> ValueColumns<'a> {
    fn of(entries: &'a [LedgerEntry]) -> Self {
        Self {
            digests: entries
                .iter()
                .map(|e| e.digest.as_ref().map(<[u8; 16]>::as_slice))
                .collect(),
            endings: entries.iter().map(|e| e.ending.as_str()).collect(),
            results: entries.iter().map(|e| e.result.as_deref()).collect(),
            versions: entries.iter().map(|e| e.aggregate_version).collect(),
            aggregate_types: entries
                .iter()
                .map(|e| Some(e.aggregate.as_ref()?.aggregate_type.as_str()))
                .collect(),
            aggregate_ids: entries
                .iter()
                .map(|e| Some(e.aggregate.as_ref()?.aggregate_id.as_str()))
                .collect(),
        }
    }
}

/// An entry with its place among the keys asked for.
fn read_entry(row: &PgRow, keys: &[LedgerKey]) -> Result<(usize, LedgerEntry), sqlx::Error> {
    let place = row.try_get::<i64, _>("place")? as usize - 1;
    let key = keys.get(place).ok_or(sqlx::Error::RowNotFound)?.clone();
    let entry = LedgerEntry {
        key,
        // Another length cannot be ours: a receiver outside wrote it for itself.
        digest: row
            .try_get::<Option<Vec<u8>>, _>("digest")?
            .and_then(|digest| Digest::try_from(digest).ok()),
        ending: read_ending(row.try_get("ending")?),
        result: row
            .try_get::<Option<String>, _>("result")?
            .map(String::into_boxed_str),
        aggregate_version: row.try_get("aggregateversion")?,
        aggregate: None,
    };
    Ok((place, entry))
}

/// The column has a check constraint: there is no other.
pub(crate) fn read_ending(text: &str) -> Ending {
    Ending::named(text).unwrap_or(Ending::Done)
}

/// The error of work that needs a member which has ended.
pub(crate) fn fenced(action: &'static str) -> StoreError {
    StoreError::found(StoreErrorKind::Fenced, action, "the lease was taken over")
}
