//! `onceward init`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use clap::Args;

use crate::cli::Global;
use crate::error::{Code, Error};
use crate::output::Output;

/// The file that is written.
const FIRST_CONFIG: &str = include_str!("init.toml");

/// Options of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
}

/// Writes a first configuration.
///
/// # Errors
/// When the file is there already and `--force` is not given, or it cannot be written.
pub fn run(global: &Global, output: Output, args: &InitArgs) -> Result<(), Error> {
    let path = &global.config;
    write(path, args.force)?;
    if output.is_json() {
        return output.json(&serde_json::json!({ "written": path.display().to_string() }));
    }
    output.line(&format!("wrote {}", path.display()))?;
    output.say("next: onceward migrate, then onceward up");
    Ok(())
}

fn write(path: &Path, force: bool) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(FIRST_CONFIG.as_bytes()));
    written.map_err(|error| {
        let shown = path.display();
        let message = match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{shown} is there already; --force overwrites it")
            }
            _ => format!("could not write {shown}"),
        };
        Error::new(Code::Output, message).with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_first_file_has_no_fault() {
        let config = Config::parse(Path::new("onceward.toml"), FIRST_CONFIG).unwrap();
        assert_eq!(config.pushes.len(), 1);
    }
}
