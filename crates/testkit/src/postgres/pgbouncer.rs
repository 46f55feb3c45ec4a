//! PgBouncer in transaction mode, before a server of the tests.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use url::Url;

use super::files;
use super::server::{ASK_EVERY, START_WITHIN, free_port, in_background};
use super::watcher::Watcher;

/// A PgBouncer on a port of its own, ended with its owner, that lends a few sessions of a server
/// for one transaction each.
///
/// It knows nothing of prepared statements where that can be chosen: `max_prepared_statements` is
/// 0. Parameters that it does not know, it refuses.
///
/// ```no_run
/// # async fn example() {
/// use onceward_testkit::postgres::{PgBouncer, TestDatabase};
/// let database = TestDatabase::lease().await;
/// let bouncer = PgBouncer::start(database.url(), 2).await;
/// let url = bouncer.url(database.url());
/// # }
/// ```
#[derive(Debug)]
pub struct PgBouncer {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
    /// Dismissed after the process has ended.
    watcher: Option<Watcher>,
}

impl PgBouncer {
    /// Starts one before the server of a URL, with at most `sessions` for each database.
    ///
    /// # Panics
    /// When PgBouncer is missing or does not start; the text says what to do.
    pub async fn start(server_url: &str, sessions: u32) -> Self {
        Self::start_with(server_url, sessions, &[]).await
    }

    /// Likewise, with further settings as in `pgbouncer.ini`.
    ///
    /// # Panics
    /// When PgBouncer is missing or does not start; the text says what to do.
    pub async fn start_with(server_url: &str, sessions: u32, settings: &[(&str, &str)]) -> Self {
        let server_url = server_url.to_owned();
        let settings = settings
            .iter()
            .map(|(name, value)| format!("{name} = {value}\n"));
        let settings: String = settings.collect();
        in_background(move || Self::start_blocking(&server_url, sessions, &settings))
            .await
            .unwrap_or_else(|reason| panic!("no PgBouncer for this test: {reason}"))
    }

    fn start_blocking(server_url: &str, sessions: u32, settings: &str) -> Result<Self, String> {
        let server = Url::parse(server_url).map_err(|error| error.to_string())?;
        let folder = tempfile::Builder::new()
            .prefix("onceward-pgbouncer-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|error| format!("no temporary folder: {error}"))?;
        let mut bouncer = Self {
            folder,
            port: 0,
            process: None,
            watcher: None,
        };
        // Between finding a free port and using it somebody else may take it.
        let mut tries_left = 5;
        loop {
            bouncer.port = free_port()?;
            bouncer.write_settings(&server, sessions, settings)?;
            match bouncer.run() {
                Err(reason) if tries_left > 0 && reason.contains("ddress already in use") => {
                    tries_left -= 1;
                }
                ended => return ended.map(|()| bouncer),
            }
        }
    }

    /// The same user and database as in a URL of the server, through this pooler.
    ///
    /// # Panics
    /// When the URL is none.
    #[must_use]
    pub fn url(&self, of: &str) -> String {
        let mut url = Url::parse(of).expect("a URL of the server is a URL");
        let moved =
            url.set_host(Some("127.0.0.1")).is_ok() && url.set_port(Some(self.port)).is_ok();
        assert!(moved, "{of:?} has no host");
        url.into()
    }

    fn write_settings(&self, server: &Url, sessions: u32, settings: &str) -> Result<(), String> {
        let write = |name: &str, text: String| -> Result<PathBuf, String> {
            let path = self.folder.path().join(name);
            fs::write(&path, text).map_err(|error| error.to_string())?;
            Ok(path)
        };
        let quoted = |text: &str| text.replace('"', "\"\"");
        let user = quoted(server.username());
        let password = quoted(server.password().unwrap_or_default());
        let users = write("users", format!("\"{user}\" \"{password}\"\n"))?;
        let host = server.host_str().unwrap_or("127.0.0.1");
        let server_port = server.port().unwrap_or(5432);
        let none_prepared = match knows_of_prepared_statements()? {
            true => "max_prepared_statements = 0\n",
            false => "",
        };
        let text = format!(
            "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {sessions}\nmax_client_conn = 500\n{none_prepared}{settings}",
            self.port,
            users.display(),
        );
        write("pgbouncer.ini", text).map(drop)
    }

    fn run(&mut self) -> Result<(), String> {
        let log_path = self.folder.path().join("log");
        let log = fs::File::create(&log_path).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(program());
        command
            .arg(self.folder.path().join("pgbouncer.ini"))
            .current_dir(self.folder.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        if let Some((uid, gid)) = files::server_account()? {
            chown(self.folder.path(), Some(uid), Some(gid)).map_err(|error| error.to_string())?;
            command.uid(uid).gid(gid);
        }
        let mut process = command.spawn().map_err(|error| missing(&error))?;
        self.watcher = Some(watch(process.id(), self.folder.path())?);
        let ready = wait_until_ready(&mut process, self.port);
        self.process = Some(process);
        ready.map_err(|reason| {
            self.end();
            let said = fs::read_to_string(&log_path).unwrap_or_default();
            format!("{reason}; it said:\n{said}")
        })
    }

    /// It keeps nothing that a kill could lose.
    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            files::signal(process.id(), Signal::KILL);
            let _ = process.wait();
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Debian's is not in everybody's path.
fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(super::PGBOUNCER_VARIABLE) {
        return PathBuf::from(program);
    }
    let debian = Path::new("/usr/sbin/pgbouncer");
    if debian.exists() {
        return debian.to_owned();
    }
    PathBuf::from("pgbouncer")
}

fn missing(error: &std::io::Error) -> String {
    format!(
        "could not run {}: {error}. Install it (Debian: apt-get install pgbouncer) or name it in {}",
        program().display(),
        super::PGBOUNCER_VARIABLE
    )
}

/// From 1.21 on.
fn knows_of_prepared_statements() -> Result<bool, String> {
    let said = Command::new(program()).arg("--version").output();
    let said = said.map_err(|error| missing(&error))?.stdout;
    let said = String::from_utf8_lossy(&said);
    let version = said.lines().next().and_then(|line| {
        let mut numbers = line.strip_prefix("PgBouncer ")?.split('.');
        let number = |text: Option<&str>| text?.parse::<u32>().ok();
        Some((number(numbers.next())?, number(numbers.next())?))
    });
    match version {
        Some(version) => Ok(version >= (1, 21)),
        None => Err(format!("no version of PgBouncer in {said:?}")),
    }
}

fn watch(pid: u32, folder: &Path) -> Result<Watcher, String> {
    const SCRIPT: &str = r#"
        if grep -q "$2" "/proc/$1/cmdline" 2>/dev/null; then kill -KILL "$1"; fi
        rm -rf "$2"
    "#;
    let pid = pid.to_string();
    Watcher::start(SCRIPT, [pid.as_ref(), folder.as_os_str()])
}

fn wait_until_ready(process: &mut Child, port: u16) -> Result<(), String> {
    let since = Instant::now();
    loop {
        if let Some(status) = process.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("pgbouncer ended ({status})"));
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        if since.elapsed() > START_WITHIN {
            return Err(format!("pgbouncer was not ready within {START_WITHIN:?}"));
        }
        std::thread::sleep(ASK_EVERY.min(Duration::from_millis(2)));
    }
}
