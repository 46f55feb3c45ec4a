//! Runs the processes of a simulation in turn, each on a runtime of its own with a clock of its
//! own, and makes faults happen to them.
//!
//! A process that dies is a runtime that is dropped; one that stands still is not run, and finds
//! all that time passed at once when it goes on.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Engine, EngineOptions, Surroundings};
use onceward_core::store::{BacklogQuery, Retention, Schema, Status, Upkeep};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::campaigns;
use super::checkers::{Checks, Violation};
use super::defect::database;
use super::fault::Fault;
use super::handlers::subscription;
use super::history::{Event, Step};
use super::operator;
use super::process::Process;
use super::producers;
use super::setup::Setup;
use super::store::SimStore;
use super::world::World;
use crate::clock::SimClock;
use crate::memory::MemoryStore;

/// After the last fault everything has to be finished within this.
const PATIENCE_MS: u64 = 240_000;

/// Somebody asks for the backlog after so many turns.
const ASKED_EVERY: u32 = 100;

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// What a checker found; a run ends with the first.
    pub violation: Option<Violation>,
    /// Number that is the same for the same steps.
    pub hash: u64,
    /// Steps that happened.
    pub steps: Vec<Step>,
    /// Simulated time.
    pub took_ms: u64,
    /// How each message ended in each subscription.
    pub ends: Vec<super::checkers::EndState>,
}

/// A place where a process runs, or will.
struct Slot {
    index: usize,
    /// Starts so far.
    starts: u32,
    process: Option<Running>,
    /// When it starts again.
    starts_at_ms: u64,
}

struct Running {
    process: Arc<Process>,
    runtime: Runtime,
    born_ms: u64,
    born: Instant,
    driven_to_ms: u64,
    stands_until_ms: Option<u64>,
}

impl Running {
    fn new(process: Arc<Process>, now_ms: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing that could be missing");
        let born = runtime.block_on(async { Instant::now() });
        Self {
            process,
            runtime,
            born_ms: now_ms,
            born,
            driven_to_ms: now_ms,
            stands_until_ms: None,
        }
    }

    /// Runs it until a moment.
    fn drive(&mut self, to_ms: u64, from_ms: u64) {
        self.process.world.set_current(&self.process.name);
        if self.driven_to_ms < from_ms {
            // It stood still: all that time passes at once.
            let gap = Duration::from_millis(from_ms - self.driven_to_ms);
            self.runtime.block_on(tokio::time::advance(gap));
        }
        let target = self.born + Duration::from_millis(to_ms - self.born_ms);
        let process = Arc::clone(&self.process);
        self.runtime.block_on(async move {
            tokio::select! {
                biased;
                () = process.ended() => {}
                () = tokio::time::sleep_until(target) => {}
            }
        });
        self.driven_to_ms = to_ms;
        self.process.world.set_current("-");
    }

    fn has_ended(&self) -> bool {
        self.process.is_dead() || self.process.is_stopped()
    }
}

struct Machine {
    world: Arc<World>,
    store: MemoryStore,
    slots: Vec<Slot>,
    shop: Running,
    senders: Vec<tokio::task::JoinHandle<()>>,
    clock_offset_ms: i64,
    checks: Checks,
}

/// Runs a setup to its end.
#[must_use]
pub fn run(setup: &Setup) -> Report {
    // The engine's own randomness: jitter.
    fastrand::seed(setup.seed);
    let clock = SimClock::default();
    let world = World::new(setup.clone(), clock.clone());
    let store = database(setup.defect, clock);
    let tell = Arc::clone(&world);
    store.listen(move |_, change| tell.changed(change));
    let mut shop = Running::new(producers::process(&world), 0);
    let sim_store = SimStore::new(store.reopen(), Arc::clone(&shop.process));
    let senders = shop.runtime.block_on(async {
        sim_store
            .migrate()
            .await
            .expect("nothing is planned to fail");
        producers::start(setup, &sim_store)
    });
    shop.driven_to_ms = 0;
    let slots = (0..setup.processes.max(1)).map(|index| Slot {
        index,
        starts: 0,
        process: None,
        starts_at_ms: world.random(1_000),
    });
    let mut machine = Machine {
        slots: slots.collect(),
        store,
        shop,
        senders,
        clock_offset_ms: 0,
        checks: Checks::new(setup),
        world,
    };
    let violation = machine.go();
    let Machine {
        world,
        slots,
        shop,
        checks,
        ..
    } = machine;
    drop(slots);
    drop(shop);
    Report {
        violation,
        hash: world.hash(),
        took_ms: world.at_ms(),
        ends: checks.ends(),
        steps: world.steps(),
    }
}

impl Machine {
    fn go(&mut self) -> Option<Violation> {
        let (mut now_ms, mut windows) = (0, 0_u32);
        let mut quiet_since_ms = None;
        loop {
            let is_calm = self.world.is_calm();
            let window_ms = match is_calm {
                false => 1 + self.world.random(12),
                true => 5 + self.world.random(30),
            };
            let from_ms = now_ms;
            now_ms += window_ms;
            self.world.set_at_ms(from_ms);
            self.set_clock(from_ms);
            if !is_calm && from_ms >= self.world.setup.calm_at_ms {
                self.calm_down(from_ms);
            }
            if !is_calm {
                self.faults(from_ms, window_ms);
            }
            self.world.notice_the_dead();
            self.start_and_end(from_ms);
            self.drive(from_ms, now_ms);
            windows += 1;
            if windows.is_multiple_of(ASKED_EVERY) {
                self.ask();
            }
            if let Some(violation) = self.checks.see(&self.world.news()) {
                return Some(violation);
            }
            if !self.world.is_calm() {
                continue;
            }
            let is_sent = self
                .senders
                .iter()
                .all(tokio::task::JoinHandle::is_finished);
            if is_sent && self.checks.is_finished() {
                // What has ended must stay so for a while.
                let since_ms = *quiet_since_ms.get_or_insert(now_ms);
                if now_ms > since_ms + 2 * self.world.setup.lease_ms {
                    return self.checks.end();
                }
            } else {
                quiet_since_ms = None;
            }
            if now_ms > self.world.setup.calm_at_ms + PATIENCE_MS {
                return Some(self.checks.is_late());
            }
        }
    }

    fn set_clock(&self, now_ms: u64) {
        let since = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let start = SimClock::default().now();
        let now = start.plus_millis(since + self.clock_offset_ms);
        self.world.set_clock(now);
    }

    fn calm_down(&mut self, now_ms: u64) {
        self.world.calm_down();
        if self.world.setup.has(Fault::Operate) && self.is_registered() {
            self.world.set_current("oper");
            self.shop
                .runtime
                .block_on(operator::end_pauses(&self.world, &self.store));
            self.world.set_current("-");
        }
        if self.world.setup.has(Fault::Replay) && self.is_registered() {
            self.world.set_current("oper");
            self.shop.runtime.block_on(campaigns::stop_all(&self.store));
            self.world.set_current("-");
        }
        for slot in &mut self.slots {
            slot.starts_at_ms = slot.starts_at_ms.min(now_ms);
            if let Some(running) = &mut slot.process {
                running.stands_until_ms = running.stands_until_ms.map(|_| now_ms);
            }
        }
    }

    /// Whether something that happens every so often happens in this window.
    fn strikes(&self, fault: Fault, every_ms: u64, window_ms: u64) -> bool {
        self.world.setup.has(fault) && self.world.random(every_ms) < window_ms
    }

    fn faults(&mut self, now_ms: u64, window_ms: u64) {
        let count = self.slots.len() as u64;
        let lease_ms = self.world.setup.lease_ms;
        if self.strikes(Fault::Crash, 4_000, window_ms) {
            let slot = &self.slots[self.world.random(count) as usize];
            if let Some(running) = &slot.process {
                running.process.die("killed");
            }
        }
        if self.strikes(Fault::Pause, 4_000, window_ms) {
            let until_ms = now_ms + 50 + self.world.random(2 * lease_ms);
            let slot = &mut self.slots[self.world.random(count) as usize];
            if let Some(running) = &mut slot.process
                && running.stands_until_ms.is_none()
            {
                running.stands_until_ms = Some(until_ms);
                running.process.say(Event::Paused);
            }
        }
        if self.strikes(Fault::Churn, 3_000, window_ms) {
            let slot = &self.slots[self.world.random(count) as usize];
            if let Some(running) = &slot.process {
                running.process.stop();
            }
        }
        if self.strikes(Fault::Clock, 5_000, window_ms) {
            let by_ms = self.world.random(2 * lease_ms) as i64 - lease_ms as i64;
            self.clock_offset_ms += by_ms;
            self.world.say("-", Event::ClockStepped(by_ms));
            self.set_clock(now_ms);
        }
        if self.strikes(Fault::Absence, 20_000, window_ms) {
            let until_ms = now_ms + 14_000;
            for slot in &mut self.slots {
                slot.starts_at_ms = until_ms;
                if let Some(running) = &slot.process {
                    running.process.die("all are away");
                }
            }
        }
        if self.strikes(Fault::Operate, 300, window_ms)
            && !self.world.is_calm()
            && self.is_registered()
        {
            self.world.set_current("oper");
            self.shop
                .runtime
                .block_on(operator::act(&self.world, &self.store));
            self.world.set_current("-");
        }
        if self.strikes(Fault::Replay, 300, window_ms)
            && !self.world.is_calm()
            && self.is_registered()
        {
            self.world.set_current("oper");
            self.shop
                .runtime
                .block_on(campaigns::act(&self.world, &self.store));
            self.world.set_current("-");
        }
        if self.strikes(Fault::Retention, 700, window_ms) && self.is_registered() {
            let store = self.store.clone();
            self.world.set_current("tidy");
            let tidied = self.shop.runtime.block_on(store.tidy(RETENTION));
            tidied.expect("nothing is planned to fail");
            self.world.set_current("-");
        }
    }

    /// Asks how every subscription stands, as people do at any time.
    fn ask(&mut self) {
        if !self.is_registered() {
            return;
        }
        for role in &self.world.setup.roles {
            let query = BacklogQuery {
                subscription: role.name(),
                count_max: u64::MAX,
                before: None,
            };
            let backlog = self.shop.runtime.block_on(self.store.backlog(query));
            let backlog = backlog.expect("nothing is planned to fail");
            let asked = Event::Asked {
                role: *role,
                waiting: backlog.waiting,
                oldest_waiting_at: backlog.oldest_waiting_at,
                oldest_deferred_at: backlog.oldest_deferred_at,
            };
            self.world.say("-", asked);
        }
    }

    /// Whether every subscription has declared itself: before, nobody needs anything.
    fn is_registered(&self) -> bool {
        let registered = self.shop.runtime.block_on(self.store.subscriptions());
        registered.is_ok_and(|names| names.len() == self.world.setup.roles.len())
    }

    fn start_and_end(&mut self, now_ms: u64) {
        let world = Arc::clone(&self.world);
        for slot in &mut self.slots {
            if let Some(running) = slot.process.take_if(|running| running.has_ended()) {
                drop(running.runtime);
                let pause_ms = 20 + world.random(2_500);
                slot.starts_at_ms = slot.starts_at_ms.max(now_ms + pause_ms);
            }
            if slot.process.is_none() && slot.starts_at_ms <= now_ms {
                slot.starts += 1;
                slot.process = Some(start(&world, &self.store, slot, now_ms));
            }
        }
    }

    fn drive(&mut self, from_ms: u64, to_ms: u64) {
        let mut order: Vec<usize> = (0..=self.slots.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.world.random(i as u64 + 1) as usize);
        }
        for place in order {
            let Some(slot) = self.slots.get_mut(place) else {
                self.shop.drive(to_ms, from_ms);
                continue;
            };
            let Some(running) = &mut slot.process else {
                continue;
            };
            if running.stands_until_ms.is_some_and(|until| until > from_ms) {
                continue;
            }
            if running.stands_until_ms.take().is_some() {
                running.process.say(Event::Resumed);
            }
            running.drive(to_ms, from_ms);
        }
    }
}

/// Short memories, so that they end within a run.
pub(super) const RETENTION: Retention = Retention {
    log_ms: 2_000,
    ledger_ms: 12_000,
    operation_ledger_ms: 12_000,
    replay_window_ms: 10_000,
};

fn start(world: &Arc<World>, store: &MemoryStore, slot: &Slot, now_ms: u64) -> Running {
    let name = format!("p{}.{}", slot.index + 1, slot.starts);
    let skew_ms = slot.index as i64 * 3 * world.setup.lease_ms as i64;
    let process = Process::new(name, Arc::clone(world), skew_ms, true);
    process.say(Event::Started);
    let running = Running::new(Arc::clone(&process), now_ms);
    let store = SimStore::new(store.reopen(), Arc::clone(&process));
    running.runtime.spawn(serve(store, process));
    running
}

/// What a process does: runs an engine until it is told to stop.
async fn serve(store: SimStore, process: Arc<Process>) {
    let setup = process.world.setup.clone();
    let members = std::sync::atomic::AtomicU32::new(0);
    let name = process.name.clone();
    let surroundings = Surroundings::apart(move || {
        let n = members.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        format!("{name}.{n}")
    });
    let running = loop {
        let mut engine = Engine::builder(store.clone())
            .surroundings(surroundings.clone())
            .options(EngineOptions {
                lease_ms: setup.lease_ms,
                renew_ms: setup.renew_ms,
                alert_for_ms: 0,
                doze_max_ms: setup.doze_ms,
                description: process.name.clone(),
                // The machine tidies up, when the run says so.
                retention: None,
                held_every_ms: None,
                throttle_every_ms: onceward::THROTTLE_EVERY_MS,
            });
        for role in &setup.roles {
            engine = engine.subscribe(subscription(&setup, *role, &process));
        }
        match engine.start().await {
            Ok(running) => break running,
            Err(onceward::StartError::Store(error)) if error.kind().is_passing() => {
                process.step(200).await;
            }
            Err(error) => {
                process.say(Event::NotStarted(error.to_string()));
                return;
            }
        }
    };
    process.until_told_to_stop().await;
    let grace = Duration::from_millis(process.world.random(3_000));
    running.shutdown(grace).await;
    process.stopped();
}
