//! The clients: order, keep the answer, ask again with the same key until there is one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onceward_orders::service::{IDEMPOTENCY_KEY, REPLAYED};
use reqwest::StatusCode;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answers::Answers;
use super::input::{Input, Refused};
use super::verdict::Answer;
use crate::error::{Code, Error};

/// Clients at work at once.
const CLIENTS: usize = 8;
/// One client in this many sends each order twice at the same time.
const IMPATIENT: usize = 33;
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a client keeps asking for one order.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(25);
/// Longest time that a client thinks before its next order, in milliseconds.
const THINK_MS: u64 = 12;

/// How far the clients are.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Orders that were acknowledged or refused.
    pub(super) settled: AtomicU64,
}

/// What all clients share.
pub(super) struct Clients {
    inputs: Vec<Input>,
    next: AtomicUsize,
    http: reqwest::Client,
    service: watch::Receiver<SocketAddr>,
    answers: Answers,
    tally: Arc<Tally>,
}

enum Reply {
    Accepted(Answer),
    Refused(String),
    /// No answer, or none yet: ask again.
    Again(String),
}

#[derive(Deserialize)]
struct Order {
    order_id: String,
}

#[derive(Deserialize)]
struct Problem {
    detail: String,
    pointer: Option<String>,
}

impl Clients {
    pub(super) fn new(
        inputs: Vec<Input>,
        service: watch::Receiver<SocketAddr>,
        answers: Answers,
        tally: Arc<Tally>,
    ) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .timeout(ATTEMPT)
            .no_proxy()
            .build();
        let http = http
            .map_err(|e| Error::new(Code::Demo, "could not make an HTTP client").with_source(e))?;
        Ok(Self {
            inputs,
            next: AtomicUsize::new(0),
            http,
            service,
            answers,
            tally,
        })
    }

    /// Orders everything; returns what was refused.
    pub(super) async fn order_all(self) -> Result<Vec<Refused>, Error> {
        let clients = Arc::new(self);
        let mut tasks = JoinSet::new();
        for _ in 0..CLIENTS {
            let clients = Arc::clone(&clients);
            tasks.spawn(async move {
                let mut refused = Vec::new();
                loop {
                    let at = clients.next.fetch_add(1, Ordering::Relaxed);
                    let Some(input) = clients.inputs.get(at) else {
                        return Ok(refused);
                    };
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(..=THINK_MS))).await;
                    let is_impatient = at % IMPATIENT == IMPATIENT - 1;
                    if let Some(reason) = clients.order(input, is_impatient).await? {
                        let line = input.line;
                        refused.push(Refused { line, reason });
                    }
                    clients.tally.settled.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut refused = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            let ended =
                ended.map_err(|e| Error::new(Code::Demo, "a client broke down").with_source(e))?;
            refused.extend(ended?);
        }
        refused.sort_by_key(|refused| refused.line);
        Ok(refused)
    }

    /// Orders one thing; returns why it was refused, if it was.
    async fn order(&self, input: &Input, is_impatient: bool) -> Result<Option<String>, Error> {
        if !is_impatient {
            return self.ask(input).await;
        }
        let (first, second) = tokio::join!(self.ask(input), self.ask(input));
        Ok(first?.or(second?))
    }

    async fn ask(&self, input: &Input) -> Result<Option<String>, Error> {
        let mut service = self.service.clone();
        let until = Instant::now() + PATIENCE;
        loop {
            let address = *service.borrow_and_update();
            let why = match self.attempt(address, input).await {
                Reply::Accepted(answer) => {
                    let kept = self.answers.keep(&answer).await;
                    let text = "an answer could not be written down";
                    kept.map_err(|e| Error::new(Code::Demo, text).with_source(e))?;
                    return Ok(None);
                }
                Reply::Refused(reason) => return Ok(Some(reason)),
                Reply::Again(why) => why,
            };
            if Instant::now() >= until {
                let seconds = PATIENCE.as_secs();
                let text = format!(
                    "the order service did not accept {} within {seconds} s; last: {why}",
                    input.checkout_id
                );
                return Err(Error::new(Code::Demo, text));
            }
            // A service that was started again has another address, and is asked at once.
            let _ = tokio::time::timeout(PAUSE, service.changed()).await;
        }
    }

    async fn attempt(&self, address: SocketAddr, input: &Input) -> Reply {
        let request = self
            .http
            .post(format!("http://{address}/orders"))
            .header("content-type", "application/json")
            .header(IDEMPOTENCY_KEY, &input.checkout_id)
            .body(input.body.clone());
        let answered = async {
            let response = request.send().await?;
            let status = response.status();
            let is_replayed = response.headers().contains_key(REPLAYED.as_str());
            Ok((status, is_replayed, response.bytes().await?))
        };
        let (status, is_replayed, body) = match answered.await {
            Ok(answered) => answered,
            Err(error) => return Reply::Again(reqwest::Error::to_string(&error)),
        };
        if status.is_success() {
            return match serde_json::from_slice::<Order>(&body) {
                Ok(order) => Reply::Accepted(Answer {
                    checkout_id: input.checkout_id.clone(),
                    order_id: order.order_id,
                    is_replayed,
                }),
                Err(error) => Reply::Again(error.to_string()),
            };
        }
        if status.is_client_error() && status != StatusCode::CONFLICT {
            return Reply::Refused(refusal(status, &body));
        }
        Reply::Again(status.to_string())
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> String {
    match serde_json::from_slice::<Problem>(body) {
        Ok(Problem {
            detail,
            pointer: Some(pointer),
        }) => format!("{detail} (at {pointer:?})"),
        Ok(problem) => problem.detail,
        Err(_) => format!("the order service refused it: {status}"),
    }
}
