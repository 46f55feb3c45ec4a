//! The order service: accepts an order once, however often it is asked.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onceward::core::store::{StoreError, StoreErrorKind};
use onceward::{Accepted, AppendError, Outbox};
use serde_json::json;
use uuid::Uuid;

use crate::in_hand::InHand;
use crate::request::{OrderRequest, RequestFault};
use crate::shop::ShopBooks;

/// The header with the client's key.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header of an answer that was given before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Largest request, in bytes.
pub const BODY_BYTES_MAX: usize = 16 << 10;

/// Keys are scoped by caller; this service has one, and nothing that tells callers apart.
const CALLER: &str = "shop";

struct Service<S> {
    outbox: Outbox<S>,
    in_hand: InHand,
}

/// `POST /orders`, `GET /orders/{order_id}`.
pub fn router<S: ShopBooks>(store: S, in_hand: InHand) -> Router {
    let service = Service {
        outbox: Outbox::new(store),
        in_hand,
    };
    Router::new()
        .route("/orders", post(accept::<S>))
        .route("/orders/{order_id}", get(status::<S>))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(service))
}

async fn accept<S: ShopBooks>(
    State(service): State<Arc<Service<S>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let _piece = service.in_hand.take();
    let key = key_of(&headers)?;
    let request = OrderRequest::parse(&body).map_err(|fault| Problem::request(&fault))?;
    let outbox = &service.outbox;
    let mut tx = outbox
        .store()
        .begin_shop()
        .await
        .map_err(|e| Problem::database(outbox.store(), e))?;
    match outbox.accept(&mut tx, CALLER, key, &body).await? {
        Accepted::First => {}
        Accepted::Again { answer } => return Ok(created(&answer, true)),
        Accepted::InFlight => return Err(Problem::in_flight()),
        Accepted::Mismatch => return Err(Problem::mismatch()),
    }
    let order = request.accepted_as(format!("ord-{}", Uuid::now_v7().simple()));
    let answer = json!({
        "order_id": order.order_id, "checkout_id": order.checkout_id, "status": "accepted",
    });
    let answer = answer.to_string();
    // Order, message and answer commit together or not at all.
    S::insert_order(&mut tx, &order)
        .await
        .map_err(|e| Problem::database(outbox.store(), e))?;
    outbox.append(&mut tx, &order).await?;
    outbox.answer(&mut tx, CALLER, key, &body, &answer).await?;
    S::commit_shop(tx)
        .await
        .map_err(|e| Problem::database(outbox.store(), e))?;
    outbox.ring();
    Ok(created(&answer, false))
}

async fn status<S: ShopBooks>(
    State(service): State<Arc<Service<S>>>,
    Path(order_id): Path<String>,
) -> Result<Response, Problem> {
    let store = service.outbox.store();
    let found = store.find_order(&order_id).await;
    match found.map_err(|e| Problem::database(store, e))? {
        Some(order) => Ok(axum::Json(order).into_response()),
        None => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "there is no order of this id",
        )),
    }
}

fn created(answer: &str, is_replayed: bool) -> Response {
    let kind = (header::CONTENT_TYPE, "application/json");
    let mut response = (StatusCode::CREATED, [kind], answer.to_owned()).into_response();
    if is_replayed {
        let value = axum::http::HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, value);
    }
    response
}

fn key_of(headers: &HeaderMap) -> Result<&str, Problem> {
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|v| v.to_str().ok());
    let key = key.map(|key| key.trim_matches('"')).unwrap_or_default();
    if key.is_empty() || key.len() > 255 {
        let text = "the header Idempotency-Key is missing: 1 to 255 visible ASCII characters";
        return Err(Problem::new(StatusCode::BAD_REQUEST, text));
    }
    Ok(key)
}

/// An error as in RFC 9457.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    detail: String,
    pointer: Option<&'static str>,
    retry_after_seconds: Option<u32>,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            pointer: None,
            retry_after_seconds: None,
        }
    }

    fn request(fault: &RequestFault) -> Self {
        let mut problem = Self::new(StatusCode::BAD_REQUEST, fault.message.clone());
        problem.pointer = Some(fault.pointer);
        problem
    }

    fn in_flight() -> Self {
        let text = "a request with this key is being worked on";
        let mut problem = Self::new(StatusCode::CONFLICT, text);
        problem.retry_after_seconds = Some(1);
        problem
    }

    fn mismatch() -> Self {
        let text = "this key was used with another body";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, text)
    }

    fn database<S: onceward::core::store::Append>(store: &S, error: sqlx::Error) -> Self {
        let kind = store.classify(&error).unwrap_or(StoreErrorKind::Other);
        Self::store(&StoreError::new(kind, "write the order", error))
    }

    /// Whether the work was done or not is told by the same key asked again.
    fn store(error: &StoreError) -> Self {
        let reason = error as &(dyn std::error::Error + 'static);
        tracing::warn!(error = reason, "an order could not be accepted");
        let text = "the order could not be written; ask again with the same key";
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, text);
        if !error.kind().is_passing() {
            problem.status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        problem.retry_after_seconds = Some(1);
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::store(&error)
    }
}

impl From<AppendError> for Problem {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Store(error) => Self::store(&error),
            other => Self::store(&StoreError::new(StoreErrorKind::Refused, "append", other)),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({ "status": self.status.as_u16(), "detail": self.detail });
        if let Some(pointer) = self.pointer {
            body["pointer"] = json!(pointer);
        }
        let kind = (header::CONTENT_TYPE, "application/problem+json");
        let mut response = (self.status, [kind], body.to_string()).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
