//! An HTTP endpoint that accepts batches of CloudEvents.

use std::path::Path;
use std::time::Duration;

use onceward_core::Envelope;
use onceward_core::cloudevents::{BATCH, to_batch};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use super::sink::{Attempt, Refused, Taken, mismatch};
use crate::config::SecretSource;
use crate::error::{Code, Error};
use crate::output::plain;
use crate::target;

/// Bytes of events in one request: half of what an endpoint accepts by default, because an event
/// may be written longer than it stood in the file.
pub(super) const BYTES_MAX: usize = 512 << 10;

/// The problem of an event that was accepted before with other content.
const KEY_REUSED: onceward_console::Code = onceward_console::Code::KeyReused;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Longest wait that an endpoint may ask for.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The endpoint.
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    token: Option<String>,
}

/// The parts of an RFC 9457 problem that are looked at.
#[derive(Default, Deserialize)]
struct Problem {
    #[serde(rename = "type", default)]
    uri: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    pointer: Option<String>,
    #[serde(default)]
    index: Option<usize>,
}

impl Endpoint {
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, Error> {
        let base = target::check(url).map_err(|problem| Error::new(Code::Endpoint, problem))?;
        let mut url = base.clone();
        if base.path() == "/" {
            url.set_path("/v1/messages");
        }
        let token = match token_file {
            Some(path) => Some(SecretSource::File(path.to_owned()).read()?),
            None => None,
        };
        let client = Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| Error::new(Code::Endpoint, "could not set up HTTP").with_source(e))?;
        Ok(Self {
            client,
            url,
            token: token.map(|token| token.reveal().to_owned()),
        })
    }

    /// Sends a batch without a key of its own: each event counts by its source and id.
    pub(super) async fn take(&self, events: &[Envelope]) -> Result<Attempt, Error> {
        let body = match to_batch(events.iter().map(|event| (event, None))) {
            Ok(body) => body,
            Err(fault) => {
                let refused = Refused {
                    pointer: fault.place.pointer().map(str::to_owned),
                    message: fault.message.clone(),
                };
                return Ok(Attempt::Ended(without(fault.index, refused, events.len())));
            }
        };
        let mut request = self
            .client
            .post(self.url.clone())
            .header("content-type", BATCH);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = match request.body(body).send().await {
            Ok(response) => response,
            Err(error) => return Err(self.failed("did not answer").with_source(error)),
        };
        let status = response.status();
        if status.is_success() {
            let is_replayed = response.headers().contains_key("idempotency-replayed");
            return Ok(Attempt::Ended(Taken::All { is_replayed }));
        }
        let after = response.headers().get("retry-after");
        let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let after = after.map(|seconds: u64| Duration::from_secs(seconds).min(WAIT_MAX));
        let problem = response.json::<Problem>().await.unwrap_or_default();
        self.refused(status, after, problem, events.len())
    }

    fn refused(
        &self,
        status: StatusCode,
        after: Option<Duration>,
        problem: Problem,
        count: usize,
    ) -> Result<Attempt, Error> {
        let words = match (problem.title.is_empty(), problem.detail.is_empty()) {
            (_, false) => problem.detail.clone(),
            (false, true) => problem.title.clone(),
            (true, true) => "no reason given".to_owned(),
        };
        let said = format!("answered {status}: {words}");
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let error = self.failed(&said);
                Ok(Attempt::Later { error, after })
            }
            // A key that another request works on right now.
            StatusCode::CONFLICT => Ok(Attempt::soon(self.failed(&said))),
            StatusCode::PAYLOAD_TOO_LARGE if count > 1 => Ok(Attempt::Ended(Taken::Split)),
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => {
                let refused = if problem.uri.ends_with(KEY_REUSED.as_str()) {
                    mismatch()
                } else {
                    Refused {
                        pointer: problem.pointer.map(|pointer| inside_event(&pointer)),
                        message: words,
                    }
                };
                Ok(Attempt::Ended(without(problem.index, refused, count)))
            }
            _ => Err(self.failed(&said)),
        }
    }

    fn failed(&self, said: &str) -> Error {
        Error::new(Code::Endpoint, plain(&format!("{} {said}", self.url)))
    }
}

fn without(index: Option<usize>, refused: Refused, count: usize) -> Taken {
    match index {
        Some(index) => Taken::Without { index, refused },
        None if count == 1 => Taken::Without { index: 0, refused },
        None => Taken::Split,
    }
}

/// A pointer into a batch as a pointer into its event: without the first step.
fn inside_event(pointer: &str) -> String {
    let mut steps = pointer.splitn(3, '/');
    match (steps.next(), steps.next(), steps.next()) {
        (Some(""), Some(index), Some(rest)) if index.bytes().all(|b| b.is_ascii_digit()) => {
            format!("/{rest}")
        }
        (Some(""), Some(index), None) if index.bytes().all(|b| b.is_ascii_digit()) => String::new(),
        _ => pointer.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_lose_the_batch() {
        assert_eq!(inside_event("/17/data/a"), "/data/a");
        assert_eq!(inside_event("/17"), "");
        assert_eq!(inside_event("/data"), "/data");
        assert_eq!(inside_event(""), "");
    }
}
