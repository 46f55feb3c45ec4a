//! Quarantine, read.

use onceward_core::Timestamp;
use onceward_core::store::{
    Case, CaseQuery, CaseState, CasedQuery, Cases, HeldCase, HeldKeysQuery, Standing, StoreError,
    StoreErrorKind,
};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{correction, from_json, message, small, spent, to_json, unsigned};

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
        let states = (!query.states.is_empty()).then(|| to_json(&query.states, READING));
        let states = states.transpose()?;
        let is_by_time = query.opened_from.is_some() || query.opened_before.is_some();
        let has = [
            (12, is_by_time && query.subscription.is_some()),
            (13, is_by_time && states.is_some()),
            (2, !is_by_time && query.subscription.is_some()),
            (3, query.case_id.is_some()),
            (5, !is_by_time && states.is_some()),
            (6, query.owner.is_some()),
            (7, query.fingerprint.is_some()),
            (8, query.message_type.is_some()),
            (9, query.key.is_some()),
            (10, query.opened_from.is_some()),
            (11, query.opened_before.is_some()),
        ];
        // Made of lines of the file and of nothing else.
        let statement = sqlx::AssertSqlSafe(with_conditions(LIST, &has));
        let rows = sqlx::query(statement)
            .persistent(false)
            .bind(query.after_case_id)
            .bind(query.subscription)
            .bind(query.case_id)
            .bind(rows_max)
            .bind(&states)
            .bind(query.owner)
            .bind(query.fingerprint)
            .bind(query.message_type)
            .bind(query.key)
            .bind(query.opened_from.map(Timestamp::as_micros))
            .bind(query.opened_before.map(Timestamp::as_micros))
            .bind(query.subscription)
            .bind(&states)
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

/// A statement with those of its optional conditions, each on a line of its own, whose parameters
/// are there.
pub(crate) fn with_conditions(sql: &str, has: &[(u8, bool)]) -> String {
    let mut lines = Vec::new();
    for line in sql.lines() {
        let condition = has.iter().find_map(|(parameter, is_there)| {
            let head = format!("AND (?{parameter} IS NULL OR ");
            let rest = line.trim_start().strip_prefix(&head)?;
            Some((rest.strip_suffix(')')?, *is_there))
        });
        match condition {
            Some((condition, true)) => lines.push(format!("AND {condition}")),
            Some((_, false)) => {}
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

fn case(row: &SqliteRow) -> Result<Case, StoreError> {
    let failure: &str = row.try_get("failure").attempting(READING)?;
    let age_ms: i64 = row.try_get("age_ms").attempting(READING)?;
    let first_opened_at: i64 = row.try_get("first_opened_at").attempting(READING)?;
    let opened_at: i64 = row.try_get("opened_at").attempting(READING)?;
    let first_deferred_at: Option<i64> = row.try_get("first_deferred_at").attempting(READING)?;
    Ok(Case {
        case_id: row.try_get("case_id").attempting(READING)?,
        subscription: row.try_get("subscription").attempting(READING)?,
        row: message(row).attempting(READING)?,
        correction: correction(row).attempting(READING)?,
        reason: row.try_get("reason").attempting(READING)?,
        failure: from_json(failure, READING)?,
        spent: spent(row, unsigned(age_ms)).attempting(READING)?,
        key: row.try_get("key").attempting(READING)?,
        standing: standing(row, READING)?,
        fingerprint: row.try_get("fingerprint").attempting(READING)?,
        first_opened_at: Timestamp::from_micros(first_opened_at),
        holds_key: row.try_get("holds_key").attempting(READING)?,
        opened_at: Timestamp::from_micros(opened_at),
        first_deferred_at: first_deferred_at.map(Timestamp::from_micros),
    })
}

/// The column `state`.
pub(crate) fn case_state(row: &SqliteRow, action: &'static str) -> Result<CaseState, StoreError> {
    let name: &str = row.try_get("state").attempting(action)?;
    let unknown = || {
        let text = format!("no state of a case is called {name:?}");
        StoreError::found(StoreErrorKind::Schema, action, text)
    };
    CaseState::named(name).ok_or_else(unknown)
}

/// The columns that people change.
pub(crate) fn standing(row: &SqliteRow, action: &'static str) -> Result<Standing, StoreError> {
    let due_at: Option<i64> = row.try_get("due_at").attempting(action)?;
    Ok(Standing {
        state: case_state(row, action)?,
        owner: row.try_get("owner").attempting(action)?,
        due_at: due_at.map(Timestamp::from_micros),
        replays: small(row.try_get("replays").attempting(action)?),
        regressions: small(row.try_get("regressions").attempting(action)?),
        corrected_id: row.try_get("corrected_id").attempting(action)?,
    })
}
