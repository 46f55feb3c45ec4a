//! `onceward up`: the daemon. Carries messages to push targets and brokers and takes them in from
//! brokers, serves the API, tidies.
//!
//! ```text
//! check configuration ─▶ open store ─▶ tables fit ─▶ listen ─▶ engine ─▶ ready
//! signal ─▶ not ready ─▶ engine finishes or hands back ─▶ listener closes ─▶ store closes
//! ```

mod intakes;
mod logging;
mod notify;
mod pushes;
mod relays;
mod serve;
mod stop;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use onceward::{Engine, EngineOptions, Running, StartError};
use onceward_core::store::Store;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cli::Global;
use crate::config::Config;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::{Opened, Target, with_store};
use crate::store_url;

use logging::LogFormat;
use stop::Signals;

/// What the listener gets to end when the engine has used all of the grace.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Options of `up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Bring the tables up to date first
    #[arg(long)]
    migrate: bool,
    /// How long to finish what is in flight after a signal; the rest is handed back
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    #[arg(default_value = "20s", env = "ONCEWARD_GRACE")]
    grace: Duration,
    /// How long this process's work stays its own when it stops answering
    #[arg(long, value_name = "DURATION", value_parser = lease, default_value = "15s")]
    lease: Duration,
    /// Form of the log on standard error
    #[arg(long, value_enum, default_value_t, env = "ONCEWARD_LOG_FORMAT")]
    log_format: LogFormat,
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if lease < Duration::from_secs(1) || lease > Duration::from_secs(3_600) {
        return Err("a lease lasts between 1s and 1h".to_owned());
    }
    Ok(lease)
}

impl UpArgs {
    fn engine_options(&self) -> EngineOptions {
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        EngineOptions {
            lease_ms,
            renew_ms: lease_ms / 5,
            description: description(),
            // The daemon has a loop of its own, with what is configured.
            retention: None,
            ..EngineOptions::default()
        }
    }
}

/// What others see of this process in the store.
fn description() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "unknown host",
        host => host,
    };
    format!(
        "{host} pid {} onceward {}",
        std::process::id(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Runs until a signal.
///
/// # Errors
/// When something that is needed to start is not there, and when a second signal cut the end short.
pub async fn run(global: &Global, output: Output, args: &UpArgs) -> Result<(), Error> {
    logging::start(args.log_format, output);
    let signals = Signals::listen()?;
    let config = Config::load(&global.config)?;
    let target = Target::of_config(global, &config)?;
    let store = target.open(args.migrate).await?;
    let ended = with_store!(&store, &target.url, opened => {
        daemon(opened, &config, output, args, signals).await
    });
    store.close().await;
    ended
}

async fn daemon<S: Store>(
    opened: Opened<'_, S>,
    config: &Config,
    output: Output,
    args: &UpArgs,
    mut signals: Signals,
) -> Result<(), Error> {
    if args.migrate {
        opened.migrate().await?;
    }
    opened.require_current().await?;
    let access = serve::access(config)?;
    let mut subscriptions = pushes::subscriptions::<S>(config)?;
    subscriptions.extend(relays::subscriptions::<S>(config)?);
    let intakes = intakes::intakes(config)?;
    let listener = serve::listen(config, &access).await?;
    let stopping = Arc::new(AtomicBool::new(false));
    let engine = start_engine(opened, config, args, subscriptions, intakes).await?;
    let router = serve::router(
        config,
        access,
        opened.store.clone(),
        &engine,
        Arc::clone(&stopping),
    );
    let closing = CancellationToken::new();
    let address = serve::address(&listener)?;
    let server = tokio::spawn(serve::serve(listener, router, closing.clone()));
    let tidying = tokio::spawn(upkeep::run(
        opened.store.clone(),
        config.retention,
        config.cases_ms,
        closing.clone(),
    ));
    if let Err(error) = say_ready(output, opened.url, address) {
        // Whoever started it may not read on.
        tracing::debug!(%error, "nobody reads that it is ready");
    }
    signals.first().await;
    stopping.store(true, Ordering::SeqCst);
    notify::notify("STOPPING=1");
    tracing::info!(grace_ms = args.grace.as_millis(), "stopping");
    let asked = Instant::now();
    let ending = async {
        engine.shutdown(args.grace).await;
        closing.cancel();
        // Both end by themselves once they are told, but for a request that never comes to its end.
        let left = args.grace.saturating_sub(asked.elapsed()).max(CLOSE_WITHIN);
        let _ = tokio::time::timeout(left, async { tokio::join!(server, tidying) }).await;
    };
    tokio::select! {
        () = ending => {
            tracing::info!("stopped");
            Ok(())
        }
        () = signals.second() => {
            let message = "stopped at once by a second signal; what was in flight is taken again";
            Err(Error::new(Code::Engine, message))
        }
    }
}

async fn start_engine<S: Store>(
    opened: Opened<'_, S>,
    config: &Config,
    args: &UpArgs,
    subscriptions: Vec<onceward::Subscription<S>>,
    intakes: Vec<onceward::intake::Intake>,
) -> Result<Running<S>, Error> {
    let mut builder = Engine::builder(opened.store.clone())
        .contract(config.contract.clone())
        .options(args.engine_options());
    for subscription in subscriptions {
        builder = builder.subscribe(subscription);
    }
    for intake in intakes {
        builder = builder.intake(intake);
    }
    builder.start().await.map_err(|error| match error {
        StartError::Store(error) => Error::store(opened.url, &error),
        StartError::StartMissing(name) => {
            let message = format!(
                "subscription {name} is new, and the log holds messages of its types already: set \
                 start = \"earliest\", \"now\" or a time under [subscription.{name}] in {}",
                config.path.display()
            );
            Error::new(Code::Subscription, message)
        }
        other => Error::new(Code::Engine, other.to_string()),
    })
}

/// One line on standard output, so that whoever started this need not guess the port.
fn say_ready(output: Output, url: &str, address: std::net::SocketAddr) -> Result<(), Error> {
    notify::notify("READY=1");
    let store = store_url::redact(url);
    tracing::info!(%address, store, "ready");
    if output.is_json() {
        return output.json(&json!({
            "event": "ready",
            "address": address,
            "url": format!("http://{address}"),
            "pid": std::process::id(),
        }));
    }
    output.line(&format!("ready on http://{address}"))
}
