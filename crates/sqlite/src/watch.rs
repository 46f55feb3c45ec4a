//! Noticing what other processes append: `PRAGMA data_version` changes when another connection has
//! committed, and reads nothing but a counter in shared memory.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, watch};

const DATA_VERSION: &str = include_str!("../sql/log/data_version.sql");
const HEAD_SEQ: &str = include_str!("../sql/log/head_seq.sql");

/// First pause between two looks; it grows while nothing happens.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// Longest pause between two looks.
const PAUSE_LAST: Duration = Duration::from_millis(40);

/// Neither a version nor a sequence.
const NOT_SEEN: i64 = -1;

pub(crate) struct Watch {
    options: SqliteConnectOptions,
    /// Who looks holds this; others wait for what the looker finds.
    seen: Mutex<Seen>,
    found: watch::Sender<i64>,
}

struct Seen {
    /// Always the same one: the counter means something only against itself.
    connection: Option<SqliteConnection>,
    data_version: i64,
    head_seq: i64,
    pause: Duration,
}

impl Watch {
    pub(crate) fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options: options.pragma("query_only", "ON"),
            seen: Mutex::new(Seen {
                connection: None,
                data_version: NOT_SEEN,
                head_seq: NOT_SEEN,
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
            match self.look(&mut seen).await {
                Ok(true) => {
                    seen.pause = PAUSE_FIRST;
                    self.found.send_replace(seen.head_seq);
                    return;
                }
                Ok(false) => {}
                // Looked at again with a new connection; reading the log tells the error.
                Err(_) => {
                    seen.connection = None;
                    seen.data_version = NOT_SEEN;
                }
            }
            tokio::time::sleep(seen.pause).await;
            seen.pause = (seen.pause * 5 / 4).min(PAUSE_LAST);
        }
    }

    async fn look(&self, seen: &mut Seen) -> Result<bool, sqlx::Error> {
        let connection = match &mut seen.connection {
            Some(connection) => connection,
            none => none.insert(self.options.connect().await?),
        };
        let version: i64 = sqlx::query_scalar(DATA_VERSION)
            .fetch_one(&mut *connection)
            .await?;
        if version == seen.data_version {
            return Ok(false);
        }
        let head: Option<i64> = sqlx::query_scalar(HEAD_SEQ)
            .fetch_optional(connection)
            .await?;
        let head = head.unwrap_or(0);
        let has_grown = head != seen.head_seq;
        seen.data_version = version;
        seen.head_seq = head;
        Ok(has_grown)
    }

    pub(crate) async fn close(&self) {
        if let Some(connection) = self.seen.lock().await.connection.take() {
            // What cannot be closed in good order is closed all the same.
            let _ = connection.close().await;
        }
    }
}
