//! `GET /v1/backlog`: how every subscription stands.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::Value;

use crate::access::{Caller, Scope};
use crate::board::{Board, now};
use crate::code::Code;
use crate::gate::GateError;
use crate::messages::failed;
use crate::overview::{KEYS_MAX_DEFAULT, OverviewQuery, WAITING_COUNTED_MAX};
use crate::problem::Problem;
use crate::{Console, guard};

/// Most keys in an answer for each subscription.
const KEYS_MAX: u32 = 1_000;

/// The route, for a console with a board.
pub(crate) fn routes() -> Router<Arc<Console>> {
    Router::new().route("/v1/backlog", get(show))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    subscription: Option<String>,
    count_max: Option<u64>,
    keys_max: Option<u32>,
}

async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    options: Result<Query<Options>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let unreadable = |detail: String| Problem::new(Code::AddressUnreadable, detail);
    let Query(options) = options.map_err(|rejection| unreadable(rejection.body_text()))?;
    let query = OverviewQuery {
        subscription: options.subscription.as_deref(),
        count_max: options.count_max.unwrap_or(WAITING_COUNTED_MAX),
        keys_max: options.keys_max.unwrap_or(KEYS_MAX_DEFAULT),
    };
    // More would make others wait for the database.
    if query.count_max > WAITING_COUNTED_MAX {
        return Err(unreadable(format!(
            "count_max is 0 to {WAITING_COUNTED_MAX}"
        )));
    }
    if query.keys_max > KEYS_MAX {
        return Err(unreadable(format!("keys_max is 0 to {KEYS_MAX}")));
    }
    let overview = board(&console)?.overview(query).await;
    let overview = overview.map_err(|error| failed(GateError::Store(error)))?;
    if query.subscription.is_some() && overview.subscriptions.is_empty() {
        let detail = "no subscription of this name is registered";
        return Err(Problem::new(Code::NoSubscription, detail));
    }
    Ok(Json(overview.json(now())))
}

/// The board behind it.
pub(crate) fn board(console: &Console) -> Result<&dyn Board, Problem> {
    let missing = || Problem::new(Code::NoPath, "this listener does not say how things stand");
    console.board.as_deref().ok_or_else(missing)
}
