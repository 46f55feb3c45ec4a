//! Appending to the log: in the caller's transaction, or many callers in one.

use std::error::Error as StdError;
use std::sync::{LazyLock, Mutex, PoisonError};

use onceward_core::Envelope;
use onceward_core::store::{Append, StoreError, StoreErrorKind};
use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use crate::error::{self, Attempt};
use crate::row::{Rows, headers, payload_columns};
use crate::writer::WriteTx;
use crate::{Clock, Sqlite};

static INSERT: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(include_str!("../sql/append/insert.sql")));

const ACTION: &str = "append to the log";

pub(crate) async fn insert(
    connection: &mut SqliteConnection,
    envelopes: &[Envelope],
    now: Option<i64>,
) -> Result<(), StoreError> {
    for (sql, piece) in INSERT.pieces(envelopes) {
        let mut query = sqlx::query(sql);
        for envelope in piece {
            let (json, binary) = payload_columns(&envelope.payload);
            query = query
                .bind(&envelope.id)
                .bind(&envelope.source)
                .bind(&envelope.aggregate_type)
                .bind(&envelope.aggregate_id)
                .bind(&envelope.message_type)
                .bind(&envelope.operation_id)
                .bind(&envelope.partition_key)
                .bind(envelope.schema_version)
                .bind(envelope.aggregate_version)
                .bind(envelope.occurred_at.map(|at| at.as_micros()))
                .bind(envelope.expires_at.map(|at| at.as_micros()))
                .bind(envelope.priority)
                .bind(now)
                .bind(headers(&envelope.attributes, ACTION)?)
                .bind(json)
                .bind(binary);
        }
        query.execute(&mut *connection).await.attempting(ACTION)?;
    }
    Ok(())
}

impl Append for Sqlite {
    type Connection = SqliteConnection;

    async fn append(
        &self,
        connection: &mut SqliteConnection,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        insert(connection, envelopes, self.now()).await
    }

    fn classify(&self, error: &(dyn StdError + 'static)) -> Option<StoreErrorKind> {
        error::classify(error)
    }
}

/// Appends that wait for their common transaction.
#[derive(Default)]
pub(crate) struct Group {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    parts: Vec<Part>,
    is_scheduled: bool,
}

struct Part {
    envelopes: Vec<Envelope>,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

impl Group {
    /// Whether somebody has to be sent to commit.
    fn push(&self, part: Part) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.parts.push(part);
        !std::mem::replace(&mut waiting.is_scheduled, true)
    }

    fn drain(&self) -> Vec<Part> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_scheduled = false;
        std::mem::take(&mut waiting.parts)
    }
}

impl Sqlite {
    /// Appends messages in a transaction of the store's own and answers after its commit. Calls
    /// that come while another transaction is open share the next one, and its wait for the disk.
    ///
    /// A call that is dropped may still be carried out.
    ///
    /// # Errors
    /// As for any append; one caller's refused message does not touch the others.
    pub async fn append_committed(&self, envelopes: &[Envelope]) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        let part = Part {
            envelopes: envelopes.to_vec(),
            answer,
        };
        if self.shared.group.push(part) {
            // A task of its own: a caller that goes away must not take the others' commit along.
            let store = self.clone();
            tokio::spawn(async move { store.commit_group().await });
        }
        answered.await.unwrap_or_else(|_| {
            Err(StoreError::found(
                StoreErrorKind::CommitUnknown,
                ACTION,
                "the task that commits was ended",
            ))
        })
    }

    async fn commit_group(&self) {
        let begun = self.write(ACTION).await;
        let parts = self.shared.group.drain();
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => return refuse(parts, &error),
        };
        let mut inserted = Ok(());
        for part in &parts {
            inserted = insert(tx.connection(), &part.envelopes, self.clock.micros()).await;
            if inserted.is_err() {
                break;
            }
        }
        match inserted {
            Ok(()) => match tx.commit(ACTION).await {
                Ok(()) => parts.into_iter().for_each(|part| part.settle(Ok(()))),
                Err(error) => refuse(parts, &error),
            },
            Err(error) => {
                drop(tx);
                if parts.len() == 1 {
                    refuse(parts, &error);
                } else {
                    self.commit_apart(parts).await;
                }
            }
        }
    }

    /// Each call in a transaction of its own, so that only the one at fault fails.
    async fn commit_apart(&self, parts: Vec<Part>) {
        for part in parts {
            let result = match self.write(ACTION).await {
                Ok(tx) => commit_one(tx, &part.envelopes, &self.clock).await,
                Err(error) => Err(error),
            };
            part.settle(result);
        }
    }
}

async fn commit_one(
    mut tx: WriteTx,
    envelopes: &[Envelope],
    clock: &Clock,
) -> Result<(), StoreError> {
    insert(tx.connection(), envelopes, clock.micros()).await?;
    tx.commit(ACTION).await
}

impl Part {
    /// Nobody may be waiting any more, which is no fault.
    fn settle(self, result: Result<(), StoreError>) {
        let _ = self.answer.send(result);
    }
}

fn refuse(parts: Vec<Part>, error: &StoreError) {
    for part in parts {
        let text = std::error::Error::source(error)
            .map_or_else(|| error.to_string(), |source| source.to_string());
        part.settle(Err(StoreError::found(error.kind(), ACTION, text)));
    }
}
