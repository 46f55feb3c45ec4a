//! `onceward demo --scenario …`: one kind of trouble at a time, with the real engine, real
//! processes and a verdict.
//!
//! | module | what is in it |
//! |---|---|
//! | `stage` | what every scenario works with |
//! | `depot`, `receiver` | the business and the receiver, as processes |
//! | `books` | the records compared, and what is claimed |
//! | `report` | the verdict for people and programs |
//! | the others | one scenario each: what happens, and what its records have to say |

use clap::ValueEnum;
use onceward_orders::fulfilment::Broken;
use tokio::time::Instant;

use super::place::Place;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::Opened;

mod ambiguous;
mod books;
pub(super) mod depot;
mod gap;
mod hotkey;
mod outage;
mod poison;
mod ratelimit;
pub(super) mod receiver;
mod replay;
mod report;
mod stage;

use books::Judged;
use depot::Depot;
use stage::Stage;

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// A message that always fails and one that kills its process: cases, and nobody else is harmed
    Poison,
    /// The receiver is away, then busy: work pauses, nothing is used up, everything arrives once
    Outage,
    /// The receiver answers 429 with Retry-After: its windows are kept by the whole subscription
    Ratelimit,
    /// The answer is lost after the effect: the probe finds it; without a probe a person decides
    Ambiguous,
    /// Versions come late, come back, or never come
    Gap,
    /// A hot key and a blocked one beside a thousand others, which are not held up
    Hotkey,
    /// A bug, its cases, and the campaigns that send them out again
    Replay,
}

impl Scenario {
    /// As it is typed.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Poison => "poison",
            Self::Outage => "outage",
            Self::Ratelimit => "ratelimit",
            Self::Ambiguous => "ambiguous",
            Self::Gap => "gap",
            Self::Hotkey => "hotkey",
            Self::Replay => "replay",
        }
    }
}

/// How a scenario went.
#[derive(Debug)]
pub(super) struct Played {
    judged: Judged,
    scenario: Scenario,
    seconds: f64,
    seed: u64,
}

/// Plays a scenario in a place.
pub(super) async fn play<S: Depot>(
    opened: Opened<'_, S>,
    output: Output,
    place: &Place,
    scenario: Scenario,
    (seed, broken): (u64, Option<Broken>),
) -> Result<Played, Error> {
    let started = Instant::now();
    let stage = Stage::set(opened, place, output, scenario, (seed, broken)).await?;
    stage.tell(&format!(
        "the store of this run: ONCEWARD_STORE={}",
        stage.store_shown()
    ));
    let judged = match scenario {
        Scenario::Poison => poison::play(&stage).await,
        Scenario::Outage => outage::play(&stage).await,
        Scenario::Ratelimit => ratelimit::play(&stage).await,
        Scenario::Ambiguous => ambiguous::play(&stage).await,
        Scenario::Gap => gap::play(&stage).await,
        Scenario::Hotkey => hotkey::play(&stage).await,
        Scenario::Replay => replay::play(&stage).await,
    };
    let mut judged = judged?;
    judged.miss(stage.missed());
    Ok(Played {
        judged,
        scenario,
        seconds: started.elapsed().as_secs_f64(),
        seed,
    })
}

/// Says how it went. Returns whether all is well.
pub(super) async fn conclude(
    output: Output,
    place: &Place,
    played: &Played,
    is_kept: bool,
) -> Result<(), Error> {
    let judged = &played.judged;
    // What went wrong can only be understood with the records at hand.
    let is_kept = is_kept || !judged.is_good();
    let kept = is_kept.then_some(place);
    if output.is_json() {
        report::json(output, played, kept)?;
    } else {
        report::people(output, played, kept)?;
    }
    if !is_kept {
        place.clear().await?;
    }
    if judged.is_good() {
        return Ok(());
    }
    let unmet = judged.claims.iter().filter(|claim| !claim.is_met).count();
    let text = format!(
        "{}: {} lost, {} doubled, {} not asked for, {unmet} claims not met",
        played.scenario.name(),
        judged.lost,
        judged.doubled,
        judged.unasked
    );
    Err(Error::new(Code::Demo, text))
}
