//! Where a lane stands: at one position, or where its groups go on by themselves, at one for each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::position::Position;

/// Where a lane stands.
///
/// In text it is the position, with the groups beside its own fields where there are any. A record
/// without them reads as one of all groups, and whoever does not know of groups reads the position
/// behind which all of them are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// Everything before this is finished or stored, whatever its group.
    #[serde(flatten)]
    pub position: Position,
    /// Groups that stand elsewhere, by [name](crate::group::Groups::name): everything of theirs
    /// before their own position is finished or stored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Position>,
}

impl From<Position> for Stand {
    fn from(position: Position) -> Self {
        Self {
            position,
            groups: BTreeMap::new(),
        }
    }
}

impl Stand {
    /// Of groups with their names, at least one.
    #[must_use]
    pub fn of_groups<'n>(groups: impl IntoIterator<Item = (&'n str, Position)>) -> Option<Self> {
        let mut groups: Vec<(&str, Position)> = groups.into_iter().collect();
        let first = groups.first()?.1.clone();
        let position = groups.iter().fold(first, |lowest, (_, p)| lowest.meet(p));
        groups.retain(|(_, at)| *at != position);
        Some(Self {
            position,
            groups: groups.into_iter().map(|(n, p)| (n.to_owned(), p)).collect(),
        })
    }

    /// Where a group stands. One that is not known by its name has taken other messages before, or
    /// none: it begins where all are done.
    #[must_use]
    pub fn of(&self, name: &str) -> &Position {
        self.groups.get(name).unwrap_or(&self.position)
    }

    /// All positions in it.
    pub fn positions_mut(&mut self) -> impl Iterator<Item = &mut Position> {
        std::iter::once(&mut self.position).chain(self.groups.values_mut())
    }

    /// All positions in it.
    pub fn positions(&self) -> impl Iterator<Item = &Position> {
        std::iter::once(&self.position).chain(self.groups.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Snapshot;

    fn at(seq: u64) -> Position {
        Position::at(1, Snapshot::serial(seq))
    }

    #[test]
    fn a_record_without_groups_is_of_all_of_them() {
        let old = serde_json::to_string(&at(7)).unwrap();
        let read: Stand = serde_json::from_str(&old).unwrap();
        assert_eq!(read, Stand::from(at(7)));
        assert_eq!(read.of("low"), &at(7));
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
    }

    #[test]
    fn whoever_does_not_know_of_groups_reads_the_lowest_position() {
        let stand = Stand::of_groups([("high", at(9)), ("low", at(3)), ("normal", at(5))]).unwrap();
        let text = serde_json::to_string(&stand).unwrap();
        assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), at(3));
        assert_eq!(serde_json::from_str::<Stand>(&text).unwrap(), stand);
        assert_eq!(stand.of("high"), &at(9));
        assert_eq!(stand.of("low"), &at(3));
        assert_eq!(stand.of("renamed"), &at(3));
    }

    #[test]
    fn groups_that_stand_together_are_not_named() {
        let stand = Stand::of_groups([("high", at(4)), ("low", at(4))]).unwrap();
        assert_eq!(stand, Stand::from(at(4)));
        assert_eq!(Stand::of_groups([]), None);
    }
}
