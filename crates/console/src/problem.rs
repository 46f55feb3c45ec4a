//! Errors as RFC 9457 problems.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use crate::code::Code;

/// A problem, on its way to becoming an `application/problem+json` answer.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem with a text for this occurrence. Keep payload data out of it. What it repeats of a
    /// request comes without control characters: whoever shows it may show it on a terminal.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        Self {
            code,
            detail: detail.replace(char::is_control, "\u{fffd}"),
            members: Map::new(),
            headers: Vec::new(),
        }
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Says that the same request may succeed later, after so many seconds.
    #[must_use]
    pub fn retry_after_s(self, seconds: u32) -> Self {
        self.with("retryable", true)
            .with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Map::new();
        body.insert("type".into(), self.code.type_uri().into());
        body.insert("title".into(), self.code.title().into());
        body.insert("status".into(), self.code.status().into());
        body.insert("code".into(), self.code.as_str().into());
        body.insert("detail".into(), self.detail.into());
        body.extend(self.members);
        let status = StatusCode::from_u16(self.code.status());
        let mut response = (
            status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            [(header::CONTENT_TYPE, "application/problem+json")],
            Value::Object(body).to_string(),
        )
            .into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}
