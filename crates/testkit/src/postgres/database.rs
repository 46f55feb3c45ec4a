//! A fresh database for each test.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::files::{self, ProcessName};
use super::server::{PostgresOptions, PostgresServer, in_background};

/// Databases of ours start with this; what follows names host, process and number.
const NAME_PREFIX: &str = "onceward_test_";

/// The server of this process, once it is known. A failure is not kept: the next lease tries again.
static SERVER: Mutex<Option<Shared>> = Mutex::new(None);

/// Numbers the databases of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

struct Shared {
    url: String,
    /// Held so that the server lives as long as this process.
    _server: Option<PostgresServer>,
}

/// A database of one test, dropped with this value.
///
/// ```no_run
/// # async fn example() {
/// let database = onceward_testkit::postgres::TestDatabase::lease().await;
/// let url = database.url();
/// # }
/// ```
#[derive(Debug)]
pub struct TestDatabase {
    server_url: String,
    url: String,
    name: String,
}

impl TestDatabase {
    /// Creates an empty database on the server that `ONCEWARD_TEST_POSTGRES` names, or else on one
    /// that this process starts once. Databases that crashed runs left there are dropped.
    ///
    /// # Panics
    /// When there is no PostgreSQL or it refuses; the text says what to do.
    pub async fn lease() -> Self {
        in_background(|| Self::lease_blocking("template0"))
            .await
            .unwrap_or_else(|reason| panic!("no PostgreSQL database for this test: {reason}"))
    }

    /// Creates a database as a copy of this one, to which nobody may be connected meanwhile: a
    /// migrated database is copied faster than it is migrated.
    ///
    /// # Panics
    /// When somebody is connected, or the server refuses.
    pub async fn copy(&self) -> Self {
        let template = self.name.clone();
        in_background(move || Self::lease_blocking(&template))
            .await
            .unwrap_or_else(|reason| panic!("could not copy the database: {reason}"))
    }

    /// URL of the database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// URL of the server's maintenance database, for what concerns the whole server.
    #[must_use]
    pub fn server_url(&self) -> &str {
        &self.server_url
    }

    /// Runs SQL in this database through `psql` and returns what it prints, unaligned and without
    /// headings.
    ///
    /// # Panics
    /// When `psql` is missing or the server refuses; the text holds the server's words.
    pub async fn psql(&self, sql: &str) -> String {
        let (url, sql) = (self.url.clone(), sql.to_owned());
        in_background(move || psql(&url, &sql))
            .await
            .unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// It has another name and stays.
    pub(super) fn forget(mut self) {
        self.name.clear();
    }

    pub(super) fn lease_blocking(template: &str) -> Result<Self, String> {
        let server_url = shared_server()?;
        let me = ProcessName::me();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}_{}_{number}", host_prefix(), me.pid, me.started);
        psql(
            &server_url,
            &format!("create database {name} template {template}"),
        )?;
        Ok(Self {
            url: with_database(&server_url, &name),
            server_url,
            name,
        })
    }
}

/// Drops the database, cutting sessions that are still open. The test does not wait for it, because
/// the server takes its time to clean up after a database.
impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.name.is_empty() {
            return;
        }
        let (server_url, sql) = (self.server_url.clone(), drop_statement(&self.name));
        // What cannot be dropped now is dropped by a later run, or goes with its server.
        let clean_up = move || {
            let _ = psql(&server_url, &sql);
        };
        let _ = std::thread::Builder::new().spawn(clean_up);
    }
}

fn drop_statement(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}

pub(super) fn shared_server() -> Result<String, String> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = shared.as_ref() {
        return Ok(shared.url.clone());
    }
    let found = match std::env::var(super::SERVER_VARIABLE) {
        Ok(url) if !url.is_empty() => {
            psql(&url, "select 1").map_err(|reason| {
                format!(
                    "the server named in {} cannot be used: {reason}",
                    super::SERVER_VARIABLE
                )
            })?;
            drop_leftovers(&url);
            Shared { url, _server: None }
        }
        _ => {
            let server = PostgresServer::start_blocking(PostgresOptions::quick())?;
            Shared {
                url: server.url("postgres"),
                _server: Some(server),
            }
        }
    };
    Ok(shared.insert(found).url.clone())
}

/// Names of databases made on this host start so: process numbers of another host say nothing.
fn host_prefix() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    host.trim().hash(&mut hasher);
    format!("{NAME_PREFIX}{:08x}_", hasher.finish() as u32)
}

/// The process that made a database, by its name.
fn maker_of(name: &str) -> Option<ProcessName> {
    let mut parts = name.strip_prefix(&host_prefix())?.split('_');
    Some(ProcessName {
        pid: parts.next()?.parse().ok()?,
        started: parts.next()?.parse().ok()?,
    })
}

/// Drops databases of this host's processes that are gone.
fn drop_leftovers(server_url: &str) {
    let sql = format!("select datname from pg_database where datname like '{NAME_PREFIX}%'");
    for name in psql(server_url, &sql).unwrap_or_default().lines() {
        if maker_of(name).is_some_and(|maker| !maker.is_running()) {
            let _ = psql(server_url, &drop_statement(name));
        }
    }
}

pub(super) fn psql(url: &str, sql: &str) -> Result<String, String> {
    // The program itself where its place is known: Debian's in the path is a script that looks for
    // it first, which takes longer than most statements.
    let program = files::programs().map(|folder| folder.join("psql")).ok();
    let program = program.filter(|program| program.exists());
    files::run(
        Command::new(program.unwrap_or_else(|| "psql".into()))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--no-password", "--set=ON_ERROR_STOP=1"])
            .arg(format!("--dbname={url}"))
            .arg(format!("--command={sql}")),
    )
    .map_err(|reason| {
        if reason.contains("could not run") {
            format!("{reason}. Install it (Debian: apt-get install postgresql-client)")
        } else {
            reason
        }
    })
}

/// The same URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (address, query) = url
        .split_once('?')
        .map_or((url, None), |(address, query)| (address, Some(query)));
    let authority_at = address.find("://").map_or(0, |at| at + 3);
    let end = address[authority_at..]
        .find('/')
        .map_or(address.len(), |at| authority_at + at);
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{}/{database}{query}", &address[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_in_a_url_is_replaced_and_the_rest_stays() {
        for (url, expected) in [
            ("postgres://u@h:5/db", "postgres://u@h:5/new"),
            ("postgres://h", "postgres://h/new"),
            (
                "postgres://u:p@h/db?sslmode=disable",
                "postgres://u:p@h/new?sslmode=disable",
            ),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }

    #[test]
    fn only_databases_of_processes_that_are_gone_are_leftovers() {
        let me = ProcessName::me();
        let mine = format!("{}{}_{}_0", host_prefix(), me.pid, me.started);
        assert!(maker_of(&mine).is_some_and(ProcessName::is_running));
        let older = format!("{}{}_{}_0", host_prefix(), me.pid, me.started - 1);
        assert!(maker_of(&older).is_some_and(|maker| !maker.is_running()));
        assert!(maker_of("onceward_test_other").is_none());
    }
}
