//! Operators act at random moments: on cases, on what waits for a person, on whole subscriptions.

use onceward_core::case::AT_MOST_ONCE_FAILED;
use onceward_core::store::{
    ActOnCase, Actor, Case, CaseAction, CaseQuery, CaseState, Cases, Operate, ResumeDeferred,
    SetPause, StoreErrorKind,
};

use super::setup::Role;
use super::world::World;
use crate::memory::MemoryStore;

const BY: Actor<'static> = Actor {
    who: "operator",
    why: Some("simulated"),
};

/// One action on what is there at this moment.
pub(super) async fn act(world: &World, store: &MemoryStore) {
    let roles = &world.setup.roles;
    let role = roles[world.random(roles.len() as u64) as usize];
    match world.random(12) {
        0..=4 => end_case(world, store, CaseAction::Release).await,
        5 => end_case(world, store, CaseAction::Discard).await,
        6 => end_case(world, store, CaseAction::Waive).await,
        7 => end_case(world, store, CaseAction::Acknowledge).await,
        8 | 9 => {
            let request = ResumeDeferred {
                subscription: role.name(),
                key: None,
                by: BY,
            };
            let resumed = store.resume_deferred(request).await;
            resumed.expect("nothing is planned to fail");
        }
        10 => set_pause(store, role, true).await,
        _ => set_pause(store, role, false).await,
    }
}

/// Whoever paused something lets it go on.
pub(super) async fn end_pauses(world: &World, store: &MemoryStore) {
    for role in &world.setup.roles {
        set_pause(store, *role, false).await;
    }
}

async fn set_pause(store: &MemoryStore, role: Role, is_paused: bool) {
    let request = SetPause {
        subscription: role.name(),
        is_paused,
        by: BY,
    };
    if let Err(error) = store.set_pause(request).await {
        assert_eq!(error.kind(), StoreErrorKind::Moved, "{error}");
    }
}

/// Acts on any case, also on one that is over, which is refused.
async fn end_case(world: &World, store: &MemoryStore, action: CaseAction<'_>) {
    let cases = store.cases(CaseQuery::default()).await;
    let cases = cases.expect("nothing is planned to fail");
    if cases.is_empty() {
        return;
    }
    let case = &cases[world.random(cases.len() as u64) as usize];
    let request = ActOnCase {
        case_id: case.case_id,
        action,
        expected: None,
        by: BY,
    };
    let acted = store.act_on_case(request).await;
    assert_eq!(
        acted.as_ref().map_err(|error| error.kind()).err(),
        refused(case, action),
        "{action:?} of {case:?}: {acted:?}"
    );
}

fn refused(case: &Case, action: CaseAction<'_>) -> Option<StoreErrorKind> {
    let state = case.standing.state;
    let is_again = action == CaseAction::Acknowledge && state == CaseState::Acknowledged;
    if !state.is_live() || is_again {
        return Some(StoreErrorKind::Moved);
    }
    let is_never = action == CaseAction::Release && case.reason == AT_MOST_ONCE_FAILED;
    is_never.then_some(StoreErrorKind::Refused)
}
