//! The database's clock.

use onceward_core::Timestamp;
use onceward_core::shed::Paused;
use onceward_core::store::{Pauses, StoreError, Time};
use sqlx::Row as _;

use crate::Sqlite;
use crate::effects::Tx;
use crate::error::Attempt;

const NOW: &str = include_str!("../sql/effects/now.sql");
const PAUSES: &str = include_str!("../sql/effects/pauses.sql");

impl Time for Sqlite {
    async fn time(&self, tx: &mut Tx) -> Result<Timestamp, StoreError> {
        let query = sqlx::query_scalar(NOW).bind(self.now());
        let now = query.fetch_one(tx.connection()).await;
        now.map(Timestamp::from_micros)
            .attempting("ask for the time")
    }

    async fn pauses(&self, tx: &mut Tx, request: Pauses<'_>) -> Result<Vec<Paused>, StoreError> {
        const ACTION: &str = "look for pauses";
        let query = sqlx::query(PAUSES)
            .bind(request.subscription)
            .bind(request.since.as_micros());
        let rows = query.fetch_all(tx.connection()).await;
        let pauses = rows.attempting(ACTION)?.into_iter().map(|row| {
            let to: Option<i64> = row.try_get("resumed_at")?;
            Ok(Paused {
                from: Timestamp::from_micros(row.try_get("paused_at")?),
                to: to.map(Timestamp::from_micros),
            })
        });
        pauses
            .collect::<Result<_, sqlx::Error>>()
            .attempting(ACTION)
    }
}
