//! `onceward replay list` and `onceward replay show`.

use clap::Args;
use onceward_console::view::campaign_json;
use onceward_core::campaign::{CampaignKind, Finding, ItemState};
use onceward_core::store::{Campaign, CampaignItem, CampaignQuery, ItemQuery, Replay};
use serde_json::{Value, json};

use super::find;
use crate::commands::acting::campaign_number;
use crate::error::Error;
use crate::output::{Output, age, align_right, now, plain, table};
use crate::store::Opened;

/// Options of `replay list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Only those that are under way
    #[arg(long)]
    active: bool,
    /// Only campaigns with a higher number
    #[arg(long, value_name = "CAMPAIGN", default_value_t = 0)]
    after: i64,
    /// Most campaigns
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Options of `replay show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The campaign
    #[arg(value_name = "CAMPAIGN", value_parser = campaign_number)]
    campaign: i64,
    /// Only messages in this state; several may be given. `left` and `planned` are the ones left
    #[arg(long = "state", value_name = "STATE", value_parser = item_state)]
    states: Vec<ItemState>,
    /// Only messages above this place in the log
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    /// Most messages
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

fn item_state(text: &str) -> Result<ItemState, String> {
    ItemState::named(text).ok_or_else(|| {
        let names = ItemState::ALL.map(ItemState::as_str).join(", ");
        format!("a state is one of {names}")
    })
}

pub(super) async fn list<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ListArgs,
) -> Result<(), Error> {
    let query = CampaignQuery {
        campaign_id: None,
        subscription: args.subscription.as_deref(),
        is_active: args.active,
        after_campaign_id: args.after,
        rows_max: args.limit,
    };
    let campaigns = opened.check(opened.store.campaigns(query).await)?;
    if output.is_json() {
        let items: Vec<Value> = campaigns.iter().map(campaign_json).collect();
        return output.json(&json!({ "campaigns": items }));
    }
    if campaigns.is_empty() {
        output.say("no campaigns");
        return Ok(());
    }
    let mut rows = table(&[
        "CAMPAIGN",
        "SUBSCRIPTION",
        "KIND",
        "STATE",
        "LEFT",
        "RUNNING",
        "DONE",
        "FAILED",
        "REFUSED",
        "PLANNED",
        "BY",
    ]);
    let now = now();
    for campaign in &campaigns {
        let counts = campaign.counts;
        rows.add_row([
            campaign.campaign_id.to_string(),
            campaign.subscription.clone(),
            campaign.kind.as_str().to_owned(),
            campaign.standing.state.as_str().to_owned(),
            counts.left.to_string(),
            counts.running.to_string(),
            counts.done.to_string(),
            counts.failed.to_string(),
            counts.refused.to_string(),
            format!("{} ago", age(now.millis_since(campaign.planned_at))),
            plain(&campaign.planned_by),
        ]);
    }
    align_right(&mut rows, &[0, 4, 5, 6, 7, 8]);
    output.table(&rows)?;
    if campaigns.len() == args.limit as usize
        && let Some(last) = campaigns.last()
    {
        output.say(&format!("there may be more: --after {}", last.campaign_id));
    }
    Ok(())
}

pub(super) async fn show<S: Replay>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ShowArgs,
) -> Result<(), Error> {
    let campaign = find(opened, args.campaign).await?;
    let query = ItemQuery {
        campaign_id: args.campaign,
        states: &args.states,
        after_seq: args.after,
        rows_max: args.limit,
    };
    let items = opened.check(opened.store.campaign_items(query).await)?;
    if output.is_json() {
        let mut value = campaign_json(&campaign);
        value["items"] = json!(items);
        return output.json(&value);
    }
    output.line(&summary(&campaign))?;
    if items.is_empty() {
        output.say("no messages");
        return Ok(());
    }
    output.table(&item_rows(&items))?;
    if items.len() == args.limit as usize
        && let Some(last) = items.last()
    {
        output.say(&format!("there may be more: --after {}", last.seq));
    }
    Ok(())
}

fn item_rows(items: &[CampaignItem]) -> comfy_table::Table {
    let mut rows = table(&[
        "SEQ", "MESSAGE", "TYPE", "KEY", "CASE", "STATE", "FINDING", "NOTE",
    ]);
    for item in items {
        rows.add_row([
            item.seq.to_string(),
            plain(&item.id),
            plain(&item.message_type),
            plain(&item.key),
            item.case_id.map_or("-".to_owned(), |id| id.to_string()),
            item.state.as_str().to_owned(),
            item.finding.map_or("-", Finding::as_str).to_owned(),
            item.note.as_deref().map_or("-".to_owned(), plain),
        ]);
    }
    align_right(&mut rows, &[0, 4]);
    rows
}

/// A campaign in a few lines.
pub(super) fn summary(campaign: &Campaign) -> String {
    let pacing = campaign.pacing;
    let mut text = format!(
        "campaign {}: {} of {} for {}, {}\n",
        campaign.campaign_id,
        campaign.kind.as_str(),
        messages(campaign.counts.total()),
        campaign.subscription,
        campaign.standing.state.as_str(),
    );
    if campaign.kind == CampaignKind::Rerun {
        text.push_str(&format!(
            "  effects of generation {}\n",
            campaign.generation
        ));
    }
    text.push_str(&format!("  {}\n", progress(campaign)));
    text.push_str(&format!(
        "  canary of {}, then up to {} a second, at most {} in flight, stopped from {} % of failures on\n",
        pacing.canary, pacing.rate_per_s, pacing.in_flight_max, pacing.stop_at_percent
    ));
    text.push_str(&format!(
        "  planned by {}: {}",
        plain(&campaign.planned_by),
        plain(&campaign.why)
    ));
    if let Some(by) = &campaign.started_by {
        text.push_str(&format!("\n  started by {}", plain(by)));
    }
    if let Some(by) = &campaign.approved_by {
        text.push_str(&format!(", approved by {}", plain(by)));
    }
    if let Some(why) = &campaign.standing.stopped_by {
        text.push_str(&format!("\n  stopped: {}", plain(why)));
    }
    text
}

/// How many are where.
pub(super) fn progress(campaign: &Campaign) -> String {
    let counts = campaign.counts;
    let mut text = format!(
        "{} left, {} running, {} done, {} failed, {} refused",
        counts.left, counts.running, counts.done, counts.failed, counts.refused
    );
    if counts.waiting > 0 {
        text.push_str(&format!(
            " ({} of those running wait for a person)",
            counts.waiting
        ));
    }
    text
}

fn messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    }
}
