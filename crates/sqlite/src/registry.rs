//! Subscriptions that get another name, or end.

use onceward_core::case::{Refusal, may_remove};
use onceward_core::store::{Registry, Remove, Removed, Rename, StoreError, StoreErrorKind};
use serde_json::json;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use crate::Sqlite;
use crate::error::Attempt;
use crate::operate::{Record, revise};
use crate::row::unsigned;
use crate::schema::{find_lanes, rename};

const LEFT: &str = include_str!("../sql/registry/left.sql");
const REMOVES: [&str; 4] = [
    include_str!("../sql/registry/remove_deferral.sql"),
    include_str!("../sql/registry/remove_lane.sql"),
    include_str!("../sql/registry/remove_pause.sql"),
    include_str!("../sql/registry/remove_subscription.sql"),
];

const RENAMING: &str = "rename a subscription";
const REMOVING: &str = "remove a subscription";

impl Registry for Sqlite {
    async fn rename(&self, request: Rename<'_>) -> Result<(), StoreError> {
        let refused = |refusal| StoreError::refused(RENAMING, refusal);
        request.by.check().map_err(refused)?;
        let mut tx = self.write(RENAMING).await?;
        let connection = tx.connection();
        require(connection, request.from, RENAMING).await?;
        if find_lanes(connection, request.to).await?.is_some() {
            return Err(refused(Refusal::NameTaken));
        }
        self.free_former(connection, request.from).await?;
        rename(connection, request.from, request.to).await?;
        let record = Record {
            by: request.by,
            action: "rename",
            subscription: request.to,
            case_id: None,
            before: json!({ "subscription": request.from }).to_string(),
            after: json!({ "subscription": request.to }).to_string(),
        };
        record.write(connection, self.now(), RENAMING).await?;
        revise(connection, request.to, RENAMING).await?;
        tx.commit(RENAMING).await
    }

    async fn remove(&self, request: Remove<'_>) -> Result<Removed, StoreError> {
        let subscription = request.subscription;
        let mut tx = self.write(REMOVING).await?;
        let connection = tx.connection();
        require(connection, subscription, REMOVING).await?;
        self.free_former(connection, subscription).await?;
        let left = sqlx::query(LEFT).bind(subscription);
        let row = left.fetch_one(&mut *connection).await;
        let row = row.attempting(REMOVING)?;
        let count = |name| row.try_get::<i64, _>(name).attempting(REMOVING);
        let cases = unsigned(count("cases")?);
        let removed = Removed {
            lanes: unsigned(count("lanes")?),
            deferred: unsigned(count("deferred")?),
        };
        let checked = may_remove(
            request.by,
            cases,
            removed.deferred,
            request.discards_deferred,
        );
        checked.map_err(|refusal| StoreError::refused(REMOVING, refusal))?;
        for statement in REMOVES {
            let remove = sqlx::query(statement).bind(subscription);
            let done = remove.execute(&mut *connection).await;
            done.attempting(REMOVING)?;
        }
        let record = Record {
            by: request.by,
            action: "remove",
            subscription,
            case_id: None,
            before: json!({ "lanes": removed.lanes, "deferred": removed.deferred }).to_string(),
            after: json!({ "lanes": 0, "deferred": 0 }).to_string(),
        };
        record.write(connection, self.now(), REMOVING).await?;
        tx.commit(REMOVING).await?;
        Ok(removed)
    }
}

async fn require(
    connection: &mut SqliteConnection,
    subscription: &str,
    action: &'static str,
) -> Result<(), StoreError> {
    let found = find_lanes(connection, subscription).await?;
    found.map(|_| ()).ok_or_else(|| {
        let text = format!("no subscription is called {subscription}");
        StoreError::found(StoreErrorKind::Refused, action, text)
    })
}
