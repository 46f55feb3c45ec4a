//! The receiver of a push is away for a while, and then too busy for a while.

use super::books::{Judged, Side, compare};
use super::depot::{Depot, HOOK, HOOK_AT_ONCE, Scan};
use super::receiver::{Behaviour, Outcome, Request};
use super::stage::{GHENT, Stage};
use crate::commands::demo::parts::Part;
use crate::error::{Code, Error};
use onceward_core::store::MessageState;

/// Parcels, and scans of each.
const PARCELS: usize = 40;
const STEPS: u32 = 6;
/// Scans that have arrived before the receiver is killed.
const BEFORE: usize = 20;
/// Requests that the busy receiver turns away before it is well again.
const PROBES: usize = 3;
/// How long an answer takes, in milliseconds.
const ANSWER_AFTER_MS: u64 = 15;
/// What the process says when the breaker opens, and when it closes.
const PAUSES: &str = "work pauses";
const GOES_ON: &str = "work goes on";

/// What the records say.
struct Records {
    accepted: usize,
    /// Attempts that were used when the receiver had turned one request away, and after several
    /// more.
    used: (u32, u32),
    /// Cases at the end.
    cases: usize,
    /// How often the breaker opened and closed.
    turns: (usize, usize),
    /// The receiver's record.
    requests: Vec<Request>,
    side: Side,
}

fn scans() -> Vec<Scan> {
    let steps = (1..=STEPS).flat_map(|step| (1..=PARCELS).map(move |n| (n, step)));
    steps
        .map(|(n, step)| Scan::of(&format!("parcel-{n}"), step, GHENT))
        .collect()
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    let accepted = scans();
    let well = Behaviour {
        answer_after_ms: ANSWER_AFTER_MS,
        ..Behaviour::default()
    };
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut receiver = stage.receiver(any_port, &well)?;
    let address = receiver.start().await?;
    let text = "the receiver did not say where it listens";
    let address = address.ok_or_else(|| Error::new(Code::Demo, text))?;
    let mut depot = stage.depot(Some(address));
    depot.start().await?;
    stage.accept(&accepted).await?;
    stage.tell(&format!(
        "{} scans are pushed to a receiver, which is killed while it works. A message may fail once:\n\
         what the kill cuts off. If the outage used attempts, there would be cases.",
        accepted.len()
    ));
    stage
        .until("some have arrived", async || {
            Ok(stage.requests()?.len() >= BEFORE)
        })
        .await?;
    stage
        .until("the receiver is killed at work", async || {
            receiver.kill_at_work().await
        })
        .await?;
    stage
        .until("the breaker opens", async || {
            Ok(stage.said(&depot).contains(PAUSES))
        })
        .await?;
    stage.command(&["backlog"]).await?;
    stage.tell("The receiver is back, but answers 503: one request at a time asks how it is.");
    let busy = Behaviour {
        is_busy: true,
        ..well.clone()
    };
    let mut receiver = stage.receiver(address, &busy)?;
    receiver.start().await?;
    let has_turned_away = async |times| {
        let turned_away = async || Ok(turned_away(&stage.requests()?).count() >= times);
        stage.until("it has turned some away", turned_away).await
    };
    has_turned_away(1).await?;
    let used_at_first = used(stage, &accepted).await?;
    has_turned_away(1 + PROBES).await?;
    let used_at_last = used(stage, &accepted).await?;
    stage.tell("It is well again.");
    stage.behave(&well)?;
    stage.until_idle(HOOK).await?;
    let turns = turns(stage, &depot);
    depot.stop().await?;
    receiver.stop().await?;
    let side = stage.side(HOOK, &accepted, stage.received()?).await?;
    Ok(judge(&Records {
        accepted: accepted.len(),
        used: (used_at_first, used_at_last),
        cases: stage.cases(HOOK).await?.len(),
        turns,
        requests: stage.requests()?,
        side,
    }))
}

/// Attempts that were used and count.
async fn used<S: Depot>(stage: &Stage<'_, S>, scans: &[Scan]) -> Result<u32, Error> {
    let mut used = 0;
    for scan in scans {
        if let Some(MessageState::Deferred { spent, .. }) = stage.state(HOOK, &scan.scan).await? {
            used += spent.failures;
        }
    }
    Ok(used)
}

fn turns<S: Depot>(stage: &Stage<'_, S>, depot: &Part) -> (usize, usize) {
    let said = stage.said(depot);
    (said.matches(PAUSES).count(), said.matches(GOES_ON).count())
}

fn turned_away(requests: &[Request]) -> impl Iterator<Item = &Request> {
    requests
        .iter()
        .filter(|request| matches!(request.outcome, Outcome::Refused { .. }))
}

fn judge(records: &Records) -> Judged {
    let mut judged = compare(records.accepted, std::slice::from_ref(&records.side));
    judged.claim_count("messages that became cases", records.cases, 0);
    let (opened, closed) = records.turns;
    judged.claim(
        "the breaker opened, and closed again",
        opened > 0 && closed > 0,
        format!("opened {opened}, closed {closed}"),
    );
    let (first, last) = records.used;
    judged.claim(
        "only what the kill cut off used an attempt",
        first <= u32::from(HOOK_AT_ONCE) && last <= first,
        format!(
            "{first} of at most {HOOK_AT_ONCE} under way, {} later",
            last.saturating_sub(first)
        ),
    );
    let probes: Vec<&Request> = turned_away(&records.requests).collect();
    let alone = probes
        .iter()
        .filter(|request| request.under_way == 1)
        .count();
    judged.claim(
        "while it was busy, one request at a time asked how it is",
        probes.len() >= PROBES && alone == probes.len(),
        format!("{alone} of {} were alone", probes.len()),
    );
    let was_busy = |request: &Request| matches!(request.outcome, Outcome::Refused { .. });
    let last_busy = records.requests.iter().rposition(was_busy);
    let after = last_busy.map_or(&[][..], |at| &records.requests[at + 1..]);
    let first = after.first().map_or(0, |request| request.under_way);
    let most = after.iter().map(|request| request.under_way).max();
    let most = most.unwrap_or(0);
    judged.claim(
        "then work came back by and by",
        first == 1 && most > 1,
        format!("{first} at once at first, {most} at last"),
    );
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::{good, unmet};
    use super::*;

    fn request(id: &str, under_way: u32, status: Option<u16>) -> Request {
        Request {
            id: id.to_owned(),
            at_ms: 0,
            under_way,
            outcome: match status {
                Some(status) => Outcome::Refused {
                    status,
                    until_ms: None,
                    retry_after: None,
                },
                None => Outcome::Taken {
                    parcel: "parcel-1".to_owned(),
                },
            },
        }
    }

    fn records() -> Records {
        let scans = scans();
        Records {
            accepted: scans.len(),
            used: (4, 4),
            cases: 0,
            turns: (1, 1),
            requests: vec![
                request("a", 5, None),
                request("b", 1, Some(503)),
                request("c", 1, Some(503)),
                request("d", 1, Some(503)),
                request("d", 1, None),
                request("c", 2, None),
            ],
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
        assert!(judge(&records()).is_good());
        assert_eq!(faults(|r| r.cases = 1), 1);
        assert_eq!(faults(|r| r.turns = (0, 0)), 1);
        assert_eq!(faults(|r| r.used = (9, 9)), 1, "more than were under way");
        assert_eq!(faults(|r| r.used = (4, 5)), 1, "the outage used one");
        assert_eq!(faults(|r| r.requests[2].under_way = 2), 1);
        assert_eq!(faults(|r| drop(r.requests.remove(1))), 1);
        assert_eq!(faults(|r| r.requests[4].under_way = 3), 1, "all at once");
        assert_eq!(faults(|r| drop(r.requests.pop())), 1, "never more than one");
        assert_eq!(faults(|r| drop(r.side.effects.pop())), 0, "one is lost");
    }
}
