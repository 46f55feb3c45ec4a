//! What handlers append: there exactly if the effect is that it belongs to.

use std::collections::BTreeMap;

use onceward_core::{Ending, Message as _};

use super::Found;
use super::facts::{Effect, Facts, identity, identity_of_entry, role};
use crate::memory::{Change, Written};
use crate::simulation::history::{Step, What};
use crate::simulation::messages::{SHIPPED, Shipped};
use crate::simulation::setup::Role;

pub(super) fn before(facts: &Facts, step: &Step) -> Found {
    let What::Database(Change::Committed { writes, .. }) = &step.what else {
        return Ok(());
    };
    let mut appended: BTreeMap<u64, u32> = BTreeMap::new();
    for seq in writes.iter().filter_map(source_of) {
        *appended.entry(seq).or_default() += 1;
    }
    for effect in facts.effects_of(writes) {
        if effect.role != Role::Ship {
            continue;
        }
        let found = appended.remove(&effect.seq).unwrap_or(0);
        let owed = u32::from(is_owed(facts, effect, writes));
        if found != owed {
            let text = format!(
                "{found} messages follow message {}, whose effect calls for {owed}",
                effect.seq
            );
            return Err(("follow-ups", text));
        }
    }
    match appended.keys().next() {
        Some(seq) => Err((
            "follow-ups",
            format!("a message follows message {seq} without its effect"),
        )),
        None => Ok(()),
    }
}

/// The message that an appended one follows.
fn source_of(written: &Written) -> Option<u64> {
    let Written::Appended(row) = written else {
        return None;
    };
    let is_its = row.envelope.message_type == Shipped::TYPE;
    let number = row.envelope.id.strip_prefix(SHIPPED)?;
    number.parse().ok().filter(|_| is_its)
}

/// A refusal is an effect too: what was appended before it stays.
fn is_owed(facts: &Facts, effect: Effect, writes: &[Written]) -> bool {
    let Some(message) = facts.messages.get(&effect.seq) else {
        return false;
    };
    let of = identity(effect.role, &message.row);
    let is_rejected = writes.iter().any(|written| {
        matches!(written, Written::Recorded { subscription, entry, .. }
            if role(subscription) == Some(effect.role)
                && entry.ending == Ending::Rejected
                && identity_of_entry(entry) == of)
    });
    let conduct = facts.setup.conduct(effect.role, message.number);
    conduct.follows && (facts.setup.is_early || !is_rejected)
}
