//! A receiver of pushes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::place::SOON;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// What the receiver does with a request.
pub(crate) enum Answer {
    Now(Box<Response>),
    /// Keeps the connection and says nothing.
    Never,
}

impl From<StatusCode> for Answer {
    fn from(status: StatusCode) -> Self {
        Self::Now(Box::new(status.into_response()))
    }
}

impl Answer {
    /// A status with a header.
    pub(crate) fn with(status: u16, name: header::HeaderName, value: &str) -> Self {
        let status = StatusCode::from_u16(status).unwrap();
        Self::Now(Box::new((status, [(name, value)]).into_response()))
    }

    /// A status with a body.
    pub(crate) fn saying(status: u16, body: &'static str) -> Self {
        let status = StatusCode::from_u16(status).unwrap();
        Self::Now(Box::new((status, body).into_response()))
    }
}

type Answering = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

#[derive(Clone)]
struct Shared {
    answer: Answering,
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
    /// Answers each request below `/hook` with what `answer` says, and the probe with `happened`.
    pub(crate) async fn start<A: Into<Answer>>(
        answer: impl Fn(&Received) -> A + Send + Sync + 'static,
        happened: bool,
    ) -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let probed = Arc::new(Mutex::new(0));
        let shared = Shared {
            answer: Arc::new(move |received| answer(received).into()),
            sender,
            probed: Arc::clone(&probed),
            happened,
        };
        let router = Router::new()
            .route("/hook", post(take))
            .route("/hook/{name}", post(take))
            .route("/elsewhere", get(take).post(take))
            .route("/probe", get(probe))
            .layer(axum::extract::DefaultBodyLimit::disable())
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

    /// What was received so far.
    pub(crate) fn drain(&mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }

    /// Whether nothing more was received so far.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(shared): State<Shared>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    let received = Received {
        path,
        headers,
        body,
    };
    let answer = (shared.answer)(&received);
    // The test may be over while the last request is still on its way.
    let _ = shared.sender.send(received);
    match answer {
        Answer::Now(response) => *response,
        Answer::Never => std::future::pending().await,
    }
}

async fn probe(State(shared): State<Shared>) -> axum::Json<serde_json::Value> {
    *shared.probed.lock().unwrap() += 1;
    axum::Json(serde_json::json!({ "happened": shared.happened }))
}
