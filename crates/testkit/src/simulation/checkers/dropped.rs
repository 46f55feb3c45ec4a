//! What policies give up.

use onceward_core::{Ending, LedgerEntry};

use super::Found;
use super::facts::{Facts, Message, identity, identity_of_entry, role};
use crate::memory::{Change, Written};
use crate::simulation::fault::Fault;
use crate::simulation::history::{Event, Step, What};
use crate::simulation::setup::Role;

pub(super) fn before(facts: &Facts, step: &Step) -> Found {
    match &step.what {
        What::Database(Change::Committed { writes, .. }) => writes
            .iter()
            .try_for_each(|written| recorded(facts, step, written)),
        What::Outside(Event::Ran { role, seq, .. }) => runs(facts, step, *role, *seq),
        _ => Ok(()),
    }
}

fn recorded(facts: &Facts, step: &Step, written: &Written) -> Found {
    let Written::Recorded {
        subscription,
        entry,
        ..
    } = written
    else {
        return Ok(());
    };
    let Some(role) = role(subscription) else {
        return Ok(());
    };
    let of = identity_of_entry(entry);
    // The first of its copies, which is the one that was given up.
    let mut its = facts.messages.values().filter(|message| {
        facts.takes(role, &message.row.envelope.message_type) && identity(role, &message.row) == of
    });
    let Some(message) = its.next() else {
        return Ok(());
    };
    match entry.ending {
        Ending::Merged => merged(facts, role, message, entry),
        Ending::Shed => shed(facts, step, role, message),
        _ => Ok(()),
    }
}

fn wrong(role: Role, message: &Message, text: &str) -> Found {
    let seq = message.row.seq;
    let text = format!("message {seq} of {} {text}", role.name());
    Err(("dropped", text))
}

/// Into a later message of its key and type whose end is still to come, and that is not given up for
/// another reason: what it says is not lost.
fn merged(facts: &Facts, role: Role, message: &Message, entry: &LedgerEntry) -> Found {
    if !facts.setup.merges(role) {
        return wrong(role, message, "is merged, which nobody asked for");
    }
    let place = (role, identity(role, &message.row));
    if facts.effects.contains_key(&place) {
        return wrong(role, message, "is merged after its effect");
    }
    tried(facts, role, message)?;
    let kept = entry.result.as_deref().unwrap_or_default();
    let kept: serde_json::Value = serde_json::from_str(kept).unwrap_or_default();
    let id = kept["merged_into"].as_str();
    let survivors = facts.messages.values().filter(|survivor| {
        id == Some(&survivor.row.envelope.id)
            && facts.takes(role, &survivor.row.envelope.message_type)
    });
    let takes_its_place = |survivor: &Message| {
        let (one, other) = (&message.row.envelope, &survivor.row.envelope);
        let is_over = facts.is_finished(role, survivor.row.seq);
        one.key() == other.key()
            && one.message_type == other.message_type
            && one.id != other.id
            // Not one that was there before it came.
            && survivor.seen_at_seq >= message.row.seq
            && !is_over
    };
    match survivors.into_iter().any(takes_its_place) {
        true => Ok(()),
        false => wrong(
            role,
            message,
            &format!("is merged into {id:?}, which cannot take its place"),
        ),
    }
}

/// What was tried is neither merged nor shed.
fn tried(facts: &Facts, role: Role, message: &Message) -> Found {
    let deferral = facts.deferrals.get(&(role, message.row.seq));
    let is_tried = |spent: onceward_core::Spent| spent.failures > 0 || spent.deaths > 0;
    match deferral.is_some_and(|deferral| is_tried(deferral.spent)) {
        true => wrong(role, message, "is given up although it was tried"),
        false => Ok(()),
    }
}

/// Only what has waited for long enough; operators' pauses do not count.
fn shed(facts: &Facts, step: &Step, role: Role, message: &Message) -> Found {
    let Some(after_ms) = facts.setup.sheds_after_ms(role) else {
        return wrong(role, message, "is shed, which nobody asked for");
    };
    tried(facts, role, message)?;
    let recorded_at = message.row.recorded_at;
    let waited_ms = step.now.millis_since(recorded_at) - facts.held_ms(role, recorded_at, step.now);
    let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
    // Between the judgement and the commit a clock may be set back.
    let is_late = waited_ms > after_ms || facts.setup.has(Fault::Clock);
    match is_late {
        true => Ok(()),
        false => wrong(role, message, &format!("is shed after {waited_ms} ms")),
    }
}

/// What was given up does not run any more under whoever owns it.
fn runs(facts: &Facts, step: &Step, role: Role, seq: u64) -> Found {
    let Some(message) = facts.messages.get(&seq) else {
        return Ok(());
    };
    let lane = facts.lane(role, &message.row);
    let Some(owner) = lane.and_then(|lane| lane.owner.as_deref()) else {
        return Ok(());
    };
    let is_its = owner.starts_with(&format!("{}.", step.process));
    let has_ended = facts.members.get(owner).is_none_or(|m| m.has_ended);
    let is_alone = !facts.is_copy(role, seq, &message.row);
    if let Some(ending) = facts.dropped(role, &message.row)
        && is_its
        && !has_ended
        && is_alone
    {
        return wrong(
            role,
            message,
            &format!("runs although it was {}", ending.as_str()),
        );
    }
    Ok(())
}
