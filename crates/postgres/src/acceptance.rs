//! Accepting a request once.

use onceward_core::store::{AcceptRequest, Acceptance, Accepted, StoreError, StoreErrorKind};
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
            .bind(
                i64::try_from(request.memory_ms)
                    .unwrap_or(i64::MAX)
                    .min(MAX_MEMORY_MS),
            )
            .bind(self.now());
        let row = query
            .fetch_one(connection)
            .await
            .map_err(while_doing(ACTION))?;
        let state: String = row.try_get("state").map_err(while_doing(ACTION))?;
        Ok(match state.as_str() {
            "first" => Accepted::First,
            "in-flight" => Accepted::InFlight,
            "mismatch" => Accepted::Mismatch,
            _ => {
                let answer: String = row.try_get("answer").map_err(while_doing(ACTION))?;
                Accepted::Again {
                    answer: answer.into(),
                }
            }
        })
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

/// A hundred years: later times cannot all be stored.
const MAX_MEMORY_MS: i64 = 100 * 366 * 86_400_000;
