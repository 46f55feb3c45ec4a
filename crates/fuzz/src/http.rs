//! Any request to the HTTP API, in this process, onto a store in memory: answered as it promises,
//! accepted only from whom and for what it may be, and then exactly once and byte for byte.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::Response;
use onceward_console::{Access, Console, Scope, StoreGate};
use onceward_core::cloudevents::{Mode, from_batch, from_binary, from_structured};
use onceward_core::store::{Log as _, ReadPage, Schema as _};
use onceward_core::{Envelope, Position, Row};
use onceward_testkit::memory::MemoryStore;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::{place, request};

/// The token, where one is configured.
const TOKEN: &str = "0123456789abcdef";

/// A header that no parser looks at: with it a token is configured here.
const CLOSED: &str = "x-closed";

/// Largest body, so that a body can be too large here.
const BODY_BYTES_MAX: usize = 8 << 10;

/// A request line, headers, a blank line and the body.
pub(crate) fn ask(data: &[u8]) {
    let (head, body) = request::head_and_body(data);
    let Some(parts) = parts(&head) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(exchange(&parts, body));
}

/// The head of a request that a server would hand over.
fn parts(head: &[&[u8]]) -> Option<Parts> {
    let (first, rest) = head.split_first()?;
    let mut words = str::from_utf8(first).ok()?.split(' ');
    let mut builder = Request::builder().method(words.next()?).uri(words.next()?);
    for line in rest {
        let (name, value) = request::header(line);
        builder = builder.header(name, value.trim_ascii());
    }
    Some(builder.body(()).ok()?.into_parts().0)
}

/// What came back.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn exchange(parts: &Parts, body: &[u8]) {
    let store = MemoryStore::default();
    store.migrate().await.expect("a store in memory");
    let is_closed = parts.headers.contains_key(CLOSED);
    let mut access = Access::default();
    if is_closed {
        let scopes = [Scope::Publish, Scope::Read];
        access = access.with_token("shop", TOKEN, scopes).expect("a token");
    }
    let console = Console::new(StoreGate::new(store.clone())).access(access);
    let router = console.body_bytes_max(BODY_BYTES_MAX).router();
    let mut answers = Vec::new();
    let mut logs = Vec::new();
    for _ in 0..2 {
        let mut request = Request::new(Body::from(body.to_vec()));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        let response = router.clone().oneshot(request).await;
        let response = response.unwrap_or_else(|never| match never {});
        answers.push(answer(&parts.method, response).await);
        logs.push(log(&store).await);
        assert_eq!(store.open_transactions(), 0, "a transaction is left open");
    }
    let (first, again) = (&answers[0], &answers[1]);
    assert_eq!(logs[0], logs[1], "the same request is accepted twice");
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    if first.status != StatusCode::ACCEPTED {
        return assert!(logs[0].is_empty(), "refused and stored");
    }
    may(parts, is_closed);
    let expected = events(parts, body);
    let stored: Vec<Envelope> = logs.remove(0).into_iter().map(|row| row.envelope).collect();
    assert_eq!(stored, once(expected));
    let is_replayed = |answer: &Answer| answer.headers.contains_key("idempotency-replayed");
    let is_given = parts.headers.contains_key("idempotency-key");
    assert!(!is_replayed(first) || stored.is_empty());
    assert_eq!(is_replayed(again), is_given || !stored.is_empty());
}

/// An answer that keeps to what the API says about all of them.
async fn answer(method: &Method, response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX)
        .await
        .expect("an answer is whole");
    let value = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    assert_eq!(value(header::CACHE_CONTROL), Some("no-store"));
    assert_eq!(value(header::X_CONTENT_TYPE_OPTIONS), Some("nosniff"));
    let status = parts.status;
    assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_client_error() && method != Method::HEAD {
        assert_eq!(
            value(header::CONTENT_TYPE),
            Some("application/problem+json")
        );
        let problem: Value = serde_json::from_slice(&body).expect("a problem is JSON");
        assert_eq!(problem["status"], status.as_u16());
        let code = problem["code"].as_str().expect("a problem has a code");
        let uri = problem["type"].as_str().expect("a problem has a type");
        assert!(uri.ends_with(code), "{problem}");
        place::plain(problem["detail"].as_str().expect("a problem says what"));
        let is_placed = problem["pointer"].is_string() || problem["header"].is_string();
        assert!(is_placed || code != "OW2001", "{problem} has no place");
    } else if status == StatusCode::ACCEPTED {
        let told: Value = serde_json::from_slice(&body).expect("a receipt is JSON");
        assert!(told["messages"].is_array());
    }
    Answer {
        status,
        headers: parts.headers,
        body,
    }
}

/// What the log holds.
async fn log(store: &MemoryStore) -> Vec<Row> {
    let head = store.head().await.expect("a store in memory");
    let from = Position::origin(head.era);
    let page = store.read(ReadPage {
        from: &from,
        rows_max: 100_000,
        bytes_max: u64::MAX,
    });
    page.await.expect("a store in memory").rows
}

/// The rules for who may ask, put once more and otherwise than in the guard.
fn may(parts: &Parts, is_closed: bool) {
    assert_eq!(parts.method, Method::POST);
    assert_eq!(parts.uri.path(), "/v1/messages");
    let all = |name: &str| -> Vec<String> {
        let values = parts.headers.get_all(name).iter();
        let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_lowercase());
        texts.collect()
    };
    let host = match all("host").as_slice() {
        [host] => host.clone(),
        [] => parts
            .uri
            .authority()
            .expect("a host")
            .as_str()
            .to_lowercase(),
        several => panic!("{several:?} are served"),
    };
    let names = ["localhost", "127.0.0.1", "[::1]"];
    let is_ours = names.iter().any(|name| match host.strip_prefix(name) {
        Some("") => true,
        Some(port) => port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit())),
        None => false,
    });
    assert!(is_ours, "{host} is served");
    for origin in all("origin") {
        let is_own = origin == format!("http://{host}") || origin == format!("https://{host}");
        assert!(is_own, "a page of {origin} is served");
    }
    for site in all("sec-fetch-site") {
        assert!(site == "same-origin" || site == "none", "{site} is served");
    }
    if is_closed {
        let given = parts.headers.get(header::AUTHORIZATION);
        let given = given
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        assert!(
            given.ends_with(TOKEN),
            "a caller without the token is served"
        );
    }
    let simple = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ];
    for given in all("content-type") {
        let is_simple = simple.iter().any(|simple| given.trim().starts_with(simple));
        let names_more = simple.iter().any(|simple| {
            let rest = given.trim().strip_prefix(simple);
            rest.is_some_and(|rest| {
                !rest.trim_start().is_empty() && !rest.trim_start().starts_with(';')
            })
        });
        assert!(!is_simple || names_more, "a form is accepted: {given}");
    }
}

/// The events of a request that was accepted.
fn events(parts: &Parts, body: &[u8]) -> Vec<Envelope> {
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let mode = Mode::of(content_type, parts.headers.contains_key("ce-specversion"));
    let read = match mode.expect("what is accepted carries events") {
        Mode::Binary => {
            let headers = parts.headers.iter();
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
            from_binary(headers, body).map(|event| vec![event])
        }
        Mode::Structured => from_structured(body).map(|event| vec![event]),
        Mode::Batch => from_batch(body),
    };
    read.expect("what is accepted can be read")
}

/// Without events that repeat an earlier one by source and id, and so are known.
fn once(events: Vec<Envelope>) -> Vec<Envelope> {
    let mut kept: Vec<Envelope> = Vec::new();
    for event in events {
        let is_known = |k: &Envelope| (&k.source, &k.id) == (&event.source, &event.id);
        if !kept.iter().any(is_known) {
            kept.push(event);
        }
    }
    kept
}
