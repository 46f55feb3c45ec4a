//! A step of a campaign: outcomes of what went out, and the next ones to go.

use onceward_core::campaign::{Finding, ItemNow, ItemState, outcome, replayed};
use onceward_core::store::{ActOnCase, Actor, Campaign, CaseAction, StoreError, StoreErrorKind};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::plan::{known, read_candidate};
use super::{Ground, ITSELF, STEP};
use crate::cases::read_state;
use crate::deferrals::read_kind;
use crate::error::while_doing;
use crate::operate::act_in;

/// Where items are now.
#[derive(Default)]
struct Moves<'a> {
    seqs: Vec<i64>,
    states: Vec<&'a str>,
    findings: Vec<Option<&'a str>>,
    notes: Vec<Option<String>>,
}

impl Moves<'_> {
    fn push(&mut self, seq: i64, state: ItemState, finding: Option<Finding>, note: Option<String>) {
        self.seqs.push(seq);
        self.states.push(state.as_str());
        self.findings.push(finding.map(Finding::as_str));
        self.notes.push(note);
    }

    async fn write(
        self,
        connection: &mut PgConnection,
        campaign_id: i64,
        now: Option<i64>,
    ) -> Result<(), StoreError> {
        if self.seqs.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(include_str!("../../sql/replay/set_items.sql"))
            .bind(campaign_id)
            .bind(self.seqs)
            .bind(self.states)
            .bind(self.findings)
            .bind(self.notes)
            .bind(now);
        let moved = query.execute(connection).await;
        moved.map_err(while_doing(STEP))?;
        Ok(())
    }
}

/// Sees what became of what went out.
pub(super) async fn settle(
    connection: &mut PgConnection,
    campaign: &mut Campaign,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let query =
        sqlx::query(include_str!("../../sql/replay/running.sql")).bind(campaign.campaign_id);
    let rows = query.fetch_all(&mut *connection).await;
    let rows = rows.map_err(while_doing(STEP))?;
    let (mut done, mut failed, mut waiting) = (0, 0, 0);
    let mut moves = Moves::default();
    for row in &rows {
        let (seq, item, reason) = read_running(row).map_err(while_doing(STEP))?;
        waiting += u64::from(item.is_waiting());
        match outcome(&item) {
            Some(ItemState::Done) => {
                done += 1;
                moves.push(seq, ItemState::Done, None, None);
            }
            Some(ended) => {
                failed += 1;
                moves.push(seq, ended, None, reason);
            }
            None => {}
        }
    }
    moves.write(connection, campaign.campaign_id, now).await?;
    campaign.settle(done, failed, waiting);
    Ok(())
}

/// Sends the next ones out, each looked at anew. Returns how many went.
pub(super) async fn send_out(
    connection: &mut PgConnection,
    campaign: &mut Campaign,
    ground: &Ground,
    count: u64,
    now: Option<i64>,
) -> Result<u64, StoreError> {
    let query = sqlx::query(include_str!("../../sql/replay/planned.sql"))
        .bind(campaign.campaign_id)
        .bind(count as i64);
    let rows = query.fetch_all(&mut *connection).await;
    let rows = rows.map_err(while_doing(STEP))?;
    let found: Result<Vec<_>, sqlx::Error> = rows.iter().map(read_candidate).collect();
    let found = found.map_err(while_doing(STEP))?;
    let subscription = campaign.subscription.clone();
    let known = known(connection, &subscription, &ground.terms, &found).await?;
    let why = format!("replay campaign {}", campaign.campaign_id);
    let by = Actor {
        who: campaign.started_by.as_deref().unwrap_or(ITSELF),
        why: Some(&why),
    };
    let bench = ground.bench(campaign.kind, &campaign.accept);
    let (mut moves, mut rows_of_log) = (Moves::default(), Vec::new());
    let (mut started, mut refused) = (0, 0);
    for (one, is_known) in found.iter().zip(known) {
        let verdict = bench.judge(one, is_known, false);
        let seq = one.seq as i64;
        let mut note = verdict.note().map(str::to_owned);
        if verdict.goes_out {
            match one.case_id {
                Some(case_id) => {
                    note = release(connection, campaign.campaign_id, case_id, by, now).await?;
                }
                None => rows_of_log.push(seq),
            }
        }
        if note.is_none() {
            started += 1;
            moves.push(seq, ItemState::Running, verdict.finding, None);
        } else {
            refused += 1;
            moves.push(seq, ItemState::Refused, verdict.finding, note);
        }
    }
    if !rows_of_log.is_empty() {
        let failure = serde_json::to_string(&replayed())
            .map_err(|error| StoreError::new(StoreErrorKind::Other, STEP, error))?;
        let query = sqlx::query(include_str!("../../sql/replay/send_out.sql"))
            .bind(campaign.campaign_id)
            .bind(rows_of_log)
            .bind(failure)
            .bind(now);
        let sent = query.execute(&mut *connection).await;
        sent.map_err(while_doing(STEP))?;
    }
    moves.write(connection, campaign.campaign_id, now).await?;
    campaign.start(started, refused);
    Ok(started)
}

/// Releases a case as an operator does. Returns why not, where somebody acted before.
async fn release(
    connection: &mut PgConnection,
    campaign_id: i64,
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
    match act_in(connection, request, Some(campaign_id), now).await {
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

fn read_running(row: &PgRow) -> Result<(i64, ItemNow, Option<String>), sqlx::Error> {
    let kind: Option<String> = row.try_get("kind")?;
    let state: Option<String> = row.try_get("state")?;
    let item = ItemNow {
        deferral: kind.as_deref().map(read_kind),
        case: state.as_deref().map(read_state).transpose()?,
        is_behind_case: row.try_get("is_behind_case")?,
    };
    Ok((row.try_get("seq")?, item, row.try_get("reason")?))
}
