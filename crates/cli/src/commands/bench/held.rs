//! `onceward bench held`: what keys that wait cost the others.

use std::time::{Duration, Instant};

use onceward::{
    Engine, EngineOptions, OnPoison, RetryPolicy, Running, Semantics, Start, Subscription,
};
use onceward_core::store::{Backlog, BacklogQuery, Status};
use serde_json::json;

use super::HeldArgs;
use super::effects::APPEND_ROWS;
use super::ground::{Ground, Scratch};
use super::work::{Order, orders};
use crate::error::{Code, Error};
use crate::output::Output;

/// Each way is measured so often, in turn; the best rate counts, as the others had less of the
/// machine.
const ROUNDS: u32 = 3;
/// What takes longer has failed.
const WITHIN: Duration = Duration::from_secs(600);
const HOUR_MS: u64 = 3_600_000;

/// Measures and reports.
pub(super) async fn held<G: Ground>(
    ground: &G,
    output: Output,
    args: HeldArgs,
) -> Result<(), Error> {
    let (mut alone, mut beside) = (0.0_f64, 0.0_f64);
    for _ in 0..ROUNDS {
        alone = alone.max(round(ground, args, 0).await?);
        beside = beside.max(round(ground, args, args.keys).await?);
    }
    let ratio = beside / alone.max(1.0);
    output.json(&json!({
        "store": ground.describe().await?,
        "messages": args.messages,
        "keys_waiting": args.keys,
        "alone_per_second": alone.round(),
        "beside_waiting_keys_per_second": beside.round(),
        "ratio": (ratio * 100.0).round() / 100.0,
    }))
}

/// The rate of healthy messages, each with a key of its own, beside so many keys that wait, until
/// the last of them is done. That the engine has to find out which keys wait is part of it.
async fn round<G: Ground>(ground: &G, args: HeldArgs, keys: u32) -> Result<f64, Error> {
    let scratch = ground.scratch().await?;
    append(&scratch, &(0..keys).flat_map(waiting).collect::<Vec<_>>()).await?;
    let running = start(&scratch, args).await?;
    let cases = u64::from(keys / 2);
    until(async || {
        let found = backlog(scratch.store()).await?;
        let deferred = found.deferred.retry + found.deferred.held;
        Ok(found.quarantined == cases && deferred == 2 * u64::from(keys) - cases)
    })
    .await?;
    running.shutdown(Duration::from_secs(30)).await;
    append(&scratch, &orders(args.messages, 0)).await?;
    let started = Instant::now();
    let running = start(&scratch, args).await?;
    let wanted = u64::from(args.messages);
    until(async || Ok(scratch.effects(wanted).await? >= wanted)).await?;
    let rate = f64::from(args.messages) / started.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(30)).await;
    scratch.remove().await?;
    Ok(rate)
}

/// Two messages of a key: of every second key the first is a case that holds it, of the others one
/// that is to be tried again long after the bench.
fn waiting(number: u32) -> [Order; 2] {
    let order = format!("waiting-{number:08}");
    [true, false].map(|is_first| Order {
        order: order.clone(),
        operation: format!("{order}-{is_first}"),
        address: "1 Long Acre".to_owned(),
        fails: is_first && number % 2 == 1,
        waits: is_first && number.is_multiple_of(2),
    })
}

async fn append<C: Scratch>(scratch: &C, orders: &[Order]) -> Result<(), Error> {
    for chunk in orders.chunks(APPEND_ROWS) {
        scratch.append(chunk).await?;
    }
    Ok(())
}

async fn start<C: Scratch>(scratch: &C, args: HeldArgs) -> Result<Running<C::Store>, Error> {
    let retry = RetryPolicy {
        base_ms: HOUR_MS,
        cap_ms: 24 * HOUR_MS,
        ..RetryPolicy::default()
    };
    let subscription = Subscription::new("bench", Semantics::EffectOnce)
        .start(Start::Earliest)
        .concurrency(args.concurrency)
        .on_poison(OnPoison::HoldKey)
        .retry(retry)
        .on::<Order, _>(C::one());
    Engine::builder(scratch.store().clone())
        .options(EngineOptions::default())
        .subscribe(subscription)
        .start()
        .await
        .map_err(|e| Error::new(Code::Engine, "the engine did not start").with_source(e))
}

async fn backlog<S: Status>(store: &S) -> Result<Backlog, Error> {
    let query = BacklogQuery {
        subscription: "bench",
        count_max: 1,
        before: None,
    };
    let found = store.backlog(query).await;
    found.map_err(|e| Error::new(Code::StoreFailed, "cannot ask the store").with_source(e))
}

async fn until(is_so: impl AsyncFn() -> Result<bool, Error>) -> Result<(), Error> {
    let started = Instant::now();
    let mut look = tokio::time::interval(Duration::from_millis(25));
    while !is_so().await? {
        look.tick().await;
        if started.elapsed() > WITHIN {
            let message = format!("a run did not end within {} s", WITHIN.as_secs());
            return Err(Error::new(Code::Engine, message));
        }
    }
    Ok(())
}
