//! How much lies beyond a subscription's positions.

use std::collections::BTreeSet;

use onceward_core::group::Groups;
use onceward_core::position::Within;
use onceward_core::store::{Backlog, BacklogQuery, StoreError, Terms};
use onceward_core::{Position, Snapshot, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::era::{Carrier, eras};
use crate::error::while_doing;
use crate::log::array;
use crate::positions::{KeptLane, Records};
use crate::replay::parsed;
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
    let terms = counts.try_get("terms").and_then(parsed::<Terms>);
    let grouping = terms.map_err(while_doing(ACTION))?.grouping;
    let groups = grouping.as_ref().map(Groups::new);
    if let Some(groups) = &groups {
        backlog.divide(groups);
    }
    let tenants = groups.as_ref().and_then(Groups::tenants);
    let types: Vec<String> = counts.try_get("types").map_err(while_doing(ACTION))?;
    let lane_count: i32 = counts.try_get("lanes").map_err(while_doing(ACTION))?;
    let not_before = lanes
        .first()
        .map(|row| row.try_get::<Option<i64>, _>("not_before"));
    let not_before = not_before
        .transpose()
        .map_err(while_doing(ACTION))?
        .flatten();
    for place in places(connection, query.subscription, lanes, groups.as_ref()).await? {
        let left = query.count_max.saturating_sub(backlog.waiting);
        let counted_max = i64::try_from(left).unwrap_or(i64::MAX).saturating_add(1);
        let rows = bind_stand(query.subscription, &place.position)
            .bind(
                place
                    .types(groups.as_ref())
                    .unwrap_or_else(|| types.clone()),
            )
            .bind(lane_count)
            .bind(&place.lanes)
            .bind(counted_max)
            .bind(counted_max.saturating_mul(LOOKED_AT_PER_COUNTED))
            .bind(upper(&place.position))
            .bind(not_before)
            .bind(!is_sealed(&place.position))
            .bind(tenants.map(|tenants| tenants.attribute.as_str()))
            .bind(query.before.map(|before| before.as_micros()))
            .fetch_all(&mut *connection)
            .await
            .map_err(while_doing(ACTION))?;
        let mut counted = 0;
        // Behind the rows of a sealed era those of the new one are waiting as well.
        let mut sees_part = is_sealed(&place.position);
        for row in &rows {
            let part = Part::read(row).map_err(while_doing(ACTION))?;
            counted += part.waiting;
            sees_part |= part.gave_up;
            let group = groups
                .as_ref()
                .and_then(|groups| groups.of_tenant(&part.message_type, &part.tenant));
            if place.has(group) {
                let room = query.count_max.saturating_sub(backlog.waiting);
                backlog.waiting_before += part.before;
                backlog.waits(group, part.waiting.min(room), part.oldest_at);
            }
        }
        backlog.waiting_is_lower_bound |= sees_part || counted > left;
    }
    Ok(())
}

/// What waits of one type and tenant.
struct Part {
    message_type: String,
    tenant: String,
    waiting: u64,
    before: u64,
    oldest_at: Option<Timestamp>,
    gave_up: bool,
}

impl Part {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            message_type: row.try_get("type")?,
            tenant: row.try_get("tenant")?,
            waiting: row.try_get::<i64, _>("waiting")? as u64,
            before: row.try_get::<i64, _>("before")? as u64,
            oldest_at: row.try_get::<Option<i64>, _>("oldest_at")?.map(moment),
            gave_up: row.try_get("looked_at_all")?,
        })
    }
}

/// Lanes, and groups where there are some, that stand at one position of the current era.
struct Place {
    position: Position,
    lanes: Vec<i32>,
    groups: Option<Vec<usize>>,
}

impl Place {
    fn has(&self, group: Option<usize>) -> bool {
        match (&self.groups, group) {
            (Some(groups), Some(group)) => groups.contains(&group),
            _ => true,
        }
    }

    /// The types of its groups.
    fn types(&self, groups: Option<&Groups>) -> Option<Vec<String>> {
        let (own, groups) = (self.groups.as_ref()?, groups?);
        let types = own.iter().flat_map(|group| groups.types(*group));
        let types: BTreeSet<&str> = types.collect();
        Some(types.into_iter().map(str::to_owned).collect())
    }
}

/// Where lanes and groups stand.
async fn places(
    connection: &mut PgConnection,
    subscription: &str,
    lanes: &[PgRow],
    groups: Option<&Groups>,
) -> Result<Vec<Place>, StoreError> {
    let mut carrier = Carrier::new(eras(connection).await?);
    let mut records = Records::default();
    // By position and group: the lanes.
    let mut apart: Vec<(Position, Option<usize>, Vec<i32>)> = Vec::new();
    let numbers: Vec<Option<usize>> = groups.map_or_else(
        || vec![None],
        |groups| (0..groups.count()).map(Some).collect(),
    );
    for row in lanes {
        let kept = KeptLane::read(row)?;
        let stand = records.stand(connection, subscription, &kept).await?;
        let stand = carrier.carry_stand(connection, stand).await?;
        let lane = i32::from(kept.lane);
        for group in &numbers {
            let position = match (groups, group) {
                (Some(groups), Some(group)) => stand.of(groups.name(*group)),
                _ => &stand.position,
            };
            let same = |(at, of, _): &&mut (Position, Option<usize>, Vec<i32>)| {
                at == position && of == group
            };
            match apart.iter_mut().find(same) {
                Some((_, _, which)) => which.push(lane),
                None => apart.push((position.clone(), *group, vec![lane])),
            }
        }
    }
    let mut places: Vec<Place> = Vec::new();
    for (position, group, lanes) in apart {
        let same = |place: &&mut Place| place.position == position && place.lanes == lanes;
        match (places.iter_mut().find(same), group) {
            (Some(place), Some(group)) => place.groups.get_or_insert_default().push(group),
            _ => places.push(Place {
                position,
                lanes,
                groups: group.map(|group| vec![group]),
            }),
        }
    }
    Ok(places)
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
