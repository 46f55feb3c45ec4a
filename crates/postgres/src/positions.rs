//! Where lanes stand: the place kept with a lane, or its owner's latest record.

use std::collections::HashMap;

use onceward_core::Stand;
use onceward_core::store::{StoreError, StoreErrorKind};
use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::snapshot::read_stand;

const ACTION: &str = "read positions";

/// A span as kept in a position record.
#[derive(Deserialize)]
pub(crate) struct KeptSpan {
    #[serde(rename = "position")]
    pub(crate) stand: Stand,
    lanes: Vec<(u16, u64)>,
}

/// The spans of a record.
pub(crate) fn read_spans(text: &str) -> Result<Vec<KeptSpan>, StoreError> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, ACTION, error))
}

/// A lane's place in the table: columns `lane`, `epoch`, `owner` and `position`.
pub(crate) struct KeptLane {
    pub(crate) lane: u16,
    pub(crate) epoch: u64,
    pub(crate) owner: Option<String>,
    position: String,
}

impl KeptLane {
    pub(crate) fn read(row: &PgRow) -> Result<Self, StoreError> {
        let read = || {
            Ok(Self {
                lane: row.try_get::<i32, _>("lane")? as u16,
                epoch: row.try_get::<i64, _>("epoch")? as u64,
                owner: row.try_get("owner")?,
                position: row.try_get("position")?,
            })
        };
        read().map_err(while_doing(ACTION))
    }
}

/// Where they stand, by lane and epoch.
type ByLane = HashMap<(u16, u64), Stand>;

/// The latest records of owners, each read once.
#[derive(Default)]
pub(crate) struct Records(HashMap<(String, String), ByLane>);

impl Records {
    /// Where a lane stands. A record of another epoch is no news of it.
    pub(crate) async fn stand(
        &mut self,
        connection: &mut PgConnection,
        subscription: &str,
        lane: &KeptLane,
    ) -> Result<Stand, StoreError> {
        if let Some(owner) = &lane.owner {
            let key = (subscription.to_owned(), owner.clone());
            if !self.0.contains_key(&key) {
                let latest = latest(connection, subscription, owner).await?;
                self.0.insert(key.clone(), latest);
            }
            let records = self.0.get(&key);
            if let Some(stand) = records.and_then(|r| r.get(&(lane.lane, lane.epoch))) {
                return Ok(stand.clone());
            }
        }
        read_stand(&lane.position)
    }
}

async fn latest(
    connection: &mut PgConnection,
    subscription: &str,
    member: &str,
) -> Result<ByLane, StoreError> {
    let query = sqlx::query(include_str!("../sql/lanes/latest_position.sql"))
        .bind(subscription)
        .bind(member);
    let row = query
        .fetch_optional(connection)
        .await
        .map_err(while_doing(ACTION))?;
    let Some(row) = row else {
        return Ok(HashMap::new());
    };
    let spans = read_spans(row.try_get("spans").map_err(while_doing(ACTION))?)?;
    let lanes = spans.into_iter().flat_map(|span| {
        let stand = span.stand;
        span.lanes
            .into_iter()
            .map(move |lane| (lane, stand.clone()))
    });
    Ok(lanes.collect())
}
