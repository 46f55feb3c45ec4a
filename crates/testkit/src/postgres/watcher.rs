//! Ends what a test process started when that process is gone, however it went.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// A small process whose standard input is a pipe that only we hold. When the pipe closes without
/// a word, it runs its script.
#[derive(Debug)]
pub(crate) struct Watcher(Child);

impl Watcher {
    /// Starts one with the script that it is to run after a crash, and the script's arguments.
    pub(crate) fn start(
        script: &str,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self, String> {
        let watcher = Command::new("sh")
            .args([
                "-c",
                &format!("read -r word && exit 0\n{script}"),
                "watcher",
            ])
            .args(arguments)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("could not start the watcher: {error}"))?;
        Ok(Self(watcher))
    }
}

/// Dismisses it: there is nothing left to end.
impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(mut line) = self.0.stdin.take() {
            let _ = line.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
