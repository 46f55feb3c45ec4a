//! The two probes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::Console;
use crate::code::Code;
use crate::problem::Problem;

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
}

/// The process answers. Asks nothing else, so that an outage elsewhere restarts nobody.
pub(crate) async fn live() -> Json<Health> {
    Json(Health { status: "live" })
}

/// Work can be done.
pub(crate) async fn ready(State(console): State<Arc<Console>>) -> Result<Json<Health>, Problem> {
    match console.gate.ready().await {
        Ok(()) => Ok(Json(Health { status: "ready" })),
        Err(found) => {
            let problem = Problem::new(Code::NotReady, found.reason);
            Err(problem.with("check", found.check).retry_after_s(1))
        }
    }
}
