//! What is known of the run so far, kept from the steps alone.

use std::collections::{BTreeMap, BTreeSet};

use onceward_core::store::{CaseState, DeferralKind};
use onceward_core::{Ending, LedgerEntry, Position, Row, Snapshot, Spent, Stand, Timestamp};

use crate::memory::{Change, Written};
use crate::simulation::history::{Event, Outcome, Step, What};
use crate::simulation::messages::body_of;
use crate::simulation::setup::{Role, Setup};

/// A message in the log.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) row: Row,
    pub(super) number: u64,
    /// The log's last sequence when it became visible.
    pub(super) seen_at_seq: u64,
    pub(super) is_in_log: bool,
}

/// A deferral.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferral {
    pub(super) kind: DeferralKind,
    pub(super) spent: Spent,
    /// When the message was first deferred, as the first write said.
    pub(super) first_at: Timestamp,
    /// A campaign put it there, of a message that was done.
    pub(super) is_replayed: bool,
}

/// A case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) reason: String,
    pub(super) spent: Spent,
    pub(super) holds_key: bool,
    pub(super) state: CaseState,
}

impl Case {
    /// Whether it holds its key.
    pub(super) const fn is_holding(&self) -> bool {
        self.holds_key && self.state.is_live()
    }

    /// Whether its message went back into the flow: it ends like any other.
    pub(super) fn is_replayed(&self) -> bool {
        self.state == CaseState::Replayed
    }
}

/// A member of the fleet.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) lease_ms: u64,
    pub(super) renewed_at: Timestamp,
    pub(super) has_ended: bool,
}

/// A lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) owner: Option<String>,
    pub(super) stand: Option<Stand>,
}

/// What identifies an effect, as text.
pub(super) type Identity = String;

/// Everything that is known.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) setup: Setup,
    pub(super) messages: BTreeMap<u64, Message>,
    copies: BTreeMap<u64, u64>,
    pub(super) ledger: BTreeMap<(Role, Identity), Ending>,
    /// The same, those that upkeep removed included.
    pub(super) done: BTreeMap<(Role, Identity), Ending>,
    pub(super) deferrals: BTreeMap<(Role, u64), Deferral>,
    /// The budget at a message's last deferral, also after it was cleared.
    pub(super) cases: BTreeMap<(Role, u64), Case>,
    pub(super) delivered: BTreeMap<(Role, u64), Outcome>,
    /// Effects that are committed, by message.
    pub(super) effects: BTreeMap<(Role, Identity), u32>,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) lanes: BTreeMap<(Role, u16), Lane>,
    /// Messages not finished, deferred or quarantined.
    pub(super) open: BTreeSet<(Role, u64)>,
    pub(super) deaths: BTreeMap<(Role, u64), u32>,
    /// Age of a deferred message when it was loaded last.
    pub(super) loaded_ages: BTreeMap<(Role, u64), u64>,
    /// Subscription, from, and to if it is over.
    pauses: Vec<(Role, Timestamp, Option<Timestamp>)>,
    /// Those of them that operators made.
    held: Vec<(Role, Timestamp, Option<Timestamp>)>,
}

/// What identifies an effect of a row.
pub(super) fn identity(role: Role, row: &Row) -> Identity {
    let envelope = &row.envelope;
    let (source, of) = (envelope.source.as_deref(), &envelope.message_type);
    let source = source.unwrap_or_default();
    match role {
        Role::Pay => format!("{source} {of} {}", operation(row)),
        _ => format!("{source} {of} {}", envelope.id),
    }
}

fn operation(row: &Row) -> &str {
    let operation = row.envelope.operation_id.as_deref();
    operation.unwrap_or(&row.envelope.id)
}

pub(super) fn identity_of_entry(entry: &LedgerEntry) -> Identity {
    let key = &entry.key;
    format!("{} {} {}", key.source, key.message_type, key.identity)
}

pub(super) fn role(name: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role.name() == name)
}

fn sees(snapshot: &Snapshot, xid: u64) -> bool {
    xid < snapshot.xmax && (xid < snapshot.xmin || !snapshot.xip.contains(&xid))
}

/// Whether a position says that a row needs no more work.
fn is_past(position: &Position, row: &Row) -> bool {
    let inside = position.within.as_ref();
    sees(&position.after, row.xid)
        || inside.is_some_and(|within| row.seq <= within.seq && sees(&within.until, row.xid))
}

/// How much of some pauses of a subscription lies between two moments, in milliseconds.
fn overlap_ms(
    pauses: &[(Role, Timestamp, Option<Timestamp>)],
    role: Role,
    from: Timestamp,
    to: Timestamp,
) -> i64 {
    let its = pauses.iter().filter(|pause| pause.0 == role);
    let overlaps = its.map(|(_, paused, resumed)| {
        let end = resumed.map_or(to, |resumed| resumed.min(to));
        end.millis_since((*paused).max(from)).max(0)
    });
    overlaps.sum()
}

/// One effect in a commit: which message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) role: Role,
    pub(super) seq: u64,
}

impl Facts {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            setup: setup.clone(),
            messages: BTreeMap::new(),
            copies: BTreeMap::new(),
            ledger: BTreeMap::new(),
            done: BTreeMap::new(),
            deferrals: BTreeMap::new(),
            cases: BTreeMap::new(),
            delivered: BTreeMap::new(),
            effects: BTreeMap::new(),
            members: BTreeMap::new(),
            lanes: BTreeMap::new(),
            open: BTreeSet::new(),
            deaths: BTreeMap::new(),
            loaded_ages: BTreeMap::new(),
            pauses: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Whether a subscription takes a type.
    pub(super) fn takes(&self, role: Role, message_type: &str) -> bool {
        self.setup.roles.contains(&role) && role.types().contains(&message_type)
    }

    pub(super) fn roles_of(&self, row: &Row) -> Vec<Role> {
        let all = Role::ALL.into_iter();
        all.filter(|role| self.takes(*role, &row.envelope.message_type))
            .collect()
    }

    pub(super) fn lane_number(&self, row: &Row) -> u16 {
        let lanes = u32::from(self.setup.lanes);
        u16::try_from(u32::from(row.slot) * lanes / 1024).unwrap_or(0)
    }

    pub(super) fn lane(&self, role: Role, row: &Row) -> Option<&Lane> {
        self.lanes.get(&(role, self.lane_number(row)))
    }

    /// Whether the place kept for a row's lane and group says that it needs no more work.
    pub(super) fn is_past(&self, role: Role, row: &Row) -> bool {
        let stand = self.lane(role, row).and_then(|lane| lane.stand.as_ref());
        let group = self.group(role, row);
        stand.is_some_and(|stand| {
            let mut groups = stand.groups.iter();
            let own = groups.find(|(name, _)| name.starts_with(&group));
            let own = own.map_or(&stand.position, |(_, position)| position);
            // Whoever does not know of groups reads the one of all.
            is_past(own, row) || is_past(&stand.position, row)
        })
    }

    /// Whether a message has had its end in a subscription.
    pub(super) fn is_finished(&self, role: Role, seq: u64) -> bool {
        let Some(message) = self.messages.get(&seq) else {
            return false;
        };
        self.has_case(role, seq)
            || match role {
                Role::Mail => self.is_delivered(seq) || self.dropped(role, &message.row).is_some(),
                _ => self
                    .done
                    .contains_key(&(role, identity(role, &message.row))),
            }
    }

    /// How a message was given up, if it was.
    pub(super) fn dropped(&self, role: Role, row: &Row) -> Option<Ending> {
        let ending = self.done.get(&(role, identity(role, row))).copied();
        ending.filter(|ending| Ending::DROPPED.contains(ending))
    }

    /// Whether another message has the same identity.
    pub(super) fn is_copy(&self, role: Role, seq: u64, row: &Row) -> bool {
        let of = identity(role, row);
        self.takes(role, &row.envelope.message_type)
            && self
                .messages
                .iter()
                .any(|(other, message)| *other != seq && identity(role, &message.row) == of)
    }

    /// Whether a message ended with a case.
    pub(super) fn has_case(&self, role: Role, seq: u64) -> bool {
        let case = self.cases.get(&(role, seq));
        case.is_some_and(|case| !case.is_replayed())
    }

    /// When a pause began that shares time with one that began at `from` and lasts to `to`.
    pub(super) fn other_pause_in(
        &self,
        role: Role,
        from: Timestamp,
        to: Timestamp,
    ) -> Option<Timestamp> {
        let others = self.pauses.iter().filter(|p| p.0 == role && p.1 != from);
        let mut sharing = others
            .filter(|(_, began, ended)| *began < to && ended.is_none_or(|ended| ended > from));
        sharing.next().map(|pause| pause.1)
    }

    /// How long a subscription was paused between two moments, in milliseconds.
    pub(super) fn paused_ms(&self, role: Role, from: Timestamp, to: Timestamp) -> i64 {
        overlap_ms(&self.pauses, role, from, to)
    }

    /// The same of operators' pauses alone.
    pub(super) fn held_ms(&self, role: Role, from: Timestamp, to: Timestamp) -> i64 {
        overlap_ms(&self.held, role, from, to)
    }

    fn is_delivered(&self, seq: u64) -> bool {
        let outcome = self.delivered.get(&(Role::Mail, seq));
        matches!(outcome, Some(Outcome::Done | Outcome::Rejected))
    }

    /// The effects that a commit brings, in order.
    pub(super) fn effects_of(&self, writes: &[Written]) -> Vec<Effect> {
        let puts = writes.iter().filter_map(|written| match written {
            Written::Put { table, value, .. } if table == "effects" => Some(value),
            _ => None,
        });
        puts.filter_map(|value| {
            let mut words = value.split(' ');
            let role = role(words.next()?)?;
            let seq = match (words.next()?, words.next()) {
                ("copy", Some(copy)) => *self.copies.get(&copy.parse().ok()?)?,
                (seq, _) => seq.parse().ok()?,
            };
            Some(Effect { role, seq })
        })
        .collect()
    }

    fn refresh(&mut self, role: Role, seq: u64) {
        let place = (role, seq);
        let is_open = self.messages.contains_key(&seq)
            && !self.deferrals.contains_key(&place)
            && !self.is_finished(role, seq);
        if is_open {
            self.open.insert(place);
        } else {
            self.open.remove(&place);
        }
    }

    /// Takes a step in.
    pub(super) fn learn(&mut self, step: &Step) {
        match &step.what {
            What::Outside(Event::Delivered { role, seq, outcome }) => {
                let is_better = !self.is_delivered(*seq);
                if is_better {
                    self.delivered.insert((*role, *seq), *outcome);
                }
                self.refresh(*role, *seq);
            }
            What::Outside(Event::Loaded {
                subscription,
                seq,
                age_ms,
            }) => {
                if let Some(role) = role(subscription) {
                    self.loaded_ages.insert((role, *seq), *age_ms);
                }
            }
            What::Outside(_) => {}
            What::Database(change) => self.learn_change(step, change),
        }
    }

    fn learn_change(&mut self, step: &Step, change: &Change) {
        match change {
            Change::Committed {
                writes, last_seq, ..
            } => {
                for written in writes {
                    self.learn_write(written, *last_seq);
                    self.learn_pause(written, step.now);
                }
                for effect in self.effects_of(writes) {
                    if let Some(message) = self.messages.get(&effect.seq) {
                        let identity = identity(effect.role, &message.row);
                        *self.effects.entry((effect.role, identity)).or_default() += 1;
                    }
                }
            }
            Change::StoodStill {
                subscription,
                from,
                to,
            } => {
                let Some(role) = role(subscription) else {
                    return;
                };
                let mut pauses = self.pauses.iter_mut();
                match pauses.find(|pause| pause.0 == role && pause.1 == *from) {
                    Some(pause) => pause.2 = Some(*to),
                    None => self.pauses.push((role, *from, Some(*to))),
                }
            }
            Change::Joined { member, lease_ms } => {
                let state = Member {
                    lease_ms: *lease_ms,
                    renewed_at: step.now,
                    has_ended: false,
                };
                self.members.insert(member.clone(), state);
            }
            Change::Renewed { member } => {
                if let Some(member) = self.members.get_mut(member) {
                    member.renewed_at = step.now;
                }
            }
            Change::Left { member } => self.member_ended(member),
            Change::Taken {
                member,
                subscription,
                lane,
                from,
                ..
            } => {
                if let Some(from) = from.as_ref().filter(|from| *from != member)
                    && let Some(from) = self.members.get_mut(from)
                {
                    from.has_ended = true;
                }
                if let Some(role) = role(subscription) {
                    let lane = self.lanes.entry((role, *lane)).or_default();
                    lane.owner = Some(member.clone());
                }
            }
            Change::Released {
                subscription,
                lane,
                stand,
                ..
            } => {
                if let Some(role) = role(subscription) {
                    let lane = self.lanes.entry((role, *lane)).or_default();
                    lane.owner = None;
                    lane.stand = Some(stand.clone());
                }
            }
            Change::Saved {
                subscription,
                lane,
                stand,
                ..
            } => {
                if let Some(role) = role(subscription) {
                    let lane = self.lanes.entry((role, *lane)).or_default();
                    lane.stand = Some(stand.clone());
                }
            }
            Change::DeathCounted { subscription, seq } => {
                if let Some(role) = role(subscription) {
                    *self.deaths.entry((role, *seq)).or_default() += 1;
                    if let Some(deferral) = self.deferrals.get_mut(&(role, *seq)) {
                        deferral.spent.deaths += 1;
                        deferral.kind = DeferralKind::Retry;
                    }
                }
            }
            Change::LogRemoved { seq } => {
                if let Some(message) = self.messages.get_mut(seq) {
                    message.is_in_log = false;
                }
            }
            Change::LedgerRemoved {
                subscription,
                entry,
            } => {
                if let Some(role) = role(subscription) {
                    self.ledger.remove(&(role, identity_of_entry(entry)));
                }
            }
        }
    }

    fn member_ended(&mut self, member: &str) {
        if let Some(state) = self.members.get_mut(member) {
            state.has_ended = true;
        }
        for lane in self.lanes.values_mut() {
            if lane.owner.as_deref() == Some(member) {
                lane.owner = None;
            }
        }
    }

    fn learn_pause(&mut self, written: &Written, now: Timestamp) {
        let Written::Paused {
            subscription,
            is_paused,
        } = written
        else {
            return;
        };
        let Some(role) = role(subscription) else {
            return;
        };
        match self.held.iter_mut().rfind(|pause| pause.0 == role) {
            Some(open) if !*is_paused => open.2 = Some(now),
            _ if *is_paused => self.held.push((role, now, None)),
            _ => {}
        }
        let mut its = self.pauses.iter_mut().filter(|pause| pause.0 == role);
        if *is_paused {
            // One that would have ended by itself ends here.
            its.for_each(|pause| pause.2 = pause.2.map(|to| to.min(now)));
            self.pauses.push((role, now, None));
        } else if let Some(open) = its.find(|pause| pause.2.is_none()) {
            open.2 = Some(now);
        }
    }

    fn learn_write(&mut self, written: &Written, last_seq: u64) {
        match written {
            Written::Appended(row) => {
                let Some(body) = body_of(&row.envelope.payload) else {
                    return;
                };
                self.copies.insert(body.copy, row.seq);
                let message = Message {
                    row: row.clone(),
                    number: body.number,
                    seen_at_seq: last_seq,
                    is_in_log: true,
                };
                self.messages.insert(row.seq, message);
                for role in self.roles_of(row) {
                    self.refresh(role, row.seq);
                }
            }
            Written::Recorded {
                subscription,
                entry,
                ..
            } => {
                let Some(role) = role(subscription) else {
                    return;
                };
                let identity = identity_of_entry(entry);
                self.ledger.insert((role, identity.clone()), entry.ending);
                self.done.insert((role, identity), entry.ending);
                let open: Vec<u64> = self
                    .open
                    .iter()
                    .filter(|o| o.0 == role)
                    .map(|o| o.1)
                    .collect();
                for seq in open {
                    self.refresh(role, seq);
                }
            }
            Written::Deferred {
                subscription,
                seq,
                kind,
                spent,
                first_at,
                failure,
                ..
            } => {
                let Some(role) = role(subscription) else {
                    return;
                };
                let before = self.deferrals.get(&(role, *seq));
                let deferral = Deferral {
                    kind: *kind,
                    spent: *spent,
                    first_at: before.map_or(*first_at, |before| before.first_at),
                    is_replayed: failure.as_deref() == Some("operator replayed"),
                };
                self.deferrals.insert((role, *seq), deferral);
                self.refresh(role, *seq);
            }
            Written::Cleared { subscription, seq } => {
                if let Some(role) = role(subscription) {
                    self.deferrals.remove(&(role, *seq));
                    self.refresh(role, *seq);
                }
            }
            Written::Quarantined {
                subscription,
                seq,
                reason,
                spent,
                holds_key,
                ..
            } => {
                if let Some(role) = role(subscription) {
                    let case = Case {
                        reason: reason.clone(),
                        spent: *spent,
                        holds_key: *holds_key,
                        state: CaseState::Open,
                    };
                    self.cases.insert((role, *seq), case);
                    self.refresh(role, *seq);
                }
            }
            Written::Acted {
                subscription,
                seq,
                state,
            } => {
                if let Some(role) = role(subscription) {
                    if let Some(case) = self.cases.get_mut(&(role, *seq)) {
                        case.state = *state;
                    }
                    self.refresh(role, *seq);
                }
            }
            Written::Paused { .. } | Written::Put { .. } => {}
        }
    }
}
