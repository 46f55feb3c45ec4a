//! Noticing what other processes append: `PRAGMA data_version` changes when another connection has
//! committed, and reads nothing but a counter in shared memory.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tokio::sync::{Mutex, watch};

const DATA_VERSION: &str = include_str!("../sql/log/data_version.sql");
const HEAD_SEQ: &str = include_str!("../sql/log/head_seq.sql");

/// First pause between two looks; it grows while nothing happens.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// Longest pause between two looks.
const PAUSE_LAST: Duration = Duration::from_millis(40);

pub(crate) struct Watch {
    /// One connection, always the same: the counter means something only against itself.
    pool: SqlitePool,
    /// Who looks holds this; others wait for what the looker finds.
    seen: Mutex<Seen>,
    found: watch::Sender<i64>,
}

struct Seen {
    data_version: i64,
    head_seq: i64,
    pause: Duration,
}

impl Watch {
    pub(crate) fn new(options: SqliteConnectOptions) -> Self {
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_lazy_with(options.pragma("query_only", "ON"));
        Self {
            pool,
            seen: Mutex::new(Seen {
                data_version: 0,
                head_seq: -1,
                pause: PAUSE_FIRST,
            }),
            found: watch::Sender::new(0),
        }
    }

    /// Returns when the log has grown since the last time anybody asked, or now.
    pub(crate) async fn appended(&self) {
        let mut found = self.found.subscribe();
        let mut seen = tokio::select! {
            seen = self.seen.lock() => seen,
            _ = found.changed() => return,
        };
        loop {
            // A file that cannot be read now is looked at again; reading the log tells the error.
            if self.look(&mut seen).await.unwrap_or(false) {
                seen.pause = PAUSE_FIRST;
                self.found.send_replace(seen.head_seq);
                return;
            }
            tokio::time::sleep(seen.pause).await;
            seen.pause = (seen.pause * 5 / 4).min(PAUSE_LAST);
        }
    }

    async fn look(&self, seen: &mut Seen) -> Result<bool, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let version: i64 = sqlx::query_scalar(DATA_VERSION)
            .fetch_one(&mut *connection)
            .await?;
        if version == seen.data_version {
            return Ok(false);
        }
        let head: Option<i64> = sqlx::query_scalar(HEAD_SEQ)
            .fetch_optional(&mut *connection)
            .await?;
        let head = head.unwrap_or(0);
        let has_grown = head != seen.head_seq;
        seen.data_version = version;
        seen.head_seq = head;
        Ok(has_grown)
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}
