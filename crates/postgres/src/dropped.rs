//! Messages that a policy gave up.

use onceward_core::Ending;
use onceward_core::store::{
    DropCount, DropCountQuery, Dropped, DroppedPlace, DroppedQuery, StoreError,
};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::effects::read_ending;
use crate::error::while_doing;
use crate::session::{Postgres, moment};

const LIST: &str = "list what was given up";
const COUNT: &str = "count what was given up";

pub(crate) async fn list(
    store: &Postgres,
    query: DroppedQuery<'_>,
) -> Result<Vec<Dropped>, StoreError> {
    let mut tx = store.question_tx(LIST).await?;
    let mut found = Vec::new();
    for ending in query.endings {
        let after = query.after;
        let statement = sqlx::query(include_str!("../sql/status/dropped.sql"))
            .bind(query.subscription)
            .bind(ending.as_str())
            .bind(after.map(|place| place.finished_at.as_micros()))
            .bind(after.map_or("", |place| &place.source))
            .bind(after.map_or("", |place| &place.message_type))
            .bind(after.map_or("", |place| &place.identity))
            .bind(after.map_or(0, |place| place.generation as i32))
            .bind(i64::from(query.rows_max));
        let rows = statement.fetch_all(tx.connection()).await;
        for row in rows.map_err(while_doing(LIST))? {
            found.push(read(*ending, &row).map_err(while_doing(LIST))?);
        }
    }
    tx.roll_back().await;
    Ok(Dropped::latest(found, query.rows_max))
}

fn read(ending: Ending, row: &PgRow) -> Result<Dropped, sqlx::Error> {
    let place = DroppedPlace {
        finished_at: moment(row.try_get("finished_at")?),
        source: row.try_get("source")?,
        message_type: row.try_get("type")?,
        identity: row.try_get("identity")?,
        generation: row.try_get::<i32, _>("generation")? as u32,
    };
    let result: Option<String> = row.try_get("result")?;
    Ok(Dropped::of(ending, place, result.as_deref()))
}

pub(crate) async fn count(
    store: &Postgres,
    query: DropCountQuery<'_>,
) -> Result<Vec<DropCount>, StoreError> {
    let mut tx = store.question_tx(COUNT).await?;
    let endings = Ending::DROPPED.map(Ending::as_str);
    let statement = sqlx::query(include_str!("../sql/status/drop_counts.sql"))
        .bind(query.subscription)
        .bind(endings.to_vec())
        .bind(i64::try_from(query.count_max).unwrap_or(i64::MAX))
        .bind(store.now());
    let rows = statement.fetch_all(tx.connection()).await;
    let rows = rows.map_err(while_doing(COUNT))?;
    tx.roll_back().await;
    let counts = rows.iter().map(|row| {
        Ok(DropCount {
            ending: read_ending(row.try_get("ending")?),
            last_hour: row.try_get::<i64, _>("last_hour")? as u64,
            last_day: row.try_get::<i64, _>("last_day")? as u64,
        })
    });
    let counts: Result<_, sqlx::Error> = counts.collect();
    counts.map_err(while_doing(COUNT))
}
