//! Brokers' own servers for tests: each in a temporary folder, on ports of its own, ended with its
//! owner.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::postgres::{Watcher, in_background, signal};

/// A server that does not answer within this is taken for broken.
const START_WITHIN: Duration = Duration::from_secs(90);

/// How often a starting server is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Ends what runs in a folder, and removes it, when whoever started it is gone without a word.
const SCRIPT: &str = r#"
    for pid in $(cat "$1/pids"); do
        if cat "/proc/$pid/cmdline" "/proc/$pid/environ" 2>/dev/null | grep -q -a -F "$1"; then
            kill -KILL "$pid" "-$pid"
        fi
    done
    rm -rf "$1"
"#;

/// A server process in a folder of its own.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) folder: TempDir,
    name: &'static str,
    child: Option<Child>,
    /// What it started in sessions of their own.
    others: Vec<u32>,
    watcher: Option<Watcher>,
}

impl Process {
    /// A folder for a server, and nothing that runs in it.
    pub(super) fn new(name: &'static str) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("onceward-{name}-"))
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|error| format!("no temporary folder: {error}"))?;
        fs::write(folder.path().join("pids"), "").map_err(|error| error.to_string())?;
        let watcher = Watcher::start(SCRIPT, [folder.path()])?;
        Ok(Self {
            folder,
            name,
            child: None,
            others: Vec::new(),
            watcher: Some(watcher),
        })
    }

    /// Starts it and waits until a port is open.
    pub(super) fn run(&mut self, mut command: Command, port: u16) -> Result<(), String> {
        let log_path = self.folder.path().join("said");
        let log = File::create(&log_path).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut child = command
            .current_dir(self.folder.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("could not run {}: {error}", self.name))?;
        self.note(child.id())?;
        let ready = wait_until_open(&mut child, port);
        self.child = Some(child);
        ready.map_err(|reason| {
            self.kill();
            let said = fs::read_to_string(&log_path).unwrap_or_default();
            format!("{} {reason}; it said:\n{said}", self.name)
        })
    }

    /// Notes a process for the watcher.
    fn note(&self, pid: u32) -> Result<(), String> {
        let path = self.folder.path().join("pids");
        let known = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, format!("{known}{pid}\n")).map_err(|error| error.to_string())
    }

    /// Takes a process that it started beside itself for its own.
    pub(super) fn also(&mut self, pid: u32) -> Result<(), String> {
        self.others.push(pid);
        self.note(pid)
    }

    /// Ends it at once; what it had on disk stays.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Its own children too: they are its group.
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            let _ = child.wait();
            // Until the last of them is gone, its port is taken.
            while rustix::process::test_kill_process_group(group).is_ok() {
                std::thread::sleep(ASK_EVERY);
            }
        }
        for pid in self.others.drain(..) {
            signal(pid, Signal::KILL);
        }
    }

    /// Stops it without its noticing, or lets it go on. Returns when all of it has stopped.
    pub(super) fn freeze(&self, is_frozen: bool) {
        let what = if is_frozen {
            Signal::STOP
        } else {
            Signal::CONT
        };
        let Some(child) = &self.child else { return };
        let group = rustix::process::Pid::from_child(child);
        let _ = rustix::process::kill_process_group(group, what);
        let since = Instant::now();
        while is_frozen && !has_stopped(child.id()) {
            assert!(since.elapsed() < START_WITHIN, "{} stops", self.name);
            std::thread::sleep(ASK_EVERY);
        }
    }
}

/// Whether none of a process's threads runs.
fn has_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut states = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name before it may hold anything, and ends with the last bracket.
        stat.rsplit_once(") ")?.1.chars().next()
    });
    states.all(|state| state == 'T')
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        drop(self.watcher.take());
    }
}

/// Some ports in a row that are free, below those that the system gives to connections of its own:
/// one of these could connect to itself.
pub(super) fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT], String> {
    for _ in 0..100 {
        let chosen = u16::try_from(entropy() % 9_000).unwrap_or_default() + 21_000;
        let ports: [u16; COUNT] = std::array::from_fn(|n| chosen + n as u16);
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        if ports.iter().all(is_free) {
            return Ok(ports);
        }
    }
    Err("no free ports".to_owned())
}

/// Some number that differs between processes and calls.
fn entropy() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

fn wait_until_open(child: &mut Child, port: u16) -> Result<(), String> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("ended ({status})"));
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        if since.elapsed() > START_WITHIN {
            return Err(format!("was not ready within {START_WITHIN:?}"));
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Starts something in the background, on ports that may be taken meanwhile.
pub(super) async fn start<T: Send + 'static>(
    what: &str,
    start: impl Fn() -> Result<T, String> + Send + 'static,
) -> T {
    let starting = move || {
        let mut tries_left = 3;
        loop {
            match start() {
                Err(reason) if tries_left > 0 && reason.contains("ddress already in use") => {
                    tries_left -= 1;
                }
                ended => return ended,
            }
        }
    };
    let started = in_background(starting).await;
    started.unwrap_or_else(|reason| panic!("no {what} for this test: {reason}"))
}

/// A program by its variable, else the first of these that is there.
pub(super) fn program(variable: &str, places: &[&str]) -> std::path::PathBuf {
    if let Some(program) = std::env::var_os(variable) {
        return program.into();
    }
    let found = places.iter().map(Path::new).find(|place| place.exists());
    found
        .unwrap_or(Path::new(places[places.len() - 1]))
        .to_owned()
}
