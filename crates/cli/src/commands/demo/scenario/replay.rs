//! A bug, the cases that it makes, and the campaigns that send them out again.

use onceward_core::Timestamp;
use onceward_core::campaign::{CampaignState, Counts, ItemState};
use onceward_core::store::{Campaign, CampaignItem, CampaignQuery, ItemQuery};

use super::books::{Effect, Judged, Side, compare};
use super::depot::{Depot, Fault, Scan, TRACKING, set_fault};
use super::stage::{GHENT, Stage};
use crate::error::Error;

/// Parcels whose first scan the bug refuses, and parcels without trouble.
const REFUSED: usize = 24;
const HEALTHY: usize = 6;
/// Scans of each.
const STEPS: u32 = 3;
/// Where the bug is.
const ATLANTIS: &str = "Atlantis";
/// Messages that go out first.
const CANARY: usize = 3;
/// Least time over which the ramp has to spread the rest, in milliseconds.
const SPREAD_MS_MIN: i64 = 500;

/// What the records say.
struct Records {
    accepted: usize,
    /// Cases that the bug made.
    cases: usize,
    /// Where the campaign before the bug was mended ended.
    first: (CampaignState, Counts),
    /// Where the one after it ended.
    second: CampaignState,
    /// Its messages: where each is, and when it went out.
    items: Vec<(ItemState, Option<Timestamp>)>,
    /// Effects of messages that had a case, when the canary was looked at.
    at_canary: Vec<Effect>,
    /// Whether the process that drove the second one was killed before its end.
    was_killed: bool,
    side: Side,
}

fn scans() -> Vec<Scan> {
    let mut scans = Vec::new();
    for step in 1..=STEPS {
        let place = if step == 1 { ATLANTIS } else { GHENT };
        scans.extend((1..=REFUSED).map(|n| Scan::of(&format!("refused-{n}"), step, place)));
        scans.extend((1..=HEALTHY).map(|n| Scan::of(&format!("parcel-{n}"), step, GHENT)));
    }
    scans
}

fn had_case(effect: &Effect) -> bool {
    effect.0.starts_with("refused-") && effect.1.ends_with("-1")
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    let store = stage.opened.store;
    set_fault(store, ATLANTIS, Some(Fault::Refuse)).await?;
    let accepted = scans();
    stage.tell(&format!(
        "{} scans of {} parcels; a bug refuses the first scan of {REFUSED} of them. Each is a case, \
         and holds its parcel.",
        accepted.len(),
        REFUSED + HEALTHY
    ));
    let mut depot = stage.depot(None);
    depot.start().await?;
    stage.accept(&accepted).await?;
    stage
        .until("all are cases", async || {
            Ok(stage.cases(TRACKING).await?.len() >= REFUSED)
        })
        .await?;
    let cases = stage.cases(TRACKING).await?.len();
    stage.command(&["quarantine", "groups"]).await?;
    stage.tell("Somebody believes that it is mended, and it is not: the canary fails.");
    let first = plan(stage, &["--why", "should be mended"]).await?;
    stage.command(&["replay", "start", &first, "--yes"]).await?;
    stage
        .until("the campaign stops itself", async || {
            let campaign = campaign(stage, &first).await?;
            Ok(campaign.standing.state.is_over() && campaign.counts.running == 0)
        })
        .await?;
    stage
        .command(&["replay", "show", &first, "--limit", "3"])
        .await?;
    stage.tell("Now the bug is mended and the mended process runs. The canary waits for a person.");
    depot.stop().await?;
    set_fault(store, ATLANTIS, None).await?;
    depot.start().await?;
    let pace = [
        "--verify",
        "person",
        "--rate",
        "8",
        "--ramp",
        "2s",
        "--why",
        "mended and looked at",
    ];
    let second = plan(stage, &pace).await?;
    stage
        .command(&["replay", "start", &second, "--yes"])
        .await?;
    stage
        .until("the canary waits for a person", async || {
            let state = campaign(stage, &second).await?.standing.state;
            Ok(state == CampaignState::Verifying)
        })
        .await?;
    let at_canary = repaired(stage).await?;
    stage.tell(&format!(
        "  the depot has the first scan of {}: the canary went well",
        at_canary.len()
    ));
    stage.command(&["replay", "resume", &second]).await?;
    stage
        .until("a part of it is done", async || {
            Ok(campaign(stage, &second).await?.counts.done >= 2 * CANARY as u64)
        })
        .await?;
    depot.kill().await?;
    let was_killed = !campaign(stage, &second).await?.standing.state.is_over();
    stage.tell("Whoever drove it was killed with SIGKILL. Another process takes it on.");
    let mut depot = stage.depot(None);
    depot.start().await?;
    stage
        .until("the campaign ends", async || {
            let campaign = campaign(stage, &second).await?;
            Ok(campaign.standing.state.is_over() && campaign.counts.running == 0)
        })
        .await?;
    stage
        .command(&["replay", "show", &second, "--limit", "3"])
        .await?;
    stage.until_idle(TRACKING).await?;
    depot.stop().await?;
    let rows = stage.depot_rows(TRACKING).await?;
    let first = campaign(stage, &first).await?;
    let gone_out = items(stage, &second).await?.into_iter();
    Ok(judge(&Records {
        accepted: accepted.len(),
        cases,
        first: (first.standing.state, first.counts),
        second: campaign(stage, &second).await?.standing.state,
        items: gone_out.map(|item| (item.state, item.started_at)).collect(),
        at_canary,
        was_killed,
        side: stage.side(TRACKING, &accepted, rows).await?,
    }))
}

/// Plans a campaign over all cases; returns its number.
async fn plan<S: Depot>(stage: &Stage<'_, S>, more: &[&str]) -> Result<String, Error> {
    let canary = CANARY.to_string();
    let mut args = vec![
        "replay",
        "plan",
        "--subscription",
        TRACKING,
        "--canary",
        &canary,
    ];
    args.extend(more);
    stage.command(&args).await?;
    let query = CampaignQuery {
        rows_max: 1_000,
        ..CampaignQuery::default()
    };
    let planned = stage
        .opened
        .check(stage.opened.store.campaigns(query).await)?;
    let number = planned.last().map_or(0, |campaign| campaign.campaign_id);
    Ok(number.to_string())
}

async fn campaign<S: Depot>(stage: &Stage<'_, S>, number: &str) -> Result<Campaign, Error> {
    let query = CampaignQuery {
        campaign_id: number.parse().ok(),
        ..CampaignQuery::default()
    };
    let found = stage
        .opened
        .check(stage.opened.store.campaigns(query).await)?
        .pop();
    found.ok_or_else(|| {
        let text = format!("campaign {number} is gone");
        Error::new(crate::error::Code::Demo, text)
    })
}

async fn items<S: Depot>(stage: &Stage<'_, S>, number: &str) -> Result<Vec<CampaignItem>, Error> {
    let query = ItemQuery {
        campaign_id: number.parse().unwrap_or_default(),
        rows_max: 1_000,
        ..ItemQuery::default()
    };
    stage
        .opened
        .check(stage.opened.store.campaign_items(query).await)
}

/// Effects of what had a case.
async fn repaired<S: Depot>(stage: &Stage<'_, S>) -> Result<Vec<Effect>, Error> {
    let mut rows = stage.depot_rows(TRACKING).await?;
    rows.retain(had_case);
    Ok(rows)
}

fn judge(records: &Records) -> Judged {
    let mut judged = compare(records.accepted, std::slice::from_ref(&records.side));
    judged.claim_count("cases that the bug made", records.cases, REFUSED);
    let (state, counts) = records.first;
    let out = counts.done + counts.failed;
    judged.claim(
        "the campaign over the bug stopped itself at its canary",
        state == CampaignState::Stopped && counts.failed > 0 && out <= CANARY as u64,
        format!(
            "{}: {out} of {} went out, {} failed",
            state.as_str(),
            counts.total(),
            counts.failed
        ),
    );
    judged.claim_count(
        "after the mend, effects when the canary was looked at",
        records.at_canary.len(),
        CANARY,
    );
    judged.claim(
        "its process was killed before the campaign's end, and another one ended it",
        records.was_killed && records.second == CampaignState::Done,
        records.second.as_str(),
    );
    let done = records
        .items
        .iter()
        .filter(|item| item.0 == ItemState::Done);
    judged.claim_count(
        "messages of the campaign that are done",
        done.count(),
        REFUSED,
    );
    let mut started: Vec<Timestamp> = records.items.iter().filter_map(|item| item.1).collect();
    started.sort_unstable();
    let rest = started.get(CANARY..).unwrap_or_default();
    let spread_ms = match (rest.first(), rest.last()) {
        (Some(first), Some(last)) => last.millis_since(*first),
        _ => 0,
    };
    judged.claim(
        "the rest went out by and by",
        spread_ms >= SPREAD_MS_MIN,
        format!("{} messages in {spread_ms} ms", rest.len()),
    );
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::{good, unmet};
    use super::*;

    fn records() -> Records {
        let scans = scans();
        let mut side = good(TRACKING, &scans);
        // What was held came when its case was over, which changes nothing within a key.
        side.effects
            .sort_by_key(|effect| effect.0.starts_with("refused-"));
        let at = |n: usize| Timestamp::from_micros(200_000 * n as i64);
        Records {
            accepted: scans.len(),
            cases: REFUSED,
            first: (
                CampaignState::Stopped,
                Counts {
                    left: (REFUSED - CANARY) as u64,
                    failed: CANARY as u64,
                    ..Counts::default()
                },
            ),
            second: CampaignState::Done,
            items: (0..REFUSED)
                .map(|n| (ItemState::Done, Some(at(n))))
                .collect(),
            at_canary: side
                .effects
                .iter()
                .filter(|e| had_case(e))
                .take(CANARY)
                .cloned()
                .collect(),
            was_killed: true,
            side,
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
        assert_eq!(faults(|r| r.cases -= 1), 1);
        assert_eq!(faults(|r| r.first.0 = CampaignState::Done), 1);
        assert_eq!(faults(|r| r.first.1.failed += 1), 1, "more than the canary");
        assert_eq!(faults(|r| r.first.1.failed = 0), 1, "stopped for nothing");
        assert_eq!(faults(|r| drop(r.at_canary.pop())), 1);
        assert_eq!(faults(|r| r.was_killed = false), 1);
        assert_eq!(faults(|r| r.second = CampaignState::Stopped), 1);
        assert_eq!(faults(|r| r.items[5].0 = ItemState::Failed), 1);
        let at_once = |r: &mut Records| r.items.iter_mut().for_each(|item| item.1 = None);
        assert_eq!(faults(at_once), 1);
        assert_eq!(faults(|r| r.side.effects.reverse()), 1, "in no order");
        assert_eq!(faults(|r| drop(r.side.effects.pop())), 0, "one is lost");
    }
}
