//! Where PostgreSQL's programs are, whose servers run, and what crashed runs left behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

/// Folders of our servers start with this.
pub(super) const FOLDER_PREFIX: &str = "onceward-pg-";

/// The file in which a server's folder names the test process it belongs to.
pub(super) const OWNER_FILE: &str = "owner";

/// The folder with `initdb` and `postgres`.
pub(super) fn programs() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os(super::PROGRAMS_VARIABLE) {
        return Ok(PathBuf::from(folder));
    }
    let version = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((version(&entry.path())?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop().map(|(_, bin)| bin).ok_or_else(|| {
        format!(
            "PostgreSQL's server programs are missing. Install them (Debian: apt-get install \
             postgresql), name their folder in {}, or name a running server in {}",
            super::PROGRAMS_VARIABLE,
            super::SERVER_VARIABLE
        )
    })
}

/// The account that runs the server where we are root, which PostgreSQL refuses.
pub(super) fn server_account() -> Result<Option<(u32, u32)>, String> {
    let me = fs::metadata("/proc/self").map_err(|error| format!("no /proc: {error}"))?;
    if me.uid() != 0 {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd").map_err(|error| error.to_string())?;
    let ids = accounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            ["postgres", _, uid, gid, ..] => Some((uid.parse().ok()?, gid.parse().ok()?)),
            _ => None,
        }
    });
    ids.map(Some).ok_or_else(|| {
        "PostgreSQL refuses to run as root and there is no account `postgres` to run it as \
         (Debian: apt-get install postgresql)"
            .to_owned()
    })
}

/// A process by number and start time, so that a number used again is not taken for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessName {
    pub(super) pid: u32,
    pub(super) started: u64,
}

impl ProcessName {
    /// The process of this number that runs now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name stands in brackets and may hold blanks: count from the last bracket.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let is_over = matches!(*fields.first()?, "Z" | "X");
        let started = fields.get(19)?.parse().ok()?;
        (!is_over).then_some(Self { pid, started })
    }

    /// This process.
    pub(super) fn me() -> Self {
        Self::of(std::process::id()).unwrap_or(Self {
            pid: std::process::id(),
            started: 0,
        })
    }

    /// Whether it still runs.
    pub(super) fn is_running(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    pub(super) fn to_text(self) -> String {
        format!("{} {}", self.pid, self.started)
    }

    fn from_text(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }
}

/// The child processes of a process.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit_once(')').map_or("", |parts| parts.1);
            after_name.split_whitespace().nth(1) == Some(parent.to_string().as_str())
        })
        .collect()
}

/// Sends a signal; a process that is gone is no error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The server that runs on a folder's data, by the server's own record.
fn server_of(folder: &Path) -> Option<u32> {
    let record = fs::read_to_string(folder.join("data/postmaster.pid")).ok()?;
    let pid: u32 = record.lines().next()?.trim().parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let named = folder.to_str()?;
    String::from_utf8_lossy(&command)
        .contains(named)
        .then_some(pid)
}

/// Ends servers whose test process is gone and removes their folders.
pub(super) fn clean_up_after_crashed_runs() {
    for entry in fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(FOLDER_PREFIX));
        let folder = entry.path();
        let owner = fs::read_to_string(folder.join(OWNER_FILE));
        let owner = owner.ok().and_then(|text| ProcessName::from_text(&text));
        // A folder without an owner is being made just now.
        if is_ours && owner.is_some_and(|owner| !owner.is_running()) {
            if let Some(pid) = server_of(&folder) {
                signal(pid, Signal::QUIT);
                signal(pid, Signal::CONT);
            }
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("could not run {program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{program} failed ({}): {}",
            output.status,
            said.trim()
        ))
    }
}
