//! One hot key and one blocked key, beside a thousand others.

use super::books::{Effect, Judged, Side, compare};
use super::depot::{Depot, HOOK, Scan};
use super::receiver::{Behaviour, Outcome, Request};
use super::stage::{GHENT, Stage};
use crate::error::{Code, Error};

/// Scans of the hot parcel.
const HOT: u32 = 800;
/// Scans of the blocked parcel.
const BLOCKED: u32 = 20;
/// Parcels with one scan each.
const HEALTHY: usize = 1_000;
/// Where the receiver refuses.
const ATLANTIS: &str = "Atlantis";
/// How long an answer takes, in milliseconds.
const ANSWER_AFTER_MS: u64 = 3;

/// What the records say.
struct Records {
    accepted: usize,
    /// What was put aside so that the window moved on, when the others were done.
    held: u64,
    /// Reasons of the cases before anybody acted.
    cases: Vec<String>,
    /// What the receiver had of the blocked parcel before anybody acted.
    blocked_before: usize,
    /// The receiver's record.
    requests: Vec<Request>,
    side: Side,
}

/// The hot parcel and the blocked one are accepted first: everybody else is behind them.
fn scans() -> Vec<Scan> {
    let hot = (1..=HOT).map(|step| Scan::of("hot", step, GHENT));
    let blocked = (1..=BLOCKED).map(|step| {
        let place = if step == 1 { ATLANTIS } else { GHENT };
        Scan::of("blocked", step, place)
    });
    let healthy = (1..=HEALTHY).map(|n| Scan::of(&format!("parcel-{n}"), 1, GHENT));
    hot.chain(blocked).chain(healthy).collect()
}

fn is_healthy(effect: &Effect) -> bool {
    effect.0.starts_with("parcel-")
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    let accepted = scans();
    let refusing = Behaviour {
        refuses: Some(ATLANTIS.to_owned()),
        answer_after_ms: ANSWER_AFTER_MS,
        ..Behaviour::default()
    };
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut receiver = stage.receiver(any_port, &refusing)?;
    let text = "the receiver did not say where it listens";
    let address = receiver.start().await?;
    let address = address.ok_or_else(|| Error::new(Code::Demo, text))?;
    stage.tell(&format!(
        "{HOT} scans of one hot parcel, {BLOCKED} of a blocked one, and behind them one scan each of \
         {HEALTHY} others.\nA parcel's scans are pushed one after another, and wait behind its case."
    ));
    let mut depot = stage.depot(Some(address));
    depot.start().await?;
    stage.accept(&accepted).await?;
    stage
        .until("the others are done", async || {
            let received = stage.received()?;
            let is_broken = stage.broken.is_some() && stage.backlog(HOOK).await?.waiting == 0;
            Ok(is_broken || received.iter().filter(|e| is_healthy(e)).count() >= HEALTHY)
        })
        .await?;
    let backlog = stage.backlog(HOOK).await?;
    stage.tell(&format!("The {HEALTHY} others are done. What is left:"));
    stage.command(&["backlog"]).await?;
    let blocked_before = {
        let received = stage.received()?;
        received
            .iter()
            .filter(|effect| effect.0 == "blocked")
            .count()
    };
    let cases = stage.cases(HOOK).await?;
    stage.tell("The receiver learns of that place; the blocked parcel goes on.");
    stage.behave(&Behaviour {
        refuses: None,
        ..refusing
    })?;
    for case in &cases {
        let number = case.case_id.to_string();
        let why = "the receiver knows the place now";
        let args = ["quarantine", "release", &number, "--yes", "--why", why];
        stage.command(&args).await?;
    }
    stage.until_idle(HOOK).await?;
    depot.stop().await?;
    receiver.stop().await?;
    let few = accepted
        .iter()
        .filter(|scan| !scan.parcel.starts_with("parcel-"));
    let mut side = stage.side(HOOK, few, stage.received()?).await?;
    // One by one only where something could wait; of the others the backlog has nothing.
    let healthy = accepted
        .iter()
        .filter(|scan| scan.parcel.starts_with("parcel-"));
    for (parcel, scan) in super::books::effects_of(healthy) {
        side.states.insert(scan.clone(), "delivered".to_owned());
        side.expected.push((parcel, scan));
    }
    Ok(judge(&Records {
        accepted: accepted.len(),
        held: backlog.deferred.held,
        cases: cases.into_iter().map(|case| case.reason).collect(),
        blocked_before,
        requests: stage.requests()?,
        side,
    }))
}

/// When scans were taken whose parcel is one of these, in milliseconds after the first request; in
/// the order of the record.
fn moments(requests: &[Request], is_one: impl Fn(&str) -> bool) -> Vec<u64> {
    let first_ms = requests.iter().map(|request| request.at_ms).min();
    let moment = |request: &Request| match &request.outcome {
        Outcome::Taken { parcel } if is_one(parcel) => Some(request.at_ms - first_ms?),
        _ => None,
    };
    requests.iter().filter_map(moment).collect()
}

fn judge(records: &Records) -> Judged {
    let mut judged = compare(records.accepted, std::slice::from_ref(&records.side));
    let effects = &records.side.effects;
    let last_healthy = effects.iter().rposition(is_healthy);
    let until_then = last_healthy.map_or(&[][..], |at| &effects[..at]);
    let hot = until_then.iter().filter(|effect| effect.0 == "hot").count();
    judged.claim(
        format!("when the {HEALTHY} others were done, most of the hot parcel was not"),
        last_healthy.is_some() && hot <= HOT as usize / 2,
        format!("{hot} of {HOT} scans of the hot parcel came before the last of the others"),
    );
    let median = |mut of: Vec<u64>| {
        of.sort_unstable();
        of.get(of.len() / 2).copied().unwrap_or(0)
    };
    let others = median(moments(&records.requests, |p| p.starts_with("parcel-")));
    let hot = median(moments(&records.requests, |p| p == "hot"));
    judged.claim(
        "half of the others were done before half of the hot parcel was",
        others < hot,
        format!("{others} ms and {hot} ms after the first"),
    );
    judged.claim(
        "the hot parcel did not fill the window: scans of it were put aside",
        records.held >= u64::from(BLOCKED),
        format!(
            "{} held at that moment, {} of them behind the case",
            records.held,
            BLOCKED - 1
        ),
    );
    judged.claim(
        "the blocked parcel has one case, and its later scans waited for it",
        records.cases == ["permanent"] && records.blocked_before == 0,
        format!(
            "{}; {} of its scans done by then",
            records.cases.join(", "),
            records.blocked_before
        ),
    );
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::{good, unmet};
    use super::*;

    fn records() -> Records {
        let mut scans = scans();
        // The others come between the first ones of the hot parcel.
        scans.sort_by_key(|scan| match scan.parcel.as_str() {
            "hot" if scan.step <= 50 => 0,
            "hot" | "blocked" => 2,
            _ => 1,
        });
        let requests = scans.iter().enumerate().map(|(n, scan)| Request {
            id: scan.scan.clone(),
            at_ms: n as u64,
            under_way: 1,
            outcome: Outcome::Taken {
                parcel: scan.parcel.clone(),
            },
        });
        Records {
            accepted: scans.len(),
            held: 300,
            cases: vec!["permanent".to_owned()],
            blocked_before: 0,
            requests: requests.collect(),
            side: good(HOOK, &scans),
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
        assert!(
            judge(&records()).is_good(),
            "{:?}",
            judge(&records()).claims
        );
        let hot_first = |r: &mut Records| {
            r.side.effects.sort_by_key(is_healthy);
            r.requests.sort_by_key(|r| r.id.starts_with("parcel-"));
            for (n, request) in r.requests.iter_mut().enumerate() {
                request.at_ms = n as u64;
            }
        };
        assert_eq!(faults(hot_first), 2);
        assert_eq!(faults(|r| r.held = u64::from(BLOCKED) - 1), 1);
        assert_eq!(faults(|r| r.cases.clear()), 1);
        assert_eq!(faults(|r| r.blocked_before = 1), 1);
        assert_eq!(faults(|r| r.side.effects.reverse()), 2, "in no order");
        let lost = |r: &mut Records| r.side.effects.retain(|e| e.1 != "blocked-20");
        assert_eq!(faults(lost), 0, "one is lost");
    }
}
