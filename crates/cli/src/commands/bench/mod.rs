//! `onceward bench`: what the engine does on this machine and this server, beside hand-written
//! work in the same run.
//!
//! Everything happens in a database (or a file) made for the bench and removed after it. Figures
//! are ratios within one run: machines differ, and so does the same machine from hour to hour.

mod broker;
mod cases;
mod drain;
mod effects;
mod ground;
mod held;
mod idle;
mod postgres;
mod sqlite;
mod work;

use clap::{Args, Subcommand};
use onceward_orders::between::BrokerKind;

use crate::cli::Global;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::Target;
use crate::store_url::StoreKind;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Effects per second: coalesced, alone, in batches, with failures, beside two floors
    Effects(EffectsArgs),
    /// Effects per second beside keys that wait, and without them
    Held(HeldArgs),
    /// Deliveries per second to a receiver that does nothing, and to one that takes its time
    Drain(DrainArgs),
    /// From the commit of a message to the start of its handler, with nothing else to do
    Latency(LatencyArgs),
    /// Messages per second from the log to a broker, beside the adapter alone
    Relay(RelayArgs),
    /// Effects per second of messages from a broker, beside those from the log
    Consume(ConsumeArgs),
    /// Resident memory while many messages wait and the handler is stuck
    Waiting(WaitingArgs),
    /// Processor time of an engine with nothing to do
    Idle(IdleArgs),
    /// How long operators' questions take while many cases are there
    Cases(CasesArgs),
}

/// Options of `bench effects`.
#[derive(Clone, Debug, Args)]
pub struct EffectsArgs {
    /// Messages in each run
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub messages: u32,
    /// Batches in work at once, and connections of the floors
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub concurrency: u16,
    /// Most messages that commit together
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub batch_max: u32,
    /// Only runs whose name begins with this, like `batch` or `floor`
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
}

/// Options of `bench held`.
#[derive(Clone, Copy, Debug, Args)]
pub struct HeldArgs {
    /// Healthy messages in each run
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    pub messages: u32,
    /// Keys that wait: half behind a case, half for a retry, each with a message behind
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub keys: u32,
    /// Batches in work at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub concurrency: u16,
}

/// Options of `bench drain`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DrainArgs {
    /// Messages in each run
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub messages: u32,
    /// Deliveries under way at once, at most
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub concurrency: u16,
    /// How long the other receiver takes for one; 0 leaves it out
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5)]
    pub takes_ms: u64,
}

/// Options of `bench latency`.
#[derive(Clone, Copy, Debug, Args)]
pub struct LatencyArgs {
    /// Messages that come one by one
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub messages: u32,
    /// How many of them come in a second
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub per_second: u32,
    /// Messages that come after three seconds of silence each
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub silences: u32,
}

/// Options of `bench relay`.
#[derive(Clone, Copy, Debug, Args)]
pub struct RelayArgs {
    /// Which broker; its server is started here or named in ONCEWARD_DEMO_BROKER_URL
    #[arg(long, value_name = "BROKER")]
    pub broker: BrokerKind,
    /// Messages in each run
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub messages: u32,
    /// Messages under way at once, at most
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub concurrency: u16,
}

/// Options of `bench consume`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ConsumeArgs {
    /// Which broker; its server is started here or named in ONCEWARD_DEMO_BROKER_URL
    #[arg(long, value_name = "BROKER")]
    pub broker: BrokerKind,
    /// Messages in each run
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub messages: u32,
    /// Batches in work at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub concurrency: u16,
    /// Messages that are taken in by one transaction
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        conflicts_with = "sweep"
    )]
    pub prefetch: u32,
    /// Compare several, and recommend one
    #[arg(long)]
    pub sweep: bool,
}

/// Options of `bench waiting`.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitingArgs {
    /// Messages that wait
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub messages: u32,
}

/// Options of `bench idle`.
#[derive(Clone, Copy, Debug, Args)]
pub struct IdleArgs {
    /// How long to look on
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub seconds: u64,
}

/// Options of `bench cases`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CasesArgs {
    /// Cases
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub cases: u32,
}

/// Measures.
///
/// # Errors
/// When the store cannot be reached or refuses, or a run does not end.
pub async fn run(global: &Global, output: Output, command: &BenchCommand) -> Result<(), Error> {
    let target = match &global.store {
        Some(_) => Target::of(global)?,
        None => {
            let message = "name the server to measure on with --store (a scratch database is made \
                           there and removed again), or --store sqlite:FILE for a scratch file \
                           beside that one";
            return Err(Error::new(Code::StoreUrl, message));
        }
    };
    match target.kind() {
        StoreKind::Postgres => {
            measure(&postgres::Server::at(&target.url).await?, output, command).await
        }
        StoreKind::Sqlite => measure(&sqlite::Folder::beside(&target.url)?, output, command).await,
    }
}

async fn measure<G: ground::Ground>(
    ground: &G,
    output: Output,
    command: &BenchCommand,
) -> Result<(), Error> {
    match command {
        BenchCommand::Effects(args) => effects::run(ground, output, args).await,
        BenchCommand::Held(args) => held::held(ground, output, *args).await,
        BenchCommand::Drain(args) => drain::drain(ground, output, *args).await,
        BenchCommand::Latency(args) => drain::latency(ground, output, *args).await,
        BenchCommand::Relay(args) => broker::relay(ground, output, *args).await,
        BenchCommand::Consume(args) => broker::consume(ground, output, *args).await,
        BenchCommand::Waiting(args) => idle::waiting(ground, output, *args).await,
        BenchCommand::Idle(args) => idle::idle(ground, output, *args).await,
        BenchCommand::Cases(args) => cases::cases(ground, output, *args).await,
    }
}
