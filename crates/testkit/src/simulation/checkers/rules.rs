//! Rules about single steps.

use std::collections::{BTreeMap, BTreeSet};

use onceward_core::store::{CaseState, DeferralKind};
use onceward_core::{Spent, Timestamp};

use super::Found;
use super::facts::{Facts, identity, identity_of_entry, role};
use crate::memory::{Change, Written};
use crate::simulation::history::{Event, Outcome, Step, What};
use crate::simulation::setup::Role;

/// What is judged by what was known before the step.
pub(super) fn before(facts: &Facts, step: &Step) -> Found {
    match &step.what {
        What::Database(Change::Committed { member, writes, .. }) => {
            if let Some(member) = member {
                fence(facts, member, writes)?;
            }
            let released = released(writes);
            writes
                .iter()
                .try_for_each(|written| budget(facts, written, &released))?;
            writes
                .iter()
                .try_for_each(|written| first_time(facts, written))
        }
        What::Database(Change::Taken {
            from: Some(from),
            subscription,
            lane,
            member,
            ..
        }) if from != member => lease(facts, step, from, subscription, *lane),
        What::Database(Change::LogRemoved { seq }) => log_removed(facts, *seq),
        What::Database(Change::LedgerRemoved {
            subscription,
            entry,
        }) => {
            let Some(role) = role(subscription) else {
                return Ok(());
            };
            ledger_removed(facts, role, &identity_of_entry(entry))
        }
        What::Database(Change::StoodStill {
            subscription,
            from,
            to,
        }) => no_overlap(facts, subscription, *from, *to),
        What::Outside(Event::NotStarted(why)) => {
            let text = format!("the engine of {} does not start: {why}", step.process);
            Err(("start", text))
        }
        What::Outside(Event::Loaded {
            subscription,
            seq,
            age_ms,
        }) => age(facts, step, subscription, *seq, *age_ms),
        What::Outside(Event::Ran {
            role, seq, attempt, ..
        }) => attempt_is_counted(facts, step, *role, *seq, *attempt),
        What::Outside(Event::Asked {
            role,
            waiting,
            oldest_waiting_at,
            oldest_deferred_at,
        }) => {
            let oldest = (*oldest_waiting_at, *oldest_deferred_at);
            backlog(facts, *role, *waiting, oldest)
        }
        _ => Ok(()),
    }
}

/// What is judged by what is known after the step.
pub(super) fn after(facts: &Facts, step: &Step) -> Found {
    let What::Database(change) = &step.what else {
        return Ok(());
    };
    let is_about_positions = matches!(
        change,
        Change::Committed { .. } | Change::Saved { .. } | Change::Released { .. }
    );
    if !is_about_positions {
        return Ok(());
    }
    for (role, seq) in &facts.open {
        let Some(message) = facts.messages.get(seq) else {
            continue;
        };
        if facts.is_past(*role, &message.row) {
            let text = format!(
                "the position of {} is past message {seq}, which is not finished and stored \
                 nowhere else",
                role.name()
            );
            return Err(("position", text));
        }
    }
    Ok(())
}

/// Which messages a write of a subscription is about.
fn subjects(facts: &Facts, written: &Written) -> Option<(Role, Vec<u64>)> {
    match written {
        Written::Recorded {
            subscription,
            entry,
            ..
        } => {
            let role = role(subscription)?;
            let of = identity_of_entry(entry);
            let same = facts.messages.iter().filter(|(_, message)| {
                facts.takes(role, &message.row.envelope.message_type)
                    && identity(role, &message.row) == of
            });
            Some((role, same.map(|(seq, _)| *seq).collect()))
        }
        Written::Deferred {
            subscription, seq, ..
        }
        | Written::Cleared { subscription, seq }
        | Written::Quarantined {
            subscription, seq, ..
        } => Some((role(subscription)?, vec![*seq])),
        _ => None,
    }
}

fn fence(facts: &Facts, member: &str, writes: &[Written]) -> Found {
    let has_ended = facts
        .members
        .get(member)
        .is_none_or(|state| state.has_ended);
    if has_ended && !writes.is_empty() {
        let message = format!("{member} commits although its lease is over");
        return Err(("fence", message));
    }
    for written in writes {
        let Some((role, seqs)) = subjects(facts, written) else {
            continue;
        };
        let is_owner = seqs.iter().any(|seq| {
            let message = facts.messages.get(seq);
            let lane = message.and_then(|message| facts.lane(role, &message.row));
            lane.is_some_and(|lane| lane.owner.as_deref() == Some(member))
        });
        if !is_owner {
            let message = format!(
                "{member} commits for message {seqs:?} of {}, whose lane is not its own",
                role.name()
            );
            return Err(("fence", message));
        }
    }
    Ok(())
}

fn lease(facts: &Facts, step: &Step, from: &str, subscription: &str, lane: u16) -> Found {
    let Some(owner) = facts.members.get(from) else {
        return Ok(());
    };
    let lease_ms = i64::try_from(owner.lease_ms).unwrap_or(i64::MAX);
    // Renewed further ahead than a lease is renewed before the clock was set back.
    if !owner.has_ended && step.now.millis_since(owner.renewed_at).abs() < lease_ms {
        let message =
            format!("lane {lane} of {subscription} was taken from {from} before its time");
        return Err(("lease", message));
    }
    Ok(())
}

/// Messages that a commit releases from their cases.
fn released(writes: &[Written]) -> BTreeSet<(&str, u64)> {
    let acted = writes.iter().filter_map(|written| match written {
        Written::Acted {
            subscription,
            seq,
            state: CaseState::Replayed,
        } => Some((subscription.as_str(), *seq)),
        _ => None,
    });
    acted.collect()
}

fn budget(facts: &Facts, written: &Written, released: &BTreeSet<(&str, u64)>) -> Found {
    let (subscription, seq, spent, kind, end) = match written {
        Written::Deferred {
            subscription,
            seq,
            spent,
            kind,
            ..
        } => (subscription, *seq, *spent, Some(*kind), ""),
        Written::Quarantined {
            subscription,
            seq,
            spent,
            reason,
            ..
        } => (subscription, *seq, *spent, None, reason.as_str()),
        _ => return Ok(()),
    };
    let Some(role) = role(subscription) else {
        return Ok(());
    };
    let case = facts.cases.get(&(role, seq));
    // The same case again, after it was released: its record's answer was lost.
    if kind.is_none() && case.is_some_and(|case| case.spent == spent) {
        return Ok(());
    }
    let known = facts.deferrals.get(&(role, seq)).map(|d| d.spent);
    // The same case again: its record's answer was lost. One that was released and is done may be sent
    // out anew by a campaign, with a budget of its own.
    let live = case.filter(|case| !case.is_replayed());
    let known = known.or_else(|| live.map(|case| case.spent));
    let before = known.unwrap_or_default();
    let wrong = |what: &str| {
        let message =
            format!("message {seq} of {subscription}: {what}: {before:?}, then {spent:?}");
        Err(("budget", message))
    };
    if released.contains(&(subscription.as_str(), seq)) {
        let is_fresh = spent == Spent::default() && kind == Some(DeferralKind::Retry);
        return match is_fresh {
            true => Ok(()),
            false => wrong("released with what it had used before"),
        };
    }
    let max = facts.setup.retry.attempts_max;
    let attempts = spent.failures + spent.deaths;
    if attempts > max + spent.deaths.saturating_sub(1) {
        return wrong("more attempts than the budget has");
    }
    if kind == Some(DeferralKind::Retry) && attempts >= max {
        return wrong("tried again although the budget is used up");
    }
    let age_ms = facts.loaded_ages.get(&(role, seq)).copied().unwrap_or(0);
    let is_old = age_ms >= facts.setup.policy().age_max_ms;
    if kind == Some(DeferralKind::Retry) && spent.failures > before.failures && is_old {
        return wrong("tried again although its time is over");
    }
    if end == "age_exhausted" && !is_old {
        return wrong("its time is not over");
    }
    if spent.failures < before.failures || spent.deaths < before.deaths {
        return wrong("attempts were forgotten");
    }
    if spent.failures > before.failures + 1 {
        return wrong("an attempt counts more than once");
    }
    let counted = facts.deaths.get(&(role, seq)).copied().unwrap_or(0);
    if spent.deaths > counted {
        return wrong("deaths are counted by the database alone");
    }
    Ok(())
}

fn first_time(facts: &Facts, written: &Written) -> Found {
    let (subscription, seq, first_at) = match written {
        Written::Deferred {
            subscription,
            seq,
            first_at,
            ..
        } => (subscription, seq, Some(*first_at)),
        Written::Quarantined {
            subscription,
            seq,
            first_deferred_at,
            ..
        } => (subscription, seq, *first_deferred_at),
        _ => return Ok(()),
    };
    let Some(role) = role(subscription) else {
        return Ok(());
    };
    let known = facts.deferrals.get(&(role, *seq)).map(|d| d.first_at);
    match known {
        Some(known) if first_at != Some(known) => Err((
            "age",
            format!(
                "message {seq} of {subscription} was first deferred at {known}, not {first_at:?}"
            ),
        )),
        _ => Ok(()),
    }
}

/// Time in which a subscription stood still counts once.
fn no_overlap(facts: &Facts, subscription: &str, from: Timestamp, to: Timestamp) -> Found {
    let other = role(subscription).and_then(|role| facts.other_pause_in(role, from, to));
    match other {
        Some(other) => Err((
            "age",
            format!("{subscription} stood still from {from} to {to}, and in a pause from {other}"),
        )),
        None => Ok(()),
    }
}

fn age(facts: &Facts, step: &Step, subscription: &str, seq: u64, age_ms: u64) -> Found {
    let deferral = role(subscription).and_then(|role| facts.deferrals.get(&(role, seq)));
    let Some(deferral) = deferral else {
        return Ok(());
    };
    let paused_ms =
        role(subscription).map_or(0, |role| facts.paused_ms(role, deferral.first_at, step.now));
    let expected = step.now.millis_since(deferral.first_at) - paused_ms;
    let expected = u64::try_from(expected).unwrap_or(0);
    if age_ms != expected {
        let message = format!("message {seq} of {subscription} is {expected} ms old, not {age_ms}");
        return Err(("age", message));
    }
    Ok(())
}

/// What the backlog says, against what the history knows: ages are differences of these moments, so
/// none is too young.
fn backlog(
    facts: &Facts,
    role: Role,
    waiting: u64,
    oldest: (Option<Timestamp>, Option<Timestamp>),
) -> Found {
    let waits = facts.messages.iter().filter(|(seq, message)| {
        let row = &message.row;
        message.is_in_log
            && facts.takes(role, &row.envelope.message_type)
            && !facts.deferrals.contains_key(&(role, **seq))
            && !facts.cases.contains_key(&(role, **seq))
            && !facts.is_past(role, row)
    });
    let recorded: Vec<Timestamp> = waits.map(|(_, m)| m.row.recorded_at).collect();
    let deferred = facts.deferrals.iter().filter(|((of, _), _)| *of == role);
    let truth = (
        recorded.iter().min().copied(),
        deferred.map(|(_, deferral)| deferral.first_at).min(),
    );
    if waiting != recorded.len() as u64 || oldest != truth {
        let text = format!(
            "the backlog of {} says that {waiting} wait, the oldest waiting and deferred since \
             {oldest:?}: there are {}, since {truth:?}",
            role.name(),
            recorded.len()
        );
        return Err(("age", text));
    }
    Ok(())
}

/// A message runs with the attempts that are recorded of it, by whoever owns it.
fn attempt_is_counted(facts: &Facts, step: &Step, role: Role, seq: u64, attempt: u32) -> Found {
    let lane = facts
        .messages
        .get(&seq)
        .and_then(|message| facts.lane(role, &message.row));
    let Some(owner) = lane.and_then(|lane| lane.owner.as_deref()) else {
        return Ok(());
    };
    let is_its = owner.starts_with(&format!("{}.", step.process));
    let has_ended = facts.members.get(owner).is_none_or(|m| m.has_ended);
    let Some(deferral) = facts
        .deferrals
        .get(&(role, seq))
        .filter(|_| is_its && !has_ended)
    else {
        return Ok(());
    };
    let recorded = deferral.spent.failures + deferral.spent.deaths;
    if attempt <= recorded {
        let text = format!(
            "message {seq} of {} runs as attempt {attempt}, although {recorded} are recorded",
            role.name()
        );
        return Err(("budget", text));
    }
    Ok(())
}

fn log_removed(facts: &Facts, seq: u64) -> Found {
    let Some(message) = facts.messages.get(&seq) else {
        return Ok(());
    };
    for role in facts.roles_of(&message.row) {
        let is_deferred = facts.deferrals.contains_key(&(role, seq));
        if is_deferred || !facts.is_finished(role, seq) {
            let message = format!(
                "message {seq} was removed, which {} still needs",
                role.name()
            );
            return Err(("retention", message));
        }
    }
    Ok(())
}

/// A row of the ledger may go when its message cannot come again.
fn ledger_removed(facts: &Facts, role: Role, of: &str) -> Found {
    for (seq, message) in &facts.messages {
        let row = &message.row;
        if !message.is_in_log
            || !facts.takes(role, &row.envelope.message_type)
            || identity(role, row) != of
        {
            continue;
        }
        let is_deferred = facts.deferrals.contains_key(&(role, *seq));
        if is_deferred || !facts.is_past(role, row) {
            let message = format!(
                "the record of message {seq} in {} was removed, and it may be read again",
                role.name()
            );
            return Err(("retention", message));
        }
    }
    Ok(())
}

/// Calls outside: what was done, and who has looked since.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// Done, by operation.
    done: BTreeMap<String, String>,
    /// Who has asked about it after that.
    probed: BTreeSet<(String, String)>,
}

impl Outside {
    pub(super) fn see(&mut self, facts: &Facts, step: &Step) -> Found {
        match &step.what {
            What::Outside(Event::Probed { operation, .. }) => {
                self.probed
                    .insert((step.process.clone(), operation.clone()));
                Ok(())
            }
            What::Outside(Event::Outside {
                operation, outcome, ..
            }) => {
                let first = self.done.get(operation);
                let is_again = first.is_some()
                    && !self
                        .probed
                        .contains(&(step.process.clone(), operation.clone()));
                // What a process had in flight when its lease ended may still arrive.
                let prefix = format!("{}.", step.process);
                let is_live = facts
                    .members
                    .iter()
                    .any(|(name, member)| name.starts_with(&prefix) && !member.has_ended);
                let copies = facts
                    .messages
                    .values()
                    .filter(|message| message.row.envelope.id == *operation)
                    .count();
                if is_again && is_live && copies == 1 {
                    let message = format!(
                        "{} calls again for {operation}, which {} had done, without asking first",
                        step.process,
                        first.map_or("", String::as_str)
                    );
                    return Err(("outside", message));
                }
                if matches!(outcome, Outcome::Done | Outcome::DoneUnheard) {
                    self.done.insert(operation.clone(), step.process.clone());
                    self.probed.retain(|(_, of)| of != operation);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
