//! The driver: rounds of faults, then quiet, then a look at everything.

mod disk;
mod faults;
mod fleet;
mod place;
mod proxy;
mod report;
mod rounds;

use std::time::{Duration, Instant};

pub use place::Kept;
pub use report::Report;

use crate::checker::{Books, Finding, Findings, check};
use crate::points::POINTS;
use crate::processes::Broken;
use crate::trouble::{Trouble, while_doing};
use faults::Deck;
use place::Place;
use rounds::System;

/// How a run goes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The database: postgres (a server of its own), a postgres:// URL, sqlite or sqlite:PATH
    #[arg(long, default_value = "postgres")]
    pub store: String,
    /// Ends after this many minutes
    #[arg(long, value_name = "N", conflicts_with = "rounds")]
    pub minutes: Option<f64>,
    /// Ends after this many rounds
    #[arg(long, value_name = "N")]
    pub rounds: Option<u64>,
    /// What all choices follow from; a new one by default
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Kills at this failure point only, and does nothing else
    #[arg(long, value_name = "NAME")]
    pub point: Option<String>,
    /// Rounds between looks at everything
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub check_every: u64,
    /// Worker processes
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub workers: usize,
    /// Longest time that all work may take once faults have stopped, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub drain_s: u64,
    /// Prints the result as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Keeps all records even if nothing is wrong
    #[arg(long)]
    pub keep: bool,
    /// Breaks the workers, to see that it is noticed
    #[arg(long, hide = true)]
    pub broken: Option<Broken>,
}

/// How long a run takes that was not told.
const MINUTES: f64 = 1.0;

/// Runs rounds until the time is up or something is wrong.
///
/// # Errors
/// When the torture itself cannot go on.
pub async fn run(options: &Options) -> Result<Report, Trouble> {
    if let Some(point) = options
        .point
        .as_deref()
        .filter(|point| !POINTS.contains(point))
    {
        let text = format!(
            "no failure point is called {point}; they are: {}",
            POINTS.join(", ")
        );
        return Err(Trouble::new(text));
    }
    let seed = options
        .seed
        .unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let place = Place::make(&options.store).await?;
    eprintln!(
        "seed {seed}, {} in {}",
        place.kind,
        place.folder().display()
    );
    let since = Instant::now();
    let run = Run {
        until: options.rounds.is_none().then(|| {
            since + Duration::from_secs_f64(options.minutes.unwrap_or(MINUTES).max(0.0) * 60.0)
        }),
        options,
        since,
        epochs: Vec::new(),
        report: Report {
            store: place.kind.to_owned(),
            seed,
            ..Report::default()
        },
        books: Books::new(&place.url, place.folder())?,
    };
    let deck = Deck::of(&place, options.point.is_some());
    let mut system = System::new(place, options, seed, deck).await?;
    run.run_to_end(&mut system)
        .await
        .map(|report| (report, system))
        .map(finish)?
        .await
}

/// Removes everything, or keeps it and says where.
async fn finish((mut report, system): (Report, System)) -> Result<Report, Trouble> {
    let (place, keeps) = system.end().await;
    if report.is_clean() && !keeps {
        place.remove().await?;
    } else {
        let kept = place.keep();
        eprintln!("kept: {kept}");
        report.kept = Some(kept);
    }
    Ok(report)
}

/// A run at work.
struct Run<'o> {
    options: &'o Options,
    since: Instant,
    until: Option<Instant>,
    /// Epochs with the sequence that the log had before each.
    epochs: Vec<(String, i64)>,
    books: Books,
    report: Report,
}

impl Run<'_> {
    fn is_over(&self) -> bool {
        let rounds = self.options.rounds;
        rounds.is_some_and(|rounds| self.report.rounds >= rounds)
            || self.until.is_some_and(|until| Instant::now() >= until)
    }

    async fn run_to_end(mut self, system: &mut System) -> Result<Report, Trouble> {
        while !self.is_over() && self.report.is_clean() {
            self.epoch(system).await?;
        }
        if self.report.is_clean() {
            self.look_at_all().await?;
        }
        self.report.seconds = self.since.elapsed().as_secs();
        system.sum_up(&mut self.report);
        Ok(self.report)
    }

    /// Some rounds over messages of one epoch, then quiet, then a look at them.
    async fn epoch(&mut self, system: &mut System) -> Result<(), Trouble> {
        let epoch = format!("e{:05}", self.epochs.len() + 1);
        self.epochs.push((epoch.clone(), self.last_seq().await?));
        system.place().note(&self.epochs)?;
        system.produce(epoch.clone()).await?;
        for _ in 0..self.options.check_every.max(1) {
            if self.is_over() && self.report.rounds > 0 {
                break;
            }
            system.round().await?;
            self.report.rounds += 1;
        }
        system.quiet().await?;
        let since = Instant::now();
        let bound = Duration::from_secs(self.options.drain_s);
        let mut said = since;
        let found = loop {
            // The servers may be coming back just now.
            let found = self.look(self.epochs.len() - 1).await;
            let is_late = since.elapsed() > bound;
            match found {
                Ok(found) if found.pending.is_empty() => break found,
                Ok(found) if is_late => break found.closed(),
                Err(trouble) if is_late => return Err(trouble),
                Ok(found) if said.elapsed() > Duration::from_secs(10) => {
                    said = Instant::now();
                    let count = found.pending.len();
                    eprintln!("{count} pending, such as {}", found.pending[0]);
                }
                _ => {}
            }
            system.mend().await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let drained_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let report = &mut self.report;
        report.drained_ms_max = report.drained_ms_max.max(drained_ms);
        report.checks += 1;
        report.messages += found.messages;
        report.states += found.states;
        report.asked_again += found.asked_again;
        self.judge(&found);
        let Report {
            rounds, messages, ..
        } = &self.report;
        let (seconds, kills) = (self.since.elapsed().as_secs(), system.kills());
        eprintln!(
            "{seconds} s: {rounds} rounds, {kills} kills, {messages} messages, \
             drained in {drained_ms} ms"
        );
        Ok(())
    }

    async fn last_seq(&self) -> Result<i64, Trouble> {
        let mut tries = 0;
        loop {
            match self.books.last_seq().await {
                Err(_) if tries < 50 => tries += 1,
                result => return result,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn look(&self, at: usize) -> Result<Findings, Trouble> {
        let (epoch, seq) = &self.epochs[at];
        Ok(check(&self.books.facts(epoch, *seq).await?))
    }

    /// What was right once is still right at the end.
    async fn look_at_all(&mut self) -> Result<(), Trouble> {
        for at in 0..self.epochs.len() {
            let found = self.look(at).await?.closed();
            self.judge(&found);
        }
        Ok(())
    }

    fn judge(&mut self, found: &Findings) {
        for finding in found.wrong.iter().take(20) {
            eprintln!("FOUND {finding}");
        }
        self.report.find(found);
    }
}

/// Looks at a folder that was kept, with its database.
///
/// # Errors
/// When it cannot be read.
pub async fn check_kept(
    folder: &std::path::Path,
    store: Option<&str>,
) -> Result<Vec<Finding>, Trouble> {
    let text = std::fs::read_to_string(folder.join("place.json"));
    let text = text.map_err(while_doing("read what the folder is"))?;
    let kept: Kept = serde_json::from_str(&text).map_err(while_doing("read what it is"))?;
    let books = Books::new(store.unwrap_or(&kept.store), folder)?;
    let mut wrong = Vec::new();
    for (epoch, seq) in &kept.epochs {
        wrong.extend(check(&books.facts(epoch, *seq).await?).closed().wrong);
    }
    Ok(wrong)
}
