//! What can be done to the system, and where.

use super::place::Place;
use super::proxy::Cut;

/// One thing that is done to the system in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL at random.
    Kill,
    /// SIGKILL at a named failure point.
    Point,
    /// SIGSTOP past the lease, then SIGCONT.
    Stop,
    /// The connections of one process are cut in one direction.
    Cut(Cut),
    /// The server is stopped at once and started again.
    Restart,
    /// The server is killed and started again.
    Crash,
    /// All connections lead to a standby for a while: nothing can be written.
    ReadOnly,
    /// The server has no connections left.
    NoConnections,
    /// A worker has one connection for all effects.
    SmallPool,
    /// The volume is full.
    DiskFull,
    /// Somebody else holds the file.
    Locked,
    /// The carrier is killed and comes back.
    Carrier,
    /// A producer is killed.
    Producer,
    /// A worker is told to stop and another one starts.
    Leave,
}

/// All of them, each with how often it comes in a deck.
const DECK: [(Fault, usize); 19] = [
    (Fault::Kill, 6),
    (Fault::Point, 14),
    (Fault::Stop, 3),
    (Fault::Cut(Cut::DelayToServer), 1),
    (Fault::Cut(Cut::DelayToClient), 1),
    (Fault::Cut(Cut::DropToServer), 1),
    (Fault::Cut(Cut::DropToClient), 1),
    (Fault::Cut(Cut::LoseCommitAnswer), 4),
    (Fault::Cut(Cut::LoseCommit), 1),
    (Fault::Restart, 1),
    (Fault::Crash, 1),
    (Fault::ReadOnly, 1),
    (Fault::NoConnections, 1),
    (Fault::SmallPool, 1),
    (Fault::DiskFull, 1),
    (Fault::Locked, 1),
    (Fault::Carrier, 2),
    (Fault::Producer, 1),
    (Fault::Leave, 1),
];

impl Fault {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Point => "kill_at_point",
            Self::Stop => "stop",
            Self::Cut(Cut::DelayToServer) => "delay_to_server",
            Self::Cut(Cut::DelayToClient) => "delay_to_client",
            Self::Cut(Cut::DropToServer) => "drop_to_server",
            Self::Cut(Cut::DropToClient) => "drop_to_client",
            Self::Cut(Cut::LoseCommitAnswer) => "lose_commit_answer",
            Self::Cut(Cut::LoseCommit) => "lose_commit",
            Self::Cut(Cut::None) => "none",
            Self::Restart => "restart",
            Self::Crash => "crash",
            Self::ReadOnly => "read_only",
            Self::NoConnections => "no_connections",
            Self::SmallPool => "small_pool",
            Self::DiskFull => "disk_full",
            Self::Locked => "locked",
            Self::Carrier => "carrier_killed",
            Self::Producer => "producer_killed",
            Self::Leave => "leave",
        }
    }

    /// Why it cannot be done here, if it cannot.
    const fn missing(self, place: &Place) -> Option<&'static str> {
        let is_postgres = matches!(place.kind.as_bytes(), b"postgres");
        match self {
            Self::Cut(_) | Self::NoConnections | Self::SmallPool | Self::ReadOnly
                if !is_postgres =>
            {
                Some("a file has no connections")
            }
            Self::Restart | Self::Crash if !is_postgres => Some("a file has no server"),
            Self::Restart | Self::Crash | Self::ReadOnly | Self::NoConnections
                if place.servers.is_none() =>
            {
                Some("the server is not ours")
            }
            Self::Locked if is_postgres => Some("a server is not held by one writer"),
            Self::DiskFull if place.disk.is_none() => Some("no small volume could be mounted"),
            _ => None,
        }
    }
}

/// Faults in random order, again and again, and those that cannot be done here.
pub(super) struct Deck {
    all: Vec<Fault>,
    left: Vec<Fault>,
    pub(super) not_run: Vec<String>,
}

impl Deck {
    pub(super) fn of(place: &Place, is_points_only: bool) -> Self {
        let mut deck = Self {
            all: Vec::new(),
            left: Vec::new(),
            not_run: Vec::new(),
        };
        for (fault, times) in DECK {
            if is_points_only && fault != Fault::Point {
                continue;
            }
            match fault.missing(place) {
                None => deck.all.extend(std::iter::repeat_n(fault, times)),
                Some(why) => deck.not_run.push(format!("{}: {why}", fault.name())),
            }
        }
        deck
    }

    pub(super) fn draw(&mut self, random: &mut fastrand::Rng) -> Fault {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
            random.shuffle(&mut self.left);
        }
        self.left.pop().unwrap_or(Fault::Kill)
    }
}
