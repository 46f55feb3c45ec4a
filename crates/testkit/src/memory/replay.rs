//! Replay campaigns.

use std::collections::BTreeMap;

use onceward_core::campaign::{
    Bench, CampaignKind, CampaignState, Candidate, ItemNow, ItemState, act, outcome, replayed,
};
use onceward_core::store::{
    ActOnCampaign, ActOnCase, Actor, Campaign, CampaignItem, CampaignQuery, Case, CaseAction,
    CaseState, Deferral, DeferralKind, ItemQuery, PlanCampaign, Replay, Source, StepCampaign,
    Stepped, StoreError, StoreErrorKind,
};
use onceward_core::{Row, Spent, Timestamp};

use super::operate::{commit, entry};
use super::state::{State, Subscription};
use super::status::is_past;
use super::writes::{Deferred, LedgerPlace, Write};
use super::{Defect, MemoryStore, Operation, SOURCE};

/// Rows in a page where the query names no number.
const PAGE_ROWS: u32 = 100;
/// Who stands in the audit log for what a campaign does by itself.
const ITSELF: &str = "onceward";

const ACTION: &str = Operation::Operate.action();

/// An item as kept.
#[derive(Clone, Debug)]
pub(super) struct KeptItem {
    pub(super) item: CampaignItem,
    pub(super) subscription: String,
    pub(super) generation: u32,
    recorded_at: Timestamp,
}

impl KeptItem {
    /// Whether its message may still go out, or is out.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.item.state, ItemState::Planned | ItemState::Running)
    }

    /// Whether a row of the log has to stay for it.
    pub(super) fn pins(&self, seq: u64) -> bool {
        self.item.seq == seq && self.is_open() && self.item.case_id.is_none()
    }
}

/// The tables of campaigns.
#[derive(Debug, Default)]
pub(super) struct Campaigns {
    pub(super) campaigns: BTreeMap<i64, Campaign>,
    /// By campaign and sequence.
    pub(super) items: BTreeMap<(i64, u64), KeptItem>,
}

impl Campaigns {
    /// The generation of the last rerun that started a message.
    pub(super) fn generation(&self, subscription: &str, seq: u64) -> u32 {
        let items = self.items.values();
        let of_message = items.filter(|kept| {
            kept.subscription == subscription
                && kept.item.seq == seq
                && kept.item.started_at.is_some()
        });
        of_message.map(|kept| kept.generation).max().unwrap_or(0)
    }

    /// Hands everything of a subscription to its new name.
    pub(super) fn rename(&mut self, former: &str, name: &str) {
        for campaign in self.campaigns.values_mut() {
            if campaign.subscription == former {
                name.clone_into(&mut campaign.subscription);
            }
        }
        for kept in self.items.values_mut() {
            if kept.subscription == former {
                name.clone_into(&mut kept.subscription);
            }
        }
    }

    /// What is planned stays where it was.
    fn leave(&mut self, campaign_id: i64) {
        for kept in self
            .items
            .range_mut((campaign_id, 0)..=(campaign_id, u64::MAX))
        {
            if kept.1.item.state == ItemState::Planned {
                kept.1.item.state = ItemState::Left;
            }
        }
    }
}

impl Replay for MemoryStore {
    async fn plan_campaign(&self, request: PlanCampaign<'_>) -> Result<Campaign, StoreError> {
        self.enter(Operation::Operate).await?;
        request.check(ACTION)?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let Some(subscription) = state.subscriptions.get(request.subscription).cloned() else {
            return Err(no_subscription(request.subscription));
        };
        if !self.shared.has(Defect::RerunsUndeclared) {
            request.check_terms(&subscription.terms, ACTION)?;
        }
        let reruns = state.campaigns.campaigns.values().filter(|campaign| {
            campaign.subscription == request.subscription && campaign.kind == CampaignKind::Rerun
        });
        let generation = match request.kind {
            CampaignKind::Resend => 0,
            CampaignKind::Rerun => reruns.map(|c| c.generation).max().unwrap_or(0) + 1,
        };
        let mut found = choose(&state, &request, &subscription);
        let has_more = found.len() > request.items_max();
        found.truncate(request.items_max());
        for candidate in &mut found {
            candidate.is_in_campaign &= !self.shared.has(Defect::CampaignsShare);
        }
        let bench = bench(&state, &subscription, request.kind, request.accept, now);
        let judged: Vec<_> = found
            .iter()
            .map(|one| {
                let is_known = is_known(&state, request.subscription, &bench, one);
                let is_overtaken = is_overtaken(&state, request.subscription, &subscription, one);
                bench.judge(one, is_known, is_overtaken)
            })
            .collect();
        let left = judged.iter().filter(|verdict| verdict.goes_out).count();
        let mut campaign = request.planned(&found, left, generation, now, ACTION)?;
        campaign.has_more = has_more;
        campaign.campaign_id = state.campaigns.campaigns.len() as i64 + 1;
        for (one, verdict) in found.iter().zip(&judged) {
            let kept = KeptItem {
                item: CampaignItem {
                    seq: one.seq,
                    id: one.id.clone(),
                    message_type: one.message_type.clone(),
                    key: one.waits_behind(&subscription.terms),
                    case_id: one.case_id,
                    state: verdict.planned_as(),
                    finding: verdict.finding,
                    note: verdict.note().map(str::to_owned),
                    started_at: None,
                    ended_at: None,
                },
                subscription: request.subscription.to_owned(),
                generation,
                recorded_at: one.recorded_at,
            };
            let place = (campaign.campaign_id, one.seq);
            state.campaigns.items.insert(place, kept);
        }
        let number = campaign.campaign_id;
        state.campaigns.campaigns.insert(number, campaign.clone());
        let mut audit = entry(now, request.by, "replay-plan", request.subscription);
        audit.before = "{}".to_owned();
        audit.after = campaign.account();
        commit(&mut state, now, vec![Write::Audit(audit)]);
        Ok(campaign)
    }

    async fn act_on_campaign(&self, request: ActOnCampaign<'_>) -> Result<Campaign, StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let mut campaign = find(&state, request.campaign_id)?;
        let before = campaign.account();
        let standing = act(
            request.action,
            request.by,
            &campaign.standing,
            &campaign.planned_by,
            now,
        );
        let standing = standing.map_err(|refusal| StoreError::refused(ACTION, refusal))?;
        campaign.acted(request.action, request.by, standing, now);
        if campaign.standing.state == CampaignState::Stopped
            && !self.shared.has(Defect::StoppedKeepsItems)
        {
            state.campaigns.leave(campaign.campaign_id);
        }
        let name = request.action.as_str();
        let mut audit = entry(now, request.by, name, &campaign.subscription);
        audit.before = before;
        audit.after = campaign.account();
        let number = campaign.campaign_id;
        state.campaigns.campaigns.insert(number, campaign.clone());
        commit(&mut state, now, vec![Write::Audit(audit)]);
        Ok(campaign)
    }

    async fn campaigns(&self, query: CampaignQuery<'_>) -> Result<Vec<Campaign>, StoreError> {
        self.enter(Operation::Operate).await?;
        let state = self.shared.state();
        let campaigns = state.campaigns.campaigns.values().filter(|campaign| {
            campaign.campaign_id > query.after_campaign_id
                && query
                    .campaign_id
                    .is_none_or(|id| id == campaign.campaign_id)
                && query
                    .subscription
                    .is_none_or(|of| of == campaign.subscription)
                && (campaign.is_active() || !query.is_active)
        });
        Ok(campaigns.take(rows_max(query.rows_max)).cloned().collect())
    }

    async fn campaign_items(&self, query: ItemQuery<'_>) -> Result<Vec<CampaignItem>, StoreError> {
        self.enter(Operation::Operate).await?;
        let state = self.shared.state();
        let of_campaign = (query.campaign_id, 0)..=(query.campaign_id, u64::MAX);
        let items = state.campaigns.items.range(of_campaign);
        let items = items.map(|(_, kept)| &kept.item).filter(|item| {
            item.seq > query.after_seq
                && (query.states.is_empty() || query.states.contains(&item.state))
        });
        Ok(items.take(rows_max(query.rows_max)).cloned().collect())
    }

    async fn step_campaign(&self, request: StepCampaign) -> Result<Stepped, StoreError> {
        self.enter(Operation::Operate).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let mut campaign = find(&state, request.campaign_id)?;
        let before = (campaign.standing.state, campaign.account());
        settle(&mut state, &mut campaign, now);
        let advance = campaign.advance(now);
        let mut writes = Vec::new();
        let started = match advance.start {
            0 => 0,
            count => self.send_out(&mut state, &mut campaign, count, now, &mut writes),
        };
        if started > 0 {
            writes.extend(self.revise(&campaign.subscription));
        }
        if campaign.standing.state != before.0 {
            if campaign.standing.state == CampaignState::Stopped {
                state.campaigns.leave(campaign.campaign_id);
            }
            let by = Actor {
                who: ITSELF,
                why: campaign.standing.stopped_by.as_deref(),
            };
            let mut audit = entry(now, by, campaign.step_name(), &campaign.subscription);
            audit.before = before.1;
            audit.after = campaign.account();
            writes.push(Write::Audit(audit));
        }
        let number = campaign.campaign_id;
        state.campaigns.campaigns.insert(number, campaign.clone());
        if !writes.is_empty() {
            commit(&mut state, now, writes);
        }
        Ok(Stepped {
            campaign,
            started,
            wait_ms: advance.wait_ms,
        })
    }
}

const fn rows_max(asked: u32) -> usize {
    (if asked == 0 { PAGE_ROWS } else { asked }) as usize
}

fn no_subscription(name: &str) -> StoreError {
    let text = format!("no subscription is called {name}");
    StoreError::found(StoreErrorKind::Refused, ACTION, text)
}

fn find(state: &State, campaign_id: i64) -> Result<Campaign, StoreError> {
    let found = state.campaigns.campaigns.get(&campaign_id).cloned();
    found.ok_or_else(|| {
        let text = format!("there is no campaign {campaign_id}");
        StoreError::found(StoreErrorKind::Refused, ACTION, text)
    })
}

fn bench<'a>(
    state: &State,
    subscription: &'a Subscription,
    kind: CampaignKind,
    accept: &'a [onceward_core::campaign::Finding],
    now: Timestamp,
) -> Bench<'a> {
    let retention = state.last_tidy.as_ref();
    let retention = retention.and_then(|(_, report)| report.retention);
    Bench {
        kind,
        terms: subscription.terms.clone(),
        types: &subscription.types,
        retention: retention.unwrap_or_default(),
        accept,
        now,
    }
}

fn case_of<'s>(state: &'s State, subscription: &str, seq: u64) -> Option<&'s Case> {
    let mut cases = state.tables.cases.values();
    cases.find(|case| case.subscription == subscription && case.row.seq == seq)
}

/// Whether a live case of another message holds a key.
fn is_held(state: &State, subscription: &str, key: &str, seq: u64) -> bool {
    let mut cases = state.tables.cases.values();
    cases.any(|case| {
        case.subscription == subscription
            && case.holds_key
            && case.standing.state.is_live()
            && case.key == key
            && case.row.seq != seq
    })
}

/// A message with what is known of it.
fn candidate(state: &State, subscription: &str, row: &Row, case: Option<&Case>) -> Candidate {
    let envelope = &row.envelope;
    let live = case_of(state, subscription, row.seq).filter(|case| case.standing.state.is_live());
    let place = (subscription.to_owned(), row.seq);
    let mut items = state.campaigns.items.values();
    Candidate {
        seq: row.seq,
        key: envelope.key().to_owned(),
        id: envelope.id.clone(),
        source: envelope.source.clone().unwrap_or_else(|| SOURCE.to_owned()),
        message_type: envelope.message_type.clone(),
        operation: envelope.operation().to_owned(),
        recorded_at: row.recorded_at,
        case_id: case.map(|case| case.case_id),
        reason: case.map(|case| case.reason.clone()),
        is_there: true,
        has_live_case: case.is_none() && live.is_some(),
        is_behind_case: case.is_none() && is_held(state, subscription, envelope.key(), row.seq),
        is_given_up: case.is_none()
            && case_of(state, subscription, row.seq).is_some_and(|case| {
                let state = case.standing.state;
                matches!(state, CaseState::Discarded | CaseState::Waived)
            }),
        is_deferred: state.tables.deferrals.contains_key(&place),
        is_in_campaign: items.any(|kept| {
            kept.subscription == subscription && kept.item.seq == row.seq && kept.is_open()
        }),
    }
}

/// Finds one message more than a campaign takes, in the order of the log.
fn choose(
    state: &State,
    request: &PlanCampaign<'_>,
    subscription: &Subscription,
) -> Vec<Candidate> {
    let (name, wanted) = (request.subscription, request.selection);
    let is_wanted = |row: &Row, at: Timestamp| {
        row.seq > wanted.after_seq
            && wanted
                .key
                .as_deref()
                .is_none_or(|key| key == row.envelope.key())
            && wanted.from.is_none_or(|from| at >= from)
            && wanted.before.is_none_or(|before| at < before)
    };
    let message_type = wanted.message_type.as_deref();
    let mut found: Vec<Candidate> = match wanted.source {
        Source::Cases => {
            let cases = state.tables.cases.values().filter(|case| {
                case.subscription == name
                    && case.standing.state.is_live()
                    && is_wanted(&case.row, case.opened_at)
                    && (wanted.case_ids.is_empty() || wanted.case_ids.contains(&case.case_id))
                    && wanted
                        .fingerprint
                        .as_ref()
                        .is_none_or(|f| *f == case.fingerprint)
                    && (wanted.owner.is_none() || wanted.owner == case.standing.owner)
                    && message_type.is_none_or(|t| t == case.row.envelope.message_type)
            });
            cases
                .map(|case| candidate(state, name, &case.row, Some(case)))
                .collect()
        }
        Source::Log => {
            let rows = state.tables.log.values().filter(|row| {
                let its_type = &row.envelope.message_type;
                is_wanted(row, row.recorded_at)
                    && match message_type {
                        Some(only) => only == its_type,
                        None => subscription.types.contains(its_type),
                    }
                    && is_past(state, name, subscription, row)
            });
            rows.map(|row| candidate(state, name, row, None)).collect()
        }
    };
    found.sort_by_key(|one| one.seq);
    found.truncate(request.items_max() + 1);
    found
}

fn is_known(state: &State, subscription: &str, bench: &Bench<'_>, one: &Candidate) -> bool {
    let identity = bench.terms.identity;
    let place = LedgerPlace::of(subscription, identity, &one.ledger_key(identity));
    state.tables.ledger.contains_key(&place)
}

fn is_overtaken(state: &State, name: &str, subscription: &Subscription, one: &Candidate) -> bool {
    let mut later = state.tables.log.range(one.seq + 1..).map(|(_, row)| row);
    later.any(|row| {
        let place = (name.to_owned(), row.seq);
        let case = case_of(state, name, row.seq).map(|case| case.standing.state);
        row.envelope.key() == one.key
            && subscription.types.contains(&row.envelope.message_type)
            && is_past(state, name, subscription, row)
            && !state.tables.deferrals.contains_key(&place)
            && case.is_none_or(|state| state == CaseState::Replayed)
    })
}

/// Sees what became of what went out.
fn settle(state: &mut State, campaign: &mut Campaign, now: Timestamp) {
    let number = campaign.campaign_id;
    let of_campaign = || (number, 0)..=(number, u64::MAX);
    let running: Vec<u64> = state
        .campaigns
        .items
        .range(of_campaign())
        .filter(|(_, kept)| kept.item.state == ItemState::Running)
        .map(|(place, _)| place.1)
        .collect();
    let (mut done, mut failed, mut waiting) = (0, 0, 0);
    for seq in running {
        let case = case_of(state, &campaign.subscription, seq);
        let deferred = state
            .tables
            .deferrals
            .get(&(campaign.subscription.clone(), seq));
        let item_now = ItemNow {
            deferral: deferred.map(|deferred| deferred.kind),
            case: case.map(|case| case.standing.state),
            is_behind_case: deferred
                .is_some_and(|deferred| is_held(state, &campaign.subscription, &deferred.key, seq)),
        };
        waiting += u64::from(item_now.is_waiting());
        let reason = case.map(|case| case.reason.clone());
        let Some(ended) = outcome(&item_now) else {
            continue;
        };
        let is_done = ended == ItemState::Done;
        done += u64::from(is_done);
        failed += u64::from(!is_done);
        if let Some(kept) = state.campaigns.items.get_mut(&(number, seq)) {
            kept.item.state = ended;
            kept.item.ended_at = Some(now);
            kept.item.note = reason.filter(|_| !is_done);
        }
    }
    campaign.settle(done, failed, waiting);
}

impl MemoryStore {
    /// Sends the next ones out, each looked at anew. Returns how many went.
    fn send_out(
        &self,
        state: &mut State,
        campaign: &mut Campaign,
        count: u64,
        now: Timestamp,
        writes: &mut Vec<Write>,
    ) -> u64 {
        let number = campaign.campaign_id;
        let name = campaign.subscription.clone();
        let Some(subscription) = state.subscriptions.get(&name).cloned() else {
            return 0;
        };
        let next: Vec<KeptItem> = state
            .campaigns
            .items
            .range((number, 0)..=(number, u64::MAX))
            .filter(|(_, kept)| kept.item.state == ItemState::Planned)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|(_, kept)| kept.clone())
            .collect();
        let why = format!("replay campaign {number}");
        let by = Actor {
            who: campaign.started_by.as_deref().unwrap_or(ITSELF),
            why: Some(&why),
        };
        let (mut started, mut refused) = (0, 0);
        for mut kept in next {
            let seq = kept.item.seq;
            let one = planned(state, &name, &kept);
            let bench = bench(state, &subscription, campaign.kind, &campaign.accept, now);
            let verdict = bench.judge(&one, is_known(state, &name, &bench, &one), false);
            let mut note = verdict.note().map(str::to_owned);
            if verdict.goes_out {
                match kept.item.case_id {
                    Some(case_id) => {
                        let request = ActOnCase {
                            case_id,
                            action: CaseAction::Release,
                            expected: None,
                            by,
                        };
                        match self.act_in(state, request, now) {
                            Ok((_, _, released)) => writes.extend(released),
                            Err(error) => note = Some(error.to_string()),
                        }
                    }
                    None => writes.push(sent(state, &name, &kept, now)),
                }
            }
            let goes_out = note.is_none();
            started += u64::from(goes_out);
            refused += u64::from(!goes_out);
            if goes_out {
                kept.item.started_at = Some(now);
                if !self.shared.has(Defect::StepsRepeat) {
                    kept.item.state = ItemState::Running;
                }
            } else {
                kept.item.state = ItemState::Refused;
                kept.item.ended_at = Some(now);
            }
            kept.item.finding = verdict.finding.or(kept.item.finding);
            kept.item.note = note;
            state.campaigns.items.insert((number, seq), kept);
        }
        campaign.start(started, refused);
        started
    }
}

/// A planned item as it is found now.
fn planned(state: &State, subscription: &str, kept: &KeptItem) -> Candidate {
    let seq = kept.item.seq;
    let case = kept.item.case_id.and_then(|id| state.tables.cases.get(&id));
    let row = match case {
        Some(case) => Some(&case.row),
        None => state.tables.log.get(&seq),
    };
    let found = row.map(|row| candidate(state, subscription, row, case));
    let mut found = found.unwrap_or_else(|| Candidate {
        seq,
        key: kept.item.key.clone(),
        id: kept.item.id.clone(),
        source: SOURCE.to_owned(),
        message_type: kept.item.message_type.clone(),
        operation: kept.item.id.clone(),
        recorded_at: kept.recorded_at,
        case_id: kept.item.case_id,
        reason: None,
        is_there: false,
        has_live_case: false,
        is_behind_case: false,
        is_given_up: false,
        is_deferred: false,
        is_in_campaign: false,
    });
    // It is this one.
    found.is_in_campaign = false;
    found
}

/// A message of the log as a retry that is due.
fn sent(state: &State, subscription: &str, kept: &KeptItem, now: Timestamp) -> Write {
    let seq = kept.item.seq;
    let deferral = Deferral {
        seq,
        slot: state.tables.log.get(&seq).map_or(0, |row| row.slot),
        key: kept.item.key.clone(),
        kind: DeferralKind::Retry,
        due_in_ms: Some(0),
        spent: Spent::default(),
        failure: Some(replayed()),
    };
    Write::Replace {
        subscription: subscription.to_owned(),
        deferred: Deferred::of(&deferral, now),
    }
}
