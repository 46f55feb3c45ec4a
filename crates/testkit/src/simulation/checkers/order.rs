//! Key order and one effect, at each commit.

use std::collections::BTreeSet;

use onceward::{Gaps, Order};
use onceward_core::Ending;

use super::Found;
use super::facts::{Effect, Facts, Message, identity, identity_of_entry, role};
use crate::memory::{Change, Written};
use crate::simulation::history::{Event, Outcome, Step, What};
use crate::simulation::setup::Role;

/// Whether one message was there before the other was appended.
fn is_before(first: &Message, second: &Message) -> bool {
    first.row.envelope.key() == second.row.envelope.key() && first.seen_at_seq < second.row.seq
}

pub(super) fn before(facts: &Facts, step: &Step) -> Found {
    match &step.what {
        What::Database(Change::Committed { writes, .. }) => {
            writes
                .iter()
                .try_for_each(|written| given_up(facts, written))?;
            commit(facts, writes)
        }
        What::Outside(Event::Delivered {
            role,
            seq,
            outcome: Outcome::Done,
        }) if !facts.is_finished(*role, *seq) => {
            let effect = Effect {
                role: *role,
                seq: *seq,
            };
            in_order(facts, effect, &BTreeSet::new())
        }
        _ => Ok(()),
    }
}

fn commit(facts: &Facts, writes: &[Written]) -> Found {
    let effects = facts.effects_of(writes);
    let mut recorded = BTreeSet::new();
    for written in writes {
        if let Written::Recorded {
            subscription,
            entry,
            ..
        } = written
            && let Some(role) = role(subscription)
        {
            recorded.insert((role, identity_of_entry(entry)));
        }
    }
    let mut settled: BTreeSet<(Role, u64)> = ended_without(facts, writes);
    let mut applied = BTreeSet::new();
    for written in writes {
        if let Written::Quarantined {
            subscription, seq, ..
        } = written
            && let Some(role) = role(subscription)
            && !facts.setup.holds_key(role)
        {
            settled.insert((role, *seq));
        }
    }
    for effect in effects {
        let Some(message) = facts.messages.get(&effect.seq) else {
            return Err((
                "one-effect",
                format!(
                    "an effect of message {}, which nobody committed",
                    effect.seq
                ),
            ));
        };
        let place = (effect.role, identity(effect.role, &message.row));
        let name = effect.role.name();
        if facts.effects.contains_key(&place) {
            let message = format!("message {} has a second effect in {name}", effect.seq);
            return Err(("one-effect", message));
        }
        let has_record = match effect.role {
            Role::Notice => facts.ledger.contains_key(&place),
            _ => recorded.contains(&place),
        };
        if !has_record {
            let message = format!(
                "an effect of message {} in {name} without a record",
                effect.seq
            );
            return Err(("one-effect", message));
        }
        in_order(facts, effect, &settled)?;
        in_version(facts, effect, &applied)?;
        applied.insert((effect.role, effect.seq));
        settled.insert((effect.role, effect.seq));
        // What has its identity has had its effect as well.
        let same = facts.messages.iter().filter(|(_, other)| {
            facts.takes(effect.role, &other.row.envelope.message_type)
                && identity(effect.role, &other.row) == place.1
        });
        settled.extend(same.map(|(seq, _)| (effect.role, *seq)));
    }
    Ok(())
}

/// Whether everything of the key that was there before has had its end; `settled` has it in the
/// same commit.
fn in_order(facts: &Facts, effect: Effect, settled: &BTreeSet<(Role, u64)>) -> Found {
    let role = effect.role;
    let Some(message) = facts.messages.get(&effect.seq) else {
        return Ok(());
    };
    if facts.setup.order(role) != Order::Key {
        return Ok(());
    }
    for (seq, earlier) in &facts.messages {
        let is_its = facts.takes(role, &earlier.row.envelope.message_type);
        if *seq == effect.seq || !is_its || !is_before(earlier, message) {
            continue;
        }
        if let Some(case) = facts.cases.get(&(role, *seq)) {
            if case.is_holding() {
                let message = format!(
                    "message {} had its effect in {} although the case of {seq} holds its key",
                    effect.seq,
                    role.name()
                );
                return Err(("key-order", message));
            }
            // Released where it held its key, it comes before the others; else after them.
            if !(case.holds_key && case.is_replayed()) {
                continue;
            }
        }
        let same = identity(role, &earlier.row) == identity(role, &message.row);
        if is_waited_for(facts, effect, *seq, settled) {
            continue;
        }
        if !same && !facts.is_finished(role, *seq) && !settled.contains(&(role, *seq)) {
            let message = format!(
                "message {} had its effect in {} before {seq}, which came earlier with its key",
                effect.seq,
                role.name()
            );
            return Err(("key-order", message));
        }
    }
    Ok(())
}

/// Messages that end in these writes without an effect: a later version had been applied, or a
/// policy gave them up.
fn ended_without(facts: &Facts, writes: &[Written]) -> BTreeSet<(Role, u64)> {
    let mut ended = BTreeSet::new();
    for written in writes {
        let Written::Recorded {
            subscription,
            entry,
            ..
        } = written
        else {
            continue;
        };
        if let Some(role) = role(subscription)
            && (entry.ending == Ending::Superseded || Ending::DROPPED.contains(&entry.ending))
        {
            let of = identity_of_entry(entry);
            let same = facts.messages.iter().filter(|(_, message)| {
                facts.takes(role, &message.row.envelope.message_type)
                    && identity(role, &message.row) == of
            });
            ended.extend(same.map(|(seq, _)| (role, *seq)));
        }
    }
    ended
}

/// Whether something of the key that is open, and came no later than `seq`, waits for this version.
fn is_waited_for(facts: &Facts, effect: Effect, seq: u64, settled: &BTreeSet<(Role, u64)>) -> bool {
    let Some(message) = facts.messages.get(&effect.seq) else {
        return false;
    };
    let envelope = &message.row.envelope;
    facts.setup.versions == Some(Gaps::Wait)
        && facts.messages.range(..=seq).any(|(other, waiting)| {
            let is_open = !facts.is_finished(effect.role, *other)
                && !settled.contains(&(effect.role, *other));
            is_open
                && waiting.row.envelope.key() == envelope.key()
                && waiting.row.envelope.aggregate_version > envelope.aggregate_version
        })
}

/// A gap is given up after its time, and not while what it lacks is there and waits.
fn given_up(facts: &Facts, written: &Written) -> Found {
    let Written::Quarantined {
        subscription,
        seq,
        reason,
        ..
    } = written
    else {
        return Ok(());
    };
    let (Some(role), Some(message)) = (role(subscription), facts.messages.get(seq)) else {
        return Ok(());
    };
    if reason != "version_gap" {
        return Ok(());
    }
    let wrong = |why: String| {
        let text = format!("message {seq} of {subscription} gave its gap up {why}");
        Err(("versions", text))
    };
    let age_ms = facts.loaded_ages.get(&(role, *seq)).copied().unwrap_or(0);
    if age_ms < facts.setup.gap_limit_ms {
        return wrong(format!("after {age_ms} ms"));
    }
    let version = message.row.envelope.aggregate_version;
    let waits = facts.deferrals.keys().find(|(of, other)| {
        let earlier = facts.messages.get(other);
        *of == role
            && !facts.is_finished(role, *other)
            && earlier.is_some_and(|earlier| {
                earlier.row.envelope.key() == message.row.envelope.key()
                    && earlier.row.envelope.aggregate_version < version
            })
    });
    match waits {
        Some((_, other)) => wrong(format!("while {other}, which it waits for, was deferred")),
        None => Ok(()),
    }
}

/// Never backward, and where gaps wait never over one; `now` has been applied in the same commit.
fn in_version(facts: &Facts, effect: Effect, now: &BTreeSet<(Role, u64)>) -> Found {
    let (Some(gaps), Some(message)) = (facts.setup.versions, facts.messages.get(&effect.seq))
    else {
        return Ok(());
    };
    let envelope = &message.row.envelope;
    let applied = facts.messages.iter().filter(|(seq, other)| {
        let place = (effect.role, identity(effect.role, &other.row));
        // The other side's refusal is an end of its version too, and leaves no effect here.
        let is_rejected = facts.done.get(&place) == Some(&Ending::Rejected);
        let is_applied = facts.effects.contains_key(&place)
            || is_rejected
            || now.contains(&(effect.role, **seq));
        is_applied && other.row.envelope.key() == envelope.key()
    });
    let last = applied.filter_map(|(_, other)| other.row.envelope.aggregate_version);
    let (Some(last), Some(version)) = (last.max(), envelope.aggregate_version) else {
        return Ok(());
    };
    if version <= last || gaps == Gaps::Wait && version != last + 1 {
        let name = effect.role.name();
        let seq = effect.seq;
        let text = format!("message {seq} of {name} applied version {version} after {last}");
        return Err(("versions", text));
    }
    Ok(())
}
