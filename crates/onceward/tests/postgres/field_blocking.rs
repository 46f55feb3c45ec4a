//! Field case BC-34: a handler that blocks its thread. Where it tells the runtime so, renewals and
//! other handlers go on; where it does not, the loss of the lease is noticed and fenced: at most one
//! effect for each message, a bounded number of starts, and a case instead of an endless cycle. The
//! health endpoint of a process whose threads are blocked answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use onceward::postgres::Postgres;
use onceward::{
    Deliver, Delivery, EngineOptions, Failure, Message, RetryPolicy, Running, Semantics, Start,
    Subscription,
};
use onceward_console::{Console, StoreGate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::place::{Place, RETRY, Thing, connect, handler, hasty, record, thing, until};

/// How often each message was begun.
type Starts = Arc<Mutex<BTreeMap<String, u32>>>;

const TRIES_MAX: u32 = 3;

/// Blocks a thread for so long where the key says so.
fn blocking(starts: &Starts, block: Duration) -> Subscription<Postgres> {
    let starts = Arc::clone(starts);
    let handle = handler(move |cx, thing| {
        *starts.lock().unwrap().entry(thing.key.clone()).or_default() += 1;
        Box::pin(async move {
            record(cx, "work", &thing).await?;
            if thing.key.starts_with("blocks") {
                std::thread::sleep(block);
            }
            Ok(thing.value)
        })
    });
    Subscription::new("work", Semantics::EffectOnce)
        .on::<Thing, _>(handle)
        .batch_max(1)
        .concurrency(4)
        .retry(RetryPolicy {
            attempts_max: TRIES_MAX,
            ..RETRY
        })
        .start(Start::Earliest)
}

/// Shut, a thread waits in front of it.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) {
        let is_open = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_while(is_open, |is_open| !*is_open);
        drop(waited.unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A delivery that blocks its thread in front of a gate where the key says so, and tells the runtime.
#[derive(Clone, Default)]
struct Blocking {
    starts: Starts,
    done: Starts,
    gate: Gate,
}

impl Deliver for Blocking {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let key = delivery.row.envelope.key().to_owned();
        *self.starts.lock().unwrap().entry(key.clone()).or_default() += 1;
        if key.starts_with("blocks") {
            tokio::task::block_in_place(|| self.gate.wait());
        }
        *self.done.lock().unwrap().entry(key).or_default() += 1;
        Ok(())
    }
}

fn short() -> EngineOptions {
    EngineOptions {
        lease_ms: 700,
        ..hasty()
    }
}

/// A process with two worker threads of its own, which serve its health endpoint too.
struct Process {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<()>,
    health: SocketAddr,
}

impl Process {
    fn start(url: &str, work: Subscription<Postgres>) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (listens, address) = std::sync::mpsc::channel();
        let url = url.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let store = connect(&url).await;
                let engine = onceward::Engine::builder(store.clone()).options(short());
                let running: Running<Postgres> = engine.subscribe(work).start().await.unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                listens.send(listener.local_addr().unwrap()).unwrap();
                let state = running.watch();
                let pulse = move || match state.borrow().is_member {
                    true => Ok(()),
                    false => Err("no lease".to_owned()),
                };
                let router = Console::new(StoreGate::new(store).engine(pulse)).router();
                let service = router.into_make_service_with_connect_info::<SocketAddr>();
                tokio::spawn(async move { axum::serve(listener, service).await });
                let _ = stopped.await;
                running.shutdown(Duration::from_secs(10)).await;
            });
        });
        let health = address.recv().unwrap();
        Self {
            stop,
            thread,
            health,
        }
    }

    /// The status with which a probe is answered.
    async fn asked(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.health).await.unwrap();
        let host = self.health;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let line = answer.lines().next().unwrap_or_default();
        line.to_owned()
    }

    fn stop(self) {
        let _ = self.stop.send(());
        self.thread.join().unwrap();
    }
}

/// Two threads are blocked for several leases' time, and the runtime knows: nothing is lost, and the
/// rest goes on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_34_blocking_that_is_told_keeps_neither_renewals_nor_others_from_going_on() {
    let place = Place::new().await;
    let blocking = Blocking::default();
    let work = Subscription::new("work", Semantics::AtLeastOnce)
        .deliver([Thing::TYPE], blocking.clone())
        .concurrency(4)
        .concurrency_min(4)
        .start(Start::Earliest);
    let one = Process::start(place.url(), work);
    place
        .append(&[thing("blocks-a", "1"), thing("blocks-b", "1")])
        .await;
    let starts = || blocking.starts.lock().unwrap().clone();
    let done = || blocking.done.lock().unwrap().clone();
    until("both have begun", || async { starts().len() == 2 }).await;
    let others: Vec<_> = (0..18).map(|n| thing(&format!("k{n}"), "1")).collect();
    place.append(&others).await;
    until("the others are done", || async { done().len() == 18 }).await;
    let beats = "select count(*) from onceward.heartbeats";
    let before = place.count(beats).await;
    until("the lease is renewed for some leases' time", || async {
        place.count(beats).await > before + 30
    })
    .await;
    for probe in ["/livez", "/readyz"] {
        let asked = tokio::time::timeout(Duration::from_secs(10), one.asked(probe));
        let answer = asked.await.expect("the health endpoint answers");
        assert_eq!(answer, "HTTP/1.1 200 OK", "{probe}");
    }
    assert_eq!(done().len(), 18, "two threads are blocked");
    blocking.gate.open();
    until("all are done", || async { done().len() == 20 }).await;
    let lost = "select count(*) from onceward.members where not ended_cleanly";
    assert_eq!(place.count(lost).await, 0, "the lease was kept");
    place.idle("work").await;
    one.stop();
    assert!(place.cases("work").await.is_empty());
    assert!(starts().values().all(|times| *times == 1), "{:?}", starts());
}

/// Both threads of a process are blocked for longer than its lease, by two messages that do so each
/// time they run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_34_a_process_that_is_blocked_is_fenced_and_its_messages_end_as_cases() {
    let place = Place::new().await;
    let starts = Starts::default();
    let block = Duration::from_millis(2_500);
    let fleet: Vec<Process> = (0..3)
        .map(|_| Process::start(place.url(), blocking(&starts, block)))
        .collect();
    let bad = [thing("blocks-a", "1"), thing("blocks-b", "1")];
    let others: Vec<_> = (0..18).map(|n| thing(&format!("k{n}"), "1")).collect();
    place.append(&bad).await;
    place.append(&others).await;
    until("the others are done and the two have ended", || async {
        let ended = place.cases("work").await.len() as i64;
        let done = place.effect_count().await;
        done + ended >= 20
    })
    .await;
    for process in fleet {
        process.stop();
    }
    let effects = place.values("work").await;
    assert!(
        effects.values().all(|values| values.len() == 1),
        "one effect at most: {effects:?}"
    );
    let cases = place.cases("work").await;
    assert_eq!(effects.len() + cases.len(), 20, "{cases:?}");
    assert!(
        cases
            .iter()
            .all(|case| case.row.envelope.key().starts_with("blocks"))
    );
    let lost = "select count(*) from onceward.members where not ended_cleanly";
    assert!(place.count(lost).await > 0, "the loss was noticed");
    let starts = starts.lock().unwrap().clone();
    for (key, times) in &starts {
        // The first owner did not name it yet; then each death counts.
        assert!(*times <= TRIES_MAX + 2, "{key} was begun {times} times");
    }
}
