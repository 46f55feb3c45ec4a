//! The intake: a broker's deliveries in the log, each once, and acknowledged after the commit.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod handover;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::{effects, idle, options, sqlite, until};
use onceward::core::broker::{
    Act, Boxed as Future_, Capabilities, Check, Extend, Finding, Outgoing, Publish, Receive,
    Received, Settlement, Subscriber, failures,
};
use onceward::core::case::CaseAction;
use onceward::core::contract::OUTBOX;
use onceward::core::store::{
    ActOnCase, Actor, BacklogQuery, Case, CaseQuery, Cases, Operate, SetPause, Status,
};
use onceward::intake::{Intake, IntakeOptions};
use onceward::sqlite::Sqlite;
use onceward::{
    Boxed, Context, Engine, Envelope, Failure, IntakeState, Message, Payload, Running, Semantics,
    Start, StartError, Subscription,
};
use onceward_testkit::brokers::{Fixture, MemoryFixture};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
    value: String,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.other", version = 1, key = key)]
struct Other {
    key: String,
    value: String,
}

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("looked up"),
};

async fn write(cx: &mut Context<Sqlite>, key: &str, value: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (key, value) VALUES (?, ?)")
        .bind(key)
        .bind(value)
        .execute(cx.tx())
        .await?;
    Ok(())
}

fn done<'x>(cx: &'x mut Context<Sqlite>, thing: Thing) -> Boxed<'x, Result<(), Failure>> {
    Box::pin(async move { write(cx, &thing.key, &thing.value).await })
}

fn other<'x>(cx: &'x mut Context<Sqlite>, thing: Other) -> Boxed<'x, Result<(), Failure>> {
    Box::pin(async move { write(cx, &thing.key, &thing.value).await })
}

fn things() -> Subscription<Sqlite> {
    Subscription::new("things", Semantics::EffectOnce)
        .on::<Thing, _>(done)
        .start(Start::Earliest)
        .from(["orders"])
}

fn event(key: &str, value: &str) -> Envelope {
    let payload = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
    let payload = Payload::Json(payload.into());
    let mut envelope = Envelope::new(
        format!("{key}-{value}"),
        "thing",
        key,
        "thing.done",
        payload,
    );
    envelope.source = Some("/elsewhere".into());
    envelope
}

async fn publish(fixture: &MemoryFixture, envelopes: &[Envelope]) {
    let messages: Vec<Outgoing<'_>> = envelopes
        .iter()
        .map(|envelope| Outgoing {
            topic: "orders",
            envelope,
            recorded_at: None,
        })
        .collect();
    let batch = Publish {
        messages: &messages,
        timeout_ms: 1_000,
    };
    for outcome in fixture.publisher().publish(batch).await {
        outcome.unwrap();
    }
}

/// Three keys in turn.
fn many(count: usize) -> Vec<Envelope> {
    let keys = ["a", "b", "c"];
    (0..count)
        .map(|n| event(keys[n % 3], &format!("{n:04}")))
        .collect()
}

/// Each effect once, and those of a key in their order.
fn assert_each_once(found: &[(String, String)], count: usize) {
    assert_eq!(found.len(), count);
    for key in ["a", "b", "c"] {
        let of_key = found.iter().filter(|(k, _)| k == key);
        let values: Vec<&String> = of_key.map(|(_, value)| value).collect();
        assert!(values.is_sorted(), "{key}: {values:?}");
    }
}

fn intake(subscriber: Arc<dyn Subscriber>, change: fn(&mut IntakeOptions)) -> Intake {
    let mut options = IntakeOptions::default();
    options.batch_messages_max = 20;
    change(&mut options);
    Intake::new("orders", subscriber, options)
}

async fn start(
    store: &Sqlite,
    intake: Intake,
    subscription: Subscription<Sqlite>,
) -> Running<Sqlite> {
    let engine = Engine::builder(store.clone()).options(options());
    let engine = engine.intake(intake).subscribe(subscription);
    engine.start().await.unwrap()
}

fn state(engine: &Running<Sqlite>) -> IntakeState {
    engine.state().intakes.remove("orders").unwrap_or_default()
}

async fn stop(engine: Running<Sqlite>) {
    engine.shutdown(Duration::from_secs(5)).await;
}

async fn left_at_broker(fixture: &MemoryFixture) -> usize {
    let request = Receive {
        messages_max: 10_000,
        bytes_max: u64::MAX,
        wait_ms: 0,
    };
    let subscriber = fixture.subscriber().await;
    subscriber.receive(request).await.unwrap().len()
}

async fn cases(store: &Sqlite) -> Vec<Case> {
    store.cases(CaseQuery::default()).await.unwrap()
}

/// A receiver that does not get its words through, or is slow to take part, as it is told.
struct Troubled {
    inner: Arc<dyn Subscriber>,
    /// Acknowledgements that are lost.
    unheard: AtomicU32,
    extended: AtomicU32,
    is_away: AtomicBool,
    /// Settlements other than that it is done.
    undone: AtomicU32,
    panics: AtomicBool,
    /// Most that it was asked for at once.
    most: AtomicU32,
    /// How often it was asked for messages.
    asked: AtomicU32,
    /// What it did last, and what it takes long for.
    notes: Option<handover::Notes>,
}

impl Troubled {
    async fn new(fixture: &MemoryFixture) -> Arc<Self> {
        Arc::new(Self {
            inner: fixture.subscriber().await,
            unheard: AtomicU32::new(0),
            extended: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
            undone: AtomicU32::new(0),
            panics: AtomicBool::new(false),
            most: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            notes: None,
        })
    }
}

impl Subscriber for Troubled {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn address(&self) -> String {
        "test".to_owned()
    }

    fn receive(&self, request: Receive) -> Future_<'_, Result<Vec<Received>, Failure>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(request.messages_max, Ordering::SeqCst);
        if let Some(notes) = &self.notes {
            notes.note("asks");
        }
        if self.panics.swap(false, Ordering::SeqCst) {
            panic!("a receiver has a bug");
        }
        if self.is_away.load(Ordering::SeqCst) {
            return Box::pin(async { Err(failures::unconnected("test")) });
        }
        self.inner.receive(request)
    }

    fn settle<'a>(
        &'a self,
        settlements: &'a [Settlement],
    ) -> Future_<'a, Vec<Result<(), Failure>>> {
        Box::pin(async move {
            let mut ends = Vec::new();
            for one in settlements {
                if one.act != Act::Done {
                    self.undone.fetch_add(1, Ordering::SeqCst);
                }
                let one_less = |left: u32| left.checked_sub(1);
                let order = Ordering::SeqCst;
                let is_lost = one.act == Act::Done
                    && self.unheard.fetch_update(order, order, one_less).is_ok();
                if is_lost {
                    ends.push(Err(failures::cut("test")));
                } else {
                    let end = self.inner.settle(std::slice::from_ref(one)).await;
                    ends.extend(end);
                }
            }
            ends
        })
    }

    fn extend<'a>(&'a self, extend: Extend<'a>) -> Future_<'a, Result<(), Failure>> {
        self.extended.fetch_add(1, Ordering::SeqCst);
        self.inner.extend(extend)
    }

    fn give_back(&self) -> Future_<'_, ()> {
        Box::pin(async {
            if let Some(notes) = &self.notes {
                notes.take_long().await;
            }
            self.inner.give_back().await;
            if let Some(notes) = &self.notes {
                notes.note("gave back");
            }
        })
    }

    fn check<'a>(&'a self, check: Check<'a>) -> Future_<'a, Vec<Finding>> {
        self.inner.check(check)
    }
}

#[tokio::test]
async fn what_a_broker_delivers_has_its_effect_once_and_in_order() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    publish(&fixture, &many(300)).await;
    let engine = start(&store, intake(fixture.subscriber().await, |_| ()), things()).await;
    until("all have had their effect", || async {
        effects(&store).await.len() >= 300
    })
    .await;
    idle(&store, "things").await;
    assert_each_once(&effects(&store).await, 300);
    let state = state(&engine);
    assert!(state.is_taking && state.trouble.is_none(), "{state:?}");
    assert_eq!((state.taken, state.put_aside), (300, 0));
    stop(engine).await;
    assert_eq!(left_at_broker(&fixture).await, 0);
}

/// The broker does not hear of most of what was taken in, and delivers it again.
#[tokio::test]
async fn what_comes_again_is_known() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    subscriber.unheard.store(250, Ordering::SeqCst);
    publish(&fixture, &many(300)).await;
    // At least once is enough to see it: nothing but the intake keeps a second one away.
    let counted = Subscription::new("things", Semantics::AtLeastOnce)
        .on::<Thing, _>(done)
        .start(Start::Earliest)
        .from(["orders"]);
    let engine = start(&store, intake(subscriber, |_| ()), counted).await;
    until("all that was unheard has come again", || async {
        state(&engine).known >= 250
    })
    .await;
    idle(&store, "things").await;
    assert_each_once(&effects(&store).await, 300);
    assert_eq!(state(&engine).taken, 300);
    stop(engine).await;
    assert_eq!(left_at_broker(&fixture).await, 0);
}

#[tokio::test]
async fn what_nobody_takes_is_a_case_until_somebody_does() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = fixture.subscriber().await;
    let mut unwanted = event("a", "late");
    unwanted.message_type = "thing.other".into();
    let mut conflicting = event("a", "1");
    conflicting.payload = Payload::Json(r#"{"key":"a","value":"another"}"#.into());
    publish(&fixture, &[event("a", "1"), unwanted]).await;
    fixture.publish_foreign(Some("text/plain"), b"hello").await;
    fixture
        .publish_foreign(Some("application/json"), b"{")
        .await;
    // Published past the broker's own window for ids.
    let forgetful = MemoryFixture::new();
    publish(&forgetful, &[conflicting]).await;
    let engine = start(&store, intake(subscriber.clone(), |_| ()), things()).await;
    until("three are cases", || async {
        cases(&store).await.len() == 3
    })
    .await;
    stop(engine).await;
    let again = forgetful.subscriber().await;
    let engine = start(&store, intake(again, |_| ()), things()).await;
    until("the second of an id is one too", || async {
        cases(&store).await.len() == 4
    })
    .await;
    stop(engine).await;
    let mut found: Vec<(String, String)> = cases(&store)
        .await
        .into_iter()
        .map(|case| (case.failure.code, case.row.envelope.message_type))
        .collect();
    found.sort();
    let of = |code: &str, kind: &str| (code.to_owned(), format!("intake.orders.{kind}"));
    assert_eq!(
        found,
        [
            of("intake_conflicting", "conflicting"),
            of("intake_unreadable", "unreadable"),
            of("intake_unwanted", "unwanted"),
            of("intake_unwanted", "unwanted"),
        ]
    );
    assert_eq!(effects(&store).await.len(), 1);

    let both = things().on::<Other, _>(other);
    let engine = start(&store, intake(subscriber, |_| ()), both).await;
    for case in cases(&store).await {
        let request = ActOnCase {
            case_id: case.case_id,
            action: CaseAction::Release,
            expected: None,
            by: BY,
        };
        store.act_on_case(request).await.unwrap();
    }
    until("it has its effect", || async {
        effects(&store).await.len() == 2
    })
    .await;
    assert_eq!(
        effects(&store).await[1],
        ("a".to_owned(), "late".to_owned())
    );
    until("the others are cases again", || async {
        let live = cases(&store).await.into_iter();
        live.filter(|case| case.standing.state.is_live()).count() == 3
    })
    .await;
    stop(engine).await;
}

/// One row that the store will never take does not keep its batch out.
#[tokio::test]
async fn what_the_store_refuses_is_kept_as_bytes() {
    let (_folder, store) = sqlite().await;
    let trigger = "CREATE TRIGGER refusing BEFORE INSERT ON onceward_outbox \
                   WHEN NEW.id = 'b-0001' AND NEW.type = 'thing.done' \
                   BEGIN SELECT RAISE(ABORT, 'not here'); END";
    sqlx::query(trigger).execute(store.pool()).await.unwrap();
    let fixture = MemoryFixture::new();
    publish(&fixture, &many(9)).await;
    let engine = start(&store, intake(fixture.subscriber().await, |_| ()), things()).await;
    until("the others have had their effect", || async {
        effects(&store).await.len() == 8 && cases(&store).await.len() == 1
    })
    .await;
    let case = cases(&store).await.remove(0);
    assert_eq!(case.failure.code, "intake_unreadable");
    let payload = br#"{"key":"b","value":"0001"}"#;
    assert_eq!(
        case.row.envelope.payload,
        Payload::Binary(payload.as_slice().into())
    );
    stop(engine).await;
    assert_eq!(left_at_broker(&fixture).await, 0);
}

#[tokio::test]
async fn one_process_takes_in_at_a_time_and_the_next_goes_on() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let one = start(&store, intake(fixture.subscriber().await, |_| ()), things()).await;
    until("the first takes in", || async { state(&one).is_taking }).await;
    let other = start(&store, intake(fixture.subscriber().await, |_| ()), things()).await;
    publish(&fixture, &many(300)).await;
    until("some have come", || async { state(&one).taken > 40 }).await;
    assert_eq!(state(&other), IntakeState::default());
    // As a process ends that is killed: its lease has to run out, and what it had comes again.
    drop(one);
    until("all have had their effect", || async {
        effects(&store).await.len() >= 300
    })
    .await;
    idle(&store, "things").await;
    assert_each_once(&effects(&store).await, 300);
    assert!(state(&other).taken > 0);
    stop(other).await;
}

/// What cannot be worked on waits at the broker and not in the database.
#[tokio::test]
async fn no_more_is_taken_in_than_may_wait() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let pause = |is_paused| SetPause {
        subscription: "things",
        is_paused,
        by: BY,
    };
    let engine = start(
        &store,
        intake(fixture.subscriber().await, |o| o.ahead_max = 50),
        things(),
    );
    let engine = engine.await;
    store.set_pause(pause(true)).await.unwrap();
    until("nothing runs", || async {
        let query = BacklogQuery::new("things", 1);
        store.backlog(query).await.unwrap().paused_at.is_some()
    })
    .await;
    publish(&fixture, &many(300)).await;
    until("there is no more room", || async { state(&engine).is_full }).await;
    assert_eq!(state(&engine).taken, 50);
    store.set_pause(pause(false)).await.unwrap();
    until("all have had their effect", || async {
        effects(&store).await.len() == 300
    })
    .await;
    assert_each_once(&effects(&store).await, 300);
    stop(engine).await;
}

#[tokio::test]
async fn a_paused_intake_leaves_all_at_the_broker() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let engine = start(&store, intake(fixture.subscriber().await, |_| ()), things()).await;
    until("it takes in", || async { state(&engine).is_taking }).await;
    let pause = |is_paused| SetPause {
        subscription: "intake.orders",
        is_paused,
        by: BY,
    };
    store.set_pause(pause(true)).await.unwrap();
    until("it rests", || async { !state(&engine).is_taking }).await;
    publish(&fixture, &many(30)).await;
    let survey = engine.state().leases_lost;
    assert_eq!((state(&engine).taken, survey), (0, 0));
    store.set_pause(pause(false)).await.unwrap();
    until("all have had their effect", || async {
        effects(&store).await.len() == 30
    })
    .await;
    stop(engine).await;
}

/// BC-32: a database that is away costs no delivery: what was received is held, with more time
/// asked for, until it can be taken.
#[tokio::test]
async fn what_was_received_is_held_while_the_database_cannot_take_it() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    let engine = start(
        &store,
        intake(subscriber.clone(), |o| o.extend_every_ms = 100),
        things(),
    )
    .await;
    until("it takes in", || async { state(&engine).is_taking }).await;
    // Another writer holds the file for longer than the broker's lock.
    let blocker = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    publish(&fixture, &many(3)).await;
    until("more time was asked for", || async {
        subscriber.extended.load(Ordering::SeqCst) >= 8
    })
    .await;
    blocker.rollback().await.unwrap();
    until("all have had their effect", || async {
        effects(&store).await.len() == 3
    })
    .await;
    assert_eq!(state(&engine).known, 0, "nothing came again");
    stop(engine).await;
}

#[tokio::test]
async fn a_broker_that_is_away_is_told_of_and_waited_for() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let subscriber = Troubled::new(&fixture).await;
    subscriber.is_away.store(true, Ordering::SeqCst);
    publish(&fixture, &many(3)).await;
    let engine = start(&store, intake(subscriber.clone(), |_| ()), things()).await;
    until("it says so", || async {
        state(&engine)
            .trouble
            .is_some_and(|text| text.contains("test"))
    })
    .await;
    subscriber.is_away.store(false, Ordering::SeqCst);
    until("all have had their effect", || async {
        effects(&store).await.len() == 3
    })
    .await;
    assert_eq!(state(&engine).trouble, None);
    stop(engine).await;
}

#[tokio::test]
async fn nothing_is_taken_in_for_nobody() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let unused = intake(fixture.subscriber().await, |_| ());
    let engine = Engine::builder(store.clone()).intake(unused);
    let engine = engine.subscribe(things().from([OUTBOX]));
    let error = engine.start().await.err().unwrap();
    assert!(matches!(error, StartError::IntakeUnused(_)), "{error}");
}
