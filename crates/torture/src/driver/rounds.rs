//! The system under torture, and what a round does to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sqlx::Connection;

use super::faults::{Deck, Fault};
use super::fleet::{Found, Slot, WorkerWords};
use super::place::{Place, take_all_connections};
use super::proxy::{Cut, Proxy};
use super::{Options, Report};
use crate::points::{DieAt, POINTS};
use crate::processes::{LEASE_MS, files};
use crate::trouble::{Trouble, while_doing};

/// Producers.
const PRODUCERS: usize = 2;
/// How long a worker may take to come to its failure point.
const POINT_WITHIN: Duration = Duration::from_millis(3_000);

/// Everything that runs.
pub(super) struct System {
    place: Place,
    random: fastrand::Rng,
    deck: Deck,
    words: WorkerWords,
    workers: Vec<Slot>,
    producers: Vec<Slot>,
    carrier: Slot,
    epoch: Option<String>,
    /// Failure points in random order, again and again.
    points: Vec<&'static str>,
    only_point: Option<String>,
    kills_by_point: BTreeMap<String, u64>,
    faults: BTreeMap<&'static str, u64>,
    stops: u64,
    keeps: bool,
}

impl System {
    pub(super) async fn new(
        place: Place,
        options: &Options,
        seed: u64,
        deck: Deck,
    ) -> Result<Self, Trouble> {
        let upstream = place.upstream()?;
        let words = WorkerWords {
            folder: place.folder().to_owned(),
            broken: options.broken,
        };
        let mut system = Self {
            place,
            random: fastrand::Rng::with_seed(seed),
            deck,
            words,
            workers: Vec::new(),
            producers: Vec::new(),
            carrier: Slot::new("carrier".to_owned(), None),
            epoch: None,
            points: Vec::new(),
            only_point: options.point.clone(),
            kills_by_point: BTreeMap::new(),
            faults: BTreeMap::new(),
            stops: 0,
            keeps: options.keep,
        };
        for n in 0..options.workers.max(1) {
            system
                .workers
                .push(slot(format!("worker-{n}"), upstream).await?);
        }
        for n in 0..PRODUCERS {
            system
                .producers
                .push(slot(format!("producer-{n}"), upstream).await?);
        }
        system.mend().await?;
        Ok(system)
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn kills(&self) -> u64 {
        self.kills_by_point.values().sum()
    }

    fn url_of(&self, slot: &Slot) -> String {
        match &slot.proxy {
            Some(proxy) => self.place.url_through(proxy.port()),
            None => self.place.url.clone(),
        }
    }

    fn start_worker(
        &mut self,
        n: usize,
        die_at: Option<DieAt>,
        connections: u32,
    ) -> Result<(), Trouble> {
        let url = self.url_of(&self.workers[n]);
        let words = self.words.of(&url, die_at.as_ref(), connections);
        self.workers[n].die_at = die_at;
        self.workers[n].start(&self.words.folder, &words)
    }

    fn start_producer(&mut self, n: usize, epoch: &str) -> Result<(), Trouble> {
        let url = self.url_of(&self.producers[n]);
        let folder = self.words.folder.display().to_string();
        let seed = self.random.u64(..).to_string();
        let words = [
            "producer", "--store", &url, "--folder", &folder, "--epoch", epoch, "--seed",
        ];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.push(seed);
        self.producers[n].start(&self.words.folder, &words)
    }

    /// Starts again whatever has ended.
    pub(super) async fn mend(&mut self) -> Result<(), Trouble> {
        for n in 0..self.workers.len() {
            match self.workers[n].look() {
                Found::Runs => continue,
                Found::DiedAt(point) => *self.kills_by_point.entry(point).or_insert(0) += 1,
                Found::Ended => {}
            }
            self.start_worker(n, None, 8)?;
        }
        if let Some(epoch) = self.epoch.clone() {
            for n in 0..self.producers.len() {
                if !matches!(self.producers[n].look(), Found::Runs) {
                    self.start_producer(n, &epoch)?;
                }
            }
        }
        if !matches!(self.carrier.look(), Found::Runs) {
            let folder = self.words.folder.clone();
            let _ = std::fs::remove_file(folder.join(files::CARRIER_PORT));
            let seed = self.random.u64(..).to_string();
            let path = folder.display().to_string();
            let words = ["carrier", "--folder", &path, "--seed", &seed].map(str::to_owned);
            self.carrier.start(&folder, &words)?;
        }
        Ok(())
    }

    /// Produces messages of an epoch from now on.
    pub(super) async fn produce(&mut self, epoch: String) -> Result<(), Trouble> {
        self.epoch = Some(epoch);
        self.mend().await
    }

    /// No more messages, no more faults.
    pub(super) async fn quiet(&mut self) -> Result<(), Trouble> {
        self.epoch = None;
        for producer in &mut self.producers {
            producer.kill().await;
        }
        for n in 0..self.workers.len() {
            // One that is still to die somewhere would be a fault.
            if self.workers[n].die_at.is_some() {
                self.kill_worker(n).await;
            }
        }
        self.mend().await
    }

    async fn kill_worker(&mut self, n: usize) {
        if self.workers[n].kill().await {
            *self.kills_by_point.entry("random".to_owned()).or_insert(0) += 1;
        }
    }

    async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let pause_ms = self.random.u64(from_ms..=to_ms);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }

    fn any_worker(&mut self) -> usize {
        self.random.usize(..self.workers.len())
    }

    /// One fault, sometimes with a kill in the middle of it.
    pub(super) async fn round(&mut self) -> Result<(), Trouble> {
        let fault = self.deck.draw(&mut self.random);
        *self.faults.entry(fault.name()).or_insert(0) += 1;
        self.pause(50, 400).await;
        match fault {
            Fault::Kill => {
                for _ in 0..self.random.usize(1..=2) {
                    let n = self.any_worker();
                    self.kill_worker(n).await;
                    self.pause(0, 60).await;
                }
            }
            Fault::Point => self.at_point().await?,
            Fault::Stop => self.stop().await,
            Fault::Cut(cut) => self.cut(cut).await,
            Fault::Restart | Fault::Crash => self.restart(fault).await,
            Fault::ReadOnly => self.read_only().await?,
            Fault::NoConnections => {
                let taken = take_all_connections(&self.place.url).await;
                self.pause(300, 900).await;
                drop(taken);
            }
            Fault::SmallPool => {
                let n = self.any_worker();
                self.kill_worker(n).await;
                self.start_worker(n, None, 1)?;
                self.pause(800, 1_500).await;
                self.kill_worker(n).await;
            }
            Fault::DiskFull => self.disk_full().await?,
            Fault::Locked => self.locked().await?,
            Fault::Carrier => {
                self.carrier.kill().await;
                self.pause(50, 400).await;
            }
            Fault::Producer => {
                let n = self.random.usize(..PRODUCERS);
                self.producers[n].kill().await;
            }
            Fault::Leave => {
                let n = self.any_worker();
                self.workers[n].signal(Signal::TERM);
                self.workers[n].has_ended(Duration::from_secs(4)).await;
            }
        }
        self.mend().await
    }

    /// A new worker that dies at a failure point.
    async fn at_point(&mut self) -> Result<(), Trouble> {
        if self.points.is_empty() {
            self.points = POINTS.to_vec();
            self.random.shuffle(&mut self.points);
        }
        let next = self.points.pop().unwrap_or(POINTS[0]);
        let point = self.only_point.clone().unwrap_or_else(|| next.to_owned());
        let is_rare = [
            "upkeep", "join", "leave", "take", "release", "probe", "position", "merge",
        ];
        let hits = if is_rare.iter().any(|rare| point.contains(rare)) {
            2
        } else {
            12
        };
        let die_at = DieAt {
            hit: if point.ends_with("upkeep") {
                1
            } else {
                self.random.u32(1..=hits)
            },
            later_us: if self.random.u8(..4) == 0 {
                self.random.u64(1..4_000)
            } else {
                0
            },
            point: point.clone(),
        };
        let n = self.any_worker();
        self.kill_worker(n).await;
        self.start_worker(n, Some(die_at), 8)?;
        let mut is_told = false;
        let since = Instant::now();
        while since.elapsed() < POINT_WITHIN {
            match self.workers[n].look() {
                Found::Runs => {}
                Found::DiedAt(point) => {
                    *self.kills_by_point.entry(point).or_insert(0) += 1;
                    return Ok(());
                }
                Found::Ended => return Ok(()),
            }
            let elapsed = since.elapsed();
            if point == "before-leave" && !is_told && elapsed > Duration::from_millis(700) {
                self.workers[n].signal(Signal::TERM);
                is_told = true;
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        // It did not come by; it may still.
        Ok(())
    }

    async fn stop(&mut self) {
        let n = self.any_worker();
        self.workers[n].signal(Signal::STOP);
        self.stops += 1;
        self.pause(LEASE_MS + 100, LEASE_MS * 2).await;
        self.workers[n].signal(Signal::CONT);
        self.pause(50, 300).await;
    }

    /// Cuts the connections of one process: mostly a worker's.
    async fn cut(&mut self, cut: Cut) {
        let (workers, producers) = (&self.workers, &self.producers);
        let proxies: Vec<&Proxy> = workers
            .iter()
            .chain(producers)
            .filter_map(|slot| slot.proxy.as_ref())
            .collect();
        if proxies.is_empty() {
            return;
        }
        let n = self.random.usize(..proxies.len());
        let proxy = proxies[n];
        let before = proxy.lost();
        proxy.cut(cut);
        match cut {
            Cut::LoseCommit | Cut::LoseCommitAnswer => {
                let since = Instant::now();
                while proxy.lost() == before && since.elapsed() < Duration::from_millis(1_500) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                proxy.cut(Cut::None);
            }
            _ => {
                // Shorter than a lease or longer.
                let pause_ms = self.random.u64(300..LEASE_MS * 2);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                match cut {
                    // What was late comes now.
                    Cut::DelayToServer | Cut::DelayToClient => proxy.cut(Cut::None),
                    // Streams with holes are of no use to anybody.
                    _ => proxy.reset(),
                }
            }
        }
    }

    async fn restart(&mut self, fault: Fault) {
        let pause_ms = self.random.u64(0..500);
        if let Some(servers) = &mut self.place.servers {
            match fault {
                Fault::Crash => servers.primary.kill().await,
                _ => servers.primary.stop().await,
            }
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            servers.primary.restart().await;
        }
    }

    /// All connections lead to the standby for a while, which has not heard of what was committed
    /// last.
    async fn read_only(&mut self) -> Result<(), Trouble> {
        let Some(servers) = &mut self.place.servers else {
            return Ok(());
        };
        let url = servers.standby.url("postgres");
        if sqlx::PgConnection::connect(&url).await.is_err() {
            servers.standby.restart().await;
        }
        let standby = SocketAddr::from(([127, 0, 0, 1], servers.standby.port()));
        replay(&url, "SELECT pg_wal_replay_pause()").await;
        self.pause(0, 1_000).await;
        self.lead_all_to(standby);
        self.pause(400, 2_000).await;
        if let Some(upstream) = self.place.upstream()? {
            self.lead_all_to(upstream);
        }
        replay(&url, "SELECT pg_wal_replay_resume()").await;
        Ok(())
    }

    fn lead_all_to(&self, upstream: SocketAddr) {
        let slots = self.workers.iter().chain(&self.producers);
        for proxy in slots.filter_map(|slot| slot.proxy.as_ref()) {
            proxy.lead_to(upstream);
        }
    }

    async fn disk_full(&mut self) -> Result<(), Trouble> {
        let spare = self.random.u64(0..400_000);
        if let Some(disk) = &self.place.disk {
            disk.fill(spare)?;
        }
        self.pause(400, 1_200).await;
        if let Some(disk) = &self.place.disk {
            disk.free()?;
        }
        // A server that cannot write its log ends.
        let url = self.place.url.clone();
        if let Some(servers) = &mut self.place.servers
            && sqlx::PgConnection::connect(&url).await.is_err()
        {
            servers.primary.restart().await;
        }
        Ok(())
    }

    /// Somebody else writes to the file and takes its time.
    async fn locked(&mut self) -> Result<(), Trouble> {
        let mut connection = sqlx::SqliteConnection::connect(&self.place.url).await;
        let connection = connection
            .as_mut()
            .map_err(|error| Trouble::new(error.to_string()))?;
        let held = sqlx::raw_sql("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE");
        held.execute(&mut *connection)
            .await
            .map_err(while_doing("hold the file"))?;
        self.pause(300, LEASE_MS * 2).await;
        let _ = sqlx::raw_sql("ROLLBACK").execute(connection).await;
        Ok(())
    }

    pub(super) fn sum_up(&self, report: &mut Report) {
        report.kills = self.kills();
        report.kills_by_point.clone_from(&self.kills_by_point);
        report.stops = self.stops;
        let count = |names: &[&str]| names.iter().filter_map(|name| self.faults.get(name)).sum();
        report.cuts = count(&[
            "delay_to_server",
            "delay_to_client",
            "drop_to_server",
            "drop_to_client",
            "lose_commit_answer",
            "lose_commit",
        ]);
        report.restarts = count(&["restart", "crash"]);
        let slots = self.workers.iter().chain(&self.producers);
        report.commits_lost = slots
            .filter_map(|slot| Some(slot.proxy.as_ref()?.lost()))
            .sum();
        let faults = self
            .faults
            .iter()
            .map(|(name, times)| ((*name).to_owned(), *times));
        report.faults = faults.collect();
        report.not_run.clone_from(&self.deck.not_run);
    }

    /// Ends all processes; what is left is the place, and whether it was to be kept.
    pub(super) async fn end(mut self) -> (Place, bool) {
        for slot in self.workers.iter_mut().chain(&mut self.producers) {
            slot.kill().await;
        }
        self.carrier.kill().await;
        (self.place, self.keeps)
    }
}

async fn slot(name: String, upstream: Option<SocketAddr>) -> Result<Slot, Trouble> {
    let proxy = match upstream {
        Some(upstream) => Some(Proxy::start(upstream).await?),
        None => None,
    };
    Ok(Slot::new(name, proxy))
}

/// Has a standby stop or go on following its primary; one that is away is left alone.
async fn replay(url: &str, statement: &'static str) {
    let Ok(mut standby) = sqlx::PgConnection::connect(url).await else {
        return;
    };
    // It may end in this moment.
    let _ = sqlx::query(statement).execute(&mut standby).await;
}
