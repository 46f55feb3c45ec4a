//! Reading the log. Writers are serial, so every sequence is a boundary between what is committed
//! and what is not.

use std::time::Duration;

use futures_util::TryStreamExt;
use onceward_core::store::{Log, Page, ReadPage, SavePosition, StoreError};
use onceward_core::{Position, Snapshot};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::{int, message, small, to_json, unsigned};

const READ: &str = include_str!("../sql/log/read.sql");
pub(crate) const HEAD: &str = include_str!("../sql/log/head.sql");
const SAVE_POSITION: &str = include_str!("../sql/log/save_position.sql");

/// Everything up to this sequence is behind.
pub(crate) fn reached(position: &Position) -> u64 {
    let within = position.within.as_ref();
    within.map_or(position.after.floor, |within| within.seq)
}

/// The end of the log.
pub(crate) fn head_position(row: &SqliteRow) -> Result<Position, sqlx::Error> {
    let era = small(row.try_get("era")?);
    let head = unsigned(row.try_get("head_seq")?);
    Ok(Position::at(era, Snapshot::serial(head)))
}

impl Log for Sqlite {
    async fn read(&self, request: ReadPage<'_>) -> Result<Page, StoreError> {
        const ACTION: &str = "read the log";
        let from = request.from;
        let until = from.within.as_ref().map(|within| within.until.floor);
        let rows_max = request.rows_max.max(1);
        let mut stream = sqlx::query(READ)
            .bind(int(reached(from)))
            .bind(until.map(int))
            .bind(rows_max)
            .fetch(self.reads());
        let mut rows = Vec::new();
        let (mut bytes, mut head, mut is_cut) = (0_u64, 0, false);
        while let Some(found) = stream.try_next().await.attempting(ACTION)? {
            let row = message(&found, &self.source).attempting(ACTION)?;
            if head == 0 {
                head = unsigned(
                    found
                        .try_get::<Option<_>, _>("head_seq")
                        .attempting(ACTION)?
                        .unwrap_or(0),
                );
            }
            bytes = bytes.saturating_add(row.envelope.payload.len() as u64);
            rows.push(row);
            is_cut = rows.len() >= rows_max as usize || bytes >= request.bytes_max;
            if is_cut {
                break;
            }
        }
        let last = rows.last().map(|row| row.seq);
        let until = until.unwrap_or(head);
        let next = match last {
            Some(last) if is_cut && last < until => from.reach(&Snapshot::serial(until), last),
            Some(last) => Position::at(from.era, Snapshot::serial(until.max(last))),
            None if from.is_boundary() => from.clone(),
            None => Position::at(from.era, Snapshot::serial(until)),
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
                .bind(to_json(&span.position, ACTION)?)
                .bind(int(reached(&span.position)))
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
