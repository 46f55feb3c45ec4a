//! Replay campaigns.

use onceward_core::Timestamp;
use onceward_core::campaign::{Bench, CampaignKind, CampaignState, Finding, ItemState, act};
use onceward_core::store::{
    ActOnCampaign, Actor, Campaign, CampaignItem, CampaignQuery, ItemQuery, PlanCampaign, Replay,
    Retention, StepCampaign, Stepped, StoreError, StoreErrorKind, Terms, UpkeepReport,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::error::while_doing;
use crate::operate::{Record, revise};
use crate::session::{Postgres, moment};

mod plan;
mod step;

use plan::{add, add_items, choose, known, next_generation, overtaken};
use step::{send_out, settle};

const PLAN: &str = "plan a replay campaign";
const ACT: &str = "act on a replay campaign";
const LIST: &str = "read replay campaigns";
const STEP: &str = "take a replay campaign a step on";

/// Rows where a question names no number.
const ROWS_MAX_DEFAULT: u32 = 100;
/// Who stands in the audit log for what a campaign does by itself.
const ITSELF: &str = "onceward";

impl Replay for Postgres {
    async fn plan_campaign(&self, request: PlanCampaign<'_>) -> Result<Campaign, StoreError> {
        request.check(PLAN)?;
        // Positions only move on: what is behind them now stays there.
        let horizon = self.horizon_of(Some(request.subscription)).await?;
        let past = horizon.least();
        let mut tx = self.lease_tx(PLAN).await?;
        let connection = tx.connection();
        // Some ten thousand rows by an index are not worth compiling anything for, whatever the
        // statistics of a million cases say.
        let uncompiled = sqlx::raw_sql("SET LOCAL jit = off").execute(&mut *connection);
        uncompiled.await.map_err(while_doing(PLAN))?;
        let query = sqlx::query(include_str!("../../sql/replay/lock_subscription.sql"))
            .bind(request.subscription)
            .bind(self.now());
        let row = query.fetch_optional(&mut *connection).await;
        let Some(row) = row.map_err(while_doing(PLAN))? else {
            let text = format!("no subscription is called {}", request.subscription);
            return Err(StoreError::found(StoreErrorKind::Refused, PLAN, text));
        };
        let ground = Ground::read(&row).map_err(while_doing(PLAN))?;
        request.check_terms(&ground.terms, PLAN)?;
        let generation = match request.kind {
            CampaignKind::Resend => 0,
            CampaignKind::Rerun => next_generation(connection, request.subscription).await?,
        };
        let mut found = choose(connection, &request, &ground, &past).await?;
        let has_more = found.len() > request.items_max();
        found.truncate(request.items_max());
        let known = known(connection, request.subscription, &ground.terms, &found).await?;
        let (done, seen_to) = overtaken(connection, &request, &ground, &past, &found).await?;
        let bench = ground.bench(request.kind, request.accept);
        let judged: Vec<_> = found
            .iter()
            .zip(known)
            .map(|(one, is_known)| {
                let is_overtaken = done.get(&one.key).is_some_and(|seq| *seq > one.seq);
                bench.judge(one, is_known, is_overtaken)
            })
            .collect();
        let left = judged.iter().filter(|verdict| verdict.goes_out).count();
        let mut campaign = request.planned(&found, left, generation, ground.now, PLAN)?;
        campaign.has_more = has_more;
        campaign.overtaken_seen_to = seen_to;
        campaign.campaign_id = add(connection, &campaign).await?;
        save(connection, &campaign, PLAN).await?;
        add_items(connection, &campaign, &ground.terms, &found, &judged).await?;
        let record = Record {
            by: request.by,
            action: "replay-plan",
            subscription: request.subscription,
            case_id: None,
            before: "{}".to_owned(),
            after: campaign.account(),
            campaign_id: None,
        };
        record.write(connection, self.now(), PLAN).await?;
        tx.commit(PLAN).await?;
        Ok(campaign)
    }

    async fn act_on_campaign(&self, request: ActOnCampaign<'_>) -> Result<Campaign, StoreError> {
        let mut tx = self.lease_tx(ACT).await?;
        let connection = tx.connection();
        let (mut campaign, ground) = lock(connection, request.campaign_id, self.now(), ACT).await?;
        let before = campaign.account();
        let standing = act(
            request.action,
            request.by,
            &campaign.standing,
            &campaign.planned_by,
            ground.now,
        );
        let standing = standing.map_err(|refusal| StoreError::refused(ACT, refusal))?;
        campaign.acted(request.action, request.by, standing, ground.now);
        if campaign.standing.state == CampaignState::Stopped {
            leave(connection, campaign.campaign_id, ACT).await?;
        }
        save(connection, &campaign, ACT).await?;
        let record = Record {
            by: request.by,
            action: request.action.as_str(),
            subscription: &campaign.subscription,
            case_id: None,
            before,
            after: campaign.account(),
            campaign_id: None,
        };
        record.write(connection, self.now(), ACT).await?;
        tx.commit(ACT).await?;
        Ok(campaign)
    }

    async fn campaigns(&self, query: CampaignQuery<'_>) -> Result<Vec<Campaign>, StoreError> {
        let mut tx = self.read_tx(LIST).await?;
        let statement = sqlx::query(include_str!("../../sql/replay/campaigns.sql"))
            .bind(query.campaign_id)
            .bind(query.subscription)
            .bind(query.is_active)
            .bind(query.after_campaign_id)
            .bind(rows_max(query.rows_max));
        let rows = statement.fetch_all(tx.connection()).await;
        let rows = rows.map_err(while_doing(LIST))?;
        tx.roll_back().await;
        let campaigns: Result<_, sqlx::Error> = rows.iter().map(read_campaign).collect();
        campaigns.map_err(while_doing(LIST))
    }

    async fn campaign_items(&self, query: ItemQuery<'_>) -> Result<Vec<CampaignItem>, StoreError> {
        let states: Vec<_> = query.states.iter().map(|state| state.as_str()).collect();
        let mut tx = self.read_tx(LIST).await?;
        let statement = sqlx::query(include_str!("../../sql/replay/items.sql"))
            .bind(query.campaign_id)
            .bind(query.after_seq as i64)
            .bind((!states.is_empty()).then_some(states))
            .bind(rows_max(query.rows_max));
        let rows = statement.fetch_all(tx.connection()).await;
        let rows = rows.map_err(while_doing(LIST))?;
        tx.roll_back().await;
        let items: Result<_, sqlx::Error> = rows.iter().map(read_item).collect();
        items.map_err(while_doing(LIST))
    }

    async fn step_campaign(&self, request: StepCampaign) -> Result<Stepped, StoreError> {
        let mut tx = self.lease_tx(STEP).await?;
        let connection = tx.connection();
        let (mut campaign, ground) =
            lock(connection, request.campaign_id, self.now(), STEP).await?;
        let before = (campaign.standing.state, campaign.account());
        settle(connection, &mut campaign, self.now()).await?;
        let advance = campaign.advance(ground.now);
        let started = match advance.start {
            0 => 0,
            count => send_out(connection, &mut campaign, &ground, count, self.now()).await?,
        };
        if started > 0 {
            revise(connection, &campaign.subscription, STEP).await?;
        }
        if campaign.standing.state != before.0 {
            if campaign.standing.state == CampaignState::Stopped {
                leave(connection, campaign.campaign_id, STEP).await?;
            }
            let record = Record {
                by: Actor {
                    who: ITSELF,
                    why: campaign.standing.stopped_by.as_deref(),
                },
                action: campaign.step_name(),
                subscription: &campaign.subscription,
                case_id: None,
                before: before.1,
                after: campaign.account(),
                campaign_id: Some(campaign.campaign_id),
            };
            record.write(connection, self.now(), STEP).await?;
        }
        save(connection, &campaign, STEP).await?;
        tx.commit(STEP).await?;
        Ok(Stepped {
            campaign,
            started,
            wait_ms: advance.wait_ms,
        })
    }
}

fn rows_max(asked: u32) -> i64 {
    i64::from(if asked == 0 { ROWS_MAX_DEFAULT } else { asked })
}

/// What messages of a subscription are judged by.
struct Ground {
    types: Vec<String>,
    terms: Terms,
    retention: Retention,
    now: Timestamp,
}

impl Ground {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let terms: Option<String> = row.try_get("terms")?;
        let report: Option<String> = row.try_get("report")?;
        let report: UpkeepReport = parsed(report)?;
        Ok(Self {
            types: row.try_get::<Option<_>, _>("types")?.unwrap_or_default(),
            terms: parsed(terms)?,
            retention: report.retention.unwrap_or_default(),
            now: moment(row.try_get("now")?),
        })
    }

    fn bench<'a>(&'a self, kind: CampaignKind, accept: &'a [Finding]) -> Bench<'a> {
        Bench {
            kind,
            terms: self.terms.clone(),
            types: &self.types,
            retention: self.retention,
            accept,
            now: self.now,
        }
    }
}

/// JSON as it was kept, or the default where none was.
pub(crate) fn parsed<T: Default + serde::de::DeserializeOwned>(
    text: Option<String>,
) -> Result<T, sqlx::Error> {
    let parsed = text.map(|text| serde_json::from_str(&text)).transpose();
    let parsed = parsed.map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(parsed.unwrap_or_default())
}

fn record_text(campaign: &Campaign, action: &'static str) -> Result<String, StoreError> {
    serde_json::to_string(campaign)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, action, error))
}

async fn save(
    connection: &mut PgConnection,
    campaign: &Campaign,
    action: &'static str,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../../sql/replay/save_campaign.sql"))
        .bind(campaign.campaign_id)
        .bind(campaign.standing.state.as_str())
        .bind(campaign.is_active())
        .bind(record_text(campaign, action)?);
    let saved = query.execute(connection).await;
    saved.map_err(while_doing(action))?;
    Ok(())
}

async fn lock(
    connection: &mut PgConnection,
    campaign_id: i64,
    now: Option<i64>,
    action: &'static str,
) -> Result<(Campaign, Ground), StoreError> {
    let query = sqlx::query(include_str!("../../sql/replay/lock_campaign.sql"))
        .bind(campaign_id)
        .bind(now);
    let row = query.fetch_optional(connection).await;
    let Some(row) = row.map_err(while_doing(action))? else {
        let text = format!("there is no campaign {campaign_id}");
        return Err(StoreError::found(StoreErrorKind::Refused, action, text));
    };
    let campaign = read_campaign(&row).map_err(while_doing(action))?;
    let ground = Ground::read(&row).map_err(while_doing(action))?;
    Ok((campaign, ground))
}

/// What is planned stays where it was.
async fn leave(
    connection: &mut PgConnection,
    campaign_id: i64,
    action: &'static str,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../../sql/replay/leave_items.sql")).bind(campaign_id);
    let left = query.execute(connection).await;
    left.map_err(while_doing(action))?;
    Ok(())
}

fn read_campaign(row: &PgRow) -> Result<Campaign, sqlx::Error> {
    let record: String = row.try_get("record")?;
    let campaign: Campaign =
        serde_json::from_str(&record).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Campaign {
        campaign_id: row.try_get("campaign_id")?,
        // It may have another name by now.
        subscription: row.try_get("subscription")?,
        ..campaign
    })
}

fn read_item(row: &PgRow) -> Result<CampaignItem, sqlx::Error> {
    let state: String = row.try_get("state")?;
    let finding: Option<String> = row.try_get("finding")?;
    let at = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(column)?.map(moment));
    Ok(CampaignItem {
        seq: row.try_get::<i64, _>("seq")? as u64,
        id: row.try_get("id")?,
        message_type: row.try_get("type")?,
        key: row.try_get("key")?,
        case_id: row.try_get("case_id")?,
        // The column has a check constraint.
        state: ItemState::named(&state).unwrap_or(ItemState::Left),
        finding: finding.as_deref().and_then(Finding::named),
        note: row.try_get("note")?,
        started_at: at("started_at")?,
        ended_at: at("ended_at")?,
    })
}
