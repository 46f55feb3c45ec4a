//! Emptying and dropping whole partitions, never waiting in line for the parent table.

use std::time::Duration;

use onceward_core::store::{Retention, StoreError, StoreErrorKind, UpkeepReport};
use onceward_core::{Position, Snapshot};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::era::{Carrier, eras};
use crate::error::{failed, while_doing};
use crate::log::array;
use crate::positions::{KeptLane, Records};
use crate::session::Postgres;
use crate::upkeep::{ACTION, bounded_ms};

/// A detachment waits for transactions that use the table, in milliseconds; then it is called off
/// and finished in a later round.
const DETACH_MS: u64 = 2_000;
/// Most leaves that one round drops.
const LEAVES_MAX: i64 = 25;

/// A closed range of the log that is old enough to go.
struct Closed {
    first: i64,
    next: i64,
    leaf: String,
    closing_xmax: u64,
    deferred_by: Option<String>,
    replayed_by: Option<i64>,
    era_floor: i64,
}

impl Closed {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let xmax: String = row.try_get("closing_xmax")?;
        Ok(Self {
            first: row.try_get("first")?,
            next: row.try_get("next")?,
            leaf: row.try_get("leaf")?,
            closing_xmax: xmax
                .parse()
                .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
            deferred_by: row.try_get("deferred_by")?,
            replayed_by: row.try_get("replayed_by")?,
            era_floor: row.try_get("era_floor")?,
        })
    }
}

/// How far the subscription that is furthest behind has come.
pub(crate) struct Horizon {
    /// All transactions below this are behind every position.
    xmin: u64,
    subscription: Option<String>,
    /// The least snapshot that any position has behind it; without lanes there is none.
    least: Option<Snapshot>,
}

impl Horizon {
    /// The end of the least snapshot and what was open then, as texts. Without lanes everything is
    /// behind.
    pub(crate) fn least(&self) -> (String, String) {
        match &self.least {
            Some(least) => (least.xmax.to_string(), array(&least.xip)),
            None => (u64::MAX.to_string(), array(&[])),
        }
    }

    /// Notes where a lane stands.
    fn note(&mut self, subscription: String, position: Position) {
        let is_sealed = position.within.as_ref().is_some_and(|w| w.until.is_seal());
        let after = if is_sealed {
            Snapshot::origin()
        } else {
            position.after
        };
        let xmin = if is_sealed { 0 } else { after.xmin };
        if xmin < self.xmin {
            self.xmin = xmin;
            self.subscription = Some(subscription);
        }
        // Snapshots of one cluster are ordered: what one sees, every later one sees too.
        let order = |snapshot: &Snapshot| (snapshot.xmax, usize::MAX - snapshot.xip.len());
        if self.least.as_ref().is_none_or(|l| order(&after) < order(l)) {
            self.least = Some(after);
        }
    }
}

impl Horizon {
    /// Why a range has to stay, if it has to.
    fn holds(&self, range: &Closed) -> Option<String> {
        if let Some(name) = &range.deferred_by {
            return Some(format!("a deferred message of subscription {name}"));
        }
        if let Some(campaign) = range.replayed_by {
            return Some(format!("replay campaign {campaign}"));
        }
        // Every position beyond a seal is past all rows under it.
        let is_sealed = range.next <= range.era_floor + 1;
        let needed = if is_sealed { 1 } else { range.closing_xmax };
        match &self.subscription {
            Some(name) if self.xmin < needed => {
                Some(format!("subscription {name} has not come past it"))
            }
            _ => None,
        }
    }
}

enum Emptied {
    Yes,
    InUse,
    Needed,
}

impl Postgres {
    /// Empties closed ranges, oldest first, as long as nothing needs them.
    pub(crate) async fn empty_log(
        &self,
        retention: Retention,
        horizon: &Horizon,
        report: &mut UpkeepReport,
    ) -> Result<(), StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query(include_str!("../sql/upkeep/closed_ranges.sql"))
            .bind(self.now())
            .bind(bounded_ms(retention.log_ms));
        let rows = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.roll_back().await;
        let closed: Result<Vec<_>, sqlx::Error> = rows.iter().map(Closed::read).collect();
        let closed = closed.map_err(while_doing(ACTION))?;
        for range in &closed {
            if let Some(reason) = horizon.holds(range) {
                report.held_back_by.get_or_insert(reason);
                continue;
            }
            match self.empty(range, horizon).await? {
                Emptied::Yes => report.log_removed += 1,
                Emptied::InUse => {
                    let text = format!("another session uses {} (a dump?)", range.leaf);
                    report.held_back_by.get_or_insert(text);
                }
                Emptied::Needed => {
                    let text = format!("{} was written to after its time", range.leaf);
                    report.held_back_by.get_or_insert(text);
                }
            }
        }
        Ok(())
    }

    /// The least that any lane of any subscription has behind it.
    pub(crate) async fn horizon(&self) -> Result<Horizon, StoreError> {
        self.horizon_of(None).await
    }

    /// The same of one subscription.
    pub(crate) async fn horizon_of(&self, only: Option<&str>) -> Result<Horizon, StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let connection = tx.connection();
        let mut carrier = Carrier::new(eras(connection).await?);
        let mut records = Records::default();
        let query = sqlx::query(include_str!("../sql/upkeep/lane_positions.sql"));
        let rows = query
            .fetch_all(&mut *connection)
            .await
            .map_err(while_doing(ACTION))?;
        let mut horizon = Horizon {
            xmin: u64::MAX,
            subscription: None,
            least: None,
        };
        for row in &rows {
            let subscription: String = row.try_get("subscription").map_err(while_doing(ACTION))?;
            if only.is_some_and(|only| only != subscription) {
                continue;
            }
            let kept = KeptLane::read(row)?;
            let stand = records.stand(connection, &subscription, &kept).await?;
            let position = carrier.carry(connection, stand.position).await?;
            horizon.note(subscription, position);
        }
        tx.roll_back().await;
        Ok(horizon)
    }

    /// Empties one leaf if it can be locked at once.
    async fn empty(&self, range: &Closed, horizon: &Horizon) -> Result<Emptied, StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let lock = format!(
            "lock table only onceward.{} in access exclusive mode nowait",
            quoted(&range.leaf)
        );
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(lock))
            .execute(tx.connection())
            .await
        {
            tx.roll_back().await;
            let error = failed(ACTION, error);
            let is_busy = error.kind() == StoreErrorKind::Conflict;
            return if is_busy {
                Ok(Emptied::InUse)
            } else {
                Err(error)
            };
        }
        // With the lock nobody writes there. A session that kept numbers of the range in advance
        // may have written after the range was closed.
        let is_sealed = range.next <= range.era_floor + 1;
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/newest_xid.sql"))
            .bind(range.first)
            .bind(range.next);
        let newest: String = query
            .fetch_one(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let newest: u64 = newest.parse().unwrap_or(u64::MAX);
        if !is_sealed && newest >= horizon.xmin {
            tx.roll_back().await;
            return Ok(Emptied::Needed);
        }
        let query = sqlx::query(include_str!("../sql/upkeep/note_emptied.sql"))
            .bind(&range.leaf)
            .bind(self.now());
        let noted = query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        if noted.rows_affected() == 0 {
            tx.roll_back().await;
            return Ok(Emptied::Needed);
        }
        let truncate = format!("truncate table only onceward.{}", quoted(&range.leaf));
        let done = sqlx::raw_sql(AssertSqlSafe(truncate))
            .execute(tx.connection())
            .await;
        done.map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        Ok(Emptied::Yes)
    }

    /// Drops emptied ranges, and old days of the ledger that nothing can ask for any more.
    pub(crate) async fn drop_leaves(
        &self,
        retention: Retention,
        horizon: &Horizon,
        report: &mut UpkeepReport,
    ) -> Result<(), StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/detached_leaves.sql"));
        let left: Vec<String> = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        let query =
            sqlx::query_scalar(include_str!("../sql/upkeep/emptied_ranges.sql")).bind(LEAVES_MAX);
        let mut ranges: Vec<String> = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        // A statement of its own, after the last writer was seen to be over: it sees all rows that
        // there will ever be.
        let query =
            sqlx::query_scalar(include_str!("../sql/upkeep/reopen_ranges.sql")).bind(self.now());
        let reopened: Vec<String> = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        ranges.retain(|leaf| !reopened.contains(leaf));
        let (xmax, xip) = horizon.least();
        let query = sqlx::query(include_str!("../sql/upkeep/old_days.sql"))
            .bind(self.now())
            .bind(bounded_ms(retention.ledger_ms))
            .bind(LEAVES_MAX)
            .bind(xmax)
            .bind(xip)
            .bind(&horizon.subscription);
        let rows = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        let mut days = Vec::new();
        for row in &rows {
            let leaf: String = row.try_get("leaf").map_err(while_doing(ACTION))?;
            match row.try_get("held_by").map_err(while_doing(ACTION))? {
                None => days.push(leaf),
                Some::<String>(reason) => {
                    let text = format!("{leaf} is needed: {reason}");
                    report.held_back_by.get_or_insert(text);
                }
            }
        }
        report.has_more |= days.len() as i64 > LEAVES_MAX;
        for leaf in left.iter().chain(&ranges).chain(&days) {
            if !self.drop_leaf(leaf).await? {
                // The transaction that is in the way here is in the way of the others too.
                report.has_more = false;
                break;
            }
            if days.contains(leaf) {
                report.ledger_removed += 1;
            }
        }
        Ok(())
    }

    /// Detaches and drops a leaf. Returns false when somebody is in the way.
    async fn drop_leaf(&self, leaf: &str) -> Result<bool, StoreError> {
        let mut tx = self.upkeep_tx().await?;
        let query = sqlx::query(include_str!("../sql/upkeep/attachment.sql")).bind(leaf);
        let found = query
            .fetch_optional(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.roll_back().await;
        if let Some(row) = found {
            let is_pending: bool = row.try_get("is_pending").map_err(while_doing(ACTION))?;
            let parent = if leaf.starts_with("ledger_") {
                "ledger"
            } else {
                "outbox"
            };
            let how = if is_pending {
                "finalize"
            } else {
                "concurrently"
            };
            let statement = format!(
                "alter table onceward.{parent} detach partition onceward.{} {how}",
                quoted(leaf)
            );
            if !self.patiently(statement).await? {
                return Ok(false);
            }
        }
        let mut tx = self.upkeep_tx().await?;
        let drop = format!("drop table if exists onceward.{}", quoted(leaf));
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(drop))
            .execute(tx.connection())
            .await
        {
            tx.roll_back().await;
            let error = failed(ACTION, error);
            let is_busy = error.kind() == StoreErrorKind::Conflict;
            return if is_busy { Ok(false) } else { Err(error) };
        }
        let query = sqlx::query(include_str!("../sql/upkeep/forget_range.sql")).bind(leaf);
        query
            .execute(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.commit(ACTION).await?;
        Ok(true)
    }

    /// Runs a statement that may not be in a transaction, and calls it off when it takes too long.
    /// It holds no lock that an append would wait for.
    async fn patiently(&self, statement: String) -> Result<bool, StoreError> {
        let connection = self.reads.acquire().await.map_err(while_doing(ACTION))?;
        let mut connection = connection.detach();
        let query = statement.clone();
        let run = async move {
            let done = sqlx::raw_sql(AssertSqlSafe(query))
                .execute(&mut connection)
                .await;
            // Detached from the pool, so that a statement called off leaves nothing behind there.
            let _ = connection.close().await;
            done
        };
        let mut task = tokio::spawn(run);
        let limit = Duration::from_millis(DETACH_MS);
        let done = match tokio::time::timeout(limit, &mut task).await {
            Ok(done) => done,
            Err(_) => {
                let mut tx = self.upkeep_tx().await?;
                let query = sqlx::query(include_str!("../sql/upkeep/cancel.sql")).bind(statement);
                query
                    .execute(tx.connection())
                    .await
                    .map_err(while_doing(ACTION))?;
                tx.commit(ACTION).await?;
                task.await
            }
        };
        match done.map_err(|error| StoreError::new(StoreErrorKind::Other, ACTION, error))? {
            Ok(_) => Ok(true),
            Err(error) => {
                // Called off (57014), or another leaf's detachment is still pending (55000).
                let code = error
                    .as_database_error()
                    .and_then(|e| e.code().map(|c| c.into_owned()));
                match code.as_deref() {
                    Some("57014" | "55000" | "55P03" | "40P01") => Ok(false),
                    _ => Err(failed(ACTION, error)),
                }
            }
        }
    }
}

/// A table's name as an identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
