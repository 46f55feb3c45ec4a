//! Takes a broker's deliveries into the log, by whoever owns the intake's lane.
//!
//! ```text
//! room? ─▶ receive ─▶ begin (fenced) ─▶ known? ─▶ append ─▶ commit ─▶ tell the broker
//! ```
//!
//! The lane keeps two processes from taking in at once, and with it the order of what comes. It is
//! no right by itself: the transaction is fenced, and what was taken in before is known.
//!
//! What was received is taken in or held until it can be: a message that is given back comes again
//! behind those that came after it, and one time too many for brokers that count. Only who may take
//! in no more gives back, and then all of it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use onceward_core::broker::{Act, Extend, Receive, Received, Settlement, Tag};
use onceward_core::store::{
    AcceptRequest, Accepted, BacklogQuery, Begin, End, Lease, Settle, Store, StoreError,
    StoreErrorKind, Survey,
};
use onceward_core::{Envelope, Failure, Identity};
use tokio::sync::{Mutex, watch};

use super::again::{Pause, warn};
use super::{EngineState, IntakeState};
use crate::intake::{BATCH_MESSAGES_MOST, Form, Intake, Sorted, sort};

/// Who accepts, among those whose keys are known. No caller of an interface has a blank in its name.
const CALLER: &str = "onceward intake";
/// Longest wait for a first message, in milliseconds.
const WAIT_MS: u64 = 1_000;
/// Between two looks at what waits, while there is no room.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Before an intake that panicked begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(2);
/// How often a message is tried again as it is after an error that may be its own or the store's.
const TRIES_MAX: u32 = 3;

/// Under which lease this process takes in, and by which subscriptions' lanes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mine {
    lease: Option<Lease>,
    subscriptions: BTreeSet<String>,
}

/// What the fleet's task and the intakes tell each other.
#[derive(Clone)]
pub(super) struct Intakes {
    mine: watch::Sender<Mine>,
    /// Held by each that takes in.
    at_work: Arc<[Mutex<()>]>,
}

/// One broker to take from, and for whom.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) intake: Intake,
    /// Types that somebody takes.
    pub(super) wanted: BTreeSet<String>,
    /// Who takes them.
    pub(super) subscriptions: BTreeSet<String>,
}

impl Intakes {
    pub(super) fn new(count: usize) -> Self {
        Self {
            mine: watch::channel(Mine::default()).0,
            at_work: (0..count).map(|_| Mutex::default()).collect(),
        }
    }

    /// Takes in what a survey says, but for those whose lane is about to be another member's.
    pub(super) fn surveyed(&self, lease: &Lease, survey: &Survey, leaving: &BTreeSet<String>) {
        let paused = |name: &str| {
            let mut states = survey.subscriptions.iter();
            states.any(|state| state.subscription == name && state.is_paused)
        };
        let lanes = survey.lanes.iter();
        let owned = lanes.filter(|lane| lane.owner.as_ref() == Some(&lease.member));
        let subscriptions = owned.map(|lane| lane.subscription.clone());
        let mine = Mine {
            lease: Some(lease.clone()),
            subscriptions: subscriptions
                .filter(|name| !paused(name) && !leaving.contains(name))
                .collect(),
        };
        self.mine.send_if_modified(|before| {
            let has_changed = *before != mine;
            *before = mine;
            has_changed
        });
    }

    /// A lane was just taken; the next survey says so too.
    pub(super) fn took(&self, lease: &Lease, subscription: &str) {
        self.mine.send_if_modified(|mine| {
            mine.lease = Some(lease.clone());
            mine.subscriptions.insert(subscription.to_owned())
        });
    }

    /// Without a lease there is nothing to take in.
    pub(super) fn let_go(&self) {
        self.mine.send_replace(Mine::default());
    }

    /// Waits until nothing is being taken in.
    pub(super) async fn rest(&self) {
        for at_work in self.at_work.iter() {
            drop(at_work.lock().await);
        }
    }

    /// Whether nothing is being taken in there now.
    pub(super) fn rests(&self, place: usize) -> bool {
        self.at_work[place].try_lock().is_ok()
    }

    /// Takes in until it is dropped.
    pub(super) async fn take_in<S: Store>(
        &self,
        place: usize,
        store: S,
        source: Source,
        report: watch::Sender<EngineState>,
    ) {
        let mut mine = self.mine.subscribe();
        let own = source.intake.subscription_name();
        let taking = Taking {
            store,
            source,
            report,
        };
        loop {
            let is_mine = |mine: &Mine| mine.subscriptions.contains(&own);
            // The sender lives as long as the engine.
            let Ok(now) = mine.wait_for(is_mine).await.map(|mine| mine.clone()) else {
                return;
            };
            let Some(lease) = now.lease else { continue };
            let over = async {
                let is_over = |mine: &Mine| !is_mine(mine) || mine.lease.as_ref() != Some(&lease);
                let _ = mine.wait_for(is_over).await;
            };
            let at_work = self.at_work[place].lock().await;
            taking.say(|state| state.is_taking = true);
            let under = AssertUnwindSafe(taking.under(&lease, over)).catch_unwind();
            let has_panicked = under.await.is_err();
            taking.say(|state| {
                state.is_taking = false;
                state.is_full = false;
                state.trouble = None;
            });
            drop(at_work);
            if has_panicked {
                tracing::error!(broker = taking.source.intake.name, "an intake panicked");
                taking.trouble(Some("it panicked; it begins anew".to_owned()));
                tokio::time::sleep(AFTER_PANIC).await;
            }
        }
    }
}

/// One intake at work.
struct Taking<S: Store> {
    store: S,
    source: Source,
    report: watch::Sender<EngineState>,
}

/// Not under this lease any more.
struct Fenced;

impl<S: Store> Taking<S> {
    fn say(&self, change: impl FnOnce(&mut IntakeState)) {
        let name = &self.source.intake.name;
        self.report.send_modify(|state| {
            change(state.intakes.entry(name.clone()).or_default());
        });
    }

    fn trouble(&self, trouble: Option<String>) {
        self.report.send_if_modified(|state| {
            let intake = state.intakes.entry(self.source.intake.name.clone());
            let intake = intake.or_default();
            let has_changed = intake.trouble != trouble;
            intake.trouble = trouble;
            has_changed
        });
    }

    /// Takes in until it is over; then nothing is held that was received.
    async fn under(&self, lease: &Lease, over: impl Future<Output = ()>) {
        let mut over = std::pin::pin!(over);
        let ended = self.take_in_turn(lease, over.as_mut()).await;
        self.source.intake.subscriber.give_back().await;
        // Who noticed it in the transaction waits until it is said.
        if let Err(Fenced) = ended {
            over.await;
        }
    }

    async fn take_in_turn(
        &self,
        lease: &Lease,
        mut over: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Fenced> {
        let mut done = Vec::new();
        // How many messages may be taken before what waits is looked at again.
        let mut room = 0;
        let mut pause = Pause::default();
        loop {
            let receiving = async {
                tokio::select! {
                    biased;
                    () = &mut over => None,
                    received = self.receive(&mut room) => Some(received),
                }
            };
            let (received, ()) = tokio::join!(receiving, settle(&self.source, done));
            done = Vec::new();
            let received = match received {
                None => return Ok(()),
                Some(Ok(received)) => received,
                Some(Err(trouble)) => {
                    self.trouble(Some(trouble));
                    tokio::select! {
                        biased;
                        () = &mut over => return Ok(()),
                        () = pause.pass() => {}
                    }
                    continue;
                }
            };
            self.trouble(None);
            if received.is_empty() {
                continue;
            }
            pause = Pause::default();
            tokio::select! {
                biased;
                () = &mut over => return Ok(()),
                taken = self.take(lease, &received) => taken?,
            }
            self.trouble(None);
            let settled = received.iter().map(|one| Settlement {
                tag: one.tag,
                act: Act::Done,
            });
            done = settled.collect();
        }
    }

    /// Some messages, once there is room for them.
    async fn receive(&self, room: &mut u64) -> Result<Vec<Received>, String> {
        let options = &self.source.intake.options;
        while *room == 0 {
            *room = self.look_for_room().await.map_err(|error| {
                warn(&error, "look how much waits before more is taken in");
                with_causes(&error)
            })?;
            let is_full = *room == 0;
            self.say(|state| state.is_full = is_full);
            if is_full {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        let most = options.batch_messages_max.clamp(1, BATCH_MESSAGES_MOST);
        let most = u64::from(most).min(*room);
        let request = Receive {
            messages_max: u32::try_from(most).unwrap_or(u32::MAX),
            bytes_max: options.batch_bytes_max,
            wait_ms: WAIT_MS,
        };
        let received = self.source.intake.subscriber.receive(request).await;
        let received = received.map_err(|failure| {
            let broker = &self.source.intake.name;
            tracing::warn!(
                broker,
                failure = text_of(&failure),
                "cannot receive; trying again"
            );
            text_of(&failure)
        })?;
        *room = room.saturating_sub(received.len() as u64);
        Ok(received)
    }

    /// How many more may wait before it is looked again.
    async fn look_for_room(&self) -> Result<u64, StoreError> {
        let ahead_max = self.source.intake.options.ahead_max.max(1);
        let mut room = ahead_max;
        let registered = self.store.subscriptions().await?;
        let takers = &self.source.subscriptions;
        for subscription in registered.iter().filter(|name| takers.contains(*name)) {
            let query = BacklogQuery::new(subscription, ahead_max);
            let backlog = self.store.backlog(query).await?;
            room = room.min(ahead_max.saturating_sub(backlog.waiting));
        }
        Ok(room)
    }

    async fn take(&self, lease: &Lease, received: &[Received]) -> Result<(), Fenced> {
        let (name, wanted) = (&self.source.intake.name, &self.source.wanted);
        let sorted = received.iter().map(|one| sort(name, wanted, one));
        let sorted: Vec<Sorted> = sorted.collect();
        let tags: Vec<Tag> = received.iter().map(|one| one.tag).collect();
        tokio::select! {
            biased;
            taken = self.take_sorted(lease, &sorted) => taken,
            never = self.extend(&tags) => match never {},
        }
    }

    /// Asks for more time, again and again.
    async fn extend(&self, tags: &[Tag]) -> Infallible {
        let intake = &self.source.intake;
        if !intake.subscriber.capabilities().can_extend {
            return std::future::pending().await;
        }
        let every = Duration::from_millis(intake.options.extend_every_ms.max(100));
        loop {
            tokio::time::sleep(every).await;
            // Without it they come again, and are known.
            if let Err(failure) = intake.subscriber.extend(Extend { tags }).await {
                let broker = &intake.name;
                tracing::debug!(broker, failure = text_of(&failure), "got no more time");
            }
        }
    }

    async fn take_sorted(&self, lease: &Lease, sorted: &[Sorted]) -> Result<(), Fenced> {
        let mut pause = Pause::default();
        loop {
            let Err(error) = self.commit(lease, sorted).await else {
                return Ok(());
            };
            self.failed(&error)?;
            // One of them, perhaps, and nobody knows which.
            if matches!(
                error.kind(),
                StoreErrorKind::Refused | StoreErrorKind::Other
            ) {
                break;
            }
            pause.pass().await;
        }
        for one in sorted {
            self.take_one(lease, one).await?;
        }
        Ok(())
    }

    /// What the store refuses is kept as bytes, and does not keep the others from being taken. What
    /// it does not take in any form waits, and those after it as well.
    async fn take_one(&self, lease: &Lease, one: &Sorted) -> Result<(), Fenced> {
        let name = &self.source.intake.name;
        let (mut form, mut why) = (Form::AsItCame, String::new());
        let (mut tries, mut pause) = (0, Pause::default());
        loop {
            let shown = one.in_form(form, name, &why);
            let Err(error) = self.commit(lease, std::slice::from_ref(&shown)).await else {
                return Ok(());
            };
            self.failed(&error)?;
            let is_refused = match error.kind() {
                StoreErrorKind::Refused => true,
                StoreErrorKind::Other => {
                    tries += 1;
                    tries >= TRIES_MAX
                }
                _ => false,
            };
            why = with_causes(&error);
            match form.lesser() {
                Some(lesser) if is_refused => form = lesser,
                // The fault is not its own: as a whole again, once it has passed.
                None => (form, tries) = (Form::AsItCame, 0),
                Some(_) => {}
            }
            pause.pass().await;
        }
    }

    /// Tells of an error after which it is tried again.
    fn failed(&self, error: &StoreError) -> Result<(), Fenced> {
        if error.kind() == StoreErrorKind::Fenced {
            return Err(Fenced);
        }
        warn(error, "take messages in");
        self.trouble(Some(with_causes(error)));
        Ok(())
    }

    /// Takes in what was not taken in before, in one transaction.
    async fn commit(&self, lease: &Lease, sorted: &[Sorted]) -> Result<(), StoreError> {
        let store = &self.store;
        let mut tx = store.begin(Begin { lease: Some(lease) }).await?;
        match self.take_within(&mut tx, sorted).await {
            Ok(found) => {
                store.end(tx, End::Commit).await?;
                self.count(sorted, &found);
                Ok(())
            }
            Err(error) => {
                // The first error is the one to tell of.
                let _ = store.end(tx, End::RollBack).await;
                Err(error)
            }
        }
    }

    async fn take_within(
        &self,
        tx: &mut S::Tx,
        sorted: &[Sorted],
    ) -> Result<Vec<Accepted>, StoreError> {
        let store = &self.store;
        let name = &self.source.intake.name;
        let requests: Vec<AcceptRequest<'_>> = sorted.iter().map(|one| self.request(one)).collect();
        let mut found = store.accept_all(store.connection(tx), &requests).await?;
        let mut envelopes: Vec<Envelope> = Vec::with_capacity(sorted.len());
        for (one, found) in sorted.iter().zip(&mut found) {
            match found {
                Accepted::First => envelopes.push(one.envelope.clone()),
                Accepted::Mismatch => {
                    let other = one.clone().conflicting(name);
                    let request = self.request(&other);
                    *found = store.accept(store.connection(tx), request.clone()).await?;
                    if *found == Accepted::First {
                        let none = onceward_core::store::NO_ANSWER;
                        store.answer(store.connection(tx), request, none).await?;
                        envelopes.push(other.envelope);
                    }
                }
                Accepted::Again { .. } | Accepted::InFlight => {}
            }
            // A transaction whose end nobody waited for. Without this one, the next ones would go
            // ahead of it.
            if *found == Accepted::InFlight {
                let text = "another transaction is about to take it in";
                let (kind, action) = (StoreErrorKind::Conflict, "take messages in");
                return Err(StoreError::found(kind, action, text));
            }
        }
        if !envelopes.is_empty() {
            // As an effect's follow-ups: a process that freezes in it is ended as one that idles.
            let own = self.source.intake.subscription_name();
            let settle = Settle {
                append: &envelopes,
                ..Settle::nothing(&own, Identity::Message)
            };
            store.settle(tx, settle).await?;
        }
        Ok(found)
    }

    fn request<'r>(&self, sorted: &'r Sorted) -> AcceptRequest<'r> {
        AcceptRequest {
            caller: CALLER,
            key: &sorted.key,
            digest: sorted.digest,
            memory_ms: self.source.intake.options.memory_ms,
        }
    }

    /// Counts what was taken in.
    fn count(&self, sorted: &[Sorted], found: &[Accepted]) {
        self.say(|state| {
            for (one, found) in sorted.iter().zip(found) {
                match found {
                    Accepted::First if one.aside.is_some() => state.put_aside += 1,
                    Accepted::First => state.taken += 1,
                    _ => state.known += 1,
                }
            }
        });
    }
}

/// Tells the broker. What it does not hear of comes again, and is known.
async fn settle(source: &Source, settlements: Vec<Settlement>) {
    if settlements.is_empty() {
        return;
    }
    let ends = source.intake.subscriber.settle(&settlements).await;
    let failed = ends.iter().filter_map(|end| end.as_ref().err());
    if let Some(failure) = failed.clone().next() {
        tracing::debug!(
            broker = source.intake.name,
            unheard = failed.count(),
            failure = text_of(failure),
            "the broker was not told of all that was taken in; they come again and are known"
        );
    }
}

/// What failed, and why: the errors behind it too.
fn with_causes(error: &StoreError) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(first.source(), |cause| cause.source());
    let mut text = error.to_string();
    for cause in causes {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

fn text_of(failure: &Failure) -> String {
    format!("{}: {}", failure.code(), failure.message())
}
