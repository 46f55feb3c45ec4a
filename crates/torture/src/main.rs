//! The program: tortures, or is one of the processes that are tortured.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use onceward_torture::{Options, Part, Trouble, check_kept, run};

/// Kills, freezes and cuts off real processes on a real database, and looks whether every accepted
/// message had its effect once and in order
#[derive(Parser)]
#[command(name = "torture", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Looks at a folder that was kept
    Check {
        /// The folder
        #[arg(long)]
        folder: PathBuf,
        /// Its database, where that is not the one it was
        #[arg(long)]
        store: Option<String>,
    },
    #[command(flatten)]
    Part(Part),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut runtime = match arguments.command {
        Some(Command::Part(_)) => tokio::runtime::Builder::new_multi_thread(),
        // One thread starts all processes, so that they end when it does.
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = match runtime.worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let done = runtime.block_on(async {
        match arguments.command {
            Some(Command::Part(part)) => {
                log();
                part.run().await.map(|()| true)
            }
            Some(Command::Check { folder, store }) => check(&folder, store.as_deref()).await,
            None => torture(&arguments.options).await,
        }
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => failed(&trouble),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("torture: {error}");
    ExitCode::from(2)
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(filter.unwrap_or_else(|_| "warn".into()))
        .init();
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

async fn torture(options: &Options) -> Result<bool, Trouble> {
    let report = run(options).await?;
    let text = if options.json {
        serde_json::to_string(&report)
    } else {
        serde_json::to_string_pretty(&report)
    };
    match text {
        Ok(text) => say(&text),
        Err(error) => return Err(Trouble::new(error.to_string())),
    }
    Ok(report.is_clean())
}

async fn check(folder: &std::path::Path, store: Option<&str>) -> Result<bool, Trouble> {
    let wrong = check_kept(folder, store).await?;
    for finding in &wrong {
        say(&finding.to_string());
    }
    Ok(wrong.is_empty())
}
