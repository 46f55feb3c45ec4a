//! `onceward bench drain` and `onceward bench latency`: what the engine itself takes of a delivery,
//! at full load and with nothing else to do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onceward::{Deliver, Delivery, Engine, Failure, Running, Semantics, Start, Subscription};
use onceward_core::store::Store;
use serde_json::json;
use tokio::sync::Notify;

use super::effects::APPEND_ROWS;
use super::ground::{Ground, Scratch};
use super::work::orders;
use super::{DrainArgs, LatencyArgs};
use crate::error::{Code, Error};
use crate::output::Output;

/// Each way is measured so often, in turn; the best rate counts, as the others had less of the
/// machine.
const ROUNDS: u32 = 3;
/// What takes longer has failed.
const WITHIN: Duration = Duration::from_secs(600);
/// How long an engine is left alone before the first message after silence.
const SILENCE: Duration = Duration::from_secs(3);

/// The other side of deliveries: counts them, and takes its time.
struct Receiver {
    takes: Duration,
    wanted: u64,
    received: AtomicU64,
    /// All waiting together, in microseconds, as measured: timers are not exact.
    waited_us: AtomicU64,
    all_received: Notify,
    /// When each was received, if that is asked for.
    moments: Option<Mutex<Vec<Instant>>>,
}

impl Receiver {
    fn new(wanted: u64, takes: Duration, moments: bool) -> Arc<Self> {
        Arc::new(Self {
            takes,
            wanted,
            received: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            all_received: Notify::new(),
            moments: moments.then(Mutex::default),
        })
    }
}

struct To(Arc<Receiver>);

impl Deliver for To {
    async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Failure> {
        let receiver = &self.0;
        if let Some(moments) = &receiver.moments {
            let mut moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
            moments.push(Instant::now());
        }
        if !receiver.takes.is_zero() {
            let begun = Instant::now();
            tokio::time::sleep(receiver.takes).await;
            let waited_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            receiver.waited_us.fetch_add(waited_us, Ordering::Relaxed);
        }
        if receiver.received.fetch_add(1, Ordering::Relaxed) + 1 == receiver.wanted {
            receiver.all_received.notify_one();
        }
        Ok(())
    }
}

async fn start<S: Store>(
    store: &S,
    receiver: &Arc<Receiver>,
    concurrency: u16,
) -> Result<Running<S>, Error> {
    let subscription = Subscription::new("bench", Semantics::AtLeastOnce)
        .start(Start::Earliest)
        .concurrency(concurrency)
        .deliver(["bench.order"], To(Arc::clone(receiver)));
    let running = Engine::builder(store.clone())
        .subscribe(subscription)
        .start()
        .await;
    running.map_err(|e| Error::new(Code::Engine, "the engine did not start").with_source(e))
}

async fn received(receiver: &Receiver) -> Result<(), Error> {
    let all = tokio::time::timeout(WITHIN, receiver.all_received.notified()).await;
    all.map_err(|_| {
        let message = format!("a run did not end within {} s", WITHIN.as_secs());
        Error::new(Code::Engine, message)
    })
}

/// Deliveries per second to a receiver that does nothing, and to one that takes its time.
pub(super) async fn drain<G: Ground>(
    ground: &G,
    output: Output,
    args: DrainArgs,
) -> Result<(), Error> {
    let takes = Duration::from_millis(args.takes_ms);
    let (mut nothing, mut waiting) = (0.0_f64, (0.0_f64, 0.0_f64));
    for _ in 0..ROUNDS {
        nothing = nothing.max(round(ground, args, Duration::ZERO).await?.0);
        if !takes.is_zero() {
            let round = round(ground, args, takes).await?;
            waiting = if round.0 > waiting.0 { round } else { waiting };
        }
    }
    let mut figures = json!({
        "store": ground.describe().await?,
        "messages": args.messages,
        "concurrency": args.concurrency,
        "doing_nothing_per_second": nothing.round(),
    });
    if !takes.is_zero() {
        let (rate, mean_ms) = waiting;
        let most = (f64::from(args.concurrency) * 1_000.0 / mean_ms.max(0.001)).min(nothing);
        figures["taking_its_time_per_second"] = json!(rate.round());
        figures["takes_mean_ms"] = json!((mean_ms * 100.0).round() / 100.0);
        figures["taking_its_time_ratio"] = json!((rate / most.max(1.0) * 100.0).round() / 100.0);
    }
    output.json(&figures)
}

/// The rate, and what a delivery took on average, in milliseconds.
async fn round<G: Ground>(
    ground: &G,
    args: DrainArgs,
    takes: Duration,
) -> Result<(f64, f64), Error> {
    let scratch = ground.scratch().await?;
    for chunk in orders(args.messages, 0).chunks(APPEND_ROWS) {
        scratch.append(chunk).await?;
    }
    let wanted = u64::from(args.messages);
    let receiver = Receiver::new(wanted, takes, false);
    let started = Instant::now();
    let running = start(scratch.store(), &receiver, args.concurrency).await?;
    received(&receiver).await?;
    let rate = f64::from(args.messages) / started.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(30)).await;
    scratch.remove().await?;
    let waited_us = receiver.waited_us.load(Ordering::Relaxed);
    Ok((rate, waited_us as f64 / wanted as f64 / 1_000.0))
}

/// From commit to the start of the handler: while messages come one by one, and of the first one
/// after silence. Messages are appended through a store of their own, as another process would, so
/// that nothing rings.
pub(super) async fn latency<G: Ground>(
    ground: &G,
    output: Output,
    args: LatencyArgs,
) -> Result<(), Error> {
    let scratch = ground.scratch().await?;
    let (silences, steady) = (args.silences, args.messages);
    let total = u64::from(silences) + u64::from(steady);
    let receiver = Receiver::new(total, Duration::ZERO, true);
    let running = start(scratch.store(), &receiver, 16).await?;
    running.owns_all_lanes().await;
    let mut committed = Vec::new();
    let orders = orders(silences + steady, 0);
    for order in &orders[..silences as usize] {
        tokio::time::sleep(SILENCE).await;
        scratch.append(std::slice::from_ref(order)).await?;
        committed.push(Instant::now());
    }
    let pause = Duration::from_secs(1) / args.per_second.max(1);
    let mut ticks = tokio::time::interval(pause);
    for order in &orders[silences as usize..] {
        ticks.tick().await;
        scratch.append(std::slice::from_ref(order)).await?;
        committed.push(Instant::now());
    }
    received(&receiver).await?;
    running.shutdown(Duration::from_secs(5)).await;
    scratch.remove().await?;
    let moments = receiver.moments.as_ref().map(|moments| {
        let mut moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *moments)
    });
    // One at a time, so the n-th to be received is the n-th that was committed; one may be received
    // before its commit has been answered.
    let took_ms = |(committed, received): (&Instant, &Instant)| {
        received.saturating_duration_since(*committed).as_secs_f64() * 1_000.0
    };
    let took_ms: Vec<f64> = committed
        .iter()
        .zip(moments.iter().flatten())
        .map(took_ms)
        .collect();
    let (after_silence, steady) = took_ms.split_at(silences as usize);
    output.json(&json!({
        "store": ground.describe().await?,
        "messages": args.messages,
        "per_second": args.per_second,
        "commit_to_start_p50_ms": quantile(steady, 0.5),
        "commit_to_start_p99_ms": quantile(steady, 0.99),
        "commit_to_start_max_ms": quantile(steady, 1.0),
        "after_silence_p50_ms": quantile(after_silence, 0.5),
        "after_silence_max_ms": quantile(after_silence, 1.0),
    }))
}

/// The value that so large a share does not exceed, rounded to hundredths.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = (values.len().saturating_sub(1)) as f64 * share;
    let value = values.get(at.round() as usize).copied().unwrap_or(0.0);
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_of_what_is_there() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&values, 1.0), 100.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
