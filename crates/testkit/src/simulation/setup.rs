//! What one seed stands for: the fleet, the messages, the handlers' conduct, the faults.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use fastrand::Rng;
use onceward::{BreakerPolicy, Gaps, OnPoison, Order, RetryPolicy, VersionPolicy};
use onceward_core::group::Tenants;

use super::defect::Defect;
use super::fault::Fault;
use super::variants::Variant;

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
    pub(super) const fn checks_versions(self) -> bool {
        matches!(self, Self::Ship | Self::Stats | Self::Carrier)
    }

    /// The types that it takes, of the lowest value first.
    #[must_use]
    pub const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Pay => &["order.pay"],
            Self::Track => &["order.shipped"],
            _ => &["order.idled", "order.placed", "order.rushed"],
        }
    }

    /// Whether it declares classes, where there are some. Who only hands messages on knows nothing of
    /// their aggregates, by which keys keep to one class.
    #[must_use]
    pub const fn has_classes(self) -> bool {
        self.types().len() > 1 && !matches!(self, Self::Mail)
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

/// Everything that decides a run. Equal setups give equal runs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What randomness comes from.
    pub seed: u64,
    /// What it is for.
    pub variant: Variant,
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
    /// How long a gap is waited for, in milliseconds.
    pub gap_limit_ms: u64,
    /// Whether only the latest of what waits together is handled, where keys keep their order.
    pub merge: bool,
    /// After how long messages are shed, in milliseconds.
    pub shed_after_ms: Option<u64>,
    /// Into how many groups tenants fall, where subscriptions tell them apart.
    pub tenants: Option<u8>,
    /// Whether messages are of three classes.
    pub classes: bool,
    /// Whether there is room for a few messages only in each process, by their size.
    pub is_tight: bool,
    /// Whether handlers append what follows before they fail, or after they did not.
    pub is_early: bool,
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
        let mut classes = Rng::with_seed(seed ^ 0xc1a5_5e50);
        let mut tight = Rng::with_seed(seed ^ 0x7161_4700);
        let mut early = Rng::with_seed(seed ^ 0xea41_1e00);
        Self {
            seed,
            variant: Variant::Plain,
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
            // Nothing is given up: every version comes.
            gap_limit_ms: 86_400_000,
            merge: false,
            shed_after_ms: None,
            tenants: (tenants.u32(..8) < 3).then(|| tenants.u8(1..6)),
            classes: classes.u32(..8) < 3,
            is_tight: tight.u32(..8) < 2,
            is_early: early.bool(),
            calm_at_ms,
            producing_ms: calm_at_ms * rng.u64(50..95) / 100,
            rate: rng.u32(5..80),
        }
    }

    /// The same without something that is drawn with a seed: `classes`, `tenants`, `tight`,
    /// `early`.
    ///
    /// # Errors
    /// When nothing is called so.
    pub fn without(mut self, word: &str) -> Result<Self, String> {
        match word {
            "classes" => self.classes = false,
            "tenants" => self.tenants = None,
            "tight" => self.is_tight = false,
            "early" => self.is_early = false,
            _ => {
                return Err(format!(
                    "classes, tenants, tight or early, and not {word:?}"
                ));
            }
        }
        Ok(self)
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

    /// The types that a subscription takes. Where there are no classes there is one.
    #[must_use]
    pub fn types_of(&self, role: Role) -> Vec<String> {
        match role.types() {
            [_, placed, _] if !self.classes => vec![(*placed).to_owned()],
            types => types.iter().map(|of| (*of).to_owned()).collect(),
        }
    }

    /// How the versions of aggregates are judged.
    #[must_use]
    pub fn version_policy(&self) -> Option<VersionPolicy> {
        Some(VersionPolicy {
            gaps: self.versions?,
            gap_limit_ms: self.gap_limit_ms,
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
}

/// The arguments that repeat this setup.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::of(self.seed).varied(self.variant);
        write!(f, "--seed {}", self.seed)?;
        if self.variant != Variant::Plain {
            write!(f, " --variant {}", self.variant.name())?;
        }
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
            let names = match names.is_empty() {
                true => "none".to_owned(),
                false => names.join(","),
            };
            write!(f, " --faults {names}")?;
        }
        let without: Vec<&str> = [
            (usual.classes && !self.classes, "classes"),
            (usual.tenants.is_some() && self.tenants.is_none(), "tenants"),
            (usual.is_tight && !self.is_tight, "tight"),
            (usual.is_early && !self.is_early, "early"),
        ]
        .into_iter()
        .filter_map(|(is_without, word)| is_without.then_some(word))
        .collect();
        if !without.is_empty() {
            write!(f, " --without {}", without.join(","))?;
        }
        if let Some(defect) = self.defect {
            write!(f, " --defect {}", defect.name())?;
        }
        Ok(())
    }
}
