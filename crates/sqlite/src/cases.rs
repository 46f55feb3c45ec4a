//! Quarantine, read.

use onceward_core::Timestamp;
use onceward_core::store::{
    Case, CaseQuery, CaseState, CasedQuery, Cases, HeldCase, HeldKeysQuery, StoreError,
    StoreErrorKind,
};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{from_json, message, small, spent, to_json, unsigned};

const LIST: &str = include_str!("../sql/cases/list.sql");
const CASED: &str = include_str!("../sql/cases/cased.sql");
const HELD: &str = include_str!("../sql/cases/held.sql");

const ROWS_MAX_DEFAULT: u32 = 100;
const READING: &str = "read cases";

impl Cases for Sqlite {
    async fn cases(&self, query: CaseQuery<'_>) -> Result<Vec<Case>, StoreError> {
        let rows_max = match query.rows_max {
            0 => ROWS_MAX_DEFAULT,
            asked => asked,
        };
        let rows = sqlx::query(LIST)
            .bind(query.after_case_id)
            .bind(query.subscription)
            .bind(query.case_id)
            .bind(rows_max)
            .fetch_all(self.reads())
            .await
            .attempting(READING)?;
        rows.iter().map(case).collect()
    }

    async fn cased(&self, query: CasedQuery<'_>) -> Result<Vec<u64>, StoreError> {
        let seqs: Vec<i64> = sqlx::query_scalar(CASED)
            .bind(query.subscription)
            .bind(to_json(&query.seqs, READING)?)
            .fetch_all(self.reads())
            .await
            .attempting(READING)?;
        Ok(seqs.into_iter().map(unsigned).collect())
    }

    async fn held_cases(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldCase>, StoreError> {
        const ACTION: &str = "list keys that cases hold";
        let rows = sqlx::query(HELD)
            .bind(query.subscription)
            .bind(query.slots.0)
            .bind(query.slots.1)
            .fetch_all(self.reads())
            .await
            .attempting(ACTION)?;
        let held = rows.iter().map(|row| {
            Ok(HeldCase {
                key: row.try_get("key").attempting(ACTION)?,
                slot: small(row.try_get("slot").attempting(ACTION)?),
            })
        });
        held.collect()
    }
}

fn case(row: &SqliteRow) -> Result<Case, StoreError> {
    let failure: &str = row.try_get("failure").attempting(READING)?;
    let age_ms: i64 = row.try_get("age_ms").attempting(READING)?;
    let opened_at: i64 = row.try_get("opened_at").attempting(READING)?;
    let first_deferred_at: Option<i64> = row.try_get("first_deferred_at").attempting(READING)?;
    Ok(Case {
        case_id: row.try_get("case_id").attempting(READING)?,
        subscription: row.try_get("subscription").attempting(READING)?,
        row: message(row).attempting(READING)?,
        reason: row.try_get("reason").attempting(READING)?,
        failure: from_json(failure, READING)?,
        spent: spent(row, unsigned(age_ms)).attempting(READING)?,
        state: state(row)?,
        holds_key: row.try_get("holds_key").attempting(READING)?,
        opened_at: Timestamp::from_micros(opened_at),
        first_deferred_at: first_deferred_at.map(Timestamp::from_micros),
    })
}

fn state(row: &SqliteRow) -> Result<CaseState, StoreError> {
    let name: &str = row.try_get("state").attempting(READING)?;
    if name == CaseState::Open.as_str() {
        return Ok(CaseState::Open);
    }
    let text = format!("no state of a case is called {name:?}");
    Err(StoreError::found(StoreErrorKind::Schema, READING, text))
}
