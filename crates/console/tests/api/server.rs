//! The router on a socket, onto a store in a folder of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use onceward_console::{Console, StoreGate};
use onceward_core::store::{Log, ReadPage, Schema};
use onceward_core::{Position, Row};
use onceward_sqlite::Sqlite;
use tempfile::TempDir;
use tokio::net::TcpListener;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) store: Sqlite,
    rings: Arc<AtomicUsize>,
    _folder: TempDir,
}

impl Server {
    /// With every default.
    pub(crate) async fn start() -> Self {
        Self::start_with(|console| console).await
    }

    pub(crate) async fn start_with(configure: impl FnOnce(Console) -> Console) -> Self {
        Self::start_onto(|console, _| configure(console)).await
    }

    /// The same, with the store that it is onto.
    pub(crate) async fn start_onto(configure: impl FnOnce(Console, &Sqlite) -> Console) -> Self {
        Self::start_with_gate(|gate| gate, configure).await
    }

    /// The same, with a gate of one's own making.
    pub(crate) async fn start_with_gate(
        gated: impl FnOnce(StoreGate<Sqlite>) -> StoreGate<Sqlite>,
        configure: impl FnOnce(Console, &Sqlite) -> Console,
    ) -> Self {
        let (store, folder) = store().await;
        store.migrate().await.unwrap();
        let rings = Arc::new(AtomicUsize::new(0));
        let ring = Arc::clone(&rings);
        let gate = StoreGate::new(store.clone()).doorbell(move || {
            ring.fetch_add(1, Ordering::SeqCst);
        });
        let router = configure(Console::new(gated(gate)), &store).router();
        Self {
            address: serve(router).await,
            store,
            rings,
            _folder: folder,
        }
    }

    /// What the log holds.
    pub(crate) async fn log(&self) -> Vec<Row> {
        let from = Position::origin(self.store.head().await.unwrap().era);
        let page = self.store.read(ReadPage {
            from: &from,
            rows_max: 10_000,
            bytes_max: u64::MAX,
        });
        page.await.unwrap().rows
    }

    /// How often the doorbell rang.
    pub(crate) fn rings(&self) -> usize {
        self.rings.load(Ordering::SeqCst)
    }
}

/// A store without tables.
pub(crate) async fn store() -> (Sqlite, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.db");
    (
        Sqlite::connect(path.to_string_lossy()).await.unwrap(),
        folder,
    )
}

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}
