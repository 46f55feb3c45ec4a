//! What operators do.

use std::collections::BTreeMap;

use onceward_core::case::{account, act, may_purge};
use onceward_core::store::{
    ActOnCase, Actor, AuditEntry, CaseAction, CaseGroup, Correction, Deferral, DeferralKind,
    GroupQuery, HistoryQuery, Operate, ResumeDeferred, RevealOperation, SetLimit, SetPause,
    Standing, StoreError, StoreErrorKind,
};
use onceward_core::{Spent, Timestamp};

use super::state::{OpenTx, State};
use super::writes::{Deferred, Pause, Write};
use super::{Defect, MemoryStore, Operation};

/// Rows in a page where the query names no number.
const PAGE_ROWS: usize = 100;

const ACTION: &str = Operation::Operate.action();

impl Operate for MemoryStore {
    async fn act_on_case(&self, request: ActOnCase<'_>) -> Result<Standing, StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let (subscription, after, mut writes) = self.act_in(&state, request, now)?;
        if request.action.ends_case() {
            writes.extend(self.revise(&subscription));
        }
        commit(&mut state, now, writes);
        Ok(after)
    }

    async fn resume_deferred(&self, request: ResumeDeferred<'_>) -> Result<u64, StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let checked = request.by.check();
        checked.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        known(&state, request.subscription)?;
        let waiting = state.tables.deferrals.iter().filter(|((of, _), deferred)| {
            of == request.subscription
                && deferred.kind == DeferralKind::Operator
                && request.key.is_none_or(|key| key == deferred.key)
        });
        let mut writes: Vec<Write> = waiting
            .map(|((subscription, seq), _)| Write::Resume {
                subscription: subscription.clone(),
                seq: *seq,
                at: now,
            })
            .collect();
        let count = writes.len() as u64;
        if count == 0 {
            return Ok(0);
        }
        let key = serde_json::json!({ "key": request.key, "operator": count });
        let after = serde_json::json!({ "key": request.key, "retry": count });
        writes.push(Write::Audit(AuditEntry {
            before: key.to_string(),
            after: after.to_string(),
            ..entry(now, request.by, "resume-deferred", request.subscription)
        }));
        writes.extend(self.revise(request.subscription));
        commit(&mut state, now, writes);
        Ok(count)
    }

    async fn set_pause(&self, request: SetPause<'_>) -> Result<(), StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let before = state.tables.paused_since(request.subscription).is_some();
        let checked = request.check(before);
        checked.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        known(&state, request.subscription)?;
        let paused = |is_paused: bool| serde_json::json!({ "paused": is_paused }).to_string();
        let mut writes = vec![
            Write::Pause(Pause {
                subscription: request.subscription.to_owned(),
                from: now,
                to: None,
                counts: self.shared.has(Defect::PausesCount),
                still: None,
                leaves_still: self.shared.has(Defect::StillUncut),
                leaves_paused: self.shared.has(Defect::PausesOverlap),
            }),
            Write::Audit(AuditEntry {
                before: paused(before),
                after: paused(request.is_paused),
                ..entry(now, request.by, request.as_str(), request.subscription)
            }),
        ];
        writes.extend(self.revise(request.subscription));
        commit(&mut state, now, writes);
        Ok(())
    }

    async fn set_limit(&self, request: SetLimit<'_>) -> Result<(), StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        known(&state, request.subscription)?;
        let before = state.tables.limits.get(request.subscription).copied();
        let before = before.unwrap_or_default();
        let after = request.after(before);
        let after = after.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        let subscription = request.subscription.to_owned();
        let mut writes = vec![
            Write::Limit(subscription, after),
            Write::Audit(AuditEntry {
                before: before.account(),
                after: after.account(),
                ..entry(now, request.by, "limit", request.subscription)
            }),
        ];
        writes.extend(self.revise(request.subscription));
        commit(&mut state, now, writes);
        Ok(())
    }

    async fn reveal_operation(&self, request: RevealOperation<'_>) -> Result<(), StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let checked = request.check();
        checked.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        let rows = request.subscriptions.iter().map(|subscription| {
            Write::Audit(AuditEntry {
                before: request.account(),
                after: request.account(),
                ..entry(now, request.by, request.as_str(), subscription)
            })
        });
        let rows = rows.collect();
        commit(&mut state, now, rows);
        Ok(())
    }

    async fn history(&self, query: HistoryQuery<'_>) -> Result<Vec<AuditEntry>, StoreError> {
        self.enter(Operation::Operate).await?;
        let state = self.shared.state();
        let wanted = state.tables.audit.iter().filter(|entry| {
            entry.audit_id > query.after_audit_id
                && (query.case_id.is_none() || query.case_id == entry.case_id)
                && query.subscription.is_none_or(|of| of == entry.subscription)
        });
        Ok(wanted.take(rows_max(query.rows_max)).cloned().collect())
    }

    async fn case_groups(&self, query: GroupQuery<'_>) -> Result<Vec<CaseGroup>, StoreError> {
        self.enter(Operation::Operate).await?;
        let state = self.shared.state();
        let mut groups: BTreeMap<&str, CaseGroup> = BTreeMap::new();
        for case in state.tables.cases.values() {
            if query.subscription.is_some_and(|of| of != case.subscription) {
                continue;
            }
            let is_live = case.standing.state.is_live();
            let group = groups
                .entry(&case.fingerprint)
                .or_insert_with(|| CaseGroup {
                    fingerprint: case.fingerprint.clone(),
                    subscription: case.subscription.clone(),
                    message_type: case.row.envelope.message_type.clone(),
                    class: case.failure.class,
                    code: case.failure.code.clone(),
                    live: 0,
                    all: 0,
                    first_at: case.first_opened_at,
                    last_at: case.opened_at,
                    oldest_case_id: case.case_id,
                });
            if is_live && group.live == 0 {
                group.oldest_case_id = case.case_id;
            }
            group.live += u64::from(is_live);
            group.all += 1;
            group.first_at = group.first_at.min(case.first_opened_at);
            group.last_at = group.last_at.max(case.opened_at);
        }
        let mut groups: Vec<CaseGroup> = groups.into_values().collect();
        groups.retain(|group| group.live > 0 || query.with_resolved);
        groups.sort_by_key(|group| (u64::MAX - group.live, group.oldest_case_id));
        groups.truncate(rows_max(query.rows_max));
        Ok(groups)
    }
}

const fn rows_max(asked: u32) -> usize {
    match asked {
        0 => PAGE_ROWS,
        asked => asked as usize,
    }
}

pub(super) fn known(state: &State, subscription: &str) -> Result<(), StoreError> {
    if state.subscriptions.contains_key(subscription) {
        return Ok(());
    }
    let text = format!("no subscription is called {subscription}");
    Err(StoreError::found(StoreErrorKind::Refused, ACTION, text))
}

/// A row of the audit log without its subject; the table numbers it.
pub(super) fn entry(now: Timestamp, by: Actor<'_>, action: &str, subscription: &str) -> AuditEntry {
    AuditEntry {
        audit_id: 0,
        acted_at: now,
        who: by.who.to_owned(),
        action: action.to_owned(),
        subscription: subscription.to_owned(),
        case_id: None,
        why: by.why.map(str::to_owned),
        before: String::new(),
        after: String::new(),
    }
}

/// All of it in one transaction. Nobody could have ended it.
pub(super) fn commit(state: &mut State, now: Timestamp, writes: Vec<Write>) {
    let number = state.open(OpenTx {
        xid: None,
        member: None,
        idle_max_ms: None,
        used_at: now,
        writes: Vec::new(),
        savepoint: None,
    });
    let written = writes
        .into_iter()
        .try_for_each(|write| state.write(number, now, write));
    let ended = written.and_then(|()| state.commit(number, now));
    debug_assert!(ended.is_ok(), "the state was locked all the time");
}

impl MemoryStore {
    /// What acting on a case writes, without raising the revision.
    pub(super) fn act_in(
        &self,
        state: &State,
        request: ActOnCase<'_>,
        now: Timestamp,
    ) -> Result<(String, Standing, Vec<Write>), StoreError> {
        let Some(case) = state.tables.cases.get(&request.case_id).cloned() else {
            let text = format!("there is no case {}", request.case_id);
            return Err(StoreError::found(StoreErrorKind::Refused, ACTION, text));
        };
        let mut before = case.standing.clone();
        if self.shared.has(Defect::ActsTwice) {
            before = before.opened_again();
        }
        let after = act(
            request.action,
            request.by,
            &before,
            &case.reason,
            request.expected,
        );
        let after = after.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        let mut writes = vec![
            Write::Stand {
                case_id: case.case_id,
                standing: after.clone(),
            },
            Write::Audit(AuditEntry {
                case_id: Some(case.case_id),
                before: account(&case.standing, &case.reason, case.spent),
                after: account(&after, &case.reason, case.spent),
                ..entry(now, request.by, request.action.as_str(), &case.subscription)
            }),
        ];
        if let CaseAction::Correct { id, payload } = request.action {
            writes.push(Write::Correct {
                case_id: case.case_id,
                correction: Correction {
                    id: id.to_owned(),
                    payload: payload.clone(),
                },
            });
        }
        if request.action == CaseAction::Purge {
            let place = (case.subscription.clone(), case.row.seq);
            let is_deferred = state.tables.deferrals.contains_key(&place);
            let is_in_log = state.tables.log.contains_key(&case.row.seq);
            let is_in_log = is_in_log && !self.shared.has(Defect::PurgesWhatMayCome);
            let checked = may_purge(is_deferred, is_in_log);
            checked.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
            writes.push(Write::Purge(case.case_id));
        }
        if request.action == CaseAction::Release {
            let keeps_budget = self.shared.has(Defect::ReleasedWithOldBudget);
            let deferral = Deferral {
                seq: case.row.seq,
                slot: case.row.slot,
                key: case.key.clone(),
                kind: DeferralKind::Retry,
                due_in_ms: Some(0),
                spent: if keeps_budget {
                    case.spent
                } else {
                    Spent::default()
                },
                failure: Some(case.failure.clone()),
            };
            writes.push(Write::Replace {
                subscription: case.subscription.clone(),
                deferred: Deferred::of(&deferral, now),
            });
        }
        Ok((case.subscription, after, writes))
    }

    pub(super) fn revise(&self, subscription: &str) -> Option<Write> {
        let is_wrong = self.shared.has(Defect::RevisionStands);
        (!is_wrong).then(|| Write::Revise(subscription.to_owned()))
    }
}
