//! Age stands still while work stands still: behind an open breaker, and in a window that the other
//! side names. The real engine over the store in memory; time passes when nothing else happens.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::passing::{MINUTE_MS, append, backlog, pass, reasons, store};
use onceward::core::store::StillBecause;
use onceward::{
    Deliver, Delivery, Engine, Failure, RetryPolicy, Running, Semantics, Start, Subscription,
};
use onceward_testkit::memory::{Defect, MemoryStore};

const TYPE: &str = "thing.done";
/// Only its age ends it.
const AGING: RetryPolicy = RetryPolicy {
    base_ms: 50,
    cap_ms: 500,
    factor: 2.0,
    attempts_max: 1_000,
    age_max_ms: 8 * MINUTE_MS,
};

async fn start(store: &MemoryStore, to: impl Deliver) -> Running<MemoryStore> {
    let mail = Subscription::new("mail", Semantics::AtLeastOnce)
        .deliver([TYPE], to)
        .retry(AGING)
        .start(Start::Earliest);
    let engine = Engine::builder(store.clone()).subscribe(mail);
    engine.start().await.unwrap()
}

/// How the other side fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It fails every message: all have an age from then on.
    Fails,
    /// It is away.
    Away,
    /// It asks the next one to wait for so long, and fares as below then.
    Asks(u64),
    /// It needs a person for the next one, and fares as below then.
    NeedsPerson,
    /// It takes one, fails each other one once more, and takes it then.
    Back,
}

#[derive(Clone)]
struct Receiver {
    phase: Arc<Mutex<Phase>>,
    met: Arc<Mutex<BTreeSet<String>>>,
    asked: Arc<AtomicU32>,
}

impl Receiver {
    fn new() -> Self {
        Self {
            phase: Arc::new(Mutex::new(Phase::Fails)),
            met: Arc::default(),
            asked: Arc::default(),
        }
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap() = phase;
    }
}

impl Deliver for Receiver {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut phase = self.phase.lock().unwrap();
        let trouble = || Failure::transient("trouble", "it fails");
        match *phase {
            Phase::Fails => Err(trouble()),
            Phase::Away => Err(Failure::unavailable("nobody", "nobody is there")),
            Phase::Asks(window_ms) => {
                *phase = Phase::Back;
                Err(Failure::rate_limited(window_ms, "not now"))
            }
            Phase::NeedsPerson => {
                *phase = Phase::Back;
                Err(Failure::operator("no_contract", "ask somebody"))
            }
            Phase::Back => {
                // The first one is taken at once, so that a breaker closes.
                let mut met = self.met.lock().unwrap();
                let is_taken = met.is_empty();
                let is_new = met.insert(delivery.row.envelope.id.clone());
                if is_new && !is_taken {
                    Err(trouble())
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// What becomes of a few messages whose receiver is away for much longer than they may get old, and
/// fails some of them once more when it is back.
async fn after(store: &MemoryStore, phase: Phase, because: StillBecause) -> Vec<String> {
    let receiver = Receiver::new();
    append(store, TYPE, &["a", "b", "c"]).await;
    let running = start(store, receiver.clone()).await;
    pass(MINUTE_MS).await;
    assert_eq!(backlog(store, "mail").await.deferred.retry, 3);
    receiver.set(phase);
    pass(20 * MINUTE_MS).await;
    let seen = backlog(store, "mail").await;
    let still = seen.still.expect("it stands still");
    assert_eq!(still.because, because);
    let minutes = seen.now.millis_since(still.since) / MINUTE_MS as i64;
    assert!((19..=20).contains(&minutes), "since {minutes} minutes");
    if because == StillBecause::RateWindow {
        let left = still.until.unwrap().millis_since(seen.now) / MINUTE_MS as i64;
        assert!((9..=10).contains(&left), "{left} minutes are left");
    }
    assert_eq!(reasons(store).await, [""; 0], "while it stands still");
    pass(10 * MINUTE_MS).await;
    receiver.set(Phase::Back);
    // One that was asked to wait comes back within a tenth more.
    pass(10 * MINUTE_MS).await;
    let left = backlog(store, "mail").await;
    assert_eq!((left.waiting, left.deferred.retry), (0, 0));
    assert_eq!(left.still, None, "it goes on");
    running.shutdown(Duration::from_secs(5)).await;
    reasons(store).await
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_budgets_age_quarantines_nothing() {
    let ended = after(&store(None, 10).await, Phase::Away, StillBecause::Breaker).await;
    assert_eq!(ended, [""; 0]);
}

/// What the one above would be if age went on.
#[tokio::test(start_paused = true)]
async fn with_an_age_that_goes_on_an_outage_ends_in_cases() {
    let store = store(Some(Defect::StillCounts), 10).await;
    let ended = after(&store, Phase::Away, StillBecause::Breaker).await;
    assert!(ended.contains(&"age_exhausted".to_owned()), "{ended:?}");
}

const WINDOW: Phase = Phase::Asks(30 * MINUTE_MS);

#[tokio::test(start_paused = true)]
async fn a_window_longer_than_the_budgets_age_quarantines_nothing() {
    let ended = after(&store(None, 10).await, WINDOW, StillBecause::RateWindow).await;
    assert_eq!(ended, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn with_an_age_that_goes_on_a_window_ends_in_cases() {
    let store = store(Some(Defect::StillCounts), 10).await;
    let ended = after(&store, WINDOW, StillBecause::RateWindow).await;
    assert!(ended.contains(&"age_exhausted".to_owned()), "{ended:?}");
}

/// The answer that says that a person has to act also says that the other side is back: the breaker
/// closes, and the pause for the person holds nonetheless.
#[tokio::test(start_paused = true)]
async fn a_pause_for_a_person_holds_although_the_breaker_closes() {
    let store = store(None, 10).await;
    let receiver = Receiver::new();
    receiver.set(Phase::Away);
    append(&store, TYPE, &["a", "b", "c"]).await;
    let running = start(&store, receiver.clone()).await;
    pass(MINUTE_MS).await;
    receiver.set(Phase::NeedsPerson);
    while *receiver.phase.lock().unwrap() == Phase::NeedsPerson {
        pass(10).await;
    }
    let before = receiver.asked.load(Ordering::SeqCst);
    pass(MINUTE_MS / 2).await;
    let asked = receiver.asked.load(Ordering::SeqCst) - before;
    assert_eq!(asked, 0, "the next one would fare the same");
    let still = backlog(&store, "mail").await.still;
    let still = still.expect("it is said that it stands still");
    assert_eq!(still.because, StillBecause::Person);
    assert!(still.until.is_some(), "when it is tried again is known");
    pass(2 * MINUTE_MS).await;
    let left = backlog(&store, "mail").await.deferred;
    assert_eq!(
        (left.retry, left.operator),
        (0, 1),
        "then one after the other"
    );
    running.shutdown(Duration::from_secs(5)).await;
}
