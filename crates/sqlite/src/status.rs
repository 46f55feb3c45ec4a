//! What an operator or a caller may ask.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use onceward_core::group::Groups;
use onceward_core::hold::HoldLimits;
use onceward_core::lane::{lane_of, slot_of};
use onceward_core::store::{
    Backlog, BacklogQuery, CaseState, DeferredCounts, DropCount, DropCountQuery, Dropped,
    DroppedQuery, HeldQuery, LaneOwner, LongHeld, MessageState, MessageStatus, OperationQuery,
    Status, StillBecause, StillNow, StoreError, StoreErrorKind, Terms,
};
use onceward_core::{Stand, Timestamp};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::Sqlite;
use crate::cases::case_state;
use crate::dropped;
use crate::effects::ending;
use crate::error::Attempt;
use crate::log::reached;
use crate::replay::parsed;
use crate::row::{attributes, failure, from_json, int, rate, small, spent, text, unsigned};

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
        let backlog = backlog(query.subscription, &counts, &owners);
        let mut backlog = backlog.attempting(COUNTING)?;
        count_waiting(&mut tx, &query, &counts, &owners, &mut backlog).await?;
        tx.rollback().await.attempting(COUNTING)?;
        Ok(backlog)
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
    attributes: BTreeMap<String, String>,
    seq: i64,
    slot: u16,
    status: MessageStatus,
}

impl Found {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let text = |column| Ok::<_, sqlx::Error>(text(row, column)?.unwrap_or_default());
        let headers = self::text(row, "headers")?;
        Ok(Self {
            attributes: headers.map_or_else(BTreeMap::new, |json| attributes(&json)),
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

fn terms(row: &SqliteRow, action: &'static str) -> Result<Terms, StoreError> {
    parsed(row.try_get("terms").attempting(action)?, action)
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
    let kept: Option<String> = sqlx::query_scalar(IS_PAST)
        .bind(subscription)
        .bind(lane_of(message.slot, lanes))
        .fetch_optional(connection)
        .await
        .attempting(FOLLOWING)?;
    let is_past = match kept {
        Some(kept) => {
            let stand: Stand = from_json(&kept, FOLLOWING)?;
            let terms = terms(interested, FOLLOWING)?;
            let position = terms.position_of(&stand, &status.message_type, &message.attributes);
            reached(position) >= unsigned(message.seq)
        }
        None => false,
    };
    Ok(if is_past {
        MessageState::Delivered
    } else {
        MessageState::Pending
    })
}

/// Counts what lies beyond its own lane's position, from the position that is furthest behind.
async fn count_waiting(
    connection: &mut SqliteConnection,
    query: &BacklogQuery<'_>,
    counts: &SqliteRow,
    owners: &[SqliteRow],
    backlog: &mut Backlog,
) -> Result<(), StoreError> {
    let grouping = terms(counts, COUNTING)?.grouping;
    let groups = grouping.as_ref().map(Groups::new);
    if let Some(groups) = &groups {
        backlog.divide(groups);
    }
    let mut stands = Vec::with_capacity(owners.len());
    for row in owners {
        let kept: &str = row.try_get("position").attempting(COUNTING)?;
        stands.push(from_json::<Stand>(kept, COUNTING)?);
    }
    let lowest = stands.iter().map(|stand| reached(&stand.position)).min();
    let lanes: u16 = small(counts.try_get("lanes").attempting(COUNTING)?);
    let tenant_in = groups.as_ref().and_then(Groups::tenants);
    let types: &str = counts.try_get("types").attempting(COUNTING)?;
    let not_before: Option<i64> = counts.try_get("not_before").attempting(COUNTING)?;
    let mut rows = sqlx::query(WAITING)
        .bind(query.subscription)
        .bind(int(lowest.unwrap_or(0)))
        .bind(types)
        .bind(not_before)
        .bind(tenant_in.map(|tenants| tenants.attribute.as_str()))
        .fetch(connection);
    while let Some(row) = rows.try_next().await.attempting(COUNTING)? {
        let found = Waiting::read(&row).attempting(COUNTING)?;
        let group = groups
            .as_ref()
            .and_then(|groups| groups.of_tenant(&found.message_type, &found.tenant));
        let stand = stands.get(usize::from(lane_of(slot_of(&found.key), lanes)));
        let position = stand.map_or(0, |stand| match (&groups, group) {
            (Some(groups), Some(group)) => reached(stand.of(groups.name(group))),
            _ => reached(&stand.position),
        });
        if found.seq <= position {
            continue;
        }
        if backlog.waiting >= query.count_max {
            backlog.waiting_is_lower_bound = true;
            break;
        }
        let is_before = |before: Timestamp| found.recorded_at <= before;
        backlog.waiting_before += u64::from(query.before.is_some_and(is_before));
        backlog.waits(group, 1, Some(found.recorded_at));
    }
    Ok(())
}

/// A message that may wait.
struct Waiting {
    seq: u64,
    key: String,
    message_type: String,
    tenant: String,
    recorded_at: Timestamp,
}

impl Waiting {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let of = |column| Ok::<_, sqlx::Error>(text(row, column)?.unwrap_or_default());
        Ok(Self {
            seq: unsigned(row.try_get("seq")?),
            key: of("key")?,
            message_type: of("type")?,
            tenant: of("tenant")?,
            recorded_at: Timestamp::from_micros(row.try_get("recorded_at")?),
        })
    }
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

/// All but what waits.
fn backlog(
    subscription: &str,
    counts: &SqliteRow,
    owners: &[SqliteRow],
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
        waiting: 0,
        waiting_is_lower_bound: false,
        waiting_before: 0,
        types: serde_json::from_str(counts.try_get("types")?)
            .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        oldest_waiting_at: None,
        groups: Vec::new(),
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
