//! Bounds of memory that groups share.

/// So many rows or bytes at once. Half of them are the groups' own, in equal parts, so that none is
/// kept out by others; half are for whoever comes.
#[derive(Clone, Debug)]
pub(super) struct Room {
    total: usize,
    /// Each group's own part.
    own: usize,
    /// What is for all.
    common: usize,
    used: Vec<usize>,
    used_in_all: usize,
    /// What of the common part is used.
    used_in_common: usize,
}

impl Room {
    pub(super) fn new(total: usize, groups: usize) -> Self {
        let own = total / 2 / groups.max(1);
        Self {
            total,
            own,
            common: total - own * groups,
            used: vec![0; groups],
            used_in_all: 0,
            used_in_common: 0,
        }
    }

    /// What a group can have more.
    pub(super) fn free(&self, group: usize) -> usize {
        if self.used.len() == 1 {
            return self.total.saturating_sub(self.used_in_all);
        }
        let own = self.own.saturating_sub(self.used[group]);
        own + self.common.saturating_sub(self.used_in_common)
    }

    /// All there is.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// Each group's own part.
    pub(super) const fn own(&self) -> usize {
        self.own
    }

    /// The most that a group can have.
    pub(super) const fn most(&self) -> usize {
        if self.used.len() == 1 {
            self.total
        } else {
            self.own + self.common
        }
    }

    pub(super) fn used(&self, group: usize) -> usize {
        self.used[group]
    }

    #[cfg(test)]
    const fn used_in_all(&self) -> usize {
        self.used_in_all
    }

    pub(super) fn take(&mut self, group: usize, amount: usize) {
        let before = self.used[group];
        self.used[group] = before + amount;
        self.used_in_all += amount;
        self.recount(before, before + amount);
    }

    pub(super) fn give_back(&mut self, group: usize, amount: usize) {
        let before = self.used[group];
        let after = before.saturating_sub(amount);
        self.used[group] = after;
        self.used_in_all -= before - after;
        self.recount(before, after);
    }

    fn recount(&mut self, before: usize, after: usize) {
        let beyond = |used: usize| used.saturating_sub(self.own);
        self.used_in_common = self.used_in_common + beyond(after) - beyond(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_group_has_all_of_it() {
        let mut room = Room::new(10, 1);
        room.take(0, 7);
        assert_eq!((room.free(0), room.most()), (3, 10));
        room.take(0, 5);
        assert_eq!(room.free(0), 0);
        room.give_back(0, 12);
        assert_eq!(room.free(0), 10);
    }

    proptest! {
        /// As long as each takes what is free only, the sum stays within the bound, and each can
        /// have its own part.
        #[test]
        fn groups_keep_within_the_bound_and_none_is_kept_out(
            total in 1usize..500,
            groups in 1usize..9,
            steps in prop::collection::vec((0usize..9, 0usize..300, any::<bool>()), 0..60),
        ) {
            let mut room = Room::new(total, groups);
            let mut used = vec![0; groups];
            for (group, amount, takes) in steps {
                let group = group % groups;
                if takes {
                    let amount = amount.min(room.free(group));
                    room.take(group, amount);
                    used[group] += amount;
                } else {
                    let amount = amount.min(used[group]);
                    room.give_back(group, amount);
                    used[group] -= amount;
                }
                prop_assert!(used.iter().sum::<usize>() <= total);
                prop_assert_eq!(room.used_in_all(), used.iter().sum::<usize>());
                for (group, used) in used.iter().enumerate() {
                    let own = total / 2 / groups;
                    prop_assert!(room.free(group) >= own.saturating_sub(*used));
                }
            }
        }
    }
}
