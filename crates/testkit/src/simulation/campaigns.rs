//! Operators send messages out again at random moments: they plan campaigns, start, pause, resume,
//! verify and stop them.

use onceward_core::campaign::{
    CampaignAction, CampaignKind, CampaignState, Finding, Pacing, Verification,
};
use onceward_core::store::{
    ActOnCampaign, Actor, Campaign, CampaignQuery, PlanCampaign, Replay, Selection, Source,
    StoreErrorKind,
};

use super::setup::Role;
use super::world::World;
use crate::memory::MemoryStore;

const BY: Actor<'static> = Actor {
    who: "operator",
    why: Some("simulated"),
};

/// One action: a new campaign, or something on one that is there.
pub(super) async fn act(world: &World, store: &MemoryStore) {
    if world.chance(2) {
        plan(world, store).await;
        return;
    }
    let campaigns = all(store).await;
    if campaigns.is_empty() {
        return;
    }
    let campaign = &campaigns[world.random(campaigns.len() as u64) as usize];
    let action = match (campaign.standing.state, world.random(4)) {
        (CampaignState::Planned, _) => CampaignAction::Start { approved_by: None },
        (CampaignState::Verifying, 0..=2) => CampaignAction::Verify,
        (CampaignState::Paused, 0..=2) => CampaignAction::Resume,
        (_, 0) => CampaignAction::Stop,
        _ => CampaignAction::Pause,
    };
    perform(store, campaign, action).await;
}

/// Nothing more goes out; what is out ends.
pub(super) async fn stop_all(store: &MemoryStore) {
    for campaign in all(store).await {
        perform(store, &campaign, CampaignAction::Stop).await;
    }
}

async fn all(store: &MemoryStore) -> Vec<Campaign> {
    let query = CampaignQuery {
        rows_max: 10_000,
        ..CampaignQuery::default()
    };
    let campaigns = store.campaigns(query).await;
    campaigns.expect("nothing is planned to fail")
}

async fn perform(store: &MemoryStore, campaign: &Campaign, action: CampaignAction<'_>) {
    let request = ActOnCampaign {
        campaign_id: campaign.campaign_id,
        action,
        by: BY,
    };
    if let Err(error) = store.act_on_campaign(request).await {
        assert_eq!(error.kind(), StoreErrorKind::Moved, "{error}");
    }
}

/// Of cases, or of what is done; started at once in most cases. Nothing is accepted that would
/// change what was decided before: a message that is given up stays so.
async fn plan(world: &World, store: &MemoryStore) {
    let roles = &world.setup.roles;
    let role = roles[world.random(roles.len() as u64) as usize];
    // A delivery that is done is made once more, which is another promise than the checkers'.
    let is_of_log = role != Role::Mail && world.chance(3);
    let source = match is_of_log {
        true => Source::Log,
        false => Source::Cases,
    };
    let request = PlanCampaign {
        subscription: role.name(),
        kind: CampaignKind::Resend,
        selection: &Selection::of(source),
        pacing: Pacing {
            canary: 1 + world.random(3) as u32,
            rate_per_s: 1 + world.random(100) as u32,
            ramp_ms: world.random(500),
            in_flight_max: 1 + world.random(5) as u32,
            stop_at_percent: [0, 20, 100][world.random(3) as usize],
            verification: match world.chance(3) {
                true => Verification::Person,
                false => Verification::Outcome,
            },
        },
        accept: &[Finding::Overtaken],
        items_max: 0,
        by: BY,
    };
    match store.plan_campaign(request).await {
        Ok(campaign) if !world.chance(5) => {
            let start = CampaignAction::Start { approved_by: None };
            perform(store, &campaign, start).await;
        }
        Ok(_) => {}
        // Nothing was found.
        Err(error) => assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}"),
    }
}
