//! The tables, and the writes that transactions bring to them at commit.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::Written;
use onceward_core::case::fingerprint;
use onceward_core::store::{
    AuditEntry, Case, Correction, Deferral, DeferralKind, Limits, NewCase, Standing, StillBecause,
    StillNow,
};
use onceward_core::{
    Digest, FailureRecord, Identity, LedgerEntry, LedgerKey, Row, Spent, Timestamp,
};

/// What is committed.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) log: BTreeMap<u64, Row>,
    /// Transaction and sequence of every row, to find the late ones.
    pub(super) log_by_xid: BTreeSet<(u64, u64)>,
    pub(super) ledger: BTreeMap<LedgerPlace, Recorded>,
    /// By subscription and sequence.
    pub(super) deferrals: BTreeMap<(String, u64), Deferred>,
    pub(super) cases: BTreeMap<i64, Case>,
    /// By caller and key.
    pub(super) accepted: BTreeMap<(String, String), Claim>,
    pub(super) audit: Vec<AuditEntry>,
    pub(super) pauses: Vec<Pause>,
    /// By subscription; one without is at nought.
    pub(super) revisions: BTreeMap<String, u64>,
    /// Operators' limits, by subscription.
    pub(super) limits: BTreeMap<String, Limits>,
    /// Rows of user code, by table and key.
    pub(super) user: BTreeMap<(String, String), String>,
    last_case: i64,
}

/// A pause of a subscription.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    pub(super) subscription: String,
    pub(super) from: Timestamp,
    pub(super) to: Option<Timestamp>,
    /// Ages go on meanwhile; only with a defect.
    pub(super) counts: bool,
    /// Why it is there without an operator's word, and when that ends: it ends by itself.
    pub(super) still: Option<(StillBecause, Option<Timestamp>)>,
    /// It does not end one that would have ended by itself; only with a defect.
    pub(super) leaves_still: bool,
    /// It does not end an operator's that ended later; only with a defect.
    pub(super) leaves_paused: bool,
}

impl Pause {
    /// An operator's pause ends it, where it would have ended by itself, or ended later by a clock that
    /// was set back.
    fn cut(&mut self, by: &Self) {
        let is_still = self.still.is_some();
        if !(is_still && by.leaves_still || !is_still && by.leaves_paused) {
            self.to = self.to.map(|to| to.min(by.from.max(self.from)));
        }
    }

    /// How much of it lies between two moments, in milliseconds.
    fn overlap_ms(&self, since: Timestamp, until: Timestamp) -> i64 {
        let to = self.to.unwrap_or(until).min(until);
        to.millis_since(self.from.max(since)).max(0)
    }
}

/// Which ledger table, and the unique key in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LedgerPlace {
    pub(super) is_operation: bool,
    pub(super) subscription: String,
    pub(super) key: LedgerKey,
}

impl LedgerPlace {
    /// Operations are unique over all time, messages together with their time.
    pub(super) fn of(subscription: &str, identity: Identity, key: &LedgerKey) -> Self {
        let is_operation = identity == Identity::Operation;
        let mut key = key.clone();
        if is_operation {
            key.recorded_at = Timestamp::default();
        }
        Self {
            is_operation,
            subscription: subscription.to_owned(),
            key,
        }
    }
}

/// A ledger row with its time.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) entry: LedgerEntry,
    pub(super) at: Timestamp,
}

/// A deferral as kept.
#[derive(Clone, Debug)]
pub(super) struct Deferred {
    pub(super) seq: u64,
    pub(super) slot: u16,
    pub(super) key: String,
    pub(super) kind: DeferralKind,
    pub(super) due_at: Option<Timestamp>,
    pub(super) spent: Spent,
    pub(super) failure: Option<FailureRecord>,
    pub(super) first_at: Timestamp,
    /// Place in the order of writing.
    pub(super) written: u64,
}

impl Deferred {
    pub(super) fn of(deferral: &Deferral, now: Timestamp) -> Self {
        Self {
            seq: deferral.seq,
            slot: deferral.slot,
            key: deferral.key.clone(),
            kind: deferral.kind,
            due_at: deferral
                .due_in_ms
                .map(|ms| now.plus_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
            spent: deferral.spent,
            failure: deferral.failure.clone(),
            first_at: now,
            written: 0,
        }
    }

    /// Milliseconds from now until it is due.
    pub(super) fn due_in_ms(&self, now: Timestamp) -> Option<u64> {
        let due_at = self.due_at?;
        Some(u64::try_from(due_at.millis_since(now)).unwrap_or(0))
    }

    /// The same for a key of which it is the first: only a person's turn has no time.
    pub(super) fn key_due_in_ms(&self, now: Timestamp) -> Option<u64> {
        match self.kind {
            DeferralKind::Operator => self.due_in_ms(now),
            DeferralKind::Gap => Some(0),
            _ => Some(self.due_in_ms(now).unwrap_or(0)),
        }
    }
}

/// What a deferral that is there keeps when it is written again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeps {
    pub(super) first_time: bool,
    /// All of it, when the new one is of kind held.
    pub(super) from_held: bool,
}

/// An accepted request.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) digest: Digest,
    pub(super) answer: Option<Box<str>>,
    pub(super) expires_at: Timestamp,
}

/// One write of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Append(Row),
    Record(LedgerPlace, Recorded),
    Defer {
        subscription: String,
        deferred: Deferred,
        keeps: Keeps,
    },
    Clear {
        subscription: String,
        seq: u64,
    },
    /// One of kind running is over, or held from a moment on.
    EndRunning(String, u64, Option<Timestamp>),
    OpenCase {
        subscription: String,
        case: NewCase,
        at: Timestamp,
        /// The copy of the message that is there stays; but with a defect.
        keeps_original: bool,
    },
    /// What an operator made of a case.
    Stand {
        case_id: i64,
        standing: Standing,
    },
    /// A message that takes the place of a case's own.
    Correct {
        case_id: i64,
        correction: Correction,
    },
    /// A case goes.
    Purge(i64),
    /// A deferral that takes the place of whatever is there.
    Replace {
        subscription: String,
        deferred: Deferred,
    },
    /// The kind of a deferral becomes retry, due at a moment.
    Resume {
        subscription: String,
        seq: u64,
        at: Timestamp,
    },
    /// A pause begins, or ends where one is there.
    Pause(Pause),
    /// Operators' limits.
    Limit(String, Limits),
    Revise(String),
    Audit(AuditEntry),
    Accept((String, String), Claim),
    Put((String, String), String),
    /// A put of a key that was not there.
    Insert((String, String), String),
    Delete((String, String)),
}

/// Which row a write concerns.
#[derive(Debug)]
pub(super) enum Place {
    Log(u64),
    Ledger(LedgerPlace),
    Deferral(String, u64),
    Case(String, u64),
    Standing(i64),
    Pause(String),
    User((String, String)),
    Other,
}

/// A key that only one open transaction may insert.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unique {
    Ledger(LedgerPlace),
    Accepted((String, String)),
    User((String, String)),
}

impl Write {
    /// Which row it concerns.
    pub(super) fn place(&self) -> Place {
        match self {
            Self::Append(row) => Place::Log(row.seq),
            Self::Record(place, _) => Place::Ledger(place.clone()),
            Self::Defer {
                subscription,
                deferred,
                ..
            } => Place::Deferral(subscription.clone(), deferred.seq),
            Self::Clear { subscription, seq } | Self::EndRunning(subscription, seq, _) => {
                Place::Deferral(subscription.clone(), *seq)
            }
            Self::OpenCase {
                subscription, case, ..
            } => Place::Case(subscription.clone(), case.row.seq),
            Self::Stand { case_id, .. } => Place::Standing(*case_id),
            Self::Replace {
                subscription,
                deferred,
            } => Place::Deferral(subscription.clone(), deferred.seq),
            Self::Resume {
                subscription, seq, ..
            } => Place::Deferral(subscription.clone(), *seq),
            Self::Pause(pause) => Place::Pause(pause.subscription.clone()),
            Self::Put(place, _) | Self::Insert(place, _) => Place::User(place.clone()),
            Self::Correct { .. }
            | Self::Purge(_)
            | Self::Limit(..)
            | Self::Revise(_)
            | Self::Audit(_)
            | Self::Accept(..)
            | Self::Delete(_) => Place::Other,
        }
    }

    /// The key that this write inserts.
    pub(super) fn unique(&self) -> Option<Unique> {
        match self {
            Self::Record(place, _) => Some(Unique::Ledger(place.clone())),
            Self::Accept(place, _) => Some(Unique::Accepted(place.clone())),
            Self::Insert(place, _) => Some(Unique::User(place.clone())),
            _ => None,
        }
    }
}

impl Tables {
    /// A row as it is after a write.
    pub(super) fn written(&self, place: Place) -> Option<Written> {
        Some(match place {
            Place::Log(seq) => Written::Appended(self.log.get(&seq)?.clone()),
            Place::Ledger(place) => Written::Recorded {
                entry: self.ledger.get(&place)?.entry.clone(),
                is_operation: place.is_operation,
                subscription: place.subscription,
            },
            Place::Deferral(subscription, seq) => {
                let place = (subscription, seq);
                let deferred = self.deferrals.get(&place);
                let subscription = place.0;
                match deferred {
                    Some(deferred) => Written::Deferred {
                        subscription,
                        seq,
                        kind: deferred.kind,
                        spent: deferred.spent,
                        failure: deferred
                            .failure
                            .as_ref()
                            .map(|f| format!("{} {}", f.class, f.code)),
                        first_at: deferred.first_at,
                        due_at: deferred.due_at,
                    },
                    None => Written::Cleared { subscription, seq },
                }
            }
            Place::Case(subscription, seq) => {
                let mut cases = self.cases.values();
                let case = cases.find(|c| c.subscription == subscription && c.row.seq == seq)?;
                Written::Quarantined {
                    subscription,
                    seq,
                    reason: case.reason.clone(),
                    spent: case.spent,
                    holds_key: case.holds_key,
                    first_deferred_at: case.first_deferred_at,
                }
            }
            Place::Standing(case_id) => {
                let case = self.cases.get(&case_id)?;
                Written::Acted {
                    subscription: case.subscription.clone(),
                    seq: case.row.seq,
                    state: case.standing.state,
                }
            }
            Place::Pause(subscription) => Written::Paused {
                is_paused: self.paused_since(&subscription).is_some(),
                subscription,
            },
            Place::User((table, key)) => {
                let place = (table, key);
                let value = self.user.get(&place)?.clone();
                let (table, key) = place;
                Written::Put { table, key, value }
            }
            Place::Other => return None,
        })
    }

    /// Whether a write changes nothing: a deferral of kind held where there is one, or one of kind
    /// running that knows of no failure where one is known.
    pub(super) fn has_already(&self, write: &Write) -> bool {
        let Write::Defer {
            subscription,
            deferred,
            keeps,
        } = write
        else {
            return false;
        };
        let place = (subscription.clone(), deferred.seq);
        let Some(before) = self.deferrals.get(&place) else {
            return false;
        };
        let knows_less = deferred.failure.is_none() && before.failure.is_some();
        deferred.kind == DeferralKind::Held && keeps.from_held
            || deferred.kind == DeferralKind::Running && knows_less
    }

    pub(super) fn apply(&mut self, write: Write) {
        if self.has_already(&write) {
            return;
        }
        match write {
            Write::Append(row) => {
                self.log_by_xid.insert((row.xid, row.seq));
                self.log.insert(row.seq, row);
            }
            Write::Record(place, recorded) => {
                self.ledger.insert(place, recorded);
            }
            Write::Defer {
                subscription,
                deferred,
                keeps,
            } => self.defer(subscription, deferred, keeps),
            Write::Clear { subscription, seq } => {
                self.deferrals.remove(&(subscription, seq));
            }
            Write::EndRunning(subscription, seq, held_at) => {
                let place = (subscription, seq);
                let found = self.deferrals.get_mut(&place);
                if let Some(deferred) = found.filter(|d| d.kind == DeferralKind::Running) {
                    deferred.kind = DeferralKind::Held;
                    deferred.due_at = held_at;
                    if held_at.is_none() {
                        self.deferrals.remove(&place);
                    }
                }
            }
            Write::OpenCase {
                subscription,
                case,
                at,
                keeps_original,
            } => self.open_case(subscription, case, at, keeps_original),
            Write::Stand { case_id, standing } => {
                if let Some(case) = self.cases.get_mut(&case_id) {
                    case.standing = standing;
                }
            }
            Write::Correct {
                case_id,
                correction,
            } => {
                if let Some(case) = self.cases.get_mut(&case_id) {
                    case.correction = Some(correction);
                }
            }
            Write::Purge(case_id) => {
                self.cases.remove(&case_id);
            }
            Write::Replace {
                subscription,
                deferred,
            } => {
                self.deferrals
                    .insert((subscription, deferred.seq), deferred);
            }
            Write::Resume {
                subscription,
                seq,
                at,
            } => {
                if let Some(deferred) = self.deferrals.get_mut(&(subscription, seq)) {
                    deferred.kind = DeferralKind::Retry;
                    deferred.due_at = Some(at);
                }
            }
            Write::Pause(pause) => self.pause(pause),
            Write::Limit(subscription, limits) => {
                self.limits.insert(subscription, limits);
            }
            Write::Revise(subscription) => *self.revisions.entry(subscription).or_default() += 1,
            Write::Audit(entry) => {
                let audit_id = self.audit.len() as i64 + 1;
                self.audit.push(AuditEntry { audit_id, ..entry });
            }
            Write::Accept(place, claim) => {
                self.accepted.insert(place, claim);
            }
            Write::Put(place, value) | Write::Insert(place, value) => {
                self.user.insert(place, value);
            }
            Write::Delete(place) => {
                self.user.remove(&place);
            }
        }
    }

    fn defer(&mut self, subscription: String, mut deferred: Deferred, keeps: Keeps) {
        deferred.written = self
            .deferrals
            .values()
            .map(|d| d.written)
            .max()
            .unwrap_or(0)
            + 1;
        let place = (subscription, deferred.seq);
        if let Some(before) = self.deferrals.get(&place)
            && keeps.first_time
        {
            deferred.first_at = before.first_at;
        }
        self.deferrals.insert(place, deferred);
    }

    fn open_case(
        &mut self,
        subscription: String,
        new: NewCase,
        at: Timestamp,
        keeps_original: bool,
    ) {
        let place = (subscription, new.row.seq);
        let first_deferred_at = self.deferrals.get(&place).map(|deferred| deferred.first_at);
        let (subscription, seq) = place;
        let same = |case: &&Case| case.subscription == subscription && case.row.seq == seq;
        let before = self.cases.values().find(same);
        let first_deferred_at =
            first_deferred_at.or_else(|| before.and_then(|case| case.first_deferred_at));
        let standing = before.map(|case| case.standing.clone().opened_again());
        let fingerprint = fingerprint(&subscription, &new.row.envelope.message_type, &new.failure);
        // The first copy is the original: what fails now may be a correction of it.
        let original = before.map(|case| (case.row.clone(), case.correction.clone()));
        let original = original.filter(|_| keeps_original);
        let (row, correction) = original.unwrap_or((new.row, None));
        let before = before.map(|case| (case.case_id, case.first_opened_at));
        let (case_id, first_opened_at) = before.unwrap_or_else(|| {
            self.last_case += 1;
            (self.last_case, at)
        });
        let case = Case {
            key: new.key,
            fingerprint,
            first_opened_at,
            case_id,
            subscription,
            row,
            correction,
            reason: new.reason,
            failure: new.failure,
            spent: new.spent,
            standing: standing.unwrap_or_default(),
            holds_key: new.holds_key,
            opened_at: at,
            first_deferred_at,
        };
        self.cases.insert(case_id, case);
    }

    fn pause(&mut self, pause: Pause) {
        let is_its = |p: &&mut Pause| p.subscription == pause.subscription && p.to.is_none();
        match self.pauses.iter_mut().find(is_its) {
            Some(open) => open.to = Some(pause.from),
            None => {
                let is_its = |p: &&mut Pause| p.subscription == pause.subscription;
                for other in self.pauses.iter_mut().filter(is_its) {
                    other.cut(&pause);
                }
                self.pauses.push(pause);
            }
        }
    }

    /// Begins or prolongs a pause that ends by itself: the last one, where it is of this kind and
    /// reaches into the time in question; none where another lasts. Returns the pause.
    pub(super) fn stand_still(&mut self, said: Pause, now: Timestamp) -> Option<&Pause> {
        let is_its = |p: &Pause| p.subscription == said.subscription;
        let Some(last) = self.pauses.iter().rposition(is_its) else {
            self.pauses.push(said);
            return self.pauses.last();
        };
        let found = &mut self.pauses[last];
        if found.still.is_some() && found.to >= Some(said.from) {
            found.to = found.to.max(said.to);
            found.still = said.still;
            return self.pauses.get(last);
        }
        let ended = found.to.filter(|to| *to <= now)?;
        let from = said.from.max(ended);
        self.pauses.push(Pause { from, ..said });
        self.pauses.last()
    }

    /// Since when a subscription is paused, if it is.
    pub(super) fn paused_since(&self, subscription: &str) -> Option<Timestamp> {
        let mut pauses = self.pauses.iter();
        let open = pauses.find(|p| p.subscription == subscription && p.to.is_none());
        open.map(|pause| pause.from)
    }

    /// Why work on a subscription stands still without an operator's word, if it does.
    pub(super) fn still(&self, subscription: &str, now: Timestamp) -> Option<StillNow> {
        let mut pauses = self.pauses.iter().rev();
        let its = pauses.find(|p| {
            p.subscription == subscription && p.still.is_some() && p.to.is_some_and(|to| to > now)
        })?;
        let (because, until) = its.still?;
        Some(StillNow {
            because,
            since: its.from,
            until,
        })
    }

    /// The budget used of a deferred message, with the age as of now: pauses do not count.
    pub(super) fn spent(&self, subscription: &str, deferred: &Deferred, now: Timestamp) -> Spent {
        let pauses = self.pauses.iter();
        let paused_ms: i64 = pauses
            .filter(|pause| pause.subscription == subscription && !pause.counts)
            .map(|pause| pause.overlap_ms(deferred.first_at, now))
            .sum();
        let age_ms = now.millis_since(deferred.first_at) - paused_ms;
        Spent {
            age_ms: u64::try_from(age_ms).unwrap_or(0),
            ..deferred.spent
        }
    }
}
