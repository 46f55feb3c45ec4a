//! Signed HTTP push: each message as one request, at least once, always with the same id.
//!
//! A request is a CloudEvent in binary mode: the payload's bytes as the body, everything else in
//! percent-encoded `ce-*` headers, so that nothing a producer writes becomes a header of its own. It
//! is signed as in Standard Webhooks: `webhook-id` (the message id, the same on every attempt),
//! `webhook-timestamp` (of the attempt) and `webhook-signature`, one signature per secret.
//!
//! Two sources in one log may use the same message id. A receiver that takes messages of several
//! sources tells them apart by `ce-source` and `ce-id` together.
//!
//! # What an answer means
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | done |
//! | 409 | done: a duplicate |
//! | 422 | rejected; a JSON body is kept as the outcome |
//! | 400, 413, 415, 431 | permanent |
//! | 429 | rate-limited, to the time in `Retry-After` or the backoff's |
//! | 503 with `Retry-After` | rate-limited |
//! | 408, 425 | transient |
//! | other 5xx, no answer in time, connection lost after sending | ambiguous with a probe, else transient |
//! | connection refused, name not found, no connection in time | transient |
//! | 401, 403, 404, 410, 3xx, every other status | operator: a person has to look |
//!
//! Redirects are never followed, proxies of the environment are not used, and the only addresses
//! asked are the two that were configured.
//!
//! # The probe
//!
//! `GET` on the probe's address with the query parameters `source`, `type`, `id` and `operation`
//! added, signed like a push with an empty body. The answer is 200 with the JSON object
//! `{"happened": true}` or `{"happened": false}`; `false` also promises that the earlier request
//! will have no effect any more. Any other answer is a failure of the probe, never a "no": a wrong
//! address must not repeat an effect.

mod answer;
mod call;
#[doc(hidden)]
pub mod retry_after;
#[doc(hidden)]
pub mod signature;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use onceward_core::{Envelope, Failure, Row, cloudevents};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde::Deserialize;

pub use signature::{SecretError, SigningSecrets};

use crate::handler::{Deliver, Delivery, Probe};

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Where and how to push.
#[derive(Clone, Debug)]
pub struct PushOptions {
    /// Target.
    pub url: String,
    /// What signs the requests.
    pub secrets: SigningSecrets,
    /// How long connecting may take, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a whole request may take, connecting included, in milliseconds.
    pub timeout_ms: u64,
    /// Where to ask whether an effect happened.
    pub probe: Option<String>,
}

impl PushOptions {
    /// With every default: 5 s to connect, 15 s in all, no probe.
    pub fn new(url: impl Into<String>, secrets: SigningSecrets) -> Self {
        Self {
            url: url.into(),
            secrets,
            connect_timeout_ms: 5_000,
            timeout_ms: 15_000,
            probe: None,
        }
    }
}

/// Why a push cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// An address that cannot be used.
    #[error("the {which} of a push {problem}")]
    Address {
        /// `url` or `probe`.
        which: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The system's certificates cannot be used.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The client cannot be made.
    #[error("the HTTP client cannot be set up")]
    Client(#[from] reqwest::Error),
}

/// Pushes messages to one address.
#[derive(Clone)]
pub struct PushDeliverer {
    client: Client,
    target: Url,
    probe: Option<Url>,
    secrets: SigningSecrets,
    timeout_ms: u64,
}

/// Withholds paths and secrets: both can be capabilities.
impl fmt::Debug for PushDeliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushDeliverer")
            .field("target", &origin(&self.target))
            .field("probe", &self.probe.as_ref().map(origin))
            .finish_non_exhaustive()
    }
}

impl PushDeliverer {
    /// Sets up a push.
    ///
    /// # Errors
    /// [`PushError`] when an address is not `http` or `https` with a host and without user and
    /// fragment, or TLS cannot be set up.
    pub fn new(options: PushOptions) -> Result<Self, PushError> {
        let target = address("url", &options.url)?;
        let probe = options.probe.as_deref().map(|url| address("probe", url));
        let probe = probe.transpose()?;
        let is_secure = [Some(&target), probe.as_ref()]
            .into_iter()
            .flatten()
            .any(|url| url.scheme() == "https");
        let client = Client::builder()
            .tls_backend_preconfigured(tls(is_secure)?)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .user_agent(concat!("onceward/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(options.connect_timeout_ms))
            .timeout(Duration::from_millis(options.timeout_ms))
            .build()?;
        Ok(Self {
            client,
            target,
            probe,
            secrets: options.secrets,
            timeout_ms: options.timeout_ms,
        })
    }

    /// Whether there is a probe.
    #[must_use]
    pub const fn can_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Sends one message.
    ///
    /// # Errors
    /// A failure as the table above says.
    pub async fn push(&self, row: &Row) -> Result<(), Failure> {
        let envelope = &row.envelope;
        let event = cloudevents::to_binary(envelope, Some(row.recorded_at)).map_err(|fault| {
            // A fault names the place and quotes nothing.
            Failure::permanent(
                "push_event",
                format!("no CloudEvent can be made of it: {fault}"),
            )
        })?;
        let mut headers = HeaderMap::with_capacity(event.headers.len() + 3);
        for (name, value) in &event.headers {
            headers.insert(header_name(name)?, header_value(value)?);
        }
        let request = self.client.request(Method::POST, self.target.clone());
        let request = self.signed(request.headers(headers), envelope, event.body)?;
        let sent = request.body(event.body.to_vec()).send().await;
        let response = sent.map_err(|error| self.unanswered(&self.target, error))?;
        let status = response.status().as_u16();
        let retry_after_ms = retry_after(&response);
        let body = read(response).await;
        answer::outcome(status, retry_after_ms, self.can_probe(), body.as_deref())
    }

    /// Asks whether the effect of a message happened.
    ///
    /// # Errors
    /// A transient or operator failure when the probe itself has no clear answer.
    pub async fn probe(&self, row: &Row) -> Result<Probe<()>, Failure> {
        let Some(mut url) = self.probe.clone() else {
            return Ok(Probe::Unsupported);
        };
        let envelope = &row.envelope;
        url.query_pairs_mut()
            .append_pair("source", envelope.source.as_deref().unwrap_or_default())
            .append_pair("type", &envelope.message_type)
            .append_pair("id", &envelope.id)
            .append_pair("operation", envelope.operation());
        let request = self.client.request(Method::GET, url.clone());
        let sent = self.signed(request, envelope, b"")?.send().await;
        let response = sent.map_err(|error| {
            let text = format!("the probe at {} gave no answer", origin(&url));
            Failure::transient("probe_unanswered", text).with_source(error.without_url())
        })?;
        let status = response.status().as_u16();
        let retry_after_ms = retry_after(&response);
        let body = read(response).await;
        answer::happened(status, retry_after_ms, body.as_deref()).map(|happened| {
            if happened {
                Probe::Happened(())
            } else {
                Probe::DidNotHappen
            }
        })
    }

    /// Adds the headers of Standard Webhooks.
    fn signed(
        &self,
        request: RequestBuilder,
        envelope: &Envelope,
        body: &[u8],
    ) -> Result<RequestBuilder, Failure> {
        let id = signature::webhook_id(&envelope.id);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let timestamp = now.map_or(0, |since| since.as_secs());
        let signature = self.secrets.sign(&id, timestamp, body);
        Ok(request
            .header("webhook-id", header_value(&id)?)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", header_value(&signature)?))
    }

    /// What no answer means: before a connection stands, nothing was sent.
    fn unanswered(&self, url: &Url, error: reqwest::Error) -> Failure {
        let origin = origin(url);
        let (code, text, was_sent) = if error.is_connect() {
            let text = format!("no connection to {origin}");
            ("push_unconnected", text, false)
        } else if error.is_builder() {
            let text = format!("the request to {origin} could not be built");
            ("push_unbuilt", text, false)
        } else if error.is_timeout() {
            let text = format!("no answer from {origin} within {} ms", self.timeout_ms);
            ("push_timeout", text, true)
        } else {
            (
                "push_lost",
                format!("the connection to {origin} was lost"),
                true,
            )
        };
        let failure = if was_sent && self.can_probe() {
            Failure::ambiguous(code, text)
        } else if error.is_connect() {
            Failure::unavailable(code, text)
        } else {
            Failure::transient(code, text)
        };
        // The address may hold a capability, and has been named as far as it may be.
        failure.with_source(error.without_url())
    }
}

impl Deliver for PushDeliverer {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        self.push(delivery.row).await
    }

    fn address(&self) -> Option<String> {
        Some(origin(&self.target))
    }
}

/// Scheme, host and port.
fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn address(which: &'static str, text: &str) -> Result<Url, PushError> {
    let bad = |problem: String| PushError::Address { which, problem };
    let url = Url::parse(text).map_err(|error| bad(format!("is no address: {error}")))?;
    let problem = if !matches!(url.scheme(), "http" | "https") {
        "must begin with http:// or https://"
    } else if url.host_str().is_none_or(str::is_empty) {
        "names no host"
    } else if !url.username().is_empty() || url.password().is_some() {
        "holds credentials: requests are signed instead"
    } else if url.fragment().is_some() {
        "has a fragment, which is never sent"
    } else {
        return Ok(url);
    };
    Err(bad(problem.to_owned()))
}

/// The ring provider, named explicitly, so that the process's default stays the application's. The
/// system's certificates are only read where they are needed.
fn tls(is_secure: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt as _;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?;
    let builder = if is_secure {
        builder.with_platform_verifier()?
    } else {
        builder.with_root_certificates(rustls::RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

fn header_name(name: &str) -> Result<HeaderName, Failure> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|error| unsendable("name").with_source(error))
}

fn header_value(value: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(value).map_err(|error| unsendable("value").with_source(error))
}

fn unsendable(what: &str) -> Failure {
    Failure::permanent("push_event", format!("a header's {what} cannot be sent"))
}

fn retry_after(response: &Response) -> Option<u64> {
    let value = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    retry_after::parse_ms(value, SystemTime::now())
}

/// The body as far as it is short and arrives; so a connection can be used again.
async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    Some(body)
}

/// What a probe answers.
#[derive(Deserialize)]
struct Happened {
    happened: bool,
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
