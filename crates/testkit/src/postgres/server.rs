//! A PostgreSQL server that belongs to one test process.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::files::{self, FOLDER_PREFIX, OWNER_FILE, ProcessName};
use super::watcher::Watcher;

/// A server that does not answer within this is taken for broken.
pub(super) const START_WITHIN: Duration = Duration::from_secs(60);

/// How often a starting server is asked whether it is ready.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(10);

/// How a server is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Whether commits reach the disk. Needed where a test kills the machine rather than the
    /// process; everything else is faster without.
    pub is_durable: bool,
    /// Further settings, name and value as in `postgresql.conf`; they win.
    pub settings: Vec<(String, String)>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            is_durable: true,
            settings: Vec::new(),
        }
    }
}

impl PostgresOptions {
    /// For tests that look at what happens, not at what survives a power cut.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            is_durable: false,
            ..Self::default()
        }
    }

    /// Adds a setting as in `postgresql.conf`.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    fn text(&self, port: u16, socket_folder: &Path) -> String {
        let durable = if self.is_durable { "on" } else { "off" };
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
             max_connections = 200\nmax_prepared_transactions = 64\nwal_level = logical\n\
             fsync = {durable}\nfull_page_writes = {durable}\nsynchronous_commit = {durable}\n",
            socket_folder.display()
        );
        for (name, value) in &self.settings {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        text
    }
}

/// A PostgreSQL server in a temporary folder, on a port of its own, ended with its owner.
///
/// A small watcher process ends the server also when the test process is killed.
#[derive(Debug)]
pub struct PostgresServer {
    folder: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    options: PostgresOptions,
    port: u16,
    server: Option<Child>,
    /// Dismissed after the server has ended.
    watcher: Option<Watcher>,
}

impl PostgresServer {
    /// Starts a server with durable settings.
    ///
    /// # Panics
    /// When PostgreSQL is missing or does not start; the text says what to do.
    pub async fn start() -> Self {
        Self::start_with(PostgresOptions::default()).await
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When PostgreSQL is missing or does not start; the text says what to do.
    pub async fn start_with(options: PostgresOptions) -> Self {
        in_background(move || Self::start_blocking(options))
            .await
            .unwrap_or_else(|reason| panic!("no PostgreSQL for tests: {reason}"))
    }

    /// Starts a streaming standby of this server, made by `pg_basebackup`, with the same settings.
    ///
    /// # Panics
    /// When the copy fails or the standby does not start.
    pub async fn standby(&self) -> Self {
        let (source, options) = (self.url("postgres"), self.options.clone());
        let start = move || {
            let mut standby = Self::new(options)?;
            files::run(
                standby
                    .command("pg_basebackup")
                    .args(["--write-recovery-conf", "--wal-method=stream"])
                    .args(["--checkpoint=fast", "--no-sync", "--no-password"])
                    .arg(format!("--dbname={source}"))
                    .arg("--pgdata")
                    .arg(standby.data_folder()),
            )?;
            standby.serve()?;
            Ok(standby)
        };
        in_background(start)
            .await
            .unwrap_or_else(|reason| panic!("no standby: {reason}"))
    }

    /// Starts a server on the calling thread.
    pub(super) fn start_blocking(options: PostgresOptions) -> Result<Self, String> {
        files::clean_up_after_crashed_runs();
        let mut server = Self::new(options)?;
        server.make_data()?;
        server.serve()?;
        Ok(server)
    }

    /// A server without data in a folder of its own, watched.
    fn new(options: PostgresOptions) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix(FOLDER_PREFIX)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|error| format!("no temporary folder: {error}"))?;
        let mut server = Self {
            folder,
            programs: files::programs()?,
            account: files::server_account()?,
            options,
            port: 0,
            server: None,
            watcher: None,
        };
        server.watch()?;
        server.mark_folder()?;
        Ok(server)
    }

    /// Runs the server on a free port.
    fn serve(&mut self) -> Result<(), String> {
        // Between finding a free port and using it somebody else may take it.
        let mut tries_left = 5;
        loop {
            self.port = free_port()?;
            match self.run() {
                Err(reason) if tries_left > 0 && reason.contains("could not bind") => {
                    tries_left -= 1;
                }
                ended => break ended,
            }
        }
    }

    /// URL of a database on this server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1; stays the same over restarts.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Folder of the server's data.
    #[must_use]
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Folder with `pg_dump`, `pg_basebackup` and the other programs of this server's version.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Process id of the postmaster.
    ///
    /// # Panics
    /// When the server is stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server
            .as_ref()
            .expect("the server is stopped, so it has no process id")
            .id()
    }

    /// Ends the server at once but in order: sessions are cut, data is written. Does nothing when
    /// it is stopped.
    pub async fn stop(&mut self) {
        self.end(Signal::INT).await;
    }

    /// Kills the postmaster, and with it everything that was not written, like a crash.
    pub async fn kill(&mut self) {
        self.end(Signal::KILL).await;
    }

    async fn end(&mut self, with: Signal) {
        if let Some(mut server) = self.server.take() {
            let children = match with {
                Signal::KILL => files::children(server.id()),
                _ => Vec::new(),
            };
            files::signal(server.id(), with);
            files::signal(server.id(), Signal::CONT);
            for child in &children {
                files::signal(*child, Signal::KILL);
            }
            in_background(move || server.wait().map_err(|error| error.to_string()))
                .await
                .unwrap_or_else(|reason| panic!("the server did not end: {reason}"));
        }
    }

    /// Starts again after [`stop`](Self::stop) or [`kill`](Self::kill), stopping first where it
    /// runs. Port and data stay.
    ///
    /// # Panics
    /// When the server does not come back.
    pub async fn restart(&mut self) {
        self.stop().await;
        let since = Instant::now();
        // The start only waits on a file and a child, and ends within a bound.
        while let Err(reason) = self.run() {
            // A session that was just being started when the server was killed has not noticed yet.
            let is_held = reason.contains("pre-existing shared memory block");
            assert!(
                is_held && since.elapsed() < START_WITHIN,
                "PostgreSQL did not come back: {reason}"
            );
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Freezes the server with all its sessions (`SIGSTOP`): the network stays, answers stop.
    pub fn pause(&self) {
        files::signal(self.pid(), Signal::STOP);
        for child in files::children(self.pid()) {
            files::signal(child, Signal::STOP);
        }
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        for child in files::children(self.pid()) {
            files::signal(child, Signal::CONT);
        }
        files::signal(self.pid(), Signal::CONT);
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).process_group(0);
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        command.env("LC_ALL", "C").env_remove("PGDATA");
        command
    }

    /// Gives the folder to the server's account and writes whose it is.
    fn mark_folder(&self) -> Result<(), String> {
        let folder = self.folder.path();
        if let Some((uid, gid)) = self.account {
            chown(folder, Some(uid), Some(gid)).map_err(|error| error.to_string())?;
        }
        fs::write(folder.join(OWNER_FILE), ProcessName::me().to_text())
            .map_err(|error| error.to_string())
    }

    fn make_data(&self) -> Result<(), String> {
        files::run(
            self.command("initdb")
                .args(["--auth=trust", "--username=postgres", "--encoding=UTF8"])
                .args(["--locale=C", "--no-sync", "--no-instructions", "--pgdata"])
                .arg(self.data_folder()),
        )
        .map(|_| ())
    }

    /// Starts the process that ends the server when this process is gone.
    fn watch(&mut self) -> Result<(), String> {
        const SCRIPT: &str = r#"
            pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
            if [ -n "$pid" ] && grep -q "$1" "/proc/$pid/cmdline" 2>/dev/null; then
                kill -QUIT "$pid"; kill -CONT "$pid"
                while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
            fi
            rm -rf "$1"
        "#;
        self.watcher = Some(Watcher::start(SCRIPT, [self.folder.path()])?);
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        let folder = self.folder.path().to_owned();
        let settings = folder.join("data/onceward.conf");
        fs::write(&settings, self.options.text(self.port, &folder))
            .and_then(|()| fs::set_permissions(&settings, fs::Permissions::from_mode(0o644)))
            .map_err(|error| error.to_string())?;
        let main = folder.join("data/postgresql.conf");
        let text = fs::read_to_string(&main).map_err(|error| error.to_string())?;
        if !text.contains("include 'onceward.conf'") {
            fs::write(&main, text + "\ninclude 'onceward.conf'\n")
                .map_err(|error| error.to_string())?;
        }
        let log_path = folder.join("log");
        let log = fs::File::create(&log_path).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut server = self
            .command("postgres")
            .arg("-D")
            .arg(self.data_folder())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("could not start postgres: {error}"))?;
        match wait_until_ready(&mut server, &self.data_folder()) {
            Ok(()) => {
                self.server = Some(server);
                Ok(())
            }
            Err(reason) => {
                let _ = server.kill();
                let _ = server.wait();
                let said = fs::read_to_string(&log_path).unwrap_or_default();
                Err(format!("{reason}; the server said:\n{said}"))
            }
        }
    }
}

/// Ends the server at once and removes its folder.
impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            for child in files::children(server.id()) {
                files::signal(child, Signal::CONT);
            }
            files::signal(server.id(), Signal::QUIT);
            files::signal(server.id(), Signal::CONT);
            let _ = server.wait();
        }
    }
}

pub(super) fn free_port() -> Result<u16, String> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("no free port: {error}"))
}

/// Waits for the server's own word in its process file.
fn wait_until_ready(server: &mut Child, data: &Path) -> Result<(), String> {
    let since = Instant::now();
    let pid = server.id().to_string();
    loop {
        let record = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let mut lines = record.lines().map(str::trim);
        if lines.next() == Some(pid.as_str()) && lines.nth(6) == Some("ready") {
            return Ok(());
        }
        if let Some(status) = server.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("postgres ended ({status})"));
        }
        if since.elapsed() > START_WITHIN {
            return Err(format!("postgres was not ready within {START_WITHIN:?}"));
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Runs blocking work beside the runtime.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| error.to_string())?
}
