//! Makes a failing setup smaller while it fails in the same way.

use super::machine::run;
use super::setup::Setup;

/// Most runs that shrinking takes.
const RUNS_MAX: u32 = 200;

/// The smallest setup found in which the same checker finds something.
#[must_use]
pub fn shrink(setup: &Setup, checker: &str) -> Setup {
    let mut best = setup.clone();
    let mut runs = 0;
    let fails = |candidate: &Setup, runs: &mut u32| {
        *runs += 1;
        let found = run(candidate).violation;
        found.is_some_and(|violation| violation.checker == checker)
    };
    loop {
        let mut is_smaller = false;
        for candidate in smaller(&best) {
            if runs >= RUNS_MAX {
                return best;
            }
            if fails(&candidate, &mut runs) {
                best = candidate;
                is_smaller = true;
                break;
            }
        }
        if !is_smaller {
            return best;
        }
    }
}

/// Setups that are one step smaller, the largest steps first.
fn smaller(setup: &Setup) -> Vec<Setup> {
    let mut found = Vec::new();
    for messages in [
        setup.messages / 2,
        setup.messages * 3 / 4,
        setup.messages.saturating_sub(1),
    ] {
        if messages > 0 && messages < setup.messages {
            found.push(Setup {
                messages,
                ..setup.clone()
            });
        }
    }
    for at in 0..setup.roles.len() {
        if setup.roles.len() > 1 {
            let mut candidate = setup.clone();
            candidate.roles.remove(at);
            found.push(candidate);
        }
    }
    for at in 0..setup.faults.len() {
        let mut candidate = setup.clone();
        candidate.faults.remove(at);
        found.push(candidate);
    }
    if setup.processes > 1 {
        found.push(Setup {
            processes: setup.processes - 1,
            ..setup.clone()
        });
    }
    for word in ["classes", "tenants", "tight", "early"] {
        let candidate = setup.clone().without(word);
        found.extend(
            candidate
                .into_iter()
                .filter(|smaller| smaller.to_string() != setup.to_string()),
        );
    }
    if setup.coalesce {
        found.push(Setup {
            coalesce: false,
            ..setup.clone()
        });
    }
    found
}
