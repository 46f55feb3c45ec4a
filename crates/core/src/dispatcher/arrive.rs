//! Reading the log: what arrives is put into its place.

use std::sync::Arc;

use super::{Command, Dispatcher, PAGE_ROWS, Phase, Tracked};
use crate::envelope::Row;
use crate::lane::lane_of;
use crate::position::Position;
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
        let moved = feed.read_to != next;
        let mut parked = Vec::new();
        for row in rows {
            let lane_number = lane_of(row.slot, self.lane_count);
            let Some(lane) = self.lanes.get(&lane_number) else {
                continue;
            };
            let is_wanted = lane.feed == feed_id
                && lane.cap.is_none()
                && self.types.contains(&row.envelope.message_type)
                && lane.not_before.is_none_or(|t| row.recorded_at >= t);
            if is_wanted {
                self.arrive(feed_id, lane_number, row, &mut parked);
            }
        }
        if let Some(feed) = self.feeds.get_mut(&feed_id) {
            feed.close_page(from, next);
        }
        self.is_dirty |= moved;
        self.store_held(parked);
        self.wake_awaiting_keys();
    }

    /// Puts a row that was read into its place.
    fn arrive(&mut self, feed_id: u32, lane: u16, row: Arc<Row>, parked: &mut Vec<u64>) {
        let token = self.next_token;
        self.next_token += 1;
        let Some(feed) = self.feeds.get_mut(&feed_id) else {
            return;
        };
        let number = feed.push(row.seq, lane, token);
        let name = self.key_name(&row);
        let is_crowded = self.tracked.len() >= self.window_rows / 2;
        let key_share = self.key_share;
        let key = self.key_mut(&name, row.slot, lane);
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
                row,
                spent: Spent::default(),
                failure: None,
                is_stored: false,
                is_from_store: false,
                is_suspect: false,
                must_probe: false,
                is_released: false,
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
        if self.feeds.len() < 2 {
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
                **other != id && f.read_to == feed.read_to && f.done_to() == feed.done_to()
            });
            let Some(into) = into.map(|(other, _)| *other) else {
                continue;
            };
            for lane in self.lanes.values_mut().filter(|l| l.feed == id) {
                lane.feed = into;
            }
            self.feeds.remove(&id);
        }
    }

    pub(super) fn read_on(&mut self) {
        let page_rows = PAGE_ROWS as usize;
        let is_paused = self.pacing.paused_until_ms(self.now_ms).is_some();
        for (id, feed) in &mut self.feeds {
            let is_served = self
                .lanes
                .values()
                .any(|l| l.feed == *id && l.cap.is_none());
            let has_room = self.tracked.len() + page_rows <= self.window_rows
                && self.tracked_bytes < self.window_bytes
                && feed.span() < 4 * self.window_rows;
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
