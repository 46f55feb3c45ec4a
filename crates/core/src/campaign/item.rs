//! One message of a campaign: where it is, and what became of it.

use serde::{Deserialize, Serialize};

use crate::case::CaseState;
use crate::failure::{Class, FailureRecord};
use crate::store::DeferralKind;

/// The code of the failure that a deferral of a message from the log carries.
pub const REPLAYED: &str = "replayed";

/// What is written as the failure of a message that a campaign took from the log: it was done, and
/// goes out again because somebody wants it to.
#[must_use]
pub fn replayed() -> FailureRecord {
    FailureRecord {
        class: Class::Operator,
        code: REPLAYED.to_owned(),
        message: "a replay campaign put it back into the flow".to_owned(),
        detail: None,
    }
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemState {
    /// Still to go out.
    Planned,
    /// Out, without an outcome.
    Running,
    /// Its effect is there, or it was delivered.
    Done,
    /// A case again, or given up meanwhile.
    Failed,
    /// Never sent out.
    Refused,
    /// Not sent out before the campaign was stopped.
    Left,
}

impl ItemState {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Planned,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Refused,
        Self::Left,
    ];

    /// The name used in tables, JSON and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Left => "left",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// What the records say of a message that went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ItemNow {
    /// How it is deferred, if it is.
    pub deferral: Option<DeferralKind>,
    /// How its case stands, if it has one.
    pub case: Option<CaseState>,
    /// Whether a live case of another message holds its key.
    pub is_behind_case: bool,
}

impl ItemNow {
    /// Whether nothing happens until a person acts.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        match self.deferral {
            Some(DeferralKind::Operator) => true,
            Some(_) => self.is_behind_case,
            None => false,
        }
    }
}

/// What became of a message that went out; `None` while it is under way. Done means what it means
/// for any message: neither a deferral nor a case has it any more.
#[must_use]
pub const fn outcome(now: &ItemNow) -> Option<ItemState> {
    match (now.deferral, now.case) {
        (Some(_), _) => None,
        (None, None | Some(CaseState::Replayed)) => Some(ItemState::Done),
        (None, Some(_)) => Some(ItemState::Failed),
    }
}
