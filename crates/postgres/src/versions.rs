//! The versions of aggregates in the ledger.

use onceward_core::Identity;
use onceward_core::store::{LastVersions, StoreError, Versions};
use sqlx::Row as _;

use crate::error::while_doing;
use crate::session::{Postgres, Tx};

impl Versions for Postgres {
    async fn last_versions(
        &self,
        tx: &mut Tx,
        request: LastVersions<'_>,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        const ACTION: &str = "look the last versions up";
        let keys = request.keys;
        let mut last = vec![None; keys.len()];
        if keys.is_empty() {
            return Ok(last);
        }
        let statement = match request.identity {
            Identity::Operation => include_str!("../sql/versions/last_operations.sql"),
            Identity::Message | Identity::Seq => include_str!("../sql/versions/last.sql"),
        };
        let texts = |text: fn(&onceward_core::version::VersionKey) -> &str| -> Vec<&str> {
            keys.iter().map(text).collect()
        };
        let query = sqlx::query(statement)
            .bind(request.subscription)
            .bind(texts(|key| &key.source))
            .bind(texts(|key| &key.aggregate.aggregate_type))
            .bind(texts(|key| &key.aggregate.aggregate_id))
            .bind(
                keys.iter()
                    .map(|key| key.generation as i32)
                    .collect::<Vec<_>>(),
            );
        let rows = query.fetch_all(tx.connection()).await;
        for row in rows.map_err(while_doing(ACTION))? {
            let place: i64 = row.try_get("place").map_err(while_doing(ACTION))?;
            let version = row.try_get("aggregateversion");
            if let Some(found) = last.get_mut(place as usize - 1) {
                *found = Some(version.map_err(while_doing(ACTION))?);
            }
        }
        Ok(last)
    }
}
