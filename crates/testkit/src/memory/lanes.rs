//! Members, leases and lanes.

use onceward_core::Timestamp;
use onceward_core::lane::lane_of;
use onceward_core::store::{
    DeferralKind, Join, LaneState, Lanes, Lease, Limits, MemberState, Release, Renew, Still,
    StoreError, SubscriptionState, Survey, Take, TakenLane,
};

use super::effects::fenced;
use super::journal::Change;
use super::state::{Member, State};
use super::writes::Pause;
use super::{Defect, MemoryStore, Operation};

impl Lanes for MemoryStore {
    async fn join(&self, request: Join<'_>) -> Result<Lease, StoreError> {
        self.enter(Operation::Join).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let fence = state.next_fence();
        let member = Member {
            fence,
            description: request.description.to_owned(),
            lease_ms: request.lease_ms,
            subscriptions: request.subscriptions.to_vec(),
            renewed_at: now,
            is_ended: false,
        };
        state.members.insert(request.member.to_owned(), member);
        state.listener.tell(now, || Change::Joined {
            member: request.member.to_owned(),
            lease_ms: request.lease_ms,
        });
        Ok(Lease {
            member: request.member.to_owned(),
            fence,
            lease_ms: request.lease_ms,
        })
    }

    async fn renew(&self, request: Renew<'_>) -> Result<(), StoreError> {
        self.enter(Operation::Renew).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let member = active(&mut state, request.lease, Operation::Renew)?;
        member.renewed_at = now;
        state.listener.tell(now, || Change::Renewed {
            member: request.lease.member.clone(),
        });
        for still in request.still {
            self.stand_still(&mut state, &request, still, now);
        }
        Ok(())
    }

    async fn survey(&self) -> Result<Survey, StoreError> {
        self.enter(Operation::Survey).await?;
        let now = self.shared.clock.now();
        let state = self.shared.state();
        let members = state.members.iter().filter(|(_, member)| !member.is_ended);
        Ok(Survey {
            members: members
                .map(|(name, member)| MemberState {
                    member: name.clone(),
                    description: member.description.clone(),
                    is_live: member.is_live(now),
                    subscriptions: member.subscriptions.clone(),
                })
                .collect(),
            lanes: state
                .lanes
                .iter()
                .map(|((subscription, number), lane)| LaneState {
                    subscription: subscription.clone(),
                    lane: *number,
                    epoch: lane.epoch,
                    owner: lane.owner.clone(),
                })
                .collect(),
            subscriptions: state
                .subscriptions
                .keys()
                .map(|name| SubscriptionState {
                    subscription: name.clone(),
                    revision: state.tables.revisions.get(name).copied().unwrap_or(0),
                    is_paused: state.tables.paused_since(name).is_some(),
                    concurrency_max: limits_of(&state, name).concurrency_max,
                    rate: limits_of(&state, name).rate,
                    has_campaign: state
                        .campaigns
                        .campaigns
                        .values()
                        .any(|campaign| campaign.subscription == *name && campaign.is_active()),
                })
                .collect(),
        })
    }

    async fn take(&self, request: Take<'_>) -> Result<Vec<TakenLane>, StoreError> {
        self.enter(Operation::Take).await?;
        let mut state = self.shared.state();
        active(&mut state, request.lease, Operation::Take)?;
        let mut taken = Vec::new();
        for number in request.lanes {
            taken.extend(self.take_one(&mut state, &request, *number));
        }
        drop(state);
        self.shared.clock.wake_all();
        Ok(taken)
    }

    async fn release(&self, request: Release<'_>) -> Result<(), StoreError> {
        self.enter(Operation::Release).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        active(&mut state, request.lease, Operation::Release)?;
        for released in request.lanes {
            let place = (request.subscription.to_owned(), released.lane);
            let Some(lane) = state.lanes.get_mut(&place) else {
                continue;
            };
            let is_owner = lane.owner.as_deref() == Some(request.lease.member.as_str());
            if is_owner && lane.epoch == released.epoch {
                lane.owner = None;
                lane.stand = self.shared.kept(&released.stand);
                state.listener.tell(now, || Change::Released {
                    member: request.lease.member.clone(),
                    subscription: request.subscription.to_owned(),
                    lane: released.lane,
                    stand: released.stand.clone(),
                });
            }
        }
        Ok(())
    }

    async fn leave(&self, lease: &Lease) -> Result<(), StoreError> {
        self.enter(Operation::Leave).await?;
        let mut state = self.shared.state();
        active(&mut state, lease, Operation::Leave)?;
        state.end_member(&lease.member);
        for lane in state.lanes.values_mut() {
            if lane.owner.as_deref() == Some(lease.member.as_str()) {
                lane.owner = None;
            }
        }
        let now = self.shared.clock.now();
        state.listener.tell(now, || Change::Left {
            member: lease.member.clone(),
        });
        drop(state);
        self.shared.clock.wake_all();
        Ok(())
    }
}

fn limits_of(state: &State, subscription: &str) -> Limits {
    let limits = state.tables.limits.get(subscription);
    limits.copied().unwrap_or_default()
}

/// The member of a lease, unless it has ended.
fn active<'s>(
    state: &'s mut State,
    lease: &Lease,
    operation: Operation,
) -> Result<&'s mut Member, StoreError> {
    state
        .members
        .get_mut(&lease.member)
        .filter(|member| !member.is_ended && member.fence == lease.fence)
        .ok_or_else(|| fenced(operation))
}

impl MemoryStore {
    fn stand_still(
        &self,
        state: &mut State,
        request: &Renew<'_>,
        still: &Still<'_>,
        now: Timestamp,
    ) {
        if !state.subscriptions.contains_key(still.subscription) {
            return;
        }
        let later = |ms: u64| now.plus_millis(i64::try_from(ms).unwrap_or(i64::MAX));
        let since_ms = i64::try_from(still.since_ms).unwrap_or(i64::MAX);
        let said = Pause {
            subscription: still.subscription.to_owned(),
            from: now.plus_millis(-since_ms),
            to: Some(later(request.still_for_ms)),
            counts: self.shared.has(Defect::StillCounts),
            leaves_still: false,
            leaves_paused: false,
            still: Some((still.because, still.until_ms.map(later))),
        };
        let Some(pause) = state.tables.stand_still(said, now) else {
            return;
        };
        let (from, to) = (pause.from, pause.to.unwrap_or(now));
        state.listener.tell(now, || Change::StoodStill {
            subscription: still.subscription.to_owned(),
            from,
            to,
        });
    }

    fn take_one(&self, state: &mut State, request: &Take<'_>, number: u16) -> Option<TakenLane> {
        let now = self.shared.clock.now();
        let place = (request.subscription.to_owned(), number);
        let owner = state.lanes.get(&place)?.owner.clone();
        let is_mine = owner.as_deref() == Some(request.lease.member.as_str());
        if let Some(owner) = owner.as_ref().filter(|_| !is_mine) {
            let holds = state.members.get(owner).is_some_and(|m| m.is_live(now));
            if holds {
                return None;
            }
            if !self.shared.has(Defect::NoFence) {
                state.end_member(owner);
            }
            if !self.shared.has(Defect::DeathsForgotten) {
                count_deaths(state, now, request.subscription, number);
            }
        }
        let not_before = state.subscriptions.get(request.subscription)?.not_before;
        let lane = state.lanes.get_mut(&place)?;
        lane.epoch += 1;
        lane.owner = Some(request.lease.member.clone());
        let (epoch, stand) = (lane.epoch, lane.stand.clone());
        state.listener.tell(now, || Change::Taken {
            member: request.lease.member.clone(),
            subscription: request.subscription.to_owned(),
            lane: number,
            epoch,
            from: owner.clone(),
        });
        Some(TakenLane {
            lane: number,
            epoch,
            stand,
            is_suspect: owner.is_some() && !self.shared.has(Defect::NeverSuspect),
            not_before,
        })
    }
}

/// Counts a death for everything that ran in a lane: it does not run any more, and is due.
fn count_deaths(state: &mut State, now: Timestamp, subscription: &str, number: u16) {
    let lanes = state.subscriptions.get(subscription).map_or(1, |s| s.lanes);
    for ((of, _), deferred) in &mut state.tables.deferrals {
        let is_here = of == subscription && lane_of(deferred.slot, lanes) == number;
        if is_here && deferred.kind == DeferralKind::Running {
            deferred.spent.deaths = deferred.spent.deaths.saturating_add(1);
            deferred.kind = DeferralKind::Retry;
            deferred.due_at = Some(now);
            let seq = deferred.seq;
            state.listener.tell(now, || Change::DeathCounted {
                subscription: subscription.to_owned(),
                seq,
            });
        }
    }
}
