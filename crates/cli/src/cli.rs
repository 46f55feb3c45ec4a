//! The command line: nouns, verbs and options.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    backlog, bench, broker, demo, doctor, explain, init, migrate, operation, quarantine, replay,
    send, subscription, up,
};

/// Reliable asynchronous messaging: accept once, act once, prove it.
#[derive(Debug, Parser)]
#[command(
    name = "onceward",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Exit status: 0 fine, 1 failed, 2 wrong command line, 3 differences found, \
                        4 schema does not fit, 5 partly done."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// The configuration
    #[arg(long, global = true, value_name = "FILE", env = "ONCEWARD_CONFIG")]
    #[arg(default_value = "onceward.toml")]
    pub config: PathBuf,
    /// The store, instead of the one in the configuration: sqlite:FILE or postgres://…
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ONCEWARD_STORE",
        hide_env_values = true
    )]
    pub store: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Print without colours (as does NO_COLOR)
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the worked example under fire: kill its processes, then count what was lost or doubled
    Demo(demo::DemoArgs),
    /// One process of the demo
    #[command(hide = true)]
    DemoPart(demo::DemoPartArgs),
    /// Write a first onceward.toml that runs as it is
    Init(init::InitArgs),
    /// Bring the store's tables up to date
    Migrate(migrate::MigrateArgs),
    /// Run the daemon: push messages, serve the API
    Up(up::UpArgs),
    /// Send CloudEvents from a file or standard input, one JSON object per line
    Send(send::SendArgs),
    /// Follow one business operation
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Show what waits, per subscription
    Backlog(backlog::BacklogArgs),
    /// Look at messages that cannot go on, and decide what becomes of them
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// Send messages out again: a frozen selection, a canary first, paced, stoppable
    #[command(subcommand)]
    Replay(replay::ReplayCommand),
    /// Look at subscriptions, pause them, try again what waits for a person
    #[command(subcommand)]
    Subscription(subscription::SubscriptionCommand),
    /// Look at the brokers that messages are published to
    #[command(subcommand)]
    Broker(broker::BrokerCommand),
    /// Measure the engine on this machine, beside hand-written work in the same run
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Check everything that onceward needs, and say how to repair it
    Doctor(doctor::DoctorArgs),
    /// Explain an error code
    Explain(explain::ExplainArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// Names that clash, defaults that do not parse: clap looks only at what is used.
    #[test]
    fn every_command_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
