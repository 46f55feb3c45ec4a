//! Messages that cannot finish now.

use std::collections::BTreeMap;

use onceward_core::store::{
    Deferral, DeferralKind, Deferrals, DeferredRow, HeldKey, HeldKeysQuery, LoadKey, StoreError,
    StoreErrorKind,
};
use onceward_core::{FailureRecord, Spent};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::row::{read_correction, read_row};
use crate::session::Postgres;

const READ: &str = "read deferred messages";
const WRITE: &str = "defer messages";

impl Deferrals for Postgres {
    async fn held_keys(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldKey>, StoreError> {
        let mut tx = self.read_tx(READ).await?;
        let statement = sqlx::query(include_str!("../sql/deferrals/held_keys.sql"))
            .bind(query.subscription)
            .bind(query.slots.0 as i16)
            .bind(query.slots.1 as i16)
            .bind(self.now());
        let rows = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(READ))?;
        tx.roll_back().await;
        let keys: Result<_, sqlx::Error> = rows.iter().map(read_held_key).collect();
        keys.map_err(while_doing(READ))
    }

    async fn load_key(&self, request: LoadKey<'_>) -> Result<Vec<DeferredRow>, StoreError> {
        let mut tx = self.read_tx(READ).await?;
        let of = request.versions_to.map(|(row, _)| &row.envelope);
        let statement = sqlx::query(include_str!("../sql/deferrals/load_key.sql"))
            .bind(request.subscription)
            .bind(request.slot as i16)
            .bind(request.key)
            .bind(request.after_seq as i64)
            .bind(i64::from(request.rows_max))
            .bind(self.now())
            .bind(request.versions_to.map(|(_, version)| version))
            .bind(of.map(|of| &of.aggregate_type))
            .bind(of.map(|of| &of.aggregate_id))
            .bind(of.map(|of| &of.source));
        let rows = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(READ))?;
        tx.roll_back().await;
        let rows: Result<_, sqlx::Error> = rows.iter().map(read_deferred).collect();
        rows.map_err(while_doing(READ))
    }
}

fn read_held_key(row: &PgRow) -> Result<HeldKey, sqlx::Error> {
    Ok(HeldKey {
        key: row.try_get("key")?,
        slot: row.try_get::<i16, _>("slot")? as u16,
        count: row.try_get::<i64, _>("count")? as u64,
        due_in_ms: row
            .try_get::<Option<i64>, _>("due_in_ms")?
            .map(|ms| ms as u64),
    })
}

fn read_deferred(row: &PgRow) -> Result<DeferredRow, sqlx::Error> {
    let original = read_row(row)?;
    let correction = read_correction(row)?;
    Ok(DeferredRow {
        row: correction.map_or_else(|| original.clone(), |correction| correction.of(&original)),
        kind: read_kind(row.try_get("kind")?),
        due_in_ms: row
            .try_get::<Option<i64>, _>("due_in_ms")?
            .map(|ms| ms as u64),
        spent: read_spent(row)?,
        failure: read_failure(row.try_get("failure")?)?,
        generation: row.try_get::<i32, _>("generation")? as u32,
    })
}

/// The column has a check constraint: there is no other.
pub(crate) fn read_kind(text: &str) -> DeferralKind {
    DeferralKind::named(text).unwrap_or(DeferralKind::Retry)
}

/// The columns `failures`, `deaths`, `waits` and `age_ms`.
pub(crate) fn read_spent(row: &PgRow) -> Result<Spent, sqlx::Error> {
    let count = |name| {
        let count: i64 = row.try_get(name)?;
        Ok::<_, sqlx::Error>(u32::try_from(count).unwrap_or(u32::MAX))
    };
    Ok(Spent {
        failures: count("failures")?,
        deaths: count("deaths")?,
        waits: count("waits")?,
        age_ms: row.try_get::<i64, _>("age_ms")? as u64,
    })
}

/// A failure as it was kept.
pub(crate) fn read_failure(text: Option<String>) -> Result<Option<FailureRecord>, sqlx::Error> {
    let Some(text) = text else {
        return Ok(None);
    };
    let record = serde_json::from_str(&text);
    record
        .map(Some)
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// A failure as it is kept. JSON escapes what PostgreSQL could not keep.
pub(crate) fn failure_text(failure: &FailureRecord) -> Result<String, StoreError> {
    serde_json::to_string(failure)
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, WRITE, error))
}

/// Inserts deferrals, or overwrites those that are there.
pub(crate) async fn put(
    connection: &mut PgConnection,
    subscription: &str,
    deferrals: &[Deferral],
    now: Option<i64>,
) -> Result<(), StoreError> {
    if deferrals.is_empty() {
        return Ok(());
    }
    // One statement cannot write a row twice: the last word on a sequence counts.
    let by_seq: BTreeMap<u64, &Deferral> = deferrals.iter().map(|d| (d.seq, d)).collect();
    let deferrals: Vec<&Deferral> = by_seq.into_values().collect();
    let failures = deferrals
        .iter()
        .map(|d| d.failure.as_ref().map(failure_text).transpose());
    let failures = failures.collect::<Result<Vec<_>, _>>()?;
    let each = |count: fn(&Spent) -> u32| -> Vec<i64> {
        deferrals
            .iter()
            .map(|d| i64::from(count(&d.spent)))
            .collect()
    };
    let due = |d: &Deferral| {
        d.due_in_ms
            .map(|ms| i64::try_from(ms).unwrap_or(MAX_DUE_MS).min(MAX_DUE_MS))
    };
    let query = sqlx::query(include_str!("../sql/deferrals/put.sql"))
        .bind(subscription)
        .bind(deferrals.iter().map(|d| d.seq as i64).collect::<Vec<_>>())
        .bind(deferrals.iter().map(|d| d.slot as i16).collect::<Vec<_>>())
        .bind(deferrals.iter().map(|d| d.key.as_str()).collect::<Vec<_>>())
        .bind(
            deferrals
                .iter()
                .map(|d| d.kind.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(deferrals.iter().map(|d| due(d)).collect::<Vec<_>>())
        .bind(each(|spent| spent.failures))
        .bind(each(|spent| spent.deaths))
        .bind(each(|spent| spent.waits))
        .bind(failures)
        .bind(now);
    query
        .execute(connection)
        .await
        .map_err(while_doing(WRITE))?;
    Ok(())
}

/// A hundred years: later due times cannot all be stored.
const MAX_DUE_MS: i64 = 100 * 366 * 86_400_000;

/// Those of the sequences that have no deferral.
pub(crate) async fn gone(
    connection: &mut PgConnection,
    subscription: &str,
    seqs: &[u64],
) -> Result<Vec<u64>, StoreError> {
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let asked: Vec<i64> = seqs.iter().map(|seq| seq.cast_signed()).collect();
    let there: Vec<i64> = sqlx::query_scalar(include_str!("../sql/deferrals/still_there.sql"))
        .bind(subscription)
        .bind(asked)
        .fetch_all(connection)
        .await
        .map_err(while_doing("look for deferrals"))?;
    let is_gone = |seq: &u64| !there.contains(&seq.cast_signed());
    Ok(seqs.iter().copied().filter(is_gone).collect())
}

/// Removes deferrals that are over.
pub(crate) async fn clear(
    connection: &mut PgConnection,
    subscription: &str,
    seqs: &[u64],
) -> Result<(), StoreError> {
    let statement = include_str!("../sql/deferrals/clear.sql");
    remove(connection, statement, subscription, seqs).await
}

/// Removes deferrals of kind running that are over.
pub(crate) async fn clear_running(
    connection: &mut PgConnection,
    subscription: &str,
    seqs: &[u64],
) -> Result<(), StoreError> {
    let statement = include_str!("../sql/deferrals/clear_running.sql");
    remove(connection, statement, subscription, seqs).await
}

/// Makes deferrals of kind running held ones.
pub(crate) async fn hold_running(
    connection: &mut PgConnection,
    subscription: &str,
    seqs: &[u64],
    now: Option<i64>,
) -> Result<(), StoreError> {
    if seqs.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(include_str!("../sql/deferrals/hold_running.sql"))
        .bind(subscription)
        .bind(seqs.iter().map(|seq| *seq as i64).collect::<Vec<_>>())
        .bind(now);
    let held = query.execute(connection).await;
    held.map_err(while_doing(WRITE))?;
    Ok(())
}

async fn remove(
    connection: &mut PgConnection,
    statement: &'static str,
    subscription: &str,
    seqs: &[u64],
) -> Result<(), StoreError> {
    if seqs.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(statement)
        .bind(subscription)
        .bind(seqs.iter().map(|seq| *seq as i64).collect::<Vec<_>>());
    query
        .execute(connection)
        .await
        .map_err(while_doing(WRITE))?;
    Ok(())
}
