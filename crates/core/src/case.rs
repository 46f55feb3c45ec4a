//! What people may do with a case, and what makes cases alike: pure decisions.

use serde::{Deserialize, Serialize};

use crate::envelope::{Payload, Row};
use crate::failure::FailureRecord;
use crate::lane::fnv1a;
use crate::retry::Spent;
use crate::timestamp::Timestamp;

/// Longest name of a person or a program, in bytes.
pub const WHO_BYTES_MAX: usize = 200;
/// Longest reason or note, in bytes.
pub const WHY_BYTES_MAX: usize = 4_000;
/// Longest id of a correction, in bytes.
pub const ID_BYTES_MAX: usize = 512;
/// The reason of cases whose message may not be tried a second time.
pub const AT_MOST_ONCE_FAILED: &str = "at_most_once_failed";

/// Where a case stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CaseState {
    /// Nobody has done anything yet.
    Open,
    /// Somebody is on it.
    Acknowledged,
    /// A corrected message has taken its message's place, and waits to be released.
    Corrected,
    /// Its message went back into the flow. When it fails again, the case is open again.
    Replayed,
    /// Its message was given up.
    Discarded,
    /// Its message is not needed: somebody saw to its effect in another way.
    Waived,
}

impl CaseState {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Open,
        Self::Acknowledged,
        Self::Corrected,
        Self::Replayed,
        Self::Discarded,
        Self::Waived,
    ];

    /// The name used in tables, JSON and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Corrected => "corrected",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
            Self::Waived => "waived",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether somebody still has to do something. Only such a case holds its key.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Open | Self::Acknowledged | Self::Corrected)
    }
}

/// Who acts, and why, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// A person's or a program's name, 1 to [`WHO_BYTES_MAX`] bytes.
    pub who: &'a str,
    /// The reason, or the text of a note, up to [`WHY_BYTES_MAX`] bytes.
    pub why: Option<&'a str>,
}

impl Actor<'_> {
    /// Whether it can be kept as it is.
    ///
    /// # Errors
    /// When the name is empty, or one of the texts is too long or holds control characters.
    pub fn check(&self) -> Result<(), Refusal> {
        check_name(self.who)?;
        let why = self.why.unwrap_or_default();
        let is_odd = |c: char| c.is_control() && c != '\n' && c != '\t';
        if why.len() > WHY_BYTES_MAX || why.contains(is_odd) {
            return Err(Refusal::BadReason);
        }
        Ok(())
    }

    /// The same, for what may not be done without a reason.
    ///
    /// # Errors
    /// As [`check`](Self::check), and when there is no reason.
    pub fn check_reason(&self) -> Result<(), Refusal> {
        self.check()?;
        match self.why {
            Some(why) if !why.trim().is_empty() => Ok(()),
            _ => Err(Refusal::ReasonMissing),
        }
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_good =
        !name.trim().is_empty() && name.len() <= WHO_BYTES_MAX && !name.contains(char::is_control);
    is_good.then_some(()).ok_or(Refusal::BadName)
}

/// What people do with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseAction<'a> {
    /// Makes somebody responsible, or nobody.
    Assign {
        /// Who.
        owner: Option<&'a str>,
    },
    /// Says that somebody is on it. A case without an owner gets the one who says so.
    Acknowledge,
    /// Adds a note, which is the actor's reason.
    Note,
    /// Says until when it should be over.
    SetDue {
        /// Until when, if there is a date.
        due_at: Option<Timestamp>,
    },
    /// Records that somebody was shown what is hidden elsewhere, or asked for it in vain. Needs a
    /// reason where it was shown.
    Reveal {
        /// Whether it is shown.
        is_permitted: bool,
    },
    /// Puts another message into the original's place. Released, it runs instead, as the same
    /// effect. Needs a reason.
    Correct {
        /// The id of the new message.
        id: &'a str,
        /// Its content.
        payload: &'a Payload,
    },
    /// Puts the message back into the flow, with a fresh budget and its old identity and place.
    Release,
    /// Gives the message up. Needs a reason.
    Discard,
    /// Says that the message is not needed. Needs a reason.
    Waive,
    /// Removes a case that is over, with its copy of the message and its corrections; its history
    /// stays. Needs a reason. See [`may_purge`].
    Purge,
}

impl CaseAction<'_> {
    /// The name used in the audit log and in commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Assign { .. } => "assign",
            Self::Acknowledge => "acknowledge",
            Self::Note => "note",
            Self::SetDue { .. } => "set-due",
            Self::Reveal { is_permitted: true } => "reveal",
            Self::Reveal {
                is_permitted: false,
            } => "reveal-refused",
            Self::Correct { .. } => "correct",
            Self::Release => "release",
            Self::Discard => "discard",
            Self::Waive => "waive",
            Self::Purge => "purge",
        }
    }

    /// Whether it is a row of the audit log and nothing else, which what is over takes as well.
    #[must_use]
    pub const fn is_record(self) -> bool {
        matches!(self, Self::Note | Self::Reveal { .. })
    }

    /// Whether it decides what becomes of the message, so that its subscription has to look again.
    #[must_use]
    pub const fn ends_case(self) -> bool {
        matches!(self, Self::Release | Self::Discard | Self::Waive)
    }
}

/// What people change of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Where it stands.
    pub state: CaseState,
    /// Who is responsible.
    pub owner: Option<String>,
    /// Until when it should be over.
    pub due_at: Option<Timestamp>,
    /// How often its message was put back into the flow.
    pub replays: u32,
    /// How often it was open again after it had been over.
    pub regressions: u32,
    /// The id of the message that has taken the original's place, if it was corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_id: Option<String>,
}

impl Default for Standing {
    /// As it is opened.
    fn default() -> Self {
        Self {
            state: CaseState::Open,
            owner: None,
            due_at: None,
            replays: 0,
            regressions: 0,
            corrected_id: None,
        }
    }
}

impl Standing {
    /// What becomes of it when its message fails for good once more. Written twice because an
    /// answer was lost, a live case stays as it is.
    #[must_use]
    pub fn opened_again(mut self) -> Self {
        if !self.state.is_live() {
            self.state = CaseState::Open;
            self.regressions = self.regressions.saturating_add(1);
        }
        self
    }
}

/// Why an action is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Somebody acted before.
    #[error("it is {now} by now")]
    Moved {
        /// Where it stands.
        now: &'static str,
    },
    /// The action says why or is not done.
    #[error("this needs a reason")]
    ReasonMissing,
    /// The message may not run a second time.
    #[error("its message was to be tried at most once, and was")]
    NeverTwice,
    /// Its message went back into the flow and has not ended.
    #[error("its message is under way")]
    UnderWay,
    /// The log still has its message.
    #[error(
        "the log still has its message, which would run again without its case; it goes with the \
         log's retention"
    )]
    InLog,
    /// The id of a correction that cannot be kept.
    #[error(
        "the id of a correction is a new one of 1 to {ID_BYTES_MAX} bytes without control characters"
    )]
    BadId,
    /// A subscription of that name is there.
    #[error("there is a subscription of that name")]
    NameTaken,
    /// Somebody still has to decide.
    #[error("{cases} of its cases are not over: decide about them first")]
    CasesLeft {
        /// How many.
        cases: u64,
    },
    /// A replay campaign goes on.
    #[error("{campaigns} replay campaigns of it have not ended: stop them first")]
    CampaignsLeft {
        /// How many.
        campaigns: u64,
    },
    /// Messages would go with it.
    #[error("{messages} messages are deferred in it and would be given up")]
    DeferredLeft {
        /// How many.
        messages: u64,
    },
    /// A limit under which nothing runs.
    #[error("a limit is at least 1: to start nothing, pause")]
    BadLimit,
    /// Whoever plans something does not approve it.
    #[error("who planned it cannot approve it: name somebody else")]
    OwnApproval,
    /// A name that cannot be kept.
    #[error("a name has 1 to {WHO_BYTES_MAX} bytes and no control characters")]
    BadName,
    /// A reason that cannot be kept.
    #[error("a reason has at most {WHY_BYTES_MAX} bytes and no control characters")]
    BadReason,
}

/// What an action makes of a case. `reason` is the case's own; `expected` is the state in which
/// the actor saw it, if that is to be the one in which it is found.
///
/// # Errors
/// When the case has moved, or the action is not possible.
pub fn act(
    action: CaseAction<'_>,
    by: Actor<'_>,
    before: &Standing,
    reason: &str,
    expected: Option<CaseState>,
) -> Result<Standing, Refusal> {
    match action {
        CaseAction::Note
        | CaseAction::Reveal { is_permitted: true }
        | CaseAction::Correct { .. }
        | CaseAction::Purge
        | CaseAction::Discard
        | CaseAction::Waive => {
            by.check_reason()?;
        }
        _ => by.check()?,
    }
    let now = before.state.as_str();
    let has_moved = expected.is_some_and(|expected| expected != before.state);
    let fits = match action {
        CaseAction::Purge => !before.state.is_live(),
        _ => before.state.is_live() || action.is_record(),
    };
    if has_moved || !fits {
        return Err(Refusal::Moved { now });
    }
    let mut after = before.clone();
    match action {
        CaseAction::Assign { owner } => {
            owner.map_or(Ok(()), check_name)?;
            after.owner = owner.map(str::to_owned);
        }
        // Who has corrected it is on it.
        CaseAction::Acknowledge if before.state != CaseState::Open => {
            return Err(Refusal::Moved { now });
        }
        CaseAction::Acknowledge => {
            after.state = CaseState::Acknowledged;
            after.owner.get_or_insert_with(|| by.who.to_owned());
        }
        CaseAction::Note | CaseAction::Reveal { .. } | CaseAction::Purge => {}
        CaseAction::SetDue { due_at } => after.due_at = due_at,
        CaseAction::Release | CaseAction::Correct { .. } if reason == AT_MOST_ONCE_FAILED => {
            return Err(Refusal::NeverTwice);
        }
        CaseAction::Correct { id, .. } => {
            let is_new = before.corrected_id.as_deref() != Some(id);
            let fits = !id.is_empty() && id.len() <= ID_BYTES_MAX;
            if !is_new || !fits || id.contains(char::is_control) {
                return Err(Refusal::BadId);
            }
            after.state = CaseState::Corrected;
            after.corrected_id = Some(id.to_owned());
        }
        CaseAction::Release => {
            after.state = CaseState::Replayed;
            after.replays = after.replays.saturating_add(1);
        }
        CaseAction::Discard => after.state = CaseState::Discarded,
        CaseAction::Waive => after.state = CaseState::Waived,
    }
    Ok(after)
}

/// What is left in a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Cases that are not over.
    pub cases: u64,
    /// Replay campaigns that have not ended.
    pub campaigns: u64,
    /// Deferred messages.
    pub deferred: u64,
}

/// Whether a subscription may be removed in which so much is left.
///
/// # Errors
/// When it may not.
pub fn may_remove(by: Actor<'_>, left: Left, discards_deferred: bool) -> Result<(), Refusal> {
    by.check_reason()?;
    let Left {
        cases,
        campaigns,
        deferred: messages,
    } = left;
    match (cases, campaigns, messages) {
        (1.., ..) => Err(Refusal::CasesLeft { cases }),
        (_, 1.., _) => Err(Refusal::CampaignsLeft { campaigns }),
        (.., 1..) if !discards_deferred => Err(Refusal::DeferredLeft { messages }),
        _ => Ok(()),
    }
}

/// Whether a case that is over may be removed. Its row is what keeps its message from running again
/// when the log is read once more after a crash; so the log must have forgotten the message, and
/// what was put back into the flow must have ended.
///
/// # Errors
/// When it may not.
pub const fn may_purge(is_deferred: bool, is_in_log: bool) -> Result<(), Refusal> {
    match (is_deferred, is_in_log) {
        (true, _) => Err(Refusal::UnderWay),
        (_, true) => Err(Refusal::InLog),
        _ => Ok(()),
    }
}

/// A message in the place of one that could not be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Its id. The original's would say that nothing has changed.
    pub id: String,
    /// Its content.
    pub payload: Payload,
}

impl Correction {
    /// The corrected message, in the original's place in the log and in its key. It is caused by
    /// the original, belongs to the same operation, and is the same effect: see
    /// [`Row::effect_id`].
    #[must_use]
    pub fn of(&self, original: &Row) -> Row {
        let mut row = original.clone();
        let original_id = original.effect_id().to_owned();
        let envelope = &mut row.envelope;
        envelope.operation_id = Some(original.envelope.operation().to_owned());
        let caused = ("causationid".to_owned(), original_id.clone());
        envelope.attributes.extend([caused]);
        envelope.id.clone_from(&self.id);
        envelope.payload = self.payload.clone();
        row.corrects = Some(original_id.into());
        row
    }
}

/// A case for the audit log, as JSON: how it stands, why it is there and what its message had
/// used of the budget. Nothing of the message itself.
#[must_use]
pub fn account(standing: &Standing, reason: &str, spent: Spent) -> String {
    #[derive(Serialize)]
    struct Account<'a> {
        #[serde(flatten)]
        standing: &'a Standing,
        reason: &'a str,
        spent: Spent,
    }
    let account = Account {
        standing,
        reason,
        spent,
    };
    serde_json::to_string(&account).unwrap_or_else(|_| "{}".to_owned())
}

/// What cases of one cause have in common, 16 hexadecimal digits: the subscription, the message's
/// type, by which its handler is chosen, and class and code of the failure. It is stored for ever,
/// so it must never change.
#[must_use]
pub fn fingerprint(subscription: &str, message_type: &str, failure: &FailureRecord) -> String {
    let parts = [
        subscription,
        message_type,
        failure.class.as_str(),
        &failure.code,
    ];
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    format!("{:016x}", fnv1a(&bytes))
}

#[cfg(test)]
#[path = "case_tests.rs"]
mod tests;
