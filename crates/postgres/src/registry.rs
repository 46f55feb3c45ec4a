//! Subscriptions that get another name, or end.

use onceward_core::case::{Refusal, may_remove};
use onceward_core::store::{Registry, Remove, Removed, Rename, StoreError, StoreErrorKind};
use serde_json::json;
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::operate::{Record, revise};
use crate::schema::{find, rename, run};
use crate::session::Postgres;

const RENAME: &str = "rename a subscription";
const REMOVE: &str = "remove a subscription";

impl Registry for Postgres {
    async fn rename(&self, request: Rename<'_>) -> Result<(), StoreError> {
        let refused = |refusal| StoreError::refused(RENAME, refusal);
        request.by.check().map_err(refused)?;
        self.free_former(request.from).await?;
        let mut tx = self.lease_tx(RENAME).await?;
        let connection = tx.connection();
        run(connection, include_str!("../sql/schema/lock.sql"), RENAME).await?;
        require(connection, request.from, RENAME).await?;
        if find(connection, request.to).await?.is_some() {
            return Err(refused(Refusal::NameTaken));
        }
        rename(connection, request.from, request.to).await?;
        let record = Record {
            by: request.by,
            action: "rename",
            subscription: request.to,
            case_id: None,
            before: json!({ "subscription": request.from }).to_string(),
            after: json!({ "subscription": request.to }).to_string(),
            campaign_id: None,
        };
        record.write(connection, self.now(), RENAME).await?;
        revise(connection, request.to, RENAME).await?;
        tx.commit(RENAME).await
    }

    async fn remove(&self, request: Remove<'_>) -> Result<Removed, StoreError> {
        let subscription = request.subscription;
        self.free_former(subscription).await?;
        let mut tx = self.lease_tx(REMOVE).await?;
        let connection = tx.connection();
        run(connection, include_str!("../sql/schema/lock.sql"), REMOVE).await?;
        require(connection, subscription, REMOVE).await?;
        let query = sqlx::query(include_str!("../sql/registry/left.sql")).bind(subscription);
        let row = query.fetch_one(&mut *connection).await;
        let row = row.map_err(while_doing(REMOVE))?;
        let count = |name| row.try_get::<i64, _>(name).map_err(while_doing(REMOVE));
        let cases = count("cases")? as u64;
        let removed = Removed {
            lanes: count("lanes")? as u64,
            deferred: count("deferred")? as u64,
        };
        let checked = may_remove(
            request.by,
            cases,
            removed.deferred,
            request.discards_deferred,
        );
        checked.map_err(|refusal| StoreError::refused(REMOVE, refusal))?;
        let query = sqlx::query(include_str!("../sql/registry/remove.sql")).bind(subscription);
        let done = query.execute(&mut *connection).await;
        done.map_err(while_doing(REMOVE))?;
        let record = Record {
            by: request.by,
            action: "remove",
            subscription,
            case_id: None,
            before: json!({ "lanes": removed.lanes, "deferred": removed.deferred }).to_string(),
            after: json!({ "lanes": 0, "deferred": 0 }).to_string(),
            campaign_id: None,
        };
        record.write(connection, self.now(), REMOVE).await?;
        tx.commit(REMOVE).await?;
        Ok(removed)
    }
}

async fn require(
    connection: &mut PgConnection,
    subscription: &str,
    action: &'static str,
) -> Result<(), StoreError> {
    let found = find(connection, subscription).await?;
    found.map(|_| ()).ok_or_else(|| {
        let text = format!("no subscription is called {subscription}");
        StoreError::found(StoreErrorKind::Refused, action, text)
    })
}
