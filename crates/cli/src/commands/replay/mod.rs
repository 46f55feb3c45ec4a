//! `onceward replay`.

mod act;
mod plan;
mod show;
mod verify;
mod watch;

use clap::Subcommand;
use onceward_core::store::{Campaign, CampaignQuery, Replay, Status};

use crate::error::{Code, Error};
use crate::output::Output;
use crate::store::Opened;

pub use act::{ActArgs, StartArgs, StopArgs};
pub use plan::PlanArgs;
pub use show::{ListArgs, ShowArgs};
pub use watch::WatchArgs;

/// What to do with replay campaigns.
#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// Choose messages, look at each, and keep what was found; nothing goes out. Needs --why
    Plan(PlanArgs),
    /// Send the canary of a plan out; the rest follows when that went well
    Start(StartArgs),
    /// Follow a campaign to its end
    Watch(WatchArgs),
    /// Send nothing more out for now
    Pause(ActArgs),
    /// Go on: after a pause, or after a canary that you have looked at
    Resume(ActArgs),
    /// End a campaign; what is left stays where it is. Needs --why
    Stop(StopArgs),
    /// List campaigns, oldest first
    List(ListArgs),
    /// Show one campaign with its messages and what became of them
    Show(ShowArgs),
}

/// Runs a command on replay campaigns.
///
/// # Errors
/// When the store or standard output fails, there is no such campaign, an action is refused, or a
/// campaign that was watched did not end well.
pub async fn run<S: Replay + Status>(
    opened: Opened<'_, S>,
    output: Output,
    command: &ReplayCommand,
) -> Result<(), Error> {
    match command {
        ReplayCommand::Plan(args) => plan::plan(opened, output, args).await,
        ReplayCommand::Start(args) => act::start(opened, output, args).await,
        ReplayCommand::Watch(args) => watch::watch(opened, output, args).await,
        ReplayCommand::Pause(args) => act::pause(opened, output, args).await,
        ReplayCommand::Resume(args) => act::resume(opened, output, args).await,
        ReplayCommand::Stop(args) => act::stop(opened, output, args).await,
        ReplayCommand::List(args) => show::list(opened, output, args).await,
        ReplayCommand::Show(args) => show::show(opened, output, args).await,
    }
}

/// A campaign by its number.
async fn find<S: Replay>(opened: Opened<'_, S>, campaign_id: i64) -> Result<Campaign, Error> {
    let query = CampaignQuery {
        campaign_id: Some(campaign_id),
        ..CampaignQuery::default()
    };
    let found = opened.check(opened.store.campaigns(query).await)?.pop();
    found.ok_or_else(|| {
        let message = format!("there is no campaign {campaign_id}");
        Error::new(Code::NotFound, message)
    })
}
