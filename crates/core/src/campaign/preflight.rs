//! What is found out about a message before it goes out again.

use serde::{Deserialize, Serialize};

use super::CampaignKind;
use crate::contract::{Order, Semantics};
use crate::store::Terms;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Finding {
    /// No handler of the subscription takes its type today.
    TypeNotTaken,
    /// Another campaign has it.
    InCampaign,
    /// It is on its way: deferred, or its case was not chosen and somebody has to decide there.
    InFlight,
    /// It is to come from the log, and an open case holds its key: it would only wait.
    BehindCase,
    /// It was to be tried at most once, and was.
    NeverTwice,
    /// Neither the log nor a case has it any more.
    Gone,
    /// It is to come from the log, and somebody had given it up: its case was discarded or waived.
    GivenUp,
    /// Older than what the ledger remembers, and unknown there: its effect may happen twice.
    Forgotten,
    /// The subscription has come past it and the ledger does not have it: it would have its effect
    /// for the first time.
    NotDone,
    /// A later message of its key is done: what it says may be out of date.
    Overtaken,
    /// The ledger has it as done: its result counts, nothing will happen.
    DoneAlready,
    /// It was delivered, which no ledger records: it is delivered again, with the same id.
    DeliveredAgain,
}

/// What follows from a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It can never go out.
    Refuses,
    /// It goes out only where the plan accepts the finding by name.
    Asks,
    /// Good to know.
    Tells,
}

impl Finding {
    /// All of them, the weightiest first.
    pub const ALL: [Self; 12] = [
        Self::TypeNotTaken,
        Self::InCampaign,
        Self::InFlight,
        Self::BehindCase,
        Self::NeverTwice,
        Self::Gone,
        Self::GivenUp,
        Self::Forgotten,
        Self::NotDone,
        Self::Overtaken,
        Self::DoneAlready,
        Self::DeliveredAgain,
    ];

    /// The name used in tables, JSON and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TypeNotTaken => "type-not-taken",
            Self::InCampaign => "in-campaign",
            Self::InFlight => "in-flight",
            Self::BehindCase => "behind-case",
            Self::NeverTwice => "never-twice",
            Self::Gone => "gone",
            Self::GivenUp => "given-up",
            Self::Forgotten => "forgotten",
            Self::NotDone => "not-done",
            Self::Overtaken => "overtaken",
            Self::DoneAlready => "done-already",
            Self::DeliveredAgain => "delivered-again",
        }
    }

    /// The finding of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// In a few words.
    #[must_use]
    pub const fn explained(self) -> &'static str {
        match self {
            Self::TypeNotTaken => "no handler takes its type today",
            Self::InCampaign => "another campaign has it",
            Self::InFlight => "it is on its way, or has a case that is open",
            Self::BehindCase => "an open case holds its key",
            Self::NeverTwice => "it was to be tried at most once, and was",
            Self::Gone => "neither the log nor a case has it any more",
            Self::GivenUp => "its case was discarded or waived",
            Self::Forgotten => "older than the ledger's memory and unknown there",
            Self::NotDone => "the ledger does not have it: its effect would be the first",
            Self::Overtaken => "a later message of its key is done",
            Self::DoneAlready => "the ledger has it as done: nothing will happen",
            Self::DeliveredAgain => {
                "what was delivered is in no ledger: it is delivered again, with the same id"
            }
        }
    }

    /// What follows from it.
    #[must_use]
    pub const fn weight(self) -> Weight {
        match self {
            Self::TypeNotTaken
            | Self::InCampaign
            | Self::InFlight
            | Self::BehindCase
            | Self::NeverTwice
            | Self::Gone => Weight::Refuses,
            Self::GivenUp | Self::Forgotten | Self::NotDone | Self::Overtaken => Weight::Asks,
            Self::DoneAlready | Self::DeliveredAgain => Weight::Tells,
        }
    }

    /// Whether a message with it may go out.
    #[must_use]
    pub fn allows(self, accepted: &[Self]) -> bool {
        match self.weight() {
            Weight::Refuses => false,
            Weight::Asks => accepted.contains(&self),
            Weight::Tells => true,
        }
    }
}

/// What the store knows of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Facts {
    /// It comes from a case, which is to be released.
    pub is_case: bool,
    /// The case is one of what may not be tried twice.
    pub is_at_most_once_case: bool,
    /// The subscription takes its type.
    pub is_type_taken: bool,
    /// Another campaign that is not over has it.
    pub is_in_campaign: bool,
    /// It is deferred.
    pub is_deferred: bool,
    /// It is not from a case and has one that is live.
    pub has_live_case: bool,
    /// It is not from a case, and one that is live holds its key.
    pub is_behind_case: bool,
    /// It is not from a case, and the one that it had was discarded or waived.
    pub is_given_up: bool,
    /// The log or a case still has it.
    pub is_there: bool,
    /// The ledger has its effect, under the generation of the first run.
    pub is_known: bool,
    /// Time since the log took it, in milliseconds.
    pub age_ms: u64,
    /// A later message of its key is done.
    pub is_overtaken: bool,
}

/// What was found about a message, and whether it may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The weightiest finding; of one that may not go out, the weightiest that keeps it back.
    pub finding: Option<Finding>,
    /// Whether it may go out.
    pub goes_out: bool,
}

/// Judges a message. `memory_ms` is how long the ledger remembers, `accept` what shall keep nothing
/// back.
#[must_use]
pub fn preflight(
    kind: CampaignKind,
    terms: &Terms,
    memory_ms: u64,
    facts: &Facts,
    accept: &[Finding],
) -> Verdict {
    let has_ledger = terms.semantics != Semantics::AtLeastOnce;
    let is_guarded = kind == CampaignKind::Resend && has_ledger;
    // What has a case was not done, and its case remembers it as long as it is there.
    let is_unknown = is_guarded && !facts.is_case && !facts.is_known;
    let is_old = facts.age_ms > memory_ms;
    let is_known = is_guarded && facts.is_known;
    let is_redelivered = kind == CampaignKind::Resend && !has_ledger && !facts.is_case;
    let is_overtaken = terms.order == Order::Key && facts.is_overtaken;
    let found = [
        (Finding::TypeNotTaken, !facts.is_type_taken),
        (Finding::InCampaign, facts.is_in_campaign),
        (Finding::InFlight, facts.is_deferred || facts.has_live_case),
        (Finding::BehindCase, facts.is_behind_case),
        (Finding::NeverTwice, facts.is_at_most_once_case),
        (Finding::Gone, !facts.is_there),
        (Finding::GivenUp, facts.is_given_up),
        (Finding::Forgotten, is_unknown && is_old),
        (Finding::NotDone, is_unknown && !is_old),
        // What is done has no effect any more, whatever came later.
        (Finding::Overtaken, is_overtaken && !is_known),
        (Finding::DoneAlready, is_known),
        // Rejections are in the ledger even there.
        (Finding::DeliveredAgain, is_redelivered && !facts.is_known),
    ];
    let mut found = found.into_iter().filter(|(_, is_so)| *is_so);
    let first = found.clone().next().map(|(finding, _)| finding);
    match found.find(|(finding, _)| !finding.allows(accept)) {
        Some((finding, _)) => Verdict {
            finding: Some(finding),
            goes_out: false,
        },
        None => Verdict {
            finding: first,
            goes_out: true,
        },
    }
}
