//! The `onceward` command as a library, so that it can be tested.
//!
//! | module | what is in it |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`commands`] | one module per noun |
//! | [`config`] | `onceward.toml` |
//! | [`error`] | what a command can end with |
//! | [`output`] | data on standard output, talk on standard error |
//! | [`store`] | opening the store that is named |

mod brokers;
pub mod cli;
pub mod commands;
pub mod config;
pub mod error;
pub mod output;
pub mod store;
pub mod store_url;
pub mod target;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command, Global};
use commands::{
    backlog, bench, broker, demo, doctor, explain, init, migrate, operation, quarantine, replay,
    send, subscription, up,
};
use error::{Code, EXIT_USAGE, Error};
use output::Output;
use store::{Target, with_store};

/// Runs the command line and says how it ended. Arguments begin with the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to be told when this fails.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    let output = Output::new(cli.global.json, cli.global.no_color);
    warn_of_password(&args, output);
    match run_command(&cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output.failure(&error);
            ExitCode::from(error.exit())
        }
    }
}

fn run_command(cli: &Cli, output: Output) -> Result<(), Error> {
    let global = &cli.global;
    match &cli.command {
        Command::Init(args) => return init::run(global, output, args),
        Command::Explain(args) => return explain::run(output, args),
        Command::Migrate(args) if args.is_print() => {
            return migrate::print_grants(output, &Target::of(global)?);
        }
        _ => {}
    }
    // The process's one choice of cryptography; a second call would only say that it is made.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(Code::Engine, "could not start the runtime").with_source(e))?;
    let ended = runtime.block_on(run_async(global, output, &cli.command));
    // Reading standard input may never return.
    runtime.shutdown_background();
    ended
}

async fn run_async(global: &Global, output: Output, command: &Command) -> Result<(), Error> {
    match command {
        Command::Demo(args) => demo::run(global, output, args).await,
        Command::Bench(command) => bench::run(global, output, command).await,
        Command::Broker(command) => broker::run(global, output, command).await,
        Command::DemoPart(args) => demo::run_part(global, args).await,
        Command::Doctor(args) => doctor::run(global, output, args).await,
        Command::Up(args) => up::run(global, output, args).await,
        Command::Send(args) => send::run(global, output, args).await,
        Command::Migrate(args) => {
            let target = Target::of(global)?;
            let store = target.open(true).await?;
            let ended = with_store!(&store, &target.url, opened => migrate::run(opened, output, args).await);
            store.close().await;
            ended
        }
        _ => on_store(global, output, command).await,
    }
}

/// Commands that ask a store which must be there and fit.
async fn on_store(global: &Global, output: Output, command: &Command) -> Result<(), Error> {
    let target = Target::of(global)?;
    let store = target.open(false).await?;
    let ended = with_store!(&store, &target.url, opened => async {
        opened.require_current().await?;
        match command {
            Command::Operation(command) => operation::run(opened, output, command).await,
            Command::Backlog(args) => backlog::run(opened, output, global, args).await,
            Command::Quarantine(command) => quarantine::run(opened, output, global, command).await,
            Command::Replay(command) => replay::run(opened, output, command).await,
            Command::Subscription(command) => subscription::run(opened, output, command).await,
            Command::Init(_)
            | Command::Broker(_)
            | Command::Demo(_)
            | Command::DemoPart(_)
            | Command::Bench(_)
            | Command::Explain(_)
            | Command::Migrate(_)
            | Command::Doctor(_)
            | Command::Up(_)
            | Command::Send(_) => Ok(()),
        }
    }
    .await);
    store.close().await;
    ended
}

/// A password on the command line is seen by everyone who lists processes.
fn warn_of_password(args: &[OsString], output: Output) {
    let mut args = args.iter().map(|arg| arg.to_string_lossy());
    let has_password = args.any(|arg| {
        let url = arg.strip_prefix("--store=").unwrap_or(&arg);
        store_url::check(url).is_ok() && store_url::has_password(url)
    });
    if has_password {
        output.say(
            "warning: others on this machine can see the password on the command line; \
             ONCEWARD_STORE or url_file in the configuration keep it to yourself",
        );
    }
}
