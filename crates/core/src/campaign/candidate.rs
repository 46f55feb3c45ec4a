//! A message that was found for a campaign, as a store knows it.

use super::{CampaignKind, Facts, Finding, ItemState, Verdict, preflight};
use crate::case::AT_MOST_ONCE_FAILED;
use crate::ledger::{Identity, LedgerKey};
use crate::store::{Retention, Terms};
use crate::timestamp::Timestamp;

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in the log.
    pub seq: u64,
    /// The message's own key.
    pub key: String,
    /// Message id.
    pub id: String,
    /// Source.
    pub source: String,
    /// Message type.
    pub message_type: String,
    /// Its operation.
    pub operation: String,
    /// When the log took it.
    pub recorded_at: Timestamp,
    /// The case that it comes from, which is live or was when it was chosen.
    pub case_id: Option<i64>,
    /// That case's reason.
    pub reason: Option<String>,
    /// The log or a case still has it.
    pub is_there: bool,
    /// It is not from a case and has one that is live.
    pub has_live_case: bool,
    /// It is not from a case, and one that is live holds its key.
    pub is_behind_case: bool,
    /// It is not from a case, and the one that it had was discarded or waived.
    pub is_given_up: bool,
    /// It is deferred.
    pub is_deferred: bool,
    /// Another campaign has it.
    pub is_in_campaign: bool,
}

impl Candidate {
    /// Its key in the ledger, in the first generation.
    #[must_use]
    pub fn ledger_key(&self, identity: Identity) -> LedgerKey {
        LedgerKey {
            source: self.source.clone(),
            message_type: self.message_type.clone(),
            identity: match identity {
                Identity::Message => self.id.clone(),
                Identity::Operation => self.operation.clone(),
                Identity::Seq => self.seq.to_string(),
            },
            generation: 0,
            recorded_at: self.recorded_at,
        }
    }

    /// What it waits behind in a subscription of these terms.
    #[must_use]
    pub fn waits_behind(&self, terms: &Terms) -> String {
        let key = terms
            .order
            .key_from(&self.key, &self.source, &self.message_type, &self.id);
        key.into_owned()
    }
}

/// What messages are judged by.
#[derive(Clone, Debug)]
pub struct Bench<'a> {
    /// Resend or rerun.
    pub kind: CampaignKind,
    /// The subscription's terms.
    pub terms: Terms,
    /// The types that it takes.
    pub types: &'a [String],
    /// How long things are kept.
    pub retention: Retention,
    /// What shall keep nothing back.
    pub accept: &'a [Finding],
    /// The database's time.
    pub now: Timestamp,
}

impl Verdict {
    /// The item's state in a plan.
    #[must_use]
    pub const fn planned_as(&self) -> ItemState {
        if self.goes_out {
            ItemState::Planned
        } else {
            ItemState::Refused
        }
    }

    /// Why it was refused, in words.
    #[must_use]
    pub fn note(&self) -> Option<&'static str> {
        let finding = self.finding.filter(|_| !self.goes_out);
        finding.map(Finding::explained)
    }
}

impl Bench<'_> {
    /// Judges a message, of which the ledger has the effect or not and which is overtaken or not.
    #[must_use]
    pub fn judge(&self, candidate: &Candidate, is_known: bool, is_overtaken: bool) -> Verdict {
        let age_ms = self.now.millis_since(candidate.recorded_at);
        let facts = Facts {
            is_case: candidate.case_id.is_some(),
            is_at_most_once_case: candidate.reason.as_deref() == Some(AT_MOST_ONCE_FAILED),
            is_type_taken: self.types.contains(&candidate.message_type),
            is_in_campaign: candidate.is_in_campaign,
            is_deferred: candidate.is_deferred,
            has_live_case: candidate.has_live_case,
            is_behind_case: candidate.is_behind_case,
            is_given_up: candidate.is_given_up,
            is_there: candidate.is_there,
            is_known,
            age_ms: u64::try_from(age_ms).unwrap_or(0),
            is_overtaken,
        };
        let memory_ms = self.retention.memory_ms(self.terms.identity);
        preflight(self.kind, &self.terms, memory_ms, &facts, self.accept)
    }
}
