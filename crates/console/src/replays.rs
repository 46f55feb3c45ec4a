//! `GET /v1/replays`: replay campaigns, and the messages of one. Planning and steering them is the
//! command line's.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use onceward_core::campaign::ItemState;
use onceward_core::store::{CampaignQuery, ItemQuery, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Caller, Scope};
use crate::backlog::board;
use crate::code::Code;
use crate::gate::GateError;
use crate::messages::failed;
use crate::problem::Problem;
use crate::view::campaign_json;
use crate::{Console, guard};

/// Most campaigns or messages where nothing else is said.
const ROWS_DEFAULT: u32 = 100;
/// Most campaigns or messages in one answer.
const ROWS_MAX: u32 = 1_000;

/// The routes, for a console with a board.
pub(crate) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/v1/replays", get(list))
        .route("/v1/replays/{id}", get(show))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    subscription: Option<String>,
    #[serde(default)]
    active: bool,
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

async fn list(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let Query(filter) = filter.map_err(|rejection| unreadable(rejection.body_text()))?;
    let query = CampaignQuery {
        campaign_id: None,
        subscription: filter.subscription.as_deref(),
        is_active: filter.active,
        after_campaign_id: filter.after,
        rows_max: limit(filter.limit)?,
    };
    let campaigns = board(&console)?.campaigns(query).await.map_err(store)?;
    let is_full = campaigns.len() == query.rows_max as usize;
    let next = campaigns.last().filter(|_| is_full);
    let next = next.map(|campaign| campaign.campaign_id);
    let items: Vec<Value> = campaigns.iter().map(campaign_json).collect();
    Ok(Json(json!({ "campaigns": items, "next_after": next })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemFilter {
    /// Names with commas between them.
    state: Option<String>,
    #[serde(default)]
    after: u64,
    limit: Option<u32>,
}

async fn show(
    State(console): State<Arc<Console>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<i64>, PathRejection>,
    filter: Result<Query<ItemFilter>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    guard::require(&caller, Scope::Read)?;
    let Path(campaign_id) = path.map_err(|rejection| unreadable(rejection.body_text()))?;
    let Query(filter) = filter.map_err(|rejection| unreadable(rejection.body_text()))?;
    let states = states(filter.state.as_deref())?;
    let items = ItemQuery {
        campaign_id,
        states: &states,
        after_seq: filter.after,
        rows_max: limit(filter.limit)?,
    };
    let query = CampaignQuery {
        campaign_id: Some(campaign_id),
        ..CampaignQuery::default()
    };
    let board = board(&console)?;
    let campaign = board.campaigns(query).await.map_err(store)?.pop();
    let missing = || Problem::new(Code::NoCampaign, "no replay campaign has this number");
    let mut shown = campaign_json(&campaign.ok_or_else(missing)?);
    let found = board.items(items).await.map_err(store)?;
    let is_full = found.len() == items.rows_max as usize;
    shown["next_after"] = json!(found.last().filter(|_| is_full).map(|item| item.seq));
    shown["items"] = json!(found);
    Ok(Json(shown))
}

fn states(names: Option<&str>) -> Result<Vec<ItemState>, Problem> {
    let names = names.into_iter().flat_map(|names| names.split(','));
    let states = names.map(|name| {
        ItemState::named(name).ok_or_else(|| {
            let names = ItemState::ALL.map(ItemState::as_str).join(", ");
            unreadable(format!("a state is one of {names}"))
        })
    });
    states.collect()
}

fn limit(asked: Option<u32>) -> Result<u32, Problem> {
    match asked.unwrap_or(ROWS_DEFAULT) {
        limit if (1..=ROWS_MAX).contains(&limit) => Ok(limit),
        _ => Err(unreadable(format!("limit is 1 to {ROWS_MAX}"))),
    }
}

fn unreadable(detail: String) -> Problem {
    Problem::new(Code::AddressUnreadable, detail)
}

fn store(error: StoreError) -> Problem {
    failed(GateError::Store(error))
}
