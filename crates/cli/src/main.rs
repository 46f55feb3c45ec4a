//! The `onceward` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    onceward_cli::run(std::env::args_os())
}
