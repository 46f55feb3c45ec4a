//! Priorities and tenants on SQLite.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/groups.rs"]
mod promised;

use common::{options, sqlite};
use onceward::sqlite::Sqlite;
use onceward::{Envelope, Outbox};

async fn append(store: &Sqlite, envelopes: &[Envelope]) {
    let outbox = Outbox::new(store.clone());
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox.append_envelopes(&mut tx, envelopes).await.unwrap();
    tx.commit().await.unwrap();
    outbox.ring();
}

#[tokio::test]
async fn high_is_not_behind_low() {
    let (_folder, store) = sqlite().await;
    promised::high_is_not_behind_low(&store, options(), async |m: &[Envelope]| {
        append(&store, m).await;
    })
    .await;
}

#[tokio::test]
async fn a_quiet_tenant_is_not_behind_a_noisy_one() {
    let (_folder, store) = sqlite().await;
    promised::a_quiet_tenant_is_not_behind_a_noisy_one(
        &store,
        options(),
        async |m: &[Envelope]| {
            append(&store, m).await;
        },
    )
    .await;
}

#[tokio::test]
async fn all_groups_go_on_after_a_takeover() {
    let (_folder, store) = sqlite().await;
    promised::all_groups_go_on_after_a_takeover(&store, options(), async |m: &[Envelope]| {
        append(&store, m).await;
    })
    .await;
}

#[tokio::test]
async fn nothing_is_lost_when_an_owner_is_gone() {
    let (_folder, store) = sqlite().await;
    promised::nothing_is_lost_when_an_owner_is_gone(&store, options(), async |m: &[Envelope]| {
        append(&store, m).await;
    })
    .await;
}

#[tokio::test]
async fn a_conflict_is_refused_and_the_key_goes_on() {
    let (_folder, store) = sqlite().await;
    promised::a_conflict_is_refused_and_the_key_goes_on(
        &store,
        options(),
        async |m: &[Envelope]| {
            append(&store, m).await;
        },
    )
    .await;
}
