//! Handing lanes back: finish what runs, leave the rest to the next owner.

use std::sync::Arc;

use super::{Command, Dispatcher, Phase};
use crate::store::ReleasedLane;

impl Dispatcher {
    pub(super) fn release_lane(&mut self, number: u16) {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        if lane.cap.is_some() {
            return;
        }
        let feeds = lane.feeds.iter().filter_map(|feed| self.feeds.get(feed));
        let read_to = feeds.map(|feed| (feed.next_number(), feed.read_to.clone()));
        lane.cap = Some(read_to.collect());
        let mut queued: Vec<u64> = self
            .tracked
            .iter()
            .filter(|(_, t)| t.lane == number && t.phase == Phase::Queued)
            .map(|(token, _)| *token)
            .collect();
        queued.sort_unstable();
        for key in self.keys.values_mut().filter(|k| k.lane == number) {
            key.queue.clear();
        }
        for token in queued {
            self.drop_or_park(token);
        }
    }

    /// Leaves a message that has not started to the lane's next owner. One that later messages of
    /// its lane have overtaken is stored, so that the position can pass those and nothing of them
    /// is repeated.
    pub(super) fn drop_or_park(&mut self, token: u64) {
        let Some(tracked) = self.tracked.get_mut(&token) else {
            return;
        };
        let lane = tracked.lane;
        let was_overtaken = tracked.place.is_some_and(|(feed, number)| {
            self.feeds
                .get(&feed)
                .is_some_and(|feed| feed.was_overtaken(number, lane))
        });
        let is_marking = std::mem::take(&mut tracked.is_marking);
        if !is_marking && (tracked.is_stored || !was_overtaken) {
            self.untrack(token);
            return;
        }
        tracked.phase = Phase::Storing;
        let (name, seq) = (Arc::clone(&tracked.key), tracked.row.seq);
        if let Some(key) = self.keys.get_mut(&name) {
            key.stored += 1;
            key.storing += 1;
            key.load_from(seq);
        }
        self.busy(lane, 1);
        // A deferral that is already being written is as good, and must not come after the lane has
        // another owner.
        if !is_marking {
            self.store_held(vec![token]);
        }
    }

    /// Reports lanes that have become quiet.
    pub(super) fn hand_back(&mut self) {
        let quiet: Vec<u16> = self
            .lanes
            .iter()
            .filter(|(_, l)| l.cap.is_some() && l.busy == 0)
            .map(|(number, _)| *number)
            .collect();
        for number in quiet {
            let Some(lane) = self.lanes.remove(&number) else {
                continue;
            };
            let Some(stand) = self.stand_of(number, &lane) else {
                continue;
            };
            for feed in &lane.feeds {
                if let Some(feed) = self.feeds.get_mut(feed) {
                    feed.forget_lane(number);
                }
            }
            self.keys.retain(|_, key| key.lane != number);
            let keys = &self.keys;
            self.turns.retain(|name| keys.contains_key(name));
            self.out.push(Command::Released(ReleasedLane {
                lane: number,
                epoch: lane.epoch,
                stand,
            }));
        }
        let lanes = &self.lanes;
        self.feeds
            .retain(|id, feed| feed.is_reading || lanes.values().any(|l| l.feeds.contains(id)));
    }
}
