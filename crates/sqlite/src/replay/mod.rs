//! Replay campaigns.

use onceward_core::Timestamp;
use onceward_core::campaign::{Bench, CampaignKind, CampaignState, Finding, ItemState, act};
use onceward_core::store::{
    ActOnCampaign, Actor, Campaign, CampaignItem, CampaignQuery, ItemQuery, PlanCampaign, Replay,
    Retention, StepCampaign, Stepped, StoreError, StoreErrorKind, Terms, UpkeepReport,
};
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::Sqlite;
use crate::error::Attempt;
use crate::operate::{Record, revise};
use crate::row::{from_json, int, to_json, unsigned};

mod plan;
mod step;

use plan::{add, add_items, choose, known, next_generation, overtaken};
use step::{send_out, settle};

const FIND_SUBSCRIPTION: &str = include_str!("../../sql/replay/find_subscription.sql");
const FIND_CAMPAIGN: &str = include_str!("../../sql/replay/find_campaign.sql");
const SAVE_CAMPAIGN: &str = include_str!("../../sql/replay/save_campaign.sql");
const LEAVE_ITEMS: &str = include_str!("../../sql/replay/leave_items.sql");
const CAMPAIGNS: &str = include_str!("../../sql/replay/campaigns.sql");
const ITEMS: &str = include_str!("../../sql/replay/items.sql");

const PLAN: &str = "plan a replay campaign";
const ACT: &str = "act on a replay campaign";
const LIST: &str = "read replay campaigns";
const STEP: &str = "take a replay campaign a step on";

/// Rows where a question names no number.
const ROWS_MAX_DEFAULT: u32 = 100;
/// Who stands in the audit log for what a campaign does by itself.
const ITSELF: &str = "onceward";

impl Replay for Sqlite {
    async fn plan_campaign(&self, request: PlanCampaign<'_>) -> Result<Campaign, StoreError> {
        request.check(PLAN)?;
        let mut tx = self.write(PLAN).await?;
        let connection = tx.connection();
        let query = sqlx::query(FIND_SUBSCRIPTION)
            .bind(request.subscription)
            .bind(self.now());
        let row = query.fetch_optional(&mut *connection).await;
        let Some(row) = row.attempting(PLAN)? else {
            let text = format!("no subscription is called {}", request.subscription);
            return Err(StoreError::found(StoreErrorKind::Refused, PLAN, text));
        };
        let ground = Ground::read(&row, PLAN)?;
        request.check_terms(&ground.terms, PLAN)?;
        let generation = match request.kind {
            CampaignKind::Resend => 0,
            CampaignKind::Rerun => next_generation(connection, request.subscription).await?,
        };
        let mut found = choose(connection, &request, &ground).await?;
        let has_more = found.len() > request.items_max();
        found.truncate(request.items_max());
        let known = known(connection, request.subscription, &ground.terms, &found).await?;
        let (done, seen_to) = overtaken(connection, &request, &ground, &found).await?;
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
        };
        record.write(connection, self.now(), PLAN).await?;
        tx.commit(PLAN).await?;
        Ok(campaign)
    }

    async fn act_on_campaign(&self, request: ActOnCampaign<'_>) -> Result<Campaign, StoreError> {
        let mut tx = self.write(ACT).await?;
        let connection = tx.connection();
        let (mut campaign, ground) = find(connection, request.campaign_id, self.now(), ACT).await?;
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
        };
        record.write(connection, self.now(), ACT).await?;
        tx.commit(ACT).await?;
        Ok(campaign)
    }

    async fn campaigns(&self, query: CampaignQuery<'_>) -> Result<Vec<Campaign>, StoreError> {
        let rows = sqlx::query(CAMPAIGNS)
            .bind(query.campaign_id)
            .bind(query.subscription)
            .bind(query.is_active)
            .bind(query.after_campaign_id)
            .bind(rows_max(query.rows_max))
            .fetch_all(self.reads())
            .await
            .attempting(LIST)?;
        rows.iter().map(|row| read_campaign(row, LIST)).collect()
    }

    async fn campaign_items(&self, query: ItemQuery<'_>) -> Result<Vec<CampaignItem>, StoreError> {
        let states = (!query.states.is_empty()).then(|| to_json(&query.states, LIST));
        let rows = sqlx::query(ITEMS)
            .bind(query.campaign_id)
            .bind(int(query.after_seq))
            .bind(states.transpose()?)
            .bind(rows_max(query.rows_max))
            .fetch_all(self.reads())
            .await
            .attempting(LIST)?;
        let items: Result<_, sqlx::Error> = rows.iter().map(read_item).collect();
        items.attempting(LIST)
    }

    async fn step_campaign(&self, request: StepCampaign) -> Result<Stepped, StoreError> {
        let mut tx = self.write(STEP).await?;
        let connection = tx.connection();
        let (mut campaign, ground) =
            find(connection, request.campaign_id, self.now(), STEP).await?;
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

const fn rows_max(asked: u32) -> u32 {
    if asked == 0 { ROWS_MAX_DEFAULT } else { asked }
}

/// What messages of a subscription are judged by.
struct Ground {
    types: Vec<String>,
    terms: Terms,
    retention: Retention,
    now: Timestamp,
    /// Every lane has come past this.
    past_seq: i64,
}

impl Ground {
    fn read(row: &SqliteRow, action: &'static str) -> Result<Self, StoreError> {
        let json = |column| row.try_get::<Option<&str>, _>(column).attempting(action);
        let report: UpkeepReport = parsed(json("report")?, action)?;
        let now: i64 = row.try_get("now").attempting(action)?;
        Ok(Self {
            types: parsed(json("types")?, action)?,
            terms: parsed(json("terms")?, action)?,
            retention: report.retention.unwrap_or_default(),
            now: Timestamp::from_micros(now),
            past_seq: row.try_get("past_seq").attempting(action)?,
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
pub(crate) fn parsed<T: Default + DeserializeOwned>(
    text: Option<&str>,
    action: &'static str,
) -> Result<T, StoreError> {
    let parsed = text.map(|text| from_json(text, action)).transpose()?;
    Ok(parsed.unwrap_or_default())
}

async fn save(
    connection: &mut SqliteConnection,
    campaign: &Campaign,
    action: &'static str,
) -> Result<(), StoreError> {
    let save = sqlx::query(SAVE_CAMPAIGN)
        .bind(campaign.campaign_id)
        .bind(campaign.standing.state.as_str())
        .bind(campaign.is_active())
        .bind(to_json(campaign, action)?);
    save.execute(connection).await.attempting(action)?;
    Ok(())
}

async fn find(
    connection: &mut SqliteConnection,
    campaign_id: i64,
    now: Option<i64>,
    action: &'static str,
) -> Result<(Campaign, Ground), StoreError> {
    let found = sqlx::query(FIND_CAMPAIGN).bind(campaign_id).bind(now);
    let found = found.fetch_optional(connection).await;
    let Some(row) = found.attempting(action)? else {
        let text = format!("there is no campaign {campaign_id}");
        return Err(StoreError::found(StoreErrorKind::Refused, action, text));
    };
    Ok((read_campaign(&row, action)?, Ground::read(&row, action)?))
}

/// What is planned stays where it was.
async fn leave(
    connection: &mut SqliteConnection,
    campaign_id: i64,
    action: &'static str,
) -> Result<(), StoreError> {
    let leave = sqlx::query(LEAVE_ITEMS).bind(campaign_id);
    leave.execute(connection).await.attempting(action)?;
    Ok(())
}

fn read_campaign(row: &SqliteRow, action: &'static str) -> Result<Campaign, StoreError> {
    let record: &str = row.try_get("record").attempting(action)?;
    let campaign: Campaign = from_json(record, action)?;
    Ok(Campaign {
        campaign_id: row.try_get("campaign_id").attempting(action)?,
        // It may have another name by now.
        subscription: row.try_get("subscription").attempting(action)?,
        ..campaign
    })
}

fn read_item(row: &SqliteRow) -> Result<CampaignItem, sqlx::Error> {
    let state: &str = row.try_get("state")?;
    let finding: Option<&str> = row.try_get("finding")?;
    let at = |column| {
        let micros: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(micros.map(Timestamp::from_micros))
    };
    Ok(CampaignItem {
        seq: unsigned(row.try_get("seq")?),
        id: row.try_get("id")?,
        message_type: row.try_get("type")?,
        key: row.try_get("key")?,
        case_id: row.try_get("case_id")?,
        // The column has a check constraint.
        state: ItemState::named(state).unwrap_or(ItemState::Left),
        finding: finding.and_then(Finding::named),
        note: row.try_get("note")?,
        started_at: at("started_at")?,
        ended_at: at("ended_at")?,
    })
}
