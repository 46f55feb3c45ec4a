//! A gate onto any store.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::cloudevents::to_structured;
use onceward_core::store::{
    AcceptRequest, Acceptance, Accepted, Begin, Effects, End, MessageStatus, Operate,
    OperationQuery, RevealOperation, Schema, SchemaState, Status,
};
use onceward_core::{Digest, Envelope};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::gate::{
    BoxFuture, Gate, GateError, NotReady, Outcome, Receipt, Refusal, Submission, SubmissionKey,
};

/// How long answers are kept where nothing else is said: 7 days.
const MEMORY_MS_DEFAULT: u64 = 7 * 86_400_000;

/// Longest wait for the database when readiness is asked.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Most messages of one operation in an answer.
const OPERATION_ROWS_MAX: u32 = 100;

type Pulse = dyn Fn() -> Result<(), String> + Send + Sync;
type Doorbell = dyn Fn() + Send + Sync;
type Throttle = dyn Fn(&str) -> Option<u64> + Send + Sync;

/// Accepts into a store, and asks it.
#[derive(Clone)]
pub struct StoreGate<S> {
    store: S,
    memory_ms: u64,
    pulse: Option<Arc<Pulse>>,
    doorbell: Option<Arc<Doorbell>>,
    throttle: Option<Arc<Throttle>>,
}

impl<S> StoreGate<S> {
    /// A gate onto `store`, without an engine beside it.
    pub const fn new(store: S) -> Self {
        Self {
            store,
            memory_ms: MEMORY_MS_DEFAULT,
            pulse: None,
            doorbell: None,
            throttle: None,
        }
    }

    /// How long the answer to an idempotency key is kept, in milliseconds.
    #[must_use]
    pub const fn memory_ms(mut self, memory_ms: u64) -> Self {
        self.memory_ms = memory_ms;
        self
    }

    /// How to ask whether the engine is running; readiness includes it. The text says why not.
    #[must_use]
    pub fn engine(
        mut self,
        pulse: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.pulse = Some(Arc::new(pulse));
        self
    }

    /// What to call after messages were committed, to wake engines in this process.
    #[must_use]
    pub fn doorbell(mut self, ring: impl Fn() + Send + Sync + 'static) -> Self {
        self.doorbell = Some(Arc::new(ring));
        self
    }

    /// How to ask whether new messages of a type are refused: after how many milliseconds to try
    /// again, if they are. It is asked for each new message and must not wait.
    #[must_use]
    pub fn throttle(
        mut self,
        throttle: impl Fn(&str) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.throttle = Some(Arc::new(throttle));
        self
    }

    /// The first of some new messages that is refused now.
    fn throttled(&self, envelopes: &[Envelope]) -> Option<(usize, Refusal)> {
        let throttle = self.throttle.as_ref()?;
        envelopes.iter().enumerate().find_map(|(index, envelope)| {
            let retry_after_ms = throttle(&envelope.message_type)?;
            Some((index, Refusal::Throttled { retry_after_ms }))
        })
    }
}

/// What one key's part of a submission came to.
enum Part {
    New(String),
    Again(String),
    /// With the index of the message with which it lies, if it does.
    Refused(Refusal, Option<usize>),
}

impl<S: Acceptance + Effects> StoreGate<S> {
    async fn submit(&self, submission: Submission) -> Result<Outcome, GateError> {
        let mut tx = self.store.begin(Begin { lease: None }).await?;
        let outcome = self.fill(&mut tx, &submission).await;
        let is_new = matches!(&outcome, Ok(Outcome::Accepted(receipt)) if !receipt.is_replayed);
        let end = if is_new { End::Commit } else { End::RollBack };
        let ended = self.store.end(tx, end).await;
        let outcome = outcome?;
        if is_new {
            ended?;
            if let Some(ring) = &self.doorbell {
                ring();
            }
        }
        Ok(outcome)
    }

    async fn fill(&self, tx: &mut S::Tx, submission: &Submission) -> Result<Outcome, GateError> {
        let caller = submission.caller.as_str();
        let envelopes = submission.envelopes.as_slice();
        let refused = |refusal, index| Ok(Outcome::Refused { refusal, index });
        if let SubmissionKey::Given(key) = &submission.key {
            let receipt = |answer, is_replayed| {
                Ok(Outcome::Accepted(Receipt {
                    answer,
                    is_replayed,
                }))
            };
            let key = format!("key {key}");
            return match self.part(tx, caller, &key, envelopes).await? {
                Part::New(parts) => receipt(parts, false),
                Part::Again(parts) => receipt(parts, true),
                Part::Refused(refusal, index) => refused(refusal, index),
            };
        }
        let mut answers = Vec::with_capacity(envelopes.len());
        let mut is_replayed = !envelopes.is_empty();
        for (index, envelope) in envelopes.iter().enumerate() {
            // A source has no blank, so the two cannot run into each other.
            let source = envelope.source.as_deref().unwrap_or_default();
            let key = format!("event {source} {}", envelope.id);
            let one = std::slice::from_ref(envelope);
            match self.part(tx, caller, &key, one).await? {
                Part::New(answer) => {
                    is_replayed = false;
                    answers.push(answer);
                }
                Part::Again(answer) => answers.push(answer),
                Part::Refused(refusal, _) => return refused(refusal, Some(index)),
            }
        }
        Ok(Outcome::Accepted(Receipt {
            answer: join(&answers),
            is_replayed,
        }))
    }

    /// Accepts what one key covers.
    async fn part(
        &self,
        tx: &mut S::Tx,
        caller: &str,
        key: &str,
        envelopes: &[Envelope],
    ) -> Result<Part, GateError> {
        let request = AcceptRequest {
            caller,
            key,
            digest: digest(envelopes)?,
            memory_ms: self.memory_ms,
        };
        let connection = self.store.connection(tx);
        match self.store.accept(connection, request.clone()).await? {
            Accepted::First => {
                // Only what is new: an answer that was given is given again, whatever waits. The
                // claim goes with the transaction.
                if let Some((index, refusal)) = self.throttled(envelopes) {
                    return Ok(Part::Refused(refusal, Some(index)));
                }
                self.store.append(connection, envelopes).await?;
                let answer = answer(envelopes);
                self.store.answer(connection, request, &answer).await?;
                Ok(Part::New(answer))
            }
            Accepted::Again { answer } => Ok(Part::Again(answer.into_string())),
            Accepted::InFlight => Ok(Part::Refused(Refusal::InFlight, None)),
            Accepted::Mismatch => Ok(Part::Refused(Refusal::Mismatch, None)),
        }
    }
}

/// What the caller is told, and told again.
fn answer(envelopes: &[Envelope]) -> String {
    let messages = envelopes.iter().map(|envelope| {
        let operation = envelope.operation();
        json!({
            "id": envelope.id,
            "source": envelope.source,
            "operation": operation,
            "status": "accepted",
            "href": format!("/v1/operations/{}", segment(operation)),
        })
    });
    json!({ "messages": messages.collect::<Vec<_>>() }).to_string()
}

/// One answer out of those of single events, each kept as it was given.
fn join(answers: &[String]) -> String {
    const OPEN: &str = "{\"messages\":[";
    const CLOSE: &str = "]}";
    if let [only] = answers {
        return only.clone();
    }
    let items = answers.iter().filter_map(|answer| {
        let items = answer.strip_prefix(OPEN)?;
        items.strip_suffix(CLOSE)
    });
    format!("{OPEN}{}{CLOSE}", items.collect::<Vec<_>>().join(","))
}

/// A text as one segment of a path.
fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The same for the same events, however they were carried.
fn digest(envelopes: &[Envelope]) -> Result<Digest, GateError> {
    let mut hash = Sha256::new();
    for envelope in envelopes {
        let text = to_structured(envelope, None)?;
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    let mut digest = Digest::default();
    digest.copy_from_slice(&hash.finalize()[..16]);
    Ok(digest)
}

impl<S: Schema> StoreGate<S> {
    async fn check(&self) -> Result<(), NotReady> {
        let database = |reason: String| NotReady {
            check: "database",
            reason,
        };
        self.store
            .ping()
            .await
            .map_err(|error| database(error.to_string()))?;
        let state = self.store.schema_state().await;
        let reason = match state.map_err(|error| database(error.to_string()))? {
            SchemaState::Current { .. } => return Ok(()),
            SchemaState::Missing => "there are no tables: migrate first".to_owned(),
            SchemaState::Behind { version, needed } => {
                format!("the tables have version {version}, {needed} is needed: migrate first")
            }
            SchemaState::Ahead { version, known } => {
                format!("the tables have version {version}; this program knows {known} at most")
            }
        };
        Err(NotReady {
            check: "schema",
            reason,
        })
    }
}

impl<S: Acceptance + Effects + Status + Schema + Operate> Gate for StoreGate<S> {
    fn accept(&self, submission: Submission) -> BoxFuture<'_, Result<Outcome, GateError>> {
        Box::pin(self.submit(submission))
    }

    fn operation<'a>(
        &'a self,
        operation: &'a str,
    ) -> BoxFuture<'a, Result<Vec<MessageStatus>, GateError>> {
        Box::pin(async move {
            let query = OperationQuery {
                operation,
                rows_max: OPERATION_ROWS_MAX,
            };
            Ok(self.store.operation(query).await?)
        })
    }

    fn reveal_operation<'a>(
        &'a self,
        request: RevealOperation<'a>,
    ) -> BoxFuture<'a, Result<(), GateError>> {
        Box::pin(async move { Ok(self.store.reveal_operation(request).await?) })
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), NotReady>> {
        Box::pin(async move {
            if let Some(pulse) = &self.pulse {
                pulse().map_err(|reason| NotReady {
                    check: "engine",
                    reason,
                })?;
            }
            let late = |_| NotReady {
                check: "database",
                reason: format!("no answer within {} s", READY_WITHIN.as_secs()),
            };
            let checked = tokio::time::timeout(READY_WITHIN, self.check()).await;
            checked.map_err(late)?
        })
    }
}

#[cfg(test)]
mod tests {
    use onceward_core::Payload;

    use super::*;

    #[test]
    fn single_answers_join_unchanged() {
        let event = |id: &str| {
            let mut event = Envelope::new(id, "a", "b", "a.b", Payload::Json("1".into()));
            event.source = Some("//s".into());
            event.operation_id = Some(format!("op/{id}"));
            event
        };
        let events = [event("1"), event("2\"")];
        let parts = events.each_ref().map(|e| answer(std::slice::from_ref(e)));
        assert_eq!(join(&parts), answer(&events));
        assert_eq!(join(&parts[..1]), answer(&events[..1]));
        assert_eq!(join(&[]), answer(&[]));
        assert!(answer(&events).contains("\"href\":\"/v1/operations/op%2F1\""));
    }

    #[test]
    fn digests_tell_events_and_groupings_apart() {
        let event = |id: &str, text: &str| {
            let mut event = Envelope::new(id, "a", "b", "a.b", Payload::Json(text.into()));
            event.source = Some("//s".into());
            event
        };
        let of = |events: &[Envelope]| digest(events).unwrap();
        let (a, b) = (event("1", "1"), event("2", "1"));
        assert_eq!(of(std::slice::from_ref(&a)), of(std::slice::from_ref(&a)));
        assert_ne!(of(std::slice::from_ref(&a)), of(&[event("1", "1.0")]));
        assert_ne!(of(&[a.clone(), b.clone()]), of(&[b, a]));
    }
}
