//! Retention: bounded deletes, so that no append waits long behind one.
//!
//! SQLite reuses the pages of deleted rows; the file itself only shrinks by `VACUUM`.

use onceward_core::Timestamp;
use onceward_core::store::{Retention, StoreError, Upkeep, UpkeepReport};
use sqlx::Row as _;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{from_json, int, to_json};

const REMOVE_LOG: &str = include_str!("../sql/upkeep/remove_log.sql");
const REMOVE_LEDGER: &str = include_str!("../sql/upkeep/remove_ledger.sql");
const REMOVE_OPERATION_LEDGER: &str = include_str!("../sql/upkeep/remove_operation_ledger.sql");
const REMOVE_ACCEPTANCES: &str = include_str!("../sql/upkeep/remove_acceptances.sql");
const REMOVE_MEMBERS: &str = include_str!("../sql/upkeep/remove_members.sql");
const REMOVE_PAUSES: &str = include_str!("../sql/upkeep/remove_pauses.sql");
const OLDEST: &str = include_str!("../sql/upkeep/oldest.sql");
const LEDGER_HELD: &str = include_str!("../sql/upkeep/ledger_held.sql");
const SAVE_REPORT: &str = include_str!("../sql/upkeep/save_report.sql");
const LAST_REPORT: &str = include_str!("../sql/upkeep/last_report.sql");

/// Most rows that one step removes, each step in a transaction of its own.
const ROWS_MAX: u32 = 1_000;

/// Ended members are kept for people to look at.
const MEMBERS_MS: u64 = 86_400_000;

/// Pauses that ended by themselves are kept for people to look at.
const PAUSES_MS: u64 = 90 * 86_400_000;

const TIDYING: &str = "tidy";

impl Upkeep for Sqlite {
    async fn tidy(&self, retention: Retention) -> Result<UpkeepReport, StoreError> {
        let log_removed = self.remove(REMOVE_LOG, Some(retention.log_ms)).await?;
        let ledger = self
            .remove(REMOVE_LEDGER, Some(retention.ledger_ms))
            .await?;
        let operations_ms = Some(retention.operation_ledger_ms);
        let operations = self.remove(REMOVE_OPERATION_LEDGER, operations_ms).await?;
        let acceptances = self.remove(REMOVE_ACCEPTANCES, None).await?;
        let members = self.remove(REMOVE_MEMBERS, Some(MEMBERS_MS)).await?;
        let pauses = self.remove(REMOVE_PAUSES, Some(PAUSES_MS)).await?;
        let steps = [
            log_removed,
            ledger,
            operations,
            acceptances,
            members,
            pauses,
        ];
        let mut report = UpkeepReport {
            log_removed,
            ledger_removed: ledger + operations,
            records_removed: acceptances + members + pauses,
            has_more: steps.iter().any(|removed| *removed >= u64::from(ROWS_MAX)),
            retention: Some(retention),
            ..UpkeepReport::default()
        };
        self.find_oldest(retention, &mut report).await?;
        if report.held_back_by.is_none() {
            report.held_back_by = self.ledger_held_by(retention).await?;
        }
        let mut tx = self.write(TIDYING).await?;
        sqlx::query(SAVE_REPORT)
            .bind(to_json(&report, TIDYING)?)
            .bind(self.now())
            .execute(tx.connection())
            .await
            .attempting(TIDYING)?;
        tx.commit(TIDYING).await?;
        Ok(report)
    }

    async fn last_tidy(&self) -> Result<Option<(Timestamp, UpkeepReport)>, StoreError> {
        const ACTION: &str = "read the last upkeep report";
        let found = sqlx::query(LAST_REPORT).fetch_optional(self.reads()).await;
        let Some(row) = found.attempting(ACTION)? else {
            return Ok(None);
        };
        let tidied_at = row.try_get("tidied_at").attempting(ACTION)?;
        let report: &str = row.try_get("report").attempting(ACTION)?;
        Ok(Some((
            Timestamp::from_micros(tidied_at),
            from_json(report, ACTION)?,
        )))
    }
}

impl Sqlite {
    async fn remove(&self, sql: &'static str, keep_ms: Option<u64>) -> Result<u64, StoreError> {
        let mut tx = self.write(TIDYING).await?;
        let mut query = sqlx::query(sql);
        if let Some(keep_ms) = keep_ms {
            query = query.bind(bounded(keep_ms));
        }
        let query = query.bind(self.now()).bind(ROWS_MAX);
        let done = query.execute(tx.connection()).await.attempting(TIDYING)?;
        tx.commit(TIDYING).await?;
        Ok(done.rows_affected())
    }

    async fn find_oldest(
        &self,
        retention: Retention,
        report: &mut UpkeepReport,
    ) -> Result<(), StoreError> {
        let found = sqlx::query(OLDEST)
            .bind(bounded(retention.log_ms))
            .bind(self.now())
            .fetch_optional(self.reads())
            .await
            .attempting(TIDYING)?;
        let Some(row) = found else { return Ok(()) };
        let recorded_at = row.try_get("recorded_at").attempting(TIDYING)?;
        report.log_oldest_at = Some(Timestamp::from_micros(recorded_at));
        if !row.try_get::<bool, _>("is_old").attempting(TIDYING)? {
            return Ok(());
        }
        let behind: Option<String> = row.try_get("behind").attempting(TIDYING)?;
        let deferred: Option<String> = row.try_get("deferred").attempting(TIDYING)?;
        let replayed: Option<i64> = row.try_get("replayed").attempting(TIDYING)?;
        report.held_back_by = match (behind, deferred, replayed) {
            (Some(name), ..) => Some(format!("subscription {name} has not come past it")),
            (None, Some(name), _) => Some(format!("a deferred message of subscription {name}")),
            (None, None, Some(campaign)) => Some(format!("replay campaign {campaign}")),
            (None, None, None) => None,
        };
        Ok(())
    }

    /// What keeps the oldest row of the ledger beyond its memory.
    async fn ledger_held_by(&self, retention: Retention) -> Result<Option<String>, StoreError> {
        let found = sqlx::query(LEDGER_HELD)
            .bind(bounded(retention.ledger_ms))
            .bind(self.now())
            .fetch_optional(self.reads())
            .await
            .attempting(TIDYING)?;
        let Some(row) = found else { return Ok(None) };
        let behind: Option<String> = row.try_get("behind").attempting(TIDYING)?;
        let deferred: Option<String> = row.try_get("deferred").attempting(TIDYING)?;
        let cased: Option<i64> = row.try_get("cased").attempting(TIDYING)?;
        let replayed: Option<i64> = row.try_get("replayed").attempting(TIDYING)?;
        let reason = match (behind, deferred, cased, replayed) {
            (Some(name), ..) => format!("subscription {name} has not come past it"),
            (None, Some(name), ..) => format!("a deferred message of subscription {name}"),
            (None, None, Some(case), _) => format!("case {case}"),
            (None, None, None, Some(campaign)) => format!("replay campaign {campaign}"),
            (None, None, None, None) => return Ok(None),
        };
        Ok(Some(format!("the ledger is needed: {reason}")))
    }
}

/// Milliseconds that can be made microseconds.
fn bounded(ms: u64) -> i64 {
    int(ms).min(i64::MAX / 4_000)
}
