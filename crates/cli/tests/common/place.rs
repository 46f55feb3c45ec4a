//! A folder with a configuration and a store, and the program run in it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use onceward_testkit::postgres::{PgBouncer, TestDatabase};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything that should happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A folder with a store.
pub(crate) struct Place {
    folder: TempDir,
    pooler: Option<PgBouncer>,
    database: Option<TestDatabase>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().expect("ended by itself"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts the exit status.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }

    /// Asserts that standard error contains each part.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {self:#?}");
        }
        self
    }
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            pooler: None,
            database: None,
        }
    }

    pub(crate) async fn postgres() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            pooler: None,
            database: Some(TestDatabase::lease().await),
        }
    }

    /// On PostgreSQL behind a pooler that lends two sessions, each for one transaction.
    pub(crate) async fn pooled() -> Self {
        let place = Self::postgres().await;
        let pooler = PgBouncer::start(place.database_url(), 2).await;
        Self {
            pooler: Some(pooler),
            ..place
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) const fn is_sqlite(&self) -> bool {
        self.database.is_none()
    }

    /// The `[store]` section.
    pub(crate) fn store_section(&self) -> String {
        match &self.database {
            None => "[store]\nurl = \"sqlite:onceward.db\"\n".to_owned(),
            Some(_) => {
                // The address may hold a password, which the file must not.
                self.write_secret("store.url", &self.store_url());
                "[store]\nurl_file = \"store.url\"\n".to_owned()
            }
        }
    }

    /// Writes `onceward.toml`: the store, a listener on any port, and `rest`.
    pub(crate) fn configure(&self, rest: &str) {
        self.configure_http("", rest);
    }

    /// The same with more settings of the listener.
    pub(crate) fn configure_http(&self, http: &str, rest: &str) {
        let store = self.store_section();
        let text = format!("{store}\n[http]\nlisten = \"127.0.0.1:0\"\n{http}\n{rest}");
        std::fs::write(self.path("onceward.toml"), text).unwrap();
    }

    /// A file that only its owner can read.
    pub(crate) fn write_secret(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(name, text);
        let permissions = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(self.path(name), permissions).unwrap();
    }

    /// Address of the database, on PostgreSQL.
    pub(crate) fn database_url(&self) -> &str {
        let database = self.database.as_ref().expect("a place on PostgreSQL");
        database.url()
    }

    /// The same folder's store, as `--store` takes it.
    pub(crate) fn store_url(&self) -> String {
        match (&self.database, &self.pooler) {
            (Some(database), Some(pooler)) => pooler.url(database.url()),
            (Some(database), None) => database.url().to_owned(),
            (None, _) => format!("sqlite:{}", self.path("onceward.db").display()),
        }
    }

    /// What a query says, on PostgreSQL.
    pub(crate) async fn psql(&self, sql: &str) -> String {
        let database = self.database.as_ref().expect("a place on PostgreSQL");
        database.psql(sql).await.trim().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// How a message stands in the subscription `hook`.
    #[track_caller]
    pub(crate) fn state_of(&self, operation: &str) -> Value {
        let shown = self.run(&["operation", "show", operation, "--json"]);
        let mut shown = shown.ended(0).json();
        shown["messages"][0]["subscriptions"]["hook"].take()
    }

    /// Waits until an operation has ended well or badly, for which the exit status stands.
    #[track_caller]
    pub(crate) fn watch(&self, operation: &str, code: i32) -> Ran {
        let args = [
            "operation",
            "watch",
            operation,
            "--timeout",
            "60s",
            "--json",
        ];
        self.run(&args).ended(code)
    }

    /// Looks until there is something. Each look runs the program, so it is no busy loop.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let give_up = std::time::Instant::now() + SOON;
        loop {
            if let Some(found) = look() {
                return found;
            }
            if std::time::Instant::now() > give_up {
                let log = std::fs::read_to_string(self.path("up.log")).unwrap_or_default();
                panic!("not in time: {what}\n{log}");
            }
        }
    }

    /// Soon nothing waits in the only subscription, and nothing was put aside.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        self.until("nothing is left", || {
            let backlog = self.backlog();
            assert_eq!(backlog["quarantined"], 0, "{backlog}");
            let deferred = backlog["deferred"].as_object().unwrap();
            let is_over = backlog["waiting"] == 0 && deferred.values().all(|count| *count == 0);
            is_over.then_some(())
        });
    }

    /// How the only subscription stands.
    #[track_caller]
    pub(crate) fn backlog(&self) -> Value {
        let mut backlog = self.run(&["backlog", "--json"]).ended(0).json();
        backlog["subscriptions"][0].take()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command.current_dir(self.folder.path()).args(args);
        for name in [
            "ONCEWARD_STORE",
            "ONCEWARD_CONFIG",
            "ONCEWARD_LOG",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a command with a text on standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: impl AsRef<[u8]>) -> Ran {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // What ends before it has read everything says why.
        let _ = stdin.write_all(input.as_ref());
        drop(stdin);
        Ran::of(&child.wait_with_output().unwrap())
    }

    /// Starts a command and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts a command with more in the environment, to its end.
    pub(crate) fn run_with_env(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        let mut command = self.command(args);
        command.envs(env.iter().copied()).stdin(Stdio::null());
        Ran::of(&command.output().unwrap())
    }

    /// Starts the daemon and waits until it is ready.
    pub(crate) fn up(&self, args: &[&str]) -> Daemon {
        self.up_with_env(args, &[])
    }

    /// The same with more in the environment.
    pub(crate) fn up_with_env(&self, args: &[&str], env: &[(&str, &str)]) -> Daemon {
        self.start_up("up.log", args, env)
    }

    /// One of several, with a log of its own.
    pub(crate) fn up_named(&self, log: &str, args: &[&str]) -> Daemon {
        self.start_up(log, args, &[])
    }

    fn start_up(&self, log: &str, args: &[&str], env: &[(&str, &str)]) -> Daemon {
        let mut command = self.command(&["up", "--json"]);
        command.envs(env.iter().copied());
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command.stderr(std::fs::File::create(self.path(log)).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let log = self.path(log);
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| {
            panic!("{e}: {line:?}\n{}", std::fs::read_to_string(&log).unwrap())
        });
        assert_eq!(ready["event"], "ready");
        Daemon {
            child: Some(child),
            url: ready["url"].as_str().unwrap().to_owned(),
            log,
        }
    }
}

/// A running daemon, killed when dropped.
pub(crate) struct Daemon {
    child: Option<Child>,
    pub(crate) url: String,
    log: PathBuf,
}

impl Daemon {
    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("taken only at the end"))
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let mut child = self.child.take().expect("taken only at the end");
        child.wait().unwrap();
    }

    /// Asks to stop, and waits for the end. Returns the exit status.
    pub(crate) fn stop(self) -> i32 {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for the end without asking.
    pub(crate) fn ended(mut self) -> i32 {
        let pid = self.pid();
        let mut child = self.child.take().expect("taken only here");
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait()));
        let Ok(status) = ended.recv_timeout(SOON) else {
            // Gone meanwhile at most.
            let _ = kill_process(pid, Signal::KILL);
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            panic!("the daemon did not end:\n{log}");
        };
        status.unwrap().code().expect("the daemon ended by itself")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("the daemon wrote:\n{log}");
        }
        if let Some(mut child) = self.child.take() {
            // Already over in most cases.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One CloudEvent as a line of JSON.
pub(crate) fn event(id: &str, message_type: &str, subject: &str, data: &str) -> String {
    format!(
        "{{\"specversion\":\"1.0\",\"id\":\"{id}\",\"source\":\"/test\",\"type\":\"{message_type}\",\
         \"subject\":\"{subject}\",\"data\":{data}}}\n"
    )
}

/// One event type without a subscription to push.
pub(crate) const ONE_TYPE: &str = "[message.\"order.accepted\"]\n";

/// One event type that a service of its own takes.
pub(crate) fn push_to(url: &str) -> String {
    format!(
        "[message.\"order.accepted\"]\n\n[subscription.hook]\nmessages = [\"order.accepted\"]\n\
         start = \"earliest\"\nlanes = 16\nretry = {{ base = \"10ms\", cap = \"50ms\" }}\n\
         push = {{ url = \"{url}\" }}\n"
    )
}
