//! A broker to show or measure something with: a server of this program's own, or one that is named.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use onceward_orders::between::{BROKER_URL_VARIABLE, Between, BrokerKind};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::error::{Code, EXIT_USAGE, Error};

/// How long a server may take to answer.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks whether it does.
const LOOK: Duration = Duration::from_millis(20);

/// A broker, and how to reach it.
pub(crate) struct Broker {
    /// How it is reached, and under which names.
    pub(crate) between: Between,
    server: Option<NatsServer>,
}

/// A server in a folder, which ends with its owner.
struct NatsServer {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Broker {
    /// Refuses what cannot be had, before anything is made.
    ///
    /// # Errors
    /// When this build does not have it, or no server is named where one has to be.
    pub(crate) fn check(kind: BrokerKind) -> Result<(), Error> {
        if !kind.is_there() {
            let name = kind.as_str();
            let text = format!(
                "this build of onceward has no {name}: build it with --features {name}, or with \
                 --features brokers for all of them"
            );
            return Err(Error::new(Code::Broker, text).with_exit(EXIT_USAGE));
        }
        if kind == BrokerKind::RabbitMq && std::env::var_os(BROKER_URL_VARIABLE).is_none() {
            let text = format!(
                "name a RabbitMQ server in {BROKER_URL_VARIABLE}, as \
                 amqp://guest:guest@127.0.0.1/%2f (Debian: apt-get install rabbitmq-server); \
                 queues and an exchange of a new name are made there and left"
            );
            return Err(Error::new(Code::Broker, text).with_exit(EXIT_USAGE));
        }
        Ok(())
    }

    /// Starts a server, or takes the one that the environment names, and makes on it what messages
    /// go through.
    ///
    /// # Errors
    /// When the server is missing or cannot be used.
    pub(crate) async fn start(kind: BrokerKind, folder: &Path) -> Result<Self, Error> {
        let (url, server) = match std::env::var(BROKER_URL_VARIABLE) {
            Ok(url) => (url, None),
            Err(_) => {
                let server = NatsServer::start(folder).await?;
                (format!("nats://127.0.0.1:{}", server.port), Some(server))
            }
        };
        let prefix = folder.file_name().unwrap_or_default();
        let prefix = prefix.to_string_lossy().into_owned();
        let between = Between { kind, url, prefix };
        prepare(&between).await?;
        Ok(Self { between, server })
    }

    /// Kills the server and starts it again with what it had stored; false where it is
    /// nobody's to kill.
    pub(crate) async fn kill(&mut self) -> Result<bool, Error> {
        let Some(server) = &mut self.server else {
            return Ok(false);
        };
        let killed = server.child.kill().await;
        killed.map_err(|e| Error::new(Code::Broker, "could not kill the broker").with_source(e))?;
        server.child = run(&server.folder, server.port).await?;
        Ok(true)
    }
}

/// Makes what messages go through under the names of `between`.
///
/// # Errors
/// When the server cannot be used.
pub(crate) async fn prepare(between: &Between) -> Result<(), Error> {
    let text = format!("the {} server cannot be used", between.kind.as_str());
    let prepared = between.prepare().await;
    prepared.map_err(|e| Error::new(Code::Broker, text).with_source(e))
}

impl NatsServer {
    async fn start(folder: &Path) -> Result<Self, Error> {
        let text = "no free port for the broker";
        let port = free_port().map_err(|e| Error::new(Code::Broker, text).with_source(e))?;
        let child = run(folder, port).await?;
        let folder = folder.to_owned();
        Ok(Self {
            folder,
            port,
            child,
        })
    }
}

fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.local_addr().map(|address| address.port())
}

/// Runs a server until its port answers.
async fn run(folder: &Path, port: u16) -> Result<Child, Error> {
    let failed = |text: &str, error| Error::new(Code::Broker, text).with_source(error);
    let file = folder.join("broker.conf");
    let settings = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?} }}\n",
        folder.join("broker")
    );
    let written = std::fs::write(&file, settings);
    written.map_err(|e| failed("could not write the broker's settings", e))?;
    let mut log = File::options();
    let log = log
        .create(true)
        .append(true)
        .open(folder.join("broker.log"));
    let log = log.map_err(|e| failed("could not write the broker's log", e))?;
    let spawned = Command::new("nats-server")
        .arg("-c")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = spawned.map_err(|error| {
        let text = format!(
            "could not start nats-server: install it (https://nats.io/download) into the path, or \
             name a server in {BROKER_URL_VARIABLE}"
        );
        Error::new(Code::Broker, text).with_source(error)
    })?;
    let give_up = Instant::now() + READY_WITHIN;
    loop {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .is_ok()
        {
            return Ok(child);
        }
        let has_ended = child.try_wait().is_ok_and(|status| status.is_some());
        if has_ended || Instant::now() > give_up {
            let log = folder.join("broker.log");
            let text = format!("the broker did not start; see {}", log.display());
            return Err(Error::new(Code::Broker, text));
        }
        tokio::time::sleep(LOOK).await;
    }
}
