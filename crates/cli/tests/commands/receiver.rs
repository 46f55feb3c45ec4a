//! A receiver of pushes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::place::SOON;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

type Answer = Arc<dyn Fn(&Received) -> StatusCode + Send + Sync>;

#[derive(Clone)]
struct Shared {
    answer: Answer,
    sender: mpsc::UnboundedSender<Received>,
    probed: Arc<Mutex<u32>>,
    happened: bool,
}

/// Listens on loopback for as long as it lives.
pub(crate) struct Receiver {
    address: SocketAddr,
    received: mpsc::UnboundedReceiver<Received>,
    probed: Arc<Mutex<u32>>,
    server: tokio::task::JoinHandle<()>,
}

impl Receiver {
    /// Answers each request with what `answer` says, and the probe with `happened`.
    pub(crate) async fn start(
        answer: impl Fn(&Received) -> StatusCode + Send + Sync + 'static,
        happened: bool,
    ) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let probed = Arc::new(Mutex::new(0));
        let shared = Shared {
            answer: Arc::new(answer),
            sender,
            probed: Arc::clone(&probed),
            happened,
        };
        let router = Router::new()
            .route("/hook", post(take))
            .route("/probe", get(probe))
            .with_state(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            received,
            probed,
            server,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn probe_url(&self) -> String {
        format!("http://{}/probe", self.address)
    }

    /// How often it was probed.
    pub(crate) fn probed(&self) -> u32 {
        *self.probed.lock().unwrap()
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Received {
        let next = tokio::time::timeout(SOON, self.received.recv()).await;
        next.expect("a request in time")
            .expect("the receiver lives")
    }

    /// Asserts that nothing more was received so far.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let received = Received { headers, body };
    let status = (shared.answer)(&received);
    shared.sender.send(received).unwrap();
    status
}

async fn probe(State(shared): State<Shared>) -> axum::Json<serde_json::Value> {
    *shared.probed.lock().unwrap() += 1;
    axum::Json(serde_json::json!({ "happened": shared.happened }))
}
