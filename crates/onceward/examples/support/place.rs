//! What the examples share: a folder of their own, business tables, waiting for an operation.

#![allow(dead_code, reason = "no example needs all of it")]

use std::error::Error;
use std::time::Duration;

use onceward::core::store::{MessageState, OperationQuery, Status};
use onceward::sqlite::Sqlite;

/// A folder that goes with the example.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> std::io::Result<Self> {
        tempfile::tempdir().map(Self)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// The business's own tables, in the same file.
pub(crate) async fn tables(store: &Sqlite, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sql).execute(store.pool()).await.map(|_| ())
}

/// A number from the business's own tables.
pub(crate) async fn count(store: &Sqlite, sql: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql).fetch_one(store.pool()).await
}

/// Waits until every message of an operation has ended in every subscription, and fails when one
/// was quarantined or it takes longer than half a minute. Returns the stored results.
pub(crate) async fn finished<S: Status>(
    store: &S,
    operation: &str,
) -> Result<Vec<Option<String>>, Box<dyn Error>> {
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..3_000 {
        looks.tick().await;
        let query = OperationQuery {
            operation,
            rows_max: 100,
        };
        let messages = store.operation(query).await?;
        let states = messages.into_iter().flat_map(|m| m.subscriptions);
        let mut results = Vec::new();
        let mut is_open = false;
        for (_, state) in states {
            match state {
                MessageState::Finished { result, .. } => results.push(result),
                MessageState::Delivered => results.push(None),
                MessageState::Quarantined { reason, .. } => return Err(reason.into()),
                MessageState::Resolved { resolution, .. } => {
                    return Err(resolution.as_str().into());
                }
                MessageState::Pending | MessageState::Deferred { .. } => is_open = true,
            }
        }
        if !is_open && !results.is_empty() {
            return Ok(results);
        }
    }
    Err(format!("{operation} did not end").into())
}
