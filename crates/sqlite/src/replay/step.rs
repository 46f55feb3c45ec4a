//! A step of a campaign: outcomes of what went out, and the next ones to go.

use onceward_core::campaign::{Finding, ItemNow, ItemState, outcome, replayed};
use onceward_core::lane::slot_of;
use onceward_core::store::{
    ActOnCase, Actor, Campaign, CaseAction, CaseState, StoreError, StoreErrorKind,
};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::plan::{known, read_candidate};
use super::{Ground, ITSELF, STEP};
use crate::deferrals::kind;
use crate::error::Attempt;
use crate::operate::act_in;
use crate::row::{int, to_json};

const RUNNING: &str = include_str!("../../sql/replay/running.sql");
const PLANNED: &str = include_str!("../../sql/replay/planned.sql");
const SET_ITEM: &str = include_str!("../../sql/replay/set_item.sql");
const SEND_OUT: &str = include_str!("../../sql/replay/send_out.sql");

/// Where an item is now.
struct Move {
    seq: i64,
    state: ItemState,
    finding: Option<Finding>,
    note: Option<String>,
}

impl Move {
    async fn write(
        self,
        connection: &mut SqliteConnection,
        campaign_id: i64,
        now: Option<i64>,
    ) -> Result<(), StoreError> {
        let set = sqlx::query(SET_ITEM)
            .bind(campaign_id)
            .bind(self.seq)
            .bind(self.state.as_str())
            .bind(self.finding.map(Finding::as_str))
            .bind(self.note)
            .bind(now);
        set.execute(connection).await.attempting(STEP)?;
        Ok(())
    }
}

/// Sees what became of what went out.
pub(super) async fn settle(
    connection: &mut SqliteConnection,
    campaign: &mut Campaign,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let rows = sqlx::query(RUNNING)
        .bind(campaign.campaign_id)
        .fetch_all(&mut *connection)
        .await
        .attempting(STEP)?;
    let (mut done, mut failed, mut waiting) = (0, 0, 0);
    for row in &rows {
        let (seq, item, reason) = read_running(row)?;
        waiting += u64::from(item.is_waiting());
        let Some(state) = outcome(&item) else {
            continue;
        };
        let is_done = state == ItemState::Done;
        done += u64::from(is_done);
        failed += u64::from(!is_done);
        let ended = Move {
            seq,
            state,
            finding: None,
            note: reason.filter(|_| !is_done),
        };
        ended.write(connection, campaign.campaign_id, now).await?;
    }
    campaign.settle(done, failed, waiting);
    Ok(())
}

/// Sends the next ones out, each looked at anew. Returns how many went.
pub(super) async fn send_out(
    connection: &mut SqliteConnection,
    campaign: &mut Campaign,
    ground: &Ground,
    count: u64,
    now: Option<i64>,
) -> Result<u64, StoreError> {
    let rows = sqlx::query(PLANNED)
        .bind(campaign.campaign_id)
        .bind(int(count))
        .fetch_all(&mut *connection)
        .await
        .attempting(STEP)?;
    let found: Result<Vec<_>, sqlx::Error> = rows.iter().map(read_candidate).collect();
    let found = found.attempting(STEP)?;
    let subscription = campaign.subscription.clone();
    let known = known(connection, &subscription, &ground.terms, &found).await?;
    let why = format!("replay campaign {}", campaign.campaign_id);
    let by = Actor {
        who: campaign.started_by.as_deref().unwrap_or(ITSELF),
        why: Some(&why),
    };
    let bench = ground.bench(campaign.kind, &campaign.accept);
    let failure = to_json(&replayed(), STEP)?;
    let (mut started, mut refused) = (0, 0);
    for (one, is_known) in found.iter().zip(known) {
        let verdict = bench.judge(one, is_known, false);
        let seq = int(one.seq);
        let mut note = verdict.note().map(str::to_owned);
        if verdict.goes_out {
            match one.case_id {
                Some(case_id) => note = release(connection, case_id, by, now).await?,
                None => {
                    let send = sqlx::query(SEND_OUT)
                        .bind(campaign.campaign_id)
                        .bind(seq)
                        .bind(slot_of(&one.key))
                        .bind(&failure)
                        .bind(now);
                    send.execute(&mut *connection).await.attempting(STEP)?;
                }
            }
        }
        let goes_out = note.is_none();
        started += u64::from(goes_out);
        refused += u64::from(!goes_out);
        let state = match goes_out {
            true => ItemState::Running,
            false => ItemState::Refused,
        };
        let moved = Move {
            seq,
            state,
            finding: verdict.finding,
            note,
        };
        moved.write(connection, campaign.campaign_id, now).await?;
    }
    campaign.start(started, refused);
    Ok(started)
}

/// Releases a case as an operator does. Returns why not, where somebody acted before.
async fn release(
    connection: &mut SqliteConnection,
    case_id: i64,
    by: Actor<'_>,
    now: Option<i64>,
) -> Result<Option<String>, StoreError> {
    let request = ActOnCase {
        case_id,
        action: CaseAction::Release,
        expected: None,
        by,
    };
    match act_in(connection, request, now).await {
        Ok(_) => Ok(None),
        Err(error)
            if matches!(
                error.kind(),
                StoreErrorKind::Moved | StoreErrorKind::Refused
            ) =>
        {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

fn read_running(row: &SqliteRow) -> Result<(i64, ItemNow, Option<String>), StoreError> {
    let is_deferred: Option<&str> = row.try_get("kind").attempting(STEP)?;
    let state: Option<&str> = row.try_get("state").attempting(STEP)?;
    let item = ItemNow {
        deferral: is_deferred.map(|_| kind(row, STEP)).transpose()?,
        case: state.and_then(CaseState::named),
        is_behind_case: row.try_get("is_behind_case").attempting(STEP)?,
    };
    let seq = row.try_get("seq").attempting(STEP)?;
    Ok((seq, item, row.try_get("reason").attempting(STEP)?))
}
