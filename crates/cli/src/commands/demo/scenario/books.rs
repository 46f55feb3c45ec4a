//! What a scenario ended with: the records of all sides, compared, and the scenario's own claims.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::depot::Scan;
use crate::commands::demo::verdict::{Finding, Verdict};

/// One effect: its key, and what it is of.
pub(super) type Effect = (String, String);

/// What one subscription was to do, and what the records say that it did.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// The subscription.
    pub(super) name: String,
    /// What was accepted and is to have its effect, each key in its order.
    pub(super) expected: Vec<Effect>,
    /// The effects, as the business or the receiver has recorded them, in their order.
    pub(super) effects: Vec<Effect>,
    /// What Onceward says of each, by log, ledger, deferrals and cases. Empty where it was not asked
    /// one by one.
    pub(super) states: BTreeMap<String, String>,
}

/// One thing that a scenario claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Claim {
    /// What is claimed.
    pub(super) claim: String,
    /// Whether it is so.
    pub(super) is_met: bool,
    /// What was found.
    pub(super) found: String,
}

/// What the comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// What was accepted.
    pub(super) accepted: u64,
    /// What is accepted, and has no effect or no end.
    pub(super) lost: u64,
    /// What has more than one effect.
    pub(super) doubled: u64,
    /// Effects that nobody asked for.
    pub(super) unasked: u64,
    /// The scenario's claims.
    pub(super) claims: Vec<Claim>,
    /// What is wrong, one by one.
    pub(super) findings: Vec<Finding>,
}

/// The effects that scans are to have.
pub(super) fn effects_of<'a>(scans: impl IntoIterator<Item = &'a Scan>) -> Vec<Effect> {
    let effect = |scan: &Scan| (scan.parcel.clone(), scan.scan.clone());
    scans.into_iter().map(effect).collect()
}

/// Compares the records of each side.
pub(super) fn compare(accepted: usize, sides: &[Side]) -> Judged {
    let mut judged = Judged {
        accepted: accepted as u64,
        ..Judged::default()
    };
    for side in sides {
        count(&mut judged, side);
    }
    let disordered: Vec<&str> = sides.iter().flat_map(disordered).collect();
    judged.claim(
        "each key in its order",
        disordered.is_empty(),
        match disordered.first() {
            None => "every one".to_owned(),
            Some(first) => format!("not {first} and {} more", disordered.len() - 1),
        },
    );
    judged
}

fn count(judged: &mut Judged, side: &Side) {
    let mut times: BTreeMap<&Effect, u64> = BTreeMap::new();
    for effect in &side.effects {
        *times.entry(effect).or_default() += 1;
    }
    let expected: BTreeSet<&Effect> = side.expected.iter().collect();
    for effect in &expected {
        let count = times.get(effect).copied().unwrap_or(0);
        let state = side.states.get(&effect.1).map(String::as_str);
        let has_ended = side.states.is_empty() || matches!(state, Some("done" | "delivered"));
        if count == 0 || !has_ended {
            judged.lost += 1;
            let state = state.unwrap_or("nothing");
            let problem = format!("{count} effects, and Onceward says: {state}");
            judged.find(side, &effect.1, problem);
        }
    }
    for (effect, count) in times {
        if count > 1 {
            judged.doubled += 1;
            judged.find(side, &effect.1, format!("{count} effects"));
        }
        if !expected.contains(effect) {
            judged.unasked += 1;
            judged.find(side, &effect.1, "an effect that was not to be".to_owned());
        }
    }
}

/// Keys whose effects came in another order. A second effect of the same is counted elsewhere.
fn disordered(side: &Side) -> Vec<&str> {
    let wanted = by_key(&side.expected);
    let found = by_key(&side.effects);
    let mut disordered = Vec::new();
    for (key, found) in found {
        let wanted = wanted.get(key).map_or(&[][..], Vec::as_slice);
        let both = |one: &[&'_ str], other: &[&'_ str]| -> Vec<String> {
            let both = one.iter().filter(|name| other.contains(name));
            both.map(|name| (*name).to_owned()).collect()
        };
        if both(wanted, &found) != both(&found, wanted) {
            disordered.push(key);
        }
    }
    disordered
}

/// Names by key, each once, in their order.
fn by_key(effects: &[Effect]) -> BTreeMap<&str, Vec<&str>> {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, name) in effects {
        let names = by_key.entry(key).or_default();
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    by_key
}

impl Judged {
    /// What the comparison of the orders example found.
    pub(super) fn of_orders(verdict: &Verdict) -> Self {
        Self {
            accepted: verdict.accepted,
            lost: verdict.lost,
            doubled: verdict.doubled,
            unasked: verdict.unasked,
            claims: Vec::new(),
            findings: verdict.findings.clone(),
        }
    }

    /// Adds a claim.
    pub(super) fn claim(
        &mut self,
        claim: impl Into<String>,
        is_met: bool,
        found: impl Into<String>,
    ) {
        self.claims.push(Claim {
            claim: claim.into(),
            is_met,
            found: found.into(),
        });
    }

    /// Adds what did not come about while the scenario was played, if anything.
    pub(super) fn miss(&mut self, missed: Vec<String>) {
        for text in missed {
            self.claim("everything came about in time", false, text);
        }
    }

    /// Adds a claim that a number is as it was to be.
    pub(super) fn claim_count(&mut self, claim: impl Into<String>, found: usize, wanted: usize) {
        let is_met = found == wanted;
        let text = match is_met {
            true => found.to_string(),
            false => format!("{found} instead of {wanted}"),
        };
        self.claim(claim, is_met, text);
    }

    /// Whether everything was done once and every claim holds.
    pub(super) fn is_good(&self) -> bool {
        let is_once = self.lost == 0 && self.doubled == 0 && self.unasked == 0;
        is_once && self.claims.iter().all(|claim| claim.is_met)
    }

    fn find(&mut self, side: &Side, what: &str, problem: String) {
        self.findings.push(Finding {
            what: format!("{what} in {}", side.name),
            problem,
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A side on which all is as it was to be.
    pub(in super::super) fn good(name: &str, scans: &[Scan]) -> Side {
        let states = scans.iter().map(|s| (s.scan.clone(), "done".to_owned()));
        Side {
            name: name.to_owned(),
            expected: effects_of(scans),
            effects: effects_of(scans),
            states: states.collect(),
        }
    }

    /// The claims that do not hold.
    pub(in super::super) fn unmet(judged: &Judged) -> Vec<&str> {
        let unmet = judged.claims.iter().filter(|claim| !claim.is_met);
        unmet.map(|claim| claim.claim.as_str()).collect()
    }

    fn scans() -> Vec<Scan> {
        let step = |n| Scan::of("a", n, "Ghent");
        vec![step(1), Scan::of("b", 1, "Ghent"), step(2)]
    }

    fn faults(change: impl FnOnce(&mut Side)) -> (u64, u64, u64, bool) {
        let mut side = good("tracking", &scans());
        change(&mut side);
        let judged = compare(3, &[side]);
        assert!(!judged.is_good());
        let in_order = judged.claims[0].is_met;
        (judged.lost, judged.doubled, judged.unasked, in_order)
    }

    #[test]
    fn records_that_agree_are_good() {
        let judged = compare(3, &[good("tracking", &scans())]);
        assert!(judged.is_good(), "{judged:?}");
        assert_eq!(judged.accepted, 3);
    }

    #[test]
    fn what_did_not_come_about_is_no_good() {
        let mut judged = compare(3, &[good("tracking", &scans())]);
        judged.miss(Vec::new());
        assert!(judged.is_good(), "{judged:?}");
        judged.miss(vec!["not within 40 s: it ends".to_owned()]);
        assert_eq!(unmet(&judged), ["everything came about in time"]);
        assert!(!judged.is_good());
    }

    #[test]
    fn each_fault_is_found() {
        let lost = faults(|side| drop(side.effects.remove(0)));
        assert_eq!(lost, (1, 0, 0, true));
        let unended =
            faults(|side| drop(side.states.insert("a-2".into(), "deferred retry".into())));
        assert_eq!(unended, (1, 0, 0, true));
        let unknown = faults(|side| drop(side.states.remove("b-1")));
        assert_eq!(unknown, (1, 0, 0, true));
        let doubled = faults(|side| side.effects.push(side.effects[0].clone()));
        assert_eq!(doubled, (0, 1, 0, true));
        let unasked = faults(|side| side.effects.push(("c".into(), "c-1".into())));
        assert_eq!(unasked, (0, 0, 1, true));
        assert_eq!(faults(|side| side.effects.reverse()), (0, 0, 0, false));
    }
}
