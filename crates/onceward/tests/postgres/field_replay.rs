//! Field case BC-42 with thousands of cases and two processes' engines; rate, stop and counts are
//! measured by the store's own records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::core::campaign::{CampaignAction, CampaignKind, CampaignState, Pacing};
use onceward::core::store::{
    ActOnCampaign, Actor, Campaign, CampaignQuery, PlanCampaign, Replay, Selection, Source,
};
use onceward::{Failure, OnPoison, Semantics, Subscription};

use crate::place::{Place, RETRY, Thing, calm, handler, record, thing, until};

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("the carrier is back"),
};
const RATE_PER_S: u32 = 500;

/// In the test; by hand with `ONCEWARD_BC42_ITEMS=50000`.
fn item_count() -> i64 {
    let asked = std::env::var("ONCEWARD_BC42_ITEMS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(5_000)
}

async fn now(place: &Place, campaign: &Campaign) -> Campaign {
    let query = CampaignQuery {
        campaign_id: Some(campaign.campaign_id),
        ..CampaignQuery::default()
    };
    place.store.campaigns(query).await.unwrap().remove(0)
}

async fn act(place: &Place, campaign: &Campaign, action: CampaignAction<'_>) {
    let campaign_id = campaign.campaign_id;
    let by = BY;
    let request = ActOnCampaign {
        campaign_id,
        action,
        by,
    };
    place.store.act_on_campaign(request).await.unwrap();
}

const STARTED: &str = "select count(*) from onceward.campaign_items where started_at is not null";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_42_a_replay_of_thousands_holds_its_rate_stops_and_adds_up() {
    let count = item_count();
    let place = Place::new().await;
    let is_mended = Arc::new(AtomicBool::new(false));
    let work = || {
        let is_mended = Arc::clone(&is_mended);
        let handle = handler(move |cx, thing| {
            let is_mended = is_mended.load(Ordering::SeqCst);
            Box::pin(async move {
                if !is_mended {
                    return Err(Failure::permanent("refused", "it is not taken"));
                }
                record(cx, "work", &thing).await?;
                Ok(thing.value)
            })
        });
        Subscription::new("work", Semantics::EffectOnce)
            .on::<Thing, _>(handle)
            .on_poison(OnPoison::Skip)
            .retry(RETRY)
    };
    let first = place.start(calm(), work()).await;
    let second = place.start(calm(), work()).await;
    for page in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let keys = page.iter().map(|n| thing(&format!("k{n}"), "1"));
        place.append(&keys.collect::<Vec<_>>()).await;
    }
    let cases = "select count(*) from onceward.cases where state = 'open'";
    let mut seen = -1;
    while seen < count {
        let before = seen;
        until(&format!("more than {before} cases"), || async {
            place.count(cases).await > before
        })
        .await;
        seen = place.count(cases).await;
    }
    is_mended.store(true, Ordering::SeqCst);

    let all = Selection::of(Source::Cases);
    let plan = PlanCampaign {
        subscription: "work",
        kind: CampaignKind::Resend,
        selection: &all,
        pacing: Pacing {
            canary: 10,
            rate_per_s: RATE_PER_S,
            ramp_ms: 0,
            in_flight_max: 5_000,
            ..Pacing::default()
        },
        accept: &[],
        items_max: count as u32,
        by: BY,
    };
    let campaign = place.store.plan_campaign(plan).await.unwrap();
    assert_eq!(campaign.counts.left, count as u64);
    act(
        &place,
        &campaign,
        CampaignAction::Start { approved_by: None },
    )
    .await;
    until("a third is out", || async {
        place.count(STARTED).await > count / 3
    })
    .await;
    act(&place, &campaign, CampaignAction::Pause).await;
    let out = place.count(STARTED).await;
    let late = "select count(*) from onceward.campaign_items i, onceward.audit a
        where a.action = 'replay-pause' and i.started_at > a.acted_at + interval '2 seconds'";
    until("what is out has its outcome", || async {
        now(&place, &campaign).await.counts.running == 0
    })
    .await;
    assert_eq!(place.count(STARTED).await, out, "nothing more went out");
    assert_eq!(place.count(late).await, 0);
    assert_eq!(
        place.count(cases).await,
        count - out,
        "the rest is untouched"
    );

    // The process that may have driven it goes; the other goes on with the rest.
    first.shutdown(Duration::from_secs(10)).await;
    act(&place, &campaign, CampaignAction::Resume).await;
    let mut seen = out;
    while seen < count {
        let before = seen;
        until(
            &format!("more than {before} of {count} are out"),
            || async { place.count(STARTED).await > before },
        )
        .await;
        seen = place.count(STARTED).await;
    }
    until("it is over", || async {
        let campaign = now(&place, &campaign).await;
        campaign.standing.state.is_over() && campaign.counts.running == 0
    })
    .await;
    let ended = now(&place, &campaign).await;
    assert_eq!(ended.standing.state, CampaignState::Done);
    let counts = (ended.counts.done, ended.counts.total());
    assert_eq!(counts, (count as u64, count as u64));
    assert_eq!(place.effect_count().await, count);
    let keys: BTreeMap<String, Vec<String>> = place.values("work").await;
    assert_eq!(keys.len() as i64, count, "each once");

    // In no five seconds more than the rate, a tenth and what may be caught up with: two seconds'.
    let fullest = "select max(n) from (select count(*) over (order by started_at
            range between current row and interval '5 seconds' following) as n
        from onceward.campaign_items) w";
    let fullest = place.count(fullest).await;
    println!("BC-42: {count} items, at most {fullest} in five seconds at {RATE_PER_S} a second");
    let most = i64::from(RATE_PER_S) * (5 * 110 + 200) / 100;
    assert!(fullest <= most, "{fullest} went out within five seconds");
    second.shutdown(Duration::from_secs(10)).await;
}
