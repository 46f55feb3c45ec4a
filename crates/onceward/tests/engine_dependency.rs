//! The other side of effects outside the database: away, asking to be left alone, or taking only so
//! much at once.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{append, options, sqlite, until};
use onceward::core::breaker::BreakerPolicy;
use onceward::core::store::{BacklogQuery, CaseQuery, Cases, Status};
use onceward::sqlite::Sqlite;
use onceward::{
    Deliver, Delivery, Engine, Failure, RetryPolicy, Running, Semantics, Start, Subscription,
};

const TYPE: &str = "thing.done";
/// Over within two attempts.
const SHORT: RetryPolicy = RetryPolicy {
    base_ms: 1,
    cap_ms: 5,
    factor: 1.0,
    attempts_max: 2,
    age_max_ms: 86_400_000,
};
const QUICK: BreakerPolicy = BreakerPolicy {
    messages_min: 3,
    pause_ms: 5,
    pause_max_ms: 10,
};

/// Takes messages, or does not.
#[derive(Clone, Default)]
struct Receiver {
    is_away: Arc<AtomicBool>,
    /// Says that nobody is there, instead of only failing.
    says_so: bool,
    asked: Arc<AtomicU32>,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Deliver for Receiver {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_away.load(Ordering::SeqCst) {
            return Err(if self.says_so {
                Failure::unavailable("nobody", "nobody is there")
            } else {
                Failure::transient("trouble", "it fails")
            });
        }
        let id = delivery.row.envelope.id.clone();
        self.taken.lock().unwrap().push(id);
        Ok(())
    }
}

fn mail(to: impl Deliver) -> Subscription<Sqlite> {
    Subscription::new("mail", Semantics::AtLeastOnce)
        .deliver([TYPE], to)
        .retry(SHORT)
        .breaker(QUICK)
        .start(Start::Earliest)
}

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    let engine = Engine::builder(store.clone()).options(options());
    engine.subscribe(subscription).start().await.unwrap()
}

async fn case_count(store: &Sqlite) -> usize {
    store.cases(CaseQuery::default()).await.unwrap().len()
}

async fn append_keys(store: &Sqlite, keys: usize) {
    let names: Vec<String> = (0..keys).map(|n| format!("k{n}")).collect();
    let messages: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    append(store, TYPE, &messages).await;
}

/// Far more attempts than all budgets together have.
async fn outlasts_the_outage(receiver: Receiver, keys: usize) {
    let (_folder, store) = sqlite().await;
    receiver.is_away.store(true, Ordering::SeqCst);
    append_keys(&store, keys).await;
    let running = start(&store, mail(receiver.clone())).await;
    until("it was asked often", async || {
        receiver.asked.load(Ordering::SeqCst) > 60
    })
    .await;
    assert_eq!(case_count(&store).await, 0);
    receiver.is_away.store(false, Ordering::SeqCst);
    until("everything arrives", async || {
        receiver.taken.lock().unwrap().len() == keys
    })
    .await;
    assert_eq!(case_count(&store).await, 0);
    let query = BacklogQuery {
        subscription: "mail",
        count_max: 1_000,
        before: None,
    };
    until("nothing is left", async || {
        let backlog = store.backlog(query.clone()).await.unwrap();
        backlog.deferred.retry + backlog.deferred.held + backlog.waiting == 0
    })
    .await;
    running.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_any_length_quarantines_nothing() {
    outlasts_the_outage(Receiver::default(), 12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_alone_outlasts_an_outage_that_is_named() {
    let receiver = Receiver {
        says_so: true,
        ..Receiver::default()
    };
    outlasts_the_outage(receiver, 1).await;
}

/// What the two above would be without a breaker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_breaker_an_outage_ends_in_cases() {
    let (_folder, store) = sqlite().await;
    let receiver = Receiver::default();
    receiver.is_away.store(true, Ordering::SeqCst);
    append_keys(&store, 12).await;
    let off = BreakerPolicy {
        messages_min: 0,
        ..QUICK
    };
    let running = start(&store, mail(receiver).breaker(off)).await;
    until("all are cases", async || case_count(&store).await == 12).await;
    running.shutdown(Duration::from_secs(5)).await;
}

/// One message that always fails beside others that do not is a case, breaker or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_beside_others_is_still_a_case() {
    #[derive(Clone)]
    struct Picky(Arc<AtomicU32>);
    impl Deliver for Picky {
        async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
            if delivery.row.envelope.key() == "k3" {
                return Err(Failure::transient("trouble", "this one fails"));
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let (_folder, store) = sqlite().await;
    append_keys(&store, 12).await;
    let taken = Arc::new(AtomicU32::new(0));
    let running = start(&store, mail(Picky(Arc::clone(&taken)))).await;
    until("all have ended", async || {
        taken.load(Ordering::SeqCst) == 11 && case_count(&store).await == 1
    })
    .await;
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    assert_eq!(cases[0].reason, "attempts_exhausted");
    assert_eq!(cases[0].row.envelope.key(), "k3");
    running.shutdown(Duration::from_secs(5)).await;
}

/// A window that one message meets is kept by all: nothing is sent before it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_the_receiver_names_slows_the_whole_subscription() {
    const WINDOW: Duration = Duration::from_millis(700);
    #[derive(Clone, Default)]
    struct Limited(Arc<Mutex<Vec<(Instant, String)>>>);
    impl Deliver for Limited {
        async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
            let mut asked = self.0.lock().unwrap();
            asked.push((Instant::now(), delivery.row.envelope.id.clone()));
            match asked.len() {
                1 => Err(Failure::rate_limited(700, "not now")),
                _ => Ok(()),
            }
        }
    }
    let (_folder, store) = sqlite().await;
    append_keys(&store, 20).await;
    let receiver = Limited::default();
    let running = start(&store, mail(receiver.clone())).await;
    until("all are sent", async || {
        receiver.0.lock().unwrap().len() == 21
    })
    .await;
    assert_eq!(case_count(&store).await, 0);
    let asked = receiver.0.lock().unwrap().clone();
    let early = asked[1..]
        .iter()
        .filter(|(at, _)| at.duration_since(asked[0].0) < WINDOW)
        .count();
    assert_eq!(early, 0, "sent although the receiver had asked to wait");
    running.shutdown(Duration::from_secs(5)).await;
}

/// It begins with one at a time, and never goes beyond the ceiling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_much_is_sent_at_once_is_found_from_the_answers() {
    #[derive(Clone, Default)]
    struct Counting {
        now: Arc<AtomicUsize>,
        seen: Arc<Mutex<Vec<usize>>>,
    }
    impl Deliver for Counting {
        async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Failure> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.seen.lock().unwrap().push(now);
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let (_folder, store) = sqlite().await;
    append_keys(&store, 400).await;
    let receiver = Counting::default();
    let subscription = mail(receiver.clone()).concurrency(16);
    let running = start(&store, subscription).await;
    until("all are sent", async || {
        receiver.seen.lock().unwrap().len() == 400
    })
    .await;
    let seen = receiver.seen.lock().unwrap().clone();
    assert_eq!(seen[0], 1, "{seen:?}");
    let most = seen.iter().max().copied().unwrap();
    assert!((8..=16).contains(&most), "{most} at once");
    running.shutdown(Duration::from_secs(5)).await;
}
