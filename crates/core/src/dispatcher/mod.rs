//! The dispatcher: takes messages in order, runs different keys in parallel and one key in
//! sequence, within limits. A state machine without I/O: events in, commands out.
//!
//! One dispatcher serves one subscription in one process, for the lanes that the process owns.
//! Every message it has read is in exactly one place: queued behind its key, running, or being
//! stored (as deferred). The position of a feed passes a message only when it is finished or
//! stored; see `feed`.

mod arrive;
mod blocked;
mod feed;
mod gap;
mod key;
mod look;
mod pace;
mod probe;
mod protocol;
mod release;
mod room;
mod run;
mod turn;

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::coalesce::BatchSize;
use crate::contract::{Order, Semantics, SubscriptionContract};
use crate::envelope::Row;
use crate::failure::FailureRecord;
use crate::group::{Grouping, Groups};
use crate::merge::Merge;
use crate::position::Position;
use crate::retry::Spent;
use crate::stand::Stand;
use crate::store::{Deferral, DeferralKind, HeldCase, HeldKey, Span, TakenLane};

use feed::Feed;
use key::{Due, Key, LOAD_ROWS};
use pace::Pacing;
use room::Room;
use turn::{Start, Turns};

pub use blocked::Blocked;
pub use pace::Pace;
pub use protocol::{Batch, Command, Event, Fate, Ruling, Work};

/// A map whose iteration order repeats from run to run.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Rows asked for at once.
pub const PAGE_ROWS: u32 = 500;
/// Payload bytes asked for at once.
pub const PAGE_BYTES: u64 = 1 << 20;
/// How long a position may go unwritten while messages finish, in milliseconds.
const SAVE_AFTER_MS: u64 = 1_000;
/// The same for an at-least-once subscription, whose position is its only record.
const SAVE_AFTER_AT_LEAST_ONCE_MS: u64 = 100;
/// The same while nothing finishes and only time passes.
const SAVE_IDLE_AFTER_MS: u64 = 30_000;
/// Finished messages after which the position is written at once.
const SAVE_AFTER_MESSAGES: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Running,
    /// A deferral is being written (kind held) or cleared.
    Storing,
}

#[derive(Clone, Debug)]
struct Tracked {
    /// Feed and number there; `None` when it came from the store or is already counted as stored.
    place: Option<(u32, u64)>,
    key: Arc<str>,
    lane: u16,
    group: usize,
    row: Arc<Row>,
    spent: Spent,
    failure: Option<FailureRecord>,
    is_stored: bool,
    is_from_store: bool,
    is_suspect: bool,
    must_probe: bool,
    is_released: bool,
    /// Its key is one of another group.
    is_conflict: bool,
    generation: u32,
    /// The last look-up that had begun when it started.
    started_at_look: u64,
    phase: Phase,
    /// A deferral of kind running is being written while the handler runs.
    is_marking: bool,
    /// A deferral of kind running that the executor does not know of is to be cleared.
    was_marked: bool,
    /// The handler ended while the deferral of kind running was being written.
    ended: Option<Fate>,
}

impl Tracked {
    /// As [`Work::is_untried`].
    fn is_untried(&self) -> bool {
        let is_marked = self.is_suspect || self.must_probe || self.is_released || self.is_conflict;
        !is_marked && self.generation == 0 && self.failure.is_none() && self.spent.is_unused()
    }
}

#[derive(Clone, Debug)]
struct Lane {
    epoch: u64,
    /// One for each group.
    feeds: Vec<u32>,
    not_before: Option<crate::Timestamp>,
    /// Set while it is being handed back: where reading had come, for each group.
    cap: Option<Vec<(u64, Position)>>,
    /// Messages running or being stored.
    busy: u32,
    /// It is to be looked up again.
    must_look: bool,
    /// The look-up under way whose answer counts; 0 for none.
    look: u64,
}

/// The dispatcher of one subscription.
#[derive(Debug)]
pub struct Dispatcher {
    groups: Groups,
    order: Order,
    merge: Merge,
    lane_count: u16,
    pacing: Pacing,
    /// Messages in memory, and their bytes.
    rows: Room,
    bytes: Room,
    key_share: usize,
    save_after_ms: u64,
    /// By group: how large its batches are.
    sizes: Vec<BatchSize>,
    /// Rows that a group must have room for before it asks for a page.
    rows_for_a_read: usize,
    /// Rows asked for with one load.
    load_rows: u32,
    now_ms: u64,
    lanes: BTreeMap<u16, Lane>,
    feeds: BTreeMap<u32, Feed>,
    next_feed: u32,
    keys: Map<Arc<str>, Key>,
    turns: Turns,
    catch_up_share: f64,
    tracked: Map<u64, Tracked>,
    next_token: u64,
    batches: BTreeMap<u64, Start>,
    next_batch: u64,
    /// Keys to be loaded again when reading has gone on.
    awaiting_read: Vec<Arc<str>>,
    due: BinaryHeap<Reverse<(u64, Arc<str>)>>,
    /// Keys that are due, to be loaded as there is room: by group, and last those whose group is not
    /// known yet.
    to_load: Vec<VecDeque<Arc<str>>>,
    /// With which of them to begin.
    loads_next: usize,
    /// Loads under way, with the place in `to_load` that each is from.
    loads: BTreeMap<u64, usize>,
    last_load: u64,
    /// Messages in memory that were loaded, and their bytes.
    from_store: Room,
    from_store_bytes: Room,
    /// The next probe is rather one that failed before.
    prefers_failed: bool,
    /// By an operator: nothing is started.
    is_paused: bool,
    last_look: u64,
    /// Messages still to be run one by one after an unclean takeover.
    suspects_left: u32,
    suspects_max: u32,
    /// Messages in memory whose process died while they ran before.
    suspects_tracked: u32,
    unsaved: u64,
    saved_at_ms: u64,
    is_dirty: bool,
    out: Vec<Command>,
}

impl Dispatcher {
    /// A dispatcher without lanes. `batch_max` is 1 for handlers that are not coalesced.
    #[must_use]
    pub fn new(contract: &SubscriptionContract, batch_max: u32, now_ms: u64) -> Self {
        let concurrency = usize::from(contract.concurrency.max(1));
        let window_rows = contract.window_rows.max(2 * PAGE_ROWS) as usize;
        let grouping = Grouping {
            tenants: contract.tenants.clone(),
            ..Grouping::of_types(contract.types.iter().map(String::as_str))
        };
        let groups = Groups::new(&grouping);
        let mut dispatcher = Self {
            order: contract.order,
            merge: contract.merge,
            lane_count: contract.lanes,
            pacing: Pacing::new(concurrency, now_ms),
            rows: Room::new(window_rows, 1),
            bytes: Room::new(
                usize::try_from(contract.window_bytes).unwrap_or(usize::MAX),
                1,
            ),
            key_share: (window_rows / (4 * concurrency)).max(8),
            save_after_ms: match contract.semantics {
                Semantics::AtLeastOnce => SAVE_AFTER_AT_LEAST_ONCE_MS,
                Semantics::AtMostOnce | Semantics::EffectOnce => SAVE_AFTER_MS,
            },
            sizes: vec![BatchSize::new(batch_max)],
            rows_for_a_read: PAGE_ROWS as usize,
            load_rows: LOAD_ROWS,
            now_ms,
            lanes: BTreeMap::new(),
            feeds: BTreeMap::new(),
            next_feed: 0,
            keys: Map::default(),
            turns: Turns::new(&groups, contract.catch_up_share),
            catch_up_share: contract.catch_up_share,
            tracked: Map::default(),
            next_token: 0,
            batches: BTreeMap::new(),
            next_batch: 0,
            awaiting_read: Vec::new(),
            due: BinaryHeap::new(),
            to_load: Vec::new(),
            loads_next: 0,
            loads: BTreeMap::new(),
            last_load: 0,
            from_store: Room::new(0, 1),
            from_store_bytes: Room::new(0, 1),
            prefers_failed: true,
            is_paused: false,
            last_look: 0,
            suspects_left: 0,
            suspects_max: 2 * u32::from(contract.concurrency.max(1)) * batch_max,
            suspects_tracked: 0,
            unsaved: 0,
            saved_at_ms: now_ms,
            is_dirty: false,
            out: Vec::new(),
            groups,
        };
        dispatcher.divide();
        dispatcher
    }

    /// Divided by the classes of its types as well. To be said before the first event.
    #[must_use]
    pub fn grouped(mut self, grouping: &Grouping) -> Self {
        self.groups = Groups::new(grouping);
        self.divide();
        self
    }

    /// Gives each group its part of everything.
    fn divide(&mut self) {
        let count = self.groups.count();
        self.rows = Room::new(self.rows.total(), count);
        self.bytes = Room::new(self.bytes.total(), count);
        // A part of the window is theirs, so that neither they nor what is read can keep the other
        // out.
        self.from_store = Room::new(self.rows.total() / 4, count);
        self.from_store_bytes = Room::new(self.bytes.total() / 4, count);
        self.sizes = vec![self.sizes[0]; count];
        if count > 1 {
            // Where the window is small, a part of a page is better than nothing.
            self.rows_for_a_read = (self.rows.own() / 2).clamp(1, PAGE_ROWS as usize);
            let load_rows = u32::try_from(self.from_store.own()).unwrap_or(LOAD_ROWS);
            self.load_rows = load_rows.clamp(1, LOAD_ROWS);
        }
        self.turns = Turns::new(&self.groups, self.catch_up_share);
        // The group of a key is always known where there is one only.
        self.to_load = vec![VecDeque::new(); count + 1];
    }

    /// Begins at this pace.
    #[must_use]
    pub fn starting_at(mut self, pace: Pace) -> Self {
        self.pacing.set(self.now_ms, pace);
        self
    }

    /// Takes an event in and returns what is to be done now. `now_ms` never goes back.
    pub fn handle(&mut self, now_ms: u64, event: Event) -> Vec<Command> {
        self.now_ms = self.now_ms.max(now_ms);
        match event {
            Event::LaneTaken { taken, held, cases } => self.lane_taken(&taken, held, cases),
            Event::ReleaseLane { lane } => self.release_lane(lane),
            Event::Drain => {
                for lane in self.lanes.keys().copied().collect::<Vec<_>>() {
                    self.release_lane(lane);
                }
            }
            Event::Page {
                feed,
                from,
                rows,
                next,
            } => self.page(feed, from, rows, next),
            Event::ReadFailed { feed } => {
                if let Some(feed) = self.feeds.get_mut(&feed) {
                    feed.is_reading = false;
                }
            }
            Event::Loaded { load, key, rows } => self.loaded(load, &key, rows),
            Event::Stored { tokens } => self.stored(tokens),
            Event::Acted(ruling) => self.acted(ruling),
            Event::Looked {
                look,
                lane,
                held,
                cases,
            } => self.looked(look, lane, held, &cases),
            Event::Finished {
                batch,
                fates,
                seen,
                pace,
            } => {
                self.finished(batch, fates, seen, pace);
            }
            Event::Tick => {}
        }
        self.wake_due_keys();
        self.relieve();
        self.merge_feeds();
        self.fill();
        self.load_on();
        self.look_on();
        self.read_on();
        self.hand_back();
        self.save();
        std::mem::take(&mut self.out)
    }

    /// When [`Event::Tick`] is wanted next, on the clock of `handle`.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<u64> {
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        let resume = self.pacing.paused_until_ms(self.now_ms);
        let more = match self.turns.is_empty() {
            true => None,
            false => self.pacing.next_more_ms(self.now_ms, self.batches.len()),
        };
        // Without a lane there is no position to keep.
        let save = (self.is_dirty && !self.lanes.is_empty())
            .then(|| self.saved_at_ms + self.save_interval_ms());
        let start = match self.turns.is_empty() {
            true => None,
            // One that has come already is not what is waited for.
            false => self.pacing.next_start_ms().filter(|ms| *ms > self.now_ms),
        };
        [due, resume, save, more, start]
            .into_iter()
            .flatten()
            .reduce(std::cmp::Ord::min)
    }

    /// Whether no lane is owned and nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.batches.is_empty() && self.tracked.is_empty()
    }

    /// Whether everything read so far is finished or stored and nothing is under way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.tracked.is_empty() && self.batches.is_empty()
    }

    /// Messages in memory.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        self.tracked.len()
    }

    /// The lanes owned, those being handed back included.
    pub fn lanes(&self) -> impl Iterator<Item = u16> + '_ {
        self.lanes.keys().copied()
    }

    fn lane_taken(&mut self, taken: &TakenLane, held: Vec<HeldKey>, cases: Vec<HeldCase>) {
        let groups = 0..self.groups.count();
        let feeds = groups
            .map(|group| self.feed_at(group, &taken.stand))
            .collect();
        let lane = Lane {
            epoch: taken.epoch,
            feeds,
            not_before: taken.not_before,
            cap: None,
            busy: 0,
            must_look: false,
            look: 0,
        };
        self.lanes.insert(taken.lane, lane);
        if taken.is_suspect {
            self.suspects_left = self.suspects_max;
        }
        let last_look = self.last_look;
        for case in cases {
            let key = self.key_mut(&Arc::from(case.key.as_str()), case.slot, taken.lane);
            key.is_case_held = true;
            key.case_held_at = last_look;
        }
        for held in held {
            let name: Arc<str> = Arc::from(held.key.as_str());
            let now_ms = self.now_ms;
            let key = self.key_mut(&name, held.slot, taken.lane);
            key.load_from(0);
            key.stored = held.count;
            key.due = Due::after(now_ms, held.due_in_ms);
            self.key_changed(&name);
        }
        self.is_dirty = true;
    }

    /// A feed of a group that begins where a lane stands.
    fn feed_at(&mut self, group: usize, stand: &Stand) -> u32 {
        let position = stand.of(self.groups.name(group));
        let same =
            |feed: &Feed| feed.group == group && feed.read_to == *position && feed.is_quiet();
        if let Some((feed, _)) = self.feeds.iter().find(|(_, feed)| same(feed)) {
            return *feed;
        }
        let feed = self.next_feed;
        self.next_feed += 1;
        self.feeds.insert(feed, Feed::new(group, position.clone()));
        feed
    }

    fn track(&mut self, token: u64, tracked: Tracked) {
        let weight = tracked.row.envelope.weight();
        self.rows.take(tracked.group, 1);
        self.bytes.take(tracked.group, weight);
        if tracked.is_from_store {
            self.from_store.take(tracked.group, 1);
            self.from_store_bytes.take(tracked.group, weight);
        }
        self.suspects_tracked += u32::from(tracked.is_suspect);
        self.tracked.insert(token, tracked);
    }

    fn untrack(&mut self, token: u64) -> Option<Tracked> {
        let tracked = self.tracked.remove(&token)?;
        let weight = tracked.row.envelope.weight();
        self.rows.give_back(tracked.group, 1);
        self.bytes.give_back(tracked.group, weight);
        if tracked.is_from_store {
            self.from_store.give_back(tracked.group, 1);
            self.from_store_bytes.give_back(tracked.group, weight);
        }
        self.suspects_tracked -= u32::from(tracked.is_suspect);
        Some(tracked)
    }

    fn busy(&mut self, lane: u16, change: i64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.busy = u32::try_from(i64::from(lane.busy) + change).unwrap_or(0);
        }
    }

    /// Counts a row as finished or stored in its feed.
    fn settle_place(&mut self, place: Option<(u32, u64)>) {
        let Some((feed, number)) = place else { return };
        if let Some(feed) = self.feeds.get_mut(&feed) {
            feed.finish(number);
            if feed.advance() {
                self.is_dirty = true;
            }
        }
        self.unsaved += 1;
    }

    /// Asks for deferrals of kind held.
    fn store_held(&mut self, tokens: Vec<u64>) {
        if tokens.is_empty() {
            return;
        }
        let deferrals = tokens
            .iter()
            .filter_map(|token| self.tracked.get(token))
            .map(|t| deferral_of(t, DeferralKind::Held))
            .collect();
        self.out.push(Command::Store { tokens, deferrals });
    }

    fn save_interval_ms(&self) -> u64 {
        if self.unsaved > 0 {
            self.save_after_ms
        } else {
            SAVE_IDLE_AFTER_MS
        }
    }

    fn save(&mut self) {
        let is_due = self.unsaved >= SAVE_AFTER_MESSAGES
            || self.now_ms >= self.saved_at_ms + self.save_interval_ms();
        if !self.is_dirty || !is_due || self.lanes.is_empty() {
            return;
        }
        self.out.push(Command::Save(self.spans()));
        self.unsaved = 0;
        self.saved_at_ms = self.now_ms;
        self.is_dirty = false;
    }

    /// All lanes by where they stand. A lane that is being handed back stands by itself: what its
    /// feeds read for the others is none of its own any more.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut together: BTreeMap<&[u32], Vec<(u16, u64)>> = BTreeMap::new();
        for (number, lane) in &self.lanes {
            let place = (*number, lane.epoch);
            if lane.cap.is_none() {
                together.entry(&lane.feeds).or_default().push(place);
                continue;
            }
            spans.extend(self.stand_of(*number, lane).map(|stand| Span {
                stand,
                lanes: vec![place],
            }));
        }
        for (feeds, lanes) in together {
            let feeds = feeds.iter().filter_map(|feed| self.feeds.get(feed));
            let stand = self.stand(feeds.map(|feed| feed.done_to().clone()));
            spans.extend(stand.map(|stand| Span { stand, lanes }));
        }
        spans
    }

    /// Where a lane that is being handed back stands.
    fn stand_of(&self, number: u16, lane: &Lane) -> Option<Stand> {
        let feeds = lane.feeds.iter().filter_map(|feed| self.feeds.get(feed));
        let caps = lane.cap.as_ref()?;
        let positions = feeds.zip(caps);
        let positions =
            positions.map(|(feed, (cap, read_to))| feed.lane_position(number, *cap, read_to));
        self.stand(positions)
    }

    /// One position for each group.
    fn stand(&self, mut positions: impl Iterator<Item = Position>) -> Option<Stand> {
        if self.groups.count() == 1 {
            return positions.next().map(Stand::from);
        }
        let names = self.groups.names().iter().map(String::as_str);
        Stand::of_groups(names.zip(positions))
    }
}

/// What is written of a message that is put aside without blame.
fn deferral_of(tracked: &Tracked, kind: DeferralKind) -> Deferral {
    Deferral {
        seq: tracked.row.seq,
        slot: tracked.row.slot,
        key: tracked.key.to_string(),
        kind,
        due_in_ms: (kind == DeferralKind::Held).then_some(0),
        spent: tracked.spent,
        failure: tracked.failure.clone(),
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod model_process;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "grouped_tests.rs"]
mod grouped_tests;
