//! Setups for what a plain one leaves out, or has too seldom.

use std::str::FromStr;

use fastrand::Rng;
use onceward::Gaps;

use super::fault::Fault;
use super::setup::{Role, Setup};

/// What a setup is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Nothing in particular.
    Plain,
    /// Messages carry versions that are checked, and gaps pass.
    VersionsPass,
    /// The same, and gaps wait for as long as it takes.
    VersionsWait,
    /// The same, and gaps are given up in the end.
    VersionsEnd,
    /// Messages are merged, or shed when their turn comes late.
    Drops,
    /// Everything is sent at once, to one process that runs few messages at a time.
    Rush,
    /// Many answers are lost, and many messages fail beside others of their key.
    LostCommits,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Plain,
        Self::VersionsPass,
        Self::VersionsWait,
        Self::VersionsEnd,
        Self::Drops,
        Self::Rush,
        Self::LostCommits,
    ];

    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::VersionsPass => "versions-pass",
            Self::VersionsWait => "versions-wait",
            Self::VersionsEnd => "versions-end",
            Self::Drops => "drops",
            Self::Rush => "rush",
            Self::LostCommits => "lost-commits",
        }
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|of| of.name() == name);
        found.ok_or_else(|| format!("no variant is called {name:?}"))
    }
}

impl Setup {
    /// The same setup as a variant of it.
    #[must_use]
    pub fn varied(mut self, variant: Variant) -> Self {
        self.variant = variant;
        match variant {
            Variant::Plain => self,
            Variant::VersionsPass => self.with_versions(Gaps::Pass),
            Variant::VersionsWait => self.with_versions(Gaps::Wait),
            Variant::VersionsEnd => self.with_gaps_that_end(),
            Variant::Drops => self.with_drops(),
            Variant::Rush => self.with_rush(),
            Variant::LostCommits => self.with_lost_commits(),
        }
    }

    fn keep_roles_of_versions(&mut self) {
        self.roles.retain(|role| role.checks_versions());
        if self.roles.is_empty() {
            self.roles = vec![Role::Ship, Role::Stats, Role::Carrier];
        }
        self.loose_order = false;
    }

    /// The same with versions that are checked. What is dealt with for another reason, or forgotten,
    /// is a version that nobody applied: such faults are left out.
    fn with_versions(mut self, gaps: Gaps) -> Self {
        self.versions = Some(gaps);
        self.keep_roles_of_versions();
        let others = [
            Fault::Handler,
            Fault::Kill,
            Fault::Retention,
            Fault::Age,
            Fault::Operate,
        ];
        self.faults.retain(|fault| !others.contains(fault));
        // Nor is anything given up: deaths count, and what waits for a case waits for ever.
        self.retry.attempts_max = 1_000;
        self
    }

    /// The same with gaps that wait for a time only, so that whatever fails leaves the others an end.
    /// Whoever releases a message lets it pass its gap, and what upkeep has removed is a version that
    /// nobody knows: these are left out.
    fn with_gaps_that_end(mut self) -> Self {
        let mut rng = Rng::with_seed(self.seed ^ 0x6a95_0000);
        self.versions = Some(Gaps::Wait);
        self.gap_limit_ms = rng.u64(200..2_500);
        self.keep_roles_of_versions();
        let others = [Fault::Retention, Fault::Operate, Fault::Replay];
        self.faults.retain(|fault| !others.contains(fault));
        if !self.has(Fault::Handler) {
            self.faults.push(Fault::Handler);
        }
        self
    }

    /// The same with messages that are given up: merged where they wait together, shed where their
    /// turn comes late. Few keys, and messages that come at once, so that they do. What a campaign
    /// sends out again is another run of what was given up: it is left out.
    fn with_drops(mut self) -> Self {
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

    /// The same with everything sent at once to one process, one message to a transaction: there is
    /// more to do than can be done, and who comes first is to be seen. Whatever else decides that is
    /// left out.
    fn with_rush(mut self) -> Self {
        let mut rng = Rng::with_seed(self.seed ^ 0x9054_0000);
        let roles = [Role::Ship, Role::Stats];
        self.roles = vec![roles[rng.usize(..roles.len())]];
        self.faults.retain(|fault| *fault == Fault::Crash);
        self.messages = rng.u32(120..180);
        self.producing_ms = 200;
        self.keys = rng.u32(12..24);
        self.processes = 1;
        self.concurrency = rng.u16(1..3);
        self.coalesce = false;
        self.loose_order = false;
        self.is_tight = false;
        self.classes = self.tenants.is_none() || rng.bool();
        self
    }

    /// The same where commits happen and nobody hears of it, of transactions in which messages fail
    /// beside others of their key.
    fn with_lost_commits(mut self) -> Self {
        let mut rng = Rng::with_seed(self.seed ^ 0x1057_0000);
        self.roles = vec![Role::Ship];
        self.faults = vec![Fault::Lost, Fault::Handler];
        self.rate = 1_500;
        self.processes = 1;
        self.keys = rng.u32(1..5);
        self.messages = rng.u32(30..60);
        self.producing_ms = self.calm_at_ms / 4;
        self
    }

    /// Whether who is started first is to be seen in the order of starts.
    pub(super) fn has_rush(&self) -> bool {
        self.variant == Variant::Rush && !self.coalesce
    }
}
