//! Onceward's HTTP API and health endpoints as an axum router: served by `onceward up`, or mounted
//! in a service of your own.
//!
//! | path | what it does |
//! |---|---|
//! | `POST /v1/messages` | accepts CloudEvents: binary, structured, batch |
//! | `GET /v1/operations/{id}` | how far a business operation has come |
//! | `GET /v1/backlog` | how every subscription stands; with a [`Board`] |
//! | `/v1/quarantine` | cases, their causes, and what people do with them; with a [`Desk`] |
//! | `GET /v1/replays`, `GET /v1/replays/{id}` | replay campaigns and their messages; with a [`Board`] |
//! | `GET /livez` | the process answers; asks no database |
//! | `GET /readyz` | the database and the engine are fit for work |
//!
//! Everything but the two probes is guarded: `Host` against a list, requests from other sites
//! refused, and a bearer token once one is configured (see [`Access`]). Errors are RFC 9457
//! problems whose `type` has a page (see [`Code`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::net::SocketAddr;
//!
//! use onceward_console::{Access, Console, Scope, StoreGate, check_exposure};
//!
//! let store = onceward_sqlite::Sqlite::connect("orders.db").await?;
//! let access = Access::default();
//! let access = access.with_token_file("shop", "shop.token".as_ref(), [Scope::Publish])?;
//! let listener = tokio::net::TcpListener::bind("0.0.0.0:8455").await?;
//! check_exposure(listener.local_addr()?, &access)?;
//! let console = Console::new(StoreGate::new(store)).access(access).hosts(["orders.internal"]);
//! let service = console.router().into_make_service_with_connect_info::<SocketAddr>();
//! axum::serve(listener, service).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Serve it with connect information, as above: without a token, a peer that is not on loopback is
//! then refused even where the listener's address was not checked.

mod access;
mod backlog;
mod board;
mod code;
mod desk;
mod gate;
mod guard;
mod health;
mod idempotency;
mod messages;
mod operations;
pub mod overview;
mod problem;
mod quarantine;
mod replays;
mod store_gate;
pub mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};

pub use access::{Access, AccessError, Caller, ExposureError, Scope, check_exposure};
pub use board::{Board, StoreBoard};
pub use code::Code;
pub use desk::{Desk, Payloads, StoreDesk, UnknownPayloads};
pub use gate::{
    BoxFuture, Gate, GateError, NotReady, Outcome, Receipt, Refusal, Submission, SubmissionKey,
};
pub use problem::Problem;
pub use store_gate::StoreGate;

/// Largest request body where nothing else is said: 1 MiB.
pub const BODY_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// What the router is made from.
#[derive(Clone)]
pub struct Console {
    gate: Arc<dyn Gate>,
    desk: Option<Arc<dyn Desk>>,
    board: Option<Arc<dyn Board>>,
    payloads: Arc<dyn Payloads>,
    access: Access,
    hosts: BTreeSet<String>,
    types: Option<BTreeSet<String>>,
    body_bytes_max: usize,
    body_timeout: Duration,
}

impl Console {
    /// Around a gate, with every default: no token, loopback names only, any message type.
    pub fn new(gate: impl Gate) -> Self {
        let hosts = ["localhost", "127.0.0.1", "[::1]"];
        Self {
            gate: Arc::new(gate),
            desk: None,
            board: None,
            payloads: Arc::new(UnknownPayloads),
            access: Access::default(),
            hosts: hosts.into_iter().map(str::to_owned).collect(),
            types: None,
            body_bytes_max: BODY_BYTES_MAX_DEFAULT,
            body_timeout: Duration::from_secs(30),
        }
    }

    /// Serves the quarantine too.
    #[must_use]
    pub fn desk(mut self, desk: impl Desk) -> Self {
        self.desk = Some(Arc::new(desk));
        self
    }

    /// Serves how everything stands, and replay campaigns.
    #[must_use]
    pub fn board(mut self, board: impl Board) -> Self {
        self.board = Some(Arc::new(board));
        self
    }

    /// What of payloads may be shown, and which corrections are taken; by default nothing and any.
    #[must_use]
    pub fn payloads(mut self, payloads: impl Payloads) -> Self {
        self.payloads = Arc::new(payloads);
        self
    }

    /// Who may do what.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Further names, without ports, under which this listener may be asked, beside the loopback
    /// names.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let hosts = hosts.into_iter().map(|h| h.into().to_ascii_lowercase());
        self.hosts.extend(hosts);
        self
    }

    /// Closes the contract: only these message types are accepted.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.types = Some(types.into_iter().map(Into::into).collect());
        self
    }

    /// Largest request body, in bytes.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// How long a body may take to arrive, in milliseconds; 30 s by default.
    #[must_use]
    pub fn body_timeout_ms(mut self, ms: u64) -> Self {
        self.body_timeout = Duration::from_millis(ms);
        self
    }

    /// The router.
    pub fn router(self) -> Router {
        let state = Arc::new(self);
        let quarantine = match state.desk {
            Some(_) => quarantine::routes(),
            None => Router::new(),
        };
        let board = match state.board {
            Some(_) => backlog::routes().merge(replays::routes()),
            None => Router::new(),
        };
        let guarded = Router::new()
            .route("/v1/messages", post(messages::accept))
            .route("/v1/operations/{id}", get(operations::show))
            .merge(quarantine)
            .merge(board)
            .fallback(guard::no_such_path)
            .method_not_allowed_fallback(guard::no_such_method)
            .layer(axum::middleware::from_fn_with_state(
                Arc::clone(&state),
                guard::check,
            ));
        Router::new()
            .route("/livez", get(health::live))
            .route("/readyz", get(health::ready))
            .method_not_allowed_fallback(guard::no_such_method)
            .merge(guarded)
            .layer(axum::middleware::map_response(guard::harden))
            .with_state(state)
    }
}
