//! The parts of the example, each as a process: `orders service`, `orders consumer`,
//! `orders carrier`.

use std::process::ExitCode;

use clap::Parser;
use onceward_orders::part::Part;

/// The worked example: an order service, a fulfilment consumer and a carrier.
#[derive(Debug, Parser)]
#[command(name = "orders", version)]
struct Cli {
    /// The store: sqlite:FILE or postgres://…
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ONCEWARD_STORE",
        hide_env_values = true
    )]
    #[arg(default_value = "sqlite:orders.db")]
    store: String,
    #[command(subcommand)]
    part: Part,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match cli.part.run(&cli.store).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = &error as &(dyn std::error::Error + 'static);
            tracing::error!(error, "the part ended");
            ExitCode::FAILURE
        }
    }
}
