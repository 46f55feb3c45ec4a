//! Questions and their answers.

use std::collections::BTreeMap;

use onceward_core::group::Groups;
use onceward_core::lane::lane_of;
use onceward_core::store::{
    Backlog, BacklogQuery, Case, CaseState, DeferralKind, DeferredCounts, DropCount,
    DropCountQuery, Dropped, DroppedPlace, DroppedQuery, HeldQuery, LaneOwner, LongHeld,
    MessageState, MessageStatus, OperationQuery, Status, StoreError, StoreErrorKind,
};
use onceward_core::{Ending, Identity, LedgerKey, Row, Timestamp};

use super::state::{State, Subscription};
use super::writes::LedgerPlace;
use super::{Defect, MemoryStore, Operation};

impl Status for MemoryStore {
    async fn operation(&self, query: OperationQuery<'_>) -> Result<Vec<MessageStatus>, StoreError> {
        self.enter(Operation::Status).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        let rows = state.tables.log.values();
        let rows = rows.filter(|row| row.envelope.operation() == query.operation);
        let statuses = rows.take(query.rows_max as usize).map(|row| {
            let takers = state.subscriptions.iter();
            let takers = takers.filter(|(_, s)| s.types.contains(&row.envelope.message_type));
            let stands = takers.map(|(name, subscription)| {
                let stand = stand(&state, name, subscription, row, now);
                (name.clone(), stand)
            });
            let envelope = &row.envelope;
            MessageStatus {
                id: envelope.id.clone(),
                source: envelope.source.clone().unwrap_or_default(),
                message_type: envelope.message_type.clone(),
                operation: envelope.operation().to_owned(),
                subject: envelope.aggregate_id.clone(),
                recorded_at: row.recorded_at,
                subscriptions: stands.collect(),
            }
        });
        Ok(statuses.collect())
    }

    async fn subscriptions(&self) -> Result<Vec<String>, StoreError> {
        self.enter(Operation::Status).await?;
        Ok(self.shared.state().subscriptions.keys().cloned().collect())
    }

    async fn backlog(&self, query: BacklogQuery<'_>) -> Result<Backlog, StoreError> {
        self.enter(Operation::Status).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        let name = query.subscription;
        let Some(subscription) = state.subscriptions.get(name) else {
            let found = format!("no subscription is called {name}");
            let action = Operation::Status.action();
            return Err(StoreError::found(StoreErrorKind::Refused, action, found));
        };
        let mut backlog = Backlog {
            subscription: name.to_owned(),
            waiting: 0,
            waiting_is_lower_bound: false,
            waiting_before: 0,
            types: subscription.types.clone(),
            oldest_waiting_at: None,
            groups: Vec::new(),
            deferred: DeferredCounts::default(),
            oldest_deferred_at: None,
            due_since: None,
            quarantined: 0,
            paused_at: state.tables.paused_since(name),
            still: state.tables.still(name, now),
            rate: state.tables.limits.get(name).and_then(|limits| limits.rate),
            lanes: owners(&state, name, now),
            now,
        };
        let is_past = match self.shared.has(Defect::GroupsCountTogether) {
            true => is_past,
            false => is_past_in_group,
        };
        count_waiting(&state, subscription, &query, is_past, &mut backlog);
        if self.shared.has(Defect::BeforeCountsAll) {
            backlog.waiting_before = backlog.waiting;
        }
        for ((of, _), deferred) in &state.tables.deferrals {
            if of == name {
                count_deferred(&mut backlog, deferred.kind);
                let other = backlog.oldest_deferred_at.unwrap_or(deferred.first_at);
                backlog.oldest_deferred_at =
                    Some(match self.shared.has(Defect::BacklogLooksYoung) {
                        true => other.max(deferred.first_at),
                        false => other.min(deferred.first_at),
                    });
                let is_late_retry = deferred.kind == DeferralKind::Retry
                    && (deferred.due_at <= Some(now) || self.shared.has(Defect::FutureIsLate));
                if let Some(due_at) = deferred.due_at.filter(|_| is_late_retry) {
                    let earlier = backlog.due_since.is_none_or(|since| due_at < since);
                    backlog.due_since = if earlier {
                        Some(due_at)
                    } else {
                        backlog.due_since
                    };
                }
            }
        }
        let cases = state.tables.cases.values();
        backlog.quarantined = cases
            .filter(|case| case.subscription == name && case.standing.state.is_live())
            .count() as u64;
        Ok(backlog)
    }

    async fn longest_held(&self, query: HeldQuery<'_>) -> Result<Vec<LongHeld>, StoreError> {
        self.enter(Operation::Status).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        // Deferrals are walked by sequence, so a key's first is the one it is made from.
        let mut keys: BTreeMap<&str, LongHeld> = BTreeMap::new();
        for ((of, _), deferred) in &state.tables.deferrals {
            if of != query.subscription {
                continue;
            }
            let key = keys.entry(&deferred.key).or_insert_with(|| LongHeld {
                key: deferred.key.clone(),
                depth: 0,
                held_since: now,
                behind: deferred.kind.as_str().to_owned(),
                case_id: None,
                age_ms: 0,
            });
            if deferred.kind == DeferralKind::Held {
                key.depth += 1;
                key.held_since = key.held_since.min(deferred.first_at);
            }
        }
        let mut held: Vec<LongHeld> = keys.into_values().filter(|key| key.depth > 0).collect();
        for key in &mut held {
            key.age_ms = u64::try_from(now.millis_since(key.held_since)).unwrap_or(0);
            let mut cases = state.tables.cases.values();
            let holds = |case: &&Case| {
                case.subscription == query.subscription
                    && case.key == key.key
                    && case.holds_key
                    && case.standing.state.is_live()
            };
            key.case_id = cases.find(holds).map(|case| case.case_id);
        }
        if !self.shared.has(Defect::HoldLimitsIgnored)
            && let Some(limits) = query.beyond
        {
            held.retain(|key| !limits.passed(key.depth, key.age_ms).is_empty());
        }
        held.sort_by(|a, b| (a.held_since, &a.key).cmp(&(b.held_since, &b.key)));
        held.truncate(query.keys_max as usize);
        Ok(held)
    }

    async fn dropped(&self, query: DroppedQuery<'_>) -> Result<Vec<Dropped>, StoreError> {
        self.enter(Operation::Status).await?;
        let state = self.shared.state();
        let rows = dropped(&state, query.subscription);
        let goes_by = |dropped: &Dropped| match self.shared.has(Defect::DroppedPagesOverlap) {
            true => query.after.is_none_or(|after| dropped.place <= *after),
            false => query.after.is_none_or(|after| dropped.place < *after),
        };
        let wanted = rows.filter(|dropped| query.endings.contains(&dropped.ending));
        let rows = wanted.filter(goes_by).collect();
        Ok(Dropped::latest(rows, query.rows_max))
    }

    async fn drop_counts(&self, query: DropCountQuery<'_>) -> Result<Vec<DropCount>, StoreError> {
        self.enter(Operation::Status).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        let counts = Ending::DROPPED.map(|ending| {
            let within = |ms: i64| {
                let rows = dropped(&state, query.subscription);
                let is_young = |at: Timestamp| {
                    now.millis_since(at) < ms || self.shared.has(Defect::DropsCountForEver)
                };
                let its = rows.filter(|dropped| {
                    dropped.ending == ending && is_young(dropped.place.finished_at)
                });
                (its.count() as u64).min(query.count_max)
            };
            DropCount {
                ending,
                last_hour: within(3_600_000),
                last_day: within(86_400_000),
            }
        });
        Ok(counts.into())
    }
}

/// What policies gave up in a subscription, in no order.
fn dropped<'s>(state: &'s State, subscription: &'s str) -> impl Iterator<Item = Dropped> + 's {
    let rows = state.tables.ledger.iter();
    let rows = rows.filter(move |(place, recorded)| {
        place.subscription == subscription && Ending::DROPPED.contains(&recorded.entry.ending)
    });
    rows.map(|(_, recorded)| {
        let key = &recorded.entry.key;
        let place = DroppedPlace {
            finished_at: recorded.at,
            source: key.source.clone(),
            message_type: key.message_type.clone(),
            identity: key.identity.clone(),
            generation: key.generation,
        };
        let entry = &recorded.entry;
        Dropped::of(entry.ending, place, entry.result.as_deref())
    })
}

/// Whether a subscription's position is past a row, whatever its groups will be.
pub(super) fn is_past(state: &State, name: &str, subscription: &Subscription, row: &Row) -> bool {
    let number = lane_of(row.slot, subscription.lanes);
    let lane = state.lanes.get(&(name.to_owned(), number));
    lane.is_some_and(|lane| lane.stand.position.is_past(row.xid, row.seq))
}

/// Whether the position of the row's own group is.
fn is_past_in_group(state: &State, name: &str, subscription: &Subscription, row: &Row) -> bool {
    let number = lane_of(row.slot, subscription.lanes);
    let lane = state.lanes.get(&(name.to_owned(), number));
    lane.is_some_and(|lane| {
        let (of, attributes) = (&row.envelope.message_type, &row.envelope.attributes);
        let position = subscription.terms.position_of(&lane.stand, of, attributes);
        position.is_past(row.xid, row.seq)
    })
}

fn stand(
    state: &State,
    name: &str,
    subscription: &Subscription,
    row: &Row,
    now: Timestamp,
) -> MessageState {
    let tables = &state.tables;
    let is_its = |of: &str, seq: u64| of == name && seq == row.seq;
    let mut cases = tables.cases.values();
    let case = cases.find(|case| is_its(&case.subscription, case.row.seq));
    if let Some(case) = case.filter(|case| case.standing.state.is_live()) {
        return MessageState::Quarantined {
            case_id: case.case_id,
            reason: case.reason.clone(),
        };
    }
    if let Some(deferred) = tables.deferrals.get(&(name.to_owned(), row.seq)) {
        return MessageState::Deferred {
            kind: deferred.kind.as_str().to_owned(),
            due_at: deferred.due_at,
            spent: tables.spent(name, deferred, now),
            failure: deferred.failure.clone(),
        };
    }
    let identities = [Identity::Message, Identity::Operation, Identity::Seq];
    let recorded = identities.iter().find_map(|identity| {
        let place = LedgerPlace::of(name, *identity, &LedgerKey::of(row, *identity));
        tables.ledger.get(&place)
    });
    if let Some(recorded) = recorded {
        return MessageState::finished(
            recorded.entry.ending,
            recorded.at,
            recorded.entry.result.as_deref().map(str::to_owned),
        );
    }
    if let Some(case) = case.filter(|case| case.standing.state != CaseState::Replayed) {
        return MessageState::Resolved {
            case_id: case.case_id,
            resolution: case.standing.state,
        };
    }
    if is_past_in_group(state, name, subscription, row) {
        MessageState::Delivered
    } else {
        MessageState::Pending
    }
}

fn owners(state: &State, name: &str, now: Timestamp) -> Vec<LaneOwner> {
    let lanes = state.lanes.iter().filter(|((of, _), _)| of == name);
    lanes
        .map(|((_, number), lane)| {
            let owner = lane
                .owner
                .as_ref()
                .and_then(|owner| state.members.get(owner));
            LaneOwner {
                lane: *number,
                owner: owner.map(|member| member.description.clone()),
                is_live: owner.is_some_and(|member| member.is_live(now)),
            }
        })
        .collect()
}

type IsPast = fn(&State, &str, &Subscription, &Row) -> bool;

fn count_waiting(
    state: &State,
    subscription: &Subscription,
    query: &BacklogQuery<'_>,
    is_past: IsPast,
    backlog: &mut Backlog,
) {
    let name = backlog.subscription.clone();
    let tables = &state.tables;
    let groups = subscription.terms.grouping.as_ref().map(Groups::new);
    if let Some(groups) = &groups {
        backlog.divide(groups);
    }
    for row in tables.log.values() {
        let is_wanted = subscription.types.contains(&row.envelope.message_type)
            && subscription
                .not_before
                .is_none_or(|at| row.recorded_at >= at);
        let is_off = tables.deferrals.contains_key(&(name.clone(), row.seq))
            || tables
                .cases
                .values()
                .any(|case| case.subscription == name && case.row.seq == row.seq);
        if !is_wanted || is_off || is_past(state, &name, subscription, row) {
            continue;
        }
        if backlog.waiting == query.count_max {
            backlog.waiting_is_lower_bound = true;
            return;
        }
        let is_before = |before: Timestamp| row.recorded_at <= before;
        backlog.waiting_before += u64::from(query.before.is_some_and(is_before));
        let group = groups.as_ref().and_then(|groups| groups.of(row));
        backlog.waits(group, 1, Some(row.recorded_at));
    }
}

fn count_deferred(backlog: &mut Backlog, kind: DeferralKind) {
    let counts = &mut backlog.deferred;
    match kind {
        DeferralKind::Retry => counts.retry += 1,
        DeferralKind::Held => counts.held += 1,
        DeferralKind::Running => counts.running += 1,
        DeferralKind::Operator => counts.operator += 1,
        DeferralKind::Gap => counts.gap += 1,
    }
}
