//! Where the demo runs: a new folder, and a store that nobody else uses.

use std::path::{Path, PathBuf};

use onceward_orders::part::is_postgres;
use onceward_orders::shop::TABLE_NAMES;
use onceward_postgres::connect_options;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use url::Url;

use super::scenario::depot::DEPOT_TABLES;
use crate::error::{Code, EXIT_USAGE, Error};
use crate::store::refuse_lent_sessions;
use crate::store_url;

/// Whether the database is one that others use.
const IN_USE: &str = "SELECT to_regnamespace('onceward') IS NOT NULL \
    OR to_regclass('shop_orders') IS NOT NULL OR to_regclass('depot_scans') IS NOT NULL";

/// What is to be removed beside the folder.
#[derive(Debug)]
enum Made {
    /// Nothing: the store is a file in the folder.
    Nothing,
    /// A SQLite file that was named.
    File(PathBuf),
    /// A database of its own on the server at `admin`.
    Database { admin: String, name: String },
    /// Tables in a database that was empty of them.
    Tables,
}

/// Where everything of one run is.
#[derive(Debug)]
pub(super) struct Place {
    /// Records and logs.
    pub(super) folder: PathBuf,
    /// The store; may hold a password.
    pub(super) url: String,
    /// The store of fulfilment, where it is a service of its own; may hold a password.
    pub(super) other_url: Option<String>,
    made: Made,
}

impl Place {
    /// Makes a new folder; and where `store` names a PostgreSQL server, a database of its own
    /// there, or tables in the named database when it may not make one.
    pub(super) async fn make(store: Option<&str>) -> Result<Self, Error> {
        let suffix: String = std::iter::repeat_with(fastrand::lowercase)
            .take(8)
            .collect();
        let folder = std::env::temp_dir().join(format!("onceward-demo-{suffix}"));
        let text = format!("could not make {}", folder.display());
        let folder_made = std::fs::create_dir(&folder);
        folder_made.map_err(|e| Error::new(Code::Demo, text).with_source(e))?;
        let made = match store {
            Some(url) if is_postgres(url) => on_server(url, &suffix).await,
            Some(url) => new_file(url).map(|path| (url.to_owned(), Made::File(path))),
            None => {
                let url = format!("sqlite:{}", folder.join("orders.db").display());
                Ok((url, Made::Nothing))
            }
        };
        match made {
            Ok((url, made)) => Ok(Self {
                folder,
                url,
                other_url: None,
                made,
            }),
            Err(error) => {
                // Empty still; should it stay, it does no harm.
                let _ = std::fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    /// Makes a second store for the other service.
    pub(super) async fn divide(&mut self) -> Result<(), Error> {
        let url = match &self.made {
            Made::Nothing | Made::File(_) => {
                format!("sqlite:{}", self.folder.join("fulfilment.db").display())
            }
            Made::Database { admin, name } => {
                let name = other_of(name);
                run(admin, &[format!("CREATE DATABASE {name}")]).await?;
                let mut url = Url::parse(admin).map_err(|error| {
                    let text = "the address of the server cannot be read";
                    Error::new(Code::StoreUrl, text).with_source(error)
                })?;
                url.set_path(&name);
                url.to_string()
            }
            Made::Tables => {
                let text = "two services have a database each, and this role may not make any: \
                            name a role that may, or none for SQLite";
                return Err(Error::new(Code::Demo, text).with_exit(EXIT_USAGE));
            }
        };
        self.other_url = Some(url);
        Ok(())
    }

    /// The client's record.
    pub(super) fn answers(&self) -> PathBuf {
        self.folder.join("answers.jsonl")
    }

    /// The carrier's record.
    pub(super) fn carrier_record(&self) -> PathBuf {
        self.folder.join("carrier.jsonl")
    }

    /// Where the carrier says where it is.
    pub(super) fn carrier_address(&self) -> PathBuf {
        self.folder.join("carrier.address")
    }

    /// Removes what was made.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        match &self.made {
            Made::Nothing => {}
            Made::File(path) => remove_sqlite(path)?,
            Made::Database { admin, name } => {
                let names = [name.clone(), other_of(name)];
                let drop = names.map(|name| format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
                run(admin, &drop).await?;
            }
            Made::Tables => {
                let mut statements = vec!["DROP SCHEMA IF EXISTS onceward CASCADE".to_owned()];
                let tables = TABLE_NAMES.iter().chain(&DEPOT_TABLES);
                statements.extend(tables.map(|table| format!("DROP TABLE IF EXISTS {table}")));
                run(&self.url, &statements).await?;
            }
        }
        let text = format!("could not remove {}", self.folder.display());
        let removed = std::fs::remove_dir_all(&self.folder);
        removed.map_err(|e| Error::new(Code::Demo, text).with_source(e))
    }
}

/// Name of the other service's database.
fn other_of(name: &str) -> String {
    format!("{name}_fulfilment")
}

/// A named file must be a new one: everything in it is the demo's.
fn new_file(url: &str) -> Result<PathBuf, Error> {
    store_url::check(url).map_err(|e| Error::new(Code::StoreUrl, e).with_exit(EXIT_USAGE))?;
    let path = PathBuf::from(store_url::sqlite_path(url).unwrap_or_default());
    if path.exists() {
        let text = format!(
            "{} is there already: the demo fills a store with made-up orders and wants a new file",
            path.display()
        );
        return Err(Error::new(Code::Demo, text).with_exit(EXIT_USAGE));
    }
    Ok(path)
}

fn remove_sqlite(path: &Path) -> Result<(), Error> {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let text = format!("could not remove {}", Path::new(&name).display());
                return Err(Error::new(Code::Demo, text).with_source(error));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn on_server(url: &str, suffix: &str) -> Result<(String, Made), Error> {
    let mut connection = connect(url).await?;
    refuse_lent_sessions(url).await?;
    let name = format!("onceward_demo_{suffix}");
    let create = sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")));
    let created = create.execute(&mut connection).await;
    let own = Url::parse(url).map(|mut own| {
        own.set_path(&name);
        own.to_string()
    });
    match (created, own) {
        (Ok(_), Ok(own)) => {
            let admin = url.to_owned();
            return Ok((own, Made::Database { admin, name }));
        }
        (Ok(_), Err(error)) => {
            let text = "the address of the server cannot be read";
            return Err(Error::new(Code::StoreUrl, text).with_source(error));
        }
        // Not allowed to: the named database, if it is free.
        (Err(_), _) => {}
    }
    let in_use = sqlx::query_scalar(IN_USE).fetch_one(&mut connection).await;
    if in_use.map_err(|e| unavailable(url, e))? {
        let text = format!(
            "{} has tables of Onceward already, and this role may not make a database for the \
             demo: name an empty one",
            store_url::redact(url)
        );
        return Err(Error::new(Code::Demo, text).with_exit(EXIT_USAGE));
    }
    Ok((url.to_owned(), Made::Tables))
}

async fn run(url: &str, statements: &[String]) -> Result<(), Error> {
    let mut connection = connect(url).await?;
    for statement in statements {
        let query = sqlx::raw_sql(AssertSqlSafe(statement.as_str()));
        let done = query.execute(&mut connection).await;
        done.map_err(|e| unavailable(url, e))?;
    }
    Ok(())
}

async fn connect(url: &str) -> Result<PgConnection, Error> {
    let target = connect_options(url).map_err(|e| Error::store(url, &e))?;
    let connecting = PgConnection::connect_with(&target);
    let connected = tokio::time::timeout(std::time::Duration::from_secs(10), connecting).await;
    match connected {
        Ok(connected) => connected.map_err(|e| unavailable(url, e)),
        Err(_) => {
            let text = format!("no answer from {} within 10 s", store_url::redact(url));
            Err(Error::new(Code::StoreUnavailable, text))
        }
    }
}

fn unavailable(url: &str, error: sqlx::Error) -> Error {
    let text = format!("could not work with {}", store_url::redact(url));
    Error::new(Code::StoreUnavailable, text).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_new_and_leaves_nothing() {
        let place = Place::make(None).await.unwrap();
        assert!(place.folder.is_dir() && place.url.starts_with("sqlite:"));
        let other = Place::make(None).await.unwrap();
        assert_ne!(place.folder, other.folder);
        other.clear().await.unwrap();
        place.clear().await.unwrap();
        assert!(!place.folder.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_there_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.db");
        std::fs::write(&path, "mine").unwrap();
        let error = Place::make(Some(&format!("sqlite:{}", path.display())))
            .await
            .unwrap_err();
        assert_eq!(error.exit(), EXIT_USAGE);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
