//! The versions of aggregates in the ledger.

use onceward_core::Identity;
use onceward_core::store::{LastVersions, StoreError, Versions};

use crate::Sqlite;
use crate::effects::Tx;
use crate::error::Attempt;

const LAST: &str = include_str!("../sql/versions/last.sql");
const LAST_OPERATION: &str = include_str!("../sql/versions/last_operation.sql");

impl Versions for Sqlite {
    async fn last_versions(
        &self,
        tx: &mut Tx,
        request: LastVersions<'_>,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        let statement = match request.identity {
            Identity::Operation => LAST_OPERATION,
            Identity::Message | Identity::Seq => LAST,
        };
        let mut last = Vec::with_capacity(request.keys.len());
        for key in request.keys {
            let query = sqlx::query_scalar(statement)
                .bind(request.subscription)
                .bind(&key.aggregate.aggregate_id)
                .bind(&key.aggregate.aggregate_type)
                .bind(&key.source)
                .bind(key.generation);
            let found = query.fetch_optional(tx.connection()).await;
            last.push(found.attempting("look the last versions up")?);
        }
        Ok(last)
    }
}
