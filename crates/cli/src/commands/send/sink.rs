//! Where events go: into the store, or to an HTTP endpoint.

use std::path::Path;
use std::time::Duration;

use onceward_console::{Gate, GateError, Outcome, Refusal, StoreGate, Submission, SubmissionKey};
use onceward_core::Envelope;
use onceward_core::store::StoreErrorKind;

use super::endpoint::Endpoint;
use crate::error::{Code, Error};
use crate::store::{Store, Target, with_store};
use crate::store_url;

/// Who sends, where no token says it: the same as over HTTP on loopback, so that an event is
/// recognised whichever way it came first.
const CALLER: &str = "local";

/// Bytes of events in one transaction.
const STORE_BYTES_MAX: usize = 8 << 20;

/// Tries before a key that someone else works on, or a conflict, is given up.
const TRIES_MAX: u32 = 40;

/// Pause between tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Why an event was refused, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) pointer: Option<String>,
    pub(super) message: String,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) enum Taken {
    /// All of it is accepted, now or before.
    All { is_replayed: bool },
    /// Nothing is accepted because of one event.
    Without { index: usize, refused: Refused },
    /// Nothing is accepted, because the batch is too large or the fault could not be placed.
    Split,
}

/// Where events go.
pub(super) enum Sink {
    Store {
        store: Box<Store>,
        gate: Box<dyn Gate>,
        url: String,
    },
    Endpoint(Endpoint),
}

impl Sink {
    /// Into the store.
    pub(super) async fn store(target: &Target) -> Result<Self, Error> {
        let store = target.open(false).await?;
        with_store!(&store, &target.url, opened => opened.require_current().await)?;
        let gate: Box<dyn Gate> = match &store {
            Store::Postgres(store) => Box::new(StoreGate::new(store.clone())),
            Store::Sqlite(store) => Box::new(StoreGate::new(store.clone())),
        };
        Ok(Self::Store {
            store: Box::new(store),
            gate,
            url: target.url.clone(),
        })
    }

    /// To an endpoint.
    pub(super) fn endpoint(url: &str, token_file: Option<&Path>) -> Result<Self, Error> {
        Ok(Self::Endpoint(Endpoint::new(url, token_file)?))
    }

    /// Bytes at which a batch is full.
    pub(super) const fn bytes_max(&self) -> usize {
        match self {
            Self::Store { .. } => STORE_BYTES_MAX,
            Self::Endpoint(_) => super::endpoint::BYTES_MAX,
        }
    }

    /// Sends events, all or none.
    pub(super) async fn take(
        &self,
        events: &[Envelope],
        say: impl Fn(&str),
    ) -> Result<Taken, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let taken = match self {
                Self::Store { gate, url, .. } => into_store(gate.as_ref(), url, events).await?,
                Self::Endpoint(endpoint) => endpoint.take(events).await?,
            };
            match taken {
                Attempt::Ended(taken) => return Ok(taken),
                Attempt::Later { error, .. } if tries >= TRIES_MAX => return Err(error),
                Attempt::Later { after: None, .. } => tokio::time::sleep(PAUSE).await,
                Attempt::Later {
                    error,
                    after: Some(after),
                } => {
                    say(&format!(
                        "{error}; waiting for {}",
                        humantime::format_duration(after)
                    ));
                    // A little longer by chance: others were told the same.
                    let chance = after.mul_f64(fastrand::f64() / 4.0);
                    tokio::time::sleep(after + chance).await;
                }
            }
        }
    }

    pub(super) async fn close(&self) {
        if let Self::Store { store, .. } = self {
            store.close().await;
        }
    }
}

/// What one try came to.
pub(super) enum Attempt {
    Ended(Taken),
    /// The same again may succeed; otherwise this is why not.
    Later {
        error: Error,
        /// When, where that was said.
        after: Option<Duration>,
    },
}

impl Attempt {
    /// The same again soon.
    pub(super) const fn soon(error: Error) -> Self {
        Self::Later { error, after: None }
    }
}

async fn into_store(gate: &dyn Gate, url: &str, events: &[Envelope]) -> Result<Attempt, Error> {
    let submission = Submission {
        caller: CALLER.to_owned(),
        key: SubmissionKey::Events,
        envelopes: events.to_vec(),
    };
    let without = |index: Option<usize>, refused: Refused| match index {
        Some(index) => Attempt::Ended(Taken::Without { index, refused }),
        None if events.len() == 1 => Attempt::Ended(Taken::Without { index: 0, refused }),
        None => Attempt::Ended(Taken::Split),
    };
    match gate.accept(submission).await {
        Ok(Outcome::Accepted(receipt)) => Ok(Attempt::Ended(Taken::All {
            is_replayed: receipt.is_replayed,
        })),
        Ok(Outcome::Refused { refusal, index }) => Ok(match refusal {
            Refusal::Mismatch => without(index, mismatch()),
            Refusal::InFlight => Attempt::soon(in_flight(url)),
            Refusal::Throttled { retry_after_ms } => {
                let message = "the work would not be done in time";
                Attempt::Later {
                    error: Error::new(Code::StoreFailed, message),
                    after: Some(Duration::from_millis(retry_after_ms)),
                }
            }
        }),
        Err(GateError::Event(fault)) => {
            let pointer = fault.place.pointer().map(str::to_owned);
            let message = fault.message;
            Ok(without(fault.index, Refused { pointer, message }))
        }
        Err(GateError::Store(error)) => match error.kind() {
            StoreErrorKind::Conflict => Ok(Attempt::soon(Error::store(url, &error))),
            StoreErrorKind::Refused => {
                let message = format!("the store refuses it: {error}");
                let pointer = None;
                Ok(without(None, Refused { pointer, message }))
            }
            _ => Err(Error::store(url, &error)),
        },
    }
}

pub(super) fn mismatch() -> Refused {
    Refused {
        pointer: Some("/id".to_owned()),
        message: "an event of this source and id was accepted before, with other content"
            .to_owned(),
    }
}

fn in_flight(url: &str) -> Error {
    let message = format!(
        "another process is sending the same events into {}, and does not end",
        store_url::redact(url)
    );
    Error::new(Code::StoreFailed, message)
}
