//! Choosing the messages of a campaign, and what is found out about them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use onceward_core::Timestamp;
use onceward_core::campaign::{Candidate, Finding, Verdict};
use onceward_core::store::{
    Campaign, Known, OVERTAKEN_ROWS_MAX, PlanCampaign, Selection, Source, StoreError, Terms,
};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::{Ground, PLAN};
use crate::cases::with_conditions;
use crate::effects::known_in;
use crate::error::Attempt;
use crate::row::{Rows, int, text, to_json, unsigned};

const GENERATION: &str = include_str!("../../sql/replay/generation.sql");
const FROM_CASES: &str = include_str!("../../sql/replay/from_cases.sql");
const FROM_LOG: &str = include_str!("../../sql/replay/from_log.sql");
const OVERTAKEN: &str = include_str!("../../sql/replay/overtaken.sql");
const ADD_CAMPAIGN: &str = include_str!("../../sql/replay/add_campaign.sql");
static ADD_ITEMS: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(include_str!("../../sql/replay/add_items.sql")));

pub(super) async fn next_generation(
    connection: &mut SqliteConnection,
    subscription: &str,
) -> Result<u32, StoreError> {
    let query = sqlx::query_scalar(GENERATION).bind(subscription);
    query.fetch_one(connection).await.attempting(PLAN)
}

/// Finds one message more than a campaign takes, in the order of the log.
pub(super) async fn choose(
    connection: &mut SqliteConnection,
    request: &PlanCampaign<'_>,
    ground: &Ground,
) -> Result<Vec<Candidate>, StoreError> {
    let selection = request.selection;
    let limit = int(request.items_max() as u64 + 1);
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let query = match selection.source {
        Source::Cases => {
            let ids = (!selection.case_ids.is_empty()).then(|| to_json(&selection.case_ids, PLAN));
            sqlx::query(sqlx::AssertSqlSafe(from_cases(selection)))
                .persistent(false)
                .bind(request.subscription)
                .bind(int(selection.after_seq))
                .bind(ids.transpose()?)
                .bind(&selection.fingerprint)
                .bind(&selection.owner)
                .bind(&selection.message_type)
                .bind(&selection.key)
                .bind(micros(selection.from))
                .bind(micros(selection.before))
                .bind(limit)
        }
        Source::Log => sqlx::query(FROM_LOG)
            .bind(request.subscription)
            .bind(int(selection.after_seq))
            .bind(match &selection.message_type {
                Some(only) => to_json(&[only], PLAN)?,
                None => to_json(&ground.types, PLAN)?,
            })
            .bind(&selection.key)
            .bind(micros(selection.from))
            .bind(micros(selection.before))
            .bind(limit)
            .bind(ground.past_seq),
    };
    let rows = query.fetch_all(connection).await.attempting(PLAN)?;
    let found: Result<_, sqlx::Error> = rows.iter().map(read_candidate).collect();
    found.attempting(PLAN)
}

/// The statement for a selection: by what names few cases where something does, else in the order
/// in which they are wanted. The planner has no statistics to tell.
fn from_cases(selection: &Selection) -> String {
    let has = [
        (3, !selection.case_ids.is_empty()),
        (4, selection.fingerprint.is_some()),
        (5, selection.owner.is_some()),
        (6, selection.message_type.is_some()),
        (7, selection.key.is_some()),
        (8, selection.from.is_some()),
        (9, selection.before.is_some()),
    ];
    let statement = with_conditions(FROM_CASES, &has);
    match has[..5].iter().any(|(_, is_there)| *is_there) {
        true => statement,
        false => statement.replace("+c.seq > ", "c.seq > "),
    }
}

/// Whether the ledger has the effect of each, in their order.
pub(super) async fn known(
    connection: &mut SqliteConnection,
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
    connection: &mut SqliteConnection,
    request: &PlanCampaign<'_>,
    ground: &Ground,
    found: &[Candidate],
) -> Result<(BTreeMap<String, u64>, Option<u64>), StoreError> {
    let keys: Vec<_> = found.iter().map(|one| one.key.as_str()).collect();
    let rows = sqlx::query(OVERTAKEN)
        .bind(request.subscription)
        .bind(found.first().map_or(0, |one| int(one.seq)))
        .bind(to_json(&keys, PLAN)?)
        .bind(to_json(&ground.types, PLAN)?)
        .bind(ground.past_seq)
        .bind(OVERTAKEN_ROWS_MAX)
        .fetch_all(connection)
        .await
        .attempting(PLAN)?;
    let (mut done, mut seen_to) = (BTreeMap::new(), None);
    for row in &rows {
        let seq = |column| row.try_get::<Option<i64>, _>(column).attempting(PLAN);
        match (text(row, "key").attempting(PLAN)?, seq("seq")?) {
            (Some(key), Some(last)) => {
                done.insert(key, unsigned(last));
            }
            _ => seen_to = seq("seen_to")?.map(unsigned),
        }
    }
    Ok((done, seen_to))
}

pub(super) async fn add(
    connection: &mut SqliteConnection,
    campaign: &Campaign,
) -> Result<i64, StoreError> {
    let query = sqlx::query_scalar(ADD_CAMPAIGN)
        .bind(&campaign.subscription)
        .bind(campaign.kind.as_str())
        .bind(campaign.generation)
        .bind(to_json(campaign, PLAN)?);
    query.fetch_one(connection).await.attempting(PLAN)
}

/// The items of a campaign, as they were judged.
pub(super) async fn add_items(
    connection: &mut SqliteConnection,
    campaign: &Campaign,
    terms: &Terms,
    found: &[Candidate],
    judged: &[Verdict],
) -> Result<(), StoreError> {
    let items: Vec<_> = found.iter().zip(judged).collect();
    for (sql, piece) in ADD_ITEMS.pieces(&items) {
        let mut add = sqlx::query(sql);
        for (one, verdict) in piece {
            add = add
                .bind(campaign.campaign_id)
                .bind(int(one.seq))
                .bind(&campaign.subscription)
                .bind(&one.id)
                .bind(&one.message_type)
                .bind(one.waits_behind(terms))
                .bind(one.recorded_at.as_micros())
                .bind(one.case_id)
                .bind(campaign.generation)
                .bind(verdict.planned_as().as_str())
                .bind(verdict.finding.map(Finding::as_str))
                .bind(verdict.note());
        }
        add.execute(&mut *connection).await.attempting(PLAN)?;
    }
    Ok(())
}

pub(super) fn read_candidate(row: &SqliteRow) -> Result<Candidate, sqlx::Error> {
    let text_of = |column| Ok::<_, sqlx::Error>(text(row, column)?.unwrap_or_default());
    Ok(Candidate {
        seq: unsigned(row.try_get("seq")?),
        key: text_of("key")?,
        id: text_of("id")?,
        source: text_of("source")?,
        message_type: text_of("type")?,
        operation: text_of("operation")?,
        recorded_at: Timestamp::from_micros(row.try_get("recorded_at")?),
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
