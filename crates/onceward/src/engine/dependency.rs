//! How fast a subscription with effects outside the database goes on, by how the other side fares:
//! a breaker, a limit of what is under way, and windows that the other side names.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceward_core::breaker::{Breaker, Gate, Sign, Turn};
use onceward_core::concurrency::Limit;
use onceward_core::contract::SubscriptionContract;
use onceward_core::dispatcher::Pace;
use onceward_core::disposition::RETRY_AFTER_MAX_MS;
use onceward_core::store::StillBecause;
use onceward_core::{Class, Failure};
use tokio::time::Instant;

use super::execute::PANICKED;

/// The least and the most that has to pass without an answer before one more is asked, in
/// milliseconds.
const MORE_AFTER_MS_MIN: u64 = 100;
const MORE_AFTER_MS_MAX: u64 = 10_000;

/// Work that stands still for less is not worth a record, in milliseconds.
const STILL_MS_MIN: u64 = 1_000;

/// What is known of the other side in this process.
#[derive(Debug)]
pub(super) struct Dependency {
    subscription: String,
    /// Where the other side is, as far as that is known and may be told.
    address: String,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    limit: Limit,
    under_way: u16,
    /// When the breaker opened, on the clock of `started`; none while it is closed.
    opened_ms: Option<u64>,
    /// The other side asked to be left alone from then on.
    shut_since_ms: u64,
    /// The other side asked to be left alone until then, on the clock of `started`.
    shut_until_ms: u64,
    /// It refused in a way that only a person can change: from when and until when nothing is asked.
    person_since_ms: u64,
    person_until_ms: u64,
    /// The breaker closed, and nobody was told yet.
    has_closed: bool,
    /// Something outside was asked at all.
    is_used: bool,
}

/// One question to the other side.
#[derive(Debug)]
pub(super) struct Asked<'d> {
    dependency: &'d Dependency,
    since: Instant,
    under_way: u16,
    is_probe: bool,
    has_sign: bool,
}

impl Dependency {
    /// Nothing is known yet.
    pub(super) fn of(contract: &SubscriptionContract, addresses: &BTreeSet<String>) -> Self {
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        Self {
            subscription: contract.name.clone(),
            address: addresses.join(", "),
            started: Instant::now(),
            state: Mutex::new(State {
                breaker: Breaker::new(contract.breaker),
                limit: Limit::new(contract.concurrency_min, contract.concurrency),
                under_way: 0,
                opened_ms: None,
                shut_since_ms: 0,
                shut_until_ms: 0,
                person_since_ms: 0,
                person_until_ms: 0,
                has_closed: false,
                is_used: false,
            }),
        }
    }

    /// None where no handler says where it is.
    fn address(&self) -> Option<&str> {
        (!self.address.is_empty()).then_some(self.address.as_str())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The other side is about to be asked.
    pub(super) fn ask(&self) -> Asked<'_> {
        let now_ms = self.now_ms();
        let mut state = self.state();
        state.is_used = true;
        state.under_way = state.under_way.saturating_add(1);
        let is_probe = state.breaker.gate(now_ms) == Gate::Probe;
        if is_probe {
            state.breaker.probing();
        }
        Asked {
            dependency: self,
            since: Instant::now(),
            under_way: state.under_way,
            is_probe,
            has_sign: false,
        }
    }

    /// How long a failed message waits with the rest, when the fault is not its own: nothing of its
    /// budget is used then.
    pub(super) fn wait_ms(&self, failure: &Failure) -> Option<u64> {
        let state = self.state();
        let is_passing = matches!(sign_of(Some(failure)), Some(Sign::Failed | Sign::Away));
        if !is_passing || state.breaker.is_closed() {
            return None;
        }
        let now_ms = self.now_ms();
        Some(match state.breaker.gate(now_ms) {
            Gate::Shut { until_ms } => until_ms - now_ms,
            Gate::Open | Gate::Probe => 1,
        })
    }

    /// Whether work stands still, why, for how long it has and for how long it will, in
    /// milliseconds. Not when it is a matter of a moment.
    pub(super) fn still(&self) -> Option<(StillBecause, u64, Option<u64>)> {
        let now_ms = self.now_ms();
        let state = self.state();
        let window_ms = state.shut_until_ms.saturating_sub(now_ms);
        let person_ms = state.person_until_ms.saturating_sub(now_ms);
        let (because, since_ms, until_ms) = match state.opened_ms {
            Some(opened_ms) => (StillBecause::Breaker, opened_ms, None),
            None if person_ms > window_ms => {
                (StillBecause::Person, state.person_since_ms, Some(person_ms))
            }
            None if window_ms > 0 => (
                StillBecause::RateWindow,
                state.shut_since_ms,
                Some(window_ms),
            ),
            None => return None,
        };
        let shut_ms = match state.breaker.gate(now_ms) {
            Gate::Shut { until_ms } => window_ms.max(person_ms).max(until_ms - now_ms),
            Gate::Open | Gate::Probe => window_ms.max(person_ms),
        };
        let passed_ms = now_ms.saturating_sub(since_ms);
        (passed_ms.saturating_add(shut_ms) >= STILL_MS_MIN)
            .then_some((because, passed_ms, until_ms))
    }

    /// The other side needs a person: nothing is asked for so long, or until somebody acts.
    pub(super) fn needs_person(&self, for_ms: u64) {
        let now_ms = self.now_ms();
        let mut state = self.state();
        if state.person_until_ms <= now_ms {
            state.person_since_ms = now_ms;
            tracing::warn!(
                subscription = self.subscription,
                address = self.address(),
                "the other side refuses until a person acts: work pauses, and is tried again after \
                 a while"
            );
        }
        state.person_until_ms = now_ms.saturating_add(for_ms);
    }

    /// Somebody acted.
    pub(super) fn person_acted(&self) {
        self.state().person_until_ms = 0;
    }

    /// Before anything was asked.
    pub(super) fn first_pace(&self) -> Pace {
        self.state().pace()
    }

    /// How it goes on after a batch. None where nothing outside was asked.
    pub(super) fn pace(&self) -> Pace {
        let now_ms = self.now_ms();
        let mut state = self.state();
        if !state.is_used {
            return Pace::default();
        }
        let has_closed = std::mem::take(&mut state.has_closed);
        let shut_until_ms = match state.breaker.gate(now_ms) {
            Gate::Shut { until_ms } => until_ms.max(state.shut_until_ms),
            Gate::Open | Gate::Probe => state.shut_until_ms,
        };
        let is_shut = shut_until_ms > now_ms;
        Pace {
            pause_ms: (is_shut || has_closed).then(|| shut_until_ms.saturating_sub(now_ms)),
            ..state.pace()
        }
    }
}

impl State {
    fn pace(&self) -> Pace {
        let is_closed = self.breaker.is_closed();
        // Where the usual answer is slower, it is no sign that it takes a while.
        let usual_ms = self.limit.recent_us() / 1_000;
        let more_after_ms = (4 * usual_ms).clamp(MORE_AFTER_MS_MIN, MORE_AFTER_MS_MAX);
        Pace {
            concurrency: Some(if is_closed { self.limit.get() } else { 1 }),
            more_after_ms: is_closed.then_some(more_after_ms),
            is_probe: !is_closed,
            ..Pace::default()
        }
    }
}

/// What an attempt's end says of the other side; none when it says nothing.
fn sign_of(failure: Option<&Failure>) -> Option<Sign> {
    match failure {
        Some(failure) if failure.code() == PANICKED => None,
        Some(failure) if failure.is_outage() => Some(Sign::Away),
        Some(failure) if matches!(failure.class(), Class::Transient | Class::Ambiguous) => {
            Some(Sign::Failed)
        }
        Some(_) | None => Some(Sign::Answered),
    }
}

impl Asked<'_> {
    /// How the answer came: `failure` is none where it is well.
    pub(super) fn answered(mut self, message: u64, failure: Option<&Failure>) {
        let took_us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let now_ms = self.dependency.now_ms();
        let mut state = self.dependency.state();
        let Some(sign) = sign_of(failure) else {
            return;
        };
        let is_limited = failure.is_some_and(|failure| failure.class() == Class::RateLimited);
        match sign {
            Sign::Answered if !is_limited => state.limit.answered(took_us, self.under_way),
            Sign::Answered | Sign::Failed | Sign::Away => state.limit.failed(),
        }
        if let Some(window_ms) = failure
            .filter(|_| is_limited)
            .and_then(Failure::retry_after_ms)
        {
            if state.shut_until_ms <= now_ms {
                state.shut_since_ms = now_ms;
            }
            let until_ms = now_ms.saturating_add(window_ms.min(RETRY_AFTER_MAX_MS));
            state.shut_until_ms = state.shut_until_ms.max(until_ms);
        }
        match state
            .breaker
            .observe(now_ms, message, sign, fastrand::u64(..))
        {
            Turn::Opened => {
                tracing::warn!(
                    subscription = self.dependency.subscription,
                    address = self.dependency.address(),
                    "the other side fails one message after another: work pauses"
                );
                state.limit.restart();
                state.opened_ms = Some(now_ms);
            }
            Turn::Closed => {
                tracing::info!(
                    subscription = self.dependency.subscription,
                    address = self.dependency.address(),
                    "the other side answers again: work goes on"
                );
                state.has_closed = true;
                state.opened_ms = None;
            }
            Turn::None => {}
        }
        drop(state);
        self.has_sign = true;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let now_ms = self.dependency.now_ms();
        let mut state = self.dependency.state();
        state.under_way = state.under_way.saturating_sub(1);
        if self.is_probe && !self.has_sign {
            state.breaker.probe_lost(now_ms);
        }
    }
}
