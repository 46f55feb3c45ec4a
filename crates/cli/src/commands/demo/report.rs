//! What the demo says at its end.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::place::Place;
use super::run::Ran;
use super::verdict::{Finding, Verdict};
use crate::error::Error;
use crate::output::{Output, align_right, table};
use crate::store_url;

/// Findings shown one by one.
const FINDINGS_SHOWN: usize = 10;

/// The verdict as one JSON object.
pub(super) fn json(
    output: Output,
    verdict: &Verdict,
    ran: &Ran,
    kept: Option<&Place>,
) -> Result<(), Error> {
    let kills: u32 = ran.kills.values().sum();
    let by_kind: BTreeMap<&str, u32> = ran.kills.iter().map(|(k, n)| (k.name(), *n)).collect();
    let refused: Vec<_> = ran
        .refused
        .iter()
        .map(|refused| json!({ "line": refused.line, "reason": refused.reason }))
        .collect();
    output.json(&json!({
        "accepted": verdict.accepted,
        "shipped": verdict.shipped,
        "rejected": verdict.rejected,
        "quarantined": verdict.quarantined,
        "pending": verdict.pending,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "unasked": verdict.unasked,
        "duplicates_suppressed": verdict.duplicates_suppressed,
        "kills": kills,
        "kills_wanted": ran.kills_wanted,
        "kills_by_process": by_kind,
        "refused": refused,
        "seconds": (ran.seconds * 100.0).round() / 100.0,
        "seed": ran.seed,
        "folder": kept.map(|place| place.folder.display().to_string()),
        "store": kept.map(|place| store_url::redact(&place.url)),
    }))
}

/// The verdict as a table, with where to look further.
pub(super) fn people(
    output: Output,
    verdict: &Verdict,
    ran: &Ran,
    kept: Option<&Place>,
) -> Result<(), Error> {
    let mut rows = table(&["verdict", "", "by"]);
    let killed: Vec<String> = ran
        .kills
        .iter()
        .map(|(kind, count)| format!("{} {count}", kind.name()))
        .collect();
    let kills: u32 = ran.kills.values().sum();
    for (what, count, by) in [
        (
            "accepted",
            verdict.accepted.to_string(),
            "the clients' answers",
        ),
        ("shipped", verdict.shipped.to_string(), "the shop's tables"),
        (
            "rejected",
            verdict.rejected.to_string(),
            "the shop's tables: the carrier does not deliver there, which is final and no fault",
        ),
        ("quarantined", verdict.quarantined.to_string(), "open cases"),
        ("pending", verdict.pending.to_string(), "the order book"),
        (
            "lost",
            verdict.lost.to_string(),
            "answers against orders and outcomes",
        ),
        (
            "doubled",
            verdict.doubled.to_string(),
            "orders, shipments and the carrier's record",
        ),
        (
            "duplicates suppressed",
            verdict.duplicates_suppressed.to_string(),
            "answers given again, repeats at the carrier",
        ),
        ("kills", kills.to_string(), &killed.join(", ")),
        ("seconds", format!("{:.1}", ran.seconds), ""),
    ] {
        rows.add_row([what, &count, by]);
    }
    align_right(&mut rows, &[1]);
    output.table(&rows)?;
    if verdict.unasked > 0 {
        output.line(&format!("work without an order: {}", verdict.unasked))?;
    }
    output.line(&match verdict.is_good() {
        true => output.good("nothing was lost and nothing was done twice"),
        false => output.bad("something was lost or done twice"),
    })?;
    findings(output, &verdict.findings)?;
    if kills < ran.kills_wanted {
        output.say(&format!(
            "{kills} of {} kills: there was not enough unfinished work for more",
            ran.kills_wanted
        ));
    }
    match kept {
        Some(place) => look_further(output, place),
        None => output.line(&format!(
            "nothing is left of this run; onceward demo --keep --seed {} keeps its records and logs",
            ran.seed
        )),
    }
}

fn findings(output: Output, findings: &[Finding]) -> Result<(), Error> {
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        output.line(&format!("  {}: {}", finding.what, finding.problem))?;
    }
    match findings.len().checked_sub(FINDINGS_SHOWN) {
        Some(more) if more > 0 => output.line(&format!("  and {more} more")),
        _ => Ok(()),
    }
}

fn look_further(output: Output, place: &Place) -> Result<(), Error> {
    let store = store_url::redact(&place.url);
    let shown = |path: &Path| path.display().to_string();
    for (what, at) in [
        ("the clients' answers", shown(&place.answers())),
        ("the carrier's record", shown(&place.carrier_record())),
        ("what each process said", shown(&place.folder.join("*.log"))),
        (
            "how the subscriptions stand",
            format!("onceward backlog --store {store}"),
        ),
        (
            "one order from end to end",
            format!("onceward operation show CHECKOUT_ID --store {store}"),
        ),
        (
            "messages that cannot go on",
            format!("onceward quarantine list --store {store}"),
        ),
    ] {
        output.line(&format!("{what:<28} {at}"))?;
    }
    Ok(())
}
