//! A user's command that says whether a canary went well.

use std::io::Write as _;
use std::process::{Command, Stdio};

use onceward_core::campaign::{CampaignAction, ItemState};
use onceward_core::store::{Actor, Campaign, ItemQuery, Replay};
use serde_json::json;

use super::act::act_as;
use crate::commands::acting::ActorArgs;
use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::Opened;

/// Runs the command; exit 0 lets the campaign go on, everything else stops it.
pub(super) async fn verify<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    campaign: &Campaign,
    command: &str,
    by: &ActorArgs,
) -> Result<(), Error> {
    let query = ItemQuery {
        campaign_id: campaign.campaign_id,
        states: &[ItemState::Done, ItemState::Failed],
        rows_max: campaign.pacing.canary,
        ..ItemQuery::default()
    };
    let items = opened.check(opened.store.campaign_items(query).await)?;
    let input = json!({ "campaign": campaign.campaign_id, "items": items }).to_string();
    if !output.is_json() {
        output.say(&format!("verifying the canary: {command}"));
    }
    let (command, number) = (command.to_owned(), campaign.campaign_id);
    let ran = tokio::task::spawn_blocking(move || run(&command, number, &input)).await;
    let ended = ran.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    let who = by.who();
    let failed = match ended {
        Ok(None) => {
            let why = Some("the verification command succeeded");
            let by = Actor { who: &who, why };
            act_as(opened, number, CampaignAction::Verify, by).await?;
            return Ok(());
        }
        Ok(Some(status)) => format!("the verification command ended with {status}"),
        Err(error) => format!("the verification command could not run: {error}"),
    };
    let by = Actor {
        who: &who,
        why: Some(&failed),
    };
    act_as(opened, number, CampaignAction::Stop, by).await?;
    let message = format!("campaign {number} was stopped at its canary: {failed}");
    Err(Error::new(Code::ReplayUnverified, message))
}

/// How it failed, if it did. Its output goes to standard error, where talk goes.
fn run(command: &str, campaign_id: i64, input: &str) -> std::io::Result<Option<String>> {
    let (shell, option) = match cfg!(windows) {
        true => ("cmd", "/C"),
        false => ("sh", "-c"),
    };
    let mut child = Command::new(shell)
        .args([option, command])
        .env("ONCEWARD_CAMPAIGN", campaign_id.to_string())
        .stdin(Stdio::piped())
        .stdout(std::io::stderr())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that reads nothing is as good.
        let _ = stdin.write_all(input.as_bytes());
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| status.to_string()))
}
