//! Replay campaigns: planned over a frozen selection, driven on in steps, watched item by item.
//!
//! A step is one transaction on the campaign's row, so it does not matter who makes it, nor whether
//! two try at once: whoever works on the subscription does. A message goes out as a deferral, as
//! one that an operator releases.

use std::future::Future;

use serde::{Deserialize, Serialize};

use super::{Actor, StoreError, StoreErrorKind, Terms};
use crate::campaign::{
    Advance, CampaignAction, CampaignKind, CampaignStanding, CampaignState, Candidate, Counts,
    Finding, ItemState, Pacing,
};
use crate::timestamp::Timestamp;

/// Where the messages of a campaign come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Live cases.
    Cases,
    /// Messages of the log that the subscription has come past.
    Log,
}

/// Which messages of a subscription. Everything is optional but the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Where they come from.
    pub source: Source,
    /// Only these cases; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub case_ids: Vec<i64>,
    /// Only cases of this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Only cases with this owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only messages of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_type: Option<String>,
    /// Only messages of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only cases opened last, or messages recorded, at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Only those before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
    /// Only above this place in the log.
    #[serde(default)]
    pub after_seq: u64,
}

impl Selection {
    /// All that a source has.
    #[must_use]
    pub const fn of(source: Source) -> Self {
        Self {
            source,
            case_ids: Vec::new(),
            fingerprint: None,
            owner: None,
            message_type: None,
            key: None,
            from: None,
            before: None,
            after_seq: 0,
        }
    }
}

/// Plans a campaign: chooses, looks at each message, and keeps what was chosen.
#[derive(Clone, Copy, Debug)]
pub struct PlanCampaign<'a> {
    /// Of this subscription.
    pub subscription: &'a str,
    /// Resend or rerun.
    pub kind: CampaignKind,
    /// Which messages, in the order of the log.
    pub selection: &'a Selection,
    /// How it shall go about it.
    pub pacing: Pacing,
    /// Findings that shall not keep a message back.
    pub accept: &'a [Finding],
    /// Most items; 0 means 10,000. There may be more, for another campaign.
    pub items_max: u32,
    /// Who, and why, which is needed.
    pub by: Actor<'a>,
}

impl PlanCampaign<'_> {
    /// Most items.
    #[must_use]
    pub const fn items_max(&self) -> usize {
        match self.items_max {
            0 => PLAN_ITEMS_DEFAULT as usize,
            asked => asked as usize,
        }
    }

    /// Whether it can be planned, before anything is looked up.
    ///
    /// # Errors
    /// When nobody says why, or a number is out of its range.
    pub fn check(&self, action: &'static str) -> Result<(), StoreError> {
        let checked = self.by.check_reason();
        checked.map_err(|refusal| StoreError::refused(action, refusal))?;
        let checked = self.pacing.check();
        checked.map_err(|bad| StoreError::found(StoreErrorKind::Refused, action, bad.to_string()))
    }

    /// Whether the subscription's terms allow it.
    ///
    /// # Errors
    /// When it is a rerun and the subscription is not declared repeatable.
    pub fn check_terms(&self, terms: &Terms, action: &'static str) -> Result<(), StoreError> {
        if self.kind == CampaignKind::Resend || terms.is_repeatable {
            return Ok(());
        }
        let text = format!(
            "{} is not declared repeatable, and a rerun makes effects happen once more",
            self.subscription
        );
        Err(StoreError::found(StoreErrorKind::Refused, action, text))
    }

    /// The campaign over what was found, of which `left` may go out. It has no number yet.
    ///
    /// # Errors
    /// When nothing was found.
    pub fn planned(
        &self,
        found: &[Candidate],
        left: usize,
        generation: u32,
        now: Timestamp,
        action: &'static str,
    ) -> Result<Campaign, StoreError> {
        let Some(last) = found.last() else {
            let text = "nothing was found that a campaign could take";
            return Err(StoreError::found(StoreErrorKind::Refused, action, text));
        };
        Ok(Campaign {
            campaign_id: 0,
            subscription: self.subscription.to_owned(),
            kind: self.kind,
            generation,
            selection: self.selection.clone(),
            pacing: self.pacing,
            accept: self.accept.to_vec(),
            standing: CampaignStanding::default(),
            counts: Counts {
                left: left as u64,
                refused: (found.len() - left) as u64,
                ..Counts::default()
            },
            has_more: false,
            last_seq: last.seq,
            overtaken_seen_to: None,
            planned_by: self.by.who.to_owned(),
            why: self.by.why.unwrap_or_default().to_owned(),
            planned_at: now,
            started_by: None,
            approved_by: None,
            started_at: None,
            ended_at: None,
        })
    }
}

/// Items of a plan that names no number.
pub const PLAN_ITEMS_DEFAULT: u32 = 10_000;
/// Rows of the log that a plan looks through for later messages of its keys.
pub const OVERTAKEN_ROWS_MAX: u32 = 100_000;

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// Its number.
    pub campaign_id: i64,
    /// Subscription.
    pub subscription: String,
    /// Resend or rerun.
    pub kind: CampaignKind,
    /// The generation of its effects: 0 for a resend.
    pub generation: u32,
    /// What was asked for.
    pub selection: Selection,
    /// How it goes about it.
    pub pacing: Pacing,
    /// Findings that keep no message back.
    pub accept: Vec<Finding>,
    /// Where it stands.
    pub standing: CampaignStanding,
    /// How many items are where.
    pub counts: Counts,
    /// More messages were found than a plan takes.
    pub has_more: bool,
    /// The last place in the log that it has.
    pub last_seq: u64,
    /// Later messages of its keys were looked for up to this place only; `None` when to the end.
    pub overtaken_seen_to: Option<u64>,
    /// Who planned it.
    pub planned_by: String,
    /// Why.
    pub why: String,
    /// When it was planned.
    pub planned_at: Timestamp,
    /// Who started it.
    pub started_by: Option<String>,
    /// Who approved it, if somebody was named.
    pub approved_by: Option<String>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it was done or stopped.
    pub ended_at: Option<Timestamp>,
}

impl Campaign {
    /// Whether steps are to be made: something is to go out, or to be seen to its outcome.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        let goes_out = matches!(
            self.standing.state,
            CampaignState::Canary | CampaignState::Ramping
        );
        goes_out || self.counts.running > 0
    }

    /// Counts what went out and has come to its outcomes.
    pub fn settle(&mut self, done: u64, failed: u64, waiting: u64) {
        self.counts.running = self.counts.running.saturating_sub(done + failed);
        self.counts.done += done;
        self.counts.failed += failed;
        self.counts.waiting = waiting;
    }

    /// Counts what goes out now, and what turned out not to.
    pub fn start(&mut self, started: u64, refused: u64) {
        self.counts.left = self.counts.left.saturating_sub(started + refused);
        self.counts.running += started;
        self.counts.refused += refused;
    }

    /// Takes the next step, without its items.
    pub fn advance(&mut self, now: Timestamp) -> Advance {
        let advance = self.standing.advance(&self.pacing, &self.counts, now);
        self.stand(advance.standing.clone(), now);
        advance
    }

    /// Takes a standing.
    pub fn stand(&mut self, standing: CampaignStanding, now: Timestamp) {
        if standing.state.is_over() && self.ended_at.is_none() {
            self.ended_at = Some(now);
        }
        self.standing = standing;
    }

    /// Takes what somebody made of it.
    pub fn acted(
        &mut self,
        action: CampaignAction<'_>,
        by: Actor<'_>,
        standing: CampaignStanding,
        now: Timestamp,
    ) {
        if let CampaignAction::Start { approved_by } = action {
            self.started_by = Some(by.who.to_owned());
            self.approved_by = approved_by.map(str::to_owned);
            self.started_at = Some(now);
        }
        self.stand(standing, now);
    }

    /// For the audit log, as JSON: nothing of any message.
    #[must_use]
    pub fn account(&self) -> String {
        serde_json::json!({
            "campaign": self.campaign_id,
            "kind": self.kind,
            "state": self.standing.state,
            "counts": self.counts,
            "approved_by": self.approved_by,
            "stopped_by": self.standing.stopped_by,
        })
        .to_string()
    }

    /// What a step that moved it is called in the audit log.
    #[must_use]
    pub const fn step_name(&self) -> &'static str {
        match self.standing.state {
            CampaignState::Verifying => "replay-await-person",
            CampaignState::Ramping => "replay-ramp",
            CampaignState::Stopped => "replay-stop",
            CampaignState::Done => "replay-done",
            _ => "replay-step",
        }
    }
}

/// A message of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignItem {
    /// Its place in the log.
    pub seq: u64,
    /// Message id.
    pub id: String,
    /// Message type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// What it waits behind.
    pub key: String,
    /// The case that it comes from.
    pub case_id: Option<i64>,
    /// Where it is.
    pub state: ItemState,
    /// What the preflight found.
    pub finding: Option<Finding>,
    /// Why it was refused, or failed, in words.
    pub note: Option<String>,
    /// When it went out.
    pub started_at: Option<Timestamp>,
    /// When its outcome was seen.
    pub ended_at: Option<Timestamp>,
}

/// Acts on a campaign.
#[derive(Clone, Copy, Debug)]
pub struct ActOnCampaign<'a> {
    /// Which.
    pub campaign_id: i64,
    /// What to do.
    pub action: CampaignAction<'a>,
    /// Who, and why.
    pub by: Actor<'a>,
}

/// Which campaigns, newest last, paged by number.
#[derive(Clone, Copy, Debug, Default)]
pub struct CampaignQuery<'a> {
    /// Only this one.
    pub campaign_id: Option<i64>,
    /// Only of this subscription.
    pub subscription: Option<&'a str>,
    /// Only those of which steps are to be made.
    pub is_active: bool,
    /// Only numbers above this.
    pub after_campaign_id: i64,
    /// Most campaigns; 0 means 100.
    pub rows_max: u32,
}

/// Which items of a campaign, in the order of the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemQuery<'a> {
    /// The campaign.
    pub campaign_id: i64,
    /// Only in one of these states; empty means any.
    pub states: &'a [ItemState],
    /// Only above this place.
    pub after_seq: u64,
    /// Most items; 0 means 100.
    pub rows_max: u32,
}

/// Takes a campaign one step on.
#[derive(Clone, Copy, Debug)]
pub struct StepCampaign {
    /// Which.
    pub campaign_id: i64,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// The campaign after it.
    pub campaign: Campaign,
    /// Messages that went out.
    pub started: u64,
    /// When to make the next one, in milliseconds; `None` when nothing is to be expected by itself.
    pub wait_ms: Option<u64>,
}

/// Replay campaigns.
pub trait Replay: Clone + Send + Sync + 'static {
    /// Freezes a selection. Every message of it is an item, with what was found about it; a message
    /// is in at most one campaign that is not over.
    ///
    /// # Errors
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such subscription, nothing was
    /// found, a reason is missing, a number is out of its range, or the subscription is not declared
    /// repeatable and this is a rerun.
    fn plan_campaign(
        &self,
        request: PlanCampaign<'_>,
    ) -> impl Future<Output = Result<Campaign, StoreError>> + Send;

    /// Starts, pauses, resumes, verifies or stops a campaign.
    ///
    /// # Errors
    /// [`Moved`](super::StoreErrorKind::Moved) when somebody acted before, and
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such campaign, or no reason
    /// where one is needed.
    fn act_on_campaign(
        &self,
        request: ActOnCampaign<'_>,
    ) -> impl Future<Output = Result<Campaign, StoreError>> + Send;

    /// Campaigns by number.
    fn campaigns(
        &self,
        query: CampaignQuery<'_>,
    ) -> impl Future<Output = Result<Vec<Campaign>, StoreError>> + Send;

    /// The items of a campaign.
    fn campaign_items(
        &self,
        query: ItemQuery<'_>,
    ) -> impl Future<Output = Result<Vec<CampaignItem>, StoreError>> + Send;

    /// Sees what became of what went out, and sends the next ones, in one transaction. Made twice
    /// it is made twice at the rate of one.
    ///
    /// # Errors
    /// [`Refused`](super::StoreErrorKind::Refused) when there is no such campaign.
    fn step_campaign(
        &self,
        request: StepCampaign,
    ) -> impl Future<Output = Result<Stepped, StoreError>> + Send;
}
