//! A message that always fails, and one that kills its process each time.

use std::collections::{BTreeMap, BTreeSet};

use super::books::{Effect, Judged, Side, compare, effects_of};
use super::depot::{BILLING, Depot, Fault, Scan, TRACKING, set_fault};
use super::stage::{GHENT, Stage};
use crate::error::{Code, Error};

/// Where the handler refuses.
const ATLANTIS: &str = "Atlantis";
/// Where it kills its process.
const BERMUDA: &str = "Bermuda";
/// Parcels that never come near either.
const HEALTHY: usize = 20;
/// Steps of each parcel.
const STEPS: u32 = 4;
/// Later scans of the two poisoned parcels.
const HELD: u64 = 2 * (STEPS as u64 - 2);
/// Deaths of a process that one message may cause.
const DEATHS_MAX: u32 = 3;
/// How often the process may end: each message that kills it, in each subscription, and once more
/// where several were in work.
const ENDS_MAX: u32 = 12;

/// The scan that is refused, and the one that kills.
const POISONED: [&str; 2] = ["refused-2", "killing-2"];

/// A case, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    scan: String,
    reason: String,
    deaths: u32,
}

/// What the records say.
struct Records {
    accepted: Vec<Scan>,
    /// Cases by subscription, before anybody acted on one.
    cases: BTreeMap<&'static str, Vec<Found>>,
    /// Effects by subscription at that moment.
    before: BTreeMap<&'static str, Vec<Effect>>,
    /// How often the process died.
    deaths: u32,
    /// At the end.
    sides: Vec<Side>,
}

fn scans() -> Vec<Scan> {
    let mut scans = Vec::new();
    for step in 1..=STEPS {
        for (parcel, place) in [("refused", ATLANTIS), ("killing", BERMUDA)] {
            let place = if step == 2 { place } else { GHENT };
            scans.push(Scan::of(parcel, step, place));
        }
        scans.extend((1..=HEALTHY).map(|n| Scan::of(&format!("parcel-{n}"), step, GHENT)));
    }
    scans
}

/// What a subscription is to do, in its order: where the key went on, the poisoned one comes last.
fn expected<'a>(subscription: &str, accepted: &'a [Scan]) -> Vec<&'a Scan> {
    let is_late = |scan: &&Scan| subscription == TRACKING && POISONED.contains(&scan.scan.as_str());
    let (late, mut all): (Vec<&Scan>, Vec<&Scan>) = accepted.iter().partition(is_late);
    all.extend(late);
    all
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    let store = stage.opened.store;
    set_fault(store, ATLANTIS, Some(Fault::Refuse)).await?;
    set_fault(store, BERMUDA, Some(Fault::Crash)).await?;
    let accepted = scans();
    stage.tell(&format!(
        "{} scans of {} parcels; one is refused for good, one kills its process each time.\n\
         Two subscriptions take them: tracking skips what is poisoned, billing holds its parcel.",
        accepted.len(),
        HEALTHY + 2
    ));
    let mut depot = stage.depot(None).may_end(ENDS_MAX);
    depot.start().await?;
    stage.accept(&accepted).await?;
    let mut deaths = 0;
    stage
        .until("the poisoned ones are cases", async || {
            if depot.has_ended()? {
                deaths += 1;
                stage.tell(&format!(
                    "  the process died ({deaths}); it is started again"
                ));
                depot.start().await?;
            }
            let (one, other) = (stage.cases(TRACKING).await?, stage.cases(BILLING).await?);
            Ok(one.len() >= POISONED.len() && other.len() >= POISONED.len())
        })
        .await?;
    stage.until_idle(TRACKING).await?;
    stage.until_left(BILLING, HELD).await?;
    let (mut cases, mut before) = (BTreeMap::new(), BTreeMap::new());
    for subscription in [TRACKING, BILLING] {
        cases.insert(subscription, found(stage, subscription).await?);
        before.insert(subscription, stage.depot_rows(subscription).await?);
    }
    stage.command(&["quarantine", "list"]).await?;
    depot.stop().await?;
    set_fault(store, BERMUDA, None).await?;
    stage.tell(
        "The handler that kills is mended and put into service. What was refused gets another \
         place;\nthen all of them go back.",
    );
    depot.start().await?;
    act(stage).await?;
    for subscription in [TRACKING, BILLING] {
        stage.until_idle(subscription).await?;
    }
    depot.stop().await?;
    let mut sides = Vec::new();
    for subscription in [TRACKING, BILLING] {
        let expected = expected(subscription, &accepted);
        let rows = stage.depot_rows(subscription).await?;
        sides.push(stage.side(subscription, expected, rows).await?);
    }
    Ok(judge(&Records {
        accepted,
        cases,
        before,
        deaths,
        sides,
    }))
}

async fn found<S: Depot>(stage: &Stage<'_, S>, subscription: &str) -> Result<Vec<Found>, Error> {
    let cases = stage.cases(subscription).await?.into_iter();
    let found = cases.map(|case| Found {
        scan: case.row.envelope.operation().to_owned(),
        reason: case.reason,
        deaths: case.spent.deaths,
    });
    Ok(found.collect())
}

/// What an operator does: another place for what was refused, and everything back.
async fn act<S: Depot>(stage: &Stage<'_, S>) -> Result<(), Error> {
    let right = Scan::of("refused", 2, GHENT);
    let text = serde_json::to_vec(&right)
        .map_err(|e| Error::new(Code::Demo, "could not write the correction").with_source(e))?;
    std::fs::write(stage.place.folder.join("right.json"), text)
        .map_err(|e| Error::new(Code::Demo, "could not write the correction").with_source(e))?;
    for subscription in [TRACKING, BILLING] {
        for case in stage.cases(subscription).await? {
            let number = case.case_id.to_string();
            if case.row.envelope.operation() == POISONED[0] {
                let args = [
                    "quarantine",
                    "correct",
                    &number,
                    "--payload",
                    "right.json",
                    "--yes",
                    "--why",
                    "there is no such place",
                ];
                stage.command(&args).await?;
            }
            let args = [
                "quarantine",
                "release",
                &number,
                "--yes",
                "--why",
                "it can be handled now",
            ];
            stage.command(&args).await?;
        }
    }
    Ok(())
}

fn judge(records: &Records) -> Judged {
    let mut judged = compare(records.accepted.len(), &records.sides);
    let healthy = |scan: &&Scan| scan.parcel.starts_with("parcel-");
    let healthy = effects_of(records.accepted.iter().filter(healthy));
    let wanted = BTreeSet::from([(POISONED[0], "permanent"), (POISONED[1], "worker_died")]);
    for subscription in [TRACKING, BILLING] {
        let cases = records
            .cases
            .get(subscription)
            .map_or(&[][..], Vec::as_slice);
        let found = cases.iter().map(|c| (c.scan.as_str(), c.reason.as_str()));
        let found: BTreeSet<(&str, &str)> = found.collect();
        let shown: Vec<String> = cases
            .iter()
            .map(|c| format!("{} {}", c.scan, c.reason))
            .collect();
        judged.claim(
            format!("{subscription}: the two poisoned scans are cases, and no other"),
            found == wanted && cases.len() == wanted.len(),
            shown.join(", "),
        );
        let killing = cases.iter().find(|case| case.scan == POISONED[1]);
        judged.claim_count(
            format!("{subscription}: deaths that the killing one caused before it was put aside"),
            killing.map_or(0, |case| case.deaths as usize),
            DEATHS_MAX as usize,
        );
        let before = records
            .before
            .get(subscription)
            .map_or(&[][..], Vec::as_slice);
        let unharmed = healthy.iter().filter(|effect| before.contains(effect));
        judged.claim_count(
            format!("{subscription}: scans of other parcels that were done meanwhile"),
            unharmed.count(),
            healthy.len(),
        );
        let later = before
            .iter()
            .filter(|(parcel, scan)| !parcel.starts_with("parcel-") && !scan.ends_with("-1"));
        let (what, wanted) = match subscription {
            BILLING => (
                "later scans of the poisoned parcels waited; done too early",
                0,
            ),
            _ => ("later scans of the poisoned parcels went on", HELD as usize),
        };
        judged.claim_count(format!("{subscription}: {what}"), later.count(), wanted);
    }
    judged.claim(
        "the process really died",
        records.deaths >= DEATHS_MAX,
        format!("{} times", records.deaths),
    );
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::{good, unmet};
    use super::*;

    fn records() -> Records {
        let accepted = scans();
        let case = |scan: &str, reason: &str, deaths| Found {
            scan: scan.to_owned(),
            reason: reason.to_owned(),
            deaths,
        };
        let cases = vec![
            case("refused-2", "permanent", 0),
            case("killing-2", "worker_died", 3),
        ];
        let of = |subscription: &'static str| {
            let scans: Vec<Scan> = expected(subscription, &accepted)
                .into_iter()
                .cloned()
                .collect();
            good(subscription, &scans)
        };
        let is_before = |subscription: &str, scan: &Scan| {
            let is_poisoned = POISONED.contains(&scan.scan.as_str());
            let is_behind = subscription == BILLING && !scan.parcel.starts_with("parcel-");
            !is_poisoned && (!is_behind || scan.step == 1)
        };
        let before = |subscription: &'static str| {
            let before = accepted.iter().filter(|scan| is_before(subscription, scan));
            (subscription, effects_of(before))
        };
        Records {
            cases: BTreeMap::from([(TRACKING, cases.clone()), (BILLING, cases)]),
            before: BTreeMap::from([before(TRACKING), before(BILLING)]),
            deaths: 6,
            sides: vec![of(TRACKING), of(BILLING)],
            accepted,
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
        assert!(judge(&records()).is_good(), "{:?}", judge(&records()));
        let cases = |r: &mut Records, of| r.cases.get_mut(of).unwrap().pop().unwrap();
        assert_eq!(faults(|r| drop(cases(r, TRACKING))), 2);
        assert_eq!(
            faults(|r| r.cases.get_mut(BILLING).unwrap()[1].deaths = 2),
            1
        );
        assert_eq!(
            faults(|r| r.cases.get_mut(BILLING).unwrap()[0].reason = "transient".into()),
            1
        );
        let harmed = |r: &mut Records| {
            r.before
                .get_mut(TRACKING)
                .unwrap()
                .retain(|e| e.1 != "parcel-7-3");
        };
        assert_eq!(faults(harmed), 1);
        let held = |r: &mut Records| {
            r.before
                .get_mut(TRACKING)
                .unwrap()
                .retain(|e| e.1 != "killing-3");
        };
        assert_eq!(faults(held), 1);
        let early = ("killing".to_owned(), "killing-3".to_owned());
        assert_eq!(
            faults(|r| r.before.get_mut(BILLING).unwrap().push(early)),
            1
        );
        assert_eq!(faults(|r| r.deaths = 0), 1);
        assert_eq!(faults(|r| r.sides[1].effects.reverse()), 1);
        assert_eq!(faults(|r| drop(r.sides[0].effects.pop())), 0, "one is lost");
    }
}
