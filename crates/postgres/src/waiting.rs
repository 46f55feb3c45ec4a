//! How much lies beyond a subscription's positions.

use onceward_core::position::Within;
use onceward_core::store::{Backlog, BacklogQuery, StoreError};
use onceward_core::{Position, Snapshot};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::era::{Carrier, eras};
use crate::error::while_doing;
use crate::log::array;
use crate::positions::{KeptLane, Records};
use crate::session::moment;

const ACTION: &str = "count the backlog";
/// For each message counted at most this many are looked at, so that asking stays cheap where a
/// subscription wants few of them.
const LOOKED_AT_PER_COUNTED: i64 = 20;

/// Fills in what waits: for each place where lanes stand, what follows it in those lanes.
pub(crate) async fn count_waiting(
    connection: &mut PgConnection,
    query: &BacklogQuery<'_>,
    counts: &PgRow,
    lanes: &[PgRow],
    backlog: &mut Backlog,
) -> Result<(), StoreError> {
    let groups = stands(connection, query.subscription, lanes).await?;
    let not_before = lanes
        .first()
        .map(|row| row.try_get::<Option<i64>, _>("not_before"));
    let not_before = not_before
        .transpose()
        .map_err(while_doing(ACTION))?
        .flatten();
    for (position, which) in groups {
        let left = query.count_max.saturating_sub(backlog.waiting);
        let statement = bind_stand(query.subscription, &position)
            .bind(
                counts
                    .try_get::<Vec<String>, _>("types")
                    .map_err(while_doing(ACTION))?,
            )
            .bind(
                counts
                    .try_get::<i32, _>("lanes")
                    .map_err(while_doing(ACTION))?,
            )
            .bind(which)
            .bind(i64::try_from(left).unwrap_or(i64::MAX).saturating_add(1))
            .bind(
                i64::try_from(left)
                    .unwrap_or(i64::MAX)
                    .saturating_add(1)
                    .saturating_mul(LOOKED_AT_PER_COUNTED),
            )
            .bind(upper(&position))
            .bind(not_before)
            .bind(!is_sealed(&position))
            .bind(query.before.map(|before| before.as_micros()));
        let row = statement
            .fetch_one(&mut *connection)
            .await
            .map_err(while_doing(ACTION))?;
        let waiting: i64 = row.try_get("waiting").map_err(while_doing(ACTION))?;
        let before: i64 = row.try_get("before").map_err(while_doing(ACTION))?;
        backlog.waiting_before += before as u64;
        let oldest_at: Option<i64> = row.try_get("oldest_at").map_err(while_doing(ACTION))?;
        let gave_up: bool = row.try_get("looked_at_all").map_err(while_doing(ACTION))?;
        // Behind the rows of a sealed era those of the new one are waiting as well.
        let sees_part = gave_up || is_sealed(&position);
        backlog.waiting_is_lower_bound |= sees_part || waiting as u64 > left;
        backlog.waiting += (waiting as u64).min(left);
        let oldest = oldest_at.map(moment);
        backlog.oldest_waiting_at = match (backlog.oldest_waiting_at, oldest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    Ok(())
}

/// Where lanes stand, as positions of the current era, with the lanes that stand there.
async fn stands(
    connection: &mut PgConnection,
    subscription: &str,
    lanes: &[PgRow],
) -> Result<Vec<(Position, Vec<i32>)>, StoreError> {
    let mut carrier = Carrier::new(eras(connection).await?);
    let mut records = Records::default();
    let mut groups: Vec<(Position, Vec<i32>)> = Vec::new();
    for row in lanes {
        let kept = KeptLane::read(row)?;
        let stand = records.stand(connection, subscription, &kept).await?;
        let position = carrier.carry(connection, stand.position).await?;
        let lane = i32::from(kept.lane);
        match groups.iter_mut().find(|(known, _)| *known == position) {
            Some((_, which)) => which.push(lane),
            None => groups.push((position, vec![lane])),
        }
    }
    Ok(groups)
}

fn is_sealed(position: &Position) -> bool {
    position.within.as_ref().is_some_and(|w| w.until.is_seal())
}

fn upper(position: &Position) -> i64 {
    match &position.within {
        Some(w) if w.until.is_seal() => w.until.floor as i64,
        _ => i64::MAX,
    }
}

type Statement<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Binds the first seven parameters.
fn bind_stand<'q>(subscription: &'q str, position: &Position) -> Statement<'q> {
    let nothing = Within {
        until: Snapshot::origin(),
        seq: 0,
    };
    let within = position.within.as_ref().unwrap_or(&nothing);
    let lower = if is_sealed(position) {
        within.seq
    } else {
        position.after.floor
    };
    sqlx::query(include_str!("../sql/status/waiting.sql"))
        .bind(subscription)
        .bind(position.after.xmax.to_string())
        .bind(array(&position.after.xip))
        .bind(lower as i64)
        .bind(within.until.xmax.to_string())
        .bind(array(&within.until.xip))
        .bind(within.seq as i64)
}
