//! Starting, pausing, resuming and stopping a campaign.

use clap::Args;
use onceward_console::view::campaign_json;
use onceward_core::campaign::{CampaignAction, CampaignState, Verification};
use onceward_core::store::{ActOnCampaign, Actor, Campaign, Replay};

use super::find;
use super::show::summary;
use super::watch::{WatchArgs, watch};
use crate::commands::acting::{ActorArgs, ConfirmArgs, campaign_number, refusal};
use crate::error::Error;
use crate::output::Output;
use crate::store::Opened;

/// Options of `replay pause` and `replay resume`.
#[derive(Debug, Args)]
pub struct ActArgs {
    /// The campaign
    #[arg(value_name = "CAMPAIGN", value_parser = campaign_number)]
    campaign: i64,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `replay stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// Which, who.
    #[command(flatten)]
    act: ActArgs,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Options of `replay start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Which, who.
    #[command(flatten)]
    act: ActArgs,
    /// Who approved it; not the one who planned it
    #[arg(long, value_name = "NAME")]
    approved_by: Option<String>,
    /// Follow it to its end
    #[arg(long)]
    watch: bool,
    /// Let this command say whether the canary went well: it gets the canary's messages as JSON on
    /// standard input and the campaign in ONCEWARD_CAMPAIGN; any exit but 0 stops the campaign. Needs
    /// a plan with --verify person
    #[arg(long, value_name = "COMMAND", requires = "watch")]
    verify_command: Option<String>,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(super) async fn start<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &StartArgs,
) -> Result<(), Error> {
    let campaign = find(opened, args.act.campaign).await?;
    if !output.is_json() {
        output.say(&summary(&campaign));
    }
    let question = format!("send up to {} message(s) out?", campaign.counts.left);
    args.confirm.ask(output, &question)?;
    let action = CampaignAction::Start {
        approved_by: args.approved_by.as_deref(),
    };
    let campaign = act(opened, &args.act, action).await?;
    if !args.watch {
        told(output, &campaign)?;
        if campaign.pacing.verification == Verification::Person {
            let number = campaign.campaign_id;
            output.say(&format!(
                "after the canary it waits for you: onceward replay resume {number}"
            ));
        }
        return Ok(());
    }
    let following = WatchArgs {
        campaign: args.act.campaign,
        timeout: None,
        verify_command: args.verify_command.clone(),
        by: args.act.by.clone(),
    };
    watch(opened, output, &following).await
}

pub(super) async fn pause<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ActArgs,
) -> Result<(), Error> {
    let campaign = act(opened, args, CampaignAction::Pause).await?;
    told(output, &campaign)
}

/// Also says that a canary which waits for a person went well.
pub(super) async fn resume<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ActArgs,
) -> Result<(), Error> {
    let campaign = find(opened, args.campaign).await?;
    let action = match campaign.standing.state {
        CampaignState::Verifying => CampaignAction::Verify,
        _ => CampaignAction::Resume,
    };
    let campaign = act(opened, args, action).await?;
    told(output, &campaign)
}

pub(super) async fn stop<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &StopArgs,
) -> Result<(), Error> {
    let campaign = find(opened, args.act.campaign).await?;
    if !output.is_json() {
        output.say(&summary(&campaign));
    }
    args.confirm.ask(output, "stop it?")?;
    let campaign = act(opened, &args.act, CampaignAction::Stop).await?;
    told(output, &campaign)
}

async fn act<S: Replay>(
    opened: Opened<'_, S>,
    args: &ActArgs,
    action: CampaignAction<'_>,
) -> Result<Campaign, Error> {
    let who = args.by.who();
    act_as(opened, args.campaign, action, args.by.actor(&who)).await
}

pub(super) async fn act_as<S: Replay>(
    opened: Opened<'_, S>,
    campaign_id: i64,
    action: CampaignAction<'_>,
    by: Actor<'_>,
) -> Result<Campaign, Error> {
    let request = ActOnCampaign {
        campaign_id,
        action,
        by,
    };
    let acted = opened.store.act_on_campaign(request).await;
    acted.map_err(|error| refusal(opened.url, &error))
}

fn told(output: Output, campaign: &Campaign) -> Result<(), Error> {
    if output.is_json() {
        return output.json(&campaign_json(campaign));
    }
    let state = campaign.standing.state.as_str();
    output.line(&format!("campaign {}: {state}", campaign.campaign_id))
}
