//! What goes next where that is not simply the next in line: a probe of the other side, and the
//! operators' limit of starts.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Dispatcher;

/// How long a probe waits for a message that failed before and is due within that, in milliseconds.
const PROBE_WAIT_MS: u64 = 500;

impl Dispatcher {
    /// How many messages may start now.
    pub(super) fn starts(&mut self) -> usize {
        let lanes = &self.lanes;
        let owned = || {
            let owned = lanes.values().filter(|lane| lane.cap.is_none()).count();
            u16::try_from(owned).unwrap_or(u16::MAX)
        };
        self.pacing.starts(self.now_ms, owned)
    }

    /// Brings one that failed before to the front, where the next one finds out whether the other
    /// side is back: one that fails each message the first time would look as if it were away. Every
    /// second probe is whoever's turn it is: one that always fails would keep it away for good.
    /// Returns whether to go on: not while one that failed may just be coming.
    pub(super) fn probe_first(&mut self) -> bool {
        if !self.pacing.is_probing() || !self.prefers_failed {
            return true;
        }
        let keys = &self.keys;
        let tracked = &self.tracked;
        let has_failed = |name: &Arc<str>| {
            let first = keys.get(name).and_then(|key| key.queue.front());
            let tracked = first.and_then(|token| tracked.get(token));
            tracked.is_some_and(|tracked| tracked.failure.is_some())
        };
        if self.turns.bring_first(has_failed) {
            return true;
        }
        self.load_on();
        !self.is_one_coming()
    }

    /// Whether deferred messages are being loaded, or will be soon.
    fn is_one_coming(&self) -> bool {
        let soon_ms = self.now_ms.saturating_add(PROBE_WAIT_MS);
        let is_due_soon = |due: &Reverse<(u64, _)>| due.0.0 <= soon_ms;
        !self.loads.is_empty() || self.due.peek().is_some_and(is_due_soon)
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
