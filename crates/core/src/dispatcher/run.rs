//! Forming batches and taking their ends in.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::gap::Gap;
use super::key::Due;
use super::turn::{Origin, Start};
use super::{Batch, Command, Dispatcher, Fate, Map, Pace, Phase, Tracked, Work, deferral_of};
use crate::coalesce::BatchSeen;
use crate::merge::Merge;
use crate::store::DeferralKind;

impl Dispatcher {
    /// Starts as many batches as limits and ready keys allow.
    pub(super) fn fill(&mut self) {
        while !self.is_paused && self.pacing.has_room(self.now_ms, self.batches.len()) {
            let is_suspect = self.suspects_left > 0 || self.suspects_tracked > 0;
            // After an unclean takeover one batch at a time, which the executor runs message by
            // message, so that one that kills its process is named.
            if is_suspect && !self.batches.is_empty() {
                return;
            }
            let starts = self.starts();
            if starts == 0 || !self.probe_first() {
                return;
            }
            let Some((works, start)) = self.next_batch(is_suspect, starts) else {
                return;
            };
            let batch = self.next_batch;
            self.next_batch += 1;
            let savepoint_every = self.sizes[start.group].savepoint_every();
            self.batches.insert(batch, start);
            self.out.push(Command::Run(Batch {
                batch,
                works,
                savepoint_every,
            }));
        }
    }

    /// Messages of whoever's turn it is.
    fn next_batch(&mut self, is_suspect: bool, starts: usize) -> Option<(Vec<Work>, Start)> {
        loop {
            let (group, origin) = match self.turns.first() {
                Some(name) => {
                    let key = self.keys.get(name);
                    (key.and_then(|key| key.group).unwrap_or(0), Origin::Again)
                }
                None => self.turns.next()?,
            };
            let most = starts.min(self.sizes[group].next() as usize);
            let mut start = Start::of(group, origin);
            let (mut works, taken) = self.take_ready(&mut start, most, is_suspect);
            for work in &mut works {
                work.is_suspect |= is_suspect;
            }
            if !works.is_empty() {
                self.turns.started(&start);
                self.pacing.started(taken);
                self.prefers_failed = !self.prefers_failed || !self.pacing.is_probing();
                return Some((works, start));
            }
        }
    }

    /// Takes up to `most` messages from ready keys. A key gives all it has as long as there is
    /// room: its messages stay in order within the batch, and no other batch touches the key.
    /// Also returns how much of the room is used: messages of which only the latest is handled are
    /// one.
    fn take_ready(
        &mut self,
        start: &mut Start,
        most: usize,
        is_suspect: bool,
    ) -> (Vec<Work>, usize) {
        let mut works = Vec::new();
        let mut room = most;
        while room > 0 {
            let Some(name) = self.turns.pop(start) else {
                break;
            };
            let Some(key) = self.keys.get_mut(&name) else {
                continue;
            };
            key.is_ready = false;
            let merges = self.merge == Merge::Latest && !is_suspect;
            let (len, taken) = share_of(&key.queue, &self.tracked, room, merges);
            room -= taken;
            let tokens: Vec<u64> = key.queue.drain(..len).collect();
            key.is_running = !tokens.is_empty();
            let lane = key.lane;
            if tokens.is_empty() {
                self.key_changed(&name);
                continue;
            }
            self.turns.gives(start, key.tenant.as_ref(), taken as u32);
            self.busy(lane, tokens.len() as i64);
            let started = tokens.iter().map(|token| self.start(*token, &tokens));
            works.extend(started.flatten());
        }
        (works, most - room)
    }

    /// Starts one of those that were taken from its key.
    fn start(&mut self, token: u64, taken: &[u64]) -> Option<Work> {
        let last_look = self.last_look;
        let is_alone = self.is_alone(self.tracked.get(&token)?, taken);
        let tracked = self.tracked.get_mut(&token)?;
        tracked.phase = Phase::Running;
        tracked.started_at_look = last_look;
        if let Some((feed, number)) = tracked.place
            && let Some(feed) = self.feeds.get_mut(&feed)
        {
            feed.start(number);
        }
        Some(Work {
            token,
            row: Arc::clone(&tracked.row),
            spent: tracked.spent,
            is_stored: tracked.is_stored,
            is_suspect: tracked.is_suspect,
            must_probe: tracked.must_probe,
            is_released: tracked.is_released,
            is_conflict: tracked.is_conflict,
            generation: tracked.generation,
            is_alone,
            failure: tracked.failure.clone(),
        })
    }

    pub(super) fn finished(
        &mut self,
        batch: u64,
        fates: Vec<(u64, Fate)>,
        seen: BatchSeen,
        pace: Pace,
    ) {
        if let Some(start) = self.batches.remove(&batch) {
            self.turns.ended(&start);
            self.sizes[start.group].observe(seen);
        }
        let looked_into = seen.messages.saturating_sub(seen.duplicates);
        self.suspects_left = self.suspects_left.saturating_sub(looked_into);
        self.pacing.set(self.now_ms, pace);
        let mut touched = BTreeSet::new();
        let mut returned = Vec::new();
        let mut to_clear = Vec::new();
        for (token, fate) in fates {
            let Some(tracked) = self.tracked.get_mut(&token) else {
                continue;
            };
            touched.insert(Arc::clone(&tracked.key));
            if fate == Fate::Uncertain {
                tracked.must_probe = true;
                tracked.is_released = false;
                tracked.is_stored = true;
                // It is stored: the position may pass it.
                let place = tracked.place.take();
                self.settle_place(place);
                returned.push(token);
            } else if fate == Fate::Returned {
                returned.push(token);
            } else if tracked.is_marking {
                tracked.ended = Some(fate);
                // Until the mark is there its key neither goes on nor is forgotten.
                if let Some(key) = self.keys.get_mut(&tracked.key) {
                    key.storing += 1;
                }
            } else {
                self.ended(token, fate, &mut to_clear);
            }
        }
        for token in returned.into_iter().rev() {
            self.give_back(token);
        }
        self.clear(to_clear);
        for name in touched {
            if let Some(key) = self.keys.get_mut(&name) {
                key.is_running = false;
            }
            self.key_freed(&name);
        }
    }

    /// A key's batch ended: what is queued goes on, or is stored behind what holds it.
    fn key_freed(&mut self, name: &Arc<str>) {
        let Some(key) = self.keys.get(name) else {
            return;
        };
        // With nothing to wait for, what is stored was only parked behind what is queued here.
        let comes_first = key.due != Due::Now || matches!(key.gap, Gap::Moved);
        let is_blocked = key.is_case_held || (key.stored > 0 && comes_first);
        if is_blocked && !key.queue.is_empty() && !self.may_all_pass(key) {
            self.park_queue(name);
        }
        self.key_changed(name);
    }

    fn give_back(&mut self, token: u64) {
        let Some(tracked) = self.tracked.get_mut(&token) else {
            return;
        };
        tracked.phase = Phase::Queued;
        let (name, lane) = (Arc::clone(&tracked.key), tracked.lane);
        self.busy(lane, -1);
        let is_releasing = self.lanes.get(&lane).is_none_or(|l| l.cap.is_some());
        if is_releasing {
            self.drop_or_park(token);
        } else if let Some(key) = self.keys.get_mut(&name) {
            key.queue.push_front(token);
        }
    }

    /// Takes in the end of one message other than `Returned`.
    pub(super) fn ended(&mut self, token: u64, fate: Fate, to_clear: &mut Vec<u64>) {
        let Some(tracked) = self.tracked.get_mut(&token) else {
            return;
        };
        let (name, lane) = (Arc::clone(&tracked.key), tracked.lane);
        let place = tracked.place.take();
        let must_clear = tracked.was_marked && !matches!(fate, Fate::Deferred(_));
        let started_at_look = tracked.started_at_look;
        let row = Arc::clone(&tracked.row);
        self.settle_place(place);
        if fate == (Fate::Quarantined { holds_key: true }) {
            self.case_opened(&name, started_at_look);
        }
        let now_ms = self.now_ms;
        if let Some(key) = self.keys.get_mut(&name) {
            match fate {
                Fate::Deferred(deferral) => {
                    key.stored += 1;
                    key.load_from(deferral.seq);
                    key.deferred(now_ms, &row, &deferral);
                }
                Fate::Finished => key.applied(&row),
                Fate::Quarantined { .. } => key.gap_ended(&row),
                Fate::Returned | Fate::Uncertain => {}
            }
            if must_clear {
                key.storing += 1;
            }
        }
        if must_clear {
            if let Some(tracked) = self.tracked.get_mut(&token) {
                tracked.phase = Phase::Storing;
            }
            to_clear.push(token);
        } else {
            self.untrack(token);
            self.busy(lane, -1);
        }
    }

    pub(super) fn clear(&mut self, tokens: Vec<u64>) {
        if tokens.is_empty() {
            return;
        }
        let seqs = tokens
            .iter()
            .filter_map(|t| self.tracked.get(t))
            .map(|t| t.row.seq)
            .collect();
        self.out.push(Command::Clear { tokens, seqs });
    }

    /// Deferrals were written or cleared.
    pub(super) fn stored(&mut self, tokens: Vec<u64>) {
        let mut touched = BTreeSet::new();
        let mut to_clear = Vec::new();
        let mut again = Vec::new();
        for token in tokens {
            let Some(tracked) = self.tracked.get_mut(&token) else {
                continue;
            };
            let (name, lane) = (Arc::clone(&tracked.key), tracked.lane);
            let place = tracked.place.take();
            touched.insert(Arc::clone(&name));
            self.settle_place(place);
            let Some(tracked) = self.tracked.get_mut(&token) else {
                continue;
            };
            if !tracked.is_marking {
                if let Some(key) = self.keys.get_mut(&name) {
                    key.storing -= 1;
                    key.is_load_stale = key.loading.is_some();
                }
                self.untrack(token);
                self.busy(lane, -1);
                continue;
            }
            tracked.is_marking = false;
            tracked.was_marked = true;
            let ended = tracked.ended.take();
            if ended.is_some()
                && let Some(key) = self.keys.get_mut(&name)
            {
                key.storing -= 1;
            }
            match ended {
                None if tracked.phase == Phase::Queued => {
                    // It was given back meanwhile; its next run clears what was written.
                    tracked.is_stored = true;
                    tracked.was_marked = false;
                }
                None => {}
                // The deferral of the failure may have been overwritten by ours: write it again.
                Some(Fate::Deferred(deferral)) => again.push((token, deferral)),
                Some(fate) => self.ended(token, fate, &mut to_clear),
            }
        }
        for (token, deferral) in again {
            let Some(tracked) = self.tracked.get_mut(&token) else {
                continue;
            };
            tracked.phase = Phase::Storing;
            let (name, row) = (Arc::clone(&tracked.key), Arc::clone(&tracked.row));
            let now_ms = self.now_ms;
            if let Some(key) = self.keys.get_mut(&name) {
                key.stored += 1;
                key.storing += 1;
                key.load_from(deferral.seq);
                key.due = Due::Now;
                key.deferred(now_ms, &row, &deferral);
            }
            self.out.push(Command::Store {
                tokens: vec![token],
                deferrals: vec![deferral],
            });
        }
        self.clear(to_clear);
        for name in touched {
            self.key_freed_unless_running(&name);
        }
    }

    fn key_freed_unless_running(&mut self, name: &Arc<str>) {
        if self.keys.get(name).is_some_and(|key| !key.is_running) {
            self.key_freed(name);
        }
    }

    /// When what was read spans too far because something old is still unfinished: stores it, so
    /// that the position can move on.
    pub(super) fn relieve(&mut self) {
        let span_max = 3 * self.rows.most();
        let crowded: Vec<u64> = self
            .feeds
            .values()
            .filter(|feed| feed.span() >= span_max)
            .flat_map(|feed| feed.oldest_unfinished(64))
            .collect();
        let mut stuck_keys: BTreeSet<Arc<str>> = BTreeSet::new();
        let has_slot = self.batches.len() < self.pacing.allowed(self.now_ms);
        if has_slot && (0..self.groups.count()).any(|group| self.is_stuck(group)) {
            let waiting = self.keys.iter().filter(|(_, k)| {
                k.is_running && !k.queue.is_empty() && self.is_stuck(k.group.unwrap_or(0))
            });
            stuck_keys.extend(waiting.map(|(name, _)| Arc::clone(name)));
        }
        let mut marks = Vec::new();
        for token in crowded {
            let Some(tracked) = self.tracked.get_mut(&token) else {
                continue;
            };
            match tracked.phase {
                Phase::Running if !tracked.is_marking && !tracked.is_stored => {
                    tracked.is_marking = true;
                    marks.push((token, deferral_of(tracked, DeferralKind::Running)));
                }
                Phase::Queued => {
                    stuck_keys.insert(Arc::clone(&tracked.key));
                }
                Phase::Running | Phase::Storing => {}
            }
        }
        if !marks.is_empty() {
            let (tokens, deferrals) = marks.into_iter().unzip();
            self.out.push(Command::Store { tokens, deferrals });
        }
        for name in stuck_keys {
            if self.keys.get(&name).is_some_and(|key| key.is_running) {
                self.park_queue(&name);
            }
        }
    }
    /// A full window in which everything of a group waits behind what runs.
    fn is_stuck(&self, group: usize) -> bool {
        let is_full = self.rows.free(group) < self.rows_for_a_read
            || self.bytes.free(group) == 0
            || !(self.to_load[group].is_empty() || self.has_room_to_load(group));
        is_full && self.turns.is_group_empty(group)
    }
}

/// How many of a key's messages a batch takes, and how much of its room they use: messages of which
/// only the latest is handled are one.
fn share_of(
    queue: &VecDeque<u64>,
    tracked: &Map<u64, Tracked>,
    room: usize,
    merges: bool,
) -> (usize, usize) {
    if !merges {
        let len = room.min(queue.len());
        return (len, len);
    }
    let (mut len, mut taken) = (0, 0);
    let mut before: Option<&Tracked> = None;
    for token in queue {
        let this = tracked.get(token);
        let is_merged = before.zip(this).is_some_and(|(before, this)| {
            let is_same = before.row.envelope.message_type == this.row.envelope.message_type;
            is_same && before.is_untried() && this.is_untried()
        });
        if !is_merged && taken == room {
            break;
        }
        taken += usize::from(!is_merged);
        len += 1;
        before = this;
    }
    (len, taken)
}

#[cfg(test)]
#[path = "run_tests.rs"]
pub(super) mod tests;

#[cfg(test)]
#[path = "run_merge_tests.rs"]
mod merge_tests;
