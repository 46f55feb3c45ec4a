//! How every message ended, and how it should have.

use onceward_core::Ending;
use onceward_core::store::DeferralKind;

use super::Found;
use super::facts::{Facts, Message, identity};
use crate::memory::Change;
use crate::simulation::conduct::Trouble;
use crate::simulation::fault::Fault;
use crate::simulation::history::{Event, Outcome, Step, What};
use crate::simulation::setup::Role;
use crate::simulation::variants::Variant;

/// How a message ended in a subscription.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndState {
    /// Subscription.
    pub role: Role,
    /// The message.
    pub seq: u64,
    /// Its number, by which its handlers' conduct goes.
    pub number: u64,
    /// `done`, `rejected`, a case's reason, `operator`, `held`, or `unfinished`.
    pub end: String,
    /// Failures counted.
    pub failures: u32,
    /// Deaths counted.
    pub deaths: u32,
}

fn end_of(facts: &Facts, role: Role, seq: u64, message: &Message) -> EndState {
    let place = (role, seq);
    let case = facts.cases.get(&place).filter(|case| !case.is_replayed());
    let deferral = facts.deferrals.get(&place);
    let recorded = facts.done.get(&(role, identity(role, &message.row)));
    let is_waiting = deferral.is_some_and(|deferral| {
        role == Role::Mail || deferral.is_replayed || facts.is_copy(role, seq, &message.row)
    });
    let end = match (case, recorded, facts.delivered.get(&place), deferral) {
        (Some(case), ..) => case.reason.clone(),
        // Another message of its operation is done, it was handed on before, or it goes out again: it
        // waits for its turn all the same.
        _ if is_waiting && is_held(facts, role, seq, message) => "held".to_owned(),
        (_, Some(Ending::Done), ..) | (_, _, Some(Outcome::Done), _) => "done".to_owned(),
        (_, Some(Ending::Superseded), ..) => "superseded".to_owned(),
        (_, Some(ending), ..) if Ending::DROPPED.contains(ending) => ending.as_str().to_owned(),
        (_, Some(Ending::Rejected), ..) | (_, _, Some(Outcome::Rejected), _) => {
            "rejected".to_owned()
        }
        (.., Some(deferral)) if deferral.kind == DeferralKind::Operator => "operator".to_owned(),
        (.., Some(_)) if is_held(facts, role, seq, message) => "held".to_owned(),
        _ => "unfinished".to_owned(),
    };
    let spent = case.map(|case| case.spent);
    let spent = spent.or_else(|| deferral.map(|deferral| deferral.spent));
    let spent = spent.unwrap_or_default();
    EndState {
        role,
        seq,
        number: message.number,
        end,
        failures: spent.failures,
        deaths: spent.deaths,
    }
}

/// Whether something before it keeps its key.
fn is_held(facts: &Facts, role: Role, seq: u64, message: &Message) -> bool {
    let key = message.row.envelope.key();
    let is_of_key = |other: u64| {
        other != seq
            && facts
                .messages
                .get(&other)
                .is_some_and(|other| other.row.envelope.key() == key)
    };
    let mut cases = facts.cases.iter();
    let mut deferrals = facts.deferrals.iter();
    cases.any(|((of, other), case)| *of == role && case.is_holding() && is_of_key(*other))
        || deferrals.any(|((of, other), deferral)| {
            *of == role && deferral.kind == DeferralKind::Operator && is_of_key(*other)
        })
}

/// How every message ended in every subscription that takes it.
pub(super) fn of(facts: &Facts) -> Vec<EndState> {
    let mut ends = Vec::new();
    for (seq, message) in &facts.messages {
        for role in facts.roles_of(&message.row) {
            ends.push(end_of(facts, role, *seq, message));
        }
    }
    ends.sort();
    ends
}

/// Whether a step may change how messages end.
pub(super) const fn may_change_with(step: &Step) -> bool {
    matches!(
        step.what,
        What::Database(Change::Committed { .. } | Change::DeathCounted { .. })
            | What::Outside(Event::Delivered { .. })
    )
}

/// What has not come to an end.
pub(super) fn unfinished(facts: &Facts) -> impl Iterator<Item = String> {
    facts.messages.iter().flat_map(|(seq, message)| {
        let roles = facts.roles_of(&message.row).into_iter();
        let open = roles.filter(|role| {
            let end = end_of(facts, *role, *seq, message).end;
            let still_deferred = facts.deferrals.contains_key(&(*role, *seq));
            let waits = end == "held" || end == "operator";
            end == "unfinished" || (still_deferred && !waits)
        });
        open.map(move |role| format!("{seq} of {}", role.name()))
    })
}

pub(super) fn check(facts: &Facts) -> Found {
    for (seq, message) in &facts.messages {
        for role in facts.roles_of(&message.row) {
            check_one(facts, role, *seq, message)?;
        }
    }
    Ok(())
}

fn check_one(facts: &Facts, role: Role, seq: u64, message: &Message) -> Found {
    let wrong = |text: String| {
        Err((
            "final-state",
            format!("message {seq} of {}: {text}", role.name()),
        ))
    };
    let of = identity(role, &message.row);
    let state = end_of(facts, role, seq, message);
    let is_copied = facts.is_copy(role, seq, &message.row);
    let has_case = facts.has_case(role, seq);
    let has_record = facts.done.contains_key(&(role, of.clone()));
    let is_twofold = has_case && has_record && role != Role::Notice && !is_copied;
    if is_twofold {
        return wrong("both finished and quarantined".to_owned());
    }
    if has_record && !is_copied && state.end != "held" && facts.deferrals.contains_key(&(role, seq))
    {
        return wrong("finished and still deferred".to_owned());
    }
    let has_effect = facts.effects.contains_key(&(role, of));
    if has_effect && facts.dropped(role, &message.row).is_some() {
        return wrong("given up with an effect".to_owned());
    }
    let is_local = !matches!(role, Role::Mail | Role::Notice);
    if state.end == "done" && is_local && !has_effect {
        return wrong("done without an effect".to_owned());
    }
    if has_case && has_effect && is_local && !is_copied {
        return wrong("quarantined with an effect".to_owned());
    }
    let kind = facts.deferrals.get(&(role, seq)).map(|of| of.kind);
    // Where answers are lost, what was begun beside a failure may keep its mark.
    let is_heard = !facts.setup.faults.contains(&Fault::Lost);
    if state.end == "held" && is_heard && kind == Some(DeferralKind::Running) {
        return wrong("waits behind another of its key, marked as running".to_owned());
    }
    if is_copied || state.end == "held" {
        return Ok(());
    }
    let expected = expected(facts, role, message, &state);
    if !expected.contains(&state.end.as_str()) {
        let text = format!("ended as {:?}, not as one of {expected:?}", state.end);
        return wrong(text);
    }
    Ok(())
}

/// Whether a later version of a message's aggregate was applied.
fn has_later_version(facts: &Facts, role: Role, message: &Message) -> bool {
    let envelope = &message.row.envelope;
    facts.messages.values().any(|other| {
        let of = (role, identity(role, &other.row));
        other.row.envelope.key() == envelope.key()
            && other.row.envelope.aggregate_version > envelope.aggregate_version
            && facts.effects.contains_key(&of)
    })
}

/// How a message may end by what its handler does with it.
fn expected(facts: &Facts, role: Role, message: &Message, state: &EndState) -> Vec<&'static str> {
    let conduct = facts.setup.conduct(role, message.number);
    let max = facts.setup.retry.attempts_max;
    let mut ends = match (role, conduct.trouble) {
        (Role::Notice, None) => vec!["done"],
        (Role::Notice, Some(Trouble::Rejected | Trouble::Kill)) => vec!["done"],
        // Its process may have died before the handler could fail.
        (Role::Notice, Some(_)) => vec!["at_most_once_failed", "done"],
        (_, None | Some(Trouble::RateLimited)) => vec!["done"],
        (_, Some(Trouble::Permanent)) => vec!["permanent"],
        (_, Some(Trouble::Refused)) => vec!["permanent"],
        (_, Some(Trouble::Schema)) => vec!["schema"],
        (_, Some(Trouble::Rejected)) => vec!["rejected"],
        (_, Some(Trouble::Operator)) => vec!["operator"],
        (Role::Carrier, Some(Trouble::Ambiguous | Trouble::TimeOut | Trouble::Panic)) => {
            vec!["done"]
        }
        // Released, it fails only as often as it should have.
        (Role::Mail, Some(Trouble::Ambiguous)) if facts.setup.has(Fault::Outage) => {
            vec!["ambiguous", "done"]
        }
        (_, Some(Trouble::Ambiguous)) => vec!["ambiguous"],
        (_, Some(Trouble::Kill)) => vec!["done", "worker_died"],
        // Runs whose end nobody heard of do not count.
        (Role::Carrier, Some(_)) if conduct.times >= max => vec!["attempts_exhausted", "done"],
        (Role::Mail, Some(_)) if conduct.times >= max && facts.setup.has(Fault::Outage) => {
            vec!["attempts_exhausted", "done"]
        }
        (_, Some(_)) if conduct.times < max => vec!["done"],
        (_, Some(_)) => vec!["attempts_exhausted"],
    };
    if state.end == "superseded" && has_later_version(facts, role, message) {
        ends.push("superseded");
    }
    // Where it is waited for a time only, and whatever it waits for may have ended otherwise.
    if facts.setup.variant == Variant::VersionsEnd {
        ends.push("version_gap");
    }
    // Whether they may was seen when they were.
    if facts.setup.merges(role) {
        ends.push("merged");
    }
    if facts.setup.sheds_after_ms(role).is_some() {
        ends.push("shed");
    }
    let has_died = facts.deaths.contains_key(&(role, state.seq));
    if has_died {
        // Deaths are attempts too, so that what fails by attempt may be over.
        ends.extend(["worker_died", "attempts_exhausted", "done"]);
    }
    let setup = &facts.setup;
    let faults = [Fault::Hang, Fault::Pause, Fault::Clock];
    let may_idle = faults.into_iter().any(|fault| setup.has(fault));
    let is_retried = conduct.trouble.is_some_and(|trouble| !trouble.is_final());
    let may_wait = setup.has(Fault::Outage) && matches!(role, Role::Carrier | Role::Mail);
    if setup.has(Fault::Age) && (is_retried || may_idle || may_wait || has_died) {
        ends.push("age_exhausted");
    }
    if may_idle {
        // A transaction that idles past the lease is an attempt that failed.
        ends.push("attempts_exhausted");
        if is_retried {
            ends.push("done");
        }
    }
    if role == Role::Notice && (setup.has(Fault::Refuse) || may_idle) {
        // It was recorded as tried; then the database refused, or ended its transaction.
        ends.push("at_most_once_failed");
    }
    ends
}
