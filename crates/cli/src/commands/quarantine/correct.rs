//! `onceward quarantine correct`: another payload in the place of one that cannot be handled.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use onceward_console::view::differences_of;
use onceward_core::Payload;
use onceward_core::sensitivity::{Change, Difference, HIDDEN, Sensitivity, changed_at};
use onceward_core::store::{ActOnCase, Case, CaseAction, Cases, Operate};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Surroundings;
use super::show::one_case;
use crate::commands::acting::{ActorArgs, ConfirmArgs, case_number, refusal};
use crate::error::{Code, Error};
use crate::output::{Output, plain};
use crate::store::Opened;

/// Largest payload that is read, in bytes.
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

/// Places of a difference that are named one by one.
const CHANGED_SHOWN: usize = 20;

/// Options of `quarantine correct`.
#[derive(Debug, Args)]
pub struct CorrectArgs {
    /// Case number
    #[arg(value_name = "CASE", value_parser = case_number)]
    case_id: i64,
    /// The corrected payload: a file, or - for standard input
    #[arg(long, value_name = "FILE")]
    payload: PathBuf,
    /// Show how it differs, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Meant?
    #[command(flatten)]
    confirm: ConfirmArgs,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

pub(super) async fn correct<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &CorrectArgs,
    surroundings: &Surroundings<'_>,
) -> Result<(), Error> {
    let who = args.by.who();
    let by = args.by.actor(&who);
    by.check_reason().map_err(|refusal| {
        Error::new(Code::ActionRefused, format!("correct: {refusal} (--why)"))
    })?;
    let case = one_case(opened, args.case_id).await?;
    let current = current(&case);
    let payload = read(&args.payload, current)?;
    let rules = surroundings.rules(&case.row.envelope.message_type)?;
    rules.check(&payload).map_err(|faults| {
        let shown = faults.join("\n  ");
        let message = format!("the payload is not what its type's schema describes:\n  {shown}");
        Error::new(Code::PayloadInvalid, message)
    })?;
    let found = differences_of(current, &payload, &rules.sensitivity);
    let changed = changed(current, &payload);
    if !output.is_json() {
        let is_hidden = rules.sensitivity == Sensitivity::All && !changed.is_empty();
        let lines = match is_hidden {
            true => hidden_lines(&changed, case.case_id),
            false => lines(found.as_deref(), current, &payload),
        };
        for line in lines {
            output.say(&plain(&line));
        }
    }
    if args.dry_run {
        return report(output, &case, None, found.as_deref(), &changed);
    }
    args.confirm
        .ask(output, &format!("correct case {}?", case.case_id))?;
    let id = Uuid::now_v7().to_string();
    let request = ActOnCase {
        case_id: case.case_id,
        action: CaseAction::Correct {
            id: &id,
            payload: &payload,
        },
        expected: Some(case.standing.state),
        by,
    };
    let acted = opened.store.act_on_case(request).await;
    acted.map_err(|error| refusal(opened.url, &error))?;
    report(output, &case, Some(&id), found.as_deref(), &changed)
}

/// What would run if it were released as it is.
fn current(case: &Case) -> &Payload {
    let corrected = case
        .correction
        .as_ref()
        .map(|correction| &correction.payload);
    corrected.unwrap_or(&case.row.envelope.payload)
}

/// The new payload, of the same kind as the one there.
fn read(path: &Path, current: &Payload) -> Result<Payload, Error> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Error::new(Code::Input, format!("could not read {shown}")).with_source(error)
    };
    let mut bytes = Vec::new();
    let limit = PAYLOAD_BYTES_MAX + 1;
    if path == Path::new("-") {
        let input = std::io::stdin().lock().take(limit).read_to_end(&mut bytes);
        input.map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
    }
    let invalid = |message: String| Error::new(Code::PayloadInvalid, message);
    if bytes.len() as u64 > PAYLOAD_BYTES_MAX {
        return Err(invalid(format!(
            "{shown} has more than {PAYLOAD_BYTES_MAX} bytes"
        )));
    }
    let payload = match current {
        Payload::Binary(_) => Payload::Binary(bytes.into()),
        Payload::Json(_) => {
            let text = std::str::from_utf8(&bytes);
            let text = text.map_err(|_| invalid(format!("{shown} is not UTF-8")))?;
            let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_str(text);
            // Its words name a place and quote nothing.
            parsed.map_err(|error| invalid(format!("{shown} is not JSON: {error}")))?;
            // What an editor put around it is not part of it.
            Payload::Json(text.trim().into())
        }
    };
    if payload == *current {
        return Err(invalid("the payload is the same as before".to_owned()));
    }
    Ok(payload)
}

/// Where the payloads differ, without any value.
fn changed(before: &Payload, after: &Payload) -> Vec<String> {
    let value = |payload: &Payload| match payload {
        Payload::Json(text) => serde_json::from_str::<Value>(text).ok(),
        Payload::Binary(_) => None,
    };
    match (value(before), value(after)) {
        (Some(before), Some(after)) => changed_at(&before, &after),
        _ => Vec::new(),
    }
}

/// The same for people, where all values are hidden.
fn hidden_lines(changed: &[String], case_id: i64) -> Vec<String> {
    let line = |at: &String| match at.as_str() {
        "" => "~ the whole differs".to_owned(),
        at => format!("~ {at} differs"),
    };
    let mut lines: Vec<String> = changed.iter().take(CHANGED_SHOWN).map(line).collect();
    if let Some(more) = changed.len().checked_sub(CHANGED_SHOWN).filter(|n| *n > 0) {
        lines.push(format!("  and {more} more places"));
    }
    lines.push(format!(
        "the values are hidden, because nothing says which may be seen: x-sensitive in the type's \
         schema or sensitive in onceward.toml does; `onceward quarantine reveal {case_id} --why …` \
         shows the payload, and is recorded"
    ));
    lines
}

/// The difference for people.
pub(super) fn lines(
    found: Option<&[Difference]>,
    before: &Payload,
    after: &Payload,
) -> Vec<String> {
    let Some(found) = found else {
        return vec![format!("payload: {before:?} becomes {after:?}")];
    };
    if found.is_empty() {
        return vec!["payload: the same values, written otherwise".to_owned()];
    }
    found.iter().map(line).collect()
}

fn line(difference: &Difference) -> String {
    let at = match difference.at.as_str() {
        "" => "the whole",
        at => at,
    };
    let text = |value: &Value| match value {
        Value::String(text) if text == HIDDEN => HIDDEN.to_owned(),
        value => value.to_string(),
    };
    match &difference.change {
        Change::Added { after } => format!("+ {at}: {}", text(after)),
        Change::Removed { before } => format!("- {at}: {}", text(before)),
        Change::Changed { before, after } => {
            format!("~ {at}: {} becomes {}", text(before), text(after))
        }
    }
}

fn report(
    output: Output,
    case: &Case,
    id: Option<&str>,
    found: Option<&[Difference]>,
    changed: &[String],
) -> Result<(), Error> {
    let case_id = case.case_id;
    if output.is_json() {
        return output.json(&json!({
            "case_id": case_id,
            "is_dry_run": id.is_none(),
            "corrected_id": id,
            "differences": found,
            "changed_at": changed,
        }));
    }
    match id {
        Some(id) => output.line(&format!(
            "case {case_id}: corrected as {id}; `onceward quarantine release {case_id}` runs it"
        )),
        None => output.line(&format!("case {case_id}: nothing was changed")),
    }
}
