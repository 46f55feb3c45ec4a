//! The receiver limits: 429 with the seconds, and with a date.

use onceward_core::retry::Spent;
use onceward_core::store::MessageState;

use super::books::{Judged, Side, compare};
use super::depot::{Depot, HOOK, HOOK_AT_ONCE, Scan};
use super::receiver::{Behaviour, Outcome, Quota, Request};
use super::stage::{GHENT, Stage};
use crate::error::{Code, Error};

/// Scans, each of a parcel of its own.
const SCANS: usize = 60;
/// What the receiver takes before it closes.
const QUOTA: Quota = Quota {
    requests: 20,
    closed_s: 1,
};
/// How often it closes for that.
const WINDOWS: usize = 2;
/// How long an answer takes, in milliseconds.
const ANSWER_AFTER_MS: u64 = 10;

/// What the records say.
struct Records {
    accepted: usize,
    /// What the messages in the window had used.
    spent: Vec<Spent>,
    cases: usize,
    /// The receiver's record.
    requests: Vec<Request>,
    side: Side,
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    let accepted: Vec<Scan> = (1..=SCANS)
        .map(|n| Scan::of(&format!("parcel-{n}"), 1, GHENT))
        .collect();
    let limiting = Behaviour {
        quota: Some(QUOTA),
        answer_after_ms: ANSWER_AFTER_MS,
        ..Behaviour::default()
    };
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mut receiver = stage.receiver(any_port, &limiting)?;
    let text = "the receiver did not say where it listens";
    let address = receiver.start().await?;
    let address = address.ok_or_else(|| Error::new(Code::Demo, text))?;
    let mut depot = stage.depot(Some(address));
    depot.start().await?;
    stage.tell(&format!(
        "{SCANS} scans are pushed to a receiver that takes {} and then answers 429 for a second or \
         two:\nonce with Retry-After in seconds, once with a date. A message has one attempt: if \
         waiting used it,\nit would be a case.",
        QUOTA.requests
    ));
    stage.accept(&accepted).await?;
    let mut spent = Vec::new();
    stage
        .until("messages wait for the window", async || {
            spent = waiting(stage, &accepted).await?;
            Ok(!spent.is_empty())
        })
        .await?;
    stage.command(&["backlog"]).await?;
    stage.until_idle(HOOK).await?;
    depot.stop().await?;
    receiver.stop().await?;
    let side = stage.side(HOOK, &accepted, stage.received()?).await?;
    let requests = stage.requests()?;
    for window in windows(&requests) {
        stage.tell(&format!(
            "  Retry-After: {} was answered to {} request(s)",
            window.retry_after, window.refused
        ));
    }
    Ok(judge(&Records {
        accepted: accepted.len(),
        spent,
        cases: stage.cases(HOOK).await?.len(),
        requests,
        side,
    }))
}

/// What those have used that are put off.
async fn waiting<S: Depot>(stage: &Stage<'_, S>, scans: &[Scan]) -> Result<Vec<Spent>, Error> {
    let mut all = Vec::new();
    for scan in scans {
        if let Some(MessageState::Deferred { spent, .. }) = stage.state(HOOK, &scan.scan).await? {
            all.push(spent);
        }
    }
    Ok(all)
}

/// A time in which the receiver takes nothing, as its record shows it.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    /// When it ends, in milliseconds since 1970.
    until_ms: u64,
    /// The header, as it was said first.
    retry_after: String,
    /// Requests that came before its end: all of them were turned away.
    refused: usize,
}

fn windows(requests: &[Request]) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for request in requests {
        let Outcome::Refused {
            until_ms: Some(until_ms),
            retry_after: Some(retry_after),
            ..
        } = &request.outcome
        else {
            continue;
        };
        match windows
            .iter_mut()
            .find(|window| window.until_ms == *until_ms)
        {
            Some(window) => window.refused += 1,
            None => windows.push(Window {
                until_ms: *until_ms,
                retry_after: retry_after.clone(),
                refused: 1,
            }),
        }
    }
    windows
}

fn judge(records: &Records) -> Judged {
    let mut judged = compare(records.accepted, std::slice::from_ref(&records.side));
    let windows = windows(&records.requests);
    judged.claim(
        "the receiver closed for a while, again and again",
        windows.len() >= WINDOWS,
        format!("{} times", windows.len()),
    );
    let is_date = |window: &&Window| window.retry_after.ends_with("GMT");
    let dates = windows.iter().filter(is_date).count();
    judged.claim(
        "it said so in seconds and as a date",
        dates > 0 && dates < windows.len(),
        format!("{dates} of {} as a date", windows.len()),
    );
    let came = windows.iter().map(|window| window.refused).max();
    let came = came.unwrap_or(0);
    judged.claim(
        "in a window nothing came but what was under way, whatever its key",
        came <= usize::from(HOOK_AT_ONCE),
        format!("{came} at most, of {HOOK_AT_ONCE} that may be under way"),
    );
    let failures: u32 = records.spent.iter().map(|spent| spent.failures).sum();
    let waits = records.spent.iter().filter(|spent| spent.waits > 0);
    judged.claim(
        "what waited for a window has used no attempt",
        failures == 0 && waits.count() > 0,
        format!("{failures} used by {} messages", records.spent.len()),
    );
    judged.claim_count("messages that became cases", records.cases, 0);
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::{good, unmet};
    use super::*;

    fn request(at_ms: u64, window: Option<(u64, &str)>) -> Request {
        Request {
            id: format!("at {at_ms}"),
            at_ms,
            under_way: 1,
            outcome: match window {
                Some((until_ms, retry_after)) => Outcome::Refused {
                    status: 429,
                    until_ms: Some(until_ms),
                    retry_after: Some(retry_after.to_owned()),
                },
                None => Outcome::Taken {
                    parcel: "parcel-1".to_owned(),
                },
            },
        }
    }

    fn records() -> Records {
        let scans = [
            Scan::of("parcel-1", 1, GHENT),
            Scan::of("parcel-2", 1, GHENT),
        ];
        let date = "Tue, 01 Dec 2026 00:00:05 GMT";
        Records {
            accepted: scans.len(),
            spent: vec![Spent {
                waits: 1,
                ..Spent::default()
            }],
            cases: 0,
            requests: vec![
                request(500, None),
                request(1_000, Some((2_000, "1"))),
                request(1_001, Some((2_000, "1"))),
                request(2_001, None),
                request(4_000, Some((5_000, date))),
                request(5_100, None),
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
        assert_eq!(faults(|r| r.spent[0].failures = 1), 1);
        assert_eq!(faults(|r| r.spent.clear()), 1);
        let early = |r: &mut Records| {
            let more = (0..7).map(|n| request(1_500 + n, Some((2_000, "1"))));
            r.requests.extend(more);
        };
        assert_eq!(faults(early), 1, "somebody did not wait");
        assert_eq!(
            faults(|r| drop(r.requests.remove(4))),
            2,
            "one form is missing"
        );
        assert_eq!(faults(|r| drop(r.side.effects.pop())), 0, "one is lost");
    }
}
