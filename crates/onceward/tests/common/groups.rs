//! What the engine promises of classes and tenants, over any store.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::core::Position;
use onceward::core::contract::{Contract, MessageContract};
use onceward::core::store::{BacklogQuery, CaseQuery, Store};
use onceward::{
    Deliver, Delivery, Engine, EngineOptions, Envelope, Failure, Payload, Priority, Running,
    Semantics, Start, Subscription, Tenants,
};
use tokio::sync::watch;

/// Messages in a backlog that nobody comes to the end of.
const MANY: usize = 20_000;
/// What counts as most of it.
const MOST: usize = MANY * 3 / 4;

/// What was delivered, in order: by id.
#[derive(Clone)]
pub struct Desk {
    delivered: Arc<Mutex<Vec<String>>>,
    count: watch::Sender<usize>,
    /// Each delivery takes this long.
    work: Duration,
}

impl Desk {
    fn new(work_ms: u64) -> Self {
        Self {
            delivered: Arc::default(),
            count: watch::channel(0).0,
            work: Duration::from_millis(work_ms),
        }
    }

    fn delivered(&self) -> Vec<String> {
        self.delivered.lock().unwrap().clone()
    }

    /// How many ids that start like this are delivered.
    fn count_of(&self, start: &str) -> usize {
        let delivered = self.delivered.lock().unwrap();
        delivered.iter().filter(|id| id.starts_with(start)).count()
    }

    /// Waits until so many of them are.
    async fn until(&self, start: &str, count: usize) {
        let mut news = self.count.subscribe();
        let waited = news.wait_for(|_| self.count_of(start) >= count);
        let waited = tokio::time::timeout(Duration::from_secs(120), waited).await;
        assert!(
            waited.is_ok(),
            "{} of {count} {start}",
            self.count_of(start)
        );
    }
}

impl Deliver for Desk {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        tokio::time::sleep(self.work).await;
        self.delivered
            .lock()
            .unwrap()
            .push(delivery.row.envelope.id.clone());
        self.count.send_modify(|count| *count += 1);
        Ok(())
    }
}

/// An id that starts with its kind, of a type and a tenant.
fn message(id: &str, key: &str, message_type: &str, tenant: Option<&str>) -> Envelope {
    let payload = Payload::Json(r#"{"n":1}"#.into());
    let mut envelope = Envelope::new(id, "thing", key, message_type, payload);
    if let Some(tenant) = tenant {
        let named = ("tenant".to_owned(), tenant.to_owned());
        envelope.attributes.extend([named]);
    }
    envelope
}

fn many(count: usize, kind: &str, of: &str, tenant: Option<&str>) -> Vec<Envelope> {
    let each = |i| {
        message(
            &format!("{kind}-{i}"),
            &format!("{kind}{}", i % 4_000),
            of,
            tenant,
        )
    };
    (0..count).map(each).collect()
}

fn contract() -> Contract {
    let mut contract = Contract::default();
    let types = [
        ("thing.urgent", Priority::High),
        ("thing.usual", Priority::Normal),
        ("thing.idle", Priority::Low),
    ];
    for (message_type, priority) in types {
        let message = MessageContract {
            aggregate: Some(message_type.to_owned()),
            priority,
            ..MessageContract::default()
        };
        contract.messages.insert(message_type.to_owned(), message);
    }
    contract
}

fn subscription<S: Store>(types: &[&str], desk: &Desk) -> Subscription<S> {
    Subscription::new("desk", Semantics::AtLeastOnce)
        .deliver(types.iter().copied(), desk.clone())
        .concurrency(4)
        .concurrency_min(4)
        .start(Start::Earliest)
}

async fn start<S: Store>(
    store: &S,
    options: EngineOptions,
    subscription: Subscription<S>,
) -> Running<S> {
    let builder = Engine::builder(store.clone()).contract(contract());
    let builder = builder.options(options).subscribe(subscription);
    builder.start().await.unwrap()
}

/// A message of high value has its effect while most of a backlog of low value still waits.
pub async fn high_is_not_behind_low<S: Store>(
    store: &S,
    options: EngineOptions,
    append: impl AsyncFn(&[Envelope]),
) {
    let desk = Desk::new(1);
    append(&many(MANY, "low", "thing.idle", None)).await;
    let types = ["thing.urgent", "thing.idle"];
    let engine = start(store, options, subscription(&types, &desk)).await;
    desk.until("low", 100).await;
    append(&[message("high", "k", "thing.urgent", None)]).await;
    desk.until("high", 1).await;
    let low = desk.count_of("low");
    assert!(low < MANY - MOST, "{low} of {MANY} came before it");
    engine.shutdown(Duration::from_secs(10)).await;
}

/// Ten of one tenant have their effect while most of another's still wait.
pub async fn a_quiet_tenant_is_not_behind_a_noisy_one<S: Store>(
    store: &S,
    options: EngineOptions,
    append: impl AsyncFn(&[Envelope]),
) {
    let desk = Desk::new(1);
    append(&many(MANY / 2, "noisy", "thing.usual", Some("acme"))).await;
    append(&many(10, "quiet", "thing.usual", Some("zulu"))).await;
    let work = subscription(&["thing.usual"], &desk).tenants(Tenants {
        attribute: "tenant".to_owned(),
        groups: 8,
    });
    let engine = start(store, options, work).await;
    desk.until("quiet", 10).await;
    let noisy = desk.count_of("noisy");
    assert!(noisy < MANY / 8, "{noisy} of {} came before them", MANY / 2);
    engine.shutdown(Duration::from_secs(10)).await;
}

/// Whoever takes over goes on where each group stood: nothing is left out, and after a clean end
/// nothing comes twice.
pub async fn all_groups_go_on_after_a_takeover<S: Store>(
    store: &S,
    options: EngineOptions,
    append: impl AsyncFn(&[Envelope]),
) {
    let types = ["thing.urgent", "thing.usual", "thing.idle"];
    let tenants = Tenants {
        attribute: "tenant".to_owned(),
        groups: 2,
    };
    let work = |desk: &Desk| subscription(&types, desk).tenants(tenants.clone());
    let desk = Desk::new(1);
    append(&many(3_000, "low", "thing.idle", Some("acme"))).await;
    append(&many(300, "high", "thing.urgent", Some("acme"))).await;
    append(&many(300, "usual", "thing.usual", Some("zulu"))).await;
    let first = start(store, options.clone(), work(&desk)).await;
    desk.until("high", 300).await;
    desk.until("usual", 300).await;
    first.shutdown(Duration::from_secs(10)).await;
    let low = desk.count_of("low");
    assert!(low < 2_700, "{low} of low were done as well");
    let positions: Vec<Position> = stands(store).await;
    assert!(positions.len() > 1, "groups stand apart: {positions:?}");
    // Another process, and one more message of each kind.
    for (kind, of) in [("high", types[0]), ("usual", types[1]), ("low", types[2])] {
        let id = format!("{kind}-more");
        append(&[message(&id, kind, of, Some("acme"))]).await;
    }
    let second = start(store, options, work(&desk)).await;
    desk.until("low", 3_001).await;
    desk.until("high", 301).await;
    desk.until("usual", 301).await;
    second.shutdown(Duration::from_secs(10)).await;
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for id in desk.delivered() {
        *times.entry(id).or_default() += 1;
    }
    assert_eq!(times.len(), 3_603);
    times.retain(|_, times| *times > 1);
    assert_eq!(times, BTreeMap::new(), "came twice after a clean end");
}

/// A process that is gone without a word: whoever comes after it delivers everything, each key in
/// its order.
pub async fn nothing_is_lost_when_an_owner_is_gone<S: Store>(
    store: &S,
    options: EngineOptions,
    append: impl AsyncFn(&[Envelope]),
) {
    let types = ["thing.urgent", "thing.usual", "thing.idle"];
    let work = |desk: &Desk| {
        subscription(&types, desk).tenants(Tenants {
            attribute: "tenant".to_owned(),
            groups: 3,
        })
    };
    let desk = Desk::new(1);
    // Forty messages a key.
    let kinds = [("low", types[2]), ("usual", types[1]), ("high", types[0])];
    for n in 0..40 {
        let of_key = |key: usize| {
            let (kind, of) = kinds[key % 3];
            let tenant = ["acme", "zulu"][key % 2];
            message(
                &format!("{kind}-{key}-{n:02}"),
                &format!("k{key}"),
                of,
                Some(tenant),
            )
        };
        append(&(0..30).map(of_key).collect::<Vec<_>>()).await;
    }
    let first = start(store, options.clone(), work(&desk)).await;
    desk.until("high", 200).await;
    drop(first);
    let second = start(store, options, work(&desk)).await;
    let all = || desk.delivered().into_iter().collect::<BTreeSet<_>>().len();
    let mut news = desk.count.subscribe();
    let waited = news.wait_for(|_| all() == 30 * 40);
    assert!(
        tokio::time::timeout(Duration::from_secs(120), waited)
            .await
            .is_ok()
    );
    second.shutdown(Duration::from_secs(10)).await;
    // The first time that each came.
    let mut seen = BTreeSet::new();
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in desk.delivered() {
        if let Some((key, n)) = id.rsplit_once('-').filter(|_| seen.insert(id.clone())) {
            by_key.entry(key.to_owned()).or_default().push(n.to_owned());
        }
    }
    assert!(
        by_key.values().all(|numbers| numbers.is_sorted()),
        "{by_key:?}"
    );
}

/// All positions of the lanes, seen by whoever takes them next.
async fn stands<S: Store>(store: &S) -> Vec<Position> {
    use onceward::core::store::{Join, Take};
    let names = ["desk".to_owned()];
    let request = Join {
        member: "onlooker",
        description: "onlooker",
        lease_ms: 60_000,
        subscriptions: &names,
    };
    let lease = store.join(request).await.unwrap();
    let take = Take {
        lease: &lease,
        subscription: "desk",
        lanes: &(0..16).collect::<Vec<u16>>(),
    };
    let taken = store.take(take).await.unwrap();
    let mut positions: Vec<Position> = Vec::new();
    for position in taken.iter().flat_map(|lane| lane.stand.positions()) {
        if !positions.contains(position) {
            positions.push(position.clone());
        }
    }
    store.leave(&lease).await.unwrap();
    positions
}

/// One key has one tenant: a message of another one while it is worked on is refused, and holds
/// nothing.
pub async fn a_conflict_is_refused_and_the_key_goes_on<S: Store>(
    store: &S,
    options: EngineOptions,
    append: impl AsyncFn(&[Envelope]),
) {
    let desk = Desk::new(20);
    let of = |n: usize, tenant| {
        let id = format!("{tenant}-{n}");
        message(&id, "shared", "thing.usual", Some(tenant))
    };
    let work = subscription(&["thing.usual"], &desk)
        .on_poison(onceward::OnPoison::HoldKey)
        .tenants(Tenants {
            attribute: "tenant".to_owned(),
            groups: 8,
        });
    append(&(0..20).map(|n| of(n, "acme")).collect::<Vec<_>>()).await;
    let engine = start(store, options, work).await;
    desk.until("acme", 1).await;
    append(&[of(20, "zulu"), of(21, "acme")]).await;
    desk.until("acme", 21).await;
    let query = CaseQuery {
        subscription: Some("desk"),
        rows_max: 10,
        ..CaseQuery::default()
    };
    let cases = store.cases(query).await.unwrap();
    assert_eq!(cases.len(), 1, "{cases:?}");
    assert_eq!(cases[0].reason, "group_conflict");
    assert_eq!(cases[0].row.envelope.id, "zulu-20");
    assert!(!cases[0].holds_key);
    let query = BacklogQuery {
        subscription: "desk",
        count_max: 100,
        before: None,
    };
    assert_eq!(store.backlog(query).await.unwrap().quarantined, 1);
    engine.shutdown(Duration::from_secs(10)).await;
}
