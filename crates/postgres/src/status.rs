//! What an operator or a caller may ask.

use std::collections::BTreeMap;

use onceward_core::hold::HoldLimits;
use onceward_core::store::{
    Backlog, BacklogQuery, CaseState, DeferredCounts, DropCount, DropCountQuery, Dropped,
    DroppedQuery, HeldQuery, LaneOwner, LongHeld, MessageState, MessageStatus, OperationQuery,
    Status, StillBecause, StillNow, StoreError, StoreErrorKind, Terms,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::cases::read_state;
use crate::deferrals::{read_failure, read_spent};
use crate::dropped;
use crate::effects::read_ending;
use crate::era::{Eras, eras};
use crate::error::while_doing;
use crate::lanes::read_rate;
use crate::positions::{KeptLane, Records};
use crate::replay::parsed;
use crate::row::read_attributes;
use crate::session::{Postgres, moment};
use crate::waiting::count_waiting;

const FOLLOW: &str = "follow an operation";
const COUNT: &str = "count the backlog";

impl Status for Postgres {
    async fn operation(&self, query: OperationQuery<'_>) -> Result<Vec<MessageStatus>, StoreError> {
        let mut tx = self.question_tx(FOLLOW).await?;
        let connection = tx.connection();
        let statement = sqlx::query(include_str!("../sql/status/operation.sql"))
            .bind(query.operation)
            .bind(i64::from(query.rows_max));
        let rows = statement
            .fetch_all(&mut *connection)
            .await
            .map_err(while_doing(FOLLOW))?;
        let mut follower = Follower {
            eras: eras(connection).await?,
            records: Records::default(),
            now: self.now(),
        };
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let message = Found::read(row).map_err(while_doing(FOLLOW))?;
            found.push(follower.follow(connection, message).await?);
        }
        tx.roll_back().await;
        Ok(found)
    }

    async fn subscriptions(&self) -> Result<Vec<String>, StoreError> {
        const ACTION: &str = "list subscriptions";
        let mut tx = self.read_tx(ACTION).await?;
        let query = sqlx::query_scalar(include_str!("../sql/status/subscriptions.sql"));
        let names = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(ACTION))?;
        tx.roll_back().await;
        Ok(names)
    }

    async fn backlog(&self, query: BacklogQuery<'_>) -> Result<Backlog, StoreError> {
        let mut tx = self.question_tx(COUNT).await?;
        let connection = tx.connection();
        let statement = sqlx::query(include_str!("../sql/status/counts.sql"))
            .bind(query.subscription)
            .bind(self.now());
        let counts = statement
            .fetch_optional(&mut *connection)
            .await
            .map_err(while_doing(COUNT))?;
        let Some(counts) = counts else {
            let text = format!("no subscription is called {:?}", query.subscription);
            return Err(StoreError::found(StoreErrorKind::Refused, COUNT, text));
        };
        let statement = sqlx::query(include_str!("../sql/status/lanes.sql"))
            .bind(query.subscription)
            .bind(self.now());
        let lanes = statement
            .fetch_all(&mut *connection)
            .await
            .map_err(while_doing(COUNT))?;
        let mut backlog =
            read_backlog(query.subscription, &counts, &lanes).map_err(while_doing(COUNT))?;
        count_waiting(connection, &query, &counts, &lanes, &mut backlog).await?;
        tx.roll_back().await;
        Ok(backlog)
    }

    async fn longest_held(&self, query: HeldQuery<'_>) -> Result<Vec<LongHeld>, StoreError> {
        let mut tx = self.question_tx(COUNT).await?;
        let limit = |of: fn(HoldLimits) -> u64| {
            query
                .beyond
                .map(|limits| i64::try_from(of(limits)).unwrap_or(i64::MAX))
        };
        let statement = sqlx::query(include_str!("../sql/status/held_longest.sql"))
            .bind(query.subscription)
            .bind(self.now())
            .bind(limit(|limits| limits.depth))
            // More than a hundred years cannot be taken off a moment.
            .bind(limit(|limits| limits.age_ms).map(|ms| ms.min(MAX_AGE_MS)))
            .bind(i64::from(query.keys_max));
        let rows = statement.fetch_all(tx.connection()).await;
        let rows = rows.map_err(while_doing(COUNT))?;
        tx.roll_back().await;
        let keys: Result<_, sqlx::Error> = rows.iter().map(read_long_held).collect();
        keys.map_err(while_doing(COUNT))
    }

    async fn dropped(&self, query: DroppedQuery<'_>) -> Result<Vec<Dropped>, StoreError> {
        dropped::list(self, query).await
    }

    async fn drop_counts(&self, query: DropCountQuery<'_>) -> Result<Vec<DropCount>, StoreError> {
        dropped::count(self, query).await
    }
}

/// A hundred years.
const MAX_AGE_MS: i64 = 100 * 366 * 86_400_000;

fn read_long_held(row: &PgRow) -> Result<LongHeld, sqlx::Error> {
    let held_since = moment(row.try_get("held_since")?);
    let now = moment(row.try_get("now")?);
    Ok(LongHeld {
        key: row.try_get("key")?,
        depth: row.try_get::<i64, _>("depth")? as u64,
        held_since,
        behind: row.try_get("behind")?,
        case_id: row.try_get("case_id")?,
        age_ms: u64::try_from(now.millis_since(held_since)).unwrap_or(0),
    })
}

/// A message of an operation.
struct Found {
    attributes: BTreeMap<String, String>,
    xid: u64,
    seq: i64,
    slot: i16,
    status: MessageStatus,
}

impl Found {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let xid: String = row.try_get("xid")?;
        Ok(Self {
            attributes: read_attributes(row.try_get("headers")?)?,
            xid: xid
                .parse()
                .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
            seq: row.try_get("seq")?,
            slot: row.try_get("slot")?,
            status: MessageStatus {
                id: row.try_get("id")?,
                source: row.try_get("source")?,
                message_type: row.try_get("type")?,
                operation: row.try_get("operation")?,
                subject: row.try_get("aggregateid")?,
                recorded_at: moment(row.try_get("recorded_at")?),
                subscriptions: Vec::new(),
            },
        })
    }
}

/// What is the same for all messages of one question.
struct Follower {
    eras: Eras,
    records: Records,
    now: Option<i64>,
}

impl Follower {
    async fn follow(
        &mut self,
        connection: &mut PgConnection,
        mut message: Found,
    ) -> Result<MessageStatus, StoreError> {
        let query = sqlx::query(include_str!("../sql/status/interested.sql"))
            .bind(message.seq)
            .bind(&message.status.message_type)
            .bind(message.status.recorded_at.as_micros())
            .bind(i32::from(message.slot))
            .bind(self.now);
        let interested = query
            .fetch_all(&mut *connection)
            .await
            .map_err(while_doing(FOLLOW))?;
        for row in &interested {
            let subscription: String = row.try_get("subscription").map_err(while_doing(FOLLOW))?;
            let state = match held_up(row).map_err(while_doing(FOLLOW))? {
                Some(state) => state,
                None => match finished(connection, &message, &subscription)
                    .await?
                    .map_or_else(|| resolved(row), |state| Ok(Some(state)))
                    .map_err(while_doing(FOLLOW))?
                {
                    Some(state) => state,
                    None => {
                        self.on_its_way(connection, &message, &subscription, row)
                            .await?
                    }
                },
            };
            message.status.subscriptions.push((subscription, state));
        }
        Ok(message.status)
    }

    /// Delivered or pending, by the position of the message's lane.
    async fn on_its_way(
        &mut self,
        connection: &mut PgConnection,
        message: &Found,
        subscription: &str,
        row: &PgRow,
    ) -> Result<MessageState, StoreError> {
        let kept = KeptLane::read(row)?;
        let stand = self.records.stand(connection, subscription, &kept).await?;
        let terms = row.try_get("terms").and_then(parsed::<Terms>);
        let terms = terms.map_err(while_doing(FOLLOW))?;
        let of = &message.status.message_type;
        let position = terms.position_of(&stand, of, &message.attributes);
        let is_past = self.eras.is_past(position, message.xid, message.seq as u64);
        Ok(if is_past {
            MessageState::Delivered
        } else {
            MessageState::Pending
        })
    }
}

fn case_of(row: &PgRow) -> Result<Option<(i64, CaseState)>, sqlx::Error> {
    let Some(case_id) = row.try_get("case_id")? else {
        return Ok(None);
    };
    Ok(Some((case_id, read_state(row.try_get("state")?)?)))
}

/// What somebody made of its case, where that is not another run.
fn resolved(row: &PgRow) -> Result<Option<MessageState>, sqlx::Error> {
    let case = case_of(row)?.filter(|(_, state)| *state != CaseState::Replayed);
    Ok(case.map(|(case_id, resolution)| MessageState::Resolved {
        case_id,
        resolution,
    }))
}

/// Quarantined or deferred.
fn held_up(row: &PgRow) -> Result<Option<MessageState>, sqlx::Error> {
    if let Some((case_id, state)) = case_of(row)?
        && state.is_live()
    {
        let reason = row.try_get("reason")?;
        return Ok(Some(MessageState::Quarantined { case_id, reason }));
    }
    let Some(kind) = row.try_get("kind")? else {
        return Ok(None);
    };
    Ok(Some(MessageState::Deferred {
        kind,
        due_at: row.try_get::<Option<i64>, _>("due_at")?.map(moment),
        spent: read_spent(row)?,
        failure: read_failure(row.try_get("failure")?)?,
    }))
}

async fn finished(
    connection: &mut PgConnection,
    message: &Found,
    subscription: &str,
) -> Result<Option<MessageState>, StoreError> {
    let status = &message.status;
    let query = sqlx::query(include_str!("../sql/status/finished.sql"))
        .bind(subscription)
        .bind(&status.source)
        .bind(&status.message_type)
        .bind(&status.id)
        .bind(message.seq.to_string())
        .bind(&status.operation)
        .bind(status.recorded_at.as_micros());
    let row = query
        .fetch_optional(connection)
        .await
        .map_err(while_doing(FOLLOW))?;
    let read = |row: PgRow| {
        let ending = read_ending(row.try_get("ending")?);
        let finished_at = moment(row.try_get("finished_at")?);
        Ok(MessageState::finished(
            ending,
            finished_at,
            row.try_get("result")?,
        ))
    };
    row.map(read).transpose().map_err(while_doing(FOLLOW))
}

fn read_still(counts: &PgRow) -> Result<Option<StillNow>, sqlx::Error> {
    let because: Option<&str> = counts.try_get("still_because")?;
    let since: Option<i64> = counts.try_get("still_since")?;
    let until: Option<i64> = counts.try_get("still_until")?;
    let said = because.and_then(StillBecause::parse).zip(since);
    Ok(said.map(|(because, since)| StillNow {
        because,
        since: moment(since),
        until: until.map(moment),
    }))
}

fn read_backlog(
    subscription: &str,
    counts: &PgRow,
    lanes: &[PgRow],
) -> Result<Backlog, sqlx::Error> {
    let count = |name| Ok::<_, sqlx::Error>(counts.try_get::<i64, _>(name)? as u64);
    let lanes = lanes.iter().map(|row| {
        Ok(LaneOwner {
            lane: row.try_get::<i32, _>("lane")? as u16,
            owner: row.try_get("description")?,
            is_live: row.try_get("is_live")?,
        })
    });
    Ok(Backlog {
        subscription: subscription.to_owned(),
        waiting: 0,
        waiting_is_lower_bound: false,
        waiting_before: 0,
        types: counts.try_get("types")?,
        oldest_waiting_at: None,
        groups: Vec::new(),
        deferred: DeferredCounts {
            retry: count("retry")?,
            held: count("held")?,
            running: count("running")?,
            operator: count("operator")?,
            gap: count("gap")?,
        },
        oldest_deferred_at: counts
            .try_get::<Option<i64>, _>("oldest_deferred_at")?
            .map(moment),
        due_since: counts.try_get::<Option<i64>, _>("due_since")?.map(moment),
        quarantined: count("quarantined")?,
        paused_at: counts.try_get::<Option<i64>, _>("paused_at")?.map(moment),
        still: read_still(counts)?,
        rate: read_rate(counts)?,
        lanes: lanes.collect::<Result<_, sqlx::Error>>()?,
        now: moment(counts.try_get("now")?),
    })
}
