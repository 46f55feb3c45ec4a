//! Versions that come late, come back, or never come.

use super::books::{Effect, Judged, Side, compare};
use super::depot::{Depot, GAP_LIMIT_MS, Scan, TRACKING};
use super::stage::{GHENT, Stage, word};
use crate::error::Error;

/// Parcels whose scans come in any order.
const SHUFFLED: usize = 10;
/// Scans of each of them.
const STEPS: u32 = 6;

/// What the records say.
struct Records {
    accepted: usize,
    /// How the fourth version stood while the third was missing, and what was applied then.
    waiting: (String, Vec<String>),
    /// How a version that comes back ended.
    backward: String,
    /// The case of a gap that nothing fills, and what was applied then.
    given_up: (String, Vec<String>),
    /// How the missing one ended that came after all.
    too_late: String,
    /// At the end.
    side: Side,
}

/// Parcels that begin with their first scan and go on in any order.
fn shuffled(seed: u64) -> (Vec<Scan>, Vec<Scan>) {
    let parcels: Vec<String> = (1..=SHUFFLED).map(|n| format!("parcel-{n}")).collect();
    let first = parcels.iter().map(|parcel| Scan::of(parcel, 1, GHENT));
    let rest = parcels
        .iter()
        .flat_map(|parcel| (2..=STEPS).map(move |step| Scan::of(parcel, step, GHENT)));
    let mut rest: Vec<Scan> = rest.collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut rest);
    (first.collect(), rest)
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    let (first, rest) = shuffled(stage.seed);
    stage.tell(&format!(
        "{SHUFFLED} parcels whose scans come in any order, one whose scan 3 is late, and one whose \
         scan 2 never comes.\nThe subscription waits {GAP_LIMIT_MS} ms for what is missing."
    ));
    let mut depot = stage.depot(None);
    depot.start().await?;
    let step = |parcel: &str, step| Scan::of(parcel, step, GHENT);
    let late = [step("late", 1), step("late", 2), step("late", 4)];
    stage.accept(&first).await?;
    stage.accept(&rest).await?;
    stage.accept(&late).await?;
    stage
        .until("scan 4 waits for scan 3", async || {
            let state = stage.state(TRACKING, "late-4").await?;
            Ok(word(state.as_ref()) == "deferred gap")
        })
        .await?;
    let waiting = (
        standing(stage, "late-4").await?,
        applied(stage, "late").await?,
    );
    stage.command(&["operation", "show", "late-4"]).await?;
    stage.tell("Now scan 3 comes, and after it scan 2 once more under another name.");
    stage.accept(&[step("late", 3)]).await?;
    let again = Scan {
        scan: "late-2-again".to_owned(),
        ..step("late", 2)
    };
    stage.accept(std::slice::from_ref(&again)).await?;
    stage.until_idle(TRACKING).await?;
    let backward = standing(stage, &again.scan).await?;
    stage.command(&["operation", "show", &again.scan]).await?;
    let never = [step("never", 1), step("never", 3), step("never", 4)];
    stage.accept(&never).await?;
    stage
        .until("the gap that nothing fills is a case", async || {
            Ok(!stage.cases(TRACKING).await?.is_empty())
        })
        .await?;
    let given_up = (
        standing(stage, "never-3").await?,
        applied(stage, "never").await?,
    );
    stage.command(&["quarantine", "list"]).await?;
    stage.tell("Somebody knows that scan 2 will not come, and lets scan 3 pass over the gap.");
    for case in stage.cases(TRACKING).await? {
        let number = case.case_id.to_string();
        let why = "scan 2 was never made";
        let args = ["quarantine", "release", &number, "--yes", "--why", why];
        stage.command(&args).await?;
    }
    stage.until_idle(TRACKING).await?;
    stage.accept(&[step("never", 2)]).await?;
    stage.until_idle(TRACKING).await?;
    let too_late = standing(stage, "never-2").await?;
    depot.stop().await?;
    let mut accepted = [first, rest, late.to_vec(), never.to_vec()].concat();
    accepted.push(step("late", 3));
    let expected = in_order(accepted);
    let rows = stage.depot_rows(TRACKING).await?;
    let side = stage.side(TRACKING, &expected, rows).await?;
    Ok(judge(&Records {
        // Two more were accepted that are to have no effect.
        accepted: expected.len() + 2,
        waiting,
        backward,
        given_up,
        too_late,
        side,
    }))
}

/// The order of versions, not of the log.
fn in_order(mut scans: Vec<Scan>) -> Vec<Scan> {
    scans.sort_by_key(|scan| scan.step);
    scans
}

async fn standing<S: Depot>(stage: &Stage<'_, S>, scan: &str) -> Result<String, Error> {
    Ok(word(stage.state(TRACKING, scan).await?.as_ref()))
}

async fn applied<S: Depot>(stage: &Stage<'_, S>, parcel: &str) -> Result<Vec<String>, Error> {
    let rows: Vec<Effect> = stage.depot_rows(TRACKING).await?;
    let of = rows.into_iter().filter(|(of, _)| of == parcel);
    Ok(of.map(|(_, scan)| scan).collect())
}

fn judge(records: &Records) -> Judged {
    let mut judged = compare(records.accepted, std::slice::from_ref(&records.side));
    let (state, applied) = &records.waiting;
    judged.claim(
        "scan 4 waited while scan 3 was missing",
        state == "deferred gap" && *applied == ["late-1", "late-2"],
        format!("{state}; done by then: {}", applied.join(", ")),
    );
    judged.claim(
        "a version that comes back is refused for good",
        records.backward == "superseded",
        &records.backward,
    );
    let (state, applied) = &records.given_up;
    judged.claim(
        "a gap that nothing fills becomes a case, and holds its parcel",
        state == "case version_gap" && *applied == ["never-1"],
        format!("{state}; done by then: {}", applied.join(", ")),
    );
    judged.claim(
        "what was missing is refused once it was passed over",
        records.too_late == "superseded",
        &records.too_late,
    );
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::{good, unmet};
    use super::*;

    fn records() -> Records {
        let (first, rest) = shuffled(3);
        let scans = in_order([first, rest].concat());
        Records {
            accepted: scans.len() + 2,
            waiting: (
                "deferred gap".to_owned(),
                vec!["late-1".to_owned(), "late-2".to_owned()],
            ),
            backward: "superseded".to_owned(),
            given_up: ("case version_gap".to_owned(), vec!["never-1".to_owned()]),
            too_late: "superseded".to_owned(),
            side: good(TRACKING, &scans),
        }
    }

    fn faults(change: impl FnOnce(&mut Records)) -> usize {
        let mut records = records();
        change(&mut records);
        let judged = judge(&records);
        assert!(!judged.is_good());
        unmet(&judged).len()
    }

    #[test]
    fn the_verdict_can_fail() {
        assert!(judge(&records()).is_good());
        assert_eq!(faults(|r| r.waiting.0 = "done".to_owned()), 1);
        assert_eq!(faults(|r| r.waiting.1.push("late-4".to_owned())), 1);
        assert_eq!(faults(|r| r.backward = "done".to_owned()), 1);
        assert_eq!(faults(|r| r.given_up.0 = "done".to_owned()), 1);
        assert_eq!(faults(|r| r.given_up.1.push("never-4".to_owned())), 1);
        assert_eq!(faults(|r| r.too_late = "done".to_owned()), 1);
        assert_eq!(faults(|r| r.side.effects.reverse()), 1);
        assert_eq!(faults(|r| drop(r.side.effects.pop())), 0, "one is lost");
        let refused = ("late".to_owned(), "late-2-again".to_owned());
        assert_eq!(
            faults(|r| r.side.effects.push(refused)),
            0,
            "one is unasked"
        );
    }
}
