//! A database that is away for longer than a lease, or taken into service anew: nobody has died.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{options, until};
use onceward::core::store::{
    Append, Begin, Effects, End, MessageState, OperationQuery, Schema, Status, StoreErrorKind,
};
use onceward::{
    Call, Context, Engine, EngineOptions, Envelope, Failure, Message, Payload, Probe, Running,
    Semantics, Start, Subscription,
};
use onceward_testkit::memory::{Change, MemoryStore, Operation};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "thing.done", version = 1, key = key)]
struct Thing {
    key: String,
}

/// A call that does not come back the first time.
struct Slow {
    calls: Arc<AtomicU32>,
    /// Whether it was this process's.
    is_mine: Arc<AtomicBool>,
}

impl Call<MemoryStore> for Slow {
    type Message = Thing;
    type Answer = ();
    type Reply = ();

    async fn call(&self, _: &str, _: &Thing) -> Result<(), Failure> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            self.is_mine.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn probe(&self, _: &str, _: &Thing) -> Result<Probe<()>, Failure> {
        Ok(Probe::DidNotHappen)
    }

    async fn outcome(&self, _: &mut Context<MemoryStore>, _: Thing, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}

/// A process with a connection of its own to the database.
struct Process {
    own: MemoryStore,
    engine: Running<MemoryStore>,
    has_called: Arc<AtomicBool>,
}

impl Process {
    fn lanes(&self) -> usize {
        self.engine.state().lanes["work"].len()
    }

    /// Until it has given its lease up by itself.
    async fn until_given_up(&self) {
        until("the lease is given up", || async {
            self.engine.state().leases_lost == 1
        })
        .await;
    }
}

/// A database, and what was counted there.
struct Place {
    store: MemoryStore,
    calls: Arc<AtomicU32>,
    deaths: Arc<AtomicU32>,
    renewals: Arc<AtomicU32>,
}

impl Place {
    async fn new() -> Self {
        let store = MemoryStore::default();
        store.migrate().await.unwrap();
        let (deaths, renewals) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (died, renewed) = (Arc::clone(&deaths), Arc::clone(&renewals));
        store.listen(move |_, change| {
            let counter = match change {
                Change::DeathCounted { .. } => &died,
                Change::Renewed { .. } => &renewed,
                _ => return,
            };
            counter.fetch_add(1, Ordering::SeqCst);
        });
        Self {
            store,
            calls: Arc::default(),
            deaths,
            renewals,
        }
    }

    /// Appends the message.
    async fn append(&self) {
        let payload = Payload::Json("{\"key\": \"k\"}".into());
        let message = Envelope::new("m", "thing", "k", Thing::TYPE, payload);
        let mut tx = self.store.begin(Begin { lease: None }).await.unwrap();
        let connection = self.store.connection(&mut tx);
        self.store.append(connection, &[message]).await.unwrap();
        self.store.end(tx, End::Commit).await.unwrap();
    }

    async fn process(&self, options: EngineOptions) -> Process {
        let own = self.store.reopen();
        let has_called = Arc::new(AtomicBool::new(false));
        let slow = Slow {
            calls: Arc::clone(&self.calls),
            is_mine: Arc::clone(&has_called),
        };
        let work = Subscription::new("work", Semantics::EffectOnce).call(slow);
        let engine = Engine::builder(own.clone())
            .options(options)
            .subscribe(work.lanes(2).start(Start::Earliest));
        let engine = engine.start().await.unwrap();
        Process {
            own,
            engine,
            has_called,
        }
    }

    /// Two processes with a lane each, and the call of the first under way, when both lose sight
    /// of the database for long.
    async fn two_in_an_outage(&self) -> (Process, Process) {
        let a = self.process(options()).await;
        let b = self.process(options()).await;
        until("both have a lane", || async {
            a.lanes() == 1 && b.lanes() == 1
        })
        .await;
        self.append().await;
        self.until_called(1).await;
        a.own.set_away(true);
        b.own.set_away(true);
        a.until_given_up().await;
        b.until_given_up().await;
        self.store.clock().advance_ms(60_000);
        if a.has_called.load(Ordering::SeqCst) {
            (a, b)
        } else {
            (b, a)
        }
    }

    async fn until_called(&self, times: u32) {
        until("it is called", || async {
            self.calls.load(Ordering::SeqCst) >= times
        })
        .await;
    }

    async fn until_done(&self) {
        until("the message is done", || async {
            let query = OperationQuery {
                operation: "m",
                rows_max: 1,
            };
            let found = self.store.operation(query).await.unwrap();
            matches!(found[0].subscriptions[0].1, MessageState::Finished { .. })
        })
        .await;
    }

    fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_process_that_outlives_an_outage_counts_no_death() {
    let place = Place::new().await;
    let process = place.process(options()).await;
    place.append().await;
    place.until_called(1).await;
    process.own.set_away(true);
    process.until_given_up().await;
    place.store.clock().advance_ms(60_000);
    process.own.set_away(false);
    place.until_done().await;
    assert_eq!(place.deaths(), 0, "nothing has died");
    assert_eq!(place.calls.load(Ordering::SeqCst), 2);
}

/// The first that is back finds the leases of all others run out, and lets them come back too.
#[tokio::test]
async fn processes_that_outlive_an_outage_together_count_no_death() {
    let place = Place::new().await;
    let (first, other) = place.two_in_an_outage().await;
    other.own.set_away(false);
    let before = place.renewals.load(Ordering::SeqCst);
    until("the other works again", || async {
        place.renewals.load(Ordering::SeqCst) > before + 3
    })
    .await;
    first.own.set_away(false);
    place.until_done().await;
    assert_eq!(place.deaths(), 0, "nothing has died");
}

/// Patience has an end: who does not come back after an outage is dead.
#[tokio::test]
async fn who_does_not_come_back_after_an_outage_is_taken_over() {
    let place = Place::new().await;
    let (first, other) = place.two_in_an_outage().await;
    drop(first);
    other.own.set_away(false);
    place.until_done().await;
    assert_eq!(place.deaths(), 1);
    assert_eq!(other.lanes(), 2);
}

/// The database has begun a new era, in which only lanes taken anew have positions. Nobody waits
/// for the former lease, which is the engine's own.
#[tokio::test]
async fn a_new_era_is_entered_at_once() {
    let place = Place::new().await;
    let options = EngineOptions {
        lease_ms: 600_000,
        ..options()
    };
    let process = place.process(options).await;
    until("it has its lanes", || async { process.lanes() == 2 }).await;
    let member = process.engine.state().member;
    let faults = place.store.faults();
    faults.fail_next(Operation::Read, StoreErrorKind::WrongEra);
    place.calls.store(1, Ordering::SeqCst);
    place.append().await;
    until("it has joined anew", || async {
        process.engine.state().member != member && process.lanes() == 2
    })
    .await;
    place.until_done().await;
    assert_eq!(place.deaths(), 0);
}
