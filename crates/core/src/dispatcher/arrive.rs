//! Reading the log: what arrives is put into its place.

use std::sync::Arc;

use super::{Command, Dispatcher, Phase, Tracked};
use crate::envelope::Row;
use crate::lane::lane_of;
use crate::position::{Position, Snapshot};
use crate::retry::Spent;

impl Dispatcher {
    pub(super) fn page(
        &mut self,
        feed_id: u32,
        from: Position,
        rows: Vec<Arc<Row>>,
        next: Position,
    ) {
        let Some(feed) = self.feeds.get_mut(&feed_id) else {
            return;
        };
        feed.is_reading = false;
        let group = feed.group;
        let mut next = next;
        let mut parked = Vec::new();
        let mut handled_to = None;
        for row in rows {
            let seq = row.seq;
            let lane_number = lane_of(row.slot, self.lane_count);
            let lane = self.lanes.get(&lane_number);
            let is_wanted = lane.is_some_and(|lane| {
                lane.feeds[group] == feed_id
                    && lane.cap.is_none()
                    && self.groups.of(&row) == Some(group)
                    && lane.not_before.is_none_or(|t| row.recorded_at >= t)
            });
            if is_wanted && self.is_full(group) {
                // The rest of the page is read again when there is room.
                let Some(seq) = handled_to else { return };
                next = from.reach(&tick_end(&next).clone(), seq);
                break;
            }
            handled_to = Some(seq);
            if is_wanted {
                self.arrive(feed_id, lane_number, row, &mut parked);
            }
        }
        if let Some(feed) = self.feeds.get_mut(&feed_id) {
            self.is_dirty |= feed.read_to != next;
            feed.close_page(from, next);
        }
        self.store_held(parked);
        self.wake_awaiting_keys();
    }

    /// Whether a group that shares its window with others has its part of it. One that is alone
    /// takes a page that it has asked for whole.
    fn is_full(&self, group: usize) -> bool {
        self.groups.count() > 1 && (self.rows.free(group) == 0 || self.bytes.free(group) == 0)
    }

    /// Puts a row that was read into its place.
    fn arrive(&mut self, feed_id: u32, lane: u16, row: Arc<Row>, parked: &mut Vec<u64>) {
        let token = self.next_token;
        self.next_token += 1;
        let Some(feed) = self.feeds.get_mut(&feed_id) else {
            return;
        };
        let group = feed.group;
        let number = feed.push(row.seq, lane, token);
        let name = self.key_name(&row);
        let used = self.rows.used(group);
        let is_crowded = used >= (used + self.rows.free(group)) / 2;
        let key_share = self.key_share;
        let tenant = self.tenant_of(&row);
        let key = self.key_mut(&name, row.slot, lane);
        let is_conflict = !key.is_of(group, tenant);
        let must_park =
            key.is_held() && !key.awaits(&row) || (is_crowded && key.queue.len() >= key_share);
        let phase = if must_park {
            Phase::Storing
        } else {
            Phase::Queued
        };
        if must_park {
            key.stored += 1;
            key.storing += 1;
            key.load_from(row.seq);
            key.gap_stored(&row);
            parked.push(token);
        } else {
            key.queue.push_back(token);
        }
        self.track(
            token,
            Tracked {
                place: Some((feed_id, number)),
                key: Arc::clone(&name),
                lane,
                group,
                row,
                spent: Spent::default(),
                failure: None,
                is_stored: false,
                is_from_store: false,
                is_suspect: false,
                must_probe: false,
                is_released: false,
                is_conflict,
                generation: 0,
                started_at_look: 0,
                phase,
                is_marking: false,
                was_marked: false,
                ended: None,
            },
        );
        if must_park {
            self.busy(lane, 1);
        } else {
            self.key_changed(&name);
        }
    }

    fn key_name(&self, row: &Row) -> Arc<str> {
        let key = self.order.key_of(row);
        match self.keys.get_key_value(&*key) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(key),
        }
    }

    /// Feeds that have come to the same place become one.
    pub(super) fn merge_feeds(&mut self) {
        if self.feeds.len() <= self.groups.count() {
            return;
        }
        let ids: Vec<u32> = self.feeds.keys().copied().collect();
        for id in ids {
            let Some(feed) = self.feeds.get(&id) else {
                continue;
            };
            if !feed.is_quiet() {
                continue;
            }
            let into = self.feeds.iter().find(|(other, f)| {
                **other != id
                    && f.group == feed.group
                    && f.read_to == feed.read_to
                    && f.done_to() == feed.done_to()
            });
            let group = feed.group;
            let Some(into) = into.map(|(other, _)| *other) else {
                continue;
            };
            for lane in self.lanes.values_mut() {
                if lane.feeds[group] == id {
                    lane.feeds[group] = into;
                }
            }
            self.feeds.remove(&id);
        }
    }

    pub(super) fn read_on(&mut self) {
        let is_paused = self.pacing.paused_until_ms(self.now_ms).is_some();
        for (id, feed) in &mut self.feeds {
            let group = feed.group;
            let is_served = self
                .lanes
                .values()
                .any(|l| l.feeds[group] == *id && l.cap.is_none());
            let has_room = self.rows.free(group) >= self.rows_for_a_read
                && self.bytes.free(group) > 0
                && feed.span() < 4 * self.rows.most();
            if is_served && has_room && !feed.is_reading && !is_paused {
                feed.is_reading = true;
                self.out.push(Command::Read {
                    feed: *id,
                    from: feed.read_to.clone(),
                });
            }
        }
    }
}

/// The snapshot that ends the tick of a page that goes up to here.
fn tick_end(next: &Position) -> &Snapshot {
    match &next.within {
        Some(within) => &within.until,
        None => &next.after,
    }
}
