//! Accepting a request once, in the caller's transaction. Another transaction's unfinished claim
//! can never be seen here: it would be the one writer.

use onceward_core::store::{AcceptRequest, Acceptance, Accepted, StoreError, StoreErrorKind};
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use crate::Sqlite;
use crate::error::Attempt;
use crate::row::int;

const CLAIM: &str = include_str!("../sql/acceptance/claim.sql");
const FIND: &str = include_str!("../sql/acceptance/find.sql");
const ANSWER: &str = include_str!("../sql/acceptance/answer.sql");

/// Memories are added to moments in microseconds.
fn memory_ms(request: &AcceptRequest<'_>) -> i64 {
    int(request.memory_ms).min(i64::MAX / 4_000)
}

impl Acceptance for Sqlite {
    async fn accept(
        &self,
        connection: &mut SqliteConnection,
        request: AcceptRequest<'_>,
    ) -> Result<Accepted, StoreError> {
        const ACTION: &str = "claim an idempotency key";
        let claimed = sqlx::query(CLAIM)
            .bind(request.caller)
            .bind(request.key)
            .bind(request.digest.as_slice())
            .bind(memory_ms(&request))
            .bind(self.now())
            .execute(&mut *connection)
            .await
            .attempting(ACTION)?;
        if claimed.rows_affected() > 0 {
            return Ok(Accepted::First);
        }
        let found = sqlx::query(FIND)
            .bind(request.caller)
            .bind(request.key)
            .fetch_one(connection)
            .await
            .attempting(ACTION)?;
        let digest: &[u8] = found.try_get("digest").attempting(ACTION)?;
        if digest != request.digest {
            return Ok(Accepted::Mismatch);
        }
        let answer: Option<&str> = found.try_get("answer").attempting(ACTION)?;
        Ok(answer.map_or(Accepted::InFlight, |answer| Accepted::Again {
            answer: answer.into(),
        }))
    }

    async fn answer(
        &self,
        connection: &mut SqliteConnection,
        request: AcceptRequest<'_>,
        answer: &str,
    ) -> Result<(), StoreError> {
        const ACTION: &str = "store the answer to a request";
        let done = sqlx::query(ANSWER)
            .bind(request.caller)
            .bind(request.key)
            .bind(request.digest.as_slice())
            .bind(answer)
            .bind(memory_ms(&request))
            .execute(connection)
            .await
            .attempting(ACTION)?;
        if done.rows_affected() == 0 {
            return Err(StoreError::found(
                StoreErrorKind::Refused,
                ACTION,
                "the key was not claimed with this body before",
            ));
        }
        Ok(())
    }
}
