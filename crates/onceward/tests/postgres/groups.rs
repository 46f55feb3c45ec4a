//! Priorities and tenants on PostgreSQL.

#[path = "../common/groups.rs"]
mod promised;

use onceward::Envelope;

use crate::place::{Place, calm, hasty};

#[tokio::test]
async fn high_is_not_behind_low() {
    let place = Place::new().await;
    promised::high_is_not_behind_low(&place.store, calm(), async |m: &[Envelope]| {
        place.append(m).await;
    })
    .await;
}

#[tokio::test]
async fn a_quiet_tenant_is_not_behind_a_noisy_one() {
    let place = Place::new().await;
    promised::a_quiet_tenant_is_not_behind_a_noisy_one(
        &place.store,
        calm(),
        async |m: &[Envelope]| {
            place.append(m).await;
        },
    )
    .await;
}

#[tokio::test]
async fn all_groups_go_on_after_a_takeover() {
    let place = Place::new().await;
    promised::all_groups_go_on_after_a_takeover(&place.store, calm(), async |m: &[Envelope]| {
        place.append(m).await;
    })
    .await;
}

#[tokio::test]
async fn nothing_is_lost_when_an_owner_is_gone() {
    let place = Place::new().await;
    promised::nothing_is_lost_when_an_owner_is_gone(
        &place.store,
        hasty(),
        async |m: &[Envelope]| {
            place.append(m).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_conflict_is_refused_and_the_key_goes_on() {
    let place = Place::new().await;
    promised::a_conflict_is_refused_and_the_key_goes_on(
        &place.store,
        calm(),
        async |m: &[Envelope]| {
            place.append(m).await;
        },
    )
    .await;
}
