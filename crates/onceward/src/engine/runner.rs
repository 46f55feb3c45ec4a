//! Drives one subscription's dispatcher: turns its commands into I/O and its I/O into events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::contract::{OnPoison, SubscriptionContract};
use onceward_core::dispatcher::{Command, Dispatcher, Event};
use onceward_core::group::Grouping;
use onceward_core::lane::slots_of;
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::{
    Deferral, DeferralKind, HeldKeysQuery, Lease, LoadKey, Release, ReleasedLane, Settle, Span,
    Store, StoreError, StoreErrorKind, TakenLane,
};
use onceward_core::{Failure, FailureRecord, Identity, Position, Row};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::again::{again, warn};
use super::dependency::Dependency;
use super::execute::Executor;
pub(super) use super::notes::{Acted, Earlier, Note, Over, RunnerReport};
use super::positions::save_positions;
use super::reader::Reader;
use super::rereading::{self, LookedUp};
use super::surroundings::Surroundings;
use super::told_cases::ToldCases;
use super::verdict::record_of;
use crate::failure_points::failure_point;
use crate::subscription::Handler;

/// A subscription as it runs.
pub(super) struct Runtime<S: Store> {
    pub(super) contract: SubscriptionContract,
    /// By what its messages are divided.
    pub(super) grouping: Grouping,
    pub(super) handlers: BTreeMap<String, Handler<S>>,
    pub(super) identity: Identity,
    pub(super) on_poison: OnPoison,
    /// How long messages are useful, by type, in milliseconds.
    pub(super) useful_for: BTreeMap<String, u64>,
    pub(super) batch_max: u32,
    /// What of payloads may be shown, by message type.
    pub(super) sensitivities: BTreeMap<String, Sensitivity>,
    /// How many cases were told of lately.
    pub(super) told_cases: ToldCases,
}

impl<S: Store> Runtime<S> {
    /// What is kept of a message's failure, without what may not be seen of its payload: all of it,
    /// where nobody said what may.
    pub(super) fn record_of(&self, failure: &Failure, row: &Row) -> FailureRecord {
        const HIDES_ALL: &Sensitivity = &Sensitivity::All;
        let sensitivity = self.sensitivities.get(&row.envelope.message_type);
        record_of(failure, &row.envelope, sensitivity.unwrap_or(HIDES_ALL))
    }
}

/// Which deferred messages of a key to load.
struct LoadFrom {
    slot: u16,
    after_seq: u64,
    versions_to: Option<(Arc<Row>, i64)>,
    rows_max: u32,
}

/// Windows of rows that may lie between a saved position and the last row read.
const SPAN_WINDOWS: u64 = 4;

/// One subscription at work under one lease.
pub(super) struct Runner<S: Store> {
    store: S,
    runtime: Arc<Runtime<S>>,
    executor: Arc<Executor<S>>,
    reader: Arc<Reader<S>>,
    lease: Lease,
    dispatcher: Dispatcher,
    started: Instant,
    notes: mpsc::UnboundedReceiver<Note>,
    to_self: mpsc::UnboundedSender<Note>,
    reports: mpsc::UnboundedSender<RunnerReport>,
    /// Reads wait at the end of the log, for ever if need be: they are dropped at the end.
    reads: JoinSet<()>,
    /// Everything else is waited for.
    tasks: JoinSet<()>,
    positions: watch::Sender<Vec<Span>>,
    is_draining: bool,
    /// Lanes that are being looked up, and whether they are to be handed back again.
    looked_up: BTreeMap<u16, bool>,
    /// Rows still to be read that may have been read before, by an earlier owner: those that have
    /// had their effect are left out, so that they do not wait behind what holds their key.
    rereading: u64,
    /// Rows up to here may have become cases of an earlier owner, which are left out.
    cases_to: Option<Arc<Position>>,
    acted: Acted,
}

impl<S: Store> Runner<S> {
    pub(super) fn new(
        store: S,
        runtime: Arc<Runtime<S>>,
        reader: Arc<Reader<S>>,
        lease: Lease,
        suspects: Arc<tokio::sync::Mutex<()>>,
        surroundings: Surroundings,
        reports: mpsc::UnboundedSender<RunnerReport>,
    ) -> (Self, mpsc::UnboundedSender<Note>) {
        let (to_self, notes) = mpsc::unbounded_channel();
        let mut dispatcher =
            Dispatcher::new(&runtime.contract, runtime.batch_max, 0).grouped(&runtime.grouping);
        let addresses = runtime.handlers.values().filter_map(Handler::address);
        let dependency = Arc::new(Dependency::of(&runtime.contract, &addresses.collect()));
        if runtime.handlers.values().all(Handler::is_outside) {
            dispatcher = dispatcher.starting_at(dependency.first_pace());
        }
        let executor = Executor {
            store: store.clone(),
            runtime: Arc::clone(&runtime),
            lease: lease.clone(),
            surroundings,
            suspects,
            dependency,
        };
        let (positions, to_save) = watch::channel(Vec::new());
        let mut tasks = JoinSet::new();
        let name = runtime.contract.name.clone();
        tasks.spawn(save_positions(store.clone(), lease.clone(), name, to_save));
        let sender = to_self.clone();
        let runner = Self {
            store,
            runtime,
            executor: Arc::new(executor),
            reader,
            lease,
            dispatcher,
            started: Instant::now(),
            notes,
            to_self,
            reports,
            reads: JoinSet::new(),
            tasks,
            positions,
            is_draining: false,
            looked_up: BTreeMap::new(),
            rereading: 0,
            cases_to: None,
            acted: Acted::default(),
        };
        (runner, sender)
    }

    /// What its calls and deliveries depend on.
    pub(super) fn dependency(&self) -> Arc<Dependency> {
        Arc::clone(&self.executor.dependency)
    }

    /// Works until it is dropped, halted, drained, or cannot go on. Nothing of it is at work
    /// afterwards.
    pub(super) async fn run(mut self) {
        self.work().await;
        self.reads.shutdown().await;
        self.tasks.shutdown().await;
    }

    async fn work(&mut self) {
        loop {
            let deadline_ms = self.dispatcher.deadline_ms();
            let deadline = deadline_ms.map(|ms| self.started + Duration::from_millis(ms));
            let tick = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // What ended first: there is no more of it than there was work.
                biased;
                Some(ended) = self.tasks.join_next() => {
                    if self.has_panicked(&ended) {
                        return;
                    }
                }
                Some(ended) = self.reads.join_next() => {
                    if self.has_panicked(&ended) {
                        return;
                    }
                }
                // Every note lets the dispatcher look at the time as well.
                note = self.notes.recv() => match note {
                    Some(note) => {
                        if !self.note(note) {
                            return;
                        }
                    }
                    None => return,
                },
                () = tick => self.handle(Event::Tick),
            }
            if self.is_draining && self.dispatcher.is_empty() {
                return self.finish().await;
            }
        }
    }

    /// A bug in the engine: better to start anew than to go on half-dead.
    fn has_panicked(&self, ended: &Result<(), tokio::task::JoinError>) -> bool {
        let has_panicked = ended.as_ref().is_err_and(tokio::task::JoinError::is_panic);
        if has_panicked {
            tracing::error!("a task of the engine panicked; joining anew");
            let _ = self.reports.send(RunnerReport::Over(Over::Panicked));
        }
        has_panicked
    }

    /// All lanes are quiet: waits until they are handed back.
    async fn finish(&mut self) {
        self.reads.abort_all();
        // Without a sender its task saves the last ones and ends.
        self.positions = watch::channel(Vec::new()).0;
        while self.tasks.join_next().await.is_some() {}
        let _ = self.reports.send(RunnerReport::Drained);
    }

    /// Returns whether to go on.
    fn note(&mut self, note: Note) -> bool {
        match note {
            Note::Event(event) => {
                self.handle(*event);
            }
            Note::Page(page, earlier) => self.page(*page, &earlier),
            Note::LookedUp(found) => self.lane_looked_up(*found),
            Note::Taken(lanes) => {
                // Each group reads by itself.
                let window = u64::from(self.runtime.contract.window_rows)
                    * self.runtime.grouping.count() as u64;
                for taken in lanes {
                    if taken.is_suspect {
                        self.rereading += SPAN_WINDOWS * window;
                    } else if taken.epoch > 1 {
                        // An owner that left in a hurry kept an older position.
                        self.rereading = self.rereading.max(SPAN_WINDOWS * window);
                    }
                    self.looked_up.insert(taken.lane, false);
                    self.prepare(taken);
                }
            }
            Note::Release(lanes) => {
                for lane in lanes {
                    if let Some(is_unwanted) = self.looked_up.get_mut(&lane) {
                        *is_unwanted = true;
                    }
                    self.handle(Event::ReleaseLane { lane });
                }
            }
            Note::Acted(acted) => {
                self.acted = acted;
                self.look_again();
            }
            Note::Drain => {
                self.is_draining = true;
                self.handle(Event::Drain);
            }
            Note::Over(over) => {
                let _ = self.reports.send(RunnerReport::Over(over));
                return false;
            }
            Note::Halt => return false,
        }
        true
    }

    fn lane_looked_up(&mut self, found: LookedUp) {
        let lane = found.taken.lane;
        if let Some(cases_to) = found.cases_to {
            let known = self.cases_to.as_ref();
            if known.is_none_or(|known| cases_to.after.covers(&known.after)) {
                self.cases_to = Some(Arc::new(cases_to));
            }
        }
        let is_outdated = found.revision != self.acted.revision;
        self.handle(Event::LaneTaken {
            taken: found.taken,
            held: found.held,
            cases: found.cases,
        });
        self.report_lanes();
        // Operators acted while it was looked up.
        if is_outdated {
            self.look_again();
        }
        if self.looked_up.remove(&lane) == Some(true) || self.is_draining {
            self.handle(Event::ReleaseLane { lane });
        }
    }

    fn look_again(&mut self) {
        self.executor.dependency.person_acted();
        self.handle(Event::Acted(self.acted.ruling));
    }

    fn report_lanes(&self) {
        let lanes = self.dispatcher.lanes().collect();
        let name = self.runtime.contract.name.clone();
        let _ = self.reports.send(RunnerReport::Lanes(name, lanes));
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn handle(&mut self, event: Event) {
        let commands = self.dispatcher.handle(self.now_ms(), event);
        for command in commands {
            self.command(command);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Read { feed, from } => {
                self.read(feed, from);
            }
            Command::Load {
                load,
                key,
                slot,
                after_seq,
                versions_to,
                rows_max,
            } => {
                let from = LoadFrom {
                    slot,
                    after_seq,
                    versions_to,
                    rows_max,
                };
                self.load(load, key, from);
            }
            Command::Look { look, lane } => self.look(look, lane),
            Command::Run(batch) => {
                let (executor, to_self) = (Arc::clone(&self.executor), self.to_self.clone());
                self.tasks.spawn(async move {
                    let end = executor.run(&batch).await;
                    if end.is_fenced {
                        let _ = to_self.send(Note::Over(Over::Fenced));
                        return;
                    }
                    let _ = to_self.send(Note::Event(Box::new(Event::Finished {
                        batch: batch.batch,
                        fates: end.fates,
                        seen: end.seen,
                        pace: end.pace,
                    })));
                });
            }
            Command::Store { tokens, deferrals } => {
                let (executor, to_self) = (Arc::clone(&self.executor), self.to_self.clone());
                let calls = self.runtime.handlers.values().any(Handler::is_call);
                self.tasks.spawn(async move {
                    // What was begun and given back does not run any more: the next death is not its
                    // own. Of a call the mark stays, which says that the other side has to be asked.
                    let is_held = |of: &&Deferral| of.kind == DeferralKind::Held && !calls;
                    let held: Vec<u64> = deferrals
                        .iter()
                        .filter(is_held)
                        .map(|deferral| deferral.seq)
                        .collect();
                    let settle = Settle {
                        defer: &deferrals,
                        hold_running: &held,
                        ..executor.nothing()
                    };
                    record(&executor, settle, tokens, &to_self).await;
                });
            }
            Command::Clear { tokens, seqs } => {
                let (executor, to_self) = (Arc::clone(&self.executor), self.to_self.clone());
                self.tasks.spawn(async move {
                    let settle = Settle {
                        clear_running: &seqs,
                        ..executor.nothing()
                    };
                    record(&executor, settle, tokens, &to_self).await;
                });
            }
            Command::Save(spans) => {
                self.positions.send_replace(spans);
            }
            Command::Released(lane) => {
                self.release(lane);
                self.report_lanes();
            }
        }
    }

    fn read(&mut self, feed: u32, from: Position) {
        let (reader, to_self) = (Arc::clone(&self.reader), self.to_self.clone());
        let (store, runtime) = (self.store.clone(), Arc::clone(&self.runtime));
        let executor = Arc::clone(&self.executor);
        let earlier = Earlier {
            cases_to: self.cases_to.clone(),
            is_rereading: self.rereading > 0,
        };
        self.reads.spawn(async move {
            let read = async {
                let page = reader.read(from).await?;
                let mut rows = page.rows.clone();
                if let Some(cases_to) = &earlier.cases_to {
                    let name = &runtime.contract.name;
                    rereading::leave_cases_out(&store, name, cases_to, &mut rows).await?;
                }
                if earlier.is_rereading {
                    executor.leave_done_out(&mut rows).await?;
                }
                let (from, next) = (page.from.clone(), page.next.clone());
                Ok(Event::Page {
                    feed,
                    from,
                    rows,
                    next,
                })
            };
            let note = match read.await {
                Ok(page) => Note::Page(Box::new(page), earlier),
                Err(error) => {
                    let error: StoreError = error;
                    warn(&error, "the log cannot be read");
                    // Only lanes taken anew have positions of another era.
                    if error.kind() == StoreErrorKind::WrongEra {
                        let _ = to_self.send(Note::Over(Over::Anew));
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    Note::Event(Box::new(Event::ReadFailed { feed }))
                }
            };
            let _ = to_self.send(note);
        });
    }

    /// Takes a page in. A lane that was taken meanwhile may go on with a read that was under way:
    /// what its earlier owners have done is still in such a page, so it is read again.
    fn page(&mut self, page: Event, earlier: &Earlier) {
        let Event::Page {
            feed, from, rows, ..
        } = &page
        else {
            return self.handle(page);
        };
        let knows_cases = match (&self.cases_to, &earlier.cases_to) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, _) => now.is_none(),
        };
        if !knows_cases || self.rereading > 0 && !earlier.is_rereading {
            return self.read(*feed, from.clone());
        }
        self.rereading = self.rereading.saturating_sub(rows.len() as u64);
        self.handle(page);
    }

    fn load(&mut self, load: u64, key: String, from: LoadFrom) {
        let (store, runtime) = (self.store.clone(), Arc::clone(&self.runtime));
        let to_self = self.to_self.clone();
        self.tasks.spawn(async move {
            let rows = again("load deferred messages", || {
                store.load_key(LoadKey {
                    subscription: &runtime.contract.name,
                    slot: from.slot,
                    key: &key,
                    after_seq: from.after_seq,
                    versions_to: from.versions_to.as_ref().map(|(row, to)| (&**row, *to)),
                    rows_max: from.rows_max,
                })
            });
            if let Some(rows) = fenced_or(rows.await, &to_self) {
                let _ = to_self.send(Note::Event(Box::new(Event::Loaded { load, key, rows })));
            }
        });
    }

    /// Looks up what is deferred and held in a lane before its first row is read.
    fn prepare(&mut self, taken: TakenLane) {
        let (store, runtime) = (self.store.clone(), Arc::clone(&self.runtime));
        let to_self = self.to_self.clone();
        let revision = self.acted.revision;
        self.tasks.spawn(async move {
            let query = HeldKeysQuery {
                subscription: &runtime.contract.name,
                slots: slots_of(taken.lane, runtime.contract.lanes),
            };
            let looked = again("look up held keys", || {
                rereading::look_up(&store, query.clone(), &taken, revision)
            });
            if let Some(found) = fenced_or(looked.await, &to_self) {
                let _ = to_self.send(Note::LookedUp(Box::new(found)));
            }
        });
    }

    /// Looks up what operators left of a lane.
    fn look(&mut self, look: u64, lane: u16) {
        let (store, runtime) = (self.store.clone(), Arc::clone(&self.runtime));
        let to_self = self.to_self.clone();
        self.tasks.spawn(async move {
            let query = HeldKeysQuery {
                subscription: &runtime.contract.name,
                slots: slots_of(lane, runtime.contract.lanes),
            };
            let looked = again("look up held keys", || {
                rereading::held_and_cases(&store, query.clone())
            });
            if let Some((held, cases)) = fenced_or(looked.await, &to_self) {
                let looked = Event::Looked {
                    look,
                    lane,
                    held,
                    cases,
                };
                let _ = to_self.send(Note::Event(Box::new(looked)));
            }
        });
    }

    fn release(&mut self, lane: ReleasedLane) {
        let (store, lease) = (self.store.clone(), self.lease.clone());
        let name = self.runtime.contract.name.clone();
        let to_self = self.to_self.clone();
        self.tasks.spawn(async move {
            failure_point!("before-release");
            let released = again("hand a lane back", || {
                store.release(Release {
                    lease: &lease,
                    subscription: &name,
                    lanes: std::slice::from_ref(&lane),
                })
            });
            let released = released.await;
            failure_point!("after-release");
            let _ = fenced_or(released, &to_self);
        });
    }
}

async fn record<S: Store>(
    executor: &Executor<S>,
    settle: Settle<'_>,
    tokens: Vec<u64>,
    to_self: &mpsc::UnboundedSender<Note>,
) {
    let recorded = again("write deferrals", || executor.record(settle.clone())).await;
    if fenced_or(recorded, to_self).is_some() {
        let _ = to_self.send(Note::Event(Box::new(Event::Stored { tokens })));
    }
}

fn fenced_or<T>(result: Result<T, StoreError>, to_self: &mpsc::UnboundedSender<Note>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let is_fenced = error.kind() == StoreErrorKind::Fenced;
            let over = if is_fenced { Over::Fenced } else { Over::Anew };
            let _ = to_self.send(Note::Over(over));
            None
        }
    }
}
