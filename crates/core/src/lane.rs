//! Slots, lanes and who should own them.

/// Number of slots that keys are hashed into.
pub const SLOTS: u16 = 1024;

/// The slot of a key in stores that do not hash in the database: FNV-1a, 64 bits, folded.
///
/// Constants: <http://www.isthe.com/chongo/tech/comp/fnv/>. The value is stored or recomputed for
/// ever, so it must never change.
#[must_use]
pub fn slot_of(key: &str) -> u16 {
    let hash = fnv1a(key.as_bytes());
    let folded = hash ^ (hash >> 32);
    (folded % u64::from(SLOTS)) as u16
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The lane of a slot where a subscription has `lanes` lanes (1 to 1024): equal ranges of slots.
#[must_use]
pub fn lane_of(slot: u16, lanes: u16) -> u16 {
    let lanes = lanes.clamp(1, SLOTS);
    (u32::from(slot % SLOTS) * u32::from(lanes) / u32::from(SLOTS)) as u16
}

/// The slots of a lane, first and last.
#[must_use]
pub fn slots_of(lane: u16, lanes: u16) -> (u16, u16) {
    let lanes = u32::from(lanes.clamp(1, SLOTS));
    let slots = u32::from(SLOTS);
    let first = (u32::from(lane) * slots).div_ceil(lanes);
    let after = ((u32::from(lane) + 1) * slots).div_ceil(lanes);
    (first as u16, (after - 1) as u16)
}

/// A lane as a member sees it when it balances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Lane number.
    pub lane: u16,
    /// Owner's member id; `None` when released.
    pub owner: Option<String>,
    /// Whether the owner's lease has run out or the owner has left.
    pub owner_gone: bool,
}

/// What a member should do to come nearer to an equal share.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Balance {
    /// Lanes to take: free ones and those of dead owners.
    pub take: Vec<u16>,
    /// Lanes to hand back, so that others can have their share.
    pub release: Vec<u16>,
}

/// Balances one subscription's lanes: each live member gets `lanes / members`, the remainder goes
/// to the members that sort first. Every member computes the same targets from the same view.
#[must_use]
pub fn balance(me: &str, members: &[String], lanes: &[LaneView]) -> Balance {
    let mut sorted: Vec<&str> = members.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let Ok(rank) = sorted.binary_search(&me) else {
        return Balance::default();
    };
    let share = lanes.len() / sorted.len();
    let target = share + usize::from(rank < lanes.len() % sorted.len());
    let mine: Vec<u16> = lanes
        .iter()
        .filter(|l| l.owner.as_deref() == Some(me))
        .map(|l| l.lane)
        .collect();
    if mine.len() > target {
        return Balance {
            take: Vec::new(),
            release: mine[target..].to_vec(),
        };
    }
    let free = lanes.iter().filter(|l| l.owner.as_deref() != Some(me));
    let free = free
        .filter(|l| l.owner.is_none() || l.owner_gone)
        .map(|l| l.lane);
    Balance {
        take: free.take(target - mine.len()).collect(),
        release: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_known_keys_never_change() {
        assert_eq!(["", "ord-731", "a", "é"].map(slot_of), [961, 191, 192, 262]);
    }

    #[test]
    fn lanes_partition_the_slots() {
        for lanes in [1, 2, 3, 7, 16, 100, 1000, 1024] {
            let mut next = 0;
            for lane in 0..lanes {
                let (first, last) = slots_of(lane, lanes);
                assert_eq!(first, next, "lane {lane} of {lanes}");
                for slot in first..=last {
                    assert_eq!(lane_of(slot, lanes), lane);
                }
                next = last + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }

    fn view(owners: &[Option<(&str, bool)>]) -> Vec<LaneView> {
        let lanes = owners.iter().enumerate();
        lanes
            .map(|(i, owner)| LaneView {
                lane: i as u16,
                owner: owner.map(|o| o.0.to_owned()),
                owner_gone: owner.is_some_and(|o| o.1),
            })
            .collect()
    }

    #[test]
    fn members_converge_to_equal_shares() {
        let members: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let mut lanes = view(&[Some(("a", false)); 16]);
        for _ in 0..3 {
            for me in ["a", "b", "c"] {
                let plan = balance(me, &members, &lanes);
                for lane in &mut lanes {
                    if plan.release.contains(&lane.lane) {
                        lane.owner = None;
                    } else if plan.take.contains(&lane.lane) {
                        lane.owner = Some(me.to_owned());
                    }
                }
            }
        }
        let count = |m: &str| {
            lanes
                .iter()
                .filter(|l| l.owner.as_deref() == Some(m))
                .count()
        };
        assert_eq!(["a", "b", "c"].map(count), [6, 5, 5]);
        for me in ["a", "b", "c"] {
            assert_eq!(balance(me, &members, &lanes), Balance::default());
        }
    }

    #[test]
    fn lanes_of_the_dead_are_taken_and_of_the_living_are_not() {
        let members = vec!["b".to_owned()];
        let lanes = view(&[Some(("a", true)), Some(("c", false)), None]);
        assert_eq!(balance("b", &members, &lanes).take, vec![0, 2]);
        assert_eq!(balance("stranger", &members, &lanes), Balance::default());
    }
}
