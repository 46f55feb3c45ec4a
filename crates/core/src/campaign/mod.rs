//! Replay as a campaign: a frozen selection that goes back into the flow paced, watched and
//! stoppable. Pure decisions; time is a parameter.
//!
//! ```text
//! planned ──start──▶ canary ──▶ verifying ──▶ ramping ──▶ done
//!                      │  (by a person only)     │
//!                      └────── pause / resume ───┘        stop, or too many failures ──▶ stopped
//! ```

use serde::{Deserialize, Serialize};

use crate::case::{Actor, Refusal};
use crate::timestamp::Timestamp;

mod advance;
mod candidate;
mod item;
mod preflight;

pub use advance::{Advance, STEP_ITEMS_MAX};
pub use candidate::{Bench, Candidate};
pub use item::{ItemNow, ItemState, REPLAYED, outcome, replayed};
pub use preflight::{Facts, Finding, Verdict, Weight, preflight};

/// Most items a second that a campaign may start.
pub const RATE_PER_S_MAX: u32 = 10_000;

/// What a campaign does with what is done already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CampaignKind {
    /// Guarded: what the ledger has as done counts as done, and nothing happens a second time.
    Resend,
    /// On purpose once more: effects are recorded under a generation of their own. Needs a
    /// subscription that is declared repeatable.
    Rerun,
}

impl CampaignKind {
    /// The name used in tables, JSON and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resend => "resend",
            Self::Rerun => "rerun",
        }
    }
}

/// Where a campaign stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CampaignState {
    /// Frozen, and nothing has gone out.
    Planned,
    /// The first few items are out.
    Canary,
    /// The canary has ended well by its outcomes, and a person has to say so too.
    Verifying,
    /// The rest goes out, faster and faster up to the rate.
    Ramping,
    /// Nothing more goes out until somebody resumes it.
    Paused,
    /// Over before its end; what is left stays where it was.
    Stopped,
    /// Every item has its outcome.
    Done,
}

impl CampaignState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Planned,
        Self::Canary,
        Self::Verifying,
        Self::Ramping,
        Self::Paused,
        Self::Stopped,
        Self::Done,
    ];

    /// The name used in tables, JSON and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Canary => "canary",
            Self::Verifying => "verifying",
            Self::Ramping => "ramping",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether nothing more goes out, ever.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Done)
    }
}

/// Who says that the canary went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verification {
    /// Its outcomes alone.
    #[default]
    Outcome,
    /// Its outcomes, and then a person or a program that looks for itself.
    Person,
}

/// How a campaign goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pacing {
    /// Items that go out first, at least one.
    pub canary: u32,
    /// Items started a second at full rate.
    pub rate_per_s: u32,
    /// From a tenth of the rate to all of it in this time, in milliseconds.
    pub ramp_ms: u64,
    /// Items without an outcome at any moment.
    pub in_flight_max: u32,
    /// This share of failures, or a larger one, stops it, in per cent; 0 is the first failure.
    #[serde(alias = "failure_percent_max")]
    pub stop_at_percent: u8,
    /// Who verifies the canary.
    pub verification: Verification,
}

impl Default for Pacing {
    /// A canary of 5, 10 a second after half a minute, at most 100 in flight, stopped from 10 % of
    /// failures on.
    fn default() -> Self {
        Self {
            canary: 5,
            rate_per_s: 10,
            ramp_ms: 30_000,
            in_flight_max: 100,
            stop_at_percent: 10,
            verification: Verification::Outcome,
        }
    }
}

impl Pacing {
    /// Whether a campaign can go on with it.
    ///
    /// # Errors
    /// Names the first number out of its range.
    pub const fn check(&self) -> Result<(), BadPacing> {
        if self.canary == 0 {
            return Err(BadPacing::Canary);
        }
        if self.rate_per_s == 0 || self.rate_per_s > RATE_PER_S_MAX {
            return Err(BadPacing::Rate);
        }
        if self.in_flight_max == 0 {
            return Err(BadPacing::InFlight);
        }
        if self.stop_at_percent > 100 {
            return Err(BadPacing::FailurePercent);
        }
        Ok(())
    }
}

/// A number of a pacing that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPacing {
    /// No canary.
    #[error("the canary has at least one item")]
    Canary,
    /// The rate.
    #[error("the rate is 1 to {RATE_PER_S_MAX} items a second")]
    Rate,
    /// What may be in flight.
    #[error("at least one item must be allowed in flight")]
    InFlight,
    /// The share of failures.
    #[error("the share of failures is 0 to 100 per cent")]
    FailurePercent,
}

/// How many items are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Still to go out.
    pub left: u64,
    /// Out, without an outcome.
    pub running: u64,
    /// Of those running, how many wait for a person: themselves, or behind a case of their key.
    pub waiting: u64,
    /// Their effect is there, or they were delivered.
    pub done: u64,
    /// A case again, or given up meanwhile.
    pub failed: u64,
    /// Never sent out, each with its reason.
    pub refused: u64,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.left + self.running + self.done + self.failed + self.refused
    }

    /// Those that went out.
    #[must_use]
    pub const fn started(&self) -> u64 {
        self.running + self.done + self.failed
    }
}

/// Where a campaign stands, with what its next step needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignStanding {
    /// The state.
    pub state: CampaignState,
    /// Where it goes on when it is resumed.
    pub resumes_to: Option<CampaignState>,
    /// Why it was stopped.
    pub stopped_by: Option<String>,
    /// Since when it ramps; moved on by pauses.
    pub ramping_since: Option<Timestamp>,
    /// Up to when its rate is used.
    pub paced_to: Option<Timestamp>,
    /// When it was paused last.
    pub paused_at: Option<Timestamp>,
}

impl Default for CampaignStanding {
    /// As it is planned.
    fn default() -> Self {
        Self {
            state: CampaignState::Planned,
            resumes_to: None,
            stopped_by: None,
            ramping_since: None,
            paced_to: None,
            paused_at: None,
        }
    }
}

/// What people do with a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CampaignAction<'a> {
    /// Sends the canary out.
    Start {
        /// Who approved it, where that is not the one who starts it.
        approved_by: Option<&'a str>,
    },
    /// Nothing more goes out for now.
    Pause,
    /// Goes on.
    Resume,
    /// Ends it. Needs a reason.
    Stop,
    /// Says that the canary went well.
    Verify,
}

impl CampaignAction<'_> {
    /// The name used in the audit log and in commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start { .. } => "replay-start",
            Self::Pause => "replay-pause",
            Self::Resume => "replay-resume",
            Self::Stop => "replay-stop",
            Self::Verify => "replay-verify",
        }
    }
}

/// What an action makes of a campaign. `planned_by` is who planned it.
///
/// # Errors
/// When the campaign has moved, or the action is not possible.
pub fn act(
    action: CampaignAction<'_>,
    by: Actor<'_>,
    before: &CampaignStanding,
    planned_by: &str,
    now: Timestamp,
) -> Result<CampaignStanding, Refusal> {
    match action {
        CampaignAction::Stop => by.check_reason()?,
        _ => by.check()?,
    }
    let moved = Err(Refusal::Moved {
        now: before.state.as_str(),
    });
    let mut after = before.clone();
    match (action, before.state) {
        (CampaignAction::Start { approved_by }, CampaignState::Planned) => {
            if let Some(name) = approved_by {
                let approver = Actor {
                    who: name,
                    why: None,
                };
                approver.check()?;
                if name == planned_by {
                    return Err(Refusal::OwnApproval);
                }
            }
            after.state = CampaignState::Canary;
        }
        (
            CampaignAction::Pause,
            CampaignState::Canary | CampaignState::Verifying | CampaignState::Ramping,
        ) => {
            after.state = CampaignState::Paused;
            after.resumes_to = Some(before.state);
            after.paused_at = Some(now);
        }
        (CampaignAction::Resume, CampaignState::Paused) => {
            after.state = before.resumes_to.unwrap_or(CampaignState::Canary);
            after.resumes_to = None;
            let paused_ms = before.paused_at.map_or(0, |at| now.millis_since(at).max(0));
            after.ramping_since = before.ramping_since.map(|at| at.plus_millis(paused_ms));
            after.paced_to = before.paced_to.map(|_| now);
            after.paused_at = None;
        }
        (CampaignAction::Verify, CampaignState::Verifying) => after.ramp(now),
        (CampaignAction::Stop, state) if !state.is_over() => {
            after.stop(by.why.unwrap_or_default());
        }
        _ => return moved,
    }
    Ok(after)
}

impl CampaignStanding {
    pub(crate) fn ramp(&mut self, now: Timestamp) {
        self.state = CampaignState::Ramping;
        self.ramping_since = Some(now);
        self.paced_to = Some(now);
    }

    pub(crate) fn stop(&mut self, why: &str) {
        self.state = CampaignState::Stopped;
        self.resumes_to = None;
        self.stopped_by = Some(why.to_owned());
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
