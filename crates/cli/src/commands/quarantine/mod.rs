//! `onceward quarantine`.

mod act;
mod correct;
mod groups;
mod list;
mod reveal;
mod select;
mod show;
mod surroundings;

use clap::Subcommand;
use onceward_core::store::{Cases, Operate, Status};

use crate::cli::Global;
use crate::error::Error;
use crate::output::Output;
use crate::store::Opened;

pub use act::{AckArgs, AssignArgs, DueArgs, EndArgs, NoteArgs, PurgeArgs, ReleaseArgs};
pub use correct::CorrectArgs;
pub use groups::GroupsArgs;
pub use list::ListArgs;
pub use reveal::RevealArgs;
pub use select::{FilterArgs, SelectArgs};
pub use show::ShowArgs;

use surroundings::Surroundings;

/// What to do with cases.
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// List cases, oldest first; those that are not over unless --state says otherwise
    List(ListArgs),
    /// Count cases by their cause
    Groups(GroupsArgs),
    /// Show one case with its history, without what is sensitive
    Show(ShowArgs),
    /// Show one case with its payload and all that is hidden elsewhere; is recorded, and needs --why
    Reveal(RevealArgs),
    /// Put another payload in the place of one that cannot be handled; needs --why
    Correct(CorrectArgs),
    /// Make somebody responsible for cases
    Assign(AssignArgs),
    /// Say that you are on it
    Ack(AckArgs),
    /// Add a note
    Note(NoteArgs),
    /// Say until when cases should be over
    Due(DueArgs),
    /// Put messages back into the flow, with a fresh budget and their old identity and place
    Release(ReleaseArgs),
    /// Give messages up; needs --why
    Discard(EndArgs),
    /// Say that messages are not needed, because somebody saw to it otherwise; needs --why
    Waive(EndArgs),
    /// Remove old cases that are over and that the log has forgotten; needs --why
    Purge(PurgeArgs),
}

/// Runs a command on cases.
///
/// # Errors
/// When the store or standard output fails, there is no such case, or an action is refused.
pub async fn run<S: Cases + Operate + Status>(
    opened: Opened<'_, S>,
    output: Output,
    global: &Global,
    command: &QuarantineCommand,
) -> Result<(), Error> {
    let surroundings = Surroundings::new(global);
    match command {
        QuarantineCommand::List(args) => list::list(opened, output, args, &surroundings).await,
        QuarantineCommand::Groups(args) => groups::groups(opened, output, args).await,
        QuarantineCommand::Show(args) => show::show(opened, output, args, &surroundings).await,
        QuarantineCommand::Reveal(args) => {
            reveal::reveal(opened, output, args, &surroundings).await
        }
        QuarantineCommand::Correct(args) => {
            correct::correct(opened, output, args, &surroundings).await
        }
        QuarantineCommand::Assign(args) => act::assign(opened, output, args).await,
        QuarantineCommand::Ack(args) => act::acknowledge(opened, output, args).await,
        QuarantineCommand::Note(args) => act::note(opened, output, args).await,
        QuarantineCommand::Due(args) => act::due(opened, output, args).await,
        QuarantineCommand::Release(args) => act::release(opened, output, args).await,
        QuarantineCommand::Discard(args) => act::discard(opened, output, args).await,
        QuarantineCommand::Waive(args) => act::waive(opened, output, args).await,
        QuarantineCommand::Purge(args) => act::purge(opened, output, args).await,
    }
}
