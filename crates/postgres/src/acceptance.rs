//! Accepting a request once.

use onceward_core::store::{AcceptRequest, Acceptance, Accepted, StoreError, StoreErrorKind};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::session::Postgres;

const ACTION: &str = "accept a request";

impl Acceptance for Postgres {
    async fn accept(
        &self,
        connection: &mut PgConnection,
        request: AcceptRequest<'_>,
    ) -> Result<Accepted, StoreError> {
        let query = sqlx::query(include_str!("../sql/acceptance/accept.sql"))
            .persistent(self.keeps_statements().await)
            .bind(request.caller)
            .bind(request.key)
            .bind(request.digest.as_slice())
            .bind(memory_ms(&request))
            .bind(self.now());
        let row = query
            .fetch_one(connection)
            .await
            .map_err(while_doing(ACTION))?;
        accepted_of(&row).map_err(while_doing(ACTION))
    }

    async fn accept_all(
        &self,
        connection: &mut PgConnection,
        requests: &[AcceptRequest<'_>],
    ) -> Result<Vec<Accepted>, StoreError> {
        let texts = |text: for<'r> fn(&'r AcceptRequest<'r>) -> &'r str| -> Vec<&str> {
            requests.iter().map(text).collect()
        };
        let digests: Vec<&[u8]> = requests.iter().map(|r| r.digest.as_slice()).collect();
        let memories_ms: Vec<i64> = requests.iter().map(memory_ms).collect();
        let query = sqlx::query(include_str!("../sql/acceptance/accept_all.sql"))
            .persistent(self.keeps_statements().await)
            .bind(texts(|request| request.caller))
            .bind(texts(|request| request.key))
            .bind(digests)
            .bind(memories_ms)
            .bind(self.now());
        let rows = query
            .fetch_all(connection)
            .await
            .map_err(while_doing(ACTION))?;
        let accepted: Result<_, sqlx::Error> = rows.iter().map(accepted_of).collect();
        accepted.map_err(while_doing(ACTION))
    }

    async fn answer(
        &self,
        connection: &mut PgConnection,
        request: AcceptRequest<'_>,
        answer: &str,
    ) -> Result<(), StoreError> {
        const ACTION: &str = "store an answer";
        let query = sqlx::query(include_str!("../sql/acceptance/answer.sql"))
            .persistent(self.keeps_statements().await)
            .bind(request.caller)
            .bind(request.key)
            .bind(request.digest.as_slice())
            .bind(answer);
        let done = query
            .execute(connection)
            .await
            .map_err(while_doing(ACTION))?;
        if done.rows_affected() == 0 {
            let text = "the key was not claimed in this transaction, or has its answer already";
            return Err(StoreError::found(StoreErrorKind::Refused, ACTION, text));
        }
        Ok(())
    }
}

fn accepted_of(row: &PgRow) -> Result<Accepted, sqlx::Error> {
    let state: String = row.try_get("state")?;
    Ok(match state.as_str() {
        "first" => Accepted::First,
        "in-flight" => Accepted::InFlight,
        "mismatch" => Accepted::Mismatch,
        _ => {
            let answer: String = row.try_get("answer")?;
            Accepted::Again {
                answer: answer.into(),
            }
        }
    })
}

fn memory_ms(request: &AcceptRequest<'_>) -> i64 {
    let memory_ms = i64::try_from(request.memory_ms);
    memory_ms.unwrap_or(i64::MAX).min(MAX_MEMORY_MS)
}

/// A hundred years: later times cannot all be stored.
const MAX_MEMORY_MS: i64 = 100 * 366 * 86_400_000;
