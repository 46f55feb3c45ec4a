//! `onceward quarantine reveal`: a case with everything that is hidden elsewhere. Recorded before
//! it is shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use onceward_console::view::{CaseView, Revealed};
use onceward_core::Payload;
use onceward_core::store::{ActOnCase, CaseAction, Cases, Operate};

use super::Surroundings;
use super::show::{lines, one_case};
use crate::commands::acting::{ActorArgs, case_number, refusal};
use crate::error::{Code, Error};
use crate::output::{Output, now};
use crate::store::Opened;

/// Options of `quarantine reveal`.
#[derive(Debug, Args)]
pub struct RevealArgs {
    /// Case number
    #[arg(value_name = "CASE", value_parser = case_number)]
    case_id: i64,
    /// Who.
    #[command(flatten)]
    by: ActorArgs,
}

pub(super) async fn reveal<S: Cases + Operate>(
    opened: Opened<'_, S>,
    output: Output,
    args: &RevealArgs,
    surroundings: &Surroundings<'_>,
) -> Result<(), Error> {
    let who = args.by.who();
    let by = args.by.actor(&who);
    by.check_reason()
        .map_err(|refusal| Error::new(Code::ActionRefused, format!("reveal: {refusal} (--why)")))?;
    // Whatever fails from here on, that somebody asked is on record.
    let request = ActOnCase {
        case_id: args.case_id,
        action: CaseAction::Reveal { is_permitted: true },
        expected: None,
        by,
    };
    if let Err(error) = opened.store.act_on_case(request).await {
        one_case(opened, args.case_id).await?;
        return Err(refusal(opened.url, &error));
    }
    let case = one_case(opened, args.case_id).await?;
    let sensitivity = surroundings.sensitivity(output, &case.row.envelope.message_type);
    let view = CaseView {
        case: &case,
        sensitivity: &sensitivity,
        now: now(),
    };
    if output.is_json() {
        return output.json(&Revealed::of(&view));
    }
    let mut shown = lines(&view);
    for (name, value) in &case.row.envelope.attributes {
        shown.push(("attribute", format!("{name} = {value}")));
    }
    shown.push(("whole failure", case.failure.message.clone()));
    if let Some(detail) = &case.failure.detail {
        shown.push(("detail", detail.clone()));
    }
    shown.push(data("data", &case.row.envelope.payload));
    if let Some(correction) = &case.correction {
        shown.push(data("corrected data", &correction.payload));
    }
    for (name, text) in shown {
        output.line(&format!("{name:<18} {text}"))?;
    }
    Ok(())
}

fn data(name: &'static str, payload: &Payload) -> (&'static str, String) {
    match payload {
        Payload::Json(text) => (name, text.to_string()),
        Payload::Binary(bytes) => (name, format!("base64 {}", STANDARD.encode(bytes))),
    }
}
