//! `onceward bench effects`.

use std::time::{Duration, Instant};

use onceward::{Context, Engine, EngineOptions, Failure, Semantics, Start, Subscription};
use onceward_core::store::{BacklogQuery, Status};
use serde_json::{Map, Value, json};

use super::EffectsArgs;
use super::ground::{Counts, Ground, Scratch};
use super::work::{Order, orders};
use crate::error::{Code, Error};
use crate::output::{Output, table};

/// Rows a statement in the first floor, messages a transaction in the second.
const FLOOR_MANY: usize = 500;
const FLOOR_ONES: usize = 50;
/// Messages appended in one transaction before a run.
pub(super) const APPEND_ROWS: usize = 1_000;
/// A run that takes longer has failed.
const RUN_WITHIN: Duration = Duration::from_secs(600);

/// How handlers run.
#[derive(Clone, Copy)]
enum Way {
    Coalesced,
    Single,
    Batch,
}

/// Measures and reports.
pub(super) async fn run<G: Ground>(
    ground: &G,
    output: Output,
    args: &EffectsArgs,
) -> Result<(), Error> {
    let mut figures = Map::new();
    figures.insert("store".into(), json!(ground.describe().await?));
    figures.insert("messages".into(), json!(args.messages));
    figures.insert("concurrency".into(), json!(args.concurrency));
    figures.insert("batch_max".into(), json!(args.batch_max));
    for (name, many) in [("floor_unnest_500", true), ("floor_transaction_50", false)] {
        if !is_wanted(args, name) {
            continue;
        }
        let rate = floor::<G>(ground, args, many).await?;
        figures.insert(format!("{name}_per_second"), json!(rate.round()));
    }
    let runs = [
        ("coalesced", Way::Coalesced, 0),
        ("coalesced_failing_1_percent", Way::Coalesced, 1),
        ("coalesced_failing_5_percent", Way::Coalesced, 5),
        ("single", Way::Single, 0),
        ("batch", Way::Batch, 0),
    ];
    for (name, way, failing) in runs {
        if !is_wanted(args, name) {
            continue;
        }
        let (rate, counts) = engine::<G>(ground, args, way, failing).await?;
        figures.insert(format!("{name}_per_second"), json!(rate.round()));
        if name == "coalesced"
            && let Some(Value::Object(counts)) = counts
        {
            figures.extend(counts);
        }
    }
    add_ratios(&mut figures);
    report(output, &figures)
}

fn is_wanted(args: &EffectsArgs, name: &str) -> bool {
    args.only
        .as_ref()
        .is_none_or(|only| name.starts_with(only.as_str()))
}

fn add_ratios(figures: &mut Map<String, Value>) {
    let rate = |figures: &Map<String, Value>, name: &str| {
        figures.get(name).and_then(Value::as_f64).unwrap_or(0.0)
    };
    let pairs = [
        (
            "coalesced_per_floor",
            "coalesced_per_second",
            "floor_transaction_50_per_second",
        ),
        (
            "batch_per_floor",
            "batch_per_second",
            "floor_unnest_500_per_second",
        ),
        (
            "failing_1_percent_ratio",
            "coalesced_failing_1_percent_per_second",
            "coalesced_per_second",
        ),
        (
            "failing_5_percent_ratio",
            "coalesced_failing_5_percent_per_second",
            "coalesced_per_second",
        ),
    ];
    for (name, above, below) in pairs {
        if !figures.contains_key(above) || !figures.contains_key(below) {
            continue;
        }
        let ratio = rate(figures, above) / rate(figures, below).max(1.0);
        figures.insert(name.into(), json!((ratio * 100.0).round() / 100.0));
    }
}

fn report(output: Output, figures: &Map<String, Value>) -> Result<(), Error> {
    if output.is_json() {
        return output.json(figures);
    }
    let mut rows = table(&["figure", "value"]);
    for (name, value) in figures {
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        rows.add_row([name.replace('_', " "), shown]);
    }
    output.table(&rows)
}

/// The same inserts by hand, on as many connections, without a log to read.
async fn floor<G: Ground>(ground: &G, args: &EffectsArgs, many: bool) -> Result<f64, Error> {
    let scratch = ground.scratch().await?;
    let orders = orders(args.messages, 0);
    let chunk = if many { FLOOR_MANY } else { FLOOR_ONES };
    let chunks: Vec<&[Order]> = orders.chunks(chunk).collect();
    let started = Instant::now();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = |_: u16| async {
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(chunk) = chunks.get(at) else {
                return Ok(());
            };
            if many {
                scratch.floor_many(chunk).await?;
            } else {
                scratch.floor_ones(chunk).await?;
            }
        }
    };
    let workers = (0..args.concurrency).map(work);
    let ended: Result<Vec<()>, Error> = futures_util::future::try_join_all(workers).await;
    ended?;
    let rate = f64::from(args.messages) / started.elapsed().as_secs_f64();
    scratch.remove().await?;
    Ok(rate)
}

/// Appends, then lets the engine work all of it off. The rate is of working off; the counts are
/// of everything from append to effect.
async fn engine<G: Ground>(
    ground: &G,
    args: &EffectsArgs,
    way: Way,
    failing: u32,
) -> Result<(f64, Option<Value>), Error> {
    let scratch = ground.scratch().await?;
    let before = scratch.counts().await?;
    let orders = orders(args.messages, failing);
    for chunk in orders.chunks(APPEND_ROWS) {
        scratch.append(chunk).await?;
    }
    let wanted = orders.iter().filter(|order| !order.fails).count() as u64;
    let started = Instant::now();
    let running = Engine::builder(scratch.store().clone())
        .options(EngineOptions::default())
        .subscribe(subscription::<G::Scratch>(args, way))
        .start()
        .await
        .map_err(|e| Error::new(Code::Engine, "the engine did not start").with_source(e))?;
    let mut look = tokio::time::interval(Duration::from_millis(25));
    // Our own questions are commits too.
    let mut asked = 1;
    while scratch.effects(wanted).await? < wanted || {
        asked += 1;
        waits(scratch.store()).await?
    } {
        look.tick().await;
        asked += 1;
        if started.elapsed() > RUN_WITHIN {
            let message = format!("a run did not end within {} s", RUN_WITHIN.as_secs());
            return Err(Error::new(Code::Engine, message));
        }
    }
    let rate = f64::from(args.messages) / started.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(30)).await;
    let counts: Option<(Counts, Counts)> = scratch.counts().await?.zip(before);
    let counts = counts.map(|(mut after, before)| {
        after.commits -= asked;
        after.per_message(before, args.messages)
    });
    scratch.remove().await?;
    Ok((rate, counts))
}

/// Looked at only when all effects are there: with failures, some messages may still be on their
/// way to quarantine.
async fn waits<S: Status>(store: &S) -> Result<bool, Error> {
    let query = BacklogQuery {
        subscription: "bench",
        count_max: 1,
        before: None,
    };
    let backlog = store.backlog(query).await;
    let backlog = backlog
        .map_err(|e| Error::new(Code::StoreFailed, "cannot ask the store").with_source(e))?;
    Ok(backlog.deferred != onceward_core::store::DeferredCounts::default())
}

fn subscription<C: Scratch>(args: &EffectsArgs, way: Way) -> Subscription<C::Store> {
    let subscription = Subscription::new("bench", Semantics::EffectOnce)
        .start(Start::Earliest)
        .concurrency(args.concurrency);
    match way {
        Way::Coalesced => subscription
            .batch_max(args.batch_max)
            .on::<Order, _>(C::one()),
        Way::Single => subscription
            .batch_max(1)
            .concurrency(16)
            .on::<Order, _>(C::one()),
        Way::Batch => subscription.batch_max(500).on_batch::<Order, _>(C::many()),
    }
}

/// What a message that is to fail does, before it touches anything.
pub(super) fn fail_if_asked<S: onceward_core::store::Store>(
    _: &Context<S>,
    order: &Order,
) -> Result<(), Failure> {
    if order.fails {
        return Err(Failure::permanent("bench", "fails on purpose"));
    }
    if order.waits {
        return Err(Failure::transient("bench", "waits on purpose"));
    }
    Ok(())
}
