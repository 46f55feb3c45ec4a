//! Choosing the messages of a campaign, and what is found out about them.

use std::collections::BTreeMap;

use onceward_core::Timestamp;
use onceward_core::campaign::{Candidate, Finding, Verdict};
use onceward_core::store::{
    Campaign, Known, OVERTAKEN_ROWS_MAX, PlanCampaign, Source, StoreError, Terms,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::{Ground, PLAN, record_text};
use crate::effects::known_in;
use crate::error::while_doing;
use crate::session::moment;

pub(super) async fn next_generation(
    connection: &mut PgConnection,
    subscription: &str,
) -> Result<u32, StoreError> {
    let query =
        sqlx::query_scalar(include_str!("../../sql/replay/generation.sql")).bind(subscription);
    let generation: i32 = query
        .fetch_one(connection)
        .await
        .map_err(while_doing(PLAN))?;
    Ok(generation as u32)
}

/// Finds one message more than a campaign takes, in the order of the log.
pub(super) async fn choose(
    connection: &mut PgConnection,
    request: &PlanCampaign<'_>,
    ground: &Ground,
    past: &(String, String),
) -> Result<Vec<Candidate>, StoreError> {
    let selection = request.selection;
    let limit = request.items_max() as i64 + 1;
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let query = match selection.source {
        Source::Cases => sqlx::query(include_str!("../../sql/replay/from_cases.sql"))
            .bind(request.subscription)
            .bind(selection.after_seq as i64)
            .bind((!selection.case_ids.is_empty()).then_some(&selection.case_ids))
            .bind(&selection.fingerprint)
            .bind(&selection.owner)
            .bind(&selection.message_type)
            .bind(&selection.key)
            .bind(micros(selection.from))
            .bind(micros(selection.before))
            .bind(limit),
        Source::Log => sqlx::query(include_str!("../../sql/replay/from_log.sql"))
            .bind(request.subscription)
            .bind(selection.after_seq as i64)
            .bind(match &selection.message_type {
                Some(only) => vec![only.clone()],
                None => ground.types.clone(),
            })
            .bind(&selection.key)
            .bind(micros(selection.from))
            .bind(micros(selection.before))
            .bind(limit)
            .bind(&past.0)
            .bind(&past.1),
    };
    let rows = query.fetch_all(connection).await;
    let rows = rows.map_err(while_doing(PLAN))?;
    let found: Result<_, sqlx::Error> = rows.iter().map(read_candidate).collect();
    found.map_err(while_doing(PLAN))
}

/// Whether the ledger has the effect of each, in their order.
pub(super) async fn known(
    connection: &mut PgConnection,
    subscription: &str,
    terms: &Terms,
    found: &[Candidate],
) -> Result<Vec<bool>, StoreError> {
    let identity = terms.identity;
    let keys: Vec<_> = found.iter().map(|one| one.ledger_key(identity)).collect();
    let request = Known {
        subscription,
        identity,
        keys: &keys,
        deferred: &[],
    };
    let entries = known_in(connection, &request).await?;
    Ok(entries.iter().map(Option::is_some).collect())
}

/// The last message of each key that is done, and how far the log was looked through, where that
/// was not to its end.
pub(super) async fn overtaken(
    connection: &mut PgConnection,
    request: &PlanCampaign<'_>,
    ground: &Ground,
    past: &(String, String),
    found: &[Candidate],
) -> Result<(BTreeMap<String, u64>, Option<u64>), StoreError> {
    let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
    let query = sqlx::query(include_str!("../../sql/replay/overtaken.sql"))
        .bind(request.subscription)
        .bind(found.first().map_or(0, |one| one.seq as i64))
        .bind(keys)
        .bind(&ground.types)
        .bind(&past.0)
        .bind(&past.1)
        .bind(i64::from(OVERTAKEN_ROWS_MAX));
    let rows = query.fetch_all(connection).await;
    let rows = rows.map_err(while_doing(PLAN))?;
    let (mut done, mut seen_to) = (BTreeMap::new(), None);
    for row in &rows {
        let seq = |column| row.try_get::<Option<i64>, _>(column);
        let key: Option<String> = row.try_get("key").map_err(while_doing(PLAN))?;
        let last = seq("seq").map_err(while_doing(PLAN))?;
        if let (Some(key), Some(last)) = (key, last) {
            done.insert(key, last as u64);
        } else {
            seen_to = seq("seen_to").map_err(while_doing(PLAN))?.map(|s| s as u64);
        }
    }
    Ok((done, seen_to))
}

pub(super) async fn add(
    connection: &mut PgConnection,
    campaign: &Campaign,
) -> Result<i64, StoreError> {
    let query = sqlx::query_scalar(include_str!("../../sql/replay/add_campaign.sql"))
        .bind(&campaign.subscription)
        .bind(campaign.kind.as_str())
        .bind(campaign.generation as i32)
        .bind(record_text(campaign, PLAN)?);
    query.fetch_one(connection).await.map_err(while_doing(PLAN))
}

/// The items of a campaign, as they were judged.
pub(super) async fn add_items(
    connection: &mut PgConnection,
    campaign: &Campaign,
    terms: &Terms,
    found: &[Candidate],
    judged: &[Verdict],
) -> Result<(), StoreError> {
    let ids: Vec<_> = found.iter().map(|one| one.id.as_str()).collect();
    let types = found.iter().map(|one| one.message_type.as_str());
    let keys = found.iter().map(|one| one.waits_behind(terms));
    let times = found.iter().map(|one| one.recorded_at.as_micros());
    let states = judged.iter().map(|verdict| verdict.planned_as().as_str());
    let findings = judged.iter().map(|v| v.finding.map(Finding::as_str));
    let query = sqlx::query(include_str!("../../sql/replay/add_items.sql"))
        .bind(campaign.campaign_id)
        .bind(&campaign.subscription)
        .bind(campaign.generation as i32)
        .bind(found.iter().map(|one| one.seq as i64).collect::<Vec<_>>())
        .bind(ids)
        .bind(types.collect::<Vec<_>>())
        .bind(keys.collect::<Vec<_>>())
        .bind(times.collect::<Vec<_>>())
        .bind(found.iter().map(|one| one.case_id).collect::<Vec<_>>())
        .bind(states.collect::<Vec<_>>())
        .bind(findings.collect::<Vec<_>>())
        .bind(judged.iter().map(Verdict::note).collect::<Vec<_>>());
    let added = query.execute(connection).await;
    added.map_err(while_doing(PLAN))?;
    Ok(())
}

pub(super) fn read_candidate(row: &PgRow) -> Result<Candidate, sqlx::Error> {
    Ok(Candidate {
        seq: row.try_get::<i64, _>("seq")? as u64,
        key: row.try_get("key")?,
        id: row.try_get("id")?,
        source: row.try_get("source")?,
        message_type: row.try_get("type")?,
        operation: row.try_get("operation")?,
        recorded_at: moment(row.try_get("recorded_at")?),
        case_id: row.try_get("case_id")?,
        reason: row.try_get("reason")?,
        is_there: row.try_get("is_there")?,
        has_live_case: row.try_get("has_live_case")?,
        is_behind_case: row.try_get("is_behind_case")?,
        is_given_up: row.try_get("is_given_up")?,
        is_deferred: row.try_get("is_deferred")?,
        is_in_campaign: row.try_get("is_in_campaign")?,
    })
}
