//! Those who send: concurrent transactions, late commits, aborted ones, the same again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Accepted, Outbox};
use onceward_core::Message;
use onceward_core::store::{Begin, Effects, End, StoreError, StoreErrorKind};

use super::fault::Fault;
use super::messages::{Body, Pay, envelope, type_of};
use super::process::Process;
use super::setup::{Role, Setup};
use super::store::SimStore;

/// One request to the service: accepted once, however often it comes.
#[derive(Clone, Debug)]
struct Request {
    at_ms: u64,
    /// How long its transaction is open before the append.
    thinks_ms: u64,
    /// How long it stays open after it.
    open_ms: u64,
    is_aborted_first: bool,
    is_pay: bool,
    message_type: &'static str,
    id: String,
    operation: Option<String>,
    /// Version of its key's aggregate, where versions are checked.
    version: Option<i64>,
    body: Body,
}

/// Everything that is sent in a run.
fn requests(setup: &Setup) -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(setup.seed ^ 0x00a9_9e4d);
    let is_wild = setup.has(Fault::Producer);
    let has_pay = setup.roles.contains(&Role::Pay);
    let mut requests: Vec<Request> = Vec::new();
    for copy in 1..=u64::from(setup.messages) {
        let at_ms = rng.u64(..setup.producing_ms.max(1));
        // Every third message has the one hot key.
        let key = if rng.u32(..3) == 0 {
            0
        } else {
            rng.u32(..setup.keys.max(1))
        };
        let is_pay = has_pay && rng.u32(..3) == 0;
        let body = Body {
            number: copy,
            copy,
            key: format!("k{key}"),
        };
        let mut request = Request {
            at_ms,
            thinks_ms: if is_wild && rng.u32(..4) == 0 {
                rng.u64(..400)
            } else {
                0
            },
            open_ms: match rng.u32(..6) {
                0 if is_wild => rng.u64(..3_000),
                1 | 2 if is_wild => rng.u64(..50),
                _ => 0,
            },
            is_aborted_first: is_wild && rng.u32(..8) == 0,
            is_pay,
            message_type: match is_pay {
                true => Pay::TYPE,
                false => type_of(setup, key),
            },
            id: format!("m{copy}"),
            operation: is_pay.then(|| format!("op{copy}")),
            version: None,
            body,
        };
        let same = requests.iter().rfind(|r| r.is_pay == is_pay);
        // Memories are so short with retention that what is sent again is rightly new.
        // Without order, two rows of one message may run at once: each is an effect.
        let repeats = is_wild && !setup.has(Fault::Retention) && (is_pay || !setup.loose_order);
        if let Some(earlier) = same.filter(|_| repeats && rng.u32(..8) == 0) {
            // The same again: the same message, or another one of the same operation; sometimes
            // with another payload.
            request.id.clone_from(&earlier.id);
            request.operation.clone_from(&earlier.operation);
            request.body.number = earlier.body.number;
            request.body.key.clone_from(&earlier.body.key);
            request.message_type = earlier.message_type;
            if is_pay && rng.bool() {
                request.id = format!("m{copy}");
                request.body.copy = earlier.body.copy;
            }
        }
        requests.push(request);
    }
    requests.sort_by_key(|request| request.at_ms);
    if setup.versions.is_some() {
        give_versions(&mut requests);
    }
    requests
}

/// Counts the versions of each key, in the order in which they are asked for; their commits come in
/// another. The same message again has the same version.
fn give_versions(requests: &mut [Request]) {
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    let mut of_id: BTreeMap<String, i64> = BTreeMap::new();
    for request in requests.iter_mut().filter(|request| !request.is_pay) {
        let version = *of_id.entry(request.id.clone()).or_insert_with(|| {
            let last = last.entry(request.body.key.clone()).or_default();
            *last += 1;
            *last
        });
        request.version = Some(version);
    }
}

/// Starts all producers on the runtime at hand.
pub(super) fn start(setup: &Setup, store: &SimStore) -> Vec<tokio::task::JoinHandle<()>> {
    let requests = requests(setup);
    let senders = requests.into_iter().map(|request| {
        let store = store.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(request.at_ms)).await;
            let process = Arc::clone(&store.process);
            if request.is_aborted_first {
                let _ = send(&store, &request, End::RollBack, 0).await;
            }
            for attempt in 0_u64.. {
                match send(&store, &request, End::Commit, attempt).await {
                    Ok(()) => return,
                    Err(_) => process.step(20 + 30 * attempt.min(20)).await,
                }
            }
        })
    });
    senders.collect()
}

async fn send(
    store: &SimStore,
    request: &Request,
    end: End,
    attempt: u64,
) -> Result<(), StoreError> {
    let outbox = Outbox::new(store.clone());
    let mut tx = store.begin(Begin { lease: None }).await?;
    let connection = store.connection(&mut tx);
    let key = format!("request-{}", request.body.copy);
    let key = match request.is_pay {
        // Copies of a payment are requests of their own.
        true => format!("{key}-{}-{}", request.id, request.at_ms),
        false => key,
    };
    match outbox.accept(connection, "shop", &key, b"body").await? {
        Accepted::First => {}
        Accepted::Again { .. } => return Ok(()),
        Accepted::InFlight | Accepted::Mismatch => {
            let kind = StoreErrorKind::Conflict;
            return Err(StoreError::found(kind, "accept", "in flight"));
        }
    }
    if attempt == 0 {
        store.process.step(request.thinks_ms).await;
    }
    let setup = &store.process.world.setup;
    let (of, id) = (request.message_type, request.id.clone());
    let mut message = envelope(setup, of, id, &request.body);
    message.operation_id.clone_from(&request.operation);
    message.aggregate_version = request.version;
    outbox.append_envelopes(connection, &[message]).await?;
    if attempt == 0 {
        store.process.step(request.open_ms).await;
    }
    outbox
        .answer(store.connection(&mut tx), "shop", &key, b"body", "{}")
        .await?;
    store.end(tx, end).await
}

/// A process of its own for all who send.
pub(super) fn process(world: &Arc<super::world::World>) -> Arc<Process> {
    Process::new("shop".to_owned(), Arc::clone(world), 0, false)
}
