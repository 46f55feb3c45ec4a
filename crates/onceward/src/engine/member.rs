//! One process in a fleet: its lease, its share of the lanes, and starting anew when the lease is
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use onceward_core::dispatcher::Ruling;
use onceward_core::lane::{LaneView, balance};
use onceward_core::store::{
    Join, Lease, Renew, Still, Store, StoreError, StoreErrorKind, Survey, Take,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::campaigns::Campaigns;
use super::dependency::Dependency;
use super::held;
use super::intake::{Intakes, Source};
use super::patience::Patience;
use super::reader::Reader;
use super::runner::{Acted, Note, Over, Runner, RunnerReport, Runtime};
use super::surroundings::Surroundings;
use super::upkeep::keep_up;
use super::{Control, EngineOptions, EngineState};
use crate::failure_points::failure_point;

/// The engine's main task.
pub(super) struct Fleet<S: Store> {
    pub(super) store: S,
    pub(super) runtimes: BTreeMap<String, Arc<Runtime<S>>>,
    pub(super) options: EngineOptions,
    pub(super) surroundings: Surroundings,
    pub(super) control: watch::Receiver<Control>,
    pub(super) report: watch::Sender<EngineState>,
    pub(super) patience: Patience,
    pub(super) campaigns: Campaigns,
    pub(super) intakes: Intakes,
    pub(super) sources: Vec<Source>,
    /// What the subscriptions depend on, under the lease at hand.
    pub(super) dependencies: BTreeMap<String, Arc<Dependency>>,
}

/// Why an incarnation ended.
enum Ended {
    Stopped,
    /// Somebody else's by now, or to be: what runs may go on and cannot be vouched for.
    LeaseLost,
    /// By the engine's own decision, and nothing of it is at work any more.
    GivenUp(Lease),
}

/// Work that does not stop within this is not vouched for.
const HALT_WITHIN: Duration = Duration::from_secs(5);
/// The first and the longest pause between tries to join.
const JOIN_PAUSE_MS: (u64, u64) = (100, 5_000);

/// A runner's channel and the lanes it was given.
struct Given {
    notes: mpsc::UnboundedSender<Note>,
    /// Lanes it was told of and that are still the member's.
    lanes: BTreeSet<u16>,
    /// Being handed back: not to be asked for again.
    releasing: Vec<u16>,
    /// What it was told last of operators.
    acted: Option<Acted>,
}

impl<S: Store> Fleet<S> {
    pub(super) async fn run(self) {
        let upkeep = self
            .options
            .retention
            .map(|kept| keep_up(self.store.clone(), kept));
        let campaigns = self.campaigns.clone();
        let campaigns = campaigns.take_on(self.store.clone());
        let watching = self.options.held_every_ms.map(|every_ms| {
            let every = Duration::from_millis(every_ms.max(1));
            let watches = self.runtimes.values().map(|runtime| {
                let (store, report) = (self.store.clone(), self.report.clone());
                held::watch(store, Arc::clone(runtime), every, report)
            });
            join_all(watches.collect::<Vec<_>>())
        });
        let intakes = self.intakes.clone();
        let taking = self.sources.iter().enumerate().map(|(place, source)| {
            let (store, report) = (self.store.clone(), self.report.clone());
            intakes.take_in(place, store, source.clone(), report)
        });
        let taking = join_all(taking.collect::<Vec<_>>());
        let work = self.work();
        // These have no end of their own.
        let beside = async {
            let upkeep = OptionFuture::from(upkeep);
            let watching = OptionFuture::from(watching);
            tokio::join!(upkeep, watching, campaigns, taking);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = work => {}
            () = beside => {}
        }
    }

    async fn work(mut self) {
        let mut pause_ms = JOIN_PAUSE_MS.0;
        let mut former = None;
        loop {
            if matches!(*self.control.borrow(), Control::Stop(_)) {
                if let Some((lease, _)) = &former {
                    self.leave(lease).await;
                }
                return;
            }
            let begun = Instant::now();
            match self.begin_anew(&mut former).await {
                Ok(lease) => match self.incarnation(lease).await {
                    Ended::Stopped => return,
                    Ended::LeaseLost => self.lost(),
                    Ended::GivenUp(lease) => {
                        self.lost();
                        let _ = tokio::time::timeout(HALT_WITHIN, self.intakes.rest()).await;
                        let until = Instant::now() + self.lease_time();
                        former = Some((lease, until));
                    }
                },
                Err(error) => self.trouble(&error, "cannot join"),
            }
            // Whatever ends at once, again and again, does so with pauses.
            if begun.elapsed() > self.lease_time() {
                pause_ms = JOIN_PAUSE_MS.0;
            }
            tokio::select! {
                biased;
                _ = self.control.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            }
            // Others wait a lease's time for whoever was away together with them.
            let longest = JOIN_PAUSE_MS.1.min(self.options.lease_ms / 4);
            pause_ms = (pause_ms * 2).min(longest.max(JOIN_PAUSE_MS.0));
        }
    }

    /// Leaves what was given up, and joins. Otherwise its lanes would wait for the former lease to
    /// run out, and what was running in them would count as having died.
    async fn begin_anew(
        &mut self,
        former: &mut Option<(Lease, Instant)>,
    ) -> Result<Lease, StoreError> {
        if let Some((lease, until)) = former.as_ref() {
            match self.bounded(self.store.leave(lease)).await {
                // A transaction of its own that the database has not noticed to be over is waited
                // for, but not for longer than the lease.
                Err(error) if error.kind() == StoreErrorKind::Conflict => {
                    if Instant::now() < *until {
                        return Err(error);
                    }
                }
                Err(error) if error.kind().is_passing() => return Err(error),
                // Taken over meanwhile, or refused: it runs out.
                Err(_) | Ok(()) => {}
            }
        }
        *former = None;
        self.join().await
    }

    fn lost(&self) {
        tracing::warn!("the lease was lost; joining anew");
        self.campaigns.let_go();
        self.intakes.let_go();
        self.report.send_modify(|state| {
            state.is_member = false;
            state.member = None;
            state.leases_lost += 1;
            state.lanes.values_mut().for_each(Vec::clear);
        });
    }

    fn lease_time(&self) -> Duration {
        Duration::from_millis(self.options.lease_ms)
    }

    /// An answer of the store that does not come within a lease is none.
    async fn bounded<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = tokio::time::timeout(self.lease_time(), work).await;
        done.map_err(late)?
    }

    fn trouble(&self, error: &StoreError, what: &str) {
        tracing::warn!(
            error = error as &(dyn std::error::Error + 'static),
            "{what}"
        );
        self.report
            .send_modify(|state| state.trouble = Some(format!("{what}: {error}")));
    }

    async fn join(&mut self) -> Result<Lease, StoreError> {
        let subscriptions: Vec<String> = self.runtimes.keys().cloned().collect();
        let member = self.surroundings.new_member();
        let request = Join {
            member: &member,
            description: &self.options.description,
            lease_ms: self.options.lease_ms,
            subscriptions: &subscriptions,
        };
        let lease = self.store.join(request).await?;
        failure_point!("after-join");
        self.patience.reached(Instant::now(), self.lease_time());
        self.report.send_modify(|state| {
            state.is_member = true;
            state.member = Some(member.clone());
            state.trouble = None;
            for name in subscriptions {
                state.lanes.entry(name).or_default();
            }
        });
        Ok(lease)
    }

    /// Works under one lease until it is lost or the engine is told to stop.
    async fn incarnation(&mut self, lease: Lease) -> Ended {
        let reader = Arc::new(Reader::new(
            self.store.clone(),
            &self.options,
            &self.surroundings,
        ));
        let suspects = Arc::new(tokio::sync::Mutex::new(()));
        let (reports, mut reported) = mpsc::unbounded_channel();
        let mut runners = JoinSet::new();
        let mut given = BTreeMap::new();
        for (name, runtime) in &self.runtimes {
            let (runner, notes) = Runner::new(
                self.store.clone(),
                Arc::clone(runtime),
                Arc::clone(&reader),
                lease.clone(),
                Arc::clone(&suspects),
                self.surroundings.clone(),
                reports.clone(),
            );
            self.dependencies.insert(name.clone(), runner.dependency());
            runners.spawn(runner.run());
            given.insert(
                name.clone(),
                Given {
                    notes,
                    lanes: BTreeSet::new(),
                    releasing: Vec::new(),
                    acted: None,
                },
            );
        }
        let mut renewed = Instant::now();
        let mut round = tokio::time::interval(Duration::from_millis(self.options.renew_ms.max(10)));
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = round.tick() => match self.round(&lease, &mut given).await {
                    Ok(()) => renewed = Instant::now(),
                    Err(error) if error.kind() == StoreErrorKind::Fenced => {
                        return Ended::LeaseLost;
                    }
                    Err(error) => {
                        self.trouble(&error, "cannot renew the lease");
                        if renewed.elapsed() >= Duration::from_millis(lease.lease_ms) {
                            return give_up(lease, &given, runners).await;
                        }
                    }
                },
                report = reported.recv() => match report {
                    Some(RunnerReport::Lanes(name, lanes)) => self.lanes(name, lanes, &mut given),
                    Some(RunnerReport::Over(Over::Anew)) => {
                        return give_up(lease, &given, runners).await;
                    }
                    Some(RunnerReport::Over(Over::Fenced | Over::Panicked)) | None => {
                        return Ended::LeaseLost;
                    }
                    Some(RunnerReport::Drained) => {}
                },
                () = self.campaigns.went_out() => round.reset_immediately(),
                // It reports why before it ends, unless it panicked.
                Some(_) = runners.join_next() => {
                    tracing::error!("a runner ended by itself; joining anew");
                    return Ended::LeaseLost;
                }
                _ = self.control.changed() => {}
            }
            let told = *self.control.borrow();
            if let Control::Stop(grace_ms) = told {
                self.stop(&lease, &given, &mut reported, runners, grace_ms)
                    .await;
                return Ended::Stopped;
            }
        }
    }

    fn lanes(&self, name: String, lanes: Vec<u16>, given: &mut BTreeMap<String, Given>) {
        if let Some(given) = given.get_mut(&name) {
            given.releasing.retain(|lane| lanes.contains(lane));
        }
        self.report.send_modify(|state| {
            state.lanes.insert(name, lanes);
        });
    }

    /// Renews the lease and moves towards an equal share of the lanes.
    async fn round(
        &mut self,
        lease: &Lease,
        given: &mut BTreeMap<String, Given>,
    ) -> Result<(), StoreError> {
        self.renew(lease).await?;
        failure_point!("after-renewal");
        self.patience.reached(Instant::now(), self.lease_time());
        let survey = self.bounded(self.store.survey()).await?;
        let is_patient = self.patience.lasts(Instant::now());
        self.campaigns.surveyed(lease, &survey);
        let releases = |name: &String| !plan(lease, &survey, name, is_patient).release.is_empty();
        let leaving: BTreeSet<String> = self.intake_names().filter(releases).collect();
        self.intakes.surveyed(lease, &survey, &leaving);
        self.report.send_modify(|state| state.trouble = None);
        for (name, given) in given {
            // Before any lane: a pause holds from the first message on.
            let acted = acted(&survey, name);
            if given.acted != Some(acted) {
                given.acted = Some(acted);
                let _ = given.notes.send(Note::Acted(acted));
            }
            let mut plan = plan(lease, &survey, name, is_patient);
            let owned = owned(lease, &survey, name);
            given.lanes.retain(|lane| owned.contains(lane));
            // Taken once, but the answer was lost.
            plan.take.extend(owned.difference(&given.lanes));
            let release: Vec<u16> = plan
                .release
                .into_iter()
                .filter(|l| !given.releasing.contains(l))
                .collect();
            // What is taken in by the next owner must not overtake what still is by this one.
            if !release.is_empty() && self.intake_rests(name) {
                given.releasing.extend(&release);
                let _ = given.notes.send(Note::Release(release));
            }
            if !plan.take.is_empty() {
                let take = Take {
                    lease,
                    subscription: name,
                    lanes: &plan.take,
                };
                failure_point!("before-take");
                let taken = self.while_renewing(lease, self.store.take(take)).await?;
                failure_point!("after-take");
                if !taken.is_empty() {
                    if !acted.ruling.is_paused {
                        self.intakes.took(lease, name);
                    }
                    given.lanes.extend(taken.iter().map(|taken| taken.lane));
                    let _ = given.notes.send(Note::Taken(taken));
                }
            }
        }
        Ok(())
    }

    async fn renew(&self, lease: &Lease) -> Result<(), StoreError> {
        let still: Vec<Still<'_>> = self
            .dependencies
            .iter()
            .filter_map(|(subscription, dependency)| {
                let (because, since_ms, until_ms) = dependency.still()?;
                Some(Still {
                    subscription,
                    because,
                    since_ms,
                    until_ms,
                })
            })
            .collect();
        let renew_ms = self.options.renew_ms.max(10);
        let request = Renew {
            lease,
            still: &still,
            still_for_ms: renew_ms + renew_ms / 2,
        };
        self.bounded(self.store.renew(request)).await
    }

    /// Renews the lease as often as usual while something waits for others: lanes that are taken
    /// one subscription after the other, each after an owner that has to be ended first, may take
    /// longer than a lease, and a member that loses its own thereby would only add to the trouble.
    async fn while_renewing<T>(
        &self,
        lease: &Lease,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let every = Duration::from_millis(self.options.renew_ms.max(10));
        let renewing = async {
            loop {
                tokio::time::sleep(every).await;
                match self.renew(lease).await {
                    Err(error) if error.kind() == StoreErrorKind::Fenced => return error,
                    Err(error) => self.trouble(&error, "cannot renew the lease"),
                    Ok(()) => {}
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            error = renewing => Err(error),
        }
    }

    /// Hands everything back, within the grace.
    async fn stop(
        &self,
        lease: &Lease,
        given: &BTreeMap<String, Given>,
        reported: &mut mpsc::UnboundedReceiver<RunnerReport>,
        mut runners: JoinSet<()>,
        grace_ms: u64,
    ) {
        let intakes: BTreeSet<String> = self.intake_names().collect();
        let drain = |are_intakes: bool| {
            let told = given.iter();
            for (_, given) in told.filter(|(name, _)| intakes.contains(*name) == are_intakes) {
                let _ = given.notes.send(Note::Drain);
            }
        };
        drain(false);
        let deadline = Instant::now() + Duration::from_millis(grace_ms);
        // What was received and not taken goes back, and then the lane.
        self.intakes.let_go();
        let mut resting = std::pin::pin!(self.intakes.rest());
        let mut rests = false;
        let mut renewal =
            tokio::time::interval(Duration::from_millis(self.options.renew_ms.max(10)));
        loop {
            tokio::select! {
                biased;
                ended = runners.join_next() => match ended {
                    Some(_) => {}
                    None => break,
                },
                () = tokio::time::sleep_until(deadline) => {
                    tracing::warn!("work in flight did not finish within the grace; it is handed back");
                    break;
                }
                () = &mut resting, if !rests => {
                    rests = true;
                    drain(true);
                }
                _ = reported.recv() => {}
                _ = renewal.tick() => {
                    if let Err(error) = self.renew(lease).await {
                        self.trouble(&error, "cannot renew the lease while stopping");
                    }
                }
            }
        }
        runners.shutdown().await;
        self.leave(lease).await;
        self.report.send_modify(|state| {
            state.is_member = false;
            state.lanes.values_mut().for_each(Vec::clear);
        });
    }

    /// The subscriptions whose lanes say who takes in.
    fn intake_names(&self) -> impl Iterator<Item = String> + '_ {
        let sources = self.sources.iter();
        sources.map(|source| source.intake.subscription_name())
    }

    /// Whether nothing is being taken in under the lane of that subscription.
    fn intake_rests(&self, subscription: &str) -> bool {
        let place = self.intake_names().position(|name| name == subscription);
        place.is_none_or(|place| self.intakes.rests(place))
    }

    /// Leaves the fleet if that can be done soon.
    async fn leave(&self, lease: &Lease) {
        failure_point!("before-leave");
        let left = tokio::time::timeout(Duration::from_secs(5), self.store.leave(lease)).await;
        match left {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.trouble(&error, "cannot leave; the lease will run out"),
            Err(_) => tracing::warn!("leaving took too long; the lease will run out"),
        }
    }
}

/// Stops whatever is at work under a lease, so that it can be left.
async fn give_up(lease: Lease, given: &BTreeMap<String, Given>, mut runners: JoinSet<()>) -> Ended {
    for given in given.values() {
        let _ = given.notes.send(Note::Halt);
    }
    let halted = async { while runners.join_next().await.is_some() {} };
    match tokio::time::timeout(HALT_WITHIN, halted).await {
        Ok(()) => Ended::GivenUp(lease),
        Err(_) => Ended::LeaseLost,
    }
}

fn late(_: tokio::time::error::Elapsed) -> StoreError {
    StoreError::found(
        StoreErrorKind::Unavailable,
        "renew the lease",
        "no answer within the lease",
    )
}

/// What operators made of a subscription.
fn acted(survey: &Survey, subscription: &str) -> Acted {
    let mut states = survey.subscriptions.iter();
    let state = states.find(|state| state.subscription == subscription);
    state.map_or_else(Acted::default, |state| Acted {
        revision: state.revision,
        ruling: Ruling {
            is_paused: state.is_paused,
            concurrency_max: state.concurrency_max,
            rate: state.rate,
        },
    })
}

/// The member's lanes of a subscription.
fn owned(lease: &Lease, survey: &Survey, subscription: &str) -> BTreeSet<u16> {
    let lanes = survey.lanes.iter();
    let of_subscription = lanes.filter(|lane| lane.subscription == subscription);
    let owned = of_subscription.filter(|lane| lane.owner.as_ref() == Some(&lease.member));
    owned.map(|lane| lane.lane).collect()
}

/// With patience, only those that have ended are gone.
fn plan(
    lease: &Lease,
    survey: &Survey,
    subscription: &str,
    is_patient: bool,
) -> onceward_core::lane::Balance {
    let serves = |names: &[String]| names.iter().any(|name| name == subscription);
    let members: Vec<String> = survey
        .members
        .iter()
        .filter(|m| m.is_live && serves(&m.subscriptions))
        .map(|m| m.member.clone())
        .collect();
    let is_gone = |owner: &str| {
        !survey
            .members
            .iter()
            .any(|m| (m.is_live || is_patient) && m.member == owner)
    };
    let lanes: Vec<LaneView> = survey
        .lanes
        .iter()
        .filter(|lane| lane.subscription == subscription)
        .map(|lane| LaneView {
            lane: lane.lane,
            owner: lane.owner.clone(),
            owner_gone: lane.owner.as_deref().is_some_and(is_gone),
        })
        .collect();
    balance(&lease.member, &members, &lanes)
}
