//! Who is started first where there is more to do than can be done at once.

use std::collections::{BTreeMap, BTreeSet};

use super::Found;
use super::facts::{Facts, role};
use super::groups::{Class, class};
use crate::memory::Change;
use crate::simulation::history::{Event, Step, What};
use crate::simulation::setup::Role;

/// What is there for so long, in milliseconds, has been read by whoever owns its lane.
const READ_WITHIN_MS: u64 = 700;
/// What goes on at once, and what was on its way to a handler when something became ready.
const SLACK: u32 = 4;
/// Tenants of the messages, those without one included.
const TENANTS: u32 = 4;

/// Starts of others, counted while there was something of one's own to start.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// When each message became visible, and each lane its owner's.
    seen_at_ms: BTreeMap<u64, u64>,
    taken_at_ms: BTreeMap<(Role, u16), u64>,
    /// Started by the process that owns the lane, and not finished.
    running: BTreeSet<(Role, u64)>,
    passed: BTreeMap<(Role, Of), u32>,
}

/// Whose share it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Class(Class),
    /// Within its class.
    Tenant(Class, String),
}

/// Starts of other classes between two of one, by the shares of eight, four and one in thirteen.
const fn others_of(class: Class) -> u32 {
    match class {
        Class::High => 1,
        Class::Normal => 3,
        Class::Low => 12,
    }
}

impl Shares {
    pub(super) fn see(&mut self, facts: &Facts, step: &Step) -> Found {
        if !facts.setup.has_rush() {
            return Ok(());
        }
        match &step.what {
            What::Database(Change::Taken {
                subscription, lane, ..
            }) => {
                if let Some(role) = role(subscription) {
                    self.taken_at_ms.insert((role, *lane), step.at_ms);
                }
                Ok(())
            }
            What::Outside(Event::Died(_) | Event::Stopped) => {
                self.running.clear();
                self.passed.clear();
                Ok(())
            }
            What::Outside(Event::Ran { role, seq, .. }) => {
                self.learn(facts, step);
                self.started(facts, step, *role, *seq)
            }
            _ => {
                self.learn(facts, step);
                Ok(())
            }
        }
    }

    fn learn(&mut self, facts: &Facts, step: &Step) {
        for seq in facts.messages.keys() {
            self.seen_at_ms.entry(*seq).or_insert(step.at_ms);
        }
        self.running
            .retain(|(role, seq)| !facts.is_finished(*role, *seq));
    }

    /// Counts a start for all that had something ready and were not started.
    fn started(&mut self, facts: &Facts, step: &Step, role: Role, seq: u64) -> Found {
        let Some(message) = facts.messages.get(&seq) else {
            return Ok(());
        };
        let own = class(&message.row);
        let own_tenant = facts.tenant(role, &message.row).map(str::to_owned);
        self.running.insert((role, seq));
        self.passed.remove(&(role, Of::Class(own)));
        if let Some(tenant) = &own_tenant {
            self.passed.remove(&(role, Of::Tenant(own, tenant.clone())));
        }
        let ready = self.ready(facts, step, role);
        // What is not ready, or has something running, waits for nobody.
        self.passed
            .retain(|(of, whose), _| *of != role || ready.contains(whose));
        for whose in ready {
            let bound = match &whose {
                Of::Class(class) if *class != own => others_of(*class) + SLACK,
                Of::Tenant(class, tenant)
                    if *class == own && own_tenant.as_ref() != Some(tenant) =>
                {
                    2 * TENANTS + SLACK
                }
                _ => continue,
            };
            let passed = self.passed.entry((role, whose.clone())).or_default();
            *passed += 1;
            if *passed > bound {
                let text = format!(
                    "{passed} messages of others were started in {} while {whose:?} had \
                     something to start",
                    role.name()
                );
                return Err(("shares", text));
            }
        }
        Ok(())
    }

    /// Classes and tenants of which nothing runs, and something could.
    fn ready(&self, facts: &Facts, step: &Step, role: Role) -> Vec<Of> {
        let is_old = |at_ms: Option<&u64>| at_ms.is_some_and(|at| step.at_ms - at > READ_WITHIN_MS);
        let mut busy = Vec::new();
        for (of, seq) in &self.running {
            if let Some(message) = facts.messages.get(seq).filter(|_| *of == role) {
                busy.extend(whose(facts, role, class(&message.row), &message.row));
            }
        }
        // Those of the process that starts something.
        let own_members = format!("{}.", step.process);
        let mut keys = BTreeSet::new();
        let mut ready = Vec::new();
        for (seq, message) in &facts.messages {
            let row = &message.row;
            let is_its = facts.takes(role, &row.envelope.message_type);
            if !is_its || facts.is_finished(role, *seq) {
                continue;
            }
            // The first of its key that is not over.
            let is_first = keys.insert(row.envelope.key().to_owned());
            let lane = facts.lane_number(row);
            let owner = facts.lane(role, row).and_then(|lane| lane.owner.as_deref());
            let is_waiting = is_first
                && owner.is_some_and(|owner| owner.starts_with(&own_members))
                && !facts.deferrals.contains_key(&(role, *seq))
                && is_old(self.seen_at_ms.get(seq))
                && is_old(self.taken_at_ms.get(&(role, lane)));
            if is_waiting {
                ready.extend(whose(facts, role, class(row), row));
            }
        }
        ready.retain(|of| !busy.contains(of));
        ready.sort();
        ready.dedup();
        ready
    }
}

fn whose(
    facts: &Facts,
    role: Role,
    class: Class,
    row: &onceward_core::Row,
) -> impl Iterator<Item = Of> {
    let tenant = facts.tenant(role, row);
    let tenant = tenant.map(|tenant| Of::Tenant(class, tenant.to_owned()));
    std::iter::once(Of::Class(class)).chain(tenant)
}
