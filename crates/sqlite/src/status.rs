//! What an operator or a caller may ask.

use futures_util::TryStreamExt;
use onceward_core::Timestamp;
use onceward_core::hold::HoldLimits;
use onceward_core::lane::{lane_of, slot_of};
use onceward_core::store::{
    Backlog, BacklogQuery, CaseState, DeferredCounts, DropCount, DropCountQuery, Dropped,
    DroppedQuery, HeldQuery, LaneOwner, LongHeld, MessageState, MessageStatus, OperationQuery,
    Status, StillBecause, StillNow, StoreError, StoreErrorKind,
};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::Sqlite;
use crate::cases::case_state;
use crate::dropped;
use crate::effects::ending;
use crate::error::Attempt;
use crate::row::{failure, int, rate, small, spent, text, unsigned};

const OPERATION: &str = include_str!("../sql/status/operation.sql");
const INTERESTED: &str = include_str!("../sql/status/interested.sql");
const FINISHED: &str = include_str!("../sql/status/finished.sql");
const IS_PAST: &str = include_str!("../sql/status/is_past.sql");
const SUBSCRIPTIONS: &str = include_str!("../sql/status/subscriptions.sql");
const COUNTS: &str = include_str!("../sql/status/counts.sql");
const LANE_OWNERS: &str = include_str!("../sql/status/lane_owners.sql");
const HELD_LONGEST: &str = include_str!("../sql/status/held_longest.sql");
const WAITING: &str = include_str!("../sql/status/waiting.sql");

const FOLLOWING: &str = "follow an operation";
const COUNTING: &str = "count the backlog";

impl Status for Sqlite {
    async fn operation(&self, query: OperationQuery<'_>) -> Result<Vec<MessageStatus>, StoreError> {
        // One transaction, so that a message cannot be between two states.
        let mut tx = self.reads().begin().await.attempting(FOLLOWING)?;
        let rows = sqlx::query(OPERATION)
            .bind(query.operation)
            .bind(query.rows_max)
            .fetch_all(&mut *tx)
            .await
            .attempting(FOLLOWING)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let message = Found::read(row).attempting(FOLLOWING)?;
            found.push(self.follow(&mut tx, message).await?);
        }
        tx.rollback().await.attempting(FOLLOWING)?;
        Ok(found)
    }

    async fn subscriptions(&self) -> Result<Vec<String>, StoreError> {
        let names = sqlx::query_scalar(SUBSCRIPTIONS).fetch_all(self.reads());
        names.await.attempting("list subscriptions")
    }

    async fn backlog(&self, query: BacklogQuery<'_>) -> Result<Backlog, StoreError> {
        let mut tx = self.reads().begin().await.attempting(COUNTING)?;
        let counts = sqlx::query(COUNTS)
            .bind(query.subscription)
            .bind(self.now())
            .fetch_optional(&mut *tx)
            .await
            .attempting(COUNTING)?;
        let Some(counts) = counts else {
            let text = format!("no subscription is called {:?}", query.subscription);
            return Err(StoreError::found(StoreErrorKind::Refused, COUNTING, text));
        };
        let owners = sqlx::query(LANE_OWNERS)
            .bind(query.subscription)
            .bind(self.now())
            .fetch_all(&mut *tx)
            .await
            .attempting(COUNTING)?;
        let waiting = count_waiting(&mut tx, &query, &counts, &owners).await;
        let waiting = waiting.attempting(COUNTING)?;
        tx.rollback().await.attempting(COUNTING)?;
        backlog(query.subscription, &counts, &owners, &waiting).attempting(COUNTING)
    }

    async fn longest_held(&self, query: HeldQuery<'_>) -> Result<Vec<LongHeld>, StoreError> {
        // Kept small enough that it can be taken off the clock.
        let limit = |of: fn(HoldLimits) -> u64| {
            query
                .beyond
                .map(|limits| int(of(limits)).min(i64::MAX / 4_000))
        };
        let rows = sqlx::query(HELD_LONGEST)
            .bind(query.subscription)
            .bind(self.now())
            .bind(limit(|limits| limits.depth))
            .bind(limit(|limits| limits.age_ms))
            .bind(query.keys_max)
            .fetch_all(self.reads())
            .await
            .attempting(COUNTING)?;
        let keys: Result<_, sqlx::Error> = rows.iter().map(long_held).collect();
        keys.attempting(COUNTING)
    }

    async fn dropped(&self, query: DroppedQuery<'_>) -> Result<Vec<Dropped>, StoreError> {
        dropped::list(self, query).await
    }

    async fn drop_counts(&self, query: DropCountQuery<'_>) -> Result<Vec<DropCount>, StoreError> {
        dropped::count(self, query).await
    }
}

fn long_held(row: &SqliteRow) -> Result<LongHeld, sqlx::Error> {
    let held_since = Timestamp::from_micros(row.try_get("held_since")?);
    let now = Timestamp::from_micros(row.try_get("now")?);
    Ok(LongHeld {
        key: row.try_get("key")?,
        depth: unsigned(row.try_get("depth")?),
        held_since,
        behind: row.try_get("behind")?,
        case_id: row.try_get("case_id")?,
        age_ms: unsigned(now.millis_since(held_since)),
    })
}

/// A message of an operation.
struct Found {
    seq: i64,
    slot: u16,
    status: MessageStatus,
}

impl Found {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let text = |column| Ok::<_, sqlx::Error>(text(row, column)?.unwrap_or_default());
        Ok(Self {
            seq: row.try_get("seq")?,
            slot: slot_of(&text("key")?),
            status: MessageStatus {
                id: text("id")?,
                source: text("source")?,
                message_type: text("type")?,
                operation: text("operation")?,
                subject: text("aggregateid")?,
                recorded_at: Timestamp::from_micros(row.try_get("recorded_at")?),
                subscriptions: Vec::new(),
            },
        })
    }
}

impl Sqlite {
    async fn follow(
        &self,
        connection: &mut SqliteConnection,
        mut message: Found,
    ) -> Result<MessageStatus, StoreError> {
        let interested = sqlx::query(INTERESTED)
            .bind(message.seq)
            .bind(&message.status.message_type)
            .bind(message.status.recorded_at.as_micros())
            .bind(self.now())
            .fetch_all(&mut *connection)
            .await
            .attempting(FOLLOWING)?;
        for row in &interested {
            let subscription: String = row.try_get("subscription").attempting(FOLLOWING)?;
            let state = match held_up(row)? {
                Some(state) => state,
                None => went_on(connection, &message, &subscription, row).await?,
            };
            message.status.subscriptions.push((subscription, state));
        }
        Ok(message.status)
    }
}

fn case_of(row: &SqliteRow) -> Result<Option<(i64, CaseState)>, StoreError> {
    let case_id: Option<i64> = row.try_get("case_id").attempting(FOLLOWING)?;
    case_id
        .map(|case_id| Ok((case_id, case_state(row, FOLLOWING)?)))
        .transpose()
}

/// Quarantined or deferred.
fn held_up(row: &SqliteRow) -> Result<Option<MessageState>, StoreError> {
    if let Some((case_id, state)) = case_of(row)?
        && state.is_live()
    {
        return Ok(Some(MessageState::Quarantined {
            case_id,
            reason: row.try_get("reason").attempting(FOLLOWING)?,
        }));
    }
    let kind: Option<String> = row.try_get("kind").attempting(FOLLOWING)?;
    let Some(kind) = kind else { return Ok(None) };
    let due_at: Option<i64> = row.try_get("due_at").attempting(FOLLOWING)?;
    let age_micros: i64 = row.try_get("age_micros").attempting(FOLLOWING)?;
    Ok(Some(MessageState::Deferred {
        kind,
        due_at: due_at.map(Timestamp::from_micros),
        spent: spent(row, unsigned(age_micros) / 1_000).attempting(FOLLOWING)?,
        failure: failure(row, FOLLOWING)?,
    }))
}

/// Finished, given up, delivered or pending.
async fn went_on(
    connection: &mut SqliteConnection,
    message: &Found,
    subscription: &str,
    interested: &SqliteRow,
) -> Result<MessageState, StoreError> {
    let status = &message.status;
    let finished = sqlx::query(FINISHED)
        .bind(subscription)
        .bind(&status.source)
        .bind(&status.message_type)
        .bind(&status.id)
        .bind(message.seq.to_string())
        .bind(&status.operation)
        .fetch_optional(&mut *connection)
        .await
        .attempting(FOLLOWING)?;
    if let Some(row) = finished {
        let finished_at = row.try_get("finished_at").attempting(FOLLOWING)?;
        return Ok(MessageState::finished(
            ending(&row).attempting(FOLLOWING)?,
            Timestamp::from_micros(finished_at),
            row.try_get("result").attempting(FOLLOWING)?,
        ));
    }
    let case = case_of(interested)?.filter(|(_, state)| *state != CaseState::Replayed);
    if let Some((case_id, resolution)) = case {
        return Ok(MessageState::Resolved {
            case_id,
            resolution,
        });
    }
    let lanes = small(interested.try_get("lanes").attempting(FOLLOWING)?);
    let is_past: Option<bool> = sqlx::query_scalar(IS_PAST)
        .bind(subscription)
        .bind(lane_of(message.slot, lanes))
        .bind(message.seq)
        .fetch_optional(connection)
        .await
        .attempting(FOLLOWING)?;
    Ok(if is_past == Some(true) {
        MessageState::Delivered
    } else {
        MessageState::Pending
    })
}

#[derive(Default)]
struct Waiting {
    count: u64,
    is_lower_bound: bool,
    before: u64,
    oldest_at: Option<i64>,
}

/// Counts what lies beyond its own lane's position, from the position that is furthest behind.
async fn count_waiting(
    connection: &mut SqliteConnection,
    query: &BacklogQuery<'_>,
    counts: &SqliteRow,
    owners: &[SqliteRow],
) -> Result<Waiting, sqlx::Error> {
    let positions = owners.iter().map(|row| row.try_get("position_seq"));
    let positions: Vec<i64> = positions.collect::<Result<_, _>>()?;
    let lanes: u16 = small(counts.try_get("lanes")?);
    let mut rows = sqlx::query(WAITING)
        .bind(query.subscription)
        .bind(positions.iter().min().copied().unwrap_or(0))
        .bind(counts.try_get::<&str, _>("types")?)
        .bind(counts.try_get::<Option<i64>, _>("not_before")?)
        .fetch(connection);
    let mut waiting = Waiting::default();
    while let Some(row) = rows.try_next().await? {
        let key = text(&row, "key")?.unwrap_or_default();
        let lane = lane_of(slot_of(&key), lanes);
        let position = positions.get(usize::from(lane)).copied().unwrap_or(0);
        if row.try_get::<i64, _>("seq")? <= position {
            continue;
        }
        if waiting.count >= query.count_max {
            waiting.is_lower_bound = true;
            break;
        }
        waiting.count += 1;
        let recorded_at: i64 = row.try_get("recorded_at")?;
        let is_before = |before: Timestamp| recorded_at <= before.as_micros();
        waiting.before += u64::from(query.before.is_some_and(is_before));
        waiting.oldest_at = Some(waiting.oldest_at.unwrap_or(recorded_at).min(recorded_at));
    }
    Ok(waiting)
}

fn still(counts: &SqliteRow) -> Result<Option<StillNow>, sqlx::Error> {
    let because: Option<&str> = counts.try_get("still_because")?;
    let since: Option<i64> = counts.try_get("still_since")?;
    let until: Option<i64> = counts.try_get("still_until")?;
    let said = because.and_then(StillBecause::parse).zip(since);
    Ok(said.map(|(because, since)| StillNow {
        because,
        since: Timestamp::from_micros(since),
        until: until.map(Timestamp::from_micros),
    }))
}

fn backlog(
    subscription: &str,
    counts: &SqliteRow,
    owners: &[SqliteRow],
    waiting: &Waiting,
) -> Result<Backlog, sqlx::Error> {
    let count = |column| counts.try_get(column).map(unsigned);
    let paused_at: Option<i64> = counts.try_get("paused_at")?;
    let oldest_deferred_at: Option<i64> = counts.try_get("oldest_deferred_at")?;
    let due_since: Option<i64> = counts.try_get("due_since")?;
    let lanes = owners.iter().map(|row| {
        Ok(LaneOwner {
            lane: small(row.try_get("lane")?),
            owner: row.try_get("owner")?,
            is_live: row.try_get("is_live")?,
        })
    });
    Ok(Backlog {
        subscription: subscription.to_owned(),
        waiting: waiting.count,
        waiting_is_lower_bound: waiting.is_lower_bound,
        waiting_before: waiting.before,
        types: serde_json::from_str(counts.try_get("types")?)
            .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        oldest_waiting_at: waiting.oldest_at.map(Timestamp::from_micros),
        deferred: DeferredCounts {
            retry: count("retry")?,
            held: count("held")?,
            running: count("running")?,
            operator: count("operator")?,
            gap: count("gap")?,
        },
        oldest_deferred_at: oldest_deferred_at.map(Timestamp::from_micros),
        due_since: due_since.map(Timestamp::from_micros),
        quarantined: count("quarantined")?,
        paused_at: paused_at.map(Timestamp::from_micros),
        still: still(counts)?,
        rate: rate(counts)?,
        lanes: lanes.collect::<Result<_, sqlx::Error>>()?,
        now: Timestamp::from_micros(counts.try_get("now_micros")?),
    })
}
