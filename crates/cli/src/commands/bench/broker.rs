//! `onceward bench relay` and `onceward bench consume`: to and from a broker, beside the same without
//! one in the same run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::core::broker::{Outgoing, Publish, Publisher};
use onceward::core::contract::OUTBOX;
use onceward::intake::{Intake, IntakeOptions};
use onceward::relay::{Relay, RelayOptions};
use onceward::{Engine, Envelope, Semantics, Start, Subscription, envelope_of};
use onceward_core::broker::Topic;
use onceward_core::store::{BacklogQuery, Status as _};
use onceward_orders::between::{Between, BrokerKind, Side};
use serde_json::json;
use tempfile::TempDir;

use super::effects::APPEND_ROWS;
use super::ground::{Ground, Scratch};
use super::work::{Order, orders};
use super::{ConsumeArgs, RelayArgs};
use crate::commands::broker::server::{Broker, prepare};
use crate::error::{Code, Error};
use crate::output::Output;

/// Messages that are published at once.
const BATCH: usize = 500;
/// How long a confirmation may take, in milliseconds.
const TIMEOUT_MS: u64 = 15_000;
/// What takes longer has failed.
const WITHIN: Duration = Duration::from_secs(600);
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(20);
/// Messages that are taken in by one transaction, to compare.
const SWEEP: [u32; 5] = [50, 100, 250, 500, 1_000];
/// Each is measured so often, in turn; the best rate counts, as the others had less of the machine.
const ROUNDS: u32 = 3;

fn failed(text: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Code::Broker, text.to_owned()).with_source(error)
}

/// A broker for a bench, in a folder that goes with it.
async fn broker(kind: BrokerKind) -> Result<(TempDir, Broker), Error> {
    Broker::check(kind)?;
    let folder = tempfile::Builder::new().prefix("onceward-bench-").tempdir();
    let folder = folder.map_err(|e| failed("no temporary folder", e))?;
    let broker = Broker::start(kind, folder.path()).await?;
    Ok((folder, broker))
}

/// Where a round goes: names that no other round had.
async fn names(broker: &Broker, round: u32) -> Result<Between, Error> {
    let mut between = broker.between.clone();
    between.prefix = format!("{}-{round}", between.prefix);
    prepare(&between).await?;
    Ok(between)
}

fn envelopes(messages: u32) -> Result<Vec<Envelope>, Error> {
    let envelope = |order: &Order| {
        let mut envelope = envelope_of(order)?;
        envelope.source = Some("/bench".into());
        Ok(envelope)
    };
    let envelopes: Result<_, onceward::AppendError> =
        orders(messages, 0).iter().map(envelope).collect();
    envelopes.map_err(|e| failed("a message cannot be made", e))
}

/// Publishes all, a batch after the other, and returns how many a second.
async fn publish(
    publisher: &dyn Publisher,
    topic: &str,
    envelopes: &[Envelope],
) -> Result<f64, Error> {
    let started = Instant::now();
    for chunk in envelopes.chunks(BATCH) {
        let messages: Vec<Outgoing<'_>> = chunk
            .iter()
            .map(|envelope| Outgoing {
                topic,
                envelope,
                recorded_at: None,
            })
            .collect();
        let batch = Publish {
            messages: &messages,
            timeout_ms: TIMEOUT_MS,
        };
        for outcome in publisher.publish(batch).await {
            outcome.map_err(|failure| Error::new(Code::Broker, failure.message().to_owned()))?;
        }
    }
    Ok(envelopes.len() as f64 / started.elapsed().as_secs_f64())
}

fn topic_of(between: &Between) -> String {
    format!("{}-{}.bench", between.prefix, Side::Fulfilment.incoming())
}

async fn filled<G: Ground>(ground: &G, messages: u32) -> Result<G::Scratch, Error> {
    let scratch = ground.scratch().await?;
    for chunk in orders(messages, 0).chunks(APPEND_ROWS) {
        scratch.append(chunk).await?;
    }
    Ok(scratch)
}

/// Messages per second from the log to a broker, beside the adapter alone.
pub(super) async fn relay<G: Ground>(
    ground: &G,
    output: Output,
    args: RelayArgs,
) -> Result<(), Error> {
    let (_folder, broker) = broker(args.broker).await?;
    let envelopes = envelopes(args.messages)?;
    let (mut alone, mut relayed) = (0.0_f64, 0.0_f64);
    for round in 0..ROUNDS {
        let between = names(&broker, round * 2).await?;
        let rate = publish(&*publisher_to(&between)?, &topic_of(&between), &envelopes).await?;
        alone = alone.max(rate);
        let between = names(&broker, round * 2 + 1).await?;
        relayed = relayed.max(relay_round(ground, args, &between).await?);
    }
    output.json(&json!({
        "store": ground.describe().await?,
        "broker": args.broker.as_str(),
        "messages": args.messages,
        "adapter_alone_per_second": alone.round(),
        "relayed_per_second": relayed.round(),
        "ratio": (relayed / alone.max(1.0) * 100.0).round() / 100.0,
    }))
}

async fn relay_round<G: Ground>(
    ground: &G,
    args: RelayArgs,
    between: &Between,
) -> Result<f64, Error> {
    let scratch = filled(ground, args.messages).await?;
    let publisher = publisher_to(between)?;
    let mut options = RelayOptions::default();
    options.topic = Topic::parse(&topic_of(between)).map_err(|e| failed("no topic", e))?;
    let relay = Subscription::new("bench", Semantics::AtLeastOnce)
        .start(Start::Earliest)
        .concurrency(args.concurrency)
        .deliver(["bench.order"], Relay::new(publisher, options));
    let started = Instant::now();
    let running = Engine::builder(scratch.store().clone())
        .subscribe(relay)
        .start()
        .await;
    let running = running.map_err(|e| failed("the engine did not start", e))?;
    until(started, async || {
        let query = BacklogQuery::new("bench", 1);
        let backlog = scratch.store().backlog(query).await;
        let backlog = backlog.map_err(|e| failed("could not look at what waits", e))?;
        Ok(backlog.waiting == 0 && !backlog.lanes.is_empty())
    })
    .await?;
    let rate = f64::from(args.messages) / started.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(30)).await;
    scratch.remove().await?;
    Ok(rate)
}

/// Looks until a run is at its end.
async fn until(
    started: Instant,
    is_done: impl AsyncFn() -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut look = tokio::time::interval(LOOK);
    loop {
        look.tick().await;
        if is_done().await? {
            return Ok(());
        }
        if started.elapsed() > WITHIN {
            let text = format!("a run did not end within {} s", WITHIN.as_secs());
            return Err(Error::new(Code::Engine, text));
        }
    }
}

/// Publishes to where the bench receives from.
fn publisher_to(between: &Between) -> Result<Arc<dyn Publisher>, Error> {
    let publisher = between.publisher(Side::Fulfilment.incoming());
    publisher.map_err(|e| failed("no publisher", e))
}

/// Effects per second of messages from a broker, beside those of the same messages from the log.
pub(super) async fn consume<G: Ground>(
    ground: &G,
    output: Output,
    args: ConsumeArgs,
) -> Result<(), Error> {
    let (_folder, broker) = broker(args.broker).await?;
    let envelopes = envelopes(args.messages)?;
    let prefetches = match args.sweep {
        true => SWEEP.to_vec(),
        false => vec![args.prefetch],
    };
    let mut local = 0.0_f64;
    let mut taken = vec![0.0_f64; prefetches.len()];
    let mut round = 0;
    for _ in 0..ROUNDS {
        local = local.max(effects_round(ground, args, None).await?);
        for (prefetch, best) in prefetches.iter().zip(&mut taken) {
            let between = names(&broker, round).await?;
            round += 1;
            publish(&*publisher_to(&between)?, &topic_of(&between), &envelopes).await?;
            let rate = effects_round(ground, args, Some((&between, *prefetch))).await?;
            *best = best.max(rate);
        }
    }
    let ratio = |rate: f64| (rate / local.max(1.0) * 100.0).round() / 100.0;
    let runs: Vec<_> = prefetches
        .iter()
        .zip(&taken)
        .map(|(prefetch, rate)| {
            json!({ "prefetch": prefetch, "per_second": rate.round(), "ratio": ratio(*rate) })
        })
        .collect();
    let mut figures = json!({
        "store": ground.describe().await?,
        "broker": args.broker.as_str(),
        "messages": args.messages,
        "from_the_log_per_second": local.round(),
        "from_the_broker": runs,
    });
    if args.sweep {
        figures["recommended_prefetch"] = json!(recommended(&prefetches, &taken));
    }
    output.json(&figures)
}

/// The smallest that comes close to the best: less is in hand when a process dies.
fn recommended(prefetches: &[u32], rates: &[f64]) -> Option<u32> {
    let best = rates.iter().copied().fold(0.0, f64::max);
    let mut close = prefetches.iter().zip(rates);
    let found = close.find(|(_, rate)| **rate >= best * 0.95);
    found.map(|(prefetch, _)| *prefetch)
}

/// Effects of what waits at the broker or, without one, in the log.
async fn effects_round<G: Ground>(
    ground: &G,
    args: ConsumeArgs,
    from: Option<(&Between, u32)>,
) -> Result<f64, Error> {
    let scratch = match from {
        Some(_) => ground.scratch().await?,
        None => filled(ground, args.messages).await?,
    };
    let source = if from.is_some() { "bench" } else { OUTBOX };
    let subscription = Subscription::new("effects", Semantics::EffectOnce)
        .start(Start::Earliest)
        .concurrency(args.concurrency)
        .on::<Order, _>(G::Scratch::one())
        .from([source]);
    let mut engine = Engine::builder(scratch.store().clone()).subscribe(subscription);
    if let Some((between, prefetch)) = from {
        let subscriber = between.subscriber(Side::Fulfilment.incoming());
        let subscriber = subscriber.map_err(|e| failed("no subscriber", e))?;
        let mut options = IntakeOptions::default();
        options.batch_messages_max = prefetch;
        engine = engine.intake(Intake::new("bench", subscriber, options));
    }
    let started = Instant::now();
    let running = engine.start().await;
    let running = running.map_err(|e| failed("the engine did not start", e))?;
    let wanted = u64::from(args.messages);
    until(started, async || {
        Ok(scratch.effects(wanted).await? >= wanted)
    })
    .await?;
    let rate = f64::from(args.messages) / started.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(30)).await;
    scratch.remove().await?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recommended_is_the_smallest_that_comes_close() {
        let prefetches = [50, 100, 250];
        assert_eq!(recommended(&prefetches, &[10.0, 96.0, 100.0]), Some(100));
        assert_eq!(recommended(&prefetches, &[10.0, 90.0, 100.0]), Some(250));
        assert_eq!(recommended(&prefetches, &[0.0, 0.0, 0.0]), Some(50));
        assert_eq!(recommended(&[], &[]), None);
    }
}
