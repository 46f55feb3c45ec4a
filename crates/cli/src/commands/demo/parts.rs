//! The processes of the demo: started, watched, killed with SIGKILL, started again.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use onceward_orders::between::BROKER_URL_VARIABLE;
use onceward_orders::in_hand::InHand;
use onceward_orders::part::Ready;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::error::{Code, Error};

/// How long a process may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long a process may take to stop when it is told to.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// How often one process may end without being killed.
const SURPRISES_MAX: u32 = 5;

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The order service.
    Service,
    /// The fulfilment consumer.
    Consumer,
    /// The carrier.
    Carrier,
    /// What keeps the order book, where fulfilment is a service of its own.
    Book,
    /// The broker between the two; no process like the others.
    Broker,
    /// What works for the depot, in scenarios.
    Depot,
    /// What pushes go to, in scenarios.
    Receiver,
}

impl Kind {
    /// Those of the orders example.
    pub(super) const ALL: [Self; 3] = [Self::Service, Self::Consumer, Self::Carrier];

    /// The part that it is run as.
    const fn part(self) -> &'static str {
        match self {
            Self::Book => Self::Consumer.name(),
            other => other.name(),
        }
    }

    /// For people and programs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Consumer => "consumer",
            Self::Carrier => "carrier",
            Self::Book => "order-book",
            Self::Broker => "broker",
            Self::Depot => "depot",
            Self::Receiver => "receiver",
        }
    }
}

/// What is the same for all processes.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// This program.
    pub(super) program: PathBuf,
    /// The store; may hold a password, so it goes by the environment.
    pub(super) store_url: String,
    /// Where logs and the like go.
    pub(super) folder: PathBuf,
    /// The broker's address, where there is one; may hold a password as well.
    pub(super) broker_url: Option<String>,
}

/// One process, whichever of its starts.
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) name: String,
    args: Vec<OsString>,
    around: Surroundings,
    child: Option<Child>,
    surprises: u32,
    surprises_max: u32,
}

fn failed(text: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let text = text.into();
    |error| Error::new(Code::Demo, text).with_source(error)
}

impl Part {
    pub(super) fn new(
        kind: Kind,
        name: impl Into<String>,
        args: impl IntoIterator<Item = OsString>,
        around: &Surroundings,
    ) -> Self {
        Self {
            kind,
            name: name.into(),
            args: args.into_iter().collect(),
            around: around.clone(),
            child: None,
            surprises: 0,
            surprises_max: SURPRISES_MAX,
        }
    }

    /// The same, where it may end so often without being killed.
    pub(super) const fn may_end(mut self, times: u32) -> Self {
        self.surprises_max = times;
        self
    }

    fn in_hand(&self) -> PathBuf {
        self.around.folder.join(format!("{}.in-hand", self.name))
    }

    pub(super) fn log(&self) -> PathBuf {
        log_of(&self.around.folder, &self.name)
    }

    /// Starts it and waits until it works; returns where it listens.
    pub(super) async fn start(&mut self) -> Result<Option<SocketAddr>, Error> {
        let name = &self.name;
        let log_path = self.log();
        let opened = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = opened.map_err(failed(format!("could not write {}", log_path.display())))?;
        let mut command = Command::new(&self.around.program);
        command
            .arg("demo-part")
            .arg(self.kind.part())
            .args(&self.args)
            .arg("--in-hand")
            .arg(self.in_hand())
            .arg("--while-stdin")
            .env("ONCEWARD_STORE", &self.around.store_url)
            .env_remove("ONCEWARD_CONFIG")
            .envs(
                self.around
                    .broker_url
                    .iter()
                    .map(|url| (BROKER_URL_VARIABLE, url)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // Keys pressed at the terminal are for the demo, which then ends its parts.
            .process_group(0)
            .kill_on_drop(true);
        let spawned = command.spawn();
        let mut child = spawned.map_err(failed(format!("could not start the {name}")))?;
        let stdout = child.stdout.take();
        self.child = Some(child);
        let mut line = String::new();
        let said = async {
            match stdout {
                Some(stdout) => BufReader::new(stdout).read_line(&mut line).await.map(drop),
                None => Ok(()),
            }
        };
        let is_late = tokio::time::timeout(READY_WITHIN, said).await.is_err();
        match serde_json::from_str::<Ready>(&line) {
            Ok(ready) if !is_late => Ok(ready.address),
            _ => {
                let name = &self.name;
                let log = log_path.display();
                Err(Error::new(
                    Code::Demo,
                    format!("the {name} did not start; see {log}"),
                ))
            }
        }
    }

    fn pid(&self) -> Option<Pid> {
        let id = self.child.as_ref()?.id()?;
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    /// Kills it, if it has unfinished work at this moment: it is first stopped, so that what it
    /// shows is true when it dies. Returns whether it was killed.
    pub(super) async fn kill_at_work(&mut self) -> Result<bool, Error> {
        let Some(pid) = self.pid() else {
            return Ok(false);
        };
        let cannot = || failed(format!("could not stop the {}", self.name));
        kill_process(pid, Signal::STOP).map_err(|e| cannot()(e.into()))?;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let mut is_stopped = false;
        for _ in 0..500 {
            let seen = waitid(WaitId::Pid(pid), options);
            if seen.map_err(|e| cannot()(e.into()))?.is_some() {
                is_stopped = true;
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        if !is_stopped || InHand::read(&self.in_hand()) == 0 {
            kill_process(pid, Signal::CONT).map_err(|e| cannot()(e.into()))?;
            return Ok(false);
        }
        kill_process(pid, Signal::KILL).map_err(|e| cannot()(e.into()))?;
        self.reap().await?;
        Ok(true)
    }

    /// Kills it, whatever it does.
    pub(super) async fn kill(&mut self) -> Result<(), Error> {
        if let Some(pid) = self.pid() {
            let cannot = failed(format!("could not kill the {}", self.name));
            kill_process(pid, Signal::KILL).map_err(|e| cannot(e.into()))?;
        }
        self.reap().await
    }

    async fn reap(&mut self) -> Result<(), Error> {
        if let Some(mut child) = self.child.take() {
            let text = format!("could not wait for the {}", self.name);
            child.wait().await.map_err(failed(text))?;
        }
        Ok(())
    }

    /// Whether it has ended without being killed.
    ///
    /// # Errors
    /// When that happens again and again.
    pub(super) fn has_ended(&mut self) -> Result<bool, Error> {
        let Some(child) = &mut self.child else {
            return Ok(false);
        };
        let text = format!("could not look after the {}", self.name);
        let Some(status) = child.try_wait().map_err(failed(text))? else {
            return Ok(false);
        };
        self.child = None;
        self.surprises += 1;
        if self.surprises > self.surprises_max {
            let (name, log) = (&self.name, self.log());
            let text = format!(
                "the {name} ends again and again ({status}); see {}",
                log.display()
            );
            return Err(Error::new(Code::Demo, text));
        }
        Ok(true)
    }

    /// Lets it finish what it has in hand and stop.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        if let Some(pid) = self.pid() {
            // It may have ended meanwhile, which is as well.
            let _ = kill_process(pid, Signal::TERM);
        }
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        if tokio::time::timeout(STOP_WITHIN, child.wait())
            .await
            .is_err()
        {
            let text = format!("could not end the {}", self.name);
            child.start_kill().map_err(failed(text))?;
        }
        self.reap().await
    }
}

/// Where a process writes what it has to say.
pub(super) fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}
