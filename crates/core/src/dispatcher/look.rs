//! Operators act on what is deferred and quarantined while a dispatcher works on it: it looks
//! again, lane by lane, and brings its keys in line with what it finds.
//!
//! An answer says how things stood when it was looked up, and much may have happened since. So it
//! never takes anything away but a case that was held before the look-up began, and what is in
//! memory of a key stays where it is: the key is loaded again when it is quiet.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::gap::Gap;
use super::key::{Due, Key};
use super::{Command, Dispatcher, Ruling};
use crate::store::{HeldCase, HeldKey};

impl Key {
    /// Whether something of it is in memory or under way.
    fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.is_running || self.storing > 0 || self.loading.is_some()
    }

    /// It was found with deferred messages: they are to be loaded from the first on.
    fn found_deferred(&mut self, count: u64, due: Due) {
        if self.is_busy() {
            self.is_to_reload = true;
            return;
        }
        self.loaded_to = 0;
        self.gap = Gap::None;
        self.stored = self.stored.max(count);
        self.due = self.due.min(due);
    }

    /// Does what was left until it is quiet, if it is.
    pub(super) fn reload_if_quiet(&mut self) {
        if self.is_to_reload && !self.is_case_held && !self.is_busy() {
            self.is_to_reload = false;
            self.loaded_to = 0;
            self.gap = Gap::None;
            self.stored = self.stored.max(1);
            self.due = Due::Now;
        }
    }
}

impl Dispatcher {
    /// Operators acted.
    pub(super) fn acted(&mut self, ruling: Ruling) {
        self.is_paused = ruling.is_paused;
        self.pacing.limit(ruling.concurrency_max);
        let (now_ms, lanes) = (self.now_ms, self.lane_count);
        self.pacing.limit_rate(now_ms, ruling.rate, lanes);
        // The next try finds out.
        self.pacing.person_acted();
        for lane in self.lanes.values_mut() {
            lane.must_look = true;
        }
    }

    /// Asks for the lanes that are to be looked at again. A look-up that is under way is not waited
    /// for: only the answer to the last one counts.
    pub(super) fn look_on(&mut self) {
        for (number, lane) in &mut self.lanes {
            if !std::mem::take(&mut lane.must_look) || lane.cap.is_some() {
                continue;
            }
            self.last_look += 1;
            lane.look = self.last_look;
            self.out.push(Command::Look {
                look: self.last_look,
                lane: *number,
            });
        }
    }

    /// A case that holds its key was opened of a message that ran. What was looked up since it
    /// started may be older than the case, or newer than its end.
    pub(super) fn case_opened(&mut self, name: &Arc<str>, started_at_look: u64) {
        let last_look = self.last_look;
        let Some(key) = self.keys.get_mut(name) else {
            return;
        };
        key.is_case_held = true;
        key.case_held_at = last_look;
        if last_look > started_at_look
            && let Some(lane) = self.lanes.get_mut(&key.lane)
        {
            lane.must_look = true;
        }
    }

    /// Takes in what a lane's look-up found.
    pub(super) fn looked(
        &mut self,
        look: u64,
        number: u16,
        held: Vec<HeldKey>,
        cases: &[HeldCase],
    ) {
        let lane = self.lanes.get_mut(&number);
        let Some(lane) = lane.filter(|lane| lane.look == look && lane.cap.is_none()) else {
            return;
        };
        lane.look = 0;
        let holding: BTreeSet<&str> = cases.iter().map(|case| case.key.as_str()).collect();
        let mut changed = Vec::new();
        for (name, key) in &mut self.keys {
            let was_known = key.is_case_held && key.case_held_at < look;
            if key.lane == number && was_known && !holding.contains(&**name) {
                key.is_case_held = false;
                key.is_to_reload = true;
                changed.push(Arc::clone(name));
            }
        }
        let now_ms = self.now_ms;
        for found in held {
            let name: Arc<str> = Arc::from(found.key.as_str());
            let key = self.key_mut(&name, found.slot, number);
            key.found_deferred(found.count, Due::after(now_ms, found.due_in_ms));
            changed.push(name);
        }
        for name in changed {
            self.key_changed(&name);
        }
    }
}

#[cfg(test)]
#[path = "look_tests.rs"]
mod tests;
