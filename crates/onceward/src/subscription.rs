//! Declaring a subscription: what it takes, what it promises, what runs.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use onceward_core::Message;
use onceward_core::breaker::BreakerPolicy;
use onceward_core::contract::{
    Kind, MessageContract, OnPoison, Order, Semantics, SubscriptionContract,
};
use onceward_core::expiry::Expired;
use onceward_core::group::{Priority, Tenants};
use onceward_core::hold::HoldLimits;
use onceward_core::merge::Merge;
use onceward_core::sensitivity::Sensitivity;
use onceward_core::shed::Shed;
use onceward_core::store::{Start, Store};
use onceward_core::version::VersionPolicy;
use onceward_core::{Identity, RetryPolicy};

use crate::handler::{
    AnyDeliver, BatchEffect, BatchFn, BatchHandler, Call, CallHandler, Deliver, Effect, EffectFn,
    LocalHandler, TypedCall,
};

/// What runs for a message type.
pub(crate) enum Handler<S: Store> {
    Local(Arc<dyn LocalHandler<S>>),
    Batch(Arc<dyn BatchHandler<S>>),
    Call(Arc<dyn CallHandler<S>>),
    Deliver(Arc<dyn AnyDeliver>),
}

impl<S: Store> Clone for Handler<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Local(h) => Self::Local(Arc::clone(h)),
            Self::Batch(h) => Self::Batch(Arc::clone(h)),
            Self::Call(h) => Self::Call(Arc::clone(h)),
            Self::Deliver(h) => Self::Deliver(Arc::clone(h)),
        }
    }
}

impl<S: Store> Handler<S> {
    /// Whether it asks another side.
    pub(crate) const fn is_outside(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Deliver(_))
    }

    /// Whether the other side may have done something that has to be looked up.
    pub(crate) const fn is_call(&self) -> bool {
        matches!(self, Self::Call(_))
    }

    /// Where the other side is, where it says so.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Self::Call(call) => call.address(),
            Self::Deliver(deliver) => deliver.address(),
            Self::Local(_) | Self::Batch(_) => None,
        }
    }

    /// Whether several messages may share a transaction.
    pub(crate) const fn is_coalesced(&self) -> bool {
        matches!(self, Self::Local(_) | Self::Batch(_))
    }
}

/// A subscription with its handlers.
///
/// ```ignore
/// Subscription::new("fulfilment", Semantics::EffectOnce)
///     .on::<OrderAccepted, _>(ship)
///     .retry(RetryPolicy { attempts_max: 5, ..RetryPolicy::default() })
/// ```
pub struct Subscription<S: Store> {
    pub(crate) contract: SubscriptionContract,
    pub(crate) handlers: BTreeMap<String, Handler<S>>,
    pub(crate) messages: BTreeMap<String, MessageContract>,
    /// The aggregates of typed messages, by message type.
    pub(crate) aggregates: BTreeMap<String, String>,
    /// Priorities that are said here, by message type.
    pub(crate) priorities: BTreeMap<String, Priority>,
    pub(crate) coalesce: bool,
    pub(crate) sensitivities: BTreeMap<String, Sensitivity>,
}

/// The same handlers with the same settings, for another engine.
impl<S: Store> Clone for Subscription<S> {
    fn clone(&self) -> Self {
        Self {
            contract: self.contract.clone(),
            handlers: self.handlers.clone(),
            messages: self.messages.clone(),
            aggregates: self.aggregates.clone(),
            priorities: self.priorities.clone(),
            coalesce: self.coalesce,
            sensitivities: self.sensitivities.clone(),
        }
    }
}

impl<S: Store> Subscription<S> {
    /// A subscription with every default and no handler.
    #[must_use]
    pub fn new(name: impl Into<String>, semantics: Semantics) -> Self {
        Self {
            contract: SubscriptionContract::new(name, &[], semantics),
            handlers: BTreeMap::new(),
            messages: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            priorities: BTreeMap::new(),
            coalesce: true,
            sensitivities: BTreeMap::new(),
        }
    }

    /// What of a type's payloads may be quoted by the texts of failures that are kept and shown. By
    /// default nothing: values of the payload are taken out of them.
    #[must_use]
    pub fn sensitivity(
        mut self,
        message_type: impl Into<String>,
        sensitivity: Sensitivity,
    ) -> Self {
        self.sensitivities.insert(message_type.into(), sensitivity);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.contract.name
    }

    /// One message at a time, in the effect transaction; the engine lets several share a commit.
    #[must_use]
    pub fn on<M, F>(self, handler: F) -> Self
    where
        M: Message,
        F: for<'x> EffectFn<'x, S, M> + 'static,
    {
        let handler = Handler::Local(Arc::new(Effect(handler, PhantomData::<fn(M)>)));
        self.typed::<M>().route(M::TYPE.to_owned(), handler)
    }

    /// Many messages with one call, in the effect transaction.
    #[must_use]
    pub fn on_batch<M, F>(self, handler: F) -> Self
    where
        M: Message,
        F: for<'x> BatchFn<'x, S, M> + 'static,
    {
        let handler = Handler::Batch(Arc::new(BatchEffect(handler, PhantomData::<fn(M)>)));
        self.typed::<M>().route(M::TYPE.to_owned(), handler)
    }

    /// An effect outside the database.
    #[must_use]
    pub fn call<C: Call<S>>(self, call: C) -> Self {
        let handler = Handler::Call(Arc::new(TypedCall(call)));
        let message_type = <C::Message as Message>::TYPE.to_owned();
        self.typed::<C::Message>().route(message_type, handler)
    }

    /// Hands messages of these types on as they are.
    #[must_use]
    pub fn deliver<D: Deliver>(
        mut self,
        types: impl IntoIterator<Item = impl Into<String>>,
        deliver: D,
    ) -> Self {
        let deliver: Arc<dyn AnyDeliver> = Arc::new(deliver);
        for message_type in types {
            self = self.route(message_type.into(), Handler::Deliver(Arc::clone(&deliver)));
        }
        self
    }

    /// Pushes messages of these types. With a probe a push is an effect outside the database, which
    /// is asked about before any new attempt and may promise effect-once; without one it hands
    /// messages on, at least once.
    #[cfg(feature = "push")]
    #[must_use]
    pub fn push(
        mut self,
        types: impl IntoIterator<Item = impl Into<String>>,
        push: crate::push::PushDeliverer,
    ) -> Self {
        if !push.can_probe() {
            return self.deliver(types, push);
        }
        let call: Arc<dyn CallHandler<S>> = Arc::new(push);
        for message_type in types {
            self = self.route(message_type.into(), Handler::Call(Arc::clone(&call)));
        }
        self
    }

    /// Handles messages of these types as they are, in the effect transaction.
    pub(crate) fn local(
        mut self,
        types: impl IntoIterator<Item = String>,
        handler: &Arc<dyn LocalHandler<S>>,
    ) -> Self {
        for message_type in types {
            self = self.route(message_type, Handler::Local(Arc::clone(handler)));
        }
        self
    }

    /// Takes its messages from these sources: names of [intakes](crate::intake), and
    /// [`OUTBOX`](onceward_core::contract::OUTBOX), from which alone it takes them where nothing is
    /// said.
    #[must_use]
    pub fn from(mut self, sources: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.contract.sources = sources.into_iter().map(Into::into).collect();
        self
    }

    fn typed<M: Message>(mut self) -> Self {
        self.aggregates
            .insert(M::TYPE.to_owned(), M::AGGREGATE_TYPE.to_owned());
        self
    }

    fn route(mut self, message_type: String, handler: Handler<S>) -> Self {
        if !self.contract.types.contains(&message_type) {
            self.contract.types.push(message_type.clone());
        }
        self.handlers.insert(message_type, handler);
        self
    }

    /// Declares a type of this subscription as a command that it owns.
    #[must_use]
    pub fn owns<M: Message>(mut self) -> Self {
        let command = MessageContract {
            kind: Kind::Command,
            aggregate: Some(M::AGGREGATE_TYPE.to_owned()),
            ..MessageContract::default()
        };
        self.messages.insert(M::TYPE.to_owned(), command);
        self
    }

    /// Takes all settings from a contract; the handlers and their types stay.
    #[must_use]
    pub fn contract(mut self, mut contract: SubscriptionContract) -> Self {
        contract.types = std::mem::take(&mut self.contract.types);
        self.contract = contract;
        self
    }

    /// Retry budget.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.contract.retry = retry;
        self
    }

    /// Checks the versions of aggregates: one that is behind is refused, and a gap waits or passes.
    #[must_use]
    pub fn versions(mut self, versions: VersionPolicy) -> Self {
        self.contract.versions = Some(versions);
        self
    }

    /// What becomes of work whose time is over.
    #[must_use]
    pub fn expired(mut self, expired: Expired) -> Self {
        self.contract.expired = expired;
        self
    }

    /// How long messages are useful here, in milliseconds.
    #[must_use]
    pub fn useful_for_ms(mut self, useful_for_ms: u64) -> Self {
        self.contract.useful_for_ms = Some(useful_for_ms);
        self
    }

    /// Of messages of one key and type that wait together only the latest is handled.
    #[must_use]
    pub fn merge(mut self, merge: Merge) -> Self {
        self.contract.merge = merge;
        self
    }

    /// Gives messages of these types up when they have waited for longer than this at their turn, in
    /// milliseconds.
    #[must_use]
    pub fn shed(
        mut self,
        types: impl IntoIterator<Item = impl Into<String>>,
        after_ms: u64,
    ) -> Self {
        let types = types.into_iter().map(Into::into).collect();
        self.contract.shed = Some(Shed { types, after_ms });
        self
    }

    /// How much may wait behind a key before somebody is told.
    #[must_use]
    pub fn hold(mut self, hold: HoldLimits) -> Self {
        self.contract.hold = hold;
        self
    }

    /// Batches, or messages that are not coalesced, in work at once in one process. For effects
    /// outside the database it is the ceiling of what the other side is found to take.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.contract.concurrency = concurrency;
        self
    }

    /// The floor of what the other side of effects outside the database is found to take; 1 by
    /// default, and where it begins after an outage. The same as [`concurrency`](Self::concurrency)
    /// fixes it.
    #[must_use]
    pub fn concurrency_min(mut self, concurrency_min: u16) -> Self {
        self.contract.concurrency_min = concurrency_min;
        self
    }

    /// When the other side of effects outside the database counts as away.
    #[must_use]
    pub fn breaker(mut self, breaker: BreakerPolicy) -> Self {
        self.contract.breaker = breaker;
        self
    }

    /// Most messages that commit together; 1 gives each its own transaction.
    #[must_use]
    pub fn batch_max(mut self, batch_max: u32) -> Self {
        self.contract.batch_max = batch_max;
        self
    }

    /// Tells messages apart by whose they are: each tenant gets its share of what runs, however
    /// much others have waiting.
    #[must_use]
    pub fn tenants(mut self, tenants: Tenants) -> Self {
        self.contract.tenants = Some(tenants);
        self
    }

    /// The business value of a type. Where there is more to do than can be done, it says who starts
    /// first; to be the same in all subscriptions, declare it with the type in the contract.
    #[must_use]
    pub fn priority<M: Message>(mut self, priority: Priority) -> Self {
        self.priorities.insert(M::TYPE.to_owned(), priority);
        self
    }

    /// Which part of what runs at once is for messages that come again (retries, releases, replays)
    /// while there are new ones as well; 0.5 by default.
    #[must_use]
    pub fn catch_up_share(mut self, share: f64) -> Self {
        self.contract.catch_up_share = share;
        self
    }

    /// Number of lanes; fixed once registered.
    #[must_use]
    pub fn lanes(mut self, lanes: u16) -> Self {
        self.contract.lanes = lanes;
        self
    }

    /// Order.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.contract.order = order;
        self
    }

    /// What a quarantined message does to its key.
    #[must_use]
    pub fn on_poison(mut self, on_poison: OnPoison) -> Self {
        self.contract.on_poison = Some(on_poison);
        self
    }

    /// What identifies an effect.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.contract.identity = Some(identity);
        self
    }

    /// A handler that takes longer is cancelled and counted as failed, in milliseconds.
    #[must_use]
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.contract.timeout_ms = timeout_ms;
        self
    }

    /// Messages held in memory at once.
    #[must_use]
    pub fn window_rows(mut self, window_rows: u32) -> Self {
        self.contract.window_rows = window_rows;
        self
    }

    /// Where it starts when it is new.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.contract.start = Some(start);
        self
    }

    /// Its handlers may be made to run once more on purpose: a replay campaign of kind rerun gives
    /// each message an effect of its own beside the first one.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.contract.is_repeatable = true;
        self
    }

    /// Former name.
    #[must_use]
    pub fn renamed_from(mut self, name: impl Into<String>) -> Self {
        self.contract.renamed_from = Some(name.into());
        self
    }
}
