//! The database's clock.

use onceward_core::Timestamp;
use onceward_core::store::{StoreError, Time};

use crate::error::while_doing;
use crate::session::{Postgres, Tx, moment};

impl Time for Postgres {
    async fn time(&self, tx: &mut Tx) -> Result<Timestamp, StoreError> {
        let query = sqlx::query_scalar(include_str!("../sql/upkeep/now.sql")).bind(self.now());
        let now = query.fetch_one(tx.connection()).await;
        now.map(moment).map_err(while_doing("ask for the time"))
    }
}
