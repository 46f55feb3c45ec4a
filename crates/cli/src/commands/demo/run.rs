//! The run: processes at work, clients that order, kills, and the wait for the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward_core::store::{BacklogQuery, CaseQuery};
use onceward_orders::carrier::{Line, read_record};
use onceward_orders::fulfilment::{Broken, FULFILMENT, ORDER_BOOK};
use onceward_orders::part::prepare;
use onceward_orders::shop::{Counts, ShopBooks};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::answers::{Answers, read_answers};
use super::clients::{Clients, Tally};
use super::input::{Input, Refused};
use super::kills::{self, Kill};
use super::parts::{Kind, Part, Surroundings};
use super::place::Place;
use super::progress::Progress;
use super::verdict::{Booked, Records};
use crate::commands::broker::server::Broker;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::Opened;

/// Consumers side by side.
const CONSUMERS: u32 = 2;
/// A consumer that is silent for longer loses its work to the other one, in milliseconds.
const LEASE_MS: u32 = 2_000;
/// How often a consumer says that it is there, in milliseconds.
const RENEW_MS: u32 = 500;
/// How often the run looks around.
const LOOK: Duration = Duration::from_millis(20);
/// How often it asks the database.
const ASK: Duration = Duration::from_millis(250);
/// How long a run without any progress is waited for.
const STALL: Duration = Duration::from_secs(30);
/// How often a process may be found idle before the next kill gets its turn.
const TRIES: u32 = 3;

/// What is to be done.
pub(super) struct Task {
    pub(super) inputs: Vec<Input>,
    pub(super) kills: u32,
    pub(super) seed: u64,
    pub(super) broken: Option<Broken>,
}

/// What happened.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// Kills of processes with unfinished work.
    pub(super) kills: BTreeMap<Kind, u32>,
    /// Kills asked for.
    pub(super) kills_wanted: u32,
    /// Orders that were refused, by line.
    pub(super) refused: Vec<Refused>,
    /// From the first process's start to the last one's end.
    pub(super) seconds: f64,
    /// What the run follows from.
    pub(super) seed: u64,
}

/// What there is besides where fulfilment is a service of its own.
pub(super) struct Apart<'a, D> {
    /// Its store.
    pub(super) other: Opened<'a, D>,
    /// What is between.
    pub(super) broker: Broker,
}

struct Run<'a, S, D> {
    opened: Opened<'a, S>,
    apart: Option<Apart<'a, D>>,
    parts: Vec<Part>,
    service: watch::Sender<SocketAddr>,
    tally: Arc<Tally>,
    clients: JoinHandle<Result<Vec<Refused>, Error>>,
    total: u64,
    counts: Counts,
    progress: Progress,
    random: fastrand::Rng,
    ran: Ran,
}

/// Runs the task as one service with one store.
pub(super) async fn together<S: ShopBooks>(
    opened: Opened<'_, S>,
    output: Output,
    place: &Place,
    task: Task,
) -> Result<(Ran, Records), Error> {
    run(opened, None::<Apart<'_, S>>, output, place, task).await
}

/// Runs the task in a place and returns what happened, and all records.
pub(super) async fn run<S: ShopBooks, D: ShopBooks>(
    opened: Opened<'_, S>,
    apart: Option<Apart<'_, D>>,
    output: Output,
    place: &Place,
    task: Task,
) -> Result<(Ran, Records), Error> {
    let no_tables = |e| Error::new(Code::Demo, "could not make the tables").with_source(e);
    prepare(opened.store).await.map_err(no_tables)?;
    let other = apart.as_ref().map(|apart| apart.other);
    if let Some(other) = other {
        prepare(other.store).await.map_err(no_tables)?;
    }
    let started = Instant::now();
    let mut run = start(opened, apart, output, place, task).await?;
    run.until_finished().await?;
    let mut ran = run.stop().await?;
    ran.seconds = started.elapsed().as_secs_f64();
    let records = collect(opened, other, place).await?;
    Ok((ran, records))
}

async fn start<'a, S: ShopBooks, D: ShopBooks>(
    opened: Opened<'a, S>,
    apart: Option<Apart<'a, D>>,
    output: Output,
    place: &Place,
    task: Task,
) -> Result<Run<'a, S, D>, Error> {
    let mut parts = parts(place, &task, apart.as_ref())?;
    let mut service = None;
    for part in &mut parts {
        let address = part.start().await?;
        if part.kind == Kind::Service {
            service = address;
        }
    }
    let text = "the order service did not say where it listens";
    let service = service.ok_or_else(|| Error::new(Code::Demo, text))?;
    let (service, at) = watch::channel(service);
    let answers = Answers::in_file(&place.answers());
    let text = "could not begin the file of answers";
    let answers = answers.map_err(|e| Error::new(Code::Demo, text).with_source(e))?;
    let tally = Arc::new(Tally::default());
    let total = task.inputs.len() as u64;
    let clients = Clients::new(task.inputs, at, answers, Arc::clone(&tally))?;
    Ok(Run {
        opened,
        apart,
        parts,
        service,
        tally,
        clients: tokio::spawn(clients.order_all()),
        total,
        counts: Counts::default(),
        progress: Progress::new(output, total),
        random: fastrand::Rng::with_seed(task.seed),
        ran: Ran {
            kills_wanted: task.kills,
            seed: task.seed,
            ..Ran::default()
        },
    })
}

fn parts<D>(place: &Place, task: &Task, apart: Option<&Apart<'_, D>>) -> Result<Vec<Part>, Error> {
    let text = "could not find this program's own file";
    let program = std::env::current_exe();
    let around = Surroundings {
        program: program.map_err(|e| Error::new(Code::Demo, text).with_source(e))?,
        store_url: place.url.clone(),
        folder: place.folder.clone(),
        broker_url: apart.map(|apart| apart.broker.between.url.clone()),
    };
    let any_port = ["--listen", "127.0.0.1:0"].map(OsString::from);
    let mut carrier: Vec<OsString> = any_port.to_vec();
    carrier.extend([
        "--record".into(),
        place.carrier_record().into(),
        "--address-file".into(),
        place.carrier_address().into(),
        "--seed".into(),
        task.seed.to_string().into(),
    ]);
    let mut consumer: Vec<OsString> = vec![
        "--carrier-file".into(),
        place.carrier_address().into(),
        "--lease-ms".into(),
        LEASE_MS.to_string().into(),
        "--renew-ms".into(),
        RENEW_MS.to_string().into(),
    ];
    match task.broken {
        Some(Broken::Doubling) => {
            carrier.push("--forgetful".into());
            consumer.extend(["--broken".into(), "doubling".into()]);
        }
        Some(Broken::Losing) => consumer.extend(["--broken".into(), "losing".into()]),
        None => {}
    }
    let mut parts = vec![
        Part::new(Kind::Carrier, "carrier", carrier, &around),
        Part::new(Kind::Service, "service", any_port, &around),
    ];
    let mut beside = around.clone();
    if let Some(apart) = apart {
        let side = |side: &str| -> Vec<OsString> {
            let between = &apart.broker.between;
            let between = [
                "--between",
                between.kind.as_str(),
                "--between-prefix",
                &between.prefix,
            ];
            let sides = between.into_iter().chain(["--side", side]);
            sides.map(OsString::from).collect()
        };
        let mut book = consumer.clone();
        book.extend(side("shop"));
        parts.push(Part::new(Kind::Book, "order-book", book, &around));
        consumer.extend(side("fulfilment"));
        beside.store_url = apart.other.url.to_owned();
    }
    parts.extend((1..=CONSUMERS).map(|i| {
        Part::new(
            Kind::Consumer,
            format!("consumer-{i}"),
            consumer.clone(),
            &beside,
        )
    }));
    Ok(parts)
}

impl<S: ShopBooks, D: ShopBooks> Run<'_, S, D> {
    /// Until every order has come to its end, or nothing is left that could still happen.
    async fn until_finished(&mut self) -> Result<(), Error> {
        let mut pending = kills::plan(self.ran.kills_wanted, &mut self.random);
        if self.apart.is_some() && self.ran.kills_wanted > 0 {
            let others = kills::between();
            self.ran.kills_wanted += others.len() as u32;
            pending.extend(others);
        }
        // Taken from the end: the service first, whose work is over before the others'.
        pending.sort_by_key(|kill| kill.kind != Kind::Service);
        pending.reverse();
        let (mut asked, mut moved) = (Instant::now(), Instant::now());
        let mut quiet_for = 0;
        let mut seen = (0, Counts::default());
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            self.revive().await?;
            let settled = self.tally.settled.load(Ordering::Relaxed);
            for at in (0..pending.len()).rev() {
                if self.is_due(&pending[at], settled) && self.kill(pending[at].kind).await? {
                    pending.remove(at);
                }
            }
            if asked.elapsed() < ASK {
                continue;
            }
            asked = Instant::now();
            self.counts = self.ask().await?;
            let finished = self.counts.orders - self.counts.open;
            self.progress.at(settled, finished);
            if seen != (settled, self.counts) {
                seen = (settled, self.counts);
                moved = Instant::now();
                quiet_for = 0;
            }
            if self.clients.is_finished() {
                let is_quiet = self.counts.open == 0 || self.is_quiet().await?;
                quiet_for = if is_quiet { quiet_for + 1 } else { 0 };
                if quiet_for > 2 || self.counts.open == 0 {
                    return Ok(());
                }
            }
            if moved.elapsed() > STALL {
                return Ok(());
            }
        }
    }

    /// Starts what has ended without being killed.
    async fn revive(&mut self) -> Result<(), Error> {
        for i in 0..self.parts.len() {
            if self.parts[i].has_ended()? {
                self.start_again(i).await?;
            }
        }
        Ok(())
    }

    async fn start_again(&mut self, at: usize) -> Result<(), Error> {
        let part = &mut self.parts[at];
        let address = part.start().await?;
        if let (Kind::Service, Some(address)) = (part.kind, address) {
            self.service.send_replace(address);
        }
        Ok(())
    }

    fn is_due(&self, kill: &Kill, settled: u64) -> bool {
        let done = match kill.kind {
            // Nobody orders any more: it will have no unfinished work again.
            Kind::Service if self.clients.is_finished() => return false,
            Kind::Service => settled,
            Kind::Consumer | Kind::Carrier | Kind::Book | Kind::Broker => self.counts.outcomes,
            // Not in this run.
            Kind::Depot | Kind::Receiver => return false,
        };
        done as f64 >= kill.after * self.total as f64
    }

    /// Kills a process of a kind as soon as it has unfinished work, and starts it again. Returns
    /// whether it came to that.
    async fn kill(&mut self, kind: Kind) -> Result<bool, Error> {
        match kind {
            Kind::Broker => return self.kill_broker().await,
            Kind::Book => return self.kill_book().await,
            _ => {}
        }
        let of_kind: Vec<usize> = (0..self.parts.len())
            .filter(|i| self.parts[*i].kind == kind)
            .collect();
        let at = of_kind[self.random.usize(..of_kind.len())];
        for _ in 0..TRIES {
            if self.parts[at].kill_at_work().await? {
                let name = self.parts[at].name.clone();
                self.note(kind, &name);
                self.start_again(at).await?;
                return Ok(true);
            }
            let pause_us = self.random.u64(500..5_000);
            tokio::time::sleep(Duration::from_micros(pause_us)).await;
        }
        Ok(false)
    }

    /// While messages wait in it, as a rule; it starts again with what it had stored.
    async fn kill_broker(&mut self) -> Result<bool, Error> {
        let Some(apart) = &mut self.apart else {
            return Ok(true);
        };
        if apart.broker.kill().await? {
            self.note(Kind::Broker, "broker");
        } else {
            // A server that was named is nobody's to kill.
            self.ran.kills_wanted -= 1;
        }
        Ok(true)
    }

    /// Whatever it does: what it takes in and sends on shows nowhere from outside.
    async fn kill_book(&mut self) -> Result<bool, Error> {
        let Some(at) = self.parts.iter().position(|part| part.kind == Kind::Book) else {
            return Ok(true);
        };
        self.parts[at].kill().await?;
        self.note(Kind::Book, "order-book");
        self.start_again(at).await?;
        Ok(true)
    }

    fn note(&mut self, kind: Kind, name: &str) {
        *self.ran.kills.entry(kind).or_default() += 1;
        self.progress.killed(name, self.ran.kills.values().sum());
    }

    async fn ask(&self) -> Result<Counts, Error> {
        let text = "could not count the orders";
        let failed = |e| Error::new(Code::StoreFailed, text).with_source(e);
        let mut counts = self.opened.store.counts().await.map_err(failed)?;
        if let Some(apart) = &self.apart {
            let other = apart.other.store.counts().await.map_err(failed)?;
            counts.outcomes = other.outcomes;
        }
        Ok(counts)
    }

    /// Whether the engines have nothing left to do.
    async fn is_quiet(&self) -> Result<bool, Error> {
        if self.apart.is_some() {
            // What is at the broker is seen from neither side.
            return Ok(false);
        }
        for subscription in [FULFILMENT, ORDER_BOOK] {
            let query = BacklogQuery {
                subscription,
                count_max: 1,
                before: None,
            };
            let backlog = self.opened.check(self.opened.store.backlog(query).await)?;
            let deferred = backlog.deferred;
            let waiting = backlog.waiting + deferred.retry + deferred.held + deferred.running;
            if waiting > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends all processes; what they have in hand is finished or handed back.
    async fn stop(mut self) -> Result<Ran, Error> {
        if !self.clients.is_finished() {
            self.clients.abort();
            let text = "the clients made no progress for too long";
            return Err(Error::new(Code::Demo, text));
        }
        let text = "the clients broke down";
        let refused = (&mut self.clients).await;
        self.ran.refused = refused.map_err(|e| Error::new(Code::Demo, text).with_source(e))??;
        // Consumers first: they still need the carrier.
        while let Some(mut part) = self.parts.pop() {
            part.stop().await?;
        }
        Ok(self.ran)
    }
}

/// Reads all records anew, each from where its owner left it.
async fn collect<S: ShopBooks, D: ShopBooks>(
    opened: Opened<'_, S>,
    other: Option<Opened<'_, D>>,
    place: &Place,
) -> Result<Records, Error> {
    let unreadable = |what: &str| Error::new(Code::Demo, format!("could not read {what}"));
    let answers = read_answers(&place.answers());
    let carrier = read_record(&place.carrier_record());
    let books = opened.store.books().await;
    let mut records = Records {
        answers: answers.map_err(|e| unreadable("the answers").with_source(e))?,
        books: books.map_err(|e| unreadable("the shop's tables").with_source(e))?,
        quarantined: quarantined(opened).await?,
        ..Records::default()
    };
    if let Some(other) = other {
        let books = other.store.books().await;
        let books = books.map_err(|e| unreadable("fulfilment's tables").with_source(e))?;
        records.books.shipments.extend(books.shipments);
        records.books.rejections.extend(books.rejections);
        records.quarantined.extend(quarantined(other).await?);
    }
    for line in carrier.map_err(|e| unreadable("the carrier's record").with_source(e))? {
        match line {
            Line::Booked {
                operation, booking, ..
            } => records.bookings.push(Booked { operation, booking }),
            Line::Repeated { .. } => records.carrier_repeats += 1,
        }
    }
    Ok(records)
}

async fn quarantined<S: ShopBooks>(opened: Opened<'_, S>) -> Result<BTreeSet<String>, Error> {
    let mut operations = BTreeSet::new();
    let mut after_case_id = 0;
    loop {
        let query = CaseQuery {
            after_case_id,
            ..CaseQuery::default()
        };
        let cases = opened.check(opened.store.cases(query).await)?;
        let Some(last) = cases.last() else {
            return Ok(operations);
        };
        after_case_id = last.case_id;
        let found = cases
            .iter()
            .map(|case| case.row.envelope.operation().to_owned());
        operations.extend(found);
    }
}
