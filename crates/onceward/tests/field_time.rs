//! Field cases in which time passes: the real engine over the store in memory, on a clock that goes
//! on when nothing else happens.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::passing::{
    HOUR_MS, MINUTE_MS, SECOND_MS, append, append_all, backlog, pass, reasons, store,
};
use onceward::core::campaign::{CampaignKind, Finding, Pacing};
use onceward::core::store::{
    ActOnCase, Actor, CaseAction, CaseQuery, Cases, Operate, PlanCampaign, Replay, Retention,
    Selection, SetPause, Source, Upkeep,
};
use onceward::{
    Context, Deliver, Delivery, Engine, EngineOptions, Envelope, Failure, Message, Payload,
    RetryPolicy, Running, Semantics, Start, Subscription,
};
use onceward_testkit::clock::SimClock;
use onceward_testkit::memory::{Defect, MemoryStore};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("a field case"),
};

/// When handlers ran, in milliseconds since the store's clock began.
type Runs = Arc<Mutex<Vec<(u64, String)>>>;

fn note(runs: &Runs, store: &MemoryStore, key: &str) -> u64 {
    let began = SimClock::default().now();
    let at_ms = store.clock().now().millis_since(began) as u64;
    runs.lock().unwrap().push((at_ms, key.to_owned()));
    at_ms
}

type Handled<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A handler with something of its own.
const fn handler<F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<MemoryStore>, Thing) -> Handled<'a> + Send + Sync + 'static,
{
    handle
}

async fn start(store: &MemoryStore, work: Subscription<MemoryStore>) -> Running<MemoryStore> {
    let engine = Engine::builder(store.reopen()).subscribe(work.start(Start::Earliest));
    engine.start().await.unwrap()
}

/// EX-13: a message is put off by two hours, then ten others by two seconds. The ten run after about
/// two seconds, the long one has its effect once, when its time has come.
#[tokio::test(start_paused = true)]
async fn ex_13_a_long_deferral_blocks_no_short_one_and_runs_once_on_time() {
    let store = store(None, 50).await;
    let (runs, done) = (Runs::default(), Runs::default());
    let (seen, ended, clock) = (Arc::clone(&runs), Arc::clone(&done), store.clone());
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(handler(
        move |_, thing| {
            let now_ms = note(&seen, &clock, &thing.key);
            let due_ms = match thing.key.as_str() {
                "long" => 2 * HOUR_MS,
                _ => 2 * SECOND_MS,
            };
            if now_ms >= due_ms {
                note(&ended, &clock, &thing.key);
            }
            Box::pin(async move {
                match due_ms.saturating_sub(now_ms) {
                    0 => Ok(()),
                    left_ms => Err(Failure::rate_limited(left_ms, "not yet")),
                }
            })
        },
    ));
    append(&store, Thing::TYPE, &["long"]).await;
    let keys: Vec<String> = (0..10).map(|n| format!("short-{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    append(&store, Thing::TYPE, &keys).await;
    let running = start(&store, work).await;
    pass(10 * SECOND_MS).await;
    let short = done.lock().unwrap().clone();
    assert_eq!(short.len(), 10, "{short:?}");
    let about_two = 2 * SECOND_MS..4 * SECOND_MS;
    assert!(
        short.iter().all(|(at, _)| about_two.contains(at)),
        "{short:?}"
    );
    pass(3 * HOUR_MS).await;
    let ended = done.lock().unwrap().clone();
    let long: Vec<u64> = ended
        .iter()
        .filter(|(_, key)| key == "long")
        .map(|e| e.0)
        .collect();
    assert_eq!(long.len(), 1, "once");
    // A wait of more than an hour is made in parts, each spread by up to a tenth.
    let on_time = 2 * HOUR_MS..2 * HOUR_MS + 7 * MINUTE_MS;
    assert!(on_time.contains(&long[0]), "after {} ms", long[0]);
    let tried = runs
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, key)| key == "long")
        .count();
    assert!(tried <= 4, "it was looked at {tried} times");
    assert_eq!(reasons(&store).await, [""; 0]);
    running.shutdown(Duration::from_secs(5)).await;
}

/// EX-24: a message is put off by an hour, and nothing else is there: nothing is late. Then one that
/// could be worked on, but for an operator's pause.
async fn lateness(store: &MemoryStore) -> [u64; 3] {
    let work = Subscription::new("work", Semantics::EffectOnce).on::<Thing, _>(
        async |_: &mut Context<MemoryStore>, thing: Thing| match thing.key.as_str() {
            "later" => Err(Failure::rate_limited(HOUR_MS, "in an hour")),
            _ => Ok(()),
        },
    );
    append(store, Thing::TYPE, &["later"]).await;
    let running = start(store, work).await;
    pass(30 * MINUTE_MS).await;
    let seen = backlog(store, "work").await;
    assert_eq!((seen.waiting, seen.deferred.retry), (0, 1), "shown apart");
    assert!(seen.oldest_deferred_at.is_some());
    assert_eq!(seen.due_since, None);
    let quiet_ms = seen.ready_age_ms();
    let pause = SetPause {
        subscription: "work",
        is_paused: true,
        by: BY,
    };
    store.set_pause(pause).await.unwrap();
    pass(10 * SECOND_MS).await;
    append(store, Thing::TYPE, &["now"]).await;
    pass(5 * SECOND_MS).await;
    let ready_ms = backlog(store, "work").await.ready_age_ms();
    let clock = store.clock();
    clock.set(clock.now().plus_millis(-(HOUR_MS as i64)));
    let set_back_ms = backlog(store, "work").await.ready_age_ms();
    running.shutdown(Duration::from_secs(5)).await;
    [quiet_ms, ready_ms, set_back_ms]
}

#[tokio::test(start_paused = true)]
async fn ex_24_what_is_due_later_makes_nothing_late() {
    let [quiet_ms, ready_ms, set_back_ms] = lateness(&store(None, 50).await).await;
    assert_eq!(quiet_ms, 0, "nothing could be worked on");
    assert!((4_900..6_000).contains(&ready_ms), "{ready_ms} ms");
    assert_eq!(set_back_ms, 0, "never negative");
}

/// What fails every time, and how often it ran.
fn failing(runs: &Arc<AtomicU32>) -> Subscription<MemoryStore> {
    let runs = Arc::clone(runs);
    Subscription::new("work", Semantics::EffectOnce)
        .on::<Thing, _>(handler(move |_, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Err(Failure::transient("trouble", "it always fails")) })
        }))
        .retry(RetryPolicy {
            base_ms: 200,
            cap_ms: 1_000,
            attempts_max: 3,
            ..RetryPolicy::default()
        })
}

/// Runs in each cycle of a message that always fails, with a restart in the middle of each; and
/// whether each release was a cycle of its own number.
async fn cycles(store: &MemoryStore) -> Vec<u32> {
    let runs = Arc::new(AtomicU32::new(0));
    append(store, Thing::TYPE, &["bad"]).await;
    let mut cycles = Vec::new();
    for cycle in 0..6 {
        let before = runs.load(Ordering::SeqCst);
        let running = start(store, failing(&runs)).await;
        while runs.load(Ordering::SeqCst) == before {
            pass(10).await;
        }
        running.shutdown(Duration::from_secs(5)).await;
        let running = start(store, failing(&runs)).await;
        pass(MINUTE_MS).await;
        cycles.push(runs.load(Ordering::SeqCst) - before);
        // Nothing goes out again by itself.
        pass(10 * MINUTE_MS).await;
        assert_eq!(runs.load(Ordering::SeqCst) - before, cycles[cycle]);
        let case = store.cases(CaseQuery::default()).await.unwrap().remove(0);
        assert_eq!(case.reason, "attempts_exhausted");
        assert_eq!(case.standing.replays, cycle as u32, "each one is numbered");
        running.shutdown(Duration::from_secs(5)).await;
        let release = ActOnCase {
            case_id: case.case_id,
            action: CaseAction::Release,
            expected: None,
            by: BY,
        };
        store.act_on_case(release).await.unwrap();
    }
    cycles
}

/// BC-38: attempts are counted by the system itself, over restarts; each replay is a new numbered
/// cycle; nothing goes out again by itself.
#[tokio::test(start_paused = true)]
async fn bc_38_attempts_are_counted_by_cycle_and_nothing_redrives_by_itself() {
    let store = store(None, 50).await;
    assert_eq!(cycles(&store).await, [3; 6]);
}

/// The same where a released message comes with what it had used before.
#[tokio::test(start_paused = true)]
async fn bc_38_a_cycle_that_went_on_with_the_last_ones_budget_would_be_noticed() {
    let store = store(Some(Defect::ReleasedWithOldBudget), 50).await;
    assert_ne!(cycles(&store).await, [3; 6]);
}

/// BC-38, last part: a copy that says it had died elsewhere has a budget of its own.
#[tokio::test(start_paused = true)]
async fn bc_38_what_a_copy_says_of_earlier_deaths_counts_for_nothing() {
    let store = store(None, 50).await;
    let runs = Arc::new(AtomicU32::new(0));
    let payload = Payload::Json(r#"{"key":"copy","value":"1"}"#.into());
    let mut copy = Envelope::new("copy", "thing", "copy", Thing::TYPE, payload);
    for (name, value) in [("xdeath", "99"), ("deliverycount", "99"), ("attempts", "0")] {
        copy.attributes.insert(name.to_owned(), value.to_owned());
    }
    append_all(&store, &[copy]).await;
    let running = start(&store, failing(&runs)).await;
    pass(MINUTE_MS).await;
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(reasons(&store).await, ["attempts_exhausted"]);
    running.shutdown(Duration::from_secs(5)).await;
}

/// Takes five minutes for each message.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<BTreeMap<String, u32>>>);

impl Deliver for Slow {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = delivery.row.envelope.id.clone();
        *self.0.lock().unwrap().entry(id).or_default() += 1;
        pass(5 * MINUTE_MS).await;
        Ok(())
    }
}

/// How often each of so many deliveries was begun, while others look for lost work all the time:
/// processes that join and leave, upkeep, plans of campaigns. And whether a plan found any to send.
async fn begun(of_the_first: EngineOptions) -> (BTreeMap<String, u32>, bool) {
    let store = store(None, 50).await;
    let slow = Slow::default();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let another = async |options: EngineOptions| {
        let work = Subscription::new("work", Semantics::AtLeastOnce)
            .deliver([Thing::TYPE], slow.clone())
            .concurrency(200)
            .concurrency_min(200)
            .timeout_ms(HOUR_MS)
            .start(Start::Earliest);
        let engine = Engine::builder(store.reopen()).options(options);
        engine.subscribe(work).start().await.unwrap()
    };
    let mut fleet = vec![another(of_the_first).await];
    fleet.push(another(EngineOptions::default()).await);
    pass(MINUTE_MS).await;
    append(&store, Thing::TYPE, &keys).await;
    while slow.0.lock().unwrap().len() < keys.len() {
        pass(100).await;
    }
    let mut is_any_planned = false;
    // All of it is in flight, for many leases' time.
    for round in 0..90 {
        if round == 20 {
            fleet.push(another(EngineOptions::default()).await);
        }
        if round == 60 {
            let all = Selection::of(Source::Log);
            let plan = PlanCampaign {
                subscription: "work",
                kind: CampaignKind::Resend,
                selection: &all,
                pacing: Pacing::default(),
                accept: &Finding::ALL,
                items_max: 0,
                by: BY,
            };
            let planned = store.plan_campaign(plan).await;
            is_any_planned = planned.is_ok_and(|planned| planned.counts.left > 0);
        }
        store.tidy(Retention::default()).await.unwrap();
        pass(SECOND_MS).await;
    }
    pass(10 * MINUTE_MS).await;
    assert_eq!(backlog(&store, "work").await.waiting, 0);
    for running in fleet {
        running.shutdown(Duration::from_secs(5)).await;
    }
    let begun = slow.0.lock().unwrap().clone();
    assert_eq!(begun.len(), keys.len());
    (begun, is_any_planned)
}

/// EX-01: nothing in flight is sent again by anybody who looks for lost work.
#[tokio::test(start_paused = true)]
async fn ex_01_nothing_in_flight_is_sent_again() {
    let (begun, is_any_planned) = begun(EngineOptions::default()).await;
    assert!(begun.values().all(|times| *times == 1), "{begun:?}");
    assert!(!is_any_planned, "nothing in flight is to go out");
}

/// What would be if a lease were not kept up: others would take the work over and begin it again.
#[tokio::test(start_paused = true)]
async fn ex_01_without_renewals_it_would_be() {
    let late = EngineOptions {
        renew_ms: 40_000,
        ..EngineOptions::default()
    };
    let (begun, _) = begun(late).await;
    assert!(begun.values().any(|times| *times > 1), "{begun:?}");
}
