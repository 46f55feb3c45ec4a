//! What workers do with messages: each handler behaves as the message says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::{Boxed, Call, Context, Deliver, Delivery, Envelope, Failure, Payload, Probe};

use super::Broken;
use super::carrier::CarrierClient;
use crate::messages::{BATCHES, CARRIED, DEADLY, Deadly, EFFECTS, FOLLOWED, Followed, HELD};
use crate::messages::{LATEST, Mood, Ordered};
use crate::record::Lines;
use crate::tables::{Books, Effect};

/// What handlers have at hand.
pub(super) struct Work<S> {
    pub(super) store: S,
    pub(super) broken: Option<Broken>,
}

/// Fails as the mood says.
#[allow(clippy::panic)]
fn fail(mood: Mood, attempt: u32) -> Result<(), Failure> {
    match mood {
        Mood::Transient if attempt <= 2 => Err(Failure::transient("busy", "not yet")),
        Mood::Panic if attempt == 1 => panic!("told to panic"),
        Mood::RateLimited if fastrand::bool() => Err(Failure::rate_limited(20, "slowly")),
        Mood::Poison => Err(Failure::permanent("poison", "never")),
        Mood::Operator => Err(Failure::operator("person", "somebody has to look")),
        Mood::Killer => std::process::abort(),
        _ => Ok(()),
    }
}

/// When a handler fails: before it does anything, or when all is done, which goes with it.
struct Fails {
    mood: Mood,
    attempt: u32,
    is_late: bool,
}

impl Fails {
    fn at_some_time(mood: Mood, attempt: u32) -> Self {
        let is_late = fastrand::bool();
        Self {
            mood,
            attempt,
            is_late,
        }
    }

    fn before_all(&self) -> Result<(), Failure> {
        if self.is_late {
            return Ok(());
        }
        fail(self.mood, self.attempt)
    }

    fn after_all(&self) -> Result<(), Failure> {
        if !self.is_late {
            return Ok(());
        }
        fail(self.mood, self.attempt)
    }
}

/// Some messages take a little.
async fn dawdle() {
    if fastrand::u8(..16) == 0 {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..6))).await;
    }
}

async fn write<S: Books>(
    cx: &mut Context<S>,
    subscription: &str,
    id: &str,
    outcome: &str,
) -> Result<(), Failure> {
    let effect = Effect {
        subscription,
        id,
        outcome,
        attempt: cx.attempt(),
    };
    S::effect(cx.tx(), &effect).await?;
    Ok(())
}

/// What the ledger keeps of a rejection: the row stays as well.
fn rejected() -> Failure {
    Failure::rejected("refused", "a final answer")
}

/// Gives a closure the type of a handler.
fn handler<S: Books, F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<S>, Ordered) -> Boxed<'a, Result<(), Failure>> + Send + Sync,
{
    handle
}

/// One effect, and a message that follows from it.
pub(super) fn effects<S: Books>(
    work: &Work<S>,
) -> impl for<'a> Fn(&'a mut Context<S>, Ordered) -> Boxed<'a, Result<(), Failure>> + Send + Sync + 'static
{
    let (store, broken) = (work.store.clone(), work.broken);
    handler(move |cx, order| {
        let store = store.clone();
        Box::pin(async move { effect(cx, order, &store, broken).await })
    })
}

async fn effect<S: Books>(
    cx: &mut Context<S>,
    order: Ordered,
    store: &S,
    broken: Option<Broken>,
) -> Result<(), Failure> {
    let fails = Fails::at_some_time(order.mood, cx.attempt());
    fails.before_all()?;
    dawdle().await;
    let id = cx.message().envelope.id.clone();
    let outcome = outcome_of(order.mood);
    match broken {
        Some(Broken::OutsideTransaction) => {
            let effect = Effect {
                subscription: EFFECTS.name,
                id: &id,
                outcome,
                attempt: cx.attempt(),
            };
            store.effect_outside(&effect).await?;
        }
        Some(Broken::Losing) if fastrand::u8(..12) == 0 => {}
        _ => write(cx, EFFECTS.name, &id, outcome).await?,
    }
    let followed = Followed {
        key: order.key.clone(),
        id: id.clone(),
    };
    let mut envelope = Envelope::new(
        format!("f-{id}"),
        "task",
        order.key,
        <Followed as onceward::Message>::TYPE,
        Payload::Json(serde_json::to_string(&followed)?.into()),
    );
    envelope.schema_version = Some(1);
    cx.append_envelope(envelope);
    fails.after_all()?;
    if order.mood == Mood::Rejected {
        return Err(rejected());
    }
    Ok(())
}

const fn outcome_of(mood: Mood) -> &'static str {
    match mood {
        Mood::Rejected => "rejected",
        _ => "done",
    }
}

/// One effect; a case holds the key.
pub(super) async fn held<S: Books>(cx: &mut Context<S>, order: Ordered) -> Result<(), Failure> {
    plain(cx, order, HELD.name).await
}

/// One effect of the latest that waits.
pub(super) async fn latest<S: Books>(cx: &mut Context<S>, order: Ordered) -> Result<(), Failure> {
    plain(cx, order, LATEST.name).await
}

async fn plain<S: Books>(
    cx: &mut Context<S>,
    order: Ordered,
    subscription: &str,
) -> Result<(), Failure> {
    let fails = Fails::at_some_time(order.mood, cx.attempt());
    fails.before_all()?;
    dawdle().await;
    let id = cx.message().envelope.id.clone();
    write(cx, subscription, &id, outcome_of(order.mood)).await?;
    fails.after_all()?;
    if order.mood == Mood::Rejected {
        return Err(rejected());
    }
    Ok(())
}

/// An effect for each operation, many at once. Only a message that is alone knows its attempt.
pub(super) async fn batches<S: Books>(
    cx: &mut Context<S>,
    orders: Vec<Ordered>,
) -> Result<Vec<()>, Failure> {
    let attempt = if orders.len() == 1 { cx.attempt() } else { 1 };
    for order in &orders {
        fail(order.mood, attempt)?;
        write(cx, BATCHES.name, &order.operation, outcome_of(order.mood)).await?;
    }
    if orders.iter().any(|order| order.mood == Mood::Rejected) {
        return Err(rejected());
    }
    Ok(orders.iter().map(|_| ()).collect())
}

/// What an effect appended.
pub(super) async fn followed<S: Books>(cx: &mut Context<S>, _: Followed) -> Result<(), Failure> {
    let id = cx.message().envelope.id.clone();
    write(cx, FOLLOWED.name, &id, "done").await
}

/// What may end the process.
pub(super) async fn deadly<S: Books>(cx: &mut Context<S>, deadly: Deadly) -> Result<(), Failure> {
    let id = cx.message().envelope.id.clone();
    write(cx, DEADLY.name, &id, "done").await?;
    fail(deadly.mood, cx.attempt())
}

/// An effect at the carrier.
pub(super) struct Carried {
    pub(super) carrier: CarrierClient,
    pub(super) is_blind: bool,
}

impl<S: Books> Call<S> for Carried {
    type Message = Ordered;
    type Answer = String;
    type Reply = String;

    async fn call(&self, operation: &str, order: &Ordered) -> Result<String, Failure> {
        match order.mood {
            Mood::Rejected => return Err(rejected()),
            // Would stop all calls until a person acts.
            Mood::Operator => {}
            // The attempt is not known here.
            Mood::Transient if fastrand::bool() => {
                return Err(Failure::transient("busy", "not yet"));
            }
            Mood::Transient => {}
            Mood::Panic if fastrand::bool() => fail(Mood::Panic, 1)?,
            Mood::Panic => {}
            mood => fail(mood, 1)?,
        }
        match self.carrier.book(operation).await {
            Err(failure) if self.is_blind => Err(Failure::transient("again", failure.message())),
            other => other,
        }
    }

    async fn probe(&self, operation: &str, _: &Ordered) -> Result<Probe<String>, Failure> {
        if self.is_blind {
            return Ok(Probe::DidNotHappen);
        }
        self.carrier.find(operation).await
    }

    async fn outcome(
        &self,
        cx: &mut Context<S>,
        order: Ordered,
        booking: String,
    ) -> Result<String, Failure> {
        write(cx, CARRIED.name, &order.operation, "done").await?;
        Ok(booking)
    }
}

/// Keeps what it is handed.
#[derive(Clone)]
pub(super) struct Hands(pub(super) Arc<Mutex<Lines>>);

impl Hands {
    fn keep(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(lines.add(&delivery.row.envelope.id)?)
    }
}

impl Deliver for Hands {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let Payload::Json(text) = &delivery.row.envelope.payload else {
            return Err(Failure::permanent("binary", "nobody sends this"));
        };
        let mood = serde_json::from_str::<Ordered>(text).map_or(Mood::Well, |order| order.mood);
        match mood {
            Mood::Operator => {}
            Mood::Rejected => return Err(rejected()),
            mood => fail(mood, delivery.attempt)?,
        }
        self.keep(delivery)
    }
}

/// Keeps what it is handed, whatever it is.
pub(super) struct Claims(pub(super) Hands);

impl Deliver for Claims {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        self.0.keep(delivery)
    }
}
