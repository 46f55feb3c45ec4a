//! Handlers, as users write them and as the engine calls them.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use onceward_core::store::Store;
use onceward_core::{Failure, Message, Payload, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a handler left to be stored as its result: JSON text, or nothing for `()`.
pub type Reply = Option<Box<str>>;

/// An async function `(&mut Context<S>, M) -> Result<R, Failure>`.
///
/// Implemented for every such function; not meant to be implemented by hand.
pub trait EffectFn<'a, S: Store, M>: Send + Sync {
    /// Calls it.
    fn call(&self, cx: &'a mut Context<S>, message: M) -> Boxed<'a, Result<Reply, Failure>>;
}

impl<'a, S, M, F, Fut, R> EffectFn<'a, S, M> for F
where
    S: Store,
    F: Fn(&'a mut Context<S>, M) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, Failure>> + Send + 'a,
    R: Serialize,
{
    fn call(&self, cx: &'a mut Context<S>, message: M) -> Boxed<'a, Result<Reply, Failure>> {
        let running = self(cx, message);
        Box::pin(async move { reply_of(&running.await?) })
    }
}

/// An async function `(&mut Context<S>, Vec<M>) -> Result<Vec<R>, Failure>`, one result for each
/// message in order. An error undoes the whole batch, which is then taken apart.
pub trait BatchFn<'a, S: Store, M>: Send + Sync {
    /// Calls it.
    fn call(
        &self,
        cx: &'a mut Context<S>,
        messages: Vec<M>,
    ) -> Boxed<'a, Result<Vec<Reply>, Failure>>;
}

impl<'a, S, M, F, Fut, R> BatchFn<'a, S, M> for F
where
    S: Store,
    F: Fn(&'a mut Context<S>, Vec<M>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Vec<R>, Failure>> + Send + 'a,
    R: Serialize,
{
    fn call(
        &self,
        cx: &'a mut Context<S>,
        messages: Vec<M>,
    ) -> Boxed<'a, Result<Vec<Reply>, Failure>> {
        let running = self(cx, messages);
        Box::pin(async move { running.await?.iter().map(reply_of).collect() })
    }
}

/// What a probe found out about a call whose end nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe<A> {
    /// It happened, with this answer.
    Happened(A),
    /// It did not happen, and will not happen any more from the earlier attempt.
    DidNotHappen,
    /// The other side cannot tell: the message goes to quarantine as ambiguous.
    Unsupported,
}

/// An effect outside the database: called with the operation as its idempotency key, no
/// transaction open meanwhile; its outcome is written in the effect transaction.
pub trait Call<S: Store>: Send + Sync + 'static {
    /// The message.
    type Message: Message;
    /// What the other side answers.
    type Answer: Send + 'static;
    /// What the ledger keeps.
    type Reply: Serialize;

    /// Calls the other side. An end that nobody knows is [`Failure::ambiguous`]; a timeout of the
    /// engine counts as one.
    fn call(
        &self,
        operation: &str,
        message: &Self::Message,
    ) -> impl Future<Output = Result<Self::Answer, Failure>> + Send;

    /// Asks the other side what became of an earlier call with this operation.
    fn probe(
        &self,
        operation: &str,
        message: &Self::Message,
    ) -> impl Future<Output = Result<Probe<Self::Answer>, Failure>> + Send {
        let _ = (operation, message);
        async { Ok(Probe::Unsupported) }
    }

    /// Whether [`probe`](Self::probe) is implemented.
    fn can_probe(&self) -> bool {
        true
    }

    /// Where the other side is, for the log: without credentials, path or query.
    fn address(&self) -> Option<String> {
        None
    }

    /// Writes the outcome.
    fn outcome(
        &self,
        cx: &mut Context<S>,
        message: Self::Message,
        answer: Self::Answer,
    ) -> impl Future<Output = Result<Self::Reply, Failure>> + Send;
}

/// A message as it is handed to a [`Deliver`].
#[derive(Clone, Debug)]
pub struct Delivery<'a> {
    /// The subscription.
    pub subscription: &'a str,
    /// The message.
    pub row: &'a Row,
    /// 1 for the first attempt.
    pub attempt: u32,
}

/// Hands messages on as they are: a push, a relay. At least once, always with the same id.
pub trait Deliver: Send + Sync + 'static {
    /// Hands one message on. `Ok` only when the other side has confirmed it.
    fn deliver(&self, delivery: &Delivery<'_>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Where the other side is, for the log: without credentials, path or query.
    fn address(&self) -> Option<String> {
        None
    }
}

/// JSON text of a handler's result; `null` is nothing.
fn reply_of<R: Serialize>(result: &R) -> Result<Reply, Failure> {
    let text = serde_json::to_string(result).map_err(|error| {
        Failure::permanent(
            "result_unserialisable",
            "the result does not serialise to JSON",
        )
        .with_source(error)
    })?;
    Ok((text != "null").then(|| text.into()))
}

/// Reads a typed message from its payload.
pub(crate) fn read_message<M: DeserializeOwned>(row: &Row) -> Result<M, Failure> {
    let Payload::Json(text) = &row.envelope.payload else {
        return Err(Failure::new(
            onceward_core::Class::Schema,
            "payload_binary",
            "the payload is not JSON",
        ));
    };
    // The text of a JSON error may quote the payload, so it goes where payloads are withheld.
    serde_json::from_str(text).map_err(|error| {
        let place = format!(
            "the payload does not fit the message type, line {} column {}",
            error.line(),
            error.column()
        );
        Failure::new(onceward_core::Class::Schema, "payload_unreadable", place).with_source(error)
    })
}

pub(crate) trait LocalHandler<S: Store>: Send + Sync {
    fn handle<'a>(&'a self, cx: &'a mut Context<S>, row: &Row)
    -> Boxed<'a, Result<Reply, Failure>>;
}

pub(crate) struct Effect<F, M>(pub(crate) F, pub(crate) PhantomData<fn(M)>);

impl<S, F, M> LocalHandler<S> for Effect<F, M>
where
    S: Store,
    M: Message,
    F: for<'x> EffectFn<'x, S, M> + 'static,
{
    fn handle<'a>(
        &'a self,
        cx: &'a mut Context<S>,
        row: &Row,
    ) -> Boxed<'a, Result<Reply, Failure>> {
        match read_message::<M>(row) {
            Ok(message) => self.0.call(cx, message),
            Err(failure) => Box::pin(async move { Err(failure) }),
        }
    }
}

/// A row that a batch handler cannot read, by its index, with why.
pub(crate) type Unreadable = (usize, Failure);

pub(crate) trait BatchHandler<S: Store>: Send + Sync {
    /// The first row that cannot be read.
    fn unreadable(&self, rows: &[&Row]) -> Option<Unreadable>;

    fn handle<'a>(
        &'a self,
        cx: &'a mut Context<S>,
        rows: &[&Row],
    ) -> Boxed<'a, Result<Vec<Reply>, Failure>>;
}

pub(crate) struct BatchEffect<F, M>(pub(crate) F, pub(crate) PhantomData<fn(M)>);

impl<S, F, M> BatchHandler<S> for BatchEffect<F, M>
where
    S: Store,
    M: Message,
    F: for<'x> BatchFn<'x, S, M> + 'static,
{
    fn unreadable(&self, rows: &[&Row]) -> Option<Unreadable> {
        rows.iter()
            .enumerate()
            .find_map(|(i, row)| Some((i, read_message::<M>(row).err()?)))
    }

    fn handle<'a>(
        &'a self,
        cx: &'a mut Context<S>,
        rows: &[&Row],
    ) -> Boxed<'a, Result<Vec<Reply>, Failure>> {
        match rows.iter().map(|row| read_message::<M>(row)).collect() {
            Ok(messages) => self.0.call(cx, messages),
            Err(failure) => Box::pin(async move { Err(failure) }),
        }
    }
}

/// An answer between call and outcome, whatever its type.
pub(crate) type AnyAnswer = Box<dyn std::any::Any + Send>;

pub(crate) trait CallHandler<S: Store>: Send + Sync {
    /// Why the message cannot be read, if it cannot.
    fn unreadable(&self, row: &Row) -> Option<Failure> {
        let _ = row;
        None
    }

    fn can_probe(&self) -> bool;
    fn address(&self) -> Option<String>;
    fn call<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<AnyAnswer, Failure>>;
    fn probe<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<Probe<AnyAnswer>, Failure>>;
    fn outcome<'a>(
        &'a self,
        cx: &'a mut Context<S>,
        row: &'a Row,
        answer: AnyAnswer,
    ) -> Boxed<'a, Result<Reply, Failure>>;
}

/// A call with a typed message.
pub(crate) struct TypedCall<C>(pub(crate) C);

impl<S: Store, C: Call<S>> CallHandler<S> for TypedCall<C> {
    fn unreadable(&self, row: &Row) -> Option<Failure> {
        read_message::<C::Message>(row).err()
    }

    fn can_probe(&self) -> bool {
        self.0.can_probe()
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }

    fn call<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<AnyAnswer, Failure>> {
        Box::pin(async move {
            let message = read_message(row)?;
            let answer = self.0.call(row.envelope.operation(), &message).await?;
            Ok(Box::new(answer) as AnyAnswer)
        })
    }

    fn probe<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<Probe<AnyAnswer>, Failure>> {
        Box::pin(async move {
            let message = read_message(row)?;
            Ok(
                match self.0.probe(row.envelope.operation(), &message).await? {
                    Probe::Happened(answer) => Probe::Happened(Box::new(answer) as AnyAnswer),
                    Probe::DidNotHappen => Probe::DidNotHappen,
                    Probe::Unsupported => Probe::Unsupported,
                },
            )
        })
    }

    fn outcome<'a>(
        &'a self,
        cx: &'a mut Context<S>,
        row: &'a Row,
        answer: AnyAnswer,
    ) -> Boxed<'a, Result<Reply, Failure>> {
        Box::pin(async move {
            let message = read_message(row)?;
            let answer = answer.downcast::<C::Answer>().map_err(|_| {
                Failure::permanent("answer_type", "the answer has another type than declared")
            })?;
            reply_of(&self.0.outcome(cx, message, *answer).await?)
        })
    }
}

pub(crate) trait AnyDeliver: Send + Sync {
    fn deliver<'a>(&'a self, delivery: &'a Delivery<'a>) -> Boxed<'a, Result<(), Failure>>;
    fn address(&self) -> Option<String>;
}

impl<D: Deliver> AnyDeliver for D {
    fn deliver<'a>(&'a self, delivery: &'a Delivery<'a>) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(Deliver::deliver(self, delivery))
    }

    fn address(&self) -> Option<String> {
        Deliver::address(self)
    }
}
