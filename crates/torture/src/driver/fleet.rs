//! Processes: workers, producers, the carrier, each behind a proxy of its own.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::proxy::Proxy;
use crate::points::DieAt;
use crate::processes::Broken;
use crate::trouble::{Trouble, while_doing};

/// A place for a process.
pub(super) struct Slot {
    name: String,
    /// In front of the database, where that is a server.
    pub(super) proxy: Option<Proxy>,
    child: Option<Child>,
    /// Where it dies, if it is to.
    pub(super) die_at: Option<DieAt>,
}

/// How a process was found.
pub(super) enum Found {
    Runs,
    /// It killed itself at its failure point.
    DiedAt(String),
    /// It ended by itself.
    Ended,
}

impl Slot {
    pub(super) const fn new(name: String, proxy: Option<Proxy>) -> Self {
        Self {
            name,
            proxy,
            child: None,
            die_at: None,
        }
    }

    /// Starts this program again, told what to be.
    pub(super) fn start(&mut self, folder: &Path, arguments: &[String]) -> Result<(), Trouble> {
        let program = std::env::current_exe().map_err(while_doing("find this program"))?;
        let path = folder.join(format!("{}.log", self.name));
        let log = OpenOptions::new().create(true).append(true).open(path);
        let log = log.map_err(while_doing("open a log"))?;
        let child = Command::new(program)
            .args(arguments)
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        self.child = Some(child.map_err(while_doing("start a process"))?);
        Ok(())
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        let pid = self.child.as_ref().and_then(Child::id);
        let pid = pid
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it; returns whether it was there to be killed.
    pub(super) async fn kill(&mut self) -> bool {
        self.die_at = None;
        match self.child.take() {
            Some(mut child) => {
                let runs = matches!(child.try_wait(), Ok(None));
                let _ = child.kill().await;
                runs
            }
            None => false,
        }
    }

    /// Waits for its end, so long; returns whether it came.
    pub(super) async fn has_ended(&mut self, within: std::time::Duration) -> bool {
        match &mut self.child {
            Some(child) => tokio::time::timeout(within, child.wait()).await.is_ok(),
            None => true,
        }
    }

    pub(super) fn look(&mut self) -> Found {
        let Some(child) = &mut self.child else {
            return Found::Ended;
        };
        let Ok(Some(status)) = child.try_wait() else {
            return Found::Runs;
        };
        self.child = None;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        match self.die_at.take() {
            Some(die_at) if killed => Found::DiedAt(die_at.point),
            _ => Found::Ended,
        }
    }
}

/// What every worker is told.
pub(super) struct WorkerWords {
    pub(super) folder: PathBuf,
    pub(super) broken: Option<Broken>,
}

impl WorkerWords {
    pub(super) fn of(&self, url: &str, die_at: Option<&DieAt>, connections: u32) -> Vec<String> {
        let folder = self.folder.display().to_string();
        let mut words: Vec<String> = ["worker", "--store", url, "--folder", &folder]
            .map(str::to_owned)
            .into();
        words.push(format!("--connections={connections}"));
        words.extend(die_at.map(|die_at| format!("--die-at={die_at}")));
        words.extend(
            self.broken
                .map(|broken| format!("--broken={}", broken.as_str())),
        );
        words
    }
}
