//! What operators do, and the record of it.

use onceward_core::Payload;
use onceward_core::case::{account, act, may_purge};
use onceward_core::store::{
    ActOnCase, Actor, AuditEntry, CaseAction, CaseGroup, GroupQuery, HistoryQuery, Limits, Operate,
    ResumeDeferred, RevealOperation, SetLimit, SetPause, Standing, StoreError, StoreErrorKind,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::cases::read_standing;
use crate::deferrals::{read_failure, read_spent};
use crate::error::while_doing;
use crate::lanes::read_rate;
use crate::session::{Postgres, moment};

const ACT: &str = "act on a case";
const RESUME: &str = "resume messages that wait for a person";
const PAUSE: &str = "pause a subscription or end its pause";
const LIMIT: &str = "limit a subscription or end its limit";
const REVEAL: &str = "record that an operation is revealed";
const HISTORY: &str = "read the audit log";
const GROUPS: &str = "group cases by their cause";

/// Rows where a question names no number.
const ROWS_MAX_DEFAULT: u32 = 100;

impl Operate for Postgres {
    async fn act_on_case(&self, request: ActOnCase<'_>) -> Result<Standing, StoreError> {
        let mut tx = self.lease_tx(ACT).await?;
        let connection = tx.connection();
        let (subscription, after) = act_in(connection, request, None, self.now()).await?;
        if request.action.ends_case() {
            revise(connection, &subscription, ACT).await?;
        }
        tx.commit(ACT).await?;
        Ok(after)
    }

    async fn resume_deferred(&self, request: ResumeDeferred<'_>) -> Result<u64, StoreError> {
        let checked = request.by.check();
        checked.map_err(|refusal| StoreError::refused(RESUME, refusal))?;
        let mut tx = self.lease_tx(RESUME).await?;
        let connection = tx.connection();
        is_paused(connection, request.subscription, RESUME).await?;
        let now = self.now();
        let query = sqlx::query(include_str!("../sql/operate/resume_deferred.sql"))
            .bind(request.subscription)
            .bind(request.key)
            .bind(now);
        let done = query
            .execute(&mut *connection)
            .await
            .map_err(while_doing(RESUME))?;
        let count = done.rows_affected();
        if count == 0 {
            tx.roll_back().await;
            return Ok(0);
        }
        let record = Record {
            by: request.by,
            action: "resume-deferred",
            subscription: request.subscription,
            case_id: None,
            before: serde_json::json!({ "key": request.key, "operator": count }).to_string(),
            after: serde_json::json!({ "key": request.key, "retry": count }).to_string(),
            campaign_id: None,
        };
        record.write(connection, now, RESUME).await?;
        revise(connection, request.subscription, RESUME).await?;
        tx.commit(RESUME).await?;
        Ok(count)
    }

    async fn set_pause(&self, request: SetPause<'_>) -> Result<(), StoreError> {
        let mut tx = self.lease_tx(PAUSE).await?;
        let connection = tx.connection();
        let before = is_paused(connection, request.subscription, PAUSE).await?;
        let checked = request.check(before);
        checked.map_err(|refusal| StoreError::refused(PAUSE, refusal))?;
        let now = self.now();
        let statement = match request.is_paused {
            true => include_str!("../sql/operate/pause.sql"),
            false => include_str!("../sql/operate/end_pause.sql"),
        };
        let query = sqlx::query(statement).bind(request.subscription).bind(now);
        query
            .execute(&mut *connection)
            .await
            .map_err(while_doing(PAUSE))?;
        let paused = |is_paused: bool| serde_json::json!({ "paused": is_paused }).to_string();
        let record = Record {
            by: request.by,
            action: request.as_str(),
            subscription: request.subscription,
            case_id: None,
            before: paused(before),
            after: paused(request.is_paused),
            campaign_id: None,
        };
        record.write(connection, now, PAUSE).await?;
        revise(connection, request.subscription, PAUSE).await?;
        tx.commit(PAUSE).await
    }

    async fn set_limit(&self, request: SetLimit<'_>) -> Result<(), StoreError> {
        let mut tx = self.lease_tx(LIMIT).await?;
        let connection = tx.connection();
        // Locks it.
        is_paused(connection, request.subscription, LIMIT).await?;
        let query = sqlx::query(include_str!("../sql/operate/limit_of.sql"));
        let query = query.bind(request.subscription);
        let row = query
            .fetch_one(&mut *connection)
            .await
            .map_err(while_doing(LIMIT))?;
        let before = read_limits(&row).map_err(while_doing(LIMIT))?;
        let after = request.after(before);
        let after = after.map_err(|refusal| StoreError::refused(LIMIT, refusal))?;
        let query = sqlx::query(include_str!("../sql/operate/set_limit.sql"))
            .bind(request.subscription)
            .bind(after.concurrency_max.map(i32::from))
            .bind(after.rate.map(|rate| i64::from(rate.per_second)))
            .bind(after.rate.map(|rate| i64::from(rate.burst.max(1))));
        query
            .execute(&mut *connection)
            .await
            .map_err(while_doing(LIMIT))?;
        let record = Record {
            by: request.by,
            action: "limit",
            subscription: request.subscription,
            case_id: None,
            before: before.account(),
            after: after.account(),
            campaign_id: None,
        };
        record.write(connection, self.now(), LIMIT).await?;
        revise(connection, request.subscription, LIMIT).await?;
        tx.commit(LIMIT).await
    }

    async fn reveal_operation(&self, request: RevealOperation<'_>) -> Result<(), StoreError> {
        let checked = request.check();
        checked.map_err(|refusal| StoreError::refused(REVEAL, refusal))?;
        let mut tx = self.lease_tx(REVEAL).await?;
        for subscription in request.subscriptions {
            let record = Record {
                by: request.by,
                action: request.as_str(),
                subscription,
                case_id: None,
                before: request.account(),
                after: request.account(),
                campaign_id: None,
            };
            record.write(tx.connection(), self.now(), REVEAL).await?;
        }
        tx.commit(REVEAL).await
    }

    async fn history(&self, query: HistoryQuery<'_>) -> Result<Vec<AuditEntry>, StoreError> {
        let mut tx = self.read_tx(HISTORY).await?;
        let statement = sqlx::query(include_str!("../sql/operate/history.sql"))
            .bind(query.case_id)
            .bind(query.subscription)
            .bind(query.after_audit_id)
            .bind(rows_max(query.rows_max));
        let rows = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(HISTORY))?;
        tx.roll_back().await;
        let entries: Result<_, sqlx::Error> = rows.iter().map(read_entry).collect();
        entries.map_err(while_doing(HISTORY))
    }

    async fn case_groups(&self, query: GroupQuery<'_>) -> Result<Vec<CaseGroup>, StoreError> {
        let mut tx = self.read_tx(GROUPS).await?;
        let statement = sqlx::query(include_str!("../sql/operate/groups.sql"))
            .bind(query.subscription)
            .bind(query.with_resolved)
            .bind(rows_max(query.rows_max));
        let rows = statement
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(GROUPS))?;
        tx.roll_back().await;
        let groups: Result<_, sqlx::Error> = rows.iter().map(read_group).collect();
        groups.map_err(while_doing(GROUPS))
    }
}

fn read_limits(row: &PgRow) -> Result<Limits, sqlx::Error> {
    let max: Option<i32> = row.try_get("concurrency_max")?;
    Ok(Limits {
        concurrency_max: max.map(|max| max as u16),
        rate: read_rate(row)?,
    })
}

fn rows_max(asked: u32) -> i64 {
    i64::from(if asked == 0 { ROWS_MAX_DEFAULT } else { asked })
}

/// Acts on a case in an open transaction, for a campaign or for whoever asks, without raising the
/// revision. A refusal has changed nothing.
pub(crate) async fn act_in(
    connection: &mut PgConnection,
    request: ActOnCase<'_>,
    campaign_id: Option<i64>,
    now: Option<i64>,
) -> Result<(String, Standing), StoreError> {
    let query = sqlx::query(include_str!("../sql/operate/lock_case.sql")).bind(request.case_id);
    let found = query
        .fetch_optional(&mut *connection)
        .await
        .map_err(while_doing(ACT))?;
    let Some(row) = found else {
        let text = format!("there is no case {}", request.case_id);
        return Err(StoreError::found(StoreErrorKind::Refused, ACT, text));
    };
    let case = Locked::read(&row).map_err(while_doing(ACT))?;
    let after = act(
        request.action,
        request.by,
        &case.standing,
        &case.reason,
        request.expected,
    );
    let after = after.map_err(|refusal| StoreError::refused(ACT, refusal))?;
    set_standing(connection, request.case_id, &after).await?;
    if let CaseAction::Correct { id, payload } = request.action {
        correct(connection, request.case_id, id, payload, now).await?;
    }
    if request.action == CaseAction::Release {
        let query = sqlx::query(include_str!("../sql/operate/release.sql"))
            .bind(request.case_id)
            .bind(now);
        let released = query.execute(&mut *connection).await;
        released.map_err(while_doing(ACT))?;
    }
    if request.action == CaseAction::Purge {
        purge(connection, request.case_id).await?;
    }
    let record = Record {
        by: request.by,
        action: request.action.as_str(),
        subscription: &case.subscription,
        case_id: Some(request.case_id),
        before: account(&case.standing, &case.reason, case.spent),
        after: account(&after, &case.reason, case.spent),
        campaign_id,
    };
    record.write(connection, now, ACT).await?;
    Ok((case.subscription, after))
}

/// What an action needs to know of its case, which is locked.
struct Locked {
    subscription: String,
    standing: Standing,
    reason: String,
    spent: onceward_core::Spent,
}

impl Locked {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            subscription: row.try_get("subscription")?,
            standing: read_standing(row)?,
            reason: row.try_get("reason")?,
            spent: read_spent(row)?,
        })
    }
}

async fn set_standing(
    connection: &mut PgConnection,
    case_id: i64,
    standing: &Standing,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/operate/set_standing.sql"))
        .bind(case_id)
        .bind(standing.state.as_str())
        .bind(&standing.owner)
        .bind(standing.due_at.map(|at| at.as_micros()))
        .bind(i32::try_from(standing.replays).unwrap_or(i32::MAX))
        .bind(&standing.corrected_id);
    query.execute(connection).await.map_err(while_doing(ACT))?;
    Ok(())
}

/// Removes a case, if it may go.
async fn purge(connection: &mut PgConnection, case_id: i64) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/operate/purge_state.sql")).bind(case_id);
    let row = query.fetch_one(&mut *connection).await;
    let row = row.map_err(while_doing(ACT))?;
    let is = |name| row.try_get::<bool, _>(name).map_err(while_doing(ACT));
    let checked = may_purge(is("is_deferred")?, is("is_in_log")?);
    checked.map_err(|refusal| StoreError::refused(ACT, refusal))?;
    let query = sqlx::query(include_str!("../sql/operate/purge.sql")).bind(case_id);
    query.execute(connection).await.map_err(while_doing(ACT))?;
    Ok(())
}

/// Keeps a corrected message beside the original.
async fn correct(
    connection: &mut PgConnection,
    case_id: i64,
    id: &str,
    payload: &Payload,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let (json, binary) = match payload {
        Payload::Json(text) => (Some(&**text), None),
        Payload::Binary(bytes) => (None, Some(&**bytes)),
    };
    let query = sqlx::query(include_str!("../sql/operate/correct.sql"))
        .bind(case_id)
        .bind(id)
        .bind(json)
        .bind(binary)
        .bind(now);
    query.execute(connection).await.map_err(while_doing(ACT))?;
    Ok(())
}

/// Locks a subscription and says whether it is paused.
async fn is_paused(
    connection: &mut PgConnection,
    subscription: &str,
    action: &'static str,
) -> Result<bool, StoreError> {
    let query =
        sqlx::query(include_str!("../sql/operate/lock_subscription.sql")).bind(subscription);
    let row = query
        .fetch_optional(connection)
        .await
        .map_err(while_doing(action))?;
    let Some(row) = row else {
        let text = format!("no subscription is called {subscription}");
        return Err(StoreError::found(StoreErrorKind::Refused, action, text));
    };
    row.try_get("is_paused").map_err(while_doing(action))
}

pub(crate) async fn revise(
    connection: &mut PgConnection,
    subscription: &str,
    action: &'static str,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/operate/revise.sql")).bind(subscription);
    query
        .execute(connection)
        .await
        .map_err(while_doing(action))?;
    Ok(())
}

/// A row of the audit log to be written.
pub(crate) struct Record<'a> {
    pub(crate) by: Actor<'a>,
    pub(crate) action: &'a str,
    pub(crate) subscription: &'a str,
    pub(crate) case_id: Option<i64>,
    pub(crate) before: String,
    pub(crate) after: String,
    /// The campaign that does it, where it is not a person.
    pub(crate) campaign_id: Option<i64>,
}

impl Record<'_> {
    pub(crate) async fn write(
        self,
        connection: &mut PgConnection,
        now: Option<i64>,
        action: &'static str,
    ) -> Result<(), StoreError> {
        let statement = match self.campaign_id {
            Some(_) => include_str!("../sql/replay/record.sql"),
            None => include_str!("../sql/operate/record.sql"),
        };
        let mut query = sqlx::query(statement)
            .bind(now)
            .bind(self.by.who)
            .bind(self.action)
            .bind(self.subscription)
            .bind(self.case_id)
            .bind(self.by.why)
            .bind(self.before)
            .bind(self.after);
        if let Some(campaign_id) = self.campaign_id {
            query = query.bind(campaign_id);
        }
        query
            .execute(connection)
            .await
            .map_err(while_doing(action))?;
        Ok(())
    }
}

fn read_entry(row: &PgRow) -> Result<AuditEntry, sqlx::Error> {
    Ok(AuditEntry {
        audit_id: row.try_get("audit_id")?,
        acted_at: moment(row.try_get("acted_at")?),
        who: row.try_get("who")?,
        action: row.try_get("action")?,
        subscription: row.try_get("subscription")?,
        case_id: row.try_get("case_id")?,
        why: row.try_get("why")?,
        before: row.try_get("before")?,
        after: row.try_get("after")?,
    })
}

fn read_group(row: &PgRow) -> Result<CaseGroup, sqlx::Error> {
    let failure = read_failure(row.try_get("failure")?)?.ok_or(sqlx::Error::RowNotFound)?;
    let count = |name| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(name)? as u64);
    Ok(CaseGroup {
        fingerprint: row.try_get("fingerprint")?,
        subscription: row.try_get("subscription")?,
        message_type: row.try_get("type")?,
        class: failure.class,
        code: failure.code,
        live: count("live")?,
        all: count("total")?,
        first_at: moment(row.try_get("first_at")?),
        last_at: moment(row.try_get("last_at")?),
        oldest_case_id: row.try_get("oldest")?,
    })
}
