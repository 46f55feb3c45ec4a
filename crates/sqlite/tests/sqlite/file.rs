//! A file of a test's own, and steps that several tests take.

use onceward_core::store::{
    Append, Begin, Declared, Effects, End, Join, Lanes, Lease, Log, ReadPage, Registered, Schema,
    Start, Take, TakenLane,
};
use onceward_core::{Envelope, Payload, Position, Row, Timestamp};
use onceward_sqlite::{Clock, Sqlite};
use tempfile::TempDir;

pub(crate) const SUB: &str = "fulfilment";
pub(crate) const TYPE: &str = "order.accepted";
pub(crate) const LANES: u16 = 16;
pub(crate) const LEASE_MS: u64 = 60_000;

/// A migrated file in a folder that goes with it.
pub(crate) struct TestFile {
    pub(crate) folder: TempDir,
    pub(crate) clock: Clock,
    pub(crate) store: Sqlite,
}

impl TestFile {
    /// With a clock that stands still.
    pub(crate) async fn new() -> Self {
        let start = Timestamp::from_micros(1_767_268_800_000_000);
        Self::with_clock(Clock::manual(start)).await
    }

    /// With the database's own clock.
    pub(crate) async fn in_real_time() -> Self {
        Self::with_clock(Clock::database()).await
    }

    async fn with_clock(clock: Clock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders.db");
        let store = Sqlite::connect(path.to_string_lossy()).await.unwrap();
        let store = store.with_clock(clock.clone());
        store.migrate().await.unwrap();
        Self {
            folder,
            clock,
            store,
        }
    }

    pub(crate) fn path(&self) -> String {
        let path = self.folder.path().join("orders.db");
        path.to_string_lossy().into_owned()
    }

    pub(crate) fn advance_ms(&self, by_ms: u64) {
        self.clock.advance_ms(i64::try_from(by_ms).unwrap());
    }

    /// Another handle with connections of its own, as another process has.
    pub(crate) async fn second(&self) -> Sqlite {
        let store = Sqlite::connect(self.path()).await.unwrap();
        store.with_clock(self.clock.clone())
    }
}

pub(crate) fn message(id: &str, key: &str) -> Envelope {
    let payload = Payload::Json(format!("{{\"id\":\"{id}\"}}").into());
    Envelope::new(id, "order", key, TYPE, payload)
}

pub(crate) async fn append(store: &Sqlite, envelopes: &[Envelope]) {
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let connection = store.connection(&mut tx);
    store.append(connection, envelopes).await.unwrap();
    store.end(tx, End::Commit).await.unwrap();
}

/// Everything from the beginning.
pub(crate) async fn read_all(store: &Sqlite) -> Vec<Row> {
    let mut at = Position::origin(store.head().await.unwrap().era);
    let mut rows = Vec::new();
    loop {
        let page = store.read(ReadPage {
            from: &at,
            rows_max: 500,
            bytes_max: u64::MAX,
        });
        let page = page.await.unwrap();
        rows.extend(page.rows);
        at = page.next;
        if at.is_boundary() {
            return rows;
        }
    }
}

pub(crate) fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.envelope.id.as_str()).collect()
}

pub(crate) async fn register(store: &Sqlite, subscription: &str) {
    let declared = Declared {
        subscription,
        lanes: LANES,
        types: &[TYPE.to_owned()],
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: onceward_core::store::Terms::default(),
    };
    let registered = store.register(declared).await.unwrap();
    assert_eq!(registered, Registered::New);
}

pub(crate) async fn join(store: &Sqlite, member: &str) -> Lease {
    let join = Join {
        member,
        description: member,
        lease_ms: LEASE_MS,
        subscriptions: &[SUB.to_owned()],
    };
    store.join(join).await.unwrap()
}

pub(crate) async fn take_all(store: &Sqlite, lease: &Lease) -> Vec<TakenLane> {
    let lanes: Vec<u16> = (0..LANES).collect();
    let take = Take {
        lease,
        subscription: SUB,
        lanes: &lanes,
    };
    store.take(take).await.unwrap()
}
