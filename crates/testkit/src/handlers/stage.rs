//! A store with subscriptions, for one test.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use onceward::core::store::{Append, Begin, Effects, End, Store};
use onceward::{Envelope, Message, Start, Subscription, envelope_of};

use super::fault::Fault;
use super::record::{Planned, Record};
use super::summary::{Summary, summarise};
use crate::clock::SimClock;
use crate::memory::MemoryStore;

/// A store of a test's own with subscriptions on it. Nothing runs until the test says so, and then
/// the real engine runs it.
pub struct Stage<S: Store> {
    pub(super) store: S,
    pub(super) subscriptions: Vec<Subscription<S>>,
    pub(super) record: Arc<Record>,
    pub(super) patience: Duration,
    pub(super) horizon: Duration,
    advance: Box<dyn Fn(u64) + Send + Sync>,
    pub(super) passed_ms: u64,
    /// To be appended once more when everything is handled.
    pub(super) late: Vec<Envelope>,
    /// What has to live as long as the store: a folder, a database.
    _keep: Option<Box<dyn Any + Send>>,
}

impl Stage<MemoryStore> {
    /// On a store in memory: for handlers that are written for any store, or for
    /// [`MemoryStore`].
    pub async fn memory() -> Self {
        let clock = SimClock::default();
        let store = MemoryStore::new(clock.clone());
        Self::new(store, move |ms| clock.advance_ms(ms)).await
    }
}

#[cfg(feature = "sqlite")]
impl Stage<onceward::sqlite::Sqlite> {
    /// On a SQLite file of its own, which goes with the stage.
    ///
    /// # Panics
    /// When the file cannot be made.
    pub async fn sqlite() -> Self {
        use onceward::sqlite::{Clock, Sqlite};
        // In memory where there is such a place: a test's file does not have to outlive the machine.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a folder for a test's SQLite file");
        let clock = Clock::manual(SimClock::default().now());
        let path = folder.path().join("test.db");
        let store = Sqlite::connect(path.to_string_lossy())
            .await
            .expect("a SQLite file of a test's own can be opened")
            .with_clock(clock.clone());
        let advance = move |ms| clock.advance_ms(i64::try_from(ms).unwrap_or(i64::MAX));
        Self {
            _keep: Some(Box::new(folder)),
            ..Self::new(store, advance).await
        }
    }
}

#[cfg(feature = "postgres")]
impl Stage<onceward::postgres::Postgres> {
    /// On a PostgreSQL database of its own, which goes with the stage; see
    /// [`TestDatabase`](crate::postgres::TestDatabase) for the server.
    ///
    /// # Panics
    /// When there is no server.
    pub async fn postgres() -> Self {
        use onceward::postgres::{Clock, Options, Postgres};
        let database = crate::postgres::TestDatabase::lease().await;
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        let now = now.map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(0));
        let clock = Clock::fixed(onceward::Timestamp::from_micros(now));
        let options = Options {
            effect_connections: 6,
            read_connections: 3,
            ..Options::default()
        };
        let store = Postgres::connect_with(database.url(), options)
            .await
            .expect("a database of a test's own can be reached")
            .with_clock(clock.clone());
        Self {
            _keep: Some(Box::new(database)),
            ..Self::new(store, move |ms| clock.advance_ms(ms)).await
        }
    }
}

impl<S: Store> Stage<S> {
    /// On an empty store of the test's own. `advance` moves the clock that the store goes by on by
    /// so many milliseconds; the clock must otherwise stand still.
    ///
    /// # Panics
    /// When the store cannot be migrated.
    pub async fn new(store: S, advance: impl Fn(u64) + Send + Sync + 'static) -> Self {
        store
            .migrate()
            .await
            .expect("a store of a test's own can be migrated");
        Self {
            store,
            subscriptions: Vec::new(),
            record: Arc::default(),
            patience: Duration::from_secs(60),
            horizon: Duration::from_secs(60 * 86_400),
            advance: Box::new(advance),
            passed_ms: 0,
            late: Vec::new(),
            _keep: None,
        }
    }

    pub(super) fn recorded_by(self, record: Arc<Record>) -> Self {
        Self { record, ..self }
    }

    /// Adds a subscription. It starts with the first message of the stage.
    pub fn subscribe(&mut self, subscription: Subscription<S>) -> &mut Self {
        self.subscriptions.push(subscription.start(Start::Earliest));
        self
    }

    /// Lets something go wrong the next time that it can.
    pub fn fault(&mut self, fault: Fault) -> &mut Self {
        self.record.plan(Planned {
            fault,
            place: None,
            nth: 1,
        });
        self
    }

    /// The longest that a [`drain`](Self::drain) may take in real time before it fails; a minute
    /// unless set.
    pub fn patience(&mut self, patience: Duration) -> &mut Self {
        self.patience = patience;
        self
    }

    /// The most time that may pass on the store's clock in one [`drain`](Self::drain) before it
    /// fails: what takes longer has no end. Sixty days unless set.
    pub fn horizon(&mut self, horizon: Duration) -> &mut Self {
        self.horizon = horizon;
        self
    }

    /// The store, for the test's own tables and questions.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Appends a message, committed, and returns its id.
    ///
    /// # Panics
    /// When it does not serialise or the store refuses.
    pub async fn append<M: Message>(&mut self, message: &M) -> String {
        let envelope = envelope_of(message);
        let envelope = envelope.unwrap_or_else(|error| panic!("cannot append: {error}"));
        let id = envelope.id.clone();
        self.append_envelope(envelope).await;
        id
    }

    /// Appends an envelope as it is, committed.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn append_envelope(&mut self, envelope: Envelope) {
        let (is_twice, is_again) = self.record.appended();
        self.write(&envelope).await;
        if is_twice {
            self.write(&envelope).await;
        }
        if is_again {
            self.late.push(envelope);
        }
    }

    pub(super) async fn write(&self, envelope: &Envelope) {
        let appended = async {
            let mut tx = self.store.begin(Begin { lease: None }).await?;
            let connection = Effects::connection(&self.store, &mut tx);
            Append::append(&self.store, connection, std::slice::from_ref(envelope)).await?;
            self.store.end(tx, End::Commit).await
        };
        let appended = appended.await;
        appended.unwrap_or_else(|error| panic!("cannot append {}: {error}", envelope.id));
    }

    /// Lets time pass on the store's clock.
    pub fn pass(&mut self, time: Duration) -> &mut Self {
        self.pass_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        (self.advance)(ms);
        self.passed_ms = self.passed_ms.saturating_add(ms);
    }

    pub(super) fn names(&self) -> Vec<String> {
        let subscriptions = self.subscriptions.iter();
        subscriptions.map(|s| s.name().to_owned()).collect()
    }

    /// What has become of each message so far.
    ///
    /// # Panics
    /// When the store cannot be asked.
    pub async fn summary(&self) -> Summary {
        let lines = self.record.state().lines.clone();
        let summary = summarise(&self.store, &self.names(), &lines, self.passed_ms).await;
        let summary = summary.unwrap_or_else(|error| panic!("cannot ask the store: {error}"));
        self.record.state().last_summary = summary.to_string();
        summary
    }
}
