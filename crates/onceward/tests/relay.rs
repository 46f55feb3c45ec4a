//! The relay: the log published to a broker, each message with its own end.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::{append, options, sqlite, until};
use onceward::core::breaker::BreakerPolicy;
use onceward::core::broker::{
    Boxed, Capabilities, Check, Confirmed, Content, Finding, Publish, Publisher, Receive, Topic,
    failures,
};
use onceward::core::store::{BacklogQuery, CaseQuery, Cases, DeferredCounts, Status};
use onceward::relay::{Relay, RelayOptions};
use onceward::sqlite::Sqlite;
use onceward::{
    Engine, Envelope, Failure, Outbox, Payload, RetryPolicy, Running, Semantics, Start,
    Subscription,
};
use onceward_testkit::brokers::{Fixture, MemoryFixture};

const TYPE: &str = "thing.done";

/// A broker whose confirmations stay away, or that is away itself, as long as it is told to.
struct Troubled {
    inner: Arc<dyn Publisher>,
    is_away: AtomicBool,
    /// Batches that are stored and not confirmed.
    silent: AtomicU32,
    largest_batch: AtomicU32,
    /// Batches that met nobody.
    unmet: AtomicU32,
}

impl Troubled {
    fn new(fixture: &MemoryFixture) -> Arc<Self> {
        Arc::new(Self {
            inner: fixture.publisher(),
            is_away: AtomicBool::new(false),
            silent: AtomicU32::new(0),
            largest_batch: AtomicU32::new(0),
            unmet: AtomicU32::new(0),
        })
    }
}

impl Publisher for Troubled {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn address(&self) -> String {
        "test".to_owned()
    }

    fn publish<'a>(&'a self, batch: Publish<'a>) -> Boxed<'a, Vec<Result<Confirmed, Failure>>> {
        Box::pin(async move {
            let size = u32::try_from(batch.messages.len()).unwrap();
            self.largest_batch.fetch_max(size, Ordering::SeqCst);
            if self.is_away.load(Ordering::SeqCst) {
                self.unmet.fetch_add(1, Ordering::SeqCst);
                return batch
                    .messages
                    .iter()
                    .map(|_| Err(failures::unconnected("test")))
                    .collect();
            }
            let outcomes = self.inner.publish(batch).await;
            let one_less = |left: u32| left.checked_sub(1);
            if self
                .silent
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                .is_ok()
            {
                let unconfirmed = || Err(failures::unconfirmed("test", batch.timeout_ms));
                return batch.messages.iter().map(|_| unconfirmed()).collect();
            }
            outcomes
        })
    }

    fn check<'a>(&'a self, check: Check<'a>) -> Boxed<'a, Vec<Finding>> {
        self.inner.check(check)
    }

    fn close(&self) -> Boxed<'_, ()> {
        self.inner.close()
    }
}

fn relay(publisher: Arc<dyn Publisher>, topic: &str) -> Subscription<Sqlite> {
    let mut options = RelayOptions::default();
    options.topic = Topic::parse(topic).unwrap();
    let retry = RetryPolicy {
        base_ms: 1,
        cap_ms: 5,
        factor: 1.0,
        attempts_max: 3,
        age_max_ms: 86_400_000,
    };
    Subscription::new("to-broker", Semantics::AtLeastOnce)
        .deliver([TYPE], Relay::new(publisher, options))
        .retry(retry)
        .breaker(BreakerPolicy {
            messages_min: 3,
            pause_ms: 5,
            pause_max_ms: 10,
        })
        .start(Start::Earliest)
}

async fn start(store: &Sqlite, subscription: Subscription<Sqlite>) -> Running<Sqlite> {
    let engine = Engine::builder(store.clone()).options(options());
    engine.subscribe(subscription).start().await.unwrap()
}

/// What is in the queue, in its order.
async fn received(fixture: &MemoryFixture) -> Vec<Envelope> {
    let request = Receive {
        messages_max: 10_000,
        bytes_max: u64::MAX,
        wait_ms: 0,
    };
    let received = fixture.subscriber().await.receive(request).await.unwrap();
    let envelopes = received.into_iter().map(|received| match received.content {
        Content::Event(envelope) => *envelope,
        other => panic!("an event: {other:?}"),
    });
    envelopes.collect()
}

/// Nothing is behind the position and nothing deferred.
async fn is_done(store: &Sqlite) -> bool {
    let query = BacklogQuery::new("to-broker", 1_000);
    let backlog = store.backlog(query).await.unwrap();
    backlog.waiting == 0 && backlog.deferred == DeferredCounts::default()
}

#[tokio::test]
async fn each_key_arrives_in_its_order_and_is_confirmed() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let broker = Troubled::new(&fixture);
    let values: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
    for value in &values {
        let keys = ["a", "b", "c"].map(|key| (key, value.as_str()));
        append(&store, TYPE, &keys).await;
    }
    let engine = start(&store, relay(broker.clone(), "orders")).await;
    until("all is published", || is_done(&store)).await;
    let received = received(&fixture).await;
    assert_eq!(received.len(), 60);
    for key in ["a", "b", "c"] {
        let of_key = received
            .iter()
            .filter(|envelope| envelope.aggregate_id == key);
        let ids: Vec<&str> = of_key.map(|envelope| envelope.id.as_str()).collect();
        let wanted: Vec<String> = values.iter().map(|v| format!("{TYPE}-{key}-{v}")).collect();
        assert_eq!(ids, wanted);
    }
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

/// BC-25, BC-04: the broker will never take one of them, and another goes nowhere; the rest of
/// their batches flows.
#[tokio::test]
async fn one_that_the_broker_never_takes_is_a_case_and_stops_nothing() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let broker = Troubled::new(&fixture);
    let max = broker.capabilities().message_bytes_max.unwrap();
    let large = format!("\"{}\"", "x".repeat(usize::try_from(max).unwrap()));
    let mut envelopes: Vec<Envelope> = (0..100)
        .map(|n| {
            let payload = Payload::Json("{}".into());
            Envelope::new(format!("m{n}"), "orders", format!("k{n}"), TYPE, payload)
        })
        .collect();
    envelopes[17].payload = Payload::Json(large.into());
    envelopes[42].aggregate_type = "nobody".into();
    let outbox = Outbox::new(store.clone());
    let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    outbox.append_envelopes(&mut tx, &envelopes).await.unwrap();
    tx.commit().await.unwrap();
    let engine = start(&store, relay(broker.clone(), "{aggregatetype}")).await;
    until("all is published", || is_done(&store)).await;
    let ids: BTreeSet<String> = received(&fixture).await.into_iter().map(|e| e.id).collect();
    let wanted = (0..100)
        .filter(|n| ![17, 42].contains(n))
        .map(|n| format!("m{n}"));
    assert_eq!(ids, wanted.collect());
    let cases = store.cases(CaseQuery::default()).await.unwrap();
    let mut reasons: Vec<(String, String)> = cases
        .into_iter()
        .map(|case| (case.row.envelope.id, case.failure.code))
        .collect();
    reasons.sort();
    let reason = |id: &str, code: &str| (id.to_owned(), code.to_owned());
    let wanted = [
        reason("m17", "broker_too_large"),
        reason("m42", "broker_unroutable"),
    ];
    assert_eq!(reasons, wanted);
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

/// BC-03: stored, and the confirmation lost. It is repeated under its id, and is no second message
/// where the broker looks at ids.
#[tokio::test]
async fn what_is_not_confirmed_is_repeated_under_its_id() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let broker = Troubled::new(&fixture);
    broker.silent.store(2, Ordering::SeqCst);
    append(&store, TYPE, &[("a", "1"), ("a", "2"), ("b", "1")]).await;
    let engine = start(&store, relay(broker.clone(), "orders")).await;
    until("all is published", || is_done(&store)).await;
    let ids: Vec<String> = received(&fixture).await.into_iter().map(|e| e.id).collect();
    let unique: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), unique.len()), (3, 3), "{ids:?}");
    assert!(store.cases(CaseQuery::default()).await.unwrap().is_empty());
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

/// An outage costs age and nothing else: three attempts are all there are, and more fail.
#[tokio::test]
async fn an_outage_uses_nothing_of_the_budget() {
    let (_folder, store) = sqlite().await;
    let fixture = MemoryFixture::new();
    let broker = Troubled::new(&fixture);
    broker.is_away.store(true, Ordering::SeqCst);
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let messages: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    append(&store, TYPE, &messages).await;
    let engine = start(&store, relay(broker.clone(), "orders")).await;
    // All at first, then one probe after the other.
    let unmet = || broker.unmet.load(Ordering::SeqCst);
    until("nobody is met for long", || async { unmet() >= 8 }).await;
    assert!(store.cases(CaseQuery::default()).await.unwrap().is_empty());
    broker.is_away.store(false, Ordering::SeqCst);
    until("all is published", || is_done(&store)).await;
    assert_eq!(received(&fixture).await.len(), 20);
    assert!(store.cases(CaseQuery::default()).await.unwrap().is_empty());
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}
