//! Each part of the example as a process of its own: says where it listens, works until it is told
//! to stop.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use onceward::core::store::{Schema, StoreError};
use onceward::postgres::{Options, Postgres};
use onceward::sqlite::Sqlite;
use onceward::{EngineOptions, StartError};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::between::{BROKER_URL_VARIABLE, Between, BetweenError, BrokerKind, Side};
use crate::carrier::{
    self, CarrierAddress, CarrierClient, CarrierOptions, Moods, Record, RecordError,
};
use crate::fulfilment::{Broken, Fulfilment, engine, engine_of};
use crate::in_hand::InHand;
use crate::service;
use crate::shop::ShopBooks;

/// How long a part that was told to stop may take to finish what is in hand.
pub const GRACE: Duration = Duration::from_secs(5);

/// A few processes side by side have to share what a server allows by default.
pub const CONNECTIONS: Options = Options {
    effect_connections: 8,
    lease_connections: 2,
    read_connections: 3,
    acquire_timeout_ms: 10_000,
};

/// A part of the example.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Part {
    /// The order service: POST /orders, GET /orders/{order_id}
    Service(ServiceArgs),
    /// The consumer: books accepted orders with the carrier, keeps the order book
    Consumer(ConsumerArgs),
    /// The carrier: POST /bookings, GET /bookings/{operation}
    Carrier(CarrierArgs),
}

/// Options of every part.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommonArgs {
    /// Show the number of unfinished pieces of work in this file
    #[arg(long, value_name = "FILE")]
    pub in_hand: Option<PathBuf>,
    /// Stop when standard input ends, that is, when whoever started this is gone
    #[arg(long)]
    pub while_stdin: bool,
}

/// Options of the order service.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceArgs {
    /// Where to listen; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// What all parts have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of the consumer.
#[derive(Clone, Debug, clap::Args)]
pub struct ConsumerArgs {
    /// Where the carrier is
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7071")]
    pub carrier: String,
    /// A file that says where the carrier is
    #[arg(long, value_name = "FILE", conflicts_with = "carrier")]
    pub carrier_file: Option<PathBuf>,
    /// How long to wait for the carrier
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub carrier_timeout_ms: u64,
    /// How long this process may be silent before others take over
    #[arg(long, value_name = "MS", default_value_t = 15_000)]
    pub lease_ms: u64,
    /// How often it says that it is there
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    pub renew_ms: u64,
    /// Be one service of two, which this broker is between; its address is in
    /// ONCEWARD_DEMO_BROKER_URL
    #[arg(long, value_name = "BROKER", requires = "side")]
    pub between: Option<BrokerKind>,
    /// Which of the two
    #[arg(long, value_name = "SIDE", requires = "between")]
    pub side: Option<Side>,
    /// What names at the broker begin with
    #[arg(long, value_name = "NAME", default_value = "onceward-demo")]
    pub between_prefix: String,
    /// Do not ask the carrier what became of a call whose answer did not come
    #[arg(long)]
    pub without_probe: bool,
    /// Break it, to see that it is noticed
    #[arg(long, hide = true)]
    pub broken: Option<Broken>,
    /// What all parts have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of the carrier.
#[derive(Clone, Debug, clap::Args)]
pub struct CarrierArgs {
    /// Where to listen; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:7071")]
    pub listen: SocketAddr,
    /// Its record
    #[arg(long, value_name = "FILE", default_value = "carrier.jsonl")]
    pub record: PathBuf,
    /// Write the address to this file
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
    /// What its moods follow from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Longest silence
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    pub stall_ms: u64,
    /// Answer no first request in time: half of them are booked, half are not
    #[arg(long)]
    pub silent: bool,
    /// Book again each time it is asked, to see that it is noticed
    #[arg(long, hide = true)]
    pub forgetful: bool,
    /// What all parts have.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// What a part says on standard output, as one line of JSON, once it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where it listens; a consumer does not.
    pub address: Option<SocketAddr>,
}

/// Why a part ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// A file, a socket or a signal.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The business's tables.
    #[error("could not make the shop's tables")]
    Tables(#[source] sqlx::Error),
    /// The engine.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The broker between the services.
    #[error(transparent)]
    Between(#[from] BetweenError),
    /// The carrier's record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The HTTP client.
    #[error("could not make an HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Names what was attempted.
fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> PartError {
    let what = what.into();
    |source| PartError::Io { what, source }
}

impl Part {
    /// Works until SIGTERM, SIGINT or, if wanted, the end of standard input.
    ///
    /// # Errors
    /// When it cannot start, or its listener fails.
    pub async fn run(self, store_url: &str) -> Result<(), PartError> {
        // Said once per process; a second time it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        match self {
            Self::Carrier(args) => run_carrier(args).await,
            part if is_postgres(store_url) => {
                let store = Postgres::connect_with(store_url, CONNECTIONS).await?;
                part.run_on(store).await
            }
            part => part.run_on(Sqlite::connect(store_url).await?).await,
        }
    }

    async fn run_on<S: ShopBooks>(self, store: S) -> Result<(), PartError> {
        match self {
            Self::Service(args) => run_service(args, store).await,
            Self::Consumer(args) => run_consumer(args, store).await,
            Self::Carrier(args) => run_carrier(args).await,
        }
    }
}

/// Whether an address names a PostgreSQL database.
#[must_use]
pub fn is_postgres(store_url: &str) -> bool {
    store_url.starts_with("postgres://") || store_url.starts_with("postgresql://")
}

/// Makes all tables that are missing.
///
/// # Errors
/// When the store cannot be written.
pub async fn prepare<S: ShopBooks>(store: &S) -> Result<(), PartError> {
    Schema::migrate(store).await?;
    store.create_tables().await.map_err(PartError::Tables)
}

async fn run_service<S: ShopBooks>(args: ServiceArgs, store: S) -> Result<(), PartError> {
    prepare(&store).await?;
    let in_hand = in_hand(&args.common)?;
    let (listener, address) = listen(args.listen).await?;
    ready(Some(address))?;
    serve(listener, service::router(store, in_hand), &args.common).await
}

async fn run_consumer<S: ShopBooks>(args: ConsumerArgs, store: S) -> Result<(), PartError> {
    let address = match args.carrier_file {
        Some(path) => CarrierAddress::InFile(path),
        None => CarrierAddress::Fixed(args.carrier),
    };
    let fulfilment = Fulfilment {
        carrier: CarrierClient::new(address, args.carrier_timeout_ms)?,
        in_hand: in_hand(&args.common)?,
        has_probe: !args.without_probe,
        broken: args.broken,
    };
    let options = EngineOptions {
        lease_ms: args.lease_ms,
        renew_ms: args.renew_ms,
        description: format!("orders consumer, process {}", std::process::id()),
        ..EngineOptions::default()
    };
    let engine = match (args.between, args.side) {
        (Some(kind), Some(side)) => {
            let url = std::env::var(BROKER_URL_VARIABLE).unwrap_or_default();
            let prefix = args.between_prefix;
            let between = Between { kind, url, prefix };
            engine_of(store, side, &between, fulfilment, options)?
        }
        _ => engine(store, fulfilment, options),
    };
    let running = engine.start().await?;
    ready(None)?;
    until_told(&args.common).await?;
    running.shutdown(GRACE).await;
    Ok(())
}

async fn run_carrier(args: CarrierArgs) -> Result<(), PartError> {
    let record = Record::open(&args.record, args.forgetful)?;
    let moods = match args.silent {
        true => Moods::silent(args.seed, args.stall_ms),
        false => Moods::new(args.seed, args.stall_ms),
    };
    let router = carrier::router(CarrierOptions {
        record,
        moods,
        in_hand: in_hand(&args.common)?,
    });
    let (listener, address) = listen(args.listen).await?;
    if let Some(path) = &args.address_file {
        let what = format!("could not write {}", path.display());
        write_whole(path, &address.to_string()).map_err(doing(what))?;
    }
    ready(Some(address))?;
    serve(listener, router, &args.common).await
}

/// Whoever reads the file sees the old text or the new one.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(beside, path)
}

/// Shows what is unfinished where the options say.
///
/// # Errors
/// When the file cannot be written.
pub fn in_hand(common: &CommonArgs) -> Result<InHand, PartError> {
    match &common.in_hand {
        None => Ok(InHand::default()),
        Some(path) => {
            let what = format!("could not write {}", path.display());
            InHand::shown_in(path).map_err(doing(what))
        }
    }
}

/// Opens a listener; returns where it is.
///
/// # Errors
/// When the address cannot be had.
pub async fn listen(at: SocketAddr) -> Result<(TcpListener, SocketAddr), PartError> {
    let what = || format!("could not listen at {at}");
    let listener = TcpListener::bind(at).await.map_err(doing(what()))?;
    let address = listener.local_addr().map_err(doing(what()))?;
    Ok((listener, address))
}

/// Says that a part works now, and where it listens.
///
/// # Errors
/// When standard output is gone.
pub fn ready(address: Option<SocketAddr>) -> Result<(), PartError> {
    let what = "could not say that the part is ready";
    let text = serde_json::to_string(&Ready { address })
        .map_err(|error| doing(what)(io::Error::other(error)))?;
    let mut out = io::stdout().lock();
    let said = writeln!(out, "{text}").and_then(|()| out.flush());
    said.map_err(doing(what))
}

/// Serves HTTP until the part is told to stop.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    common: &CommonArgs,
) -> Result<(), PartError> {
    let (told, is_told) = tokio::sync::oneshot::channel();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async {
        // An error means that nobody is left to tell: stop as well.
        let _ = is_told.await;
    });
    let serving = tokio::spawn(async move { serving.await });
    until_told(common).await?;
    let _ = told.send(());
    // A client that keeps its connection open does not keep the part alive.
    match tokio::time::timeout(GRACE, serving).await {
        Ok(Ok(ended)) => ended.map_err(doing("the listener failed")),
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Waits until the part is told to stop: SIGTERM, SIGINT or, if wanted, the end of standard input.
///
/// # Errors
/// When signals cannot be listened to.
pub async fn until_told(common: &CommonArgs) -> Result<(), PartError> {
    let what = "could not listen to signals";
    let mut terminate = signal(SignalKind::terminate()).map_err(doing(what))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(doing(what))?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = stdin_ends(), if common.while_stdin => {}
    }
    Ok(())
}

async fn stdin_ends() {
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    // A thread of its own: reading standard input cannot be cancelled.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = gone.send(());
    });
    let _ = is_gone.await;
}
