//! Kinds of faults.

use std::str::FromStr;

/// A kind of fault; each can be left out of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Processes die, between any two steps, and start again later.
    Crash,
    /// The database notices a dead process late: its transactions stay open for a while.
    Linger,
    /// Processes stand still and wake past their lease.
    Pause,
    /// Answers are lost, those of commits included.
    Lost,
    /// The database refuses for a moment.
    Refuse,
    /// Answers take long.
    Hang,
    /// The database's clock steps.
    Clock,
    /// Processes are shut down, and others come.
    Churn,
    /// Handlers fail in every way.
    Handler,
    /// Messages kill the process that runs them.
    Kill,
    /// Old rows are removed.
    Retention,
    /// Producers commit late, abort, and send again.
    Producer,
    /// All processes are away for longer than anything is kept.
    Absence,
    /// A message may be retried only for a short time.
    Age,
    /// Operators act on cases, on what waits for a person, on subscriptions.
    Operate,
    /// Operators send messages out again, by campaigns.
    Replay,
    /// The other side of calls and deliveries is away for a while.
    Outage,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Crash,
        Self::Linger,
        Self::Pause,
        Self::Lost,
        Self::Refuse,
        Self::Hang,
        Self::Clock,
        Self::Churn,
        Self::Handler,
        Self::Kill,
        Self::Retention,
        Self::Producer,
        Self::Absence,
        Self::Age,
        Self::Operate,
        Self::Replay,
        Self::Outage,
    ];

    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Linger => "linger",
            Self::Pause => "pause",
            Self::Lost => "lost",
            Self::Refuse => "refuse",
            Self::Hang => "hang",
            Self::Clock => "clock",
            Self::Churn => "churn",
            Self::Handler => "handler",
            Self::Kill => "kill",
            Self::Retention => "retention",
            Self::Producer => "producer",
            Self::Absence => "absence",
            Self::Age => "age",
            Self::Operate => "operate",
            Self::Replay => "replay",
            Self::Outage => "outage",
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == name);
        found.ok_or_else(|| format!("no fault is called {name:?}"))
    }
}
