//! Where the torture takes place: a database, a folder of records, and what can be done to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onceward::core::store::Schema;
use onceward::postgres::Postgres;
use onceward::sqlite::Sqlite;
use onceward_testkit::postgres::{PostgresOptions, PostgresServer};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

use super::disk::Disk;
use crate::processes::is_postgres;
use crate::tables::{ON_POSTGRES, ON_SQLITE};
use crate::trouble::{Trouble, while_doing};

/// Connections of a server of ours.
const CONNECTIONS: u32 = 90;

/// What a kept folder says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The database.
    pub store: String,
    /// Epochs with the sequence that the log had before each.
    pub epochs: Vec<(String, i64)>,
}

/// Servers that are ours.
pub(super) struct Servers {
    pub(super) primary: PostgresServer,
    pub(super) standby: PostgresServer,
}

/// The database and what belongs to it.
pub(super) struct Place {
    /// `postgres` or `sqlite`.
    pub(super) kind: &'static str,
    /// For the driver and the checker.
    pub(super) url: String,
    /// Dropped before the disk is unmounted.
    pub(super) servers: Option<Servers>,
    /// The server's maintenance database and ours on it, when the server is somebody's.
    guest: Option<(String, String)>,
    pub(super) disk: Option<Disk>,
    folder: TempDir,
}

impl Place {
    /// Makes the database that `store` names, with all tables.
    pub(super) async fn make(store: &str) -> Result<Self, Trouble> {
        let folder = tempfile::Builder::new()
            .prefix("onceward-torture-")
            .tempdir();
        let folder = folder.map_err(while_doing("make a folder"))?;
        open_to_all(folder.path())?;
        let place = match store {
            "postgres" => Self::own_server(folder).await?,
            url if is_postgres(url) => Self::guest_of(url, folder).await?,
            _ => Self::file(store, folder)?,
        };
        if place.kind == "postgres" {
            let store = Postgres::connect(&place.url).await;
            let store = store.map_err(while_doing("connect"))?;
            store.migrate().await.map_err(while_doing("migrate"))?;
            let made = sqlx::raw_sql(ON_POSTGRES).execute(store.pool()).await;
            made.map_err(while_doing("make tables"))?;
            store.close().await;
        } else {
            let store = Sqlite::connect(&place.url).await;
            let store = store.map_err(while_doing("open the file"))?;
            store.migrate().await.map_err(while_doing("migrate"))?;
            let made = sqlx::raw_sql(ON_SQLITE).execute(store.pool()).await;
            made.map_err(while_doing("make tables"))?;
            store.close().await;
        }
        Ok(place)
    }

    async fn own_server(folder: TempDir) -> Result<Self, Trouble> {
        let disk = Disk::mount(&folder.path().join("disk")).ok();
        if let Some(disk) = &disk {
            // Both servers live on it. There is one torture in a process.
            let _ = tempfile::env::override_temp_dir(disk.path());
        }
        let options = PostgresOptions::default()
            .with_setting("max_connections", CONNECTIONS.to_string())
            .with_setting("wal_level", "replica");
        let primary = PostgresServer::start_with(options).await;
        let standby = primary.standby().await;
        Ok(Self {
            kind: "postgres",
            url: primary.url("postgres"),
            servers: Some(Servers { primary, standby }),
            guest: None,
            disk,
            folder,
        })
    }

    async fn guest_of(server: &str, folder: TempDir) -> Result<Self, Trouble> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_err(while_doing("tell the time"))?.as_millis();
        let name = format!("onceward_torture_{}_{now}", std::process::id());
        run_sql(server, format!("CREATE DATABASE {name}")).await?;
        Ok(Self {
            kind: "postgres",
            url: with_database(server, &name),
            servers: None,
            guest: Some((server.to_owned(), name)),
            disk: None,
            folder,
        })
    }

    fn file(store: &str, folder: TempDir) -> Result<Self, Trouble> {
        let named = store
            .strip_prefix("sqlite:")
            .filter(|path| !path.is_empty());
        let disk = match named {
            Some(_) => None,
            None => Disk::mount(&folder.path().join("disk")).ok(),
        };
        let path = match (named, &disk) {
            (Some(path), _) => PathBuf::from(path),
            (None, Some(disk)) => disk.path().join("torture.db"),
            (None, None) => folder.path().join("torture.db"),
        };
        if path.exists() {
            let text = format!("{} is there already", path.display());
            return Err(Trouble::new(text));
        }
        Ok(Self {
            kind: "sqlite",
            url: format!("sqlite://{}", path.display()),
            servers: None,
            guest: None,
            disk,
            folder,
        })
    }

    /// Folder of all records.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the database listens; none for a file.
    pub(super) fn upstream(&self) -> Result<Option<SocketAddr>, Trouble> {
        if self.kind != "postgres" {
            return Ok(None);
        }
        let authority = self.url.split("://").nth(1).unwrap_or_default();
        let authority = authority.split('/').next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = if host.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:5432")
        };
        let mut found = std::net::ToSocketAddrs::to_socket_addrs(&host)
            .map_err(while_doing("find the server"))?;
        Ok(found.next())
    }

    /// The database's address as seen through a port of ours.
    pub(super) fn url_through(&self, port: u16) -> String {
        let (scheme, rest) = self
            .url
            .split_once("://")
            .unwrap_or(("postgres", &self.url));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let user = authority
            .rsplit_once('@')
            .map_or(String::new(), |(user, _)| format!("{user}@"));
        format!("{scheme}://{user}127.0.0.1:{port}/{path}")
    }

    /// Writes what a later look at the folder needs.
    pub(super) fn note(&self, epochs: &[(String, i64)]) -> Result<(), Trouble> {
        let kept = Kept {
            store: self.url.clone(),
            epochs: epochs.to_vec(),
        };
        let text = serde_json::to_string(&kept).map_err(while_doing("describe the place"))?;
        let path = self.folder().join("place.json");
        std::fs::write(path, text).map_err(while_doing("describe the place"))
    }

    /// Keeps everything for a later look, and says where. A server of ours ends with this process:
    /// what it holds is kept as a dump.
    pub(super) fn keep(mut self) -> String {
        let folder = self.folder.path().to_owned();
        let dump = folder.join("database.sql");
        if let Some(servers) = &self.servers {
            let dumped = std::process::Command::new(servers.primary.programs().join("pg_dump"))
                .arg(format!("--dbname={}", self.url))
                .arg(format!("--file={}", dump.display()))
                .status();
            if !dumped.is_ok_and(|status| status.success()) {
                eprintln!("the database could not be dumped");
            }
        }
        if let (None, Some(disk)) = (&self.servers, &self.disk) {
            for name in ["torture.db", "torture.db-wal"] {
                let _ = std::fs::copy(disk.path().join(name), folder.join(name));
            }
            let store = format!("sqlite://{}", folder.join("torture.db").display());
            self.renote(store);
        }
        let guest = self.guest.take();
        self.folder.disable_cleanup(true);
        match guest {
            Some((server, name)) => format!("{}, database {name} on {server}", folder.display()),
            None => folder.display().to_string(),
        }
    }

    /// Says where the database is now.
    fn renote(&self, store: String) {
        let path = self.folder().join("place.json");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(kept) = serde_json::from_str::<Kept>(&text) {
            let text = serde_json::to_string(&Kept { store, ..kept }).unwrap_or(text);
            let _ = std::fs::write(path, text);
        }
    }

    /// Leaves nothing behind.
    pub(super) async fn remove(mut self) -> Result<(), Trouble> {
        if let Some((server, name)) = self.guest.take() {
            run_sql(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        }
        Ok(())
    }
}

/// Opens connections to a server until it refuses, and keeps them.
pub(super) async fn take_all_connections(url: &str) -> Vec<PgConnection> {
    let mut taken = Vec::new();
    while taken.len() < CONNECTIONS as usize {
        let open = tokio::time::timeout(Duration::from_secs(1), PgConnection::connect(url)).await;
        match open {
            Ok(Ok(connection)) => taken.push(connection),
            _ => break,
        }
    }
    taken
}

async fn run_sql(url: &str, sql: String) -> Result<(), Trouble> {
    let mut connection = PgConnection::connect(url)
        .await
        .map_err(while_doing("connect"))?;
    let ran = sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await;
    ran.map(|_| ())
        .map_err(while_doing("make or drop a database"))
}

fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let authority = rest.split('/').next().unwrap_or_default();
    format!("{scheme}://{authority}/{name}")
}

/// The server's own account has to reach the volume below.
fn open_to_all(folder: &Path) -> Result<(), Trouble> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, mode).map_err(while_doing("make a folder"))
}
