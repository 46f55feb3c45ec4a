//! What one seed stands for: the fleet, the messages, the handlers' conduct, the faults.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use fastrand::Rng;
use onceward::{BreakerPolicy, Gaps, OnPoison, Order, RetryPolicy, VersionPolicy};
use onceward_core::group::{Grouping, Tenants};

use super::defect::Defect;

/// A subscription of the simulated service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// One message at a time, in the effect transaction; appends a follow-up now and then.
    Ship,
    /// Many messages with one call, in the effect transaction.
    Stats,
    /// An effect outside the database, with a probe.
    Carrier,
    /// Hands messages on, at least once.
    Mail,
    /// At most once.
    Notice,
    /// Owns a command, identified by its operation.
    Pay,
    /// Takes the follow-ups of [`Role::Ship`].
    Track,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ship,
        Self::Stats,
        Self::Carrier,
        Self::Mail,
        Self::Notice,
        Self::Pay,
        Self::Track,
    ];

    /// Whether it takes the messages that carry versions, and keeps a ledger of them.
    const fn checks_versions(self) -> bool {
        matches!(self, Self::Ship | Self::Stats | Self::Carrier)
    }

    /// The type that it takes.
    #[must_use]
    pub const fn message_type(self) -> &'static str {
        match self {
            Self::Pay => "order.pay",
            Self::Track => "order.shipped",
            _ => "order.placed",
        }
    }

    /// The subscription's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ship => "ship",
            Self::Stats => "stats",
            Self::Carrier => "carrier",
            Self::Mail => "mail",
            Self::Notice => "notice",
            Self::Pay => "pay",
            Self::Track => "track",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| format!("no subscription is called {name:?}"))
    }
}

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

/// How a handler fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// A transient failure.
    Transient,
    /// Any error through `?`.
    Unclassified,
    /// A window was named.
    RateLimited,
    /// A panic.
    Panic,
    /// It takes longer than its timeout.
    TimeOut,
    /// A permanent failure.
    Permanent,
    /// A message that cannot be read.
    Schema,
    /// A business refusal.
    Rejected,
    /// Needs a person.
    Operator,
    /// Nobody knows: outside, the work was done and its answer lost.
    Ambiguous,
    /// A constraint of the database.
    Refused,
    /// The process dies.
    Kill,
}

impl Trouble {
    /// Whether it ends the message at once when it happens.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Permanent | Self::Schema | Self::Rejected | Self::Operator | Self::Refused
        )
    }
}

/// What a handler does with one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conduct {
    /// How it fails, if it does.
    pub trouble: Option<Trouble>,
    /// So many attempts fail; after them it succeeds.
    pub times: u32,
    /// How long each attempt takes.
    pub work_ms: u64,
    /// Whether it appends a follow-up.
    pub follows: bool,
}

/// Everything that decides a run. Equal setups give equal runs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What randomness comes from.
    pub seed: u64,
    /// Whether messages may share a transaction.
    pub coalesce: bool,
    /// Messages that producers append.
    pub messages: u32,
    /// Processes that run engines.
    pub processes: usize,
    /// Subscriptions.
    pub roles: Vec<Role>,
    /// Kinds of faults that may happen.
    pub faults: Vec<Fault>,
    /// What is wrong on purpose.
    pub defect: Option<Defect>,
    /// Keys that messages have.
    pub keys: u32,
    /// Lanes of each subscription.
    pub lanes: u16,
    /// Batches at once.
    pub concurrency: u16,
    /// Length of a lease.
    pub lease_ms: u64,
    /// Between renewals.
    pub renew_ms: u64,
    /// Longest pause between looks at a quiet log.
    pub doze_ms: u64,
    /// Longest usual answer time of the store.
    pub latency_ms: u64,
    /// A handler is cancelled after this.
    pub timeout_ms: u64,
    /// Retry budget; its age counts only with [`Fault::Age`].
    pub retry: RetryPolicy,
    /// What a quarantined event does to its key.
    pub on_poison: OnPoison,
    /// Whether keys keep their order in [`Role::Stats`] and [`Role::Track`].
    pub loose_order: bool,
    /// Whether messages carry versions that are checked, and what follows a gap.
    pub versions: Option<Gaps>,
    /// Whether only the latest of what waits together is handled, where keys keep their order.
    pub merge: bool,
    /// After how long messages are shed, in milliseconds.
    pub shed_after_ms: Option<u64>,
    /// Into how many groups tenants fall, where subscriptions tell them apart.
    pub tenants: Option<u8>,
    /// Faults happen until then.
    pub calm_at_ms: u64,
    /// Messages are appended until then.
    pub producing_ms: u64,
    /// Faults per ten thousand store calls.
    pub rate: u32,
}

impl Setup {
    /// The setup of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5e70_0000);
        let lease_ms = rng.u64(1_500..4_000);
        let calm_at_ms = rng.u64(6_000..20_000);
        let mut roles = vec![*rng.choice(Role::ALL).as_ref().unwrap_or(&Role::Ship)];
        let share = rng.u32(1..4);
        for role in Role::ALL {
            if !roles.contains(&role) && rng.u32(..4) < share {
                roles.push(role);
            }
        }
        if roles.contains(&Role::Track) && !roles.contains(&Role::Ship) {
            roles.push(Role::Ship);
        }
        roles.sort_unstable();
        let share = rng.u32(2..9);
        // What came later is drawn apart, so that a seed's other choices are what they were
        // without it.
        let later = [Fault::Age, Fault::Operate, Fault::Replay, Fault::Outage];
        let drawn = Fault::ALL
            .into_iter()
            .filter(|fault| !later.contains(fault));
        let mut faults: Vec<Fault> = drawn.filter(|_| rng.u32(..8) < share).collect();
        let mut age = Rng::with_seed(seed ^ 0xa6e0_0000);
        if age.u32(..3) == 0 {
            faults.push(Fault::Age);
        }
        let mut operate = Rng::with_seed(seed ^ 0x0b5e_7a7e);
        if operate.u32(..8) < 5 {
            faults.push(Fault::Operate);
        }
        let mut replay = Rng::with_seed(seed ^ 0x4e91_a700);
        if replay.u32(..8) < 4 {
            faults.push(Fault::Replay);
        }
        let mut outage = Rng::with_seed(seed ^ 0xa3a1_0000);
        if outage.u32(..8) < 3 {
            faults.push(Fault::Outage);
        }
        let mut tenants = Rng::with_seed(seed ^ 0x7e4a_4175);
        Self {
            seed,
            coalesce: true,
            messages: rng.u32(8..50),
            processes: rng.usize(1..4),
            roles,
            faults,
            defect: None,
            keys: rng.u32(1..10),
            lanes: *rng.choice([1, 3, 8].as_slice()).unwrap_or(&3),
            concurrency: rng.u16(1..6),
            lease_ms,
            renew_ms: lease_ms / rng.u64(4..8),
            doze_ms: rng.u64(40..250),
            latency_ms: rng.u64(1..6),
            timeout_ms: rng.u64(500..3_000),
            retry: RetryPolicy {
                base_ms: rng.u64(20..200),
                cap_ms: rng.u64(200..1_500),
                factor: 2.0,
                attempts_max: rng.u32(2..6),
                age_max_ms: age.u64(500..6_000),
            },
            on_poison: if rng.bool() {
                OnPoison::Skip
            } else {
                OnPoison::HoldKey
            },
            loose_order: rng.u32(..4) == 0,
            versions: None,
            merge: false,
            shed_after_ms: None,
            tenants: (tenants.u32(..8) < 3).then(|| tenants.u8(1..6)),
            calm_at_ms,
            producing_ms: calm_at_ms * rng.u64(50..95) / 100,
            rate: rng.u32(5..80),
        }
    }

    /// The same with versions that are checked. What is dealt with for another reason, or forgotten,
    /// is a version that nobody applied: such faults are left out.
    #[must_use]
    pub fn with_versions(mut self, gaps: Gaps) -> Self {
        self.versions = Some(gaps);
        self.roles.retain(|role| role.checks_versions());
        if self.roles.is_empty() {
            self.roles = vec![Role::Ship, Role::Stats, Role::Carrier];
        }
        let others = [
            Fault::Handler,
            Fault::Kill,
            Fault::Retention,
            Fault::Age,
            Fault::Operate,
        ];
        self.faults.retain(|fault| !others.contains(fault));
        self.loose_order = false;
        // Nor is anything given up: deaths count, and what waits for a case waits for ever.
        self.retry.attempts_max = 1_000;
        self
    }

    /// The same with messages that are given up: merged where they wait together, shed where their
    /// turn comes late. Few keys, and messages that come at once, so that they do. What a campaign
    /// sends out again is another run of what was given up: it is left out.
    #[must_use]
    pub fn with_drops(mut self) -> Self {
        let mut rng = Rng::with_seed(self.seed ^ 0xd409_0000);
        self.merge = rng.u32(..4) > 0;
        self.shed_after_ms = (rng.bool() || !self.merge).then(|| rng.u64(100..4_000));
        self.keys = rng.u32(1..4);
        self.roles.retain(|role| *role != Role::Pay);
        if self.roles.is_empty() {
            self.roles = vec![Role::Ship, Role::Carrier, Role::Mail];
        }
        self.faults.retain(|fault| *fault != Fault::Replay);
        self
    }

    /// Whether a subscription handles only the latest of what waits together. Commands are none of
    /// it.
    #[must_use]
    pub fn merges(&self, role: Role) -> bool {
        self.merge && role != Role::Pay && self.order(role) == Order::Key
    }

    /// After how long a subscription sheds its messages, in milliseconds.
    #[must_use]
    pub fn sheds_after_ms(&self, role: Role) -> Option<u64> {
        self.shed_after_ms.filter(|_| role != Role::Pay)
    }

    /// Whose messages a subscription tells apart.
    #[must_use]
    pub fn tenants_of(&self, role: Role) -> Option<Tenants> {
        let is_told_apart = role != Role::Pay;
        Some(Tenants {
            attribute: "tenant".to_owned(),
            groups: self.tenants.filter(|_| is_told_apart)?,
        })
    }

    /// By what a subscription's messages are divided.
    #[must_use]
    pub fn grouping(&self, role: Role) -> Grouping {
        Grouping {
            tenants: self.tenants_of(role),
            ..Grouping::of_types([role.message_type()])
        }
    }

    /// How the versions of aggregates are judged.
    #[must_use]
    pub fn version_policy(&self) -> Option<VersionPolicy> {
        Some(VersionPolicy {
            gaps: self.versions?,
            // Nothing is given up: every version comes.
            gap_limit_ms: 86_400_000,
        })
    }

    /// The budget of every message.
    #[must_use]
    pub fn policy(&self) -> RetryPolicy {
        let mut policy = self.retry;
        if !self.has(Fault::Age) {
            policy.age_max_ms = 86_400_000;
        }
        policy
    }

    /// Whether a kind of fault may happen.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// When the other side of calls and deliveries is away, in milliseconds of the run.
    #[must_use]
    pub fn outage_ms(&self) -> Option<Range<u64>> {
        if !self.has(Fault::Outage) {
            return None;
        }
        let mut rng = Rng::with_seed(self.seed ^ 0xa3a1_0001);
        let from = self.calm_at_ms * rng.u64(5..50) / 100;
        Some(from..from + self.calm_at_ms * rng.u64(10..45) / 100)
    }

    /// When the other side counts as away: in time that fits a run.
    #[must_use]
    pub fn breaker(&self) -> BreakerPolicy {
        BreakerPolicy {
            pause_ms: 100,
            pause_max_ms: 1_000,
            ..BreakerPolicy::default()
        }
    }

    /// The order that a subscription keeps.
    #[must_use]
    pub fn order(&self, role: Role) -> Order {
        match role {
            Role::Stats | Role::Track if self.loose_order => Order::None,
            _ => Order::Key,
        }
    }

    /// Whether a quarantined message holds its key in a subscription.
    #[must_use]
    pub fn holds_key(&self, role: Role) -> bool {
        self.order(role) == Order::Key && (role == Role::Pay || self.on_poison == OnPoison::HoldKey)
    }

    /// What a handler does with a message.
    #[must_use]
    pub fn conduct(&self, role: Role, number: u64) -> Conduct {
        let mut rng = Rng::with_seed(self.seed.rotate_left(17) ^ number << 8 ^ role as u64);
        let mut conduct = Conduct {
            trouble: None,
            times: 0,
            work_ms: if rng.u32(..4) == 0 { rng.u64(..60) } else { 0 },
            follows: rng.u32(..3) == 0,
        };
        let times = rng.u32(1..self.retry.attempts_max + 2);
        let trouble = match rng.u32(..40) {
            0 | 1 => Trouble::Transient,
            2 => Trouble::Unclassified,
            3 => Trouble::RateLimited,
            4 => Trouble::Panic,
            5 => Trouble::TimeOut,
            6 => Trouble::Permanent,
            7 => Trouble::Schema,
            8 => Trouble::Rejected,
            9 if rng.u32(..4) == 0 => Trouble::Operator,
            10 | 11 => Trouble::Ambiguous,
            12 => Trouble::Refused,
            13 if rng.u32(..3) == 0 => Trouble::Kill,
            _ => return conduct,
        };
        let is_on = match trouble {
            Trouble::Kill => self.has(Fault::Kill),
            _ => self.has(Fault::Handler),
        };
        if is_on {
            conduct.trouble = Some(trouble);
            conduct.times = times;
        }
        conduct
    }
}

/// The arguments that repeat this setup.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::of(self.seed);
        write!(f, "--seed {}", self.seed)?;
        if self.coalesce != usual.coalesce {
            write!(f, " --single")?;
        }
        if self.messages != usual.messages {
            write!(f, " --messages {}", self.messages)?;
        }
        if self.processes != usual.processes {
            write!(f, " --processes {}", self.processes)?;
        }
        if self.roles != usual.roles {
            let names: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
            write!(f, " --subscriptions {}", names.join(","))?;
        }
        if self.faults != usual.faults {
            let names: Vec<_> = self.faults.iter().map(|fault| fault.name()).collect();
            write!(
                f,
                " --faults {}",
                if names.is_empty() {
                    "none".into()
                } else {
                    names.join(",")
                }
            )?;
        }
        match self.versions {
            None => {}
            Some(Gaps::Pass) => write!(f, " --versions pass")?,
            Some(Gaps::Wait) => write!(f, " --versions wait")?,
        }
        if self.merge || self.shed_after_ms.is_some() {
            write!(f, " --drops")?;
        }
        if let Some(defect) = self.defect {
            write!(f, " --defect {}", defect.name())?;
        }
        Ok(())
    }
}
