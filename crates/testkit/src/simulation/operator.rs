//! Operators act at random moments: on cases, on what waits for a person, on whole subscriptions.

use onceward_core::Payload;
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
    match world.random(14) {
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
        10 | 11 => correct_case(world, store).await,
        12 => set_pause(store, role, true).await,
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

/// Any case, also one that is over.
async fn any_case(world: &World, store: &MemoryStore) -> Option<Case> {
    let cases = store.cases(CaseQuery::default()).await;
    let mut cases = cases.expect("nothing is planned to fail");
    if cases.is_empty() {
        return None;
    }
    let chosen = world.random(cases.len() as u64) as usize;
    Some(cases.swap_remove(chosen))
}

/// Puts another spelling in the place of a message: the same to its handler, and other bytes.
async fn correct_case(world: &World, store: &MemoryStore) {
    let Some(case) = any_case(world, store).await else {
        return;
    };
    let text = String::from_utf8_lossy(case.row.envelope.payload.as_bytes());
    let payload = Payload::Json(format!("{text} ").into());
    let id = format!("correction-{}", world.random(u64::MAX));
    let action = CaseAction::Correct {
        id: &id,
        payload: &payload,
    };
    end(store, &case, action).await;
}

async fn end_case(world: &World, store: &MemoryStore, action: CaseAction<'_>) {
    if let Some(case) = any_case(world, store).await {
        end(store, &case, action).await;
    }
}

/// Acts on a case; one that is over refuses.
async fn end(store: &MemoryStore, case: &Case, action: CaseAction<'_>) {
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
    let is_again = action == CaseAction::Acknowledge && state != CaseState::Open;
    if !state.is_live() || is_again {
        return Some(StoreErrorKind::Moved);
    }
    let is_run = matches!(action, CaseAction::Release | CaseAction::Correct { .. });
    let is_never = is_run && case.reason == AT_MOST_ONCE_FAILED;
    is_never.then_some(StoreErrorKind::Refused)
}
