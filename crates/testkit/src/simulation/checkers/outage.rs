//! What becomes of messages for which nobody was there.

use std::collections::BTreeMap;

use super::Found;
use super::facts::{Facts, role};
use crate::memory::{Change, Written};
use crate::simulation::history::{Event, Outcome, Step, What};
use crate::simulation::setup::Role;

/// Whom each process met when it last worked on a message.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Process, subscription and number of the message: whether nobody was there.
    met_nobody: BTreeMap<(String, Role, u64), bool>,
}

impl Outage {
    pub(super) fn see(&mut self, facts: &Facts, step: &Step) -> Found {
        let (role, number, is_away) = match &step.what {
            What::Outside(Event::Outside {
                role,
                number,
                outcome,
                ..
            }) => (*role, *number, *outcome == Outcome::Away),
            What::Outside(Event::ProbedNobody { role, number }) => (*role, *number, true),
            What::Outside(Event::Probed { operation, .. }) => {
                let mut all = facts.messages.values();
                let Some(message) = all.find(|m| m.row.envelope.id == *operation) else {
                    return Ok(());
                };
                (Role::Carrier, message.number, false)
            }
            What::Outside(Event::Delivered { role, seq, outcome }) => {
                let Some(message) = facts.messages.get(seq) else {
                    return Ok(());
                };
                (*role, message.number, *outcome == Outcome::Away)
            }
            What::Outside(Event::Ran { role, number, .. }) => (*role, *number, false),
            What::Database(Change::Committed { writes, .. }) => {
                return writes
                    .iter()
                    .try_for_each(|written| self.check(facts, step, written));
            }
            _ => return Ok(()),
        };
        self.met_nobody
            .insert((step.process.clone(), role, number), is_away);
        Ok(())
    }

    fn check(&self, facts: &Facts, step: &Step, written: &Written) -> Found {
        let (subscription, seq, spent, reason) = match written {
            Written::Deferred {
                subscription,
                seq,
                spent,
                ..
            } => (subscription, *seq, *spent, ""),
            Written::Quarantined {
                subscription,
                seq,
                spent,
                reason,
                ..
            } => (subscription, *seq, *spent, reason.as_str()),
            _ => return Ok(()),
        };
        let (Some(role), Some(message)) = (role(subscription), facts.messages.get(&seq)) else {
            return Ok(());
        };
        let copies = facts.messages.values();
        let is_only = copies.filter(|m| m.number == message.number).count() == 1;
        let met = (step.process.clone(), role, message.number);
        if !is_only || self.met_nobody.get(&met) != Some(&true) {
            return Ok(());
        }
        let known = facts.deferrals.get(&(role, seq)).map(|d| d.spent);
        let before = known.unwrap_or_default();
        if reason == "attempts_exhausted" || spent.failures > before.failures {
            let text = format!(
                "message {seq} of {subscription} pays for an outage: {before:?}, then {spent:?} \
                 {reason}"
            );
            return Err(("outage", text));
        }
        Ok(())
    }
}
