//! A receiver of pushes: a process with a record of its own, which knows repeats by their id, and
//! which can be told to be busy, to limit, to refuse, or to be broken.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use clap::Args;
use onceward_orders::carrier::read_whole_lines;
use onceward_orders::in_hand::InHand;
use onceward_orders::part::{CommonArgs, in_hand, listen, ready, serve};
use serde::{Deserialize, Serialize};

use super::depot::Scan;
use crate::error::{Code, Error};

/// How the receiver behaves. Read for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Behaviour {
    /// Answers 503 to everything.
    pub(super) is_busy: bool,
    /// Takes so many requests, and then answers 429 for a while.
    pub(super) quota: Option<Quota>,
    /// Answers 400 to scans at this place.
    pub(super) refuses: Option<String>,
    /// How long an answer takes, in milliseconds.
    pub(super) answer_after_ms: u64,
    /// Says of every third that all is well, and does not record it.
    pub(super) loses: bool,
    /// Does everything twice.
    pub(super) doubles: bool,
}

/// A limit by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quota {
    /// Requests that are taken.
    pub(super) requests: u32,
    /// For how long nothing is taken after them, in seconds.
    pub(super) closed_s: u64,
}

impl Behaviour {
    /// Tells the receiver. It sees the old behaviour or the new one.
    pub(super) fn tell(&self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(self)?)?;
        std::fs::rename(beside, path)
    }

    fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// New, and recorded.
    Taken {
        /// The parcel.
        parcel: String,
    },
    /// Recorded before.
    Repeated,
    /// Not taken.
    Refused {
        /// The answer.
        status: u16,
        /// Not to come back before then, in milliseconds since 1970, where that was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<u64>,
        /// The header as it was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<String>,
    },
}

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The message.
    pub(super) id: String,
    /// When it came, in milliseconds since 1970.
    pub(super) at_ms: u64,
    /// Requests under way at that moment, with this one.
    pub(super) under_way: u32,
    /// What became of it.
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// Reads a receiver's record.
pub(super) fn read_requests(path: &Path) -> Result<Vec<Request>, Error> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let read = read_whole_lines(path);
    let (lines, _) = read.map_err(|e| {
        Error::new(Code::Demo, "could not read the receiver's record").with_source(e)
    })?;
    Ok(lines)
}

/// Options of the receiver.
#[derive(Clone, Debug, Args)]
pub(in crate::commands::demo) struct ReceiverArgs {
    /// Where to listen; port 0 is any free one
    #[arg(long)]
    listen: std::net::SocketAddr,
    /// Its record
    #[arg(long, value_name = "FILE")]
    record: PathBuf,
    /// The file that says how it behaves
    #[arg(long, value_name = "FILE")]
    behaviour: PathBuf,
    /// What all parts have.
    #[command(flatten)]
    common: CommonArgs,
}

struct Receiver {
    behaviour: PathBuf,
    in_hand: InHand,
    state: Mutex<Ledger>,
}

/// What the receiver remembers.
struct Ledger {
    file: File,
    known: HashSet<String>,
    under_way: u32,
    taken: u64,
    window: Window,
}

/// Where a limit stands.
#[derive(Default)]
struct Window {
    taken: u32,
    closed_until_ms: u64,
    closings: u32,
}

fn failed<E>(text: &'static str) -> impl FnOnce(E) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| Error::new(Code::Demo, text).with_source(error)
}

/// Receives until it is told to stop.
pub(in crate::commands::demo) async fn run_receiver(args: ReceiverArgs) -> Result<(), Error> {
    let known = read_requests(&args.record)?;
    let known = known
        .into_iter()
        .filter(|request| matches!(request.outcome, Outcome::Taken { .. }))
        .map(|request| request.id);
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&args.record);
    let ledger = Ledger {
        file: opened.map_err(failed("could not open the receiver's record"))?,
        known: known.collect(),
        under_way: 0,
        taken: 0,
        window: Window::default(),
    };
    let receiver = Receiver {
        behaviour: args.behaviour,
        in_hand: in_hand(&args.common).map_err(failed("could not begin"))?,
        state: Mutex::new(ledger),
    };
    let router = Router::new()
        .route("/hook", post(take))
        .with_state(Arc::new(receiver));
    let (listener, address) = listen(args.listen)
        .await
        .map_err(failed("could not listen"))?;
    ready(Some(address)).map_err(failed("nobody listens"))?;
    let served = serve(listener, router, &args.common).await;
    served.map_err(failed("the receiver failed"))
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

async fn take(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> Response {
    let _piece = receiver.in_hand.take();
    let id = headers.get("webhook-id").and_then(|v| v.to_str().ok());
    let (Some(id), Ok(scan)) = (id, serde_json::from_slice::<Scan>(&body)) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Ok(behaviour) = Behaviour::read(&receiver.behaviour) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let under_way = {
        let mut state = receiver.lock();
        state.under_way += 1;
        state.under_way
    };
    let at_ms = now_ms();
    tokio::time::sleep(Duration::from_millis(behaviour.answer_after_ms)).await;
    let mut state = receiver.lock();
    let outcome = state.judge(&behaviour, id, &scan, at_ms);
    let answer = answer(&outcome);
    let request = Request {
        id: id.to_owned(),
        at_ms,
        under_way,
        outcome,
    };
    state.taken += u64::from(matches!(request.outcome, Outcome::Taken { .. }));
    let times = match request.outcome {
        Outcome::Taken { .. } if behaviour.loses && state.taken.is_multiple_of(3) => 0,
        Outcome::Taken { .. } if behaviour.doubles => 2,
        _ => 1,
    };
    let written = state.write(&request, times);
    state.under_way -= 1;
    match written {
        Ok(()) => answer,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl Receiver {
    fn lock(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn judge(&mut self, behaviour: &Behaviour, id: &str, scan: &Scan, at_ms: u64) -> Outcome {
        let refused = |status| Outcome::Refused {
            status,
            until_ms: None,
            retry_after: None,
        };
        if behaviour.is_busy {
            return refused(503);
        }
        if behaviour.refuses.as_deref() == Some(&scan.place) {
            return refused(400);
        }
        if let Some(quota) = behaviour.quota
            && let Some((until_ms, retry_after)) = self.window.ask(quota, at_ms)
        {
            return Outcome::Refused {
                status: 429,
                until_ms: Some(until_ms),
                retry_after: Some(retry_after),
            };
        }
        match self.known.insert(id.to_owned()) {
            true => Outcome::Taken {
                parcel: scan.parcel.clone(),
            },
            false => Outcome::Repeated,
        }
    }

    fn write(&mut self, request: &Request, times: usize) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.file.write_all(&line.repeat(times))
    }
}

impl Window {
    /// Takes a request, or says when to come back: in milliseconds since 1970, and as the header.
    fn ask(&mut self, quota: Quota, at_ms: u64) -> Option<(u64, String)> {
        if at_ms >= self.closed_until_ms {
            if self.taken < quota.requests {
                self.taken += 1;
                return None;
            }
            self.taken = 0;
            self.closings += 1;
            // A date has whole seconds, so the window ends at one.
            let end_s = (at_ms / 1_000) + 1 + quota.closed_s;
            self.closed_until_ms = end_s * 1_000;
        }
        let left_ms = self.closed_until_ms - at_ms;
        // By turns in the two forms that the header has.
        let header = match self.closings % 2 {
            1 => left_ms.div_ceil(1_000).to_string(),
            _ => {
                let end = UNIX_EPOCH + Duration::from_millis(self.closed_until_ms);
                httpdate::fmt_http_date(end)
            }
        };
        Some((self.closed_until_ms, header))
    }
}

fn answer(outcome: &Outcome) -> Response {
    match outcome {
        Outcome::Taken { .. } => StatusCode::NO_CONTENT.into_response(),
        Outcome::Repeated => StatusCode::CONFLICT.into_response(),
        Outcome::Refused {
            status,
            retry_after,
            ..
        } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            match retry_after {
                Some(after) => (status, [(header::RETRY_AFTER, after.as_str())]).into_response(),
                None => status.into_response(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_closes_by_turns_in_both_forms() {
        let quota = Quota {
            requests: 2,
            closed_s: 1,
        };
        let mut window = Window::default();
        assert_eq!(window.ask(quota, 10_500), None);
        assert_eq!(window.ask(quota, 10_600), None);
        assert_eq!(window.ask(quota, 10_700), Some((12_000, "2".to_owned())));
        assert_eq!(window.ask(quota, 11_900), Some((12_000, "1".to_owned())));
        assert_eq!(window.ask(quota, 12_000), None);
        assert_eq!(window.ask(quota, 12_000), None);
        let (until_ms, date) = window.ask(quota, 12_100).unwrap();
        assert_eq!(until_ms, 14_000);
        let end = httpdate::parse_http_date(&date).unwrap();
        assert_eq!(end, UNIX_EPOCH + Duration::from_secs(14));
    }

    #[test]
    fn what_is_known_is_a_repeat_across_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receiver.jsonl");
        let request = Request {
            id: "p-1".to_owned(),
            at_ms: 5,
            under_way: 1,
            outcome: Outcome::Taken {
                parcel: "p".to_owned(),
            },
        };
        assert_eq!(read_requests(&path).unwrap(), []);
        std::fs::write(
            &path,
            format!("{}\n", serde_json::to_string(&request).unwrap()),
        )
        .unwrap();
        assert_eq!(read_requests(&path).unwrap(), [request]);
    }
}
