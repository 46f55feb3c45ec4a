//! Priorities and tenants on PostgreSQL.

#[path = "../common/groups.rs"]
mod groups;

use onceward::Envelope;

use crate::place::{Place, calm, hasty};

#[tokio::test]
async fn high_is_not_behind_low() {
    let place = Place::new().await;
    groups::high_is_not_behind_low(&place.store, calm(), async |m: &[Envelope]| {
        place.append(m).await
    })
    .await;
}

#[tokio::test]
async fn a_quiet_tenant_is_not_behind_a_noisy_one() {
    let place = Place::new().await;
    groups::a_quiet_tenant_is_not_behind_a_noisy_one(
        &place.store,
        calm(),
        async |m: &[Envelope]| place.append(m).await,
    )
    .await;
}

#[tokio::test]
async fn all_groups_go_on_after_a_takeover() {
    let place = Place::new().await;
    groups::all_groups_go_on_after_a_takeover(&place.store, calm(), async |m: &[Envelope]| {
        place.append(m).await
    })
    .await;
}

#[tokio::test]
async fn nothing_is_lost_when_an_owner_is_gone() {
    let place = Place::new().await;
    groups::nothing_is_lost_when_an_owner_is_gone(
        &place.store,
        hasty(),
        async |m: &[Envelope]| place.append(m).await,
    )
    .await;
}

#[tokio::test]
async fn a_conflict_is_refused_and_the_key_goes_on() {
    let place = Place::new().await;
    groups::a_conflict_is_refused_and_the_key_goes_on(
        &place.store,
        calm(),
        async |m: &[Envelope]| place.append(m).await,
    )
    .await;
}
