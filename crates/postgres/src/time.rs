//! The database's clock.

use onceward_core::Timestamp;
use onceward_core::shed::Paused;
use onceward_core::store::{Pauses, StoreError, Time};
use sqlx::Row as _;

use crate::error::while_doing;
use crate::session::{Postgres, Tx, moment};

impl Time for Postgres {
    async fn time(&self, tx: &mut Tx) -> Result<Timestamp, StoreError> {
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/now.sql")).bind(self.now());
        let now = query.fetch_one(tx.connection()).await;
        now.map(moment).map_err(while_doing("ask for the time"))
    }

    async fn pauses(&self, tx: &mut Tx, request: Pauses<'_>) -> Result<Vec<Paused>, StoreError> {
        const ACTION: &str = "look for pauses";
        let query = sqlx::query(include_str!("../sql/effects/pauses.sql"))
            .bind(request.subscription)
            .bind(request.since.as_micros());
        let rows = query.fetch_all(tx.connection()).await;
        let pauses = rows.map_err(while_doing(ACTION))?.into_iter().map(|row| {
            Ok(Paused {
                from: moment(row.try_get("paused_at")?),
                to: row.try_get::<Option<i64>, _>("resumed_at")?.map(moment),
            })
        });
        pauses
            .collect::<Result<_, sqlx::Error>>()
            .map_err(while_doing(ACTION))
    }
}
