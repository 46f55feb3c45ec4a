//! A RabbitMQ server.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use super::server::{Process, free_ports, program, start};

/// Names a server on which queues and exchanges may be made and deleted:
/// `amqp://user:password@host:port/%2f`. Without it a server is started.
pub const RABBITMQ_VARIABLE: &str = "ONCEWARD_TEST_RABBITMQ";

/// Names the program `rabbitmq-server`, the server's own and not a package's wrapper around it.
pub const RABBITMQ_PROGRAM_VARIABLE: &str = "ONCEWARD_TEST_RABBITMQ_SERVER";

const DEBIANS: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// A server on 127.0.0.1, ended with its owner. It takes seconds to start.
#[derive(Debug)]
pub struct RabbitServer {
    process: Mutex<Process>,
    ports: [u16; 3],
    settings: String,
}

impl RabbitServer {
    /// Starts one with the settings that nobody has changed.
    ///
    /// # Panics
    /// When RabbitMQ is missing or does not start; the text says what to do.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts one with further settings as in `rabbitmq.conf`.
    ///
    /// # Panics
    /// When RabbitMQ is missing or does not start; the text says what to do.
    pub async fn start_with(settings: &str) -> Self {
        let settings = settings.to_owned();
        start("RabbitMQ", move || {
            let server = Self {
                process: Mutex::new(Process::new("rabbitmq")?),
                ports: free_ports()?,
                settings: settings.clone(),
            };
            server.run().map(|()| server)
        })
        .await
    }

    /// The address of the server that tests share: that of the variable, else one that is started
    /// for this process.
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub async fn shared_url() -> String {
        static SHARED: OnceCell<RabbitServer> = OnceCell::const_new();
        match std::env::var(RABBITMQ_VARIABLE) {
            Ok(url) => url,
            Err(_) => SHARED.get_or_init(Self::start).await.url(),
        }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.ports[0])
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.ports[0]
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> Result<(), String> {
        let mut process = self.process();
        let folder = process.folder.path().to_owned();
        let [port, distribution, mapper] = self.ports;
        let settings = format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = error\n\
             log.file = false\ndisk_free_limit.absolute = 50MB\n\
             vm_memory_high_watermark.absolute = 1GB\n{}\n",
            self.settings
        );
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).map_err(|error| error.to_string())
        };
        write("rabbitmq.conf", &settings)?;
        write("enabled_plugins", "[].")?;
        let mut command = Command::new(program(RABBITMQ_PROGRAM_VARIABLE, &[DEBIANS]));
        command
            .env("HOME", &folder)
            .env("RABBITMQ_NODENAME", "onceward@localhost")
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq"))
            .env(
                "RABBITMQ_ENABLED_PLUGINS_FILE",
                folder.join("enabled_plugins"),
            )
            .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_PID_FILE", folder.join("server.pid"))
            .env("RABBITMQ_CONF_ENV_FILE", folder.join("none"))
            .env("RABBITMQ_DIST_PORT", distribution.to_string())
            .env("ERL_EPMD_PORT", mapper.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
            );
        let ready = process.run(command, port).map_err(|reason| {
            format!(
                "{reason}\nInstall it (Debian: apt-get install rabbitmq-server) or name a server \
                 in {RABBITMQ_VARIABLE}"
            )
        });
        note_mapper(&mut process, mapper)?;
        ready
    }

    /// Kills it.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Starts it again on its port with what it had stored.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&self) {
        self.run().unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// Stops it without its noticing, or lets it go on.
    pub fn freeze(&self, is_frozen: bool) {
        self.process().freeze(is_frozen);
    }
}

/// The server starts a port mapper in a session of its own, which it leaves behind.
fn note_mapper(process: &mut Process, port: u16) -> Result<(), String> {
    for pid in listeners(port) {
        process.also(pid)?;
    }
    Ok(())
}

/// Processes named `epmd` that were told this port.
fn listeners(port: u16) -> Vec<u32> {
    let wanted = format!("ERL_EPMD_PORT={port}");
    let is_wanted = |folder: &Path| {
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        let mut environment = environment.split(|byte| *byte == 0);
        name.trim() == "epmd" && environment.any(|entry| entry == wanted.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|folder| is_wanted(folder))
        .filter_map(|folder| folder.file_name()?.to_str()?.parse().ok())
        .collect()
}
