//! `POST /v1/messages`.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use onceward_core::Envelope;
use onceward_core::cloudevents::{self, EventFault, Mode};
use onceward_core::store::StoreErrorKind;

use crate::access::{Caller, Scope};
use crate::code::Code;
use crate::gate::{GateError, Outcome, Refusal, Submission, SubmissionKey};
use crate::problem::Problem;
use crate::{Console, guard, idempotency};

const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Content types that a page of another site can send without asking first.
const SIMPLE: [&str; 3] = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
];

pub(crate) async fn accept(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::require(&caller, Scope::Publish)?;
    let mode = mode(&headers)?;
    let key = match idempotency::key(&headers)? {
        Some(key) => SubmissionKey::Given(key),
        None => SubmissionKey::Events,
    };
    let body = read(&console, &headers, body).await?;
    let envelopes = decode(mode, &headers, &body).map_err(|fault| unreadable(&fault))?;
    check_types(&console, mode, &envelopes)?;
    let outcome = console.gate.accept(Submission {
        caller: caller.name,
        key,
        envelopes,
    });
    match outcome.await.map_err(failed)? {
        Outcome::Accepted(receipt) => {
            let mut response = (
                StatusCode::ACCEPTED,
                [(header::CONTENT_TYPE, "application/json")],
                receipt.answer,
            )
                .into_response();
            if receipt.is_replayed {
                let replayed = header::HeaderValue::from_static("true");
                response
                    .headers_mut()
                    .insert(IDEMPOTENCY_REPLAYED, replayed);
            }
            Ok(response)
        }
        Outcome::Refused { refusal, index } => Err(refused(refusal, index)),
    }
}

/// How the request carries events.
fn mode(headers: &HeaderMap) -> Result<Mode, Problem> {
    let refused = |detail: &str| {
        let accepted = [cloudevents::STRUCTURED, cloudevents::BATCH];
        Problem::new(Code::ContentType, detail).with("accepted", accepted.as_slice())
    };
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let content_type = match (given.next(), given.next()) {
        (None, _) => None,
        (Some(value), None) => Some(value.to_str().map_err(|_| refused("it is not ASCII"))?),
        (Some(_), Some(_)) => return Err(refused("there is more than one content type")),
    };
    let essence = content_type
        .and_then(|t| t.split(';').next())
        .unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    if SIMPLE.contains(&essence.as_str()) {
        return Err(refused(
            "forms and plain text are not taken, whatever the headers say",
        ));
    }
    Mode::of(content_type, headers.contains_key("ce-specversion")).ok_or_else(|| {
        refused("send a CloudEvent: as JSON, as a batch, or with ce- headers and its data as body")
    })
}

/// The whole body, within bounds of size and time.
pub(crate) async fn read(
    console: &Console,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, Problem> {
    let bytes_max = console.body_bytes_max;
    let too_large = || {
        let detail = format!("at most {bytes_max} bytes are accepted");
        Problem::new(Code::TooLarge, detail).with("limit_bytes", bytes_max)
    };
    let declared = headers.get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(console.body_timeout, to_bytes(body, bytes_max)).await {
        Ok(Ok(body)) => Ok(body),
        // A body that breaks off has nobody left to read the answer.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let detail = format!("the body took longer than {:?}", console.body_timeout);
            Err(Problem::new(Code::TooSlow, detail))
        }
    }
}

fn decode(mode: Mode, headers: &HeaderMap, body: &[u8]) -> Result<Vec<Envelope>, EventFault> {
    match mode {
        Mode::Binary => {
            let headers = headers.iter();
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
            cloudevents::from_binary(headers, body).map(|envelope| vec![envelope])
        }
        Mode::Structured => cloudevents::from_structured(body).map(|envelope| vec![envelope]),
        Mode::Batch => cloudevents::from_batch(body),
    }
}

fn check_types(console: &Console, mode: Mode, envelopes: &[Envelope]) -> Result<(), Problem> {
    let Some(types) = &console.types else {
        return Ok(());
    };
    let unknown = |envelope: &Envelope| !types.contains(&envelope.message_type);
    let Some(index) = envelopes.iter().position(unknown) else {
        return Ok(());
    };
    let message_type = &envelopes[index].message_type;
    let detail = format!("no message type is called {message_type:?}");
    let problem = Problem::new(Code::UnknownType, detail);
    Err(match mode {
        Mode::Binary => problem.with("header", "ce-type"),
        Mode::Structured => problem.with("pointer", "/type"),
        Mode::Batch => problem
            .with("pointer", format!("/{index}/type"))
            .with("index", index),
    })
}

fn unreadable(fault: &EventFault) -> Problem {
    let mut problem = Problem::new(Code::EventUnreadable, fault.to_string());
    problem = match &fault.place {
        cloudevents::Place::Pointer(pointer) => problem.with("pointer", pointer.as_str()),
        cloudevents::Place::Header(name) => problem.with("header", name.as_str()),
        // The body is the event's data.
        cloudevents::Place::Body => problem.with("pointer", "/data"),
    };
    match fault.index {
        Some(index) => problem.with("index", index),
        None => problem,
    }
}

fn refused(refusal: Refusal, index: Option<usize>) -> Problem {
    let problem = match refusal {
        Refusal::InFlight => {
            let detail = "another request with this key is not finished; ask again shortly";
            Problem::new(Code::KeyInFlight, detail).retry_after_s(1)
        }
        Refusal::Mismatch => {
            let detail = "this key was used before, with other content";
            Problem::new(Code::KeyReused, detail)
        }
        Refusal::Throttled { retry_after_ms } => {
            let detail = "so much waits that what was promised of this type would be broken; \
                          nothing of this request is accepted";
            let seconds = retry_after_ms.div_ceil(1_000);
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            Problem::new(Code::Throttled, detail).retry_after_s(seconds)
        }
    };
    match index {
        Some(index) => problem.with("index", index),
        None => problem,
    }
}

/// What a failed store means to a caller. Nothing was acknowledged.
pub(crate) fn failed(error: GateError) -> Problem {
    let error = match error {
        GateError::Event(fault) => return unreadable(&fault),
        GateError::Store(error) => error,
    };
    // The source may quote data, so it is not shown.
    let detail = error.to_string();
    match error.kind() {
        StoreErrorKind::Full => Problem::new(Code::StoreFull, detail).retry_after_s(30),
        StoreErrorKind::Refused => Problem::new(Code::DataRefused, detail),
        StoreErrorKind::Unavailable => {
            // What stands between this program and the database quotes nothing of a message.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(kind = ?error.kind(), %error, cause, "the store failed a request");
            Problem::new(Code::StoreAway, detail).retry_after_s(1)
        }
        StoreErrorKind::ReadOnly
        | StoreErrorKind::Conflict
        | StoreErrorKind::Fenced
        | StoreErrorKind::CommitUnknown
        | StoreErrorKind::WrongEra
        | StoreErrorKind::Schema => {
            tracing::warn!(kind = ?error.kind(), %error, "the store failed a request");
            Problem::new(Code::StoreAway, detail).retry_after_s(1)
        }
        kind => {
            tracing::error!(?kind, %error, "the store failed a request");
            Problem::new(Code::Internal, detail)
        }
    }
}
