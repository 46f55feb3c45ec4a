//! Replay campaigns that an engine takes on: what they have as effects, and in what order.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{append, effects, idle, options, sqlite, until};
use onceward::core::campaign::{
    CampaignAction, CampaignKind, CampaignState, Finding, ItemState, Pacing,
};
use onceward::core::store::{
    ActOnCampaign, Actor, Campaign, CampaignItem, CampaignQuery, Case, CaseQuery, Cases, ItemQuery,
    PlanCampaign, Replay, Retention, Selection, Source, StoreErrorKind, Upkeep,
};
use onceward::sqlite::Sqlite;
use onceward::{
    Context, Deliver, Delivery, Engine, EngineOptions, Failure, Message, OnPoison, Running,
    Semantics, Start, StartError, Subscription,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("the carrier is back"),
};

/// At once, as soon as the canary is through.
const AT_ONCE: Pacing = Pacing {
    canary: 1,
    rate_per_s: 10_000,
    ramp_ms: 0,
    in_flight_max: 10_000,
    stop_at_percent: 10,
    verification: onceward::core::campaign::Verification::Outcome,
};

async fn keep(cx: &mut Context<Sqlite>, thing: Thing) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?1, ?2)")
        .bind(thing.key)
        .bind(thing.value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

/// Fails for good as long as the table of what was mended is empty.
async fn keep_if_mended(cx: &mut Context<Sqlite>, thing: Thing) -> Result<(), Failure> {
    let mended: i64 = sqlx::query_scalar("SELECT count(*) FROM effects WHERE key = 'mended'")
        .fetch_one(cx.tx())
        .await?;
    if mended == 0 && !thing.value.starts_with("good") {
        return Err(Failure::permanent("no_account", "it has no account"));
    }
    keep(cx, thing).await
}

async fn mend(store: &Sqlite) {
    sqlx::query("INSERT INTO effects (key, value) VALUES ('mended', '')")
        .execute(store.pool())
        .await
        .unwrap();
}

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    Engine::builder(store.clone())
        .options(options())
        .subscribe(subscription.start(Start::Earliest).lanes(4))
        .start()
        .await
        .unwrap()
}

fn plan<'a>(kind: CampaignKind, selection: &'a Selection) -> PlanCampaign<'a> {
    PlanCampaign {
        subscription: "work",
        kind,
        selection,
        pacing: AT_ONCE,
        accept: &[],
        items_max: 0,
        by: BY,
    }
}

async fn begin(store: &Sqlite, campaign: &Campaign) {
    let request = ActOnCampaign {
        campaign_id: campaign.campaign_id,
        action: CampaignAction::Start { approved_by: None },
        by: BY,
    };
    store.act_on_campaign(request).await.unwrap();
}

async fn now(store: &Sqlite, campaign: &Campaign) -> Campaign {
    let query = CampaignQuery {
        campaign_id: Some(campaign.campaign_id),
        ..CampaignQuery::default()
    };
    store.campaigns(query).await.unwrap().remove(0)
}

/// Waits until nothing more goes out and everything that went has its outcome.
async fn over(store: &Sqlite, campaign: &Campaign) -> Campaign {
    until("the campaign is over", || async {
        let campaign = now(store, campaign).await;
        campaign.standing.state.is_over() && campaign.counts.running == 0
    })
    .await;
    now(store, campaign).await
}

async fn items(store: &Sqlite, campaign: &Campaign) -> Vec<CampaignItem> {
    let query = ItemQuery {
        campaign_id: campaign.campaign_id,
        rows_max: 10_000,
        ..ItemQuery::default()
    };
    store.campaign_items(query).await.unwrap()
}

async fn cases(store: &Sqlite) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

/// Waits until all that was appended is behind every position, so that a plan finds it.
async fn all_past(store: &Sqlite) {
    idle(store, "work").await;
    until("the positions are saved", || async {
        let last = "SELECT min(position_seq) >= (SELECT max(seq) FROM onceward_outbox) \
                    FROM onceward_lane WHERE subscription = 'work'";
        let is_past: bool = sqlx::query_scalar(last)
            .fetch_one(store.pool())
            .await
            .unwrap();
        is_past
    })
    .await;
}

#[tokio::test]
async fn a_resend_of_what_is_done_has_no_second_effect_and_a_rerun_has_one_each() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("a", "1"), ("b", "1"), ("a", "2")]).await;
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep);
    let engine = start(&store, work.repeatable()).await;
    all_past(&store).await;
    let all = Selection::of(Source::Log);
    let resend = store.plan_campaign(plan(CampaignKind::Resend, &all)).await;
    let resend = resend.unwrap();
    begin(&store, &resend).await;
    let done = over(&store, &resend).await;
    assert_eq!(
        (done.standing.state, done.counts.done),
        (CampaignState::Done, 3)
    );
    assert_eq!(effects(&store).await.len(), 3);
    for count in [6, 9] {
        // Of the key `a`, `1` is overtaken by `2`, which goes out too.
        let mut rerun = plan(CampaignKind::Rerun, &all);
        rerun.accept = &[Finding::Overtaken];
        let rerun = store.plan_campaign(rerun).await.unwrap();
        begin(&store, &rerun).await;
        assert_eq!(over(&store, &rerun).await.counts.done, 3);
        let effects = effects(&store).await;
        assert_eq!(effects.len(), count);
        let of_a: Vec<_> = effects.iter().filter(|(key, _)| key == "a").collect();
        for pair in of_a.chunks(2) {
            assert_eq!(
                (pair[0].1.as_str(), pair[1].1.as_str()),
                ("1", "2"),
                "in order"
            );
        }
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

/// The word of whoever wrote the handlers is needed.
#[tokio::test]
async fn a_rerun_of_what_is_not_declared_repeatable_is_refused() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("a", "1")]).await;
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep);
    let engine = start(&store, work).await;
    all_past(&store).await;
    let all = Selection::of(Source::Log);
    let refused = store.plan_campaign(plan(CampaignKind::Rerun, &all)).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Refused);
    engine.shutdown(Duration::from_secs(5)).await;
}

struct Hands(Arc<Mutex<Vec<String>>>);

impl Deliver for Hands {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = delivery.row.envelope.id.clone();
        self.0.lock().unwrap().push(id);
        Ok(())
    }
}

/// There is no ledger: it is delivered once more, and the receiver knows it by its id.
#[tokio::test]
async fn a_delivery_is_resent_with_its_id() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("a", "1"), ("b", "1")]).await;
    let handed = Arc::new(Mutex::new(Vec::new()));
    let work = Subscription::new("work", Semantics::AtLeastOnce);
    let work = work.deliver([Thing::TYPE], Hands(Arc::clone(&handed)));
    let engine = start(&store, work).await;
    all_past(&store).await;
    let of_b = Selection {
        key: Some("b".to_owned()),
        ..Selection::of(Source::Log)
    };
    let resend = store.plan_campaign(plan(CampaignKind::Resend, &of_b)).await;
    let resend = resend.unwrap();
    begin(&store, &resend).await;
    assert_eq!(over(&store, &resend).await.counts.done, 1);
    let mut handed = handed.lock().unwrap().clone();
    handed.sort();
    assert_eq!(
        handed,
        ["thing.done-a-1", "thing.done-b-1", "thing.done-b-1"]
    );
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Field case BC-22, first part: three of a key are cases and a fourth went on. The fourth is
/// noticed; accepted, the three go out in their order, however much runs beside them.
#[tokio::test]
async fn bc_22_dead_letters_keep_their_order_and_a_newer_one_is_noticed() {
    let (_folder, store) = sqlite().await;
    let keys: Vec<String> = (1..=20).map(|n| format!("k{n}")).collect();
    for key in &keys {
        let of_key = ["e1", "e2", "e3", "good-e4"].map(|value| (key.as_str(), value));
        append(&store, Thing::TYPE, &of_key).await;
    }
    let work = Subscription::new("work", Semantics::EffectOnce)
        .on::<Thing, _>(keep_if_mended)
        .on_poison(OnPoison::Skip)
        .concurrency(8);
    let engine = start(&store, work).await;
    until("all are cases", || async {
        cases(&store).await.len() == 60
    })
    .await;
    until("the fourth ones are done", || async {
        effects(&store).await.len() == 20
    })
    .await;
    all_past(&store).await;
    mend(&store).await;
    let all = Selection::of(Source::Cases);
    let noticed = store.plan_campaign(plan(CampaignKind::Resend, &all)).await;
    let noticed = noticed.unwrap();
    assert_eq!((noticed.counts.left, noticed.counts.refused), (0, 60));
    for item in items(&store, &noticed).await {
        assert_eq!(item.finding, Some(Finding::Overtaken), "{item:?}");
        assert_eq!(item.state, ItemState::Refused);
    }
    let mut accepting = plan(CampaignKind::Resend, &all);
    accepting.accept = &[Finding::Overtaken];
    let accepting = store.plan_campaign(accepting).await.unwrap();
    begin(&store, &accepting).await;
    assert_eq!(over(&store, &accepting).await.counts.done, 60);
    let effects = effects(&store).await;
    for key in &keys {
        let of_key = effects.iter().filter(|(k, _)| k == key);
        let values: Vec<&str> = of_key.map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["good-e4", "e1", "e2", "e3"], "{key}");
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 3, key = key)]
struct ThingOfToday {
    key: String,
    value: String,
    /// Nobody wrote it in the first version.
    currency: String,
}

async fn keep_of_today(cx: &mut Context<Sqlite>, thing: ThingOfToday) -> Result<(), Failure> {
    let ThingOfToday { key, value, .. } = thing;
    keep(cx, Thing { key, value }).await
}

/// Field case BC-22, second part: a message of a shape that nobody reads today is refused with a
/// clear reason, without an effect, and the campaign ends at its canary.
#[tokio::test]
async fn bc_22_an_old_shape_is_refused_with_its_reason() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("a", "1"), ("b", "1"), ("c", "1")]).await;
    let old = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep_if_mended);
    let engine = start(&store, old).await;
    until("all are cases", || async { cases(&store).await.len() == 3 }).await;
    engine.shutdown(Duration::from_secs(5)).await;
    let today = Subscription::new("work", Semantics::EffectOnce);
    let engine = start(&store, today.on::<ThingOfToday, _>(keep_of_today)).await;
    let all = Selection::of(Source::Cases);
    let campaign = store.plan_campaign(plan(CampaignKind::Resend, &all)).await;
    let campaign = campaign.unwrap();
    begin(&store, &campaign).await;
    let stopped = over(&store, &campaign).await;
    assert_eq!(stopped.standing.state, CampaignState::Stopped);
    let items = items(&store, &campaign).await;
    let states: Vec<_> = items.iter().map(|item| item.state).collect();
    assert_eq!(
        states,
        [ItemState::Failed, ItemState::Left, ItemState::Left]
    );
    assert_eq!(items[0].note.as_deref(), Some("schema"));
    assert!(effects(&store).await.is_empty());
    let found = cases(&store).await;
    let case = found
        .iter()
        .find(|case| Some(case.case_id) == items[0].case_id);
    let case = case.unwrap();
    assert_eq!((case.standing.replays, case.standing.regressions), (1, 1));
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Field case BC-06: what one subscription is sent again concerns no other, although both have the
/// same messages in one database.
#[tokio::test]
async fn bc_06_a_replay_of_one_subscription_leaves_the_other_alone() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("a", "1"), ("b", "1")]).await;
    let other = Arc::new(Mutex::new(Vec::new()));
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep);
    let mail = Subscription::new("mail", Semantics::AtLeastOnce)
        .deliver([Thing::TYPE], Hands(Arc::clone(&other)))
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone())
        .options(options())
        .subscribe(work.repeatable().start(Start::Earliest).lanes(4))
        .subscribe(mail)
        .start()
        .await
        .unwrap();
    all_past(&store).await;
    idle(&store, "mail").await;
    let all = Selection::of(Source::Log);
    let rerun = store.plan_campaign(plan(CampaignKind::Rerun, &all)).await;
    let rerun = rerun.unwrap();
    begin(&store, &rerun).await;
    assert_eq!(over(&store, &rerun).await.counts.done, 2);
    assert_eq!(effects(&store).await.len(), 4);
    assert_eq!(other.lock().unwrap().len(), 2);
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Field case EX-23: the set of live cases shrinks while a campaign goes through it, page by page;
/// all of it is handled.
#[tokio::test]
async fn ex_23_a_campaign_of_2500_goes_out_to_the_last() {
    let (_folder, store) = sqlite().await;
    let keys: Vec<String> = (0..2_500).map(|n| format!("k{n}")).collect();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let outbox = onceward::Outbox::new(store.clone());
    for key in &keys {
        let thing = Thing {
            key: key.clone(),
            value: "1".to_owned(),
        };
        outbox.append(&mut tx, &thing).await.unwrap();
    }
    tx.commit().await.unwrap();
    outbox.ring();
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep_if_mended);
    let engine = start(&store, work).await;
    until("all are cases", || async {
        let open: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_case")
            .fetch_one(store.pool())
            .await
            .unwrap();
        open == 2_500
    })
    .await;
    mend(&store).await;
    let all = Selection::of(Source::Cases);
    let campaign = store.plan_campaign(plan(CampaignKind::Resend, &all)).await;
    let campaign = campaign.unwrap();
    assert_eq!(campaign.counts.left, 2_500);
    begin(&store, &campaign).await;
    let done = over(&store, &campaign).await;
    assert_eq!(
        (done.standing.state, done.counts.done),
        (CampaignState::Done, 2_500)
    );
    assert_eq!(effects(&store).await.len(), 2_501);
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Field case EX-19: after an outage the returns are spread, and none comes before its time.
#[tokio::test]
async fn ex_19_a_replay_after_an_outage_keeps_its_rate() {
    let (_folder, store) = sqlite().await;
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let messages: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    append(&store, Thing::TYPE, &messages).await;
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep_if_mended);
    let engine = start(&store, work).await;
    until("all are cases", || async {
        cases(&store).await.len() == 40
    })
    .await;
    mend(&store).await;
    let all = Selection::of(Source::Cases);
    let mut paced = plan(CampaignKind::Resend, &all);
    paced.pacing.rate_per_s = 20;
    let campaign = store.plan_campaign(paced).await.unwrap();
    begin(&store, &campaign).await;
    assert_eq!(over(&store, &campaign).await.counts.done, 40);
    let items = items(&store, &campaign).await;
    let at = |n: usize| items[n].started_at.unwrap();
    let took_ms = at(39).millis_since(at(1));
    assert!(took_ms >= 1_850, "39 at 20 a second took {took_ms} ms");
    for (from, to) in (1..30).zip(11..40) {
        let took_ms = at(to).millis_since(at(from));
        assert!(took_ms >= 300, "items {from} to {to} took {took_ms} ms");
    }
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Field case BC-13: settings under which an effect could be forgotten while its message can come
/// again are refused at the start; and where a ledger has forgotten nonetheless, a replay needs the
/// explicit word.
#[tokio::test]
async fn bc_13_what_the_ledger_has_forgotten_goes_out_again_only_when_asked_for() {
    const HOUR_MS: u64 = 3_600_000;
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("a", "1"), ("b", "1")]).await;
    let unsafe_retention = Retention {
        log_ms: HOUR_MS,
        ledger_ms: 1,
        operation_ledger_ms: 1,
        replay_window_ms: HOUR_MS,
    };
    let work = || Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(keep);
    let refused = Engine::builder(store.clone()).options(EngineOptions {
        retention: Some(unsafe_retention),
        ..options()
    });
    let refused = refused.subscribe(work().start(Start::Earliest)).start();
    match refused.await {
        Err(StartError::Retention(why)) => assert_eq!(why.setting, "ledger"),
        other => panic!("started: {:?}", other.is_ok()),
    }
    assert_eq!(effects(&store).await, []);
    let engine = start(&store, work()).await;
    all_past(&store).await;
    assert_eq!(effects(&store).await.len(), 2);
    // Somebody tidied up with these settings, past the engine.
    until("the ledger has forgotten", || async {
        store.tidy(unsafe_retention).await.unwrap().ledger_removed > 0
    })
    .await;
    let all = Selection::of(Source::Log);
    let asked = store.plan_campaign(plan(CampaignKind::Resend, &all)).await;
    let asked = asked.unwrap();
    assert_eq!((asked.counts.left, asked.counts.refused), (0, 2));
    let found = items(&store, &asked).await;
    let findings: Vec<_> = found.iter().map(|item| item.finding).collect();
    assert_eq!(findings, [Some(Finding::Forgotten); 2]);
    assert_eq!(effects(&store).await.len(), 2, "no second effect unasked");
    let mut meant = plan(CampaignKind::Resend, &all);
    meant.accept = &[Finding::Forgotten];
    let meant = store.plan_campaign(meant).await.unwrap();
    begin(&store, &meant).await;
    assert_eq!(over(&store, &meant).await.counts.done, 2);
    assert_eq!(effects(&store).await.len(), 4, "somebody said yes");
    engine.shutdown(Duration::from_secs(5)).await;
}
