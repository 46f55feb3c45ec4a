//! A worker: the real engine with every kind of subscription.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Engine, EngineOptions, Identity, Merge, Message, OnPoison, RetryPolicy, Semantics, Start,
    StartError, Subscription,
};
use tokio::signal::unix::{SignalKind, signal};

use super::carrier::CarrierClient;
use super::handlers::{self, Hands, Work};
use super::{Broken, WorkerArgs, files};
use crate::messages::{
    BATCHES, CARRIED, CLAIMED, DEADLY, EFFECTS, FOLLOWED, HANDED, HELD, LATEST, Ordered, Promise,
    Unit,
};
use crate::record::Lines;
use crate::tables::Books;
use crate::trouble::{Trouble, while_doing};

/// How long a worker that is told to stop may take.
const GRACE: Duration = Duration::from_secs(3);

pub(super) async fn run<S: Books>(store: S, args: WorkerArgs) -> Result<(), Trouble> {
    if let Some(die_at) = args.die_at.clone() {
        die_at.arm();
    }
    let mut told = signal(SignalKind::terminate()).map_err(while_doing("listen to signals"))?;
    let running = loop {
        match engine(store.clone(), &args)?.start().await {
            Ok(running) => break running,
            // The database may be away just now.
            Err(StartError::Store(error)) => {
                eprintln!("not started: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(while_doing("start the engine")(error)),
        }
    };
    told.recv().await;
    running.shutdown(GRACE).await;
    Ok(())
}

fn engine<S: Books>(store: S, args: &WorkerArgs) -> Result<onceward::EngineBuilder<S>, Trouble> {
    let open = |name: &str| {
        let lines = Lines::open(&args.folder.join(name));
        lines.map_err(while_doing(format!("open {name}")))
    };
    let work = Work {
        store: store.clone(),
        broken: args.broken,
    };
    let carrier = CarrierClient::new(args.folder.join(files::CARRIER_PORT));
    let handed = Hands(Arc::new(Mutex::new(open(files::HANDED)?)));
    let claimed = Hands(Arc::new(Mutex::new(open(files::CLAIMED)?)));
    let effects = match args.broken {
        Some(Broken::NoLedger) => Semantics::AtLeastOnce,
        _ => Semantics::EffectOnce,
    };
    let options = EngineOptions {
        lease_ms: args.lease_ms,
        renew_ms: args.lease_ms / 8,
        doze_max_ms: 60,
        description: format!("torture worker {}", std::process::id()),
        ..EngineOptions::default()
    };
    Ok(Engine::builder(store)
        .options(options)
        .subscribe(subscription(EFFECTS, effects).on::<Ordered, _>(handlers::effects(&work)))
        .subscribe(
            subscription(BATCHES, Semantics::EffectOnce).on_batch::<Ordered, _>(handlers::batches),
        )
        .subscribe(subscription(HELD, Semantics::EffectOnce).on::<Ordered, _>(handlers::held))
        .subscribe(
            subscription(LATEST, Semantics::EffectOnce)
                .merge(Merge::Latest)
                .on::<Ordered, _>(handlers::latest),
        )
        .subscribe(
            subscription(CARRIED, Semantics::EffectOnce)
                .call(handlers::Carried {
                    carrier,
                    is_blind: args.broken == Some(Broken::Blind),
                })
                .concurrency(4)
                .timeout_ms(2_000),
        )
        .subscribe(subscription(HANDED, Semantics::AtLeastOnce).deliver([Ordered::TYPE], handed))
        .subscribe(
            subscription(CLAIMED, Semantics::AtMostOnce)
                .deliver([Ordered::TYPE], handlers::Claims(claimed)),
        )
        .subscribe(subscription(FOLLOWED, Semantics::EffectOnce).on::<_, _>(handlers::followed))
        .subscribe(subscription(DEADLY, Semantics::EffectOnce).on::<_, _>(handlers::deadly)))
}

fn subscription<S: Books>(promise: Promise, semantics: Semantics) -> Subscription<S> {
    Subscription::new(promise.name, semantics)
        .lanes(promise.lanes)
        .identity(match promise.unit {
            Unit::Message => Identity::Message,
            Unit::Operation => Identity::Operation,
        })
        .on_poison(if promise.holds_key {
            OnPoison::HoldKey
        } else {
            OnPoison::Skip
        })
        .retry(RetryPolicy {
            base_ms: 10,
            cap_ms: 200,
            factor: 2.0,
            attempts_max: promise.attempts,
            age_max_ms: 86_400_000,
        })
        .start(Start::Earliest)
}
