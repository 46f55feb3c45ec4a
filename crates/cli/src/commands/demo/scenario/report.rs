//! What a scenario says at its end.

use serde_json::json;

use super::Played;
use super::books::Judged;
use crate::commands::demo::place::Place;
use crate::error::Error;
use crate::output::Output;
use crate::store_url;

/// Findings shown one by one.
const FINDINGS_SHOWN: usize = 10;

/// The verdict as one JSON object.
pub(super) fn json(output: Output, played: &Played, kept: Option<&Place>) -> Result<(), Error> {
    let judged = &played.judged;
    output.json(&json!({
        "scenario": played.scenario.name(),
        "accepted": judged.accepted,
        "lost": judged.lost,
        "doubled": judged.doubled,
        "unasked": judged.unasked,
        "claims": judged.claims,
        "is_good": judged.is_good(),
        "seconds": (played.seconds * 100.0).round() / 100.0,
        "seed": played.seed,
        "folder": kept.map(|place| place.folder.display().to_string()),
        "store": kept.map(|place| store_url::redact(&place.url)),
    }))
}

/// The verdict, a line for each claim.
pub(super) fn people(output: Output, played: &Played, kept: Option<&Place>) -> Result<(), Error> {
    let judged = &played.judged;
    for line in lines(output, judged) {
        output.line(&line)?;
    }
    for finding in judged.findings.iter().take(FINDINGS_SHOWN) {
        output.line(&format!("  {}: {}", finding.what, finding.problem))?;
    }
    match judged.findings.len().checked_sub(FINDINGS_SHOWN) {
        Some(more) if more > 0 => output.line(&format!("  and {more} more"))?,
        _ => {}
    }
    let name = played.scenario.name();
    let seconds = played.seconds;
    output.line(&match judged.is_good() {
        true => output.good(&format!("{name}: all of it holds ({seconds:.1} s)")),
        false => output.bad(&format!("{name}: something does not hold ({seconds:.1} s)")),
    })?;
    match kept {
        Some(place) => {
            let folder = place.folder.display();
            output.line(&format!("records and logs   {folder}"))?;
            let store = store_url::redact(&place.url);
            output.line(&format!("look around        export ONCEWARD_STORE={store}"))?;
            output.line("                   onceward backlog; onceward quarantine list")
        }
        None => output.line(&format!(
            "nothing is left of this run; onceward demo --scenario {name} --keep keeps it"
        )),
    }
}

fn lines(output: Output, judged: &Judged) -> Vec<String> {
    let mark = |is_met: bool| match is_met {
        true => output.good("\u{2713}"),
        false => output.bad("\u{2717}"),
    };
    let count = |what: &str, found: u64| format!("{} {what}: {found}", mark(found == 0));
    let mut lines = vec![
        format!("  accepted: {}", judged.accepted),
        count("lost", judged.lost),
        count("doubled", judged.doubled),
        count("effects that nobody asked for", judged.unasked),
    ];
    let claims = judged.claims.iter();
    lines.extend(claims.map(|c| format!("{} {}: {}", mark(c.is_met), c.claim, c.found)));
    lines
}
