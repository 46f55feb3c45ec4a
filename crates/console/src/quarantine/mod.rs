//! `/v1/quarantine`: cases, their causes, and what people do with them.

mod act;
mod filter;

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use onceward_core::store::{Case, CaseQuery, GroupQuery, HistoryQuery, StoreError, StoreErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Caller, Scope};
use crate::board::now;
use crate::code::Code;
use crate::desk::Desk;
use crate::gate::GateError;
use crate::messages::failed;
use crate::problem::Problem;
use crate::view::{CaseView, entry_json};
use crate::{Console, guard};

use filter::Filter;

/// Most rows of a case's history in an answer.
const HISTORY_MAX: u32 = 1_000;
/// Most groups where nothing else is said.
const GROUPS_DEFAULT: u32 = 100;
/// Most cases or groups in one answer.
const ROWS_MAX: u32 = 1_000;

/// The routes, for a console with a desk.
pub(crate) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/v1/quarantine", get(list))
        .route("/v1/quarantine/groups", get(groups))
        .route("/v1/quarantine/{id}", get(show))
        .route("/v1/quarantine/{id}/{action}", post(act::act))
}

async fn list(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let Query(filter) = filter.map_err(|rejection| unreadable(rejection.body_text()))?;
    let filter = filter.checked().map_err(unreadable)?;
    let query = filter.query();
    let limit = query.rows_max;
    let cases = desk(&console)?.cases(query).await.map_err(store_failed)?;
    let is_full = cases.len() == limit as usize;
    let next = cases.last().filter(|_| is_full).map(|case| case.case_id);
    let items: Vec<Value> = cases.iter().map(|case| view(&console, case)).collect();
    // By key, so that what changes meanwhile moves nothing to another page.
    Ok(Json(json!({ "cases": items, "next_after": next })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFilter {
    subscription: Option<String>,
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
}

async fn groups(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    filter: Result<Query<GroupFilter>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let Query(filter) = filter.map_err(|rejection| unreadable(rejection.body_text()))?;
    let query = GroupQuery {
        subscription: filter.subscription.as_deref(),
        with_resolved: filter.all,
        rows_max: limit(filter.limit, GROUPS_DEFAULT).map_err(unreadable)?,
    };
    let groups = desk(&console)?.groups(query).await.map_err(store_failed)?;
    Ok(Json(json!({ "groups": groups })))
}

async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<i64>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let Path(case_id) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let case = one_case(&console, case_id).await?;
    let query = HistoryQuery {
        case_id: Some(case_id),
        rows_max: HISTORY_MAX,
        ..HistoryQuery::default()
    };
    let history = desk(&console)?.history(query).await.map_err(store_failed)?;
    let mut shown = view(&console, &case);
    shown["history"] = history.iter().map(entry_json).collect();
    Ok(Json(shown))
}

fn desk(console: &Console) -> Result<&dyn Desk, Problem> {
    let missing = || Problem::new(Code::NoPath, "there is no quarantine here");
    console.desk.as_deref().ok_or_else(missing)
}

async fn one_case(console: &Console, case_id: i64) -> Result<Case, Problem> {
    let query = CaseQuery {
        case_id: Some(case_id),
        rows_max: 1,
        ..CaseQuery::default()
    };
    let mut cases = desk(console)?.cases(query).await.map_err(store_failed)?;
    cases.pop().ok_or_else(no_case)
}

fn no_case() -> Problem {
    Problem::new(Code::NoCase, "no case has this number, or not any more")
}

fn view(console: &Console, case: &Case) -> Value {
    let sensitivity = console
        .payloads
        .sensitivity(&case.row.envelope.message_type);
    let view = CaseView {
        case,
        sensitivity: &sensitivity,
        now: now(),
    };
    view.json()
}

fn limit(asked: Option<u32>, default: u32) -> Result<u32, String> {
    match asked {
        None => Ok(default),
        Some(limit) if (1..=ROWS_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(format!("limit is 1 to {ROWS_MAX}")),
    }
}

fn unreadable(detail: String) -> Problem {
    Problem::new(Code::AddressUnreadable, detail)
}

/// What a failed store means here: what people ask may have moved, or not be possible.
fn store_failed(error: StoreError) -> Problem {
    match error.kind() {
        StoreErrorKind::Moved => Problem::new(Code::CaseMoved, error.to_string()),
        StoreErrorKind::Refused => Problem::new(Code::CaseRefused, error.to_string()),
        _ => failed(GateError::Store(error)),
    }
}
