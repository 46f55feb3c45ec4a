//! Opening the store that the command line or the configuration names.

use std::path::Path;
use std::time::Duration;

use onceward_core::store::{Schema, SchemaState, StoreError, StoreErrorKind};
use onceward_postgres::{Postgres, connect_options};
use onceward_sqlite::Sqlite;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::cli::Global;
use crate::config::{Config, StoreUrl};
use crate::error::{Code, EXIT_SCHEMA, EXIT_USAGE, Error};
use crate::store_url::{self, StoreKind};

/// How long a first connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// What is attempted with it.
const CONNECT: &str = "connect to the database";

/// Which store, with what is configured of it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address; may hold a password.
    pub url: String,
    /// The source of messages that name none.
    pub source: Option<String>,
    /// Most effect transactions at once.
    pub connections_max: Option<u32>,
}

impl Target {
    /// What `--store` names, else what the configuration names.
    ///
    /// # Errors
    /// When neither can be read, or the address names no store.
    pub fn of(global: &Global) -> Result<Self, Error> {
        match &global.store {
            Some(url) => Self::at(url),
            None => Self::configured(&Config::load(&global.config)?),
        }
    }

    /// The configured one, with `--store` in the place of its address.
    ///
    /// # Errors
    /// When the address cannot be read or names no store.
    pub fn of_config(global: &Global, config: &Config) -> Result<Self, Error> {
        let mut target = match &global.store {
            Some(url) => Self::at(url)?,
            None => Self::configured(config)?,
        };
        target.source.clone_from(&config.store.source);
        target.connections_max = config.store.connections_max;
        Ok(target)
    }

    fn at(url: &str) -> Result<Self, Error> {
        store_url::check(url).map_err(|problem| Error::new(Code::StoreUrl, problem))?;
        Ok(Self {
            url: url.to_owned(),
            source: None,
            connections_max: None,
        })
    }

    fn configured(config: &Config) -> Result<Self, Error> {
        let mut target = match &config.store.url {
            StoreUrl::Plain(url) => Self::at(url)?,
            StoreUrl::Secret(source) => {
                let url = source.read()?;
                Self::at(&store_url::relative_to(url.reveal(), config.folder()))?
            }
        };
        target.source.clone_from(&config.store.source);
        target.connections_max = config.store.connections_max;
        Ok(target)
    }

    /// Which kind of store it is.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        store_url::check(&self.url).unwrap_or(StoreKind::Sqlite)
    }

    /// Opens the store. A SQLite file that is not there is made only with `create`.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn open(&self, create: bool) -> Result<Store, Error> {
        if let Some(path) = store_url::sqlite_path(&self.url)
            && !create
            && !Path::new(path).exists()
        {
            let message = format!("could not open the SQLite file {path}: there is none");
            return Err(Error::new(Code::StoreUnavailable, message));
        }
        let opened = match self.kind() {
            StoreKind::Sqlite => Sqlite::connect(&self.url).await.map(|store| {
                Store::Sqlite(match &self.source {
                    Some(source) => store.with_source(source.as_str()),
                    None => store,
                })
            }),
            StoreKind::Postgres => self.postgres().await.map(Store::Postgres),
        };
        opened.map_err(|error| Error::store(&self.url, &error))
    }

    /// Tries one connection first: a pool goes on trying, and then says only that it gave up.
    async fn postgres(&self) -> Result<Postgres, StoreError> {
        let target = connect_options(&self.url)?;
        let connecting = PgConnection::connect_with(&target);
        let connected = tokio::time::timeout(CONNECT_WITHIN, connecting).await;
        let connection = connected.map_err(|_| no_answer())?.map_err(unconnected)?;
        // What matters is that it could be opened.
        let _ = connection.close().await;
        let mut options = onceward_postgres::Options::default();
        if let Some(most) = self.connections_max {
            options.effect_connections = most;
        }
        let store = Postgres::connect_with(&self.url, options).await?;
        Ok(match &self.source {
            Some(source) => store.with_source(source.as_str()),
            None => store,
        })
    }
}

/// Refuses a pooler that lends sessions, for a command whose own statements are prepared to stay.
///
/// # Errors
/// When there is one, or the server cannot be reached.
pub async fn refuse_lent_sessions(url: &str) -> Result<(), Error> {
    let look = async {
        let store = Postgres::connect(url).await?;
        let pooler = store.pooler().await;
        store.close().await;
        pooler
    };
    let pooler = look.await.map_err(|error| Error::store(url, &error))?;
    if pooler.keeps_statements() {
        return Ok(());
    }
    let text = format!(
        "{} leads to a pooler that may lend sessions for single transactions, where what this \
         command prepares would be lost: name the server itself",
        store_url::redact(url)
    );
    Err(Error::new(Code::StoreUrl, text).with_exit(EXIT_USAGE))
}

fn no_answer() -> StoreError {
    let message = format!("no answer within {} s", CONNECT_WITHIN.as_secs());
    StoreError::found(StoreErrorKind::Unavailable, CONNECT, message)
}

fn unconnected(error: sqlx::Error) -> StoreError {
    let kind = match &error {
        sqlx::Error::Database(refusal) => match refusal.code().as_deref() {
            // Starting, stopping, or without a free connection; a pooler that cannot reach it.
            Some("57P01" | "57P02" | "57P03" | "53300" | "08P01") => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Denied,
        },
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, CONNECT, error)
}

/// A store of either kind.
#[derive(Clone, Debug)]
pub enum Store {
    /// PostgreSQL.
    Postgres(Postgres),
    /// SQLite.
    Sqlite(Sqlite),
}

impl Store {
    /// Closes all connections.
    pub async fn close(&self) {
        match self {
            Self::Postgres(store) => store.close().await,
            Self::Sqlite(store) => store.close().await,
        }
    }
}

/// A store with its address, for what goes wrong.
#[derive(Debug)]
pub struct Opened<'a, S> {
    /// The store.
    pub store: &'a S,
    /// Its address; may hold a password.
    pub url: &'a str,
}

impl<S> Clone for Opened<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Opened<'_, S> {}

impl<S> Opened<'_, S> {
    /// Names the store in an error.
    ///
    /// # Errors
    /// The same, as a command's error.
    pub fn check<T>(&self, result: Result<T, StoreError>) -> Result<T, Error> {
        result.map_err(|error| Error::store(self.url, &error))
    }
}

impl<S: Schema> Opened<'_, S> {
    /// Brings the tables up to date. Those of a newer program are left alone.
    ///
    /// # Errors
    /// When they are a newer program's, or the store refuses.
    pub async fn migrate(&self) -> Result<SchemaState, Error> {
        match self.store.migrate().await {
            Ok(state) => Ok(state),
            // What the store refuses for its tables is said like everywhere else.
            Err(error) if error.kind() == StoreErrorKind::Schema => {
                let state = self.check(self.store.schema_state().await)?;
                match state {
                    SchemaState::Ahead { .. } => fits(self.url, &state).map(|()| state),
                    _ => self.check(Err(error)),
                }
            }
            Err(error) => self.check(Err(error)),
        }
    }

    /// Refuses a store whose tables do not fit this program.
    ///
    /// # Errors
    /// When they do not, or the store cannot be asked.
    pub async fn require_current(&self) -> Result<(), Error> {
        let state = self.check(self.store.schema_state().await)?;
        fits(self.url, &state)
    }
}

/// Whether tables fit this program.
fn fits(url: &str, state: &SchemaState) -> Result<(), Error> {
    let shown = store_url::redact(url);
    let error = match state {
        SchemaState::Current { .. } => return Ok(()),
        SchemaState::Missing => Error::new(
            Code::SchemaBehind,
            format!("{shown} has no tables of Onceward yet: run `onceward migrate`"),
        ),
        SchemaState::Behind { version, needed } => Error::new(
            Code::SchemaBehind,
            format!(
                "the tables in {shown} have version {version}, this program needs {needed}: run \
                 `onceward migrate`"
            ),
        ),
        SchemaState::Ahead { version, known } => Error::new(
            Code::SchemaAhead,
            format!(
                "the tables in {shown} have version {version}, this program knows only {known}: \
                 update onceward"
            ),
        ),
    };
    Err(error.with_exit(EXIT_SCHEMA))
}

/// Runs a body with the store inside, whichever kind it is.
macro_rules! with_store {
    ($store:expr, $url:expr, $opened:ident => $body:expr) => {
        match $store {
            $crate::store::Store::Postgres(store) => {
                let $opened = $crate::store::Opened { store, url: $url };
                $body
            }
            $crate::store::Store::Sqlite(store) => {
                let $opened = $crate::store::Opened { store, url: $url };
                $body
            }
        }
    };
}
pub(crate) use with_store;
