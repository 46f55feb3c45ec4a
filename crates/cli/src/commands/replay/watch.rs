//! `onceward replay watch`.

use std::time::{Duration, Instant};

use clap::Args;
use onceward_console::view::campaign_json;
use onceward_core::campaign::CampaignState;
use onceward_core::store::{Campaign, Replay};

use super::find;
use super::show::progress;
use super::verify::verify;
use crate::commands::acting::{ActorArgs, campaign_number};
use crate::error::{Code, EXIT_PARTLY, Error};
use crate::output::{Output, now};
use crate::store::Opened;

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Options of `replay watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The campaign
    #[arg(value_name = "CAMPAIGN", value_parser = campaign_number)]
    pub(super) campaign: i64,
    /// Give up after this time; the campaign goes on
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// Let this command say whether the canary went well, see `replay start`
    #[arg(long, value_name = "COMMAND")]
    pub(super) verify_command: Option<String>,
    /// Who verifies.
    #[command(flatten)]
    pub(super) by: ActorArgs,
}

pub(super) async fn watch<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &WatchArgs,
) -> Result<(), Error> {
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut seen = None;
    loop {
        let campaign = find(opened, args.campaign).await?;
        let stands = (campaign.standing.state, campaign.counts);
        if seen != Some(stands) {
            seen = Some(stands);
            report(output, &campaign)?;
            if campaign.standing.state == CampaignState::Planned {
                let number = args.campaign;
                output.say(&format!(
                    "campaign {number} has not been started: this waits for `onceward replay start \
                     {number}`"
                ));
            }
        }
        if campaign.standing.state.is_over() && campaign.counts.running == 0 {
            return ended(&campaign);
        }
        if campaign.standing.state == CampaignState::Verifying
            && let Some(command) = &args.verify_command
        {
            verify(opened, output, &campaign, command, &args.by).await?;
            continue;
        }
        if give_up.is_some_and(|at| Instant::now() >= at) {
            let message = format!("campaign {} has not ended in time", args.campaign);
            return Err(Error::new(Code::Watch, message));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn report(output: Output, campaign: &Campaign) -> Result<(), Error> {
    if output.is_json() {
        return output.json(&campaign_json(campaign));
    }
    let state = campaign.standing.state.as_str();
    output.line(&format!("{}  {state}: {}", now(), progress(campaign)))
}

/// All of it done, some of it, or stopped.
fn ended(campaign: &Campaign) -> Result<(), Error> {
    let (number, counts) = (campaign.campaign_id, campaign.counts);
    if let Some(why) = &campaign.standing.stopped_by {
        let message = format!(
            "campaign {number} was stopped: {why}; {} of {} done",
            counts.done,
            counts.total()
        );
        return Err(Error::new(Code::ReplayStopped, message));
    }
    if counts.done == counts.total() {
        return Ok(());
    }
    let message = format!("campaign {number} has ended: {}", progress(campaign));
    Err(Error::new(Code::ReplayPartly, message).with_exit(EXIT_PARTLY))
}
