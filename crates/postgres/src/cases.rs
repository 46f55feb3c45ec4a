//! Quarantine.

use onceward_core::case::fingerprint;
use onceward_core::store::{
    Case, CaseQuery, CaseState, CasedQuery, Cases, HeldCase, HeldKeysQuery, NewCase, Standing,
    StoreError,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::append::Columns;
use crate::deferrals::{failure_text, read_failure, read_spent};
use crate::error::while_doing;
use crate::row::{read_correction, read_row};
use crate::session::{Postgres, moment};

const READ: &str = "read cases";
const OPEN: &str = "open a case";

impl Cases for Postgres {
    async fn cases(&self, query: CaseQuery<'_>) -> Result<Vec<Case>, StoreError> {
        let rows_max = if query.rows_max == 0 {
            100
        } else {
            query.rows_max
        };
        let mut tx = self.read_tx(READ).await?;
        // Planned for what is asked for, and not for anything that could be.
        let statement = sqlx::query(include_str!("../sql/cases/list.sql"))
            .persistent(false)
            .bind(query.subscription)
            .bind(query.case_id)
            .bind(query.after_case_id)
            .bind(i64::from(rows_max))
            .bind((!query.states.is_empty()).then(|| state_names(query.states)))
            .bind(query.owner)
            .bind(query.fingerprint)
            .bind(query.message_type)
            .bind(query.key)
            .bind(query.opened_from.map(|at| at.as_micros()))
            .bind(query.opened_before.map(|at| at.as_micros()));
        let rows = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(READ))?;
        tx.roll_back().await;
        let cases: Result<_, sqlx::Error> = rows.iter().map(read_case).collect();
        cases.map_err(while_doing(READ))
    }

    async fn cased(&self, query: CasedQuery<'_>) -> Result<Vec<u64>, StoreError> {
        let seqs: Vec<i64> = query.seqs.iter().map(|seq| *seq as i64).collect();
        let mut tx = self.read_tx(READ).await?;
        let statement = sqlx::query_scalar(include_str!("../sql/cases/cased.sql"))
            .bind(query.subscription)
            .bind(seqs);
        let found: Vec<i64> = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(READ))?;
        tx.roll_back().await;
        Ok(found.into_iter().map(|seq| seq as u64).collect())
    }

    async fn held_cases(&self, query: HeldKeysQuery<'_>) -> Result<Vec<HeldCase>, StoreError> {
        let mut tx = self.read_tx(READ).await?;
        let statement = sqlx::query(include_str!("../sql/cases/held.sql"))
            .bind(query.subscription)
            .bind(query.slots.0 as i16)
            .bind(query.slots.1 as i16);
        let rows = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(READ))?;
        tx.roll_back().await;
        let read = |row: &PgRow| {
            Ok(HeldCase {
                key: row.try_get("key")?,
                slot: row.try_get::<i16, _>("slot")? as u16,
            })
        };
        let held: Result<_, sqlx::Error> = rows.iter().map(read).collect();
        held.map_err(while_doing(READ))
    }
}

fn state_names(states: &[CaseState]) -> Vec<&'static str> {
    states.iter().map(|state| state.as_str()).collect()
}

/// The column has a check constraint: another name is of a newer program.
pub(crate) fn read_state(name: &str) -> Result<CaseState, sqlx::Error> {
    let unknown = || sqlx::Error::Decode(format!("no state of a case is called {name:?}").into());
    CaseState::named(name).ok_or_else(unknown)
}

/// The columns that people change.
pub(crate) fn read_standing(row: &PgRow) -> Result<Standing, sqlx::Error> {
    let count = |name| Ok::<_, sqlx::Error>(row.try_get::<i32, _>(name)? as u32);
    Ok(Standing {
        state: read_state(row.try_get("state")?)?,
        owner: row.try_get("owner")?,
        due_at: row.try_get::<Option<i64>, _>("due_at")?.map(moment),
        replays: count("replays")?,
        regressions: count("regressions")?,
        corrected_id: row.try_get("corrected_id")?,
    })
}

fn read_case(row: &PgRow) -> Result<Case, sqlx::Error> {
    let failure = read_failure(row.try_get("failure")?)?;
    Ok(Case {
        case_id: row.try_get("case_id")?,
        subscription: row.try_get("subscription")?,
        row: read_row(row)?,
        correction: read_correction(row)?,
        reason: row.try_get("reason")?,
        failure: failure.ok_or(sqlx::Error::RowNotFound)?,
        spent: read_spent(row)?,
        key: row.try_get("key")?,
        standing: read_standing(row)?,
        fingerprint: row.try_get("fingerprint")?,
        holds_key: row.try_get("holds_key")?,
        first_opened_at: moment(row.try_get("first_opened_at")?),
        opened_at: moment(row.try_get("opened_at")?),
        first_deferred_at: row
            .try_get::<Option<i64>, _>("first_deferred_at")?
            .map(moment),
    })
}

/// Opens a case with a copy of its message.
pub(crate) async fn open(
    connection: &mut PgConnection,
    subscription: &str,
    case: &NewCase,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let envelope = &case.row.envelope;
    let columns = Columns::of(envelope)?;
    let query = sqlx::query(include_str!("../sql/cases/open.sql"))
        .bind(subscription)
        .bind(case.row.xid.to_string())
        .bind(case.row.seq as i64)
        .bind(case.row.slot as i16)
        .bind(&envelope.id)
        .bind(&envelope.source)
        .bind(&envelope.aggregate_type)
        .bind(&envelope.aggregate_id)
        .bind(&envelope.message_type)
        .bind(&envelope.operation_id)
        .bind(&envelope.partition_key)
        .bind(envelope.schema_version)
        .bind(envelope.aggregate_version)
        .bind(columns.headers)
        .bind(columns.json)
        .bind(columns.binary)
        .bind(columns.occurred_at)
        .bind(columns.expires_at)
        .bind(envelope.priority)
        .bind(case.row.recorded_at.as_micros())
        // Reasons can quote foreign texts.
        .bind(case.reason.replace('\0', "\u{fffd}"))
        .bind(failure_text(&case.failure)?)
        .bind(i64::from(case.spent.failures))
        .bind(i64::from(case.spent.deaths))
        .bind(i64::from(case.spent.waits))
        .bind(i64::try_from(case.spent.age_ms).unwrap_or(i64::MAX))
        .bind(case.holds_key)
        .bind(now)
        .bind(case.key.replace('\0', "\u{fffd}"))
        .bind(fingerprint(
            subscription,
            &envelope.message_type,
            &case.failure,
        ));
    query.execute(connection).await.map_err(while_doing(OPEN))?;
    Ok(())
}
