//! Who starts next, when there is room for one more batch.
//!
//! Three choices, each between those that have ready work only, so that no slot stays idle for
//! anybody. Between **classes** by their weight: one that holds its share of the slots lets the
//! others go first, and among those below theirs each gets its part of the starts (stride scheduling,
//! Waldspurger and Weihl, 1995). Between the **tenants' groups** of a class, and tenants of one group,
//! whoever has the least in flight. Between what was **read** and what was **loaded again**, by the
//! share of catching up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::group::{Groups, Priority};

/// A start costs a class this much, by its weight. The weights divide it.
const STRIDE: u64 = 840;

/// Parts into which shares of origins are divided; each has at least one.
const SHARES: u32 = 1_000;

/// Whether somebody with so many batches of all that run would get more than a share of them with
/// the next one: rounded up, so that each may always have one.
fn has_share(own: u32, running: u32, weight: u32, weights: u32) -> bool {
    let share = (u64::from(running) + 1) * u64::from(weight);
    u64::from(own) >= share.div_ceil(u64::from(weights.max(1)))
}

/// Where ready work came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Read from the log.
    Fresh,
    /// Loaded from what is deferred: retries, releases, replays.
    Again,
}

/// A batch that was started.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) group: usize,
    origin: Origin,
    /// Messages by tenant, where tenants are told apart.
    tenants: Vec<(Arc<str>, u32)>,
}

impl Start {
    pub(super) const fn of(group: usize, origin: Origin) -> Self {
        Self {
            group,
            origin,
            tenants: Vec::new(),
        }
    }
}

/// Keys of one group with ready work, in the order in which they became ready or by tenant.
#[derive(Clone, Debug)]
enum Ready {
    Plain(VecDeque<Arc<str>>),
    ByTenant(ByTenant),
}

impl Ready {
    fn new(has_tenants: bool) -> Self {
        if has_tenants {
            Self::ByTenant(ByTenant::default())
        } else {
            Self::Plain(VecDeque::new())
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Plain(keys) => keys.is_empty(),
            Self::ByTenant(tenants) => tenants.waiting.is_empty(),
        }
    }

    fn push(&mut self, key: Arc<str>, tenant: Option<&Arc<str>>) {
        match self {
            Self::Plain(keys) => keys.push_back(key),
            Self::ByTenant(tenants) => tenants.push(key, tenant),
        }
    }

    fn pop(&mut self) -> Option<Arc<str>> {
        match self {
            Self::Plain(keys) => keys.pop_front(),
            Self::ByTenant(tenants) => tenants.pop(),
        }
    }

    fn keys(&self) -> Box<dyn Iterator<Item = &Arc<str>> + '_> {
        match self {
            Self::Plain(keys) => Box::new(keys.iter()),
            Self::ByTenant(tenants) => {
                Box::new(tenants.tenants.values().flat_map(|t| t.keys.iter()))
            }
        }
    }

    fn retain(&mut self, keep: &impl Fn(&Arc<str>) -> bool) {
        match self {
            Self::Plain(keys) => keys.retain(keep),
            Self::ByTenant(tenants) => tenants.retain(keep),
        }
    }
}

/// One tenant's part of a group.
#[derive(Clone, Debug, Default)]
struct Tenant {
    keys: VecDeque<Arc<str>>,
    /// Messages running.
    in_flight: u32,
    /// When its turn was last.
    turn: u64,
}

/// Keys by tenant: first whoever has the fewest messages in flight, then whose turn was longest ago.
#[derive(Clone, Debug, Default)]
struct ByTenant {
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// Those with ready keys.
    waiting: BTreeSet<(u32, u64, Arc<str>)>,
    turn: u64,
}

impl ByTenant {
    fn push(&mut self, key: Arc<str>, tenant: Option<&Arc<str>>) {
        let name = tenant.map_or_else(|| Arc::from(""), Arc::clone);
        let turn = self.turn;
        let tenant = self
            .tenants
            .entry(Arc::clone(&name))
            .or_insert_with(|| Tenant {
                turn,
                ..Tenant::default()
            });
        if tenant.keys.is_empty() {
            self.waiting.insert((tenant.in_flight, tenant.turn, name));
        }
        tenant.keys.push_back(key);
    }

    fn pop(&mut self) -> Option<Arc<str>> {
        let (in_flight, turn, name) = self.waiting.pop_first()?;
        self.turn += 1;
        let tenant = self.tenants.get_mut(&name)?;
        debug_assert_eq!((in_flight, turn), (tenant.in_flight, tenant.turn));
        let key = tenant.keys.pop_front();
        tenant.turn = self.turn;
        if !tenant.keys.is_empty() {
            self.waiting.insert((in_flight, tenant.turn, name));
        } else if in_flight == 0 {
            self.tenants.remove(&name);
        }
        key
    }

    fn change(&mut self, name: &Arc<str>, change: impl FnOnce(u32) -> u32) {
        let turn = self.turn;
        let tenant = self
            .tenants
            .entry(Arc::clone(name))
            .or_insert_with(|| Tenant {
                turn,
                ..Tenant::default()
            });
        let before = (tenant.in_flight, tenant.turn, Arc::clone(name));
        tenant.in_flight = change(tenant.in_flight);
        if self.waiting.remove(&before) {
            self.waiting
                .insert((tenant.in_flight, tenant.turn, Arc::clone(name)));
        } else if tenant.in_flight == 0 {
            self.tenants.remove(name);
        }
    }

    fn retain(&mut self, keep: &impl Fn(&Arc<str>) -> bool) {
        for tenant in self.tenants.values_mut() {
            tenant.keys.retain(keep);
        }
        let tenants = &self.tenants;
        let has_keys = |tenant: &Tenant| !tenant.keys.is_empty();
        self.waiting
            .retain(|(_, _, name)| tenants.get(name).is_some_and(has_keys));
        self.tenants
            .retain(|_, t| !t.keys.is_empty() || t.in_flight > 0);
    }
}

/// One group's part.
#[derive(Clone, Debug)]
struct GroupTurn {
    fresh: Ready,
    again: Ready,
    /// Batches running, of each origin.
    in_flight: [u32; 2],
    /// How far each origin has come, by what it has started.
    pass: [u64; 2],
    /// When its turn was last.
    turn: u64,
}

impl GroupTurn {
    fn is_ready(&self) -> bool {
        !self.fresh.is_empty() || !self.again.is_empty()
    }

    fn running(&self) -> u32 {
        self.in_flight[0] + self.in_flight[1]
    }

    fn ready_mut(&mut self, origin: Origin) -> &mut Ready {
        match origin {
            Origin::Fresh => &mut self.fresh,
            Origin::Again => &mut self.again,
        }
    }
}

/// One class's part.
#[derive(Clone, Debug)]
struct ClassTurn {
    priority: Priority,
    groups: Vec<usize>,
    /// How far it has come, by what it has started.
    pass: u64,
    /// It has ready work.
    is_active: bool,
}

impl ClassTurn {
    fn running(&self, groups: &[GroupTurn]) -> u32 {
        self.groups.iter().map(|g| groups[*g].running()).sum()
    }
}

/// What is ready, by group.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    classes: Vec<ClassTurn>,
    groups: Vec<GroupTurn>,
    /// Keys that go before all others: those whose first message may kill the process, so that what
    /// has to go one by one meanwhile does so for as short as can be; and one that is to probe.
    first: VecDeque<Arc<str>>,
    /// The share of each origin, in thousandths.
    share: [u32; 2],
    turn: u64,
}

impl Turns {
    /// `catch_up_share` of the slots, between 0 and 1, is for what is loaded again while there is
    /// something newly read as well.
    pub(super) fn new(groups: &Groups, catch_up_share: f64) -> Self {
        let has_tenants = groups.tenants().is_some();
        let mut classes: Vec<ClassTurn> = Vec::new();
        for (group, priority) in groups.priorities().iter().enumerate() {
            match classes.iter_mut().find(|class| class.priority == *priority) {
                Some(class) => class.groups.push(group),
                None => classes.push(ClassTurn {
                    priority: *priority,
                    groups: vec![group],
                    pass: 0,
                    is_active: false,
                }),
            }
        }
        let group = GroupTurn {
            fresh: Ready::new(has_tenants),
            again: Ready::new(has_tenants),
            in_flight: [0; 2],
            pass: [0; 2],
            turn: 0,
        };
        let again = ((catch_up_share * f64::from(SHARES)) as u32).clamp(1, SHARES - 1);
        Self {
            classes,
            groups: vec![group; groups.count()],
            first: VecDeque::new(),
            share: [SHARES - again, again],
            turn: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty() && !self.groups.iter().any(GroupTurn::is_ready)
    }

    pub(super) fn is_group_empty(&self, group: usize) -> bool {
        self.first.is_empty() && !self.groups[group].is_ready()
    }

    pub(super) fn push(
        &mut self,
        group: usize,
        origin: Origin,
        key: Arc<str>,
        tenant: Option<&Arc<str>>,
    ) {
        let group = &mut self.groups[group];
        match origin {
            Origin::Fresh => group.fresh.push(key, tenant),
            Origin::Again => group.again.push(key, tenant),
        }
    }

    pub(super) fn push_first(&mut self, key: Arc<str>) {
        self.first.push_front(key);
    }

    pub(super) fn first(&self) -> Option<&Arc<str>> {
        self.first.front()
    }

    /// Brings the first key found that is wanted before all others, if there is one.
    pub(super) fn bring_first(&mut self, is_wanted: impl Fn(&Arc<str>) -> bool) -> bool {
        if self.first.front().is_some_and(&is_wanted) {
            return true;
        }
        let found = {
            let ready = self.groups.iter().flat_map(|g| [&g.again, &g.fresh]);
            let mut names = self.first.iter().chain(ready.flat_map(Ready::keys));
            names.find(|name| is_wanted(name)).map(Arc::clone)
        };
        let Some(name) = found else {
            return false;
        };
        self.retain(|other| *other != name);
        self.push_first(name);
        true
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) {
        self.first.retain(&keep);
        for group in &mut self.groups {
            group.fresh.retain(&keep);
            group.again.retain(&keep);
        }
    }

    /// The next ready key for a batch. When what was asked for has no more, what came otherwise
    /// fills the batch up.
    pub(super) fn pop(&mut self, start: &Start) -> Option<Arc<str>> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        let group = &mut self.groups[start.group];
        match start.origin {
            Origin::Fresh => group.fresh.pop().or_else(|| group.again.pop()),
            Origin::Again => group.again.pop().or_else(|| group.fresh.pop()),
        }
    }

    /// Whose turn it is.
    pub(super) fn next(&mut self) -> Option<(usize, Origin)> {
        let group = match self.groups.len() {
            1 => self.groups[0].is_ready().then_some(0)?,
            _ => self.next_group()?,
        };
        Some((group, self.next_origin(group)))
    }

    fn next_group(&mut self) -> Option<usize> {
        let groups = &self.groups;
        let (mut weights, mut running) = (0, 0);
        for class in &mut self.classes {
            let is_ready = class.groups.iter().any(|g| groups[*g].is_ready());
            class.is_active = is_ready;
            weights += if is_ready { class.priority.weight() } else { 0 };
            running += class.running(groups);
        }
        let has_share = |class: &ClassTurn| {
            let weight = class.priority.weight();
            has_share(class.running(groups), running, weight, weights)
        };
        let ready = self.classes.iter().filter(|class| class.is_active);
        let class = ready.min_by_key(|class| (has_share(class), class.pass, class.priority))?;
        let ready = class.groups.iter().filter(|g| groups[**g].is_ready());
        let next = ready.min_by_key(|g| (groups[**g].running(), groups[**g].turn));
        next.copied()
    }

    fn next_origin(&self, group: usize) -> Origin {
        let turn = &self.groups[group];
        if turn.again.is_empty() {
            return Origin::Fresh;
        }
        if turn.fresh.is_empty() {
            return Origin::Again;
        }
        let place = |at: usize| {
            let has_share = has_share(turn.in_flight[at], turn.running(), self.share[at], SHARES);
            (has_share, turn.pass[at])
        };
        if place(1) < place(0) {
            Origin::Again
        } else {
            Origin::Fresh
        }
    }

    /// A batch was started.
    pub(super) fn started(&mut self, start: &Start) {
        self.turn += 1;
        let (group, at) = (start.group, start.origin as usize);
        let is_alone = self.is_alone(start);
        let turn = &mut self.groups[group];
        turn.turn = self.turn;
        turn.in_flight[at] += 1;
        // What had nothing to start, or had its share, has saved nothing up.
        if is_alone {
            turn.pass = [0; 2];
        } else {
            turn.pass[1 - at] = turn.pass[1 - at].max(turn.pass[at]);
            turn.pass[at] += u64::from(self.share[1 - at]);
        }
        let Some(own) = self.classes.iter().position(|c| c.groups.contains(&group)) else {
            return;
        };
        let pass = self.classes[own].pass;
        for class in &mut self.classes {
            class.pass = class.pass.max(pass);
        }
        let class = &mut self.classes[own];
        class.pass += STRIDE / u64::from(class.priority.weight());
    }

    /// Whether nothing of the other origin is ready.
    fn is_alone(&self, start: &Start) -> bool {
        let turn = &self.groups[start.group];
        match start.origin {
            Origin::Fresh => turn.again.is_empty(),
            Origin::Again => turn.fresh.is_empty(),
        }
    }

    /// Messages of a tenant go into a batch.
    pub(super) fn gives(&mut self, start: &mut Start, tenant: Option<&Arc<str>>, messages: u32) {
        let Ready::ByTenant(tenants) = self.groups[start.group].ready_mut(start.origin) else {
            return;
        };
        let name = tenant.map_or_else(|| Arc::from(""), Arc::clone);
        tenants.change(&name, |in_flight| in_flight + messages);
        start.tenants.push((name, messages));
    }

    /// A batch ended.
    pub(super) fn ended(&mut self, start: &Start) {
        let group = &mut self.groups[start.group];
        let at = start.origin as usize;
        group.in_flight[at] = group.in_flight[at].saturating_sub(1);
        if let Ready::ByTenant(tenants) = group.ready_mut(start.origin) {
            for (name, messages) in &start.tenants {
                tenants.change(name, |in_flight| in_flight.saturating_sub(*messages));
            }
        }
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
