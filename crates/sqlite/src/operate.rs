//! What operators do, and the record of it.

use onceward_core::case::{account, act, may_purge};
use onceward_core::store::{
    ActOnCase, Actor, AuditEntry, CaseAction, CaseGroup, GroupQuery, HistoryQuery, Limits, Operate,
    ResumeDeferred, RevealOperation, SetLimit, SetPause, Standing, StoreError, StoreErrorKind,
};
use onceward_core::{FailureRecord, Timestamp};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::Sqlite;
use crate::cases::standing;
use crate::error::Attempt;
use crate::row::{from_json, payload_columns, rate, spent, text, unsigned};

const FIND_CASE: &str = include_str!("../sql/operate/find_case.sql");
const SET_STANDING: &str = include_str!("../sql/operate/set_standing.sql");
const CORRECT: &str = include_str!("../sql/operate/correct.sql");
const PURGE_STATE: &str = include_str!("../sql/operate/purge_state.sql");
const PURGE: &str = include_str!("../sql/operate/purge.sql");
const PURGE_CORRECTIONS: &str = include_str!("../sql/operate/purge_corrections.sql");
const RELEASE: &str = include_str!("../sql/operate/release.sql");
const RECORD: &str = include_str!("../sql/operate/record.sql");
const REVISE: &str = include_str!("../sql/operate/revise.sql");
const RESUME_DEFERRED: &str = include_str!("../sql/operate/resume_deferred.sql");
const IS_PAUSED: &str = include_str!("../sql/operate/is_paused.sql");
const CUT_PAUSE: &str = include_str!("../sql/operate/cut_pause.sql");
const PAUSE: &str = include_str!("../sql/operate/pause.sql");
const END_PAUSE: &str = include_str!("../sql/operate/end_pause.sql");
const LIMIT_OF: &str = include_str!("../sql/operate/limit_of.sql");
const SET_LIMIT: &str = include_str!("../sql/operate/set_limit.sql");
const HISTORY: &str = include_str!("../sql/operate/history.sql");
const GROUPS: &str = include_str!("../sql/operate/groups.sql");

const ACTING: &str = "act on a case";
const RESUMING: &str = "resume messages that wait for a person";
const PAUSING: &str = "pause a subscription or end its pause";
const LIMITING: &str = "limit a subscription or end its limit";
const REVEALING: &str = "record that an operation is revealed";
const LOOKING_BACK: &str = "read the audit log";
const GROUPING: &str = "group cases by their cause";

/// Rows where a question names no number.
const ROWS_MAX_DEFAULT: u32 = 100;

impl Operate for Sqlite {
    async fn act_on_case(&self, request: ActOnCase<'_>) -> Result<Standing, StoreError> {
        let mut tx = self.write(ACTING).await?;
        let connection = tx.connection();
        let (subscription, after) = act_in(connection, request, self.now()).await?;
        if request.action.ends_case() {
            revise(connection, &subscription, ACTING).await?;
        }
        tx.commit(ACTING).await?;
        Ok(after)
    }

    async fn resume_deferred(&self, request: ResumeDeferred<'_>) -> Result<u64, StoreError> {
        let checked = request.by.check();
        checked.map_err(|refusal| StoreError::refused(RESUMING, refusal))?;
        let mut tx = self.write(RESUMING).await?;
        let connection = tx.connection();
        is_paused(connection, request.subscription, RESUMING).await?;
        let now = self.now();
        let done = sqlx::query(RESUME_DEFERRED)
            .bind(request.subscription)
            .bind(request.key)
            .bind(now)
            .execute(&mut *connection)
            .await
            .attempting(RESUMING)?;
        let count = done.rows_affected();
        if count == 0 {
            tx.roll_back(RESUMING).await?;
            return Ok(0);
        }
        let record = Record {
            by: request.by,
            action: "resume-deferred",
            subscription: request.subscription,
            case_id: None,
            before: serde_json::json!({ "key": request.key, "operator": count }).to_string(),
            after: serde_json::json!({ "key": request.key, "retry": count }).to_string(),
        };
        record.write(connection, now, RESUMING).await?;
        revise(connection, request.subscription, RESUMING).await?;
        tx.commit(RESUMING).await?;
        Ok(count)
    }

    async fn set_pause(&self, request: SetPause<'_>) -> Result<(), StoreError> {
        let mut tx = self.write(PAUSING).await?;
        let connection = tx.connection();
        let before = is_paused(connection, request.subscription, PAUSING).await?;
        let checked = request.check(before);
        checked.map_err(|refusal| StoreError::refused(PAUSING, refusal))?;
        let now = self.now();
        let statements: &[&str] = match request.is_paused {
            true => &[CUT_PAUSE, PAUSE],
            false => &[END_PAUSE],
        };
        for statement in statements {
            let done = sqlx::query(*statement).bind(request.subscription).bind(now);
            done.execute(&mut *connection).await.attempting(PAUSING)?;
        }
        let paused = |is_paused: bool| serde_json::json!({ "paused": is_paused }).to_string();
        let record = Record {
            by: request.by,
            action: request.as_str(),
            subscription: request.subscription,
            case_id: None,
            before: paused(before),
            after: paused(request.is_paused),
        };
        record.write(connection, now, PAUSING).await?;
        revise(connection, request.subscription, PAUSING).await?;
        tx.commit(PAUSING).await
    }

    async fn set_limit(&self, request: SetLimit<'_>) -> Result<(), StoreError> {
        let mut tx = self.write(LIMITING).await?;
        let connection = tx.connection();
        is_paused(connection, request.subscription, LIMITING).await?;
        let found = sqlx::query(LIMIT_OF).bind(request.subscription);
        let found = found.fetch_one(&mut *connection).await;
        let before = limits(&found.attempting(LIMITING)?).attempting(LIMITING)?;
        let after = request.after(before);
        let after = after.map_err(|refusal| StoreError::refused(LIMITING, refusal))?;
        let set = sqlx::query(SET_LIMIT)
            .bind(request.subscription)
            .bind(after.concurrency_max)
            .bind(after.rate.map(|rate| rate.per_second))
            .bind(after.rate.map(|rate| rate.burst.max(1)));
        set.execute(&mut *connection).await.attempting(LIMITING)?;
        let record = Record {
            by: request.by,
            action: "limit",
            subscription: request.subscription,
            case_id: None,
            before: before.account(),
            after: after.account(),
        };
        record.write(connection, self.now(), LIMITING).await?;
        revise(connection, request.subscription, LIMITING).await?;
        tx.commit(LIMITING).await
    }

    async fn reveal_operation(&self, request: RevealOperation<'_>) -> Result<(), StoreError> {
        let checked = request.check();
        checked.map_err(|refusal| StoreError::refused(REVEALING, refusal))?;
        let mut tx = self.write(REVEALING).await?;
        for subscription in request.subscriptions {
            let record = Record {
                by: request.by,
                action: request.as_str(),
                subscription,
                case_id: None,
                before: request.account(),
                after: request.account(),
            };
            record.write(tx.connection(), self.now(), REVEALING).await?;
        }
        tx.commit(REVEALING).await
    }

    async fn history(&self, query: HistoryQuery<'_>) -> Result<Vec<AuditEntry>, StoreError> {
        let rows = sqlx::query(HISTORY)
            .bind(query.case_id)
            .bind(query.subscription)
            .bind(query.after_audit_id)
            .bind(rows_max(query.rows_max))
            .fetch_all(self.reads())
            .await
            .attempting(LOOKING_BACK)?;
        let entries: Result<_, sqlx::Error> = rows.iter().map(entry).collect();
        entries.attempting(LOOKING_BACK)
    }

    async fn case_groups(&self, query: GroupQuery<'_>) -> Result<Vec<CaseGroup>, StoreError> {
        let rows = sqlx::query(GROUPS)
            .bind(query.subscription)
            .bind(query.with_resolved)
            .bind(rows_max(query.rows_max))
            .fetch_all(self.reads())
            .await
            .attempting(GROUPING)?;
        rows.iter().map(group).collect()
    }
}

/// Acts on a case in an open transaction, without raising the revision. A refusal has changed
/// nothing.
pub(crate) async fn act_in(
    connection: &mut SqliteConnection,
    request: ActOnCase<'_>,
    now: Option<i64>,
) -> Result<(String, Standing), StoreError> {
    let found = sqlx::query(FIND_CASE).bind(request.case_id);
    let found = found.fetch_optional(&mut *connection).await;
    let Some(row) = found.attempting(ACTING)? else {
        let text = format!("there is no case {}", request.case_id);
        return Err(StoreError::found(StoreErrorKind::Refused, ACTING, text));
    };
    let subscription: String = row.try_get("subscription").attempting(ACTING)?;
    let reason: &str = row.try_get("reason").attempting(ACTING)?;
    let age_ms: i64 = row.try_get("age_ms").attempting(ACTING)?;
    let spent = spent(&row, unsigned(age_ms)).attempting(ACTING)?;
    let before = standing(&row, ACTING)?;
    let after = act(
        request.action,
        request.by,
        &before,
        reason,
        request.expected,
    );
    let after = after.map_err(|refusal| StoreError::refused(ACTING, refusal))?;
    set_standing(connection, request.case_id, &after).await?;
    if let CaseAction::Correct { id, payload } = request.action {
        let (json, binary) = payload_columns(payload);
        let correct = sqlx::query(CORRECT).bind(request.case_id).bind(id);
        let correct = correct.bind(json).bind(binary).bind(now);
        let corrected = correct.execute(&mut *connection).await;
        corrected.attempting(ACTING)?;
    }
    if request.action == CaseAction::Release {
        let release = sqlx::query(RELEASE).bind(request.case_id).bind(now);
        let released = release.execute(&mut *connection).await;
        released.attempting(ACTING)?;
    }
    if request.action == CaseAction::Purge {
        purge(connection, request.case_id).await?;
    }
    let record = Record {
        by: request.by,
        action: request.action.as_str(),
        subscription: &subscription,
        case_id: Some(request.case_id),
        before: account(&before, reason, spent),
        after: account(&after, reason, spent),
    };
    record.write(connection, now, ACTING).await?;
    Ok((subscription, after))
}

fn limits(row: &SqliteRow) -> Result<Limits, sqlx::Error> {
    Ok(Limits {
        concurrency_max: row.try_get("concurrency_max")?,
        rate: rate(row)?,
    })
}

const fn rows_max(asked: u32) -> u32 {
    if asked == 0 { ROWS_MAX_DEFAULT } else { asked }
}

/// Removes a case, if it may go.
async fn purge(connection: &mut SqliteConnection, case_id: i64) -> Result<(), StoreError> {
    let state = sqlx::query(PURGE_STATE).bind(case_id);
    let row = state.fetch_one(&mut *connection).await.attempting(ACTING)?;
    let is = |name| row.try_get::<bool, _>(name).attempting(ACTING);
    let checked = may_purge(is("is_deferred")?, is("is_in_log")?);
    checked.map_err(|refusal| StoreError::refused(ACTING, refusal))?;
    for statement in [PURGE_CORRECTIONS, PURGE] {
        let removed = sqlx::query(statement).bind(case_id);
        let removed = removed.execute(&mut *connection).await;
        removed.attempting(ACTING)?;
    }
    Ok(())
}

async fn set_standing(
    connection: &mut SqliteConnection,
    case_id: i64,
    standing: &Standing,
) -> Result<(), StoreError> {
    sqlx::query(SET_STANDING)
        .bind(case_id)
        .bind(standing.state.as_str())
        .bind(&standing.owner)
        .bind(standing.due_at.map(Timestamp::as_micros))
        .bind(standing.replays)
        .bind(&standing.corrected_id)
        .execute(connection)
        .await
        .attempting(ACTING)?;
    Ok(())
}

/// Whether a subscription is paused, which must be there.
async fn is_paused(
    connection: &mut SqliteConnection,
    subscription: &str,
    action: &'static str,
) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar(IS_PAUSED).bind(subscription);
    let found = found.fetch_optional(connection).await.attempting(action)?;
    found.ok_or_else(|| {
        let text = format!("no subscription is called {subscription}");
        StoreError::found(StoreErrorKind::Refused, action, text)
    })
}

pub(crate) async fn revise(
    connection: &mut SqliteConnection,
    subscription: &str,
    action: &'static str,
) -> Result<(), StoreError> {
    let revise = sqlx::query(REVISE).bind(subscription);
    revise.execute(connection).await.attempting(action)?;
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
}

impl Record<'_> {
    pub(crate) async fn write(
        self,
        connection: &mut SqliteConnection,
        now: Option<i64>,
        action: &'static str,
    ) -> Result<(), StoreError> {
        sqlx::query(RECORD)
            .bind(now)
            .bind(self.by.who)
            .bind(self.action)
            .bind(self.subscription)
            .bind(self.case_id)
            .bind(self.by.why)
            .bind(self.before)
            .bind(self.after)
            .execute(connection)
            .await
            .attempting(action)?;
        Ok(())
    }
}

fn entry(row: &SqliteRow) -> Result<AuditEntry, sqlx::Error> {
    Ok(AuditEntry {
        audit_id: row.try_get("audit_id")?,
        acted_at: Timestamp::from_micros(row.try_get("acted_at")?),
        who: row.try_get("who")?,
        action: row.try_get("action")?,
        subscription: row.try_get("subscription")?,
        case_id: row.try_get("case_id")?,
        why: row.try_get("why")?,
        before: row.try_get("before")?,
        after: row.try_get("after")?,
    })
}

fn group(row: &SqliteRow) -> Result<CaseGroup, StoreError> {
    let failure: &str = row.try_get("failure").attempting(GROUPING)?;
    let failure: FailureRecord = from_json(failure, GROUPING)?;
    let number = |column| row.try_get::<i64, _>(column).attempting(GROUPING);
    Ok(CaseGroup {
        fingerprint: row.try_get("fingerprint").attempting(GROUPING)?,
        subscription: row.try_get("subscription").attempting(GROUPING)?,
        message_type: text(row, "type").attempting(GROUPING)?.unwrap_or_default(),
        class: failure.class,
        code: failure.code,
        live: unsigned(number("live")?),
        all: unsigned(number("total")?),
        first_at: Timestamp::from_micros(number("first_at")?),
        last_at: Timestamp::from_micros(number("last_at")?),
        oldest_case_id: number("oldest")?,
    })
}
