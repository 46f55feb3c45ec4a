//! The engine: runs subscriptions over a store, alone or as one of a fleet.
//!
//! | part | does |
//! |---|---|
//! | `reader` | reads the log once for all subscriptions of the process |
//! | `member` | lease, lanes, handover |
//! | `patience` | others that were away too are not dead |
//! | `rereading` | what earlier owners left of a lane |
//! | `runner` | drives one subscription's dispatcher |
//! | `batch` | one batch: what is merged, the rest |
//! | `execute` | its pieces, failures |
//! | `suspects` | what may have killed the last owner |
//! | `attempt` | one effect transaction |
//! | `outside` | effects outside the database: calls and deliveries |
//! | `campaigns` | replay campaigns, step by step |
//! | `intake` | a broker's deliveries, taken into the log |
//! | `upkeep` | retention, now and then |
//! | `expiry` | work that has become useless |
//! | `merge` | of messages that wait together, only the latest |
//! | `held` | says when too much waits behind a key |
//! | `versions` | whether a message's version may be applied |
//! | `witness` | who sees user code being run, in tests |

mod again;
mod attempt;
mod batch;
mod campaigns;
mod conflict;
mod dependency;
mod execute;
mod expiry;
mod held;
mod intake;
mod member;
mod merge;
mod notes;
mod outside;
mod patience;
mod positions;
mod reader;
mod rereading;
mod runner;
mod surroundings;
mod suspects;
mod tally;
mod told_cases;
mod unheard;
mod upkeep;
mod verdict;
mod versions;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::contract::{
    Contract, ContractFault, MessageContract, Semantics, SubscriptionContract,
};
use onceward_core::store::{
    Declared, Registered, Retention, SchemaState, Store, StoreError, UnsafeRetention,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::intake::Intake;
use crate::subscription::{Handler, Subscription};
use crate::throttle::{THROTTLE_EVERY_MS, Throttle};
use intake::{Intakes, Source};
use runner::Runtime;
use told_cases::ToldCases;

pub use surroundings::Surroundings;
pub use witness::{Moment, Part, Sight, Witness};

/// Settings of an engine. All times in milliseconds.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// How long a lease lasts without renewal. A process that stops for longer loses its lanes.
    pub lease_ms: u64,
    /// How often leases are renewed and lanes balanced.
    pub renew_ms: u64,
    /// For how long after news the log is looked at every few milliseconds; then ever more rarely.
    pub alert_for_ms: u64,
    /// Longest pause between looks at a quiet log.
    pub doze_max_ms: u64,
    /// How long things are kept. The engine tidies up once a minute; any number of engines may.
    /// `None` leaves that to someone else, who must do it: room for new messages is made ahead for
    /// weeks, not for ever.
    pub retention: Option<Retention>,
    /// How often it is looked whether more waits behind a key than its limits allow, in
    /// milliseconds. `None` leaves that to someone else.
    pub held_every_ms: Option<u64>,
    /// How often what waits is looked at where message types refuse what cannot be done in time, in
    /// milliseconds.
    pub throttle_every_ms: u64,
    /// For people: what this process is.
    pub description: String,
}

impl Default for EngineOptions {
    /// 15 s leases renewed every 3 s, a log looked at every 2 ms for a second after news and every
    /// 220 ms when it is quiet.
    fn default() -> Self {
        Self {
            lease_ms: 15_000,
            renew_ms: 3_000,
            alert_for_ms: 1_000,
            doze_max_ms: 220,
            retention: Some(Retention::default()),
            held_every_ms: Some(10_000),
            throttle_every_ms: THROTTLE_EVERY_MS,
            description: format!("onceward process {}", std::process::id()),
        }
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The contract has faults; all of them are listed.
    #[error("the contract has {} fault(s): {}", .0.len(), list(.0))]
    Contract(Vec<ContractFault>),
    /// Retention under which effects could be repeated.
    #[error(transparent)]
    Retention(#[from] UnsafeRetention),
    /// The tables are missing or old.
    #[error("the tables are not ready for this program ({0:?}): run a migration first")]
    Schema(SchemaState),
    /// The log already holds messages of a new subscription's types: say where it starts.
    #[error(
        "subscription {0} is new and the log already holds messages of its types: declare its \
         start (now, earliest or a time)"
    )]
    StartMissing(String),
    /// A broker would be emptied for nobody.
    #[error("nothing would take what intake {0} takes in: name it as the source of a subscription")]
    IntakeUnused(String),
    /// Effect-once is promised for something that cannot keep it.
    #[error(
        "subscription {0} promises effect-once, but handing messages on can only be at-least-once \
         or at-most-once: use a call with a probe"
    )]
    CannotBeOnce(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list(faults: &[ContractFault]) -> String {
    faults
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Builds an engine.
pub struct EngineBuilder<S: Store> {
    store: S,
    contract: Contract,
    subscriptions: Vec<Subscription<S>>,
    intakes: Vec<Intake>,
    options: EngineOptions,
    surroundings: Surroundings,
}

/// The engine's entry point.
pub struct Engine;

impl Engine {
    /// Starts building an engine over a migrated store.
    pub fn builder<S: Store>(store: S) -> EngineBuilder<S> {
        EngineBuilder {
            store,
            contract: Contract::default(),
            subscriptions: Vec::new(),
            intakes: Vec::new(),
            options: EngineOptions::default(),
            surroundings: Surroundings::default(),
        }
    }
}

impl<S: Store> EngineBuilder<S> {
    /// Message types as declared elsewhere. Types that only a handler names are events.
    #[must_use]
    pub fn contract(mut self, contract: Contract) -> Self {
        self.contract = contract;
        self
    }

    /// Adds a subscription.
    #[must_use]
    pub fn subscribe(mut self, subscription: Subscription<S>) -> Self {
        self.subscriptions.push(subscription);
        self
    }

    /// Adds a broker to take messages in from, for the subscriptions that name it as their source.
    #[must_use]
    pub fn intake(mut self, intake: Intake) -> Self {
        self.intakes.push(intake);
        self
    }

    /// Settings.
    #[must_use]
    pub fn options(mut self, options: EngineOptions) -> Self {
        self.options = options;
        self
    }

    /// What is around the engine, where that is not the process: in simulations.
    #[must_use]
    pub fn surroundings(mut self, surroundings: Surroundings) -> Self {
        self.surroundings = surroundings;
        self
    }

    /// Checks the contract, registers the subscriptions and starts working.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub async fn start(self) -> Result<Running<S>, StartError> {
        let Self {
            store,
            mut contract,
            mut subscriptions,
            intakes,
            options,
            surroundings,
        } = self;
        // What other processes work on is wanted as well.
        let declared = subscriptions.iter().map(|s| &s.contract);
        let declared: Vec<&SubscriptionContract> =
            contract.subscriptions.values().chain(declared).collect();
        let sources = sources(&intakes, &declared)?;
        for source in &sources {
            subscriptions.push(source.intake.subscription(source.wanted.clone()));
        }
        for subscription in &subscriptions {
            for (message_type, message) in &subscription.messages {
                contract
                    .messages
                    .insert(message_type.clone(), message.clone());
            }
            for message_type in &subscription.contract.types {
                let message = contract
                    .messages
                    .entry(message_type.clone())
                    .or_insert_with(MessageContract::default);
                let aggregate = subscription.aggregates.get(message_type);
                message.aggregate = message.aggregate.take().or(aggregate.cloned());
                if let Some(priority) = subscription.priorities.get(message_type) {
                    message.priority = *priority;
                }
            }
            let name = subscription.contract.name.clone();
            contract
                .subscriptions
                .insert(name, subscription.contract.clone());
        }
        let faults = contract.faults();
        if !faults.is_empty() {
            return Err(StartError::Contract(faults));
        }
        if let Some(retention) = &options.retention {
            retention.check()?;
        }
        match store.schema_state().await? {
            SchemaState::Current { .. } => {}
            state => return Err(StartError::Schema(state)),
        }
        let mut runtimes = BTreeMap::new();
        for subscription in subscriptions {
            let runtime = register(&store, &contract, subscription).await?;
            runtimes.insert(runtime.contract.name.clone(), Arc::new(runtime));
        }
        let throttle = Throttle::watch(store.clone(), &contract, options.throttle_every_ms);
        let (control, controlled) = watch::channel(Control::Run);
        let (report, state) = watch::channel(EngineState::default());
        let task = member::Fleet {
            store: store.clone(),
            runtimes,
            options,
            surroundings,
            control: controlled,
            report,
            patience: patience::Patience::default(),
            campaigns: campaigns::Campaigns::default(),
            intakes: Intakes::new(sources.len()),
            sources,
            dependencies: BTreeMap::new(),
        };
        Ok(Running {
            store,
            control,
            state,
            throttle,
            task: tokio::spawn(task.run()),
        })
    }
}

/// What each intake takes, and for whom.
fn sources(
    intakes: &[Intake],
    declared: &[&SubscriptionContract],
) -> Result<Vec<Source>, StartError> {
    for contract in declared {
        let mut brokers = contract.brokers();
        if let Some(broker) = brokers.find(|broker| !intakes.iter().any(|i| i.name == *broker)) {
            tracing::info!(
                subscription = contract.name,
                broker,
                "its messages are taken in by another process: here is no intake of that name"
            );
        }
    }
    let source_of = |intake: &Intake| {
        let takers = declared.iter();
        let takers = takers.filter(|s| s.brokers().any(|broker| broker == intake.name));
        let (mut wanted, mut names) = (BTreeSet::new(), BTreeSet::new());
        for taker in takers {
            wanted.extend(taker.types.iter().cloned());
            names.insert(taker.name.clone());
        }
        if names.is_empty() {
            return Err(StartError::IntakeUnused(intake.name.clone()));
        }
        Ok(Source {
            intake: intake.clone(),
            wanted,
            subscriptions: names,
        })
    };
    intakes.iter().map(source_of).collect()
}

async fn register<S: Store>(
    store: &S,
    contract: &Contract,
    subscription: Subscription<S>,
) -> Result<Runtime<S>, StartError> {
    let mut settings = subscription.contract;
    let delivers = subscription
        .handlers
        .values()
        .any(|h| matches!(h, Handler::Deliver(_)));
    if delivers && settings.semantics == Semantics::EffectOnce {
        return Err(StartError::CannotBeOnce(settings.name));
    }
    let declared = Declared {
        subscription: &settings.name,
        lanes: settings.lanes,
        types: &settings.types,
        start: settings.start,
        renamed_from: settings.renamed_from.as_deref(),
        terms: contract.terms_of(&settings),
    };
    match store.register(declared).await? {
        Registered::New => {}
        Registered::Known { lanes } => settings.lanes = lanes,
        Registered::StartMissing => return Err(StartError::StartMissing(settings.name)),
    }
    // At most once, each message is recorded by itself before it is tried.
    let is_coalesced = subscription.coalesce
        && settings.semantics != Semantics::AtMostOnce
        && subscription.handlers.values().all(Handler::is_coalesced);
    let useful_for = settings.types.iter().filter_map(|message_type| {
        let ms = contract.useful_for_ms(&settings, message_type)?;
        Some((message_type.clone(), ms))
    });
    Ok(Runtime {
        grouping: contract.grouping_of(&settings),
        useful_for: useful_for.collect(),
        identity: contract.identity_of(&settings),
        on_poison: contract.on_poison_of(&settings),
        batch_max: if is_coalesced { settings.batch_max } else { 1 },
        contract: settings,
        handlers: subscription.handlers,
        sensitivities: subscription.sensitivities,
        told_cases: ToldCases::default(),
    })
}

/// What the engine was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Run,
    /// Hand back within this many milliseconds.
    Stop(u64),
}

/// How an engine stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EngineState {
    /// Whether it holds a lease.
    pub is_member: bool,
    /// Member id of this incarnation.
    pub member: Option<String>,
    /// Lanes owned, by subscription.
    pub lanes: BTreeMap<String, Vec<u16>>,
    /// Keys behind which more waits than their limits allow, by subscription; at most twenty each.
    /// Only where this engine owns the subscription's first lane.
    pub held_beyond: BTreeMap<String, Vec<String>>,
    /// What was taken in from brokers, by intake.
    pub intakes: BTreeMap<String, IntakeState>,
    /// Leases lost so far.
    pub leases_lost: u64,
    /// The last trouble with the store, in words; `None` while all is well.
    pub trouble: Option<String>,
}

/// How an intake stands in this process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IntakeState {
    /// Whether it is this process that takes in.
    pub is_taking: bool,
    /// Whether it waits for room: as much waits here as may.
    pub is_full: bool,
    /// Messages that it took in for somebody.
    pub taken: u64,
    /// Deliveries of what had been taken in before.
    pub known: u64,
    /// Deliveries that were put aside as cases.
    pub put_aside: u64,
    /// Why nothing comes or can be taken, in words; `None` while all is well.
    pub trouble: Option<String>,
}

/// A running engine. Dropping it stops the work without handing back: prefer
/// [`shutdown`](Self::shutdown).
pub struct Running<S: Store> {
    store: S,
    control: watch::Sender<Control>,
    state: watch::Receiver<EngineState>,
    throttle: Throttle,
    task: JoinHandle<()>,
}

impl<S: Store> Running<S> {
    /// The store underneath.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// How it stands now.
    #[must_use]
    pub fn state(&self) -> EngineState {
        self.state.borrow().clone()
    }

    /// Follows how it stands.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<EngineState> {
        self.state.clone()
    }

    /// Says whether new messages can still be finished in time, for producers in this process.
    #[must_use]
    pub fn throttle(&self) -> Throttle {
        self.throttle.clone()
    }

    /// Waits until every subscription's lanes are owned by this engine.
    pub async fn owns_all_lanes(&self) {
        let mut state = self.state.clone();
        let owns_all = |s: &EngineState| s.is_member && s.lanes.values().all(|l| !l.is_empty());
        // An error means that the engine has ended; there is nothing to wait for then.
        let _ = state.wait_for(owns_all).await;
    }

    /// Stops taking, finishes or hands back what is in flight, leaves the fleet. What has not
    /// finished after `grace` is cancelled: its transaction rolls back and the next owner takes it.
    pub async fn shutdown(mut self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.control.send_replace(Control::Stop(grace_ms));
        if let Err(error) = (&mut self.task).await
            && error.is_panic()
        {
            tracing::error!("the engine's task panicked while stopping");
        }
    }
}

impl<S: Store> Drop for Running<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
