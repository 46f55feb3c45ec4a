//! Retention and room ahead, in small steps behind which no append can wait.

use onceward_core::Timestamp;
use onceward_core::store::{Retention, StoreError, StoreErrorKind, Upkeep, UpkeepReport};
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::retention::Horizon;
use crate::session::{BEGIN, Postgres, Tx, moment};

pub(crate) const ACTION: &str = "tidy";
/// Most rows that one statement removes.
const ROWS_MAX: i64 = 2_000;
/// Rows of the tallies of cases that are not worth being added up.
const TALLIES_KEPT: i64 = 1_000;
/// Most of them that are added up at once.
const TALLIES_MAX: i64 = 100_000;
/// Most days of the ledger that one round makes or drops.
const DAYS_MAX: i64 = 50;
/// Ranges of the log that are kept ahead.
const RANGES_AHEAD: i64 = 8;
/// Sequences in a range, unless a high rate needs wider ones.
const RANGE_WIDTH: i64 = 1 << 36;
/// Room is made for this many days at ten times the highest rate seen.
const ROOM_DAYS: f64 = 40.0;
const SECONDS_PER_DAY: f64 = 86_400.0;
/// The rate is measured over at least this time.
const RATE_SECONDS: f64 = 60.0;
/// The log goes in this many parts of its retention.
const PARTS: u64 = 8;

impl Upkeep for Postgres {
    async fn tidy(&self, retention: Retention) -> Result<UpkeepReport, StoreError> {
        // One round at a time: whoever comes second leaves the work to the first.
        let mut guard = self.open(&self.reads, BEGIN, ACTION).await?;
        let query = sqlx::query(include_str!("../sql/upkeep/guard.sql"));
        let row = query
            .fetch_one(guard.connection())
            .await
            .map_err(while_doing(ACTION))?;
        if !row
            .try_get::<bool, _>("is_mine")
            .map_err(while_doing(ACTION))?
        {
            guard.roll_back().await;
            return Ok(UpkeepReport::default());
        }
        let mut report = UpkeepReport {
            retention: Some(retention),
            ..UpkeepReport::default()
        };
        self.make_ranges(retention, &mut report).await?;
        self.make_days(retention, &mut report).await?;
        let horizon = self.horizon().await?;
        self.empty_log(retention, &horizon, &mut report).await?;
        self.drop_leaves(retention, &horizon, &mut report).await?;
        self.remove_rows(retention, &horizon, &mut report).await?;
        self.find_oldest(&mut report).await?;
        self.save_report(&report).await?;
        guard.roll_back().await;
        Ok(report)
    }

    async fn last_tidy(&self) -> Result<Option<(Timestamp, UpkeepReport)>, StoreError> {
        const ACTION: &str = "read the last upkeep report";
        let mut tx = self.read_tx(ACTION).await?;
        let query = sqlx::query(include_str!("../sql/upkeep/last_report.sql"));
        let row = query
            .fetch_optional(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.roll_back().await;
        let Some(row) = row else {
            return Ok(None);
        };
        let made_at = row.try_get("made_at").map_err(while_doing(ACTION))?;
        let report: &str = row.try_get("report").map_err(while_doing(ACTION))?;
        let report = serde_json::from_str(report)
            .map_err(|error| StoreError::new(StoreErrorKind::Other, ACTION, error))?;
        Ok(Some((moment(made_at), report)))
    }
}

/// Milliseconds that can be subtracted from a moment.
pub(crate) fn bounded_ms(ms: u64) -> i64 {
    const CENTURY_MS: u64 = 100 * 366 * 86_400_000;
    ms.min(CENTURY_MS) as i64
}

/// How far the sequence has come, and what lies ahead of it.
struct Room {
    last: i64,
    made_until: i64,
    ahead: i64,
    rate_seq: i64,
    rate_max: f64,
    rate_seconds: f64,
}

impl Room {
    async fn look(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let query = sqlx::query(include_str!("../sql/upkeep/room.sql"));
        let row = query.fetch_one(connection).await?;
        Ok(Self {
            last: row.try_get("last_value")?,
            made_until: row.try_get("made_until")?,
            ahead: row.try_get("ahead")?,
            rate_seq: row.try_get("rate_seq")?,
            rate_max: row.try_get("rate_max")?,
            rate_seconds: row.try_get("rate_seconds")?,
        })
    }

    /// Sequences per second since the rate was last noted.
    fn rate(&self) -> f64 {
        (self.last - self.rate_seq).max(0) as f64 / self.rate_seconds.max(1.0)
    }

    fn days_ahead(&self) -> Option<f64> {
        let per_day = self.rate_max * 10.0 * SECONDS_PER_DAY;
        (per_day > 0.0).then(|| (self.made_until - self.last) as f64 / per_day)
    }
}

/// How wide the next range has to be so that the ranges ahead hold what they have to.
fn width_for(rate_max: f64) -> i64 {
    let needed = rate_max * 10.0 * ROOM_DAYS * SECONDS_PER_DAY;
    let mut width = RANGE_WIDTH;
    while (width * RANGES_AHEAD) < needed as i64 && width < 1 << 50 {
        width *= 2;
    }
    width
}

impl Postgres {
    pub(crate) async fn upkeep_tx(&self) -> Result<Tx, StoreError> {
        let mut tx = self.open(&self.reads, BEGIN, ACTION).await?;
        let query = sqlx::query(include_str!("../sql/upkeep/lock_timeout.sql"));
        query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        Ok(tx)
    }

    /// Closes what the sequence has left behind, cuts where it is time, and makes room ahead.
    async fn make_ranges(
        &self,
        retention: Retention,
        report: &mut UpkeepReport,
    ) -> Result<(), StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let mut room = Room::look(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let rate = room.rate();
        let is_measured = room.rate_seconds >= RATE_SECONDS;
        room.rate_max = if is_measured {
            room.rate_max.max(rate)
        } else {
            room.rate_max
        };
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/cut.sql"))
            .bind(self.now())
            .bind(bounded_ms(retention.log_ms / PARTS));
        let was_cut: bool = query
            .fetch_one(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        // In a transaction of its own: the snapshot that closes a range is taken after the cut.
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query(include_str!("../sql/upkeep/close_ranges.sql")).bind(self.now());
        query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let after = Room::look(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        if is_measured || was_cut {
            let query = sqlx::query(include_str!("../sql/upkeep/save_rate.sql"))
                .bind(after.last)
                .bind(room.rate_max);
            query
                .execute(tx.connection())
                .await
                .map_err(while_doing(ACTION))?;
        }
        tx.commit(ACTION).await?;
        let width = width_for(room.rate_max);
        let mut made_until = after.made_until;
        for _ in after.ahead..RANGES_AHEAD {
            let mut tx = self.upkeep_tx().await?;
            let query = sqlx::query(include_str!("../sql/upkeep/make_range.sql"))
                .bind(made_until)
                .bind(made_until + width);
            query
                .execute(tx.connection())
                .await
                .map_err(while_doing(ACTION))?;
            tx.commit(ACTION).await?;
            made_until += width;
            report.made_ahead += 1;
        }
        room.made_until = made_until;
        room.last = after.last;
        report.days_ahead = room.days_ahead();
        Ok(())
    }

    async fn make_days(
        &self,
        retention: Retention,
        report: &mut UpkeepReport,
    ) -> Result<(), StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/missing_days.sql"))
            .bind(self.now())
            .bind(bounded_ms(retention.ledger_ms))
            .bind(DAYS_MAX);
        let days: Vec<String> = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        for day in &days {
            let query = sqlx::query(include_str!("../sql/upkeep/make_day.sql")).bind(day);
            query
                .execute(tx.connection())
                .await
                .map_err(while_doing(ACTION))?;
        }
        tx.commit(ACTION).await?;
        report.made_ahead += days.len() as u64;
        report.has_more |= days.len() as i64 == DAYS_MAX;
        Ok(())
    }

    /// Bounded deletes of what is not partitioned.
    async fn remove_rows(
        &self,
        retention: Retention,
        horizon: &Horizon,
        report: &mut UpkeepReport,
    ) -> Result<(), StoreError> {
        let (xmax, xip) = horizon.least();
        let query = sqlx::query(include_str!("../sql/upkeep/remove_operations.sql"))
            .bind(self.now())
            .bind(bounded_ms(retention.operation_ledger_ms))
            .bind(ROWS_MAX)
            .bind(xmax)
            .bind(xip);
        let removed = self.remove(query, report).await?;
        report.ledger_removed += removed;
        for query in [
            sqlx::query(include_str!("../sql/upkeep/remove_acceptances.sql"))
                .bind(self.now())
                .bind(ROWS_MAX),
            sqlx::query(include_str!("../sql/upkeep/remove_members.sql"))
                .bind(self.now())
                .bind(ROWS_MAX),
            sqlx::query(include_str!("../sql/upkeep/remove_pauses.sql"))
                .bind(self.now())
                .bind(ROWS_MAX),
            sqlx::query(include_str!("../sql/upkeep/remove_heartbeats.sql")).bind(ROWS_MAX),
            sqlx::query(include_str!("../sql/upkeep/remove_positions.sql")).bind(ROWS_MAX),
        ] {
            let removed = self.remove(query, report).await?;
            report.records_removed += removed;
        }
        let query = sqlx::query(include_str!("../sql/upkeep/add_tallies.sql"))
            .bind(TALLIES_KEPT)
            .bind(TALLIES_MAX);
        self.remove(query, report).await?;
        Ok(())
    }

    async fn remove(
        &self,
        query: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
        report: &mut UpkeepReport,
    ) -> Result<u64, StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let done = query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        report.has_more |= done.rows_affected() as i64 >= ROWS_MAX;
        Ok(done.rows_affected())
    }

    async fn find_oldest(&self, report: &mut UpkeepReport) -> Result<(), StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/oldest.sql"));
        let oldest: Option<i64> = query
            .fetch_optional(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.roll_back().await;
        report.log_oldest_at = oldest.map(moment);
        Ok(())
    }

    async fn save_report(&self, report: &UpkeepReport) -> Result<(), StoreError> {
        let text = serde_json::to_string(report)
            .map_err(|error| StoreError::new(StoreErrorKind::Other, ACTION, error))?;
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query(include_str!("../sql/upkeep/save_report.sql"))
            .bind(self.now())
            .bind(text);
        query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_with_the_rate() {
        assert_eq!(width_for(0.0), RANGE_WIDTH);
        assert_eq!(width_for(10_000.0), RANGE_WIDTH);
        let width = width_for(1_000_000.0);
        assert!(width * RANGES_AHEAD >= 34_560_000_000_000);
        assert!(width_for(f64::INFINITY) <= 1 << 50);
    }
}
