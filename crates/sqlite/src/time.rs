//! The database's clock.

use onceward_core::Timestamp;
use onceward_core::store::{StoreError, Time};

use crate::Sqlite;
use crate::effects::Tx;
use crate::error::Attempt;

const NOW: &str = include_str!("../sql/effects/now.sql");

impl Time for Sqlite {
    async fn time(&self, tx: &mut Tx) -> Result<Timestamp, StoreError> {
        let query = sqlx::query_scalar(NOW).bind(self.now());
        let now = query.fetch_one(tx.connection()).await;
        now.map(Timestamp::from_micros)
            .attempting("ask for the time")
    }
}
