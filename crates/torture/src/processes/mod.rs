//! What runs in processes of its own: this program again, told what to be.

pub(crate) mod carrier;
pub(crate) mod handlers;
pub(crate) mod producer;
pub(crate) mod worker;

use std::path::PathBuf;

use onceward::core::store::StoreError;
use onceward::postgres::{Options, Postgres};
use onceward::sqlite::Sqlite;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::points::DieAt;
use crate::trouble::{Trouble, while_doing};

/// A process of the torture.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Part {
    /// Runs the engine
    Worker(WorkerArgs),
    /// Produces orders
    Producer(ProducerArgs),
    /// Books what it is asked to, and keeps a record
    Carrier(CarrierArgs),
}

/// A worker.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// The database
    #[arg(long)]
    pub store: String,
    /// Folder of all records
    #[arg(long)]
    pub folder: PathBuf,
    /// Where it dies
    #[arg(long)]
    pub die_at: Option<DieAt>,
    /// How it is broken
    #[arg(long)]
    pub broken: Option<Broken>,
    /// Lease in milliseconds
    #[arg(long, default_value_t = LEASE_MS)]
    pub lease_ms: u64,
    /// Connections for effects
    #[arg(long, default_value_t = 8)]
    pub connections: u32,
}

/// A worker that is broken on purpose, to see that the checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// Effects are written past the effect transaction (PostgreSQL).
    OutsideTransaction,
    /// Effects have no ledger.
    NoLedger,
    /// What is unclear is done again without asking.
    Blind,
    /// Each twelfth effect is reported as written and is not.
    Losing,
}

impl Broken {
    /// The name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutsideTransaction => "outside-transaction",
            Self::NoLedger => "no-ledger",
            Self::Blind => "blind",
            Self::Losing => "losing",
        }
    }
}

/// A producer.
#[derive(Clone, Debug, clap::Args)]
pub struct ProducerArgs {
    /// The database
    #[arg(long)]
    pub store: String,
    /// Folder of all records
    #[arg(long)]
    pub folder: PathBuf,
    /// What all its messages' ids begin with
    #[arg(long)]
    pub epoch: String,
    /// Its random numbers follow from this
    #[arg(long)]
    pub seed: u64,
    /// Mean pause between transactions, in milliseconds
    #[arg(long, default_value_t = 90)]
    pub pause_ms: u64,
}

/// The carrier.
#[derive(Clone, Debug, clap::Args)]
pub struct CarrierArgs {
    /// Folder of all records
    #[arg(long)]
    pub folder: PathBuf,
    /// Its moods follow from this
    #[arg(long)]
    pub seed: u64,
}

/// Lease of workers, in milliseconds.
pub const LEASE_MS: u64 = 2_500;

/// Names of files in the folder.
pub(crate) mod files {
    pub(crate) const ACKNOWLEDGED: &str = "acknowledged.log";
    pub(crate) const BOOKINGS: &str = "carrier.jsonl";
    pub(crate) const CARRIER_PORT: &str = "carrier.port";
    pub(crate) const HANDED: &str = "handed.log";
    pub(crate) const CLAIMED: &str = "claimed.log";
}

impl Part {
    /// Works until it is killed or told to stop. Ends with whoever started it.
    ///
    /// # Errors
    /// When it cannot work.
    pub async fn run(self) -> Result<(), Trouble> {
        let ends = set_parent_process_death_signal(Some(Signal::KILL));
        ends.map_err(while_doing("tie this process to its parent"))?;
        match self {
            Self::Worker(args) if is_postgres(&args.store) => {
                let store = connect_postgres(&args.store, args.connections).await;
                worker::run(store.map_err(while_doing("connect"))?, args).await
            }
            Self::Worker(args) => {
                let store = Sqlite::connect(&args.store).await;
                worker::run(store.map_err(while_doing("open the file"))?, args).await
            }
            Self::Producer(args) if is_postgres(&args.store) => {
                let store = connect_postgres(&args.store, 1).await;
                let store = store.map_err(while_doing("connect"))?;
                producer::run(producer::OnPostgres(store), args).await
            }
            Self::Producer(args) => {
                let store = Sqlite::connect(&args.store).await;
                let store = store.map_err(while_doing("open the file"))?;
                producer::run(producer::OnSqlite(store), args).await
            }
            Self::Carrier(args) => carrier::run(&args).await,
        }
    }
}

/// Whether an address names a PostgreSQL database.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

async fn connect_postgres(url: &str, effect_connections: u32) -> Result<Postgres, StoreError> {
    let options = Options {
        effect_connections,
        lease_connections: 2,
        read_connections: 3,
        acquire_timeout_ms: 3_000,
    };
    Postgres::connect_with(url, options).await
}
