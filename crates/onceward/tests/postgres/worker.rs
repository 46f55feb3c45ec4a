//! Processes of a fleet: this program again, for one test, told by its environment to work.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward::postgres::Postgres;
use onceward::{Engine, EngineOptions, Start, Subscription};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;

use crate::place::{Place, connect, hasty, until};

/// Where the database is; set in workers alone.
const URL: &str = "ONCEWARD_TEST_WORKER_URL";
/// Anything a test wants its workers to know.
const WORD: &str = "ONCEWARD_TEST_WORKER_WORD";
/// What a worker says of itself starts so.
const SAYS: &str = "worker:";

/// What this process was told, when it is a worker.
pub struct Role {
    pub url: String,
    pub word: String,
}

/// Whether this process is a worker of the test that asks.
pub fn role() -> Option<Role> {
    let url = std::env::var(URL).ok()?;
    let word = std::env::var(WORD).unwrap_or_default();
    Some(Role { url, word })
}

impl Role {
    /// Works until standard input ends, then stops within the grace that was written there.
    pub async fn work(self, subscription: Subscription<Postgres>) {
        self.work_with(hasty(), subscription).await;
    }

    pub async fn work_with(self, options: EngineOptions, subscription: Subscription<Postgres>) {
        self.work_on(options, [subscription]).await;
    }

    pub async fn work_on(
        self,
        options: EngineOptions,
        subscriptions: impl IntoIterator<Item = Subscription<Postgres>>,
    ) {
        let store = connect(&self.url).await;
        let mut engine = Engine::builder(store).options(options);
        for subscription in subscriptions {
            engine = engine.subscribe(subscription.start(Start::Earliest));
        }
        let engine = engine.start().await.unwrap();
        let mut states = engine.watch();
        let said = async {
            loop {
                let state = states.borrow_and_update().clone();
                let lanes: usize = state.lanes.values().map(Vec::len).sum();
                println!("{SAYS} {lanes} {} {}", state.is_member, state.leases_lost);
                if states.changed().await.is_err() {
                    return;
                }
            }
        };
        let mut grace = String::new();
        let mut stdin = tokio::io::stdin();
        tokio::select! {
            () = said => {}
            _ = stdin.read_to_string(&mut grace) => {}
        }
        // Without a word the parent is gone.
        if let Ok(grace_ms) = grace.trim().parse() {
            engine.shutdown(Duration::from_millis(grace_ms)).await;
        }
    }
}

/// A worker as its parent sees it. Killed when dropped.
pub struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    /// Starts a process that runs only `test`, as a worker on the same database.
    pub fn start(test: &str, place: &Place) -> Self {
        Self::start_with(test, place, "")
    }

    pub fn start_with(test: &str, place: &Place, word: &str) -> Self {
        Self::start_at(test, place.url(), word)
    }

    /// On whatever a URL leads to.
    pub fn start_at(test: &str, url: &str, word: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(URL, url)
            .env(WORD, word)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::default();
        follow(child.stdout.take().unwrap(), Arc::clone(&lines));
        follow(child.stderr.take().unwrap(), Arc::clone(&lines));
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clone()
    }

    /// Lanes owned, whether it is a member, leases lost: what it said last.
    pub fn state(&self) -> Option<(usize, bool, u64)> {
        let lines = self.lines();
        // The test harness may have begun the line.
        let said = lines
            .iter()
            .rev()
            .find_map(|line| line.split(SAYS).nth(1))?;
        let mut words = said.split_whitespace();
        Some((
            words.next()?.parse().ok()?,
            words.next()? == "true",
            words.next()?.parse().ok()?,
        ))
    }

    pub async fn until_it_owns_lanes(&self) {
        until("a worker owns lanes", || async {
            self.state()
                .is_some_and(|(lanes, is_member, _)| is_member && lanes > 0)
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn ask_to_stop(&mut self, grace: Duration) {
        let mut stdin = self.stdin.take().unwrap();
        write!(stdin, "{}", grace.as_millis()).unwrap();
    }

    async fn has_stopped(mut self) {
        until("a worker has stopped", || {
            let has_ended = self.has_ended();
            async move { has_ended }
        })
        .await;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a worker failed: {:#?}", self.lines());
    }
}

/// Stops processes in order, all at once.
pub async fn stop_all(mut workers: Vec<Worker>, grace: Duration) {
    for worker in &mut workers {
        worker.ask_to_stop(grace);
    }
    for worker in workers {
        worker.has_stopped().await;
    }
}

/// Kills processes.
pub fn kill_all(workers: Vec<Worker>) {
    for worker in workers {
        worker.kill();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let lines = self.lines();
            let last = lines.len().saturating_sub(40);
            eprintln!("worker {}: {:#?}", self.child.id(), &lines[last..]);
        }
    }
}

fn follow(output: impl Read + Send + 'static, lines: Arc<Mutex<Vec<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(line);
        }
    });
}

/// Three processes, the least that every test of a fleet has.
pub async fn three(test: &str, place: &Place) -> Vec<Worker> {
    three_with(test, place, "").await
}

pub async fn three_with(test: &str, place: &Place, word: &str) -> Vec<Worker> {
    let workers = (0..3).map(|_| Worker::start_with(test, place, word));
    let workers: Vec<_> = workers.collect();
    for worker in &workers {
        worker.until_it_owns_lanes().await;
    }
    workers
}
