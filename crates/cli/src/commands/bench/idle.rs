//! `onceward bench waiting` and `onceward bench idle`: what the process itself takes.

use std::time::Duration;

use onceward::{Deliver, Delivery, Engine, Failure, Running, Semantics, Start, Subscription};
use onceward_core::store::Store;
use serde_json::json;

use super::ground::{Ground, Scratch};
use super::work::orders;
use super::{IdleArgs, WaitingArgs};
use crate::error::{Code, Error};
use crate::output::Output;

/// How long the engine may fill its window before memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// Never comes to an end.
struct Stuck;

impl Deliver for Stuck {
    async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Failure> {
        std::future::pending().await
    }
}

async fn start<S: Store>(store: &S) -> Result<Running<S>, Error> {
    let subscription = Subscription::new("bench", Semantics::AtLeastOnce)
        .start(Start::Earliest)
        .timeout_ms(86_400_000)
        .deliver(["bench.order"], Stuck);
    let running = Engine::builder(store.clone())
        .subscribe(subscription)
        .start()
        .await;
    running.map_err(|e| Error::new(Code::Engine, "the engine did not start").with_source(e))
}

/// Resident memory with many messages waiting behind a handler that is stuck.
pub(super) async fn waiting<G: Ground>(
    ground: &G,
    output: Output,
    args: WaitingArgs,
) -> Result<(), Error> {
    let scratch = ground.scratch().await?;
    const AT_ONCE: u32 = 1_000;
    let chunk = orders(AT_ONCE, 0);
    for _ in 0..args.messages.div_ceil(AT_ONCE) {
        scratch.append(&chunk).await?;
    }
    let before_bytes = resident_bytes()?;
    let running = start(scratch.store()).await?;
    running.owns_all_lanes().await;
    tokio::time::sleep(SETTLE).await;
    let resident_bytes = resident_bytes()?;
    running.shutdown(Duration::from_millis(200)).await;
    scratch.remove().await?;
    output.json(&json!({
        "messages_waiting": args.messages.div_ceil(AT_ONCE) * AT_ONCE,
        "resident_before_bytes": before_bytes,
        "resident_bytes": resident_bytes,
        "resident_mebibytes": resident_bytes / (1 << 20),
    }))
}

/// Processor time of an engine with nothing to do.
pub(super) async fn idle<G: Ground>(
    ground: &G,
    output: Output,
    args: IdleArgs,
) -> Result<(), Error> {
    let scratch = ground.scratch().await?;
    let running = start(scratch.store()).await?;
    running.owns_all_lanes().await;
    tokio::time::sleep(SETTLE).await;
    let before_seconds = processor_seconds()?;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let used_seconds = processor_seconds()? - before_seconds;
    running.shutdown(Duration::from_secs(5)).await;
    scratch.remove().await?;
    let percent = used_seconds / args.seconds.max(1) as f64 * 100.0;
    output.json(&json!({
        "seconds": args.seconds,
        "processor_seconds": used_seconds,
        "percent_of_a_core": (percent * 100.0).round() / 100.0,
    }))
}

fn of_process(file: &str) -> Result<String, Error> {
    std::fs::read_to_string(format!("/proc/self/{file}")).map_err(|e| {
        let message = "this system does not say what a process takes (no /proc)";
        Error::new(Code::Engine, message).with_source(e)
    })
}

fn unreadable() -> Error {
    Error::new(
        Code::Engine,
        "what the system says of this process cannot be read",
    )
}

/// `VmRSS` of proc(5), in bytes.
fn resident_bytes() -> Result<u64, Error> {
    let status = of_process("status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes = kibibytes.and_then(|text| text.trim().parse::<u64>().ok());
    kibibytes.map(|kib| kib * 1024).ok_or_else(unreadable)
}

/// `utime` and `stime` of proc(5), in seconds; the kernel's unit is a hundredth.
fn processor_seconds() -> Result<f64, Error> {
    let stat = of_process("stat")?;
    // The name in parentheses may hold blanks; fields are counted after it.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) as f64 / 100.0),
        _ => Err(unreadable()),
    }
}
