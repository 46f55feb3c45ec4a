//! The engine's failure points, and how a process dies at one.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// The engine's failure points; a test compares them with its source.
pub const POINTS: [&str; 30] = [
    "after-answer",
    "after-begin",
    "after-claim",
    "after-commit",
    "after-delivery",
    "after-effect-before-ledger",
    "after-intent",
    "after-join",
    "after-ledger-before-commit",
    "after-merge",
    "after-outcome",
    "after-position",
    "after-record",
    "after-record-before-commit",
    "after-release",
    "after-renewal",
    "after-take",
    "after-upkeep",
    "before-begin",
    "before-claim-commit",
    "before-intent",
    "before-leave",
    "before-merge-commit",
    "before-outcome-commit",
    "before-position",
    "before-probe",
    "before-record",
    "before-release",
    "before-take",
    "before-upkeep",
];

/// Where a process dies, written `NAME:HIT` or `NAME:HIT+MICROSECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DieAt {
    /// The point.
    pub point: String,
    /// At which time of coming by, from 1.
    pub hit: u32,
    /// How long after that, in microseconds; 0 is at the point itself.
    pub later_us: u64,
}

impl std::fmt::Display for DieAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}+{}", self.point, self.hit, self.later_us)
    }
}

impl FromStr for DieAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not NAME:HIT or NAME:HIT+MICROSECONDS");
        let (point, when) = text.split_once(':').ok_or_else(wrong)?;
        let (hit, later) = when.split_once('+').unwrap_or((when, "0"));
        if !POINTS.contains(&point) {
            return Err(format!("no failure point is called {point}"));
        }
        Ok(Self {
            point: point.to_owned(),
            hit: hit.parse().map_err(|_| wrong())?,
            later_us: later.parse().map_err(|_| wrong())?,
        })
    }
}

impl DieAt {
    /// From now on this process dies there.
    pub fn arm(self) {
        let hits = AtomicU32::new(0);
        onceward::on_failure_point(move |point| {
            if point != self.point || hits.fetch_add(1, Ordering::Relaxed) + 1 != self.hit {
                return;
            }
            if self.later_us == 0 {
                die();
            }
            let later = Duration::from_micros(self.later_us);
            std::thread::spawn(move || {
                std::thread::sleep(later);
                die();
            });
        });
    }
}

fn die() {
    let _ = kill_process(getpid(), Signal::KILL);
}
