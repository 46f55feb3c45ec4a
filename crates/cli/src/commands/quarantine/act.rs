//! Acting on cases: one transaction each, one line each.

use clap::Args;
use onceward_core::Timestamp;
use onceward_core::store::{
    ActOnCase, Actor, Case, CaseAction, CaseQuery, CaseState, Cases, Operate, Standing,
};
use serde_json::{Value, json};

use super::list::rows;
use super::select::{SelectArgs, Selected};
use crate::commands::acting::{ActorArgs, BoundArgs, ConfirmArgs, future, past, refusal};
use crate::error::{Code, EXIT_PARTLY, Error};
use crate::output::{Output, plain};
use crate::store::Opened;

/// Options of `quarantine assign`.
#[derive(Debug, Args)]
pub struct AssignArgs {
    /// Which.
    #[command(flatten)]
    select: SelectArgs,
    /// Who is responsible
    #[arg(long, value_name = "NAME", required_unless_present = "nobody")]
    to: Option<String>,
    /// Nobody is responsible any more
    #[arg(long, conflicts_with = "to")]
    nobody: bool,
    /// How many.
    #[command(flatten)]
    bound: BoundArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `quarantine ack`.
#[derive(Debug, Args)]
pub struct AckArgs {
    /// Which.
    #[command(flatten)]
    select: SelectArgs,
    /// How many.
    #[command(flatten)]
    bound: BoundArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `quarantine note`.
#[derive(Debug, Args)]
pub struct NoteArgs {
    /// Which.
    #[command(flatten)]
    select: SelectArgs,
    /// How many.
    #[command(flatten)]
    bound: BoundArgs,
    /// The note
    #[arg(long, value_name = "TEXT")]
    text: String,
    /// Who writes it; the login name if not given
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
}

/// Options of `quarantine due`.
#[derive(Debug, Args)]
pub struct DueArgs {
    /// Which.
    #[command(flatten)]
    select: SelectArgs,
    /// Until when: a moment, or so long from now (2days)
    #[arg(long, value_name = "WHEN", value_parser = future, required_unless_present = "never")]
    by: Option<Timestamp>,
    /// Without a date
    #[arg(long, conflicts_with = "by")]
    never: bool,
    /// How many.
    #[command(flatten)]
    bound: BoundArgs,
    /// Who.
    #[command(flatten)]
    actor: ActorArgs,
}

/// Options of `quarantine release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Which, how many, who.
    #[command(flatten)]
    end: EndArgs,
}

/// Options of what ends cases.
#[derive(Debug, Args)]
pub struct EndArgs {
    /// Which.
    #[command(flatten)]
    select: SelectArgs,
    /// How many.
    #[command(flatten)]
    bound: BoundArgs,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

/// Options of `quarantine purge`.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// Only cases opened last before then: a moment, or so long ago (90days)
    #[arg(long, value_name = "WHEN", value_parser = past)]
    older_than: Timestamp,
    /// Only cases of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// How many.
    #[command(flatten)]
    bound: BoundArgs,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

pub(super) async fn assign<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &AssignArgs,
) -> Result<(), Error> {
    let owner = args.to.as_deref();
    let who = args.by.who();
    let selected = args.select.select(opened, args.bound.max).await?;
    let action = CaseAction::Assign { owner };
    let task = Task::new(action, args.by.actor(&who), selected.missing);
    task.run(opened, output, &selected.cases).await
}

pub(super) async fn acknowledge<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &AckArgs,
) -> Result<(), Error> {
    let who = args.by.who();
    let selected = args.select.select(opened, args.bound.max).await?;
    let actor = args.by.actor(&who);
    let task = Task::new(CaseAction::Acknowledge, actor, selected.missing);
    task.run(opened, output, &selected.cases).await
}

pub(super) async fn note<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &NoteArgs,
) -> Result<(), Error> {
    let by = ActorArgs::of(args.name.clone(), args.text.clone());
    let who = by.who();
    let selected = args.select.select(opened, args.bound.max).await?;
    let task = Task::new(CaseAction::Note, by.actor(&who), selected.missing);
    task.run(opened, output, &selected.cases).await
}

pub(super) async fn due<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &DueArgs,
) -> Result<(), Error> {
    let due_at = args.by;
    let who = args.actor.who();
    let selected = args.select.select(opened, args.bound.max).await?;
    let action = CaseAction::SetDue { due_at };
    let task = Task::new(action, args.actor.actor(&who), selected.missing);
    task.run(opened, output, &selected.cases).await
}

pub(super) async fn release<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &ReleaseArgs,
) -> Result<(), Error> {
    end(opened, output, &args.end, CaseAction::Release).await
}

pub(super) async fn discard<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &EndArgs,
) -> Result<(), Error> {
    end(opened, output, args, CaseAction::Discard).await
}

pub(super) async fn waive<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &EndArgs,
) -> Result<(), Error> {
    end(opened, output, args, CaseAction::Waive).await
}

/// Cases that are over, the oldest ones up to the bound.
pub(super) async fn purge<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &PurgeArgs,
) -> Result<(), Error> {
    let query = CaseQuery {
        subscription: args.subscription.as_deref(),
        states: &[CaseState::Replayed, CaseState::Discarded, CaseState::Waived],
        opened_before: Some(args.older_than),
        rows_max: args.bound.max,
        ..CaseQuery::default()
    };
    let cases = opened.check(opened.store.cases(query).await)?;
    let selected = Selected {
        cases,
        missing: Vec::new(),
    };
    let action = CaseAction::Purge;
    end_selected(opened, output, selected, action, &args.confirm, &args.by).await
}

/// What cannot be taken back: shows what it is about, asks, and does it as long as the cases stand
/// as they were shown.
async fn end<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &EndArgs,
    action: CaseAction<'_>,
) -> Result<(), Error> {
    check_reason(&args.by, action)?;
    let selected = args.select.select(opened, args.bound.max).await?;
    end_selected(opened, output, selected, action, &args.confirm, &args.by).await
}

fn check_reason(by: &ActorArgs, action: CaseAction<'_>) -> Result<(), Error> {
    let who = by.who();
    let checked = match action {
        CaseAction::Release => by.actor(&who).check(),
        _ => by.actor(&who).check_reason(),
    };
    checked.map_err(|refusal| {
        let verb = action.as_str();
        Error::new(Code::ActionRefused, format!("{verb}: {refusal} (--why)"))
    })
}

async fn end_selected<S: Operate>(
    opened: Opened<'_, S>,
    output: Output,
    selected: Selected,
    action: CaseAction<'_>,
    confirm: &ConfirmArgs,
    by: &ActorArgs,
) -> Result<(), Error> {
    check_reason(by, action)?;
    let who = by.who();
    if !selected.cases.is_empty() {
        let count = selected.cases.len();
        let cases = if count == 1 { "case" } else { "cases" };
        if !output.is_json() {
            output.say(&rows(&selected.cases).to_string());
        }
        let question = format!("{} {count} {cases}?", action.as_str());
        confirm.ask(output, &question)?;
    }
    let mut task = Task::new(action, by.actor(&who), selected.missing);
    task.as_shown = true;
    task.run(opened, output, &selected.cases).await
}

/// One action on some cases.
struct Task<'a> {
    action: CaseAction<'a>,
    by: Actor<'a>,
    missing: Vec<i64>,
    /// A case that stands otherwise than it was shown is left alone.
    as_shown: bool,
}

impl<'a> Task<'a> {
    const fn new(action: CaseAction<'a>, by: Actor<'a>, missing: Vec<i64>) -> Self {
        Self {
            action,
            by,
            missing,
            as_shown: false,
        }
    }

    async fn run<S: Operate>(
        self,
        opened: Opened<'_, S>,
        output: Output,
        cases: &[Case],
    ) -> Result<(), Error> {
        let mut items = Vec::new();
        let (mut done, mut failed) = (0, Vec::new());
        for case_id in &self.missing {
            let message = format!("there is no case {case_id}");
            failed.push((*case_id, Error::new(Code::NotFound, message)));
        }
        for case in cases {
            let request = ActOnCase {
                case_id: case.case_id,
                action: self.action,
                expected: self.as_shown.then_some(case.standing.state),
                by: self.by,
            };
            match opened.store.act_on_case(request).await {
                Ok(standing) => {
                    done += 1;
                    items.push(done_json(case.case_id, &standing));
                    if !output.is_json() {
                        output.line(&done_line(case.case_id, &standing))?;
                    }
                }
                Err(error) => failed.push((case.case_id, refusal(opened.url, &error))),
            }
        }
        for (case_id, error) in &failed {
            let mut item = error.to_json();
            item["case_id"] = json!(case_id);
            items.push(item);
            if !output.is_json() {
                output.say(&format!("case {case_id}: {}", error.full_message()));
            }
        }
        if output.is_json() {
            let action = self.action.as_str();
            output.json(
                &json!({ "action": action, "done": done, "failed": failed.len(), "cases": items }),
            )?;
        } else if cases.is_empty() && failed.is_empty() {
            output.say("no cases");
        }
        self.outcome(done, failed)
    }

    /// All, some or none of it.
    fn outcome(&self, done: usize, mut failed: Vec<(i64, Error)>) -> Result<(), Error> {
        let count = failed.len();
        let Some((_, first)) = failed.drain(..).next() else {
            return Ok(());
        };
        let action = self.action.as_str();
        let message = format!("{action}: {done} done, {count} not");
        match (done, count) {
            (0, 1) => Err(first),
            (0, _) => Err(Error::new(first.code(), message)),
            _ => Err(Error::new(Code::PartlyActed, message).with_exit(EXIT_PARTLY)),
        }
    }
}

fn done_line(case_id: i64, standing: &Standing) -> String {
    let mut text = format!("case {case_id}: {}", standing.state.as_str());
    if let Some(owner) = &standing.owner {
        text.push_str(&format!(", owner {}", plain(owner)));
    }
    if let Some(due_at) = standing.due_at {
        text.push_str(&format!(", due {due_at}"));
    }
    text
}

fn done_json(case_id: i64, standing: &Standing) -> Value {
    let mut item = json!(standing);
    item["case_id"] = json!(case_id);
    item
}
