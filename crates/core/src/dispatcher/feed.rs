//! One reader's place in the log: what was read, what of it is finished, and so where the position
//! may stand.

use std::collections::VecDeque;

use crate::position::{Position, Snapshot};

/// A row that was read and is wanted.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) seq: u64,
    pub(super) lane: u16,
    pub(super) token: u64,
    /// Finished, or stored as deferred or quarantined.
    pub(super) is_finished: bool,
    /// Was handed to a handler at least once.
    pub(super) is_started: bool,
}

/// A page that was read.
#[derive(Clone, Debug)]
struct Mark {
    /// Number after the page's last entry.
    end: u64,
    base: Position,
    until: Snapshot,
    next: Position,
}

/// Rows in reading order with the position that their completion allows.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    /// Whose messages it takes.
    pub(super) group: usize,
    /// Where the next read starts.
    pub(super) read_to: Position,
    /// A read is under way.
    pub(super) is_reading: bool,
    done_to: Position,
    ring: VecDeque<Entry>,
    first: u64,
    marks: VecDeque<Mark>,
}

impl Feed {
    pub(super) fn new(group: usize, position: Position) -> Self {
        Self {
            group,
            read_to: position.clone(),
            is_reading: false,
            done_to: position,
            ring: VecDeque::new(),
            first: 0,
            marks: VecDeque::new(),
        }
    }

    /// Everything before this is finished or stored.
    pub(super) fn done_to(&self) -> &Position {
        &self.done_to
    }

    /// Entries between the position and the last row read.
    pub(super) fn span(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.ring.is_empty() && !self.is_reading
    }

    /// Number that the next entry will get.
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// Adds an entry of the page being taken in; returns its number.
    pub(super) fn push(&mut self, seq: u64, lane: u16, token: u64) -> u64 {
        let number = self.next_number();
        self.ring.push_back(Entry {
            seq,
            lane,
            token,
            is_finished: false,
            is_started: false,
        });
        number
    }

    /// Closes the page whose entries were pushed since the last call.
    pub(super) fn close_page(&mut self, base: Position, next: Position) {
        let until = next
            .within
            .as_ref()
            .map_or_else(|| next.after.clone(), |w| w.until.clone());
        self.marks.push_back(Mark {
            end: self.next_number(),
            base,
            until,
            next: next.clone(),
        });
        self.read_to = next;
        self.advance();
    }

    pub(super) fn start(&mut self, number: u64) {
        if let Some(entry) = self.entry_mut(number) {
            entry.is_started = true;
        }
    }

    pub(super) fn finish(&mut self, number: u64) {
        if let Some(entry) = self.entry_mut(number) {
            entry.is_finished = true;
        }
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let index = number.checked_sub(self.first)?;
        self.ring.get_mut(usize::try_from(index).ok()?)
    }

    /// Unfinished entries from the front, at most `most`.
    pub(super) fn oldest_unfinished(&self, most: usize) -> Vec<u64> {
        self.ring
            .iter()
            .filter(|e| !e.is_finished)
            .take(most)
            .map(|e| e.token)
            .collect()
    }

    /// Whether a later row of the lane was started or finished.
    pub(super) fn was_overtaken(&self, number: u64, lane: u16) -> bool {
        let Some(index) = number
            .checked_sub(self.first)
            .and_then(|i| usize::try_from(i).ok())
        else {
            return false;
        };
        self.ring
            .iter()
            .skip(index + 1)
            .any(|e| e.lane == lane && (e.is_finished || e.is_started))
    }

    /// Moves the position over what is finished. Returns whether it moved.
    pub(super) fn advance(&mut self) -> bool {
        let mut moved = false;
        while let Some(mark) = self.marks.front() {
            let mut last_seq = None;
            while self.first < mark.end && self.ring.front().is_some_and(|e| e.is_finished) {
                last_seq = self.ring.pop_front().map(|e| e.seq);
                self.first += 1;
            }
            if self.first >= mark.end {
                moved = true;
                self.done_to = mark.next.clone();
                self.marks.pop_front();
                continue;
            }
            if let Some(seq) = last_seq {
                moved = true;
                self.done_to = mark.base.reach(&mark.until, seq);
            }
            break;
        }
        moved
    }

    /// Where one lane stands: before its first unfinished row below number `cap`, else at
    /// `cap_position`.
    pub(super) fn lane_position(&self, lane: u16, cap: u64, cap_position: &Position) -> Position {
        let numbered = self
            .ring
            .iter()
            .enumerate()
            .map(|(i, e)| (self.first + i as u64, e));
        let first_open = numbered
            .take_while(|(number, _)| *number < cap)
            .find(|(_, e)| e.lane == lane && !e.is_finished);
        let Some((number, entry)) = first_open else {
            return cap_position.clone();
        };
        match self.marks.iter().find(|mark| number < mark.end) {
            Some(mark) => mark.base.reach(&mark.until, entry.seq.saturating_sub(1)),
            None => self.done_to.clone(),
        }
    }

    /// Stops counting a lane's rows: someone else owns them now.
    pub(super) fn forget_lane(&mut self, lane: u16) {
        for entry in self.ring.iter_mut().filter(|e| e.lane == lane) {
            entry.is_finished = true;
        }
        self.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed_of(seqs: &[(u64, u16)]) -> Feed {
        let start = Position::origin(1);
        let mut feed = Feed::new(0, start.clone());
        for (i, (seq, lane)) in seqs.iter().enumerate() {
            feed.push(*seq, *lane, i as u64);
        }
        feed.close_page(start, Position::at(1, Snapshot::serial(100)));
        feed
    }

    #[test]
    fn the_position_never_passes_an_unfinished_row() {
        let mut feed = feed_of(&[(3, 0), (5, 0), (9, 0)]);
        feed.finish(1);
        assert!(!feed.advance());
        assert_eq!(feed.done_to(), &Position::origin(1));
        feed.finish(0);
        assert!(feed.advance());
        assert_eq!(
            feed.done_to(),
            &Position::origin(1).reach(&Snapshot::serial(100), 5)
        );
        feed.finish(2);
        feed.advance();
        assert_eq!(feed.done_to(), &Position::at(1, Snapshot::serial(100)));
    }

    #[test]
    fn an_empty_page_moves_the_position() {
        let feed = feed_of(&[]);
        assert_eq!(feed.done_to(), &Position::at(1, Snapshot::serial(100)));
    }

    #[test]
    fn a_lane_stands_before_its_own_first_unfinished_row() {
        let mut feed = feed_of(&[(3, 0), (5, 1), (9, 1)]);
        feed.finish(1);
        let cap = feed.next_number();
        let read_to = feed.read_to.clone();
        let at = |seq| Position::origin(1).reach(&Snapshot::serial(100), seq);
        assert_eq!(feed.lane_position(0, cap, &read_to), at(2));
        assert_eq!(feed.lane_position(1, cap, &read_to), at(8));
        feed.finish(2);
        assert_eq!(feed.lane_position(1, cap, &read_to), read_to);
        feed.forget_lane(0);
        assert_eq!(feed.done_to(), &read_to);
    }

    #[test]
    fn overtaking_is_seen_within_a_lane_only() {
        let mut feed = feed_of(&[(3, 0), (5, 1), (9, 0)]);
        feed.start(1);
        assert!(!feed.was_overtaken(0, 0));
        feed.start(2);
        assert!(feed.was_overtaken(0, 0));
    }
}
