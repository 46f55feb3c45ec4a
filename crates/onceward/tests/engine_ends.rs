//! Work that ends at the wrong moment: without a record, without its owner, or while stopping.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use common::{append, options, sqlite, until};
use onceward::core::store::{
    Append, BacklogQuery, Begin, Case, CaseQuery, Effects, End, Join, Lanes, Schema, Status, Store,
    StoreErrorKind, Take,
};
use onceward::sqlite::Sqlite;
use onceward::{
    Boxed, Call, Context, Engine, EngineOptions, Envelope, Failure, Message, Payload, Probe,
    RetryPolicy, Running, Semantics, Start, Subscription,
};
use onceward_testkit::memory::{MemoryStore, Operation};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

/// A retry that is not due while a test runs.
const LATER: RetryPolicy = RetryPolicy {
    base_ms: 3_600_000,
    cap_ms: 3_600_000,
    factor: 1.0,
    attempts_max: 10,
    age_max_ms: 86_400_000,
};

async fn start<S: Store>(store: &S, subscription: Subscription<S>) -> Running<S> {
    Engine::builder(store.clone())
        .options(options())
        .subscribe(subscription.start(Start::Earliest).retry(LATER))
        .start()
        .await
        .unwrap()
}

async fn memory(keys: &[&str]) -> MemoryStore {
    let store = MemoryStore::default();
    store.migrate().await.unwrap();
    let envelopes = keys.iter().map(|key| {
        let payload = format!(r#"{{"key":"{key}","value":"1"}}"#);
        Envelope::new(
            *key,
            "thing",
            *key,
            Thing::TYPE,
            Payload::Json(payload.into()),
        )
    });
    let envelopes: Vec<Envelope> = envelopes.collect();
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    store
        .append(store.connection(&mut tx), &envelopes)
        .await
        .unwrap();
    store.end(tx, End::Commit).await.unwrap();
    store
}

async fn cases<S: Store>(store: &S) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

/// Writes down who was called and who was asked about; fails as the key says.
struct Remote<S> {
    seen: Arc<Mutex<Vec<String>>>,
    /// Done before a call of the key `breaks` answers.
    on_break: Box<dyn Fn() + Send + Sync>,
    has_probe: bool,
    store: std::marker::PhantomData<fn(S)>,
}

impl<S: Store> Remote<S> {
    fn new(has_probe: bool, on_break: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            seen: Arc::default(),
            on_break: Box::new(on_break),
            has_probe,
            store: std::marker::PhantomData,
        }
    }

    fn see(&self, what: &str, key: &str) {
        self.seen.lock().unwrap().push(format!("{what} {key}"));
    }
}

impl<S: Store> Call<S> for Remote<S> {
    type Message = Thing;
    type Answer = ();
    type Reply = ();

    async fn call(&self, _: &str, thing: &Thing) -> Result<(), Failure> {
        self.see("call", &thing.key);
        match thing.key.as_str() {
            "hangs" => std::future::pending().await,
            "breaks" => (self.on_break)(),
            _ => {}
        }
        Err(Failure::ambiguous("timeout", "no answer"))
    }

    async fn probe(&self, _: &str, thing: &Thing) -> Result<Probe<()>, Failure> {
        self.see("probe", &thing.key);
        Ok(match self.has_probe {
            true => Probe::Happened(()),
            false => Probe::Unsupported,
        })
    }

    fn can_probe(&self) -> bool {
        self.has_probe
    }

    async fn outcome(&self, _: &mut Context<S>, thing: Thing, (): ()) -> Result<(), Failure> {
        self.see("outcome", &thing.key);
        Ok(())
    }
}

#[tokio::test]
async fn a_call_whose_failure_cannot_be_recorded_is_looked_up_before_it_is_made_again() {
    let store = memory(&["breaks"]).await;
    let faults = store.clone();
    let remote = Remote::new(true, move || {
        faults
            .faults()
            .fail_next(Operation::Begin, StoreErrorKind::Unavailable);
    });
    let seen = Arc::clone(&remote.seen);
    let work = Subscription::new("remote", Semantics::EffectOnce).call(remote);
    let engine = start(&store, work).await;
    until("the outcome is written", || async {
        seen.lock()
            .unwrap()
            .iter()
            .any(|what| what == "outcome breaks")
    })
    .await;
    assert_eq!(
        *seen.lock().unwrap(),
        ["call breaks", "probe breaks", "outcome breaks"]
    );
    engine.shutdown(Duration::from_secs(5)).await;
}

/// A shutdown whose grace runs out leaves the position where it was last saved.
#[tokio::test]
async fn what_became_a_case_is_not_run_again_after_a_hasty_stop() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("hangs", "1"), ("lost", "1")]).await;
    let work = |seen: &Arc<Mutex<Vec<String>>>| {
        let mut remote = Remote::<Sqlite>::new(false, || {});
        remote.seen = Arc::clone(seen);
        Subscription::new("remote", Semantics::EffectOnce).call(remote)
    };
    let seen = Arc::default();
    let engine = start(&store, work(&seen)).await;
    until("one is a case", || async { cases(&store).await.len() == 1 }).await;
    until("one hangs", || async { seen.lock().unwrap().len() == 2 }).await;
    engine.shutdown(Duration::ZERO).await;
    let engine = start(&store, work(&seen)).await;
    until("the other is a case", || async {
        cases(&store).await.len() == 2
    })
    .await;
    append(&store, Thing::TYPE, &[("last", "1")]).await;
    until("the last is a case", || async {
        cases(&store).await.len() == 3
    })
    .await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(
        seen,
        ["call hangs", "call last", "call lost", "probe hangs"]
    );
    engine.shutdown(Duration::from_secs(5)).await;
}

/// As above, with much between the two that the subscription does not want.
#[tokio::test]
async fn what_became_a_case_is_not_run_again_however_far_it_lies_behind_the_position() {
    let (_folder, store) = sqlite().await;
    append(&store, Thing::TYPE, &[("hangs", "1")]).await;
    let outbox = onceward::Outbox::new(store.clone());
    let others = (0..1_200).map(|i| {
        let payload = Payload::Json("1".into());
        Envelope::new(format!("o{i}"), "thing", format!("o{i}"), "other", payload)
    });
    let others: Vec<Envelope> = others.collect();
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox.append_envelopes(&mut tx, &others).await.unwrap();
    tx.commit().await.unwrap();
    append(&store, Thing::TYPE, &[("lost", "1")]).await;
    let work = |seen: &Arc<Mutex<Vec<String>>>| {
        let mut remote = Remote::<Sqlite>::new(false, || {});
        remote.seen = Arc::clone(seen);
        Subscription::new("remote", Semantics::EffectOnce)
            .call(remote)
            .window_rows(16)
    };
    let seen = Arc::default();
    let engine = start(&store, work(&seen)).await;
    until("one is a case", || async { cases(&store).await.len() == 1 }).await;
    engine.shutdown(Duration::ZERO).await;
    let engine = start(&store, work(&seen)).await;
    append(&store, Thing::TYPE, &[("last", "1")]).await;
    until("the last is a case", || async {
        cases(&store).await.len() == 3
    })
    .await;
    let calls = |key: &str| {
        let call = format!("call {key}");
        seen.lock().unwrap().iter().filter(|s| **s == call).count()
    };
    assert_eq!((calls("lost"), calls("last")), (1, 1));
    engine.shutdown(Duration::from_secs(5)).await;
}

fn handler<S: Store, F>(handle: F) -> F
where
    F: for<'a> Fn(&'a mut Context<S>, Thing) -> Boxed<'a, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
{
    handle
}

/// A lane whose keys are looked up while the engine is told to stop.
#[tokio::test]
async fn a_lane_that_comes_after_the_order_to_stop_is_handed_back_at_once() {
    let store = memory(&["a"]).await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let lane = onceward::core::lane::lane_of(onceward::core::lane::slot_of("a"), 2);
    let handle = {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        handler(move |_, _| -> Boxed<'_, _> {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            Box::pin(async move {
                begun.notify_one();
                go.notified().await;
                Ok(())
            })
        })
    };
    // The lookups begin in the order of the lanes.
    if lane == 1 {
        store.faults().delay_next(Operation::Deferrals, 3_000);
    } else {
        store.faults().delay_next(Operation::Deferrals, 0);
        store.faults().delay_next(Operation::Deferrals, 3_000);
    }
    let work = Subscription::new("slow", Semantics::EffectOnce)
        .on::<Thing, _>(handle)
        .lanes(2);
    let engine = start(&store, work).await;
    begun.notified().await;
    assert_eq!(
        engine.state().lanes["slow"],
        [lane],
        "the other comes later"
    );
    let mut state = engine.watch();
    let stop = tokio::spawn(engine.shutdown(Duration::from_secs(3_600)));
    let both = state.wait_for(|state| state.lanes["slow"].len() == 2);
    let both = tokio::time::timeout(Duration::from_secs(10), both).await;
    drop(both);
    go.notify_one();
    let stopped = tokio::time::timeout(Duration::from_secs(10), stop).await;
    assert!(stopped.is_ok(), "it waits for its grace to run out");
}

/// What waits behind a message that failed among suspects does not run: the next death of the
/// process is none of its own.
#[tokio::test]
async fn a_suspect_that_never_ran_is_not_recorded_as_running() {
    let (_folder, store) = sqlite().await;
    let handle = handler(|_, thing: Thing| -> Boxed<'_, _> {
        Box::pin(async move {
            match thing.value.as_str() {
                "fails" => Err(Failure::transient("busy", "later")),
                _ => Ok(()),
            }
        })
    });
    let work = || Subscription::new("suspects", Semantics::EffectOnce).on::<Thing, _>(handle);
    let dies = start(&store, work()).await;
    dies.owns_all_lanes().await;
    drop(dies);
    append(&store, Thing::TYPE, &[("a", "fails"), ("a", "waits")]).await;
    let engine = start(&store, work()).await;
    let kinds = || async {
        let sql = "SELECT kind FROM onceward_deferral ORDER BY seq";
        let kinds: Vec<String> = sqlx::query_scalar(sql)
            .fetch_all(store.pool())
            .await
            .unwrap();
        kinds
    };
    until("the first waits for its retry", || async {
        kinds().await.first().is_some_and(|kind| kind == "retry")
    })
    .await;
    until("the second is held behind it", || async {
        let kinds = kinds().await;
        kinds.len() == 2 && kinds[1] == "held"
    })
    .await;
    let query = BacklogQuery::new("suspects", 10);
    let deferred = store.backlog(query).await.unwrap().deferred;
    assert_eq!((deferred.retry, deferred.held), (1, 1), "{deferred:?}");
    engine.shutdown(Duration::from_secs(5)).await;
}

/// A process that took lanes and never got the answer owns what it does not work on.
#[tokio::test]
async fn lanes_that_were_taken_without_an_answer_are_worked_on() {
    let (_folder, store) = sqlite().await;
    let handle = handler(|cx: &mut Context<Sqlite>, thing: Thing| -> Boxed<'_, _> {
        Box::pin(async move {
            let sql = "INSERT INTO effects (key, value) VALUES (?, ?)";
            let query = sqlx::query(sql).bind(thing.key).bind(thing.value);
            query.execute(cx.tx()).await?;
            Ok(())
        })
    });
    let work = || {
        Subscription::new("lost", Semantics::EffectOnce)
            .on::<Thing, _>(handle)
            .lanes(4)
    };
    let engine = start(&store, work()).await;
    engine.shutdown(Duration::from_secs(5)).await;
    let names = ["lost".to_owned()];
    let other = Join {
        member: "other",
        description: "takes lanes only to give them away",
        lease_ms: 60_000,
        subscriptions: &names,
    };
    let lease = store.join(other).await.unwrap();
    let take = Take {
        lease: &lease,
        subscription: "lost",
        lanes: &[0, 1],
    };
    assert_eq!(store.take(take).await.unwrap().len(), 2);
    let engine = start(&store, work()).await;
    engine.owns_all_lanes().await;
    let given = "UPDATE onceward_lane SET owner = ?, epoch = epoch + 1 WHERE owner = 'other'";
    let query = sqlx::query(given).bind(engine.state().member);
    query.execute(store.pool()).await.unwrap();
    store.leave(&lease).await.unwrap();
    let keys: Vec<String> = (0..20).map(|i| format!("k{i}")).collect();
    let things: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    append(&store, Thing::TYPE, &things).await;
    until("all have their effect", || async {
        common::effects(&store).await.len() == 20
    })
    .await;
    engine.shutdown(Duration::from_secs(5)).await;
}

/// What a process still records under the former name, nobody would find under the new one.
#[tokio::test]
async fn a_subscription_is_not_renamed_under_processes_that_work_on_it() {
    let (_folder, store) = sqlite().await;
    let handle = handler(|_, _| -> Boxed<'_, _> { Box::pin(async { Ok(()) }) });
    let work = |name: &str| Subscription::new(name, Semantics::EffectOnce).on::<Thing, _>(handle);
    let renamed = || {
        let builder = Engine::builder(store.clone()).options(options());
        let work = work("new").start(Start::Earliest).renamed_from("old");
        builder.subscribe(work).start()
    };
    let engine = start(&store, work("old")).await;
    engine.owns_all_lanes().await;
    let Err(refused) = renamed().await else {
        panic!("it was renamed under a process at work");
    };
    assert!(refused.to_string().contains("old"), "{refused}");
    // Like a killed process: its lease has to run out.
    drop(engine);
    until("the name is free", || async {
        match renamed().await {
            Ok(engine) => {
                engine.owns_all_lanes().await;
                engine.shutdown(Duration::from_secs(5)).await;
                true
            }
            Err(_) => false,
        }
    })
    .await;
}

/// Nobody else can write while it runs, so nobody can take its lanes either.
#[tokio::test]
async fn a_handler_that_outlives_the_lease_is_not_given_up() {
    let (_folder, store) = sqlite().await;
    let pool = store.pool().clone();
    let handle = handler(
        move |cx: &mut Context<Sqlite>, thing: Thing| -> Boxed<'_, _> {
            let pool = pool.clone();
            Box::pin(async move {
                let sql = "INSERT INTO effects (key, value) VALUES (?, ?)";
                let query = sqlx::query(sql).bind(thing.key).bind(thing.value);
                query.execute(cx.tx()).await?;
                until("the lease is over, twice", || async {
                    let over = "SELECT renewed_at + 2 * 1000 * lease_ms < micros \
                            FROM onceward_member, onceward_clock";
                    let over = sqlx::query_scalar(over).fetch_one(&pool).await;
                    over.unwrap()
                })
                .await;
                Ok(())
            })
        },
    );
    append(&store, Thing::TYPE, &[("a", "1")]).await;
    let work = Subscription::new("long", Semantics::EffectOnce).on::<Thing, _>(handle);
    let engine = Engine::builder(store.clone())
        .options(EngineOptions {
            lease_ms: 300,
            renew_ms: 30,
            ..options()
        })
        .subscribe(work.start(Start::Earliest))
        .start()
        .await
        .unwrap();
    until("it has its effect", || async {
        common::effects(&store).await.len() == 1
    })
    .await;
    assert_eq!(engine.state().leases_lost, 0);
    engine.shutdown(Duration::from_secs(5)).await;
}
