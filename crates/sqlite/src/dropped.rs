//! Messages that a policy gave up.

use onceward_core::store::{
    DropCount, DropCountQuery, Dropped, DroppedPlace, DroppedQuery, StoreError,
};
use onceward_core::{Ending, Timestamp};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{int, small, text, unsigned};

const DROPPED: &str = include_str!("../sql/status/dropped.sql");
const DROP_COUNTS: &str = include_str!("../sql/status/drop_counts.sql");

const LISTING: &str = "list what was given up";
const COUNTING: &str = "count what was given up";

pub(crate) async fn list(
    store: &Sqlite,
    query: DroppedQuery<'_>,
) -> Result<Vec<Dropped>, StoreError> {
    let mut tx = store.reads().begin().await.attempting(LISTING)?;
    let mut found = Vec::new();
    for ending in query.endings {
        let after = query.after;
        let rows = sqlx::query(DROPPED)
            .bind(query.subscription)
            .bind(ending.as_str())
            .bind(after.map_or(i64::MAX, |place| place.finished_at.as_micros()))
            .bind(after.map_or("", |place| &place.source))
            .bind(after.map_or("", |place| &place.message_type))
            .bind(after.map_or("", |place| &place.identity))
            .bind(after.map_or(0, |place| place.generation))
            .bind(query.rows_max)
            .fetch_all(&mut *tx)
            .await
            .attempting(LISTING)?;
        for row in &rows {
            found.push(read(*ending, row).attempting(LISTING)?);
        }
    }
    tx.rollback().await.attempting(LISTING)?;
    Ok(Dropped::latest(found, query.rows_max))
}

fn read(ending: Ending, row: &SqliteRow) -> Result<Dropped, sqlx::Error> {
    let of = |column| Ok::<_, sqlx::Error>(text(row, column)?.unwrap_or_default());
    let place = DroppedPlace {
        finished_at: Timestamp::from_micros(row.try_get("finished_at")?),
        source: of("source")?,
        message_type: of("type")?,
        identity: of("identity")?,
        generation: small(row.try_get("generation")?),
    };
    Ok(Dropped::of(ending, place, row.try_get("result")?))
}

pub(crate) async fn count(
    store: &Sqlite,
    query: DropCountQuery<'_>,
) -> Result<Vec<DropCount>, StoreError> {
    let mut counts = Vec::new();
    for ending in Ending::DROPPED {
        let row = sqlx::query(DROP_COUNTS)
            .bind(query.subscription)
            .bind(ending.as_str())
            .bind(int(query.count_max))
            .bind(store.now())
            .fetch_one(store.reads())
            .await
            .attempting(COUNTING)?;
        let count = |column| row.try_get(column).map(unsigned).attempting(COUNTING);
        counts.push(DropCount {
            ending,
            last_hour: count("last_hour")?,
            last_day: count("last_day")?,
        });
    }
    Ok(counts)
}
