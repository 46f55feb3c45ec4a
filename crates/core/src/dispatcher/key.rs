//! The keys of a dispatcher: what is queued behind each, and what is deferred in the store.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use super::gap::{Gap, in_order_of_versions};
use super::turn::Origin;
use super::{Command, Dispatcher, Phase, Tracked};
use crate::envelope::Row;
use crate::failure::Class;
use crate::store::{DeferralKind, DeferredRow};

/// Deferred messages of a key loaded at once.
pub(super) const LOAD_ROWS: u32 = 64;
/// Keys loaded at the same time.
const LOADS_MAX: usize = 16;

/// The queue in which a key waits to be loaded: its group's, or the last one as long as nobody has
/// seen a message of it.
fn place_to_load(key: &Key, groups: usize) -> usize {
    match groups {
        1 => 0,
        _ => key.group.unwrap_or(groups),
    }
}

/// When a key's first deferred message may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Now,
    At(u64),
    /// A person has to act.
    Never,
}

impl Due {
    pub(super) fn after(now_ms: u64, due_in_ms: Option<u64>) -> Self {
        match due_in_ms {
            Some(0) => Self::Now,
            Some(wait_ms) => Self::At(now_ms.saturating_add(wait_ms)),
            None => Self::Never,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) slot: u16,
    pub(super) lane: u16,
    /// The group that its messages are of, where one of them was seen.
    pub(super) group: Option<usize>,
    /// Whose they are, where tenants are told apart.
    pub(super) tenant: Option<Arc<str>>,
    /// Messages in memory that wait for their turn, in order.
    pub(super) queue: VecDeque<u64>,
    pub(super) is_running: bool,
    /// Deferred messages that are not in the queue, those being written included.
    pub(super) stored: u64,
    /// Deferrals being written or cleared.
    pub(super) storing: u32,
    pub(super) due: Due,
    /// Whether a message waits for an earlier version.
    pub(super) gap: Gap,
    /// The load under way: an answer to an earlier one says nothing about the key of today.
    pub(super) loading: Option<u64>,
    /// It asks for what the message that waits for a version may wait for, only.
    pub(super) loads_versions: bool,
    /// What is deferred up to here was loaded and is done: the next load goes on from it.
    pub(super) loaded_to: u64,
    /// Something of it was written while it is being loaded: the answer may not have it.
    pub(super) is_load_stale: bool,
    /// It stands in the queue of keys to be loaded.
    pub(super) is_to_load: bool,
    /// The moment for which it stands among those that wait for theirs.
    pub(super) waits_for_ms: Option<u64>,
    /// Its first deferred message lies beyond what was read so far.
    pub(super) awaits_read: bool,
    /// An open case holds the key.
    pub(super) is_case_held: bool,
    /// The last look-up that had begun when that was set: one that began later knows of the case.
    pub(super) case_held_at: u64,
    /// To be loaded from its beginning when it is quiet: what arrives waits until then.
    pub(super) is_to_reload: bool,
    /// It stands in the ready queue.
    pub(super) is_ready: bool,
}

impl Key {
    /// Whether what arrives now must be stored behind what is stored already.
    pub(super) fn is_held(&self) -> bool {
        self.stored > 0 || self.is_case_held || self.is_to_reload
    }

    /// Takes in a message of a group: whether that is the key's. Behind messages that nobody has
    /// seen yet it does not say whose the key is.
    pub(super) fn is_of(&mut self, group: usize, tenant: Option<Arc<str>>) -> bool {
        match self.group {
            Some(own) => own == group,
            None if self.is_held() => true,
            None => {
                self.group = Some(group);
                self.tenant = tenant;
                true
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.queue.is_empty()
            && !self.is_running
            && !self.is_held()
            && self.storing == 0
            && self.loading.is_none()
            && !self.is_ready
    }

    /// A message was stored, or left to the store: it is to be loaded.
    pub(super) fn load_from(&mut self, seq: u64) {
        self.loaded_to = self.loaded_to.min(seq.saturating_sub(1));
    }
}

impl Dispatcher {
    pub(super) fn key_mut(&mut self, name: &Arc<str>, slot: u16, lane: u16) -> &mut Key {
        self.keys.entry(Arc::clone(name)).or_insert_with(|| Key {
            slot,
            lane,
            group: None,
            tenant: None,
            queue: VecDeque::new(),
            is_running: false,
            stored: 0,
            storing: 0,
            due: Due::Now,
            gap: Gap::None,
            loading: None,
            loads_versions: false,
            loaded_to: 0,
            is_load_stale: false,
            is_to_load: false,
            waits_for_ms: None,
            awaits_read: false,
            is_case_held: false,
            case_held_at: 0,
            is_to_reload: false,
            is_ready: false,
        })
    }

    /// Does what a key's state calls for: make it ready, load what is due, or forget it.
    pub(super) fn key_changed(&mut self, name: &Arc<str>) {
        let Some(key) = self.keys.get_mut(name) else {
            return;
        };
        let is_releasing = self.lanes.get(&key.lane).is_none_or(|l| l.cap.is_some());
        if is_releasing || key.is_running || key.storing > 0 || key.loading.is_some() {
            return;
        }
        key.reload_if_quiet();
        if !key.queue.is_empty() {
            if !key.is_ready {
                key.is_ready = true;
                let first = key.queue.front().and_then(|token| self.tracked.get(token));
                // As long as a suspect is there, everything goes one by one: it is not to queue.
                if first.is_some_and(|first| first.is_suspect) {
                    self.turns.push_first(Arc::clone(name));
                } else {
                    let origin = match first.is_some_and(|first| first.is_from_store) {
                        true => Origin::Again,
                        false => Origin::Fresh,
                    };
                    let (group, tenant) = (key.group.unwrap_or(0), key.tenant.as_ref());
                    self.turns.push(group, origin, Arc::clone(name), tenant);
                }
            }
        } else if key.is_case_held || key.awaits_read {
        } else if key.stored > 0 {
            match key.due {
                _ if key.is_to_load => {}
                _ if key.due == Due::Now || key.gap.is_to_look() => {
                    key.is_to_load = true;
                    let from = place_to_load(key, self.groups.count());
                    self.to_load[from].push_back(Arc::clone(name));
                }
                Due::At(at_ms) if key.waits_for_ms != Some(at_ms) => {
                    key.waits_for_ms = Some(at_ms);
                    self.due.push(Reverse((at_ms, Arc::clone(name))));
                }
                Due::Now | Due::At(_) | Due::Never => {}
            }
        } else if key.is_gone() {
            self.keys.remove(name);
        }
    }

    /// Whether a group's part of the window has room for another key; or where the group is not
    /// known yet, whether any has.
    pub(super) fn has_room_to_load(&self, from: usize) -> bool {
        let under_way = self.loads.values().filter(|of| **of == from).count();
        let wanted = (under_way + 1) * self.load_rows as usize;
        if from == self.groups.count() {
            return (0..from).any(|group| self.has_room_for(group, wanted));
        }
        self.has_room_for(from, wanted)
    }

    /// Whether a group may have so many messages more that were loaded.
    fn has_room_for(&self, group: usize, rows: usize) -> bool {
        rows <= self.from_store.free(group)
            && self.from_store_bytes.free(group) > 0
            && self.bytes.free(group) > 0
    }

    /// Loads keys that are due, as many as there is room for: after an outage there may be any
    /// number of them. Groups take turns.
    pub(super) fn load_on(&mut self) {
        let places = self.to_load.len();
        let mut passed_over = 0;
        while self.loads.len() < LOADS_MAX && passed_over < places {
            let from = self.loads_next % places;
            self.loads_next = (from + 1) % places;
            if self.to_load[from].is_empty() || !self.has_room_to_load(from) {
                passed_over += 1;
                continue;
            }
            passed_over = 0;
            if let Some(name) = self.to_load[from].pop_front() {
                self.load(from, &name);
            }
        }
    }

    /// Loads a key, if there is a reason still.
    fn load(&mut self, from: usize, name: &Arc<str>) {
        let Some(key) = self.keys.get_mut(name) else {
            return;
        };
        key.is_to_load = false;
        let is_releasing = self.lanes.get(&key.lane).is_none_or(|l| l.cap.is_some());
        let is_busy = is_releasing || key.is_running || key.storing > 0 || key.loading.is_some();
        let is_due = key.due == Due::Now || key.gap.is_to_look();
        let has_reason = key.stored > 0 && is_due && key.queue.is_empty();
        if is_busy || !has_reason || key.is_case_held || key.awaits_read {
            return;
        }
        self.last_load += 1;
        key.loading = Some(self.last_load);
        let versions_to = key.versions_to();
        key.loads_versions = versions_to.is_some();
        if matches!(key.gap, Gap::Moved) {
            key.gap = Gap::None;
        }
        self.loads.insert(self.last_load, from);
        self.out.push(Command::Load {
            load: self.last_load,
            key: name.to_string(),
            slot: key.slot,
            after_seq: if key.loads_versions { 0 } else { key.loaded_to },
            versions_to,
            rows_max: self.load_rows,
        });
    }

    pub(super) fn wake_due_keys(&mut self) {
        while let Some(Reverse((at_ms, _))) = self.due.peek() {
            if *at_ms > self.now_ms {
                break;
            }
            let Some(Reverse((_, name))) = self.due.pop() else {
                break;
            };
            let Some(key) = self.keys.get_mut(&name) else {
                continue;
            };
            if key.waits_for_ms.is_some_and(|due_ms| due_ms <= self.now_ms) {
                key.waits_for_ms = None;
            }
            // An entry of an earlier wait says nothing any more.
            if matches!(key.due, Due::At(due_ms) if due_ms <= self.now_ms) {
                key.due = Due::Now;
                self.key_changed(&name);
            }
        }
    }

    pub(super) fn loaded(&mut self, load: u64, name: &str, rows: Vec<DeferredRow>) {
        self.loads.remove(&load);
        // An answer from before a handover says nothing about the key of today.
        let Some((name, _)) = self
            .keys
            .get_key_value(name)
            .filter(|(_, key)| key.loading == Some(load))
        else {
            return;
        };
        let name = Arc::clone(name);
        let lane = self
            .keys
            .get(&name)
            .and_then(|key| self.lanes.get(&key.lane));
        if lane.is_none_or(|lane| lane.cap.is_some()) {
            // The lane's next owner loads them.
            return;
        }
        if let Some(key) = self.keys.get_mut(&name)
            && (key.storing > 0 || key.is_load_stale)
        {
            // What is being written, or was meanwhile, may be missing: load again after it.
            key.loading = None;
            key.is_load_stale = false;
            self.key_changed(&name);
            return;
        }
        if !self.can_take_in(&name, &rows) {
            return;
        }
        if self.keys.get(&name).is_some_and(|key| key.loads_versions) {
            self.versions_loaded(&name, rows);
            return;
        }
        let now_ms = self.now_ms;
        let is_all = rows.len() < self.load_rows as usize;
        let mut not_due = false;
        let mut rows = in_order_of_versions(rows).into_iter();
        let (mut admitted_seq, mut left_seq) = (None, None);
        for row in rows.by_ref() {
            if !self.has_been_read(&name, &row) {
                not_due = true;
                left_seq = Some(row.row.seq);
                self.awaiting_read.push(Arc::clone(&name));
                break;
            }
            if !row.is_due() {
                not_due = true;
                left_seq = Some(row.row.seq);
                if let Some(key) = self.keys.get_mut(&name)
                    && key.queue.is_empty()
                {
                    key.due = Due::after(now_ms, row.due_in_ms);
                }
                break;
            }
            admitted_seq = admitted_seq.max(Some(row.row.seq));
            self.admit(&name, row);
        }
        let left_seq = rows.map(|row| row.row.seq).chain(left_seq).min();
        let Some(key) = self.keys.get_mut(&name) else {
            return;
        };
        key.loaded_to = admitted_seq.unwrap_or(key.loaded_to);
        if let Some(seq) = left_seq {
            // The order of versions may be another than that of sequences.
            key.load_from(seq);
        }
        key.loading = None;
        key.awaits_read = self.awaiting_read.last().is_some_and(|last| *last == name);
        key.stored = match is_all && !not_due {
            true => u64::from(key.storing),
            false => key.stored.max(1),
        };
        self.key_changed(&name);
    }

    /// Whether what was loaded has a place. It may be the first that says whose a key is: where that
    /// group has no room, the key waits for its turn there.
    fn can_take_in(&mut self, name: &Arc<str>, rows: &[DeferredRow]) -> bool {
        let Some(first) = rows.first().map(|loaded| &loaded.row) else {
            return true;
        };
        let (group, tenant) = (self.group_of(first), self.tenant_of(first));
        let Some(key) = self.keys.get_mut(name).filter(|key| key.group.is_none()) else {
            return true;
        };
        key.group = Some(group);
        key.tenant = tenant;
        if self.groups.count() == 1 || self.has_room_for(group, rows.len()) {
            return true;
        }
        if let Some(key) = self.keys.get_mut(name) {
            key.loading = None;
            self.key_changed(name);
        }
        false
    }

    /// The group of a message, which may be of a type that is not taken any more.
    pub(super) fn group_of(&self, row: &Row) -> usize {
        self.groups.of(row).unwrap_or(0)
    }

    /// The tenant of a message, where tenants are told apart.
    pub(super) fn tenant_of(&self, row: &Row) -> Option<Arc<str>> {
        let tenants = self.groups.tenants()?;
        Some(Arc::from(tenants.of(&row.envelope.attributes)))
    }

    /// After a takeover the log is read again from the position on. A message stored beyond it may
    /// follow others of its key that were not: it waits until reading has come past it.
    pub(super) fn has_been_read(&self, name: &Arc<str>, row: &DeferredRow) -> bool {
        let lane = self
            .keys
            .get(name)
            .and_then(|key| self.lanes.get(&key.lane));
        let feed = lane.and_then(|lane| self.feeds.get(&lane.feeds[self.group_of(&row.row)]));
        feed.is_none_or(|feed| feed.read_to.is_past(row.row.xid, row.row.seq))
    }

    /// Reading went on: keys that waited for it are loaded again.
    pub(super) fn wake_awaiting_keys(&mut self) {
        for name in std::mem::take(&mut self.awaiting_read) {
            if let Some(key) = self.keys.get_mut(&name) {
                key.awaits_read = false;
                self.key_changed(&name);
            }
        }
    }

    /// Queues a message that came from the store.
    pub(super) fn admit(&mut self, name: &Arc<str>, loaded: DeferredRow) {
        let token = self.next_token;
        self.next_token += 1;
        let (group, tenant) = (self.group_of(&loaded.row), self.tenant_of(&loaded.row));
        let Some(key) = self.keys.get_mut(name) else {
            return;
        };
        if key.group.is_none() {
            key.group = Some(group);
            key.tenant = tenant;
        }
        // Whoever releases one says that it goes, whosever the key is.
        let is_conflict = key.group != Some(group) && !loaded.is_released();
        key.stored = key.stored.saturating_sub(1);
        key.queue.push_back(token);
        let lane = key.lane;
        self.track(
            token,
            Tracked {
                place: None,
                key: Arc::clone(name),
                lane,
                group,
                is_conflict,
                must_probe: loaded.kind == DeferralKind::Running
                    || loaded.spent.deaths > 0
                    || loaded.is_released() && loaded.generation == 0
                    || loaded
                        .failure
                        .as_ref()
                        .is_some_and(|f| f.class == Class::Ambiguous),
                is_released: loaded.is_released(),
                generation: loaded.generation,
                row: Arc::new(loaded.row),
                is_suspect: loaded.spent.deaths > 0,
                spent: loaded.spent,
                failure: loaded.failure,
                is_stored: true,
                is_from_store: true,
                started_at_look: 0,
                phase: Phase::Queued,
                is_marking: false,
                was_marked: false,
                ended: None,
            },
        );
    }

    /// Stores all that is queued behind a held key: what is new is written, what came from the
    /// store is only forgotten.
    pub(super) fn park_queue(&mut self, name: &Arc<str>) {
        let Some(key) = self.keys.get_mut(name) else {
            return;
        };
        let queue = std::mem::take(&mut key.queue);
        let lane = key.lane;
        key.stored += queue.len() as u64;
        let first = queue.iter().filter_map(|token| self.tracked.get(token));
        if let Some(seq) = first.map(|tracked| tracked.row.seq).min() {
            key.load_from(seq);
        }
        let mut parked = Vec::new();
        for token in queue {
            let Some(tracked) = self.tracked.get_mut(&token) else {
                continue;
            };
            if let Some(key) = self.keys.get_mut(name) {
                key.gap_stored(&tracked.row);
            }
            if tracked.is_stored {
                self.untrack(token);
            } else {
                tracked.phase = Phase::Storing;
                parked.push(token);
            }
        }
        if let Some(key) = self.keys.get_mut(name) {
            key.storing += parked.len() as u32;
        }
        self.busy(lane, parked.len() as i64);
        self.store_held(parked);
    }
}
