//! Deferred messages, read.

use onceward_core::store::{
    DeferralKind, Deferrals, DeferredRow, HeldKey, HeldKeysQuery, LoadKey, StoreError,
    StoreErrorKind,
};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{correction, failure, int, message, small, spent, unsigned, wait_ms};

const HELD_KEYS: &str = include_str!("../sql/deferrals/held_keys.sql");
const LOAD_KEY: &str = include_str!("../sql/deferrals/load_key.sql");

impl Deferrals for Sqlite {
    async fn held_keys(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldKey>, StoreError> {
        const ACTION: &str = "list keys with deferred messages";
        let rows = sqlx::query(HELD_KEYS)
            .bind(query.subscription)
            .bind(query.slots.0)
            .bind(query.slots.1)
            .bind(self.now())
            .fetch_all(self.reads())
            .await
            .attempting(ACTION)?;
        rows.iter().map(|row| held_key(row, ACTION)).collect()
    }

    async fn load_key(&self, request: LoadKey<'_>) -> Result<Vec<DeferredRow>, StoreError> {
        const ACTION: &str = "load a key's deferred messages";
        let of = request.versions_to.map(|(row, _)| &row.envelope);
        let rows = sqlx::query(LOAD_KEY)
            .bind(request.subscription)
            .bind(request.slot)
            .bind(request.key)
            .bind(int(request.after_seq))
            .bind(request.rows_max)
            .bind(self.now())
            .bind(request.versions_to.map(|(_, version)| version))
            .bind(of.map(|of| &of.aggregate_type))
            .bind(of.map(|of| &of.aggregate_id))
            .bind(of.map(|of| &of.source))
            .fetch_all(self.reads())
            .await
            .attempting(ACTION)?;
        let rows = rows.iter().map(|row| deferred_row(row, ACTION));
        rows.collect()
    }
}

pub(crate) fn kind(row: &SqliteRow, action: &'static str) -> Result<DeferralKind, StoreError> {
    let name: &str = row.try_get("kind").attempting(action)?;
    DeferralKind::named(name).ok_or_else(|| {
        let text = format!("no kind of deferral is called {name:?}");
        StoreError::found(StoreErrorKind::Schema, action, text)
    })
}

fn held_key(row: &SqliteRow, action: &'static str) -> Result<HeldKey, StoreError> {
    let due_in_micros: Option<i64> = row.try_get("due_in_micros").attempting(action)?;
    let due_in_ms = match kind(row, action)? {
        // At the front of its key it waits for nobody, or it is to be looked for what it waits for.
        DeferralKind::Held | DeferralKind::Running | DeferralKind::Gap => Some(0),
        DeferralKind::Retry | DeferralKind::Operator => due_in_micros.map(wait_ms),
    };
    Ok(HeldKey {
        key: row.try_get("key").attempting(action)?,
        slot: small(row.try_get("slot").attempting(action)?),
        count: unsigned(row.try_get("deferred").attempting(action)?),
        due_in_ms,
    })
}

fn deferred_row(row: &SqliteRow, action: &'static str) -> Result<DeferredRow, StoreError> {
    let due_in_micros: Option<i64> = row.try_get("due_in_micros").attempting(action)?;
    let age_micros: i64 = row.try_get("age_micros").attempting(action)?;
    let original = message(row).attempting(action)?;
    let correction = correction(row).attempting(action)?;
    Ok(DeferredRow {
        row: correction.map_or_else(|| original.clone(), |correction| correction.of(&original)),
        kind: kind(row, action)?,
        due_in_ms: due_in_micros.map(wait_ms),
        spent: spent(row, unsigned(age_micros) / 1_000).attempting(action)?,
        failure: failure(row, action)?,
        generation: small(row.try_get("generation").attempting(action)?),
    })
}
