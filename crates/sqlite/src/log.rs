//! Reading the log. Writers are serial, so every sequence is a boundary between what is committed
//! and what is not.

use std::time::Duration;

use futures_util::TryStreamExt;
use onceward_core::store::{Log, Page, ReadPage, SavePosition, StoreError, StoreErrorKind};
use onceward_core::{Position, Snapshot};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{int, message, small, to_json, unsigned};

const READ: &str = include_str!("../sql/log/read.sql");
pub(crate) const HEAD: &str = include_str!("../sql/log/head.sql");
const READING: &str = "read the log";
const SAVE_POSITION: &str = include_str!("../sql/log/save_position.sql");

/// Everything up to this sequence is behind. A tick may be entered with none of its rows behind, but
/// what was before it is.
pub(crate) fn reached(position: &Position) -> u64 {
    let within = position.within.as_ref();
    within
        .map_or(0, |within| within.seq)
        .max(position.after.floor)
}

/// The end of the log.
pub(crate) fn head_position(row: &SqliteRow) -> Result<Position, sqlx::Error> {
    let era = small(row.try_get("era")?);
    let head = unsigned(row.try_get("head_seq")?);
    Ok(Position::at(era, Snapshot::serial(head)))
}

/// Positions of another era are answered with nothing but this.
fn check_era(from: &Position, head: &Position) -> Result<(), StoreError> {
    if from.era == head.era {
        return Ok(());
    }
    let text = format!(
        "the file was taken into service anew: it is in era {}, the position in era {}",
        head.era, from.era
    );
    Err(StoreError::found(StoreErrorKind::WrongEra, READING, text))
}

impl Log for Sqlite {
    async fn read(&self, request: ReadPage<'_>) -> Result<Page, StoreError> {
        let from = request.from;
        let until = from.within.as_ref().map(|within| within.until.floor);
        let rows_max = request.rows_max.max(1);
        let mut stream = sqlx::query(READ)
            .bind(int(reached(from)))
            .bind(until.map(int))
            .bind(rows_max)
            .fetch(self.reads());
        let mut rows = Vec::new();
        let (mut bytes, mut head, mut is_cut) = (0_u64, None, false);
        while let Some(found) = stream.try_next().await.attempting(READING)? {
            if head.is_none() {
                let found = head_position(&found).attempting(READING)?;
                check_era(from, &found)?;
                head = Some(found);
            }
            let row = message(&found).attempting(READING)?;
            bytes = bytes.saturating_add(row.envelope.payload.len() as u64);
            rows.push(row);
            is_cut = rows.len() >= rows_max as usize || bytes >= request.bytes_max;
            if is_cut {
                break;
            }
        }
        drop(stream);
        let (Some(head), Some(last)) = (head, rows.last()) else {
            check_era(from, &self.head().await?)?;
            let ended = |until| Position::at(from.era, Snapshot::serial(until));
            let next = until.map_or_else(|| from.clone(), ended);
            return Ok(Page { rows, next });
        };
        let until = until.unwrap_or(head.after.floor);
        let next = if is_cut && last.seq < until {
            from.reach(&Snapshot::serial(until), last.seq)
        } else {
            Position::at(from.era, Snapshot::serial(until.max(last.seq)))
        };
        Ok(Page { rows, next })
    }

    async fn head(&self) -> Result<Position, StoreError> {
        const ACTION: &str = "find the end of the log";
        let found = sqlx::query(HEAD)
            .fetch_one(self.reads())
            .await
            .attempting(ACTION)?;
        head_position(&found).attempting(ACTION)
    }

    async fn save_position(&self, request: SavePosition<'_>) -> Result<(), StoreError> {
        const ACTION: &str = "save a position";
        let mut tx = self.write(ACTION).await?;
        for span in request.spans {
            sqlx::query(SAVE_POSITION)
                .bind(request.subscription)
                .bind(request.member)
                .bind(to_json(&span.lanes, ACTION)?)
                .bind(to_json(&span.stand, ACTION)?)
                .bind(int(reached(&span.stand.position)))
                .execute(tx.connection())
                .await
                .attempting(ACTION)?;
        }
        tx.commit(ACTION).await
    }

    async fn doze(&self, wait_ms: u64) {
        let watching = self.shared.watch.appended();
        // The end of the wait is as good an answer as the signal.
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), watching).await;
    }
}
