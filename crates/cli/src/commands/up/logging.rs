//! The log, on standard error.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::output::Output;

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging; `ONCEWARD_LOG` chooses what, as in `info,onceward=debug`.
pub(super) fn start(format: LogFormat, output: Output) {
    let filter = EnvFilter::try_from_env("ONCEWARD_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(filter);
    // Something in the same process may log already; then that is where this goes.
    let _ = match format {
        LogFormat::Text => {
            let ansi = output.has_color() && std::io::stderr().is_terminal();
            builder.with_ansi(ansi).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
