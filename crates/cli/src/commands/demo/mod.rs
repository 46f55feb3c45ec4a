//! `onceward demo`: the worked example under fire, with a verdict.
//!
//! | module | what is in it |
//! |---|---|
//! | `place` | the folder and the store |
//! | `parts` | the processes |
//! | `input`, `clients`, `answers` | who orders, and what they were told |
//! | `kills` | when which process dies |
//! | `run` | all of it together |
//! | `verdict`, `report` | what the records say |
//! | `scenario` | one kind of trouble at a time |

use std::path::PathBuf;

use clap::{Args, Subcommand};
use onceward_orders::between::BrokerKind;
use onceward_orders::fulfilment::Broken;
use onceward_orders::part::Part;
use onceward_orders::shop::ShopBooks;
use tracing_subscriber::EnvFilter;

use crate::cli::Global;
use crate::commands::broker::server::Broker;
use crate::error::{Code, EXIT_PARTLY, Error};
use crate::output::Output;
use crate::store::{Opened, Target, with_store};
use crate::store_url;

mod answers;
mod clients;
mod input;
mod kills;
mod parts;
mod place;
mod progress;
mod report;
mod run;
mod scenario;
mod verdict;

use place::Place;
use run::{Apart, Ran, Task};
use scenario::depot::{DepotArgs, run_depot};
use scenario::receiver::{ReceiverArgs, run_receiver};
use scenario::{Played, Scenario};
use verdict::{Records, Verdict};

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Play one kind of trouble instead, with a verdict of its own
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["orders", "kills", "input"])]
    scenario: Option<Scenario>,
    /// Orders to make up
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        conflicts_with = "input"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    orders: u32,
    /// Processes to kill while they have unfinished work
    #[arg(long, value_name = "K", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000))]
    kills: u32,
    /// Orders from a file, one JSON object per line; - is standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Make two services of it, with a store each and this broker between them
    #[arg(long, value_name = "BROKER", conflicts_with = "scenario")]
    broker: Option<BrokerKind>,
    /// Keep records, logs and the store
    #[arg(long)]
    keep: bool,
    /// What orders, moods of the carrier and moments of kills follow from
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Break the consumer, to see that the verdict notices
    #[arg(long, hide = true)]
    broken: Option<Broken>,
}

/// Options of `demo-part`, as which the demo starts its own processes.
#[derive(Debug, Args)]
pub struct DemoPartArgs {
    /// Which
    #[command(subcommand)]
    part: DemoPart,
}

/// A process of the demo.
#[derive(Debug, Subcommand)]
enum DemoPart {
    /// One of the orders example.
    #[command(flatten)]
    Orders(Part),
    /// What works for the depot
    Depot(DepotArgs),
    /// What pushes go to
    Receiver(ReceiverArgs),
}

/// Runs one part of the demo.
///
/// # Errors
/// When it cannot start, or fails.
pub async fn run_part(global: &Global, args: &DemoPartArgs) -> Result<(), Error> {
    let text = "--store is missing";
    let url = global.store.as_deref();
    let url = url.ok_or_else(|| Error::new(Code::StoreUrl, text))?;
    let filter = EnvFilter::try_from_env("ONCEWARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(filter)
        .init();
    match &args.part {
        DemoPart::Orders(part) => {
            let ended = part.clone().run(url).await;
            ended.map_err(|e| Error::new(Code::Demo, "a part of the demo failed").with_source(e))
        }
        DemoPart::Depot(args) => run_depot(url, args.clone()).await,
        DemoPart::Receiver(args) => run_receiver(args.clone()).await,
    }
}

/// Runs the demo.
///
/// # Errors
/// When something was lost or done twice, when lines of the input were refused, or when the demo
/// cannot run.
pub async fn run(global: &Global, output: Output, args: &DemoArgs) -> Result<(), Error> {
    let seed = args.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    if let Some(scenario) = args.scenario {
        return run_scenario(global, output, args, (scenario, seed)).await;
    }
    if let Some(kind) = args.broker {
        Broker::check(kind)?;
    }
    let (inputs, refused) = match &args.input {
        Some(path) => input::from_file(path)?,
        None => (input::made_up(args.orders, seed), Vec::new()),
    };
    let mut place = Place::make(global.store.as_deref()).await?;
    let task = Task {
        inputs,
        kills: args.kills,
        seed,
        broken: args.broken,
    };
    let ended = tokio::select! {
        ended = at(&mut place, output, task, args.broker) => ended,
        _ = tokio::signal::ctrl_c() => Err(Error::new(Code::Demo, "stopped").with_exit(130)),
    };
    let (mut ran, verdict) = match ended {
        Ok(ended) => ended,
        Err(error) => {
            leave(output, &place, args.keep || error.exit() != 130).await;
            return Err(error);
        }
    };
    ran.refused.extend(refused);
    ran.refused.sort_by_key(|refused| refused.line);
    conclude(output, args, &place, &ran, &verdict).await
}

async fn run_scenario(
    global: &Global,
    output: Output,
    args: &DemoArgs,
    (scenario, seed): (Scenario, u64),
) -> Result<(), Error> {
    let place = Place::make(global.store.as_deref()).await?;
    let ended = tokio::select! {
        ended = play_at(&place, output, scenario, (seed, args.broken)) => ended,
        _ = tokio::signal::ctrl_c() => Err(Error::new(Code::Demo, "stopped").with_exit(130)),
    };
    match ended {
        Ok(played) => scenario::conclude(output, &place, &played, args.keep).await,
        Err(error) => {
            leave(output, &place, args.keep || error.exit() != 130).await;
            Err(error)
        }
    }
}

async fn play_at(
    place: &Place,
    output: Output,
    scenario: Scenario,
    (seed, broken): (u64, Option<Broken>),
) -> Result<Played, Error> {
    let target = target_of(place);
    let store = target.open(true).await?;
    let ended = with_store!(&store, &target.url, opened => {
        scenario::play(opened, output, place, scenario, (seed, broken)).await
    });
    store.close().await;
    ended
}

fn target_of(place: &Place) -> Target {
    Target {
        url: place.url.clone(),
        source: None,
        connections_max: Some(4),
    }
}

async fn at(
    place: &mut Place,
    output: Output,
    task: Task,
    broker: Option<BrokerKind>,
) -> Result<(Ran, Verdict), Error> {
    let target = target_of(place);
    let store = target.open(true).await?;
    let ended = match broker {
        None => with_store!(&store, &target.url, opened => {
            run::together(opened, output, place, task).await
        }),
        Some(kind) => with_store!(&store, &target.url, opened => {
            apart(opened, output, place, task, kind).await
        }),
    };
    store.close().await;
    let (ran, records) = ended?;
    Ok((ran, verdict::judge(&records)))
}

/// As two services.
async fn apart<S: ShopBooks>(
    opened: Opened<'_, S>,
    output: Output,
    place: &mut Place,
    task: Task,
    kind: BrokerKind,
) -> Result<(Ran, Records), Error> {
    let broker = Broker::start(kind, &place.folder).await?;
    place.divide().await?;
    let url = place.other_url.clone().unwrap_or_default();
    let target = Target {
        url,
        ..target_of(place)
    };
    let store = target.open(true).await?;
    let ended = with_store!(&store, &target.url, other => {
        let apart = Apart { other, broker };
        run::run(opened, Some(apart), output, place, task).await
    });
    store.close().await;
    ended
}

/// After a run that came to no verdict.
async fn leave(output: Output, place: &Place, is_kept: bool) {
    if is_kept {
        output.say(&format!(
            "what was done so far is in {} and {}",
            place.folder.display(),
            store_url::redact(&place.url)
        ));
    } else if let Err(error) = place.clear().await {
        output.say(&error.full_message());
    }
}

async fn conclude(
    output: Output,
    args: &DemoArgs,
    place: &Place,
    ran: &Ran,
    verdict: &Verdict,
) -> Result<(), Error> {
    // What went wrong can only be understood with the records at hand.
    let is_kept = args.keep || !verdict.is_good();
    for refused in &ran.refused {
        output.say(&match refused.line {
            0 => format!("refused: {}", refused.reason),
            line => format!("line {line}: {}", refused.reason),
        });
    }
    let kept = is_kept.then_some(place);
    if output.is_json() {
        report::json(output, verdict, ran, kept)?;
    } else {
        report::people(output, verdict, ran, kept)?;
    }
    if !is_kept {
        place.clear().await?;
    }
    if !verdict.is_good() {
        let text = format!(
            "{} lost, {} doubled, {} without an order",
            verdict.lost, verdict.doubled, verdict.unasked
        );
        return Err(Error::new(Code::Demo, text));
    }
    if !ran.refused.is_empty() {
        let text = format!("{} of the orders were refused", ran.refused.len());
        return Err(Error::new(Code::Partly, text).with_exit(EXIT_PARTLY));
    }
    Ok(())
}
