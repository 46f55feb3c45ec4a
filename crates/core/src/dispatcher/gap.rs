//! Keys at which a message waits for an earlier version of its aggregate.
//!
//! Everything behind it waits as behind any other deferred message. Only what it waits for may pass,
//! wherever that comes from: read from the log, it goes into the queue; stored behind it before
//! anybody knew, it is looked for once, whenever the message that waits has become another. When
//! something has passed, the key is loaded from its beginning: the message is tried again.

use std::sync::Arc;

use super::key::{Due, Key};
use super::{Dispatcher, Tracked};
use crate::envelope::Row;
use crate::store::{Deferral, DeferralKind, DeferredRow};
use crate::version::is_earlier;

/// How a key stands with the versions of its aggregate.
#[derive(Clone, Debug, Default)]
pub(super) enum Gap {
    /// Nothing waits for a version.
    #[default]
    None,
    /// This message does.
    Waits { row: Arc<Row>, earlier: Earlier },
    /// Something that was waited for is applied, or what waited has ended: what is stored comes before
    /// all that is queued.
    Moved,
}

/// What is known of earlier versions among what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// Nobody has looked yet.
    Unknown,
    /// The first of them has a time of its own.
    NotDue,
    /// There are none.
    None,
}

impl Gap {
    /// Whether what is waited for is to be looked for in the store.
    pub(super) const fn is_to_look(&self) -> bool {
        matches!(self, Self::Waits { earlier, .. } if matches!(*earlier, Earlier::Unknown))
    }

    /// Whether this message waits, and nothing that it waits for is stored.
    fn is_alone(&self, row: &Row) -> bool {
        matches!(self, Self::Waits { row: waiting, earlier: Earlier::None }
            if waiting.seq == row.seq)
    }
}

impl Key {
    /// Whether a row is what is waited for here: it may pass what is stored.
    pub(super) fn awaits(&self, row: &Row) -> bool {
        let is_open = !self.is_case_held && !self.is_to_reload;
        matches!(&self.gap, Gap::Waits { row: waiting, .. }
            if is_open && is_earlier(&row.envelope, &waiting.envelope))
    }

    /// A row is stored: it may be what is waited for.
    pub(super) fn gap_stored(&mut self, row: &Row) {
        if let Gap::Waits {
            row: waiting,
            earlier,
        } = &mut self.gap
            && is_earlier(&row.envelope, &waiting.envelope)
        {
            *earlier = Earlier::Unknown;
        }
    }

    /// What is to be loaded while a message waits: what it waits for, and when it is due itself,
    /// itself.
    pub(super) fn versions_to(&self) -> Option<(Arc<Row>, i64)> {
        let Gap::Waits { row, .. } = &self.gap else {
            return None;
        };
        let version = row.envelope.aggregate_version?;
        let is_due = self.due == Due::Now;
        Some((Arc::clone(row), version - i64::from(!is_due)))
    }

    /// Takes in that a message was deferred: when the key may go on.
    pub(super) fn deferred(&mut self, now_ms: u64, row: &Arc<Row>, deferral: &Deferral) {
        let wait_ms = deferral.due_in_ms;
        let due = wait_ms.map_or(Due::Never, |ms| Due::At(now_ms.saturating_add(ms)));
        // The first of several says how long, and even no time at all is to be waited for: what is
        // queued comes after it. But what passed a message that waits for it may be due before.
        if self.due == Due::Now {
            self.due = due;
        } else if matches!(self.gap, Gap::Waits { .. }) {
            self.due = self.due.min(due);
        }
        if deferral.kind == DeferralKind::Gap {
            let earlier = match self.gap.is_alone(row) {
                true => Earlier::None,
                false => Earlier::Unknown,
            };
            self.gap = Gap::Waits {
                row: Arc::clone(row),
                earlier,
            };
        } else {
            // It waits for something else now.
            if self.gap_is_of(row) {
                self.gap = Gap::None;
            }
            self.gap_stored(row);
        }
    }

    fn gap_is_of(&self, row: &Row) -> bool {
        matches!(&self.gap, Gap::Waits { row: waiting, .. } if waiting.seq == row.seq)
    }

    /// A message had its end. What was to pass it, and has not, may not pass those behind it.
    pub(super) fn gap_ended(&mut self, row: &Row) {
        if !self.gap_is_of(row) {
            return;
        }
        self.gap = Gap::None;
        if self.stored > 0 {
            self.gap = Gap::Moved;
            self.due = Due::Now;
        }
    }

    /// A message was applied.
    pub(super) fn applied(&mut self, row: &Row) {
        if let Gap::Waits { row: waiting, .. } = &self.gap
            && is_earlier(&row.envelope, &waiting.envelope)
        {
            self.gap = Gap::Moved;
            self.due = Due::Now;
        }
        self.gap_ended(row);
    }
}

impl Dispatcher {
    /// Whether this message waits for a version of which nothing is stored, nor queued behind it; the
    /// others that were taken from its key are out of the queue already.
    pub(super) fn is_alone(&self, tracked: &Tracked, taken: &[u64]) -> bool {
        let key = self.keys.get(&tracked.key);
        let key = key.filter(|key| key.gap.is_alone(&tracked.row));
        key.is_some_and(|key| {
            let mut others = taken.iter().chain(&key.queue);
            !others.any(|other| {
                let other = self.tracked.get(other);
                other.is_some_and(|o| is_earlier(&o.row.envelope, &tracked.row.envelope))
            })
        })
    }

    /// Whether all that is queued behind a key may pass what is stored of it.
    pub(super) fn may_all_pass(&self, key: &Key) -> bool {
        let mut rows = key.queue.iter().filter_map(|token| self.tracked.get(token));
        rows.all(|tracked| key.awaits(&tracked.row))
    }

    /// Takes in what is stored of the versions up to the one that waits.
    pub(super) fn versions_loaded(&mut self, name: &Arc<str>, mut rows: Vec<DeferredRow>) {
        rows.sort_by_key(|row| row.row.envelope.aggregate_version);
        let now_ms = self.now_ms;
        let mut found = match rows.len() < self.load_rows as usize {
            true => Earlier::None,
            false => Earlier::Unknown,
        };
        let is_empty = rows.is_empty();
        let mut due = None;
        for row in rows {
            if !self.has_been_read(name, &row) {
                self.awaiting_read.push(Arc::clone(name));
                found = Earlier::Unknown;
                break;
            }
            if !row.is_due() {
                // Later versions are of no use before it.
                due = Some(Due::after(now_ms, row.due_in_ms));
                found = Earlier::NotDue;
                break;
            }
            self.admit(name, row);
        }
        let awaits_read = self.awaiting_read.last() == Some(name);
        let Some(key) = self.keys.get_mut(name) else {
            return;
        };
        key.loading = None;
        key.awaits_read = awaits_read;
        // There is more, which was not asked for.
        key.stored = key.stored.max(1);
        let was_due = key.due == Due::Now;
        if let Some(due) = due {
            key.due = if was_due { due } else { key.due.min(due) };
        }
        if let Gap::Waits { row, earlier } = &mut key.gap {
            let seq = row.seq;
            if !was_due || found == Earlier::NotDue {
                *earlier = found;
            }
            key.load_from(seq);
        }
        if was_due && is_empty {
            // Somebody else ended it.
            key.gap = Gap::None;
        }
        self.key_changed(name);
    }
}

/// Puts what a message waits for right before it; everything else stays in order.
pub(super) fn in_order_of_versions(rows: Vec<DeferredRow>) -> Vec<DeferredRow> {
    if rows.iter().all(|row| row.kind != DeferralKind::Gap) {
        return rows;
    }
    let mut order: Vec<usize> = Vec::with_capacity(rows.len());
    for at in 0..rows.len() {
        if order.contains(&at) {
            continue;
        }
        let envelope = &rows[at].row.envelope;
        let mut earlier: Vec<usize> = (at + 1..rows.len())
            .filter(|other| is_earlier(&rows[*other].row.envelope, envelope))
            .filter(|other| !order.contains(other))
            .collect();
        earlier.sort_by_key(|other| rows[*other].row.envelope.aggregate_version);
        order.extend(earlier);
        order.push(at);
    }
    let mut rows: Vec<_> = rows.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| rows[at].take()).collect()
}

#[cfg(test)]
#[path = "gap_tests.rs"]
mod tests;
