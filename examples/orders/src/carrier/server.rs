//! The carrier's HTTP side: `POST /bookings`, `GET /bookings/{operation}`.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::mood::{Mood, Moods};
use super::record::Record;
use super::{COUNTRIES, UNSUPPORTED_ADDRESS};
use crate::in_hand::InHand;
use crate::message::Address;
use crate::service::IDEMPOTENCY_KEY;

/// What a carrier is made of.
#[derive(Debug)]
pub struct CarrierOptions {
    /// Its record.
    pub record: Record,
    /// How it behaves.
    pub moods: Moods,
    /// Shows what is unfinished.
    pub in_hand: InHand,
}

/// A request for a booking; its operation is the idempotency key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BookingRequest {
    pub(super) order_id: String,
    pub(super) address: Address,
}

struct Carrier {
    record: Mutex<Record>,
    /// Operations asked for since the start: only the first request meets a mood.
    met: Mutex<HashSet<String>>,
    moods: Moods,
    in_hand: InHand,
}

/// The carrier's routes.
pub fn router(options: CarrierOptions) -> Router {
    let carrier = Carrier {
        record: Mutex::new(options.record),
        met: Mutex::default(),
        moods: options.moods,
        in_hand: options.in_hand,
    };
    Router::new()
        .route("/bookings", post(book))
        .route("/bookings/{operation}", get(find))
        .with_state(Arc::new(carrier))
}

async fn book(
    State(carrier): State<Arc<Carrier>>,
    headers: HeaderMap,
    Json(request): Json<BookingRequest>,
) -> Response {
    let _piece = carrier.in_hand.take();
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|v| v.to_str().ok());
    let Some(operation) = key.map(str::to_owned) else {
        let text = "the header Idempotency-Key is missing";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    if !COUNTRIES.contains(&request.address.country.as_str()) {
        let body = Json(json!({ "reason": UNSUPPORTED_ADDRESS }));
        return (StatusCode::UNPROCESSABLE_ENTITY, body).into_response();
    }
    let is_first = {
        let mut met = carrier.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.insert(operation.clone())
    };
    let mood = match is_first {
        true => carrier.moods.of(&operation),
        false => Mood::Fine(std::time::Duration::ZERO),
    };
    let busy = (StatusCode::SERVICE_UNAVAILABLE, "nothing was done");
    let answer_after = match mood {
        Mood::Busy => return busy.into_response(),
        Mood::Lost(after) => {
            tokio::time::sleep(after).await;
            return busy.into_response();
        }
        Mood::Fine(after) | Mood::DoneLate(after) => after,
    };
    let booked = with_record(&carrier, {
        let operation = operation.clone();
        move |record| record.book(&operation, &request.order_id)
    });
    let booked = booked.await;
    tokio::time::sleep(answer_after).await;
    match booked {
        Ok(booking) => answer(StatusCode::CREATED, &operation, Some(&booking)),
        Err(error) => failed(&error),
    }
}

async fn find(State(carrier): State<Arc<Carrier>>, Path(operation): Path<String>) -> Response {
    let _piece = carrier.in_hand.take();
    let found = with_record(&carrier, {
        let operation = operation.clone();
        move |record| record.find(&operation)
    });
    match found.await {
        Ok(Some(booking)) => answer(StatusCode::OK, &operation, Some(&booking)),
        Ok(None) => answer(StatusCode::NOT_FOUND, &operation, None),
        Err(error) => failed(&error),
    }
}

/// Works on the record where waiting for the disk holds nobody up. Goes on when the client leaves.
async fn with_record<T: Send + 'static>(
    carrier: &Arc<Carrier>,
    work: impl FnOnce(&mut Record) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let carrier = Arc::clone(carrier);
    let done = tokio::task::spawn_blocking(move || {
        let mut record = carrier
            .record
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work(&mut record)
    });
    done.await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn answer(status: StatusCode, operation: &str, booking: Option<&str>) -> Response {
    let body = Json(json!({ "operation": operation, "booking": booking }));
    (status, body).into_response()
}

fn failed(error: &io::Error) -> Response {
    tracing::error!(%error, "the record cannot be written");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
