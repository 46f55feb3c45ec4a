//! Requests accepted once.

use onceward_core::store::{AcceptRequest, Acceptance, Accepted, StoreError, StoreErrorKind};

use super::connection::{MemoryConnection, MemoryError};
use super::writes::{Claim, Unique, Write};
use super::{Defect, MemoryStore, Operation};

impl Acceptance for MemoryStore {
    async fn accept(
        &self,
        connection: &mut MemoryConnection,
        request: AcceptRequest<'_>,
    ) -> Result<Accepted, StoreError> {
        self.enter(Operation::Accept).await?;
        let place = self.place(&request);
        let now = self.shared.clock.now();
        let unique = Unique::Accepted(place.clone());
        let known = {
            let mut state = self.shared.state();
            let own = state.tx(connection.number, now);
            let own =
                own.map_err(|kind| MemoryError::Ended(kind).into_store_error(Operation::Accept))?;
            let own = own.writes.iter().rev().find_map(|write| match write {
                Write::Accept(claimed, claim) if *claimed == place => Some(claim.clone()),
                _ => None,
            });
            if own.is_none() && state.holder(connection.number, &unique).is_some() {
                return Ok(Accepted::InFlight);
            }
            let committed = state.tables.accepted.get(&place);
            let committed = committed.filter(|claim| claim.expires_at > now);
            own.or_else(|| committed.cloned())
        };
        match known {
            Some(claim) if claim.digest != request.digest => Ok(Accepted::Mismatch),
            Some(claim) => Ok(claim
                .answer
                .map_or(Accepted::InFlight, |answer| Accepted::Again { answer })),
            None => {
                self.claim(connection, &request, None)?;
                Ok(Accepted::First)
            }
        }
    }

    async fn answer(
        &self,
        connection: &mut MemoryConnection,
        request: AcceptRequest<'_>,
        answer: &str,
    ) -> Result<(), StoreError> {
        self.enter(Operation::Accept).await?;
        let place = self.place(&request);
        let has_claim = {
            let mut state = self.shared.state();
            let now = self.shared.clock.now();
            let tx = state
                .tx(connection.number, now)
                .map_err(|kind| MemoryError::Ended(kind).into_store_error(Operation::Accept))?;
            let mut claims = tx.writes.iter().filter_map(Write::unique);
            claims.any(|unique| unique == Unique::Accepted(place.clone()))
        };
        if !has_claim {
            let found = "an answer needs a request accepted in the same transaction";
            let action = Operation::Accept.action();
            return Err(StoreError::found(StoreErrorKind::Other, action, found));
        }
        self.claim(connection, &request, Some(answer))
    }
}

impl MemoryStore {
    fn place(&self, request: &AcceptRequest<'_>) -> (String, String) {
        let caller = if self.shared.has(Defect::CallersShareKeys) {
            ""
        } else {
            request.caller
        };
        (caller.to_owned(), request.key.to_owned())
    }

    fn claim(
        &self,
        connection: &MemoryConnection,
        request: &AcceptRequest<'_>,
        answer: Option<&str>,
    ) -> Result<(), StoreError> {
        let memory_ms = i64::try_from(request.memory_ms).unwrap_or(i64::MAX);
        let claim = Claim {
            digest: request.digest,
            answer: answer.map(Into::into),
            expires_at: self.shared.clock.now().plus_millis(memory_ms),
        };
        connection
            .write(Write::Accept(self.place(request), claim))
            .map_err(|error| error.into_store_error(Operation::Accept))
    }
}
