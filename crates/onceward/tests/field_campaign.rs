//! Field case BC-42: a replay of many cases by two processes, on a clock that goes on when nothing
//! else happens; what is measured comes from the store's own records. The same with thousands, on
//! PostgreSQL: `postgres/field_replay.rs`.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::passing::{MINUTE_MS, SECOND_MS, append, pass, store};
use onceward::core::Timestamp;
use onceward::core::campaign::{CampaignAction, CampaignKind, CampaignState, ItemState, Pacing};
use onceward::core::case::CaseState;
use onceward::core::store::{
    ActOnCampaign, Actor, Campaign, CampaignItem, CampaignQuery, CaseQuery, Cases, ItemQuery,
    PlanCampaign, Replay, Selection, Source,
};
use onceward::{
    Deliver, Delivery, Engine, EngineOptions, Failure, Running, Semantics, Start, Subscription,
};
use onceward_testkit::memory::MemoryStore;

const TYPE: &str = "thing.done";
const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("the carrier is back"),
};
const RATE_PER_S: u32 = 50;

/// Refuses everything until it is mended, and one message for ever.
#[derive(Clone, Default)]
struct Receiver {
    is_mended: Arc<AtomicBool>,
    refuses: Option<String>,
    taken: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Deliver for Receiver {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = delivery.row.envelope.id.clone();
        let is_refused = self.refuses.as_ref() == Some(&id);
        let is_old = id.starts_with('k');
        if is_old && (is_refused || !self.is_mended.load(Ordering::SeqCst)) {
            return Err(Failure::permanent("refused", "it is not taken"));
        }
        *self.taken.lock().unwrap().entry(id).or_default() += 1;
        Ok(())
    }
}

async fn start(store: &MemoryStore, receiver: &Receiver) -> Running<MemoryStore> {
    let work = Subscription::new("work", Semantics::AtLeastOnce)
        .deliver([TYPE], receiver.clone())
        .concurrency(32)
        .concurrency_min(32)
        .start(Start::Earliest);
    let engine = Engine::builder(store.reopen()).options(EngineOptions {
        retention: None,
        held_every_ms: None,
        ..EngineOptions::default()
    });
    engine.subscribe(work).start().await.unwrap()
}

async fn live_cases(store: &MemoryStore) -> usize {
    let mut count = 0;
    let mut after_case_id = 0;
    loop {
        let query = CaseQuery {
            states: &[CaseState::Open],
            after_case_id,
            rows_max: 10_000,
            ..CaseQuery::default()
        };
        let page = store.cases(query).await.unwrap();
        let Some(last) = page.last() else {
            return count;
        };
        after_case_id = last.case_id;
        count += page.len();
    }
}

/// So many cases, with two processes at work on a receiver that is mended since.
async fn many_cases(count: usize, receiver: &Receiver) -> (MemoryStore, Vec<Running<MemoryStore>>) {
    let store = store(None, 10).await;
    let fleet = vec![start(&store, receiver).await, start(&store, receiver).await];
    pass(10 * SECOND_MS).await;
    let keys: Vec<String> = (0..count).map(|n| format!("k{n:05}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for page in keys.chunks(1_000) {
        append(&store, TYPE, page).await;
    }
    while live_cases(&store).await < count {
        pass(SECOND_MS).await;
    }
    receiver.is_mended.store(true, Ordering::SeqCst);
    (store, fleet)
}

async fn plan(store: &MemoryStore, items_max: usize) -> Campaign {
    let all = Selection::of(Source::Cases);
    let request = PlanCampaign {
        subscription: "work",
        kind: CampaignKind::Resend,
        selection: &all,
        pacing: Pacing {
            canary: 10,
            rate_per_s: RATE_PER_S,
            ramp_ms: 0,
            in_flight_max: 1_000,
            stop_at_percent: 5,
            ..Pacing::default()
        },
        accept: &[],
        items_max: items_max as u32,
        by: BY,
    };
    store.plan_campaign(request).await.unwrap()
}

async fn act(store: &MemoryStore, campaign: &Campaign, action: CampaignAction<'_>) -> Timestamp {
    let campaign_id = campaign.campaign_id;
    let by = BY;
    let request = ActOnCampaign {
        campaign_id,
        action,
        by,
    };
    store.act_on_campaign(request).await.unwrap();
    store.clock().now()
}

async fn now(store: &MemoryStore, campaign: &Campaign) -> Campaign {
    let query = CampaignQuery {
        campaign_id: Some(campaign.campaign_id),
        ..CampaignQuery::default()
    };
    store.campaigns(query).await.unwrap().remove(0)
}

async fn items(store: &MemoryStore, campaign: &Campaign) -> Vec<CampaignItem> {
    let mut items: Vec<CampaignItem> = Vec::new();
    loop {
        let query = ItemQuery {
            campaign_id: campaign.campaign_id,
            after_seq: items.last().map_or(0, |item| item.seq),
            rows_max: 10_000,
            ..ItemQuery::default()
        };
        let page = store.campaign_items(query).await.unwrap();
        if page.is_empty() {
            return items;
        }
        items.extend(page);
    }
}

/// When items went out, after the canary, in order.
fn starts(items: &[CampaignItem]) -> Vec<Timestamp> {
    let mut starts: Vec<Timestamp> = items.iter().filter_map(|item| item.started_at).collect();
    starts.sort();
    starts
}

/// How many went out in the fullest and in the emptiest window of five seconds of a stretch.
fn fullest_and_emptiest(starts: &[Timestamp]) -> (usize, usize) {
    const WINDOW_MS: i64 = 5_000;
    let last = *starts.last().unwrap();
    let whole = starts
        .iter()
        .filter(|from| last.millis_since(**from) >= WINDOW_MS);
    let counts = whole.map(|from| {
        let until = from.plus_millis(WINDOW_MS);
        starts.partition_point(|at| *at < until) - starts.partition_point(|at| at < from)
    });
    let counts: Vec<usize> = counts.collect();
    (*counts.iter().max().unwrap(), *counts.iter().min().unwrap())
}

#[tokio::test(start_paused = true)]
async fn bc_42_a_replay_by_two_processes_keeps_its_rate_and_stops_at_a_word() {
    let count = 600;
    let receiver = Receiver::default();
    let (store, mut fleet) = many_cases(count, &receiver).await;
    let campaign = plan(&store, count).await;
    assert_eq!(campaign.counts.left, count as u64);
    act(
        &store,
        &campaign,
        CampaignAction::Start { approved_by: None },
    )
    .await;
    pass(8 * SECOND_MS).await;

    // Nothing goes out after a word, and the rest is as it was.
    let paused_at = act(&store, &campaign, CampaignAction::Pause).await;
    pass(10 * SECOND_MS).await;
    let first = items(&store, &campaign).await;
    let before = starts(&first);
    assert!(
        before.len() > 300 && before.len() < count,
        "{}",
        before.len()
    );
    let late_ms = before.last().unwrap().millis_since(paused_at);
    assert!(late_ms <= 2_000, "one went out {late_ms} ms after the word");
    assert_eq!(live_cases(&store).await, count - before.len());

    // It goes on where it was, also when the process that drove it is gone.
    let resumed_at = act(&store, &campaign, CampaignAction::Resume).await;
    append(&store, TYPE, &["live"]).await;
    pass(2 * SECOND_MS).await;
    assert!(
        receiver.taken.lock().unwrap().contains_key("live"),
        "live traffic goes on"
    );
    drop(fleet.remove(0));
    pass(MINUTE_MS).await;
    fleet.push(start(&store, &receiver).await);
    while !now(&store, &campaign).await.standing.state.is_over() {
        pass(SECOND_MS).await;
    }
    let ended = now(&store, &campaign).await;
    assert_eq!(ended.standing.state, CampaignState::Done);
    assert_eq!(
        (ended.counts.done, ended.counts.total()),
        (count as u64, count as u64)
    );
    let all = items(&store, &campaign).await;
    for (earlier, later) in first.iter().zip(&all) {
        let is_kept = earlier.started_at.is_none() || earlier.started_at == later.started_at;
        assert!(is_kept, "it did not start over");
    }
    let taken = receiver.taken.lock().unwrap().clone();
    assert_eq!(taken.len(), count + 1, "each case and the live one");

    // The rate holds, in each stretch in which nothing was in the way.
    let after: Vec<Timestamp> = starts(&all)
        .into_iter()
        .filter(|at| *at >= resumed_at)
        .collect();
    let most = RATE_PER_S as usize * 5 * 110 / 100;
    let (fullest, _) = fullest_and_emptiest(&before[10..]);
    assert!(fullest <= most, "{fullest} in five seconds");
    // Who takes over may catch up with two seconds of what nobody used.
    let (fullest, _) = fullest_and_emptiest(&after);
    let caught_up = RATE_PER_S as usize * 2;
    assert!(fullest <= most + caught_up, "{fullest} in five seconds");
    let (_, emptiest) = fullest_and_emptiest(&before[10..]);
    assert!(
        emptiest >= RATE_PER_S as usize * 5 * 90 / 100,
        "{emptiest} in five seconds"
    );
    for running in fleet {
        running.shutdown(Duration::from_secs(5)).await;
    }
}

/// Message number 7 of the canary fails: nothing but the canary goes out, and the rest is untouched.
#[tokio::test(start_paused = true)]
async fn bc_42_a_canary_that_fails_halts_the_replay() {
    const COUNT: usize = 200;
    let receiver = Receiver {
        refuses: Some("k00006".to_owned()),
        ..Receiver::default()
    };
    let (store, fleet) = many_cases(COUNT, &receiver).await;
    let campaign = plan(&store, COUNT).await;
    assert_eq!(campaign.counts.left, COUNT as u64);
    act(
        &store,
        &campaign,
        CampaignAction::Start { approved_by: None },
    )
    .await;
    pass(MINUTE_MS).await;
    let ended = now(&store, &campaign).await;
    assert_eq!(ended.standing.state, CampaignState::Stopped, "{ended:?}");
    let counts = ended.counts;
    assert_eq!(
        (counts.failed, counts.total()),
        (1, COUNT as u64),
        "{counts:?}"
    );
    assert!(counts.started() <= 10, "{counts:?}");
    let left = items(&store, &campaign).await;
    let left = left
        .iter()
        .filter(|item| item.state == ItemState::Left)
        .count();
    assert_eq!(left as u64, COUNT as u64 - counts.started());
    assert_eq!(live_cases(&store).await as u64, COUNT as u64 - counts.done);
    for running in fleet {
        running.shutdown(Duration::from_secs(5)).await;
    }
}
