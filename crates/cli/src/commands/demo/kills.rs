//! When which process is killed.

use super::parts::Kind;

/// A kill that is to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kill {
    /// What kind of process.
    pub(super) kind: Kind,
    /// How much of that kind's work has to be done before, from 0 to 1.
    pub(super) after: f64,
}

/// Kills at random moments; each kind is hit once before any is hit at random.
pub(super) fn plan(kills: u32, random: &mut fastrand::Rng) -> Vec<Kill> {
    let mut kinds = Kind::ALL.to_vec();
    random.shuffle(&mut kinds);
    let kinds: Vec<Kind> = (0..kills as usize)
        .map(|i| match kinds.get(i) {
            Some(kind) => *kind,
            None => Kind::ALL[random.usize(..Kind::ALL.len())],
        })
        .collect();
    let mut kills: Vec<Kill> = kinds
        .into_iter()
        .map(|kind| Kill {
            kind,
            after: 0.02 + 0.83 * random.f64(),
        })
        .collect();
    kills.sort_by(|a, b| a.after.total_cmp(&b.after));
    kills
}

/// Kills of what is there only between two services: both of the order book's process while the
/// broker is well, and the broker in between.
pub(super) fn between() -> [Kill; 3] {
    [(Kind::Book, 0.7), (Kind::Broker, 0.45), (Kind::Book, 0.2)]
        .map(|(kind, after)| Kill { kind, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_kills_hit_every_kind() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let kills = plan(3, &mut random);
            for kind in Kind::ALL {
                assert_eq!(kills.iter().filter(|k| k.kind == kind).count(), 1);
            }
            assert!(kills.iter().all(|k| (0.0..0.9).contains(&k.after)));
            assert_eq!(plan(20, &mut random).len(), 20);
            assert_eq!(plan(0, &mut random), []);
        }
    }
}
