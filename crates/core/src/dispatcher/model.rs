//! A model of the store for tests of the dispatcher, and a process around one: batches that fail in
//! every way, answers in any order.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::coalesce::BatchSeen;
use crate::contract::{Semantics, SubscriptionContract};
use crate::envelope::{Envelope, Payload};
use crate::lane::lane_of;
use crate::position::Snapshot;
use crate::store::DeferredRow;
use crate::timestamp::Timestamp;
use crate::version::{Course, VersionPolicy, Waited, is_earlier, is_same};

pub(super) const LANES: u16 = 4;
pub(super) const ROWS_PER_READ: usize = 7;

/// A small generator of chance (SplitMix64, Steele and others, 2014).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) deferral: Deferral,
    pub(super) due_at_ms: Option<u64>,
    pub(super) first_at_ms: u64,
}

/// What a real database would hold.
pub(super) struct Model {
    pub(super) rows: Vec<Arc<Row>>,
    pub(super) ledger: BTreeSet<u64>,
    /// Sequences in the order in which their effects committed, by key.
    pub(super) effects: BTreeMap<String, Vec<u64>>,
    pub(super) deferred: BTreeMap<u64, Stored>,
    pub(super) cases: BTreeSet<u64>,
    /// Whether cases hold their key.
    pub(super) holds_key: bool,
    /// Messages that had a case and were released from it.
    pub(super) replayed: BTreeSet<u64>,
    /// Of the cases those that somebody gave up.
    pub(super) given_up: BTreeSet<u64>,
    /// Released while later messages of their key went on.
    pub(super) late: BTreeSet<u64>,
    /// One failure of so many needs a person; 0 for none.
    pub(super) operator_every: u64,
    /// One message of so many becomes a case; 0 for none.
    pub(super) case_every: u64,
    /// How versions are judged, where they are.
    pub(super) versions: Option<VersionPolicy>,
    /// Refused because their version was behind.
    pub(super) refused: BTreeSet<u64>,
    /// By what its messages are divided.
    pub(super) grouping: Grouping,
    /// By what they are once the next process has started.
    pub(super) regroupings: Vec<Grouping>,
    /// Rows that a process may have in memory, where they are fewer than usual.
    pub(super) window: Option<usize>,
    pub(super) stands: BTreeMap<u16, Stand>,
    pub(super) epochs: BTreeMap<u16, u64>,
    pub(super) runs: u64,
    /// Refused because their key is one of another group.
    pub(super) conflicts: BTreeSet<u64>,
}

impl Model {
    pub(super) fn new(keys: &[u8]) -> Self {
        let rows = keys.iter().map(|key| (format!("k{key}"), "t", ""));
        Self::of(rows, Grouping::of_types(["t"]))
    }

    /// Rows by key, type and tenant.
    pub(super) fn of<'r>(
        rows: impl IntoIterator<Item = (String, &'r str, &'r str)>,
        grouping: Grouping,
    ) -> Self {
        let rows = rows.into_iter().enumerate().map(|(i, (name, of, tenant))| {
            let seq = i as u64 + 1;
            let payload = Payload::Json("1".into());
            let mut envelope = Envelope::new(seq.to_string(), "thing", &name, of, payload);
            if !tenant.is_empty() {
                let attribute = ("tenant".to_owned(), tenant.to_owned());
                envelope.attributes.extend([attribute]);
            }
            Arc::new(Row {
                xid: seq,
                seq,
                slot: crate::lane::slot_of(&name),
                recorded_at: Timestamp::from_micros(0),
                envelope,
                corrects: None,
            })
        });
        Self {
            rows: rows.collect(),
            ledger: BTreeSet::new(),
            effects: BTreeMap::new(),
            deferred: BTreeMap::new(),
            cases: BTreeSet::new(),
            holds_key: false,
            replayed: BTreeSet::new(),
            given_up: BTreeSet::new(),
            late: BTreeSet::new(),
            operator_every: 0,
            case_every: 40,
            versions: None,
            refused: BTreeSet::new(),
            grouping,
            regroupings: Vec::new(),
            window: None,
            stands: (0..LANES)
                .map(|lane| (lane, Position::origin(1).into()))
                .collect(),
            epochs: (0..LANES).map(|lane| (lane, 0)).collect(),
            runs: 0,
            conflicts: BTreeSet::new(),
        }
    }

    pub(super) fn row(&self, seq: u64) -> &Arc<Row> {
        &self.rows[seq as usize - 1]
    }

    pub(super) fn is_settled(&self, seq: u64) -> bool {
        self.ledger.contains(&seq) || self.cases.contains(&seq) || self.deferred.contains_key(&seq)
    }

    /// The rule that everything rests on.
    pub(super) fn check_stand(&self, lane: u16, stand: &Stand) {
        let groups = Groups::new(&self.grouping);
        for row in self.rows.iter().filter(|r| lane_of(r.slot, LANES) == lane) {
            let group = groups.of(row).map(|group| groups.name(group));
            let own = group.map_or(&stand.position, |group| stand.of(group));
            for position in [own, &stand.position] {
                assert!(
                    self.is_settled(row.seq) || !position.is_past(row.xid, row.seq),
                    "lane {lane} passed row {}, which is stored nowhere: {stand:?}",
                    row.seq
                );
            }
        }
    }

    pub(super) fn read(&self, from: &Position) -> (Vec<Arc<Row>>, Position) {
        let all = self.rows.len() as u64;
        let due = self.rows.iter().filter(|r| !from.is_past(r.xid, r.seq));
        let rows: Vec<Arc<Row>> = due.take(ROWS_PER_READ).cloned().collect();
        let until = Snapshot::serial(all);
        let next = match rows.last() {
            Some(last) if last.seq < all => from.reach(&until, last.seq),
            _ => Position::at(1, until),
        };
        (rows, next)
    }

    pub(super) fn defer(&mut self, deferral: &Deferral, now_ms: u64) {
        let is_new_mark =
            deferral.kind == DeferralKind::Running && deferral.spent == Spent::default();
        let is_weak = deferral.kind == DeferralKind::Held || is_new_mark;
        if is_weak && self.deferred.contains_key(&deferral.seq) {
            return;
        }
        let due_at_ms = deferral.due_in_ms.map(|ms| now_ms + ms);
        let earlier = self.deferred.get(&deferral.seq);
        let stored = Stored {
            deferral: deferral.clone(),
            due_at_ms,
            first_at_ms: earlier.map_or(now_ms, |stored| stored.first_at_ms),
        };
        self.deferred.insert(deferral.seq, stored);
    }

    pub(super) fn load(
        &self,
        key: &str,
        after_seq: u64,
        versions_to: Option<(&Row, i64)>,
        rows_max: u32,
        now_ms: u64,
    ) -> Vec<DeferredRow> {
        let later = self.deferred.range(after_seq + 1..);
        let of_key = later.filter(|(seq, s)| {
            let row = self.row(**seq);
            let is_wanted = versions_to.is_none_or(|(of, to)| {
                is_same(&row.envelope, &of.envelope) && row.envelope.aggregate_version <= Some(to)
            });
            s.deferral.key == key && is_wanted
        });
        of_key
            .take(rows_max as usize)
            .map(|(seq, stored)| DeferredRow {
                row: (**self.row(*seq)).clone(),
                kind: stored.deferral.kind,
                due_in_ms: stored.due_at_ms.map(|at| at.saturating_sub(now_ms)),
                spent: Spent {
                    age_ms: now_ms.saturating_sub(stored.first_at_ms),
                    ..stored.deferral.spent
                },
                failure: stored.deferral.failure.clone(),
                generation: 0,
            })
            .collect()
    }

    pub(super) fn held_keys(&self, lane: u16, now_ms: u64) -> Vec<HeldKey> {
        let mut keys: BTreeMap<String, HeldKey> = BTreeMap::new();
        for stored in self.deferred.values() {
            let deferral = &stored.deferral;
            if lane_of(deferral.slot, LANES) != lane {
                continue;
            }
            let entry = keys.entry(deferral.key.clone()).or_insert_with(|| HeldKey {
                key: deferral.key.clone(),
                slot: deferral.slot,
                count: 0,
                due_in_ms: match deferral.kind {
                    DeferralKind::Held | DeferralKind::Running | DeferralKind::Gap => Some(0),
                    _ => stored.due_at_ms.map(|at| at.saturating_sub(now_ms)),
                },
            });
            entry.count += 1;
        }
        keys.into_values().collect()
    }

    pub(super) fn take(&mut self, lane: u16, is_suspect: bool, now_ms: u64) -> Event {
        let epoch = self.epochs.entry(lane).or_default();
        *epoch += 1;
        let taken = TakenLane {
            lane,
            epoch: *epoch,
            stand: self.stands[&lane].clone(),
            is_suspect,
            not_before: None,
        };
        Event::LaneTaken {
            taken,
            held: self.held_keys(lane, now_ms),
            cases: self.held_cases(lane),
        }
    }

    pub(super) fn held_cases(&self, lane: u16) -> Vec<HeldCase> {
        let live = self.cases.difference(&self.given_up);
        let rows = live.map(|seq| self.row(*seq));
        let holding = rows.filter(|row| self.holds_key && lane_of(row.slot, LANES) == lane);
        holding
            .map(|row| HeldCase {
                key: row.envelope.key().to_owned(),
                slot: row.slot,
            })
            .collect()
    }

    /// Runs a batch as an executor would; each message succeeds, fails or is given back by chance.
    pub(super) fn run(&mut self, batch: &Batch, chance: &mut Chance, now_ms: u64) -> Event {
        let mut seen = BatchSeen {
            handlers_us: 1_000,
            ..BatchSeen::default()
        };
        let mut blocked = Blocked::default();
        let mut fates = Vec::new();
        let is_trouble = chance.one_in(12);
        for work in &batch.works {
            let key = work.row.envelope.key();
            let seq = work.row.seq;
            if is_trouble || blocked.holds(key, &work.row) {
                fates.push((work.token, Fate::Returned));
                continue;
            }
            seen.messages += 1;
            if self.ledger.contains(&seq) {
                seen.duplicates += 1;
                if work.is_stored {
                    self.deferred.remove(&seq);
                }
                fates.push((work.token, Fate::Finished));
                continue;
            }
            if let Some(fate) = self.judge(work, now_ms) {
                blocked.ended(key, &work.row, &fate);
                fates.push((work.token, fate));
                continue;
            }
            if work.is_conflict {
                self.deferred.remove(&seq);
                self.cases.insert(seq);
                self.conflicts.insert(seq);
                let holds_key = false;
                fates.push((work.token, Fate::Quarantined { holds_key }));
                continue;
            }
            self.runs += 1;
            let fate = self.attempt(work, chance, now_ms);
            if fate != Fate::Finished {
                seen.failures += 1;
            }
            blocked.ended(key, &work.row, &fate);
            fates.push((work.token, fate));
        }
        let is_probe = chance.one_in(8);
        let pace = Pace {
            pause_ms: is_trouble.then_some(5),
            person_pause_ms: chance.one_in(40).then_some(20),
            concurrency: (is_probe || chance.one_in(2)).then_some(if is_probe { 1 } else { 4 }),
            more_after_ms: None,
            is_probe,
        };
        Event::Finished {
            batch: batch.batch,
            fates,
            seen,
            pace,
        }
    }

    /// The highest version of a key that is in the ledger.
    fn last_version(&self, key: &str) -> Option<i64> {
        let rows = self.ledger.iter().map(|seq| &self.row(*seq).envelope);
        let of_key = rows.filter(|envelope| envelope.key() == key);
        of_key
            .filter_map(|envelope| envelope.aggregate_version)
            .max()
    }

    /// What becomes of a message whose version may not be applied.
    fn judge(&mut self, work: &Work, now_ms: u64) -> Option<Fate> {
        let (policy, version) = (self.versions?, work.row.envelope.aggregate_version?);
        let (seq, key) = (work.row.seq, work.row.envelope.key());
        let waited = Waited {
            age_ms: work.spent.age_ms,
            is_alone: work.is_alone,
            is_let_through: false,
        };
        match policy.course(self.last_version(key), version, waited) {
            Course::Apply => None,
            Course::Refuse { .. } => {
                self.deferred.remove(&seq);
                self.ledger.insert(seq);
                self.refused.insert(seq);
                Some(Fate::Finished)
            }
            Course::Wait { due_in_ms, .. } => {
                let deferral = Deferral {
                    seq,
                    slot: work.row.slot,
                    key: key.to_owned(),
                    kind: DeferralKind::Gap,
                    due_in_ms: Some(due_in_ms),
                    spent: work.spent,
                    failure: None,
                };
                self.defer(&deferral, now_ms);
                Some(Fate::Deferred(deferral))
            }
            Course::GiveUp { .. } => {
                let waits_too = self.deferred.keys().find(|other| {
                    let other = &self.row(**other).envelope;
                    is_earlier(other, &work.row.envelope)
                });
                assert_eq!(waits_too, None, "{seq} was given up although that is there");
                self.deferred.remove(&seq);
                self.cases.insert(seq);
                Some(Fate::Quarantined {
                    holds_key: self.holds_key,
                })
            }
        }
    }

    /// Only what an earlier message waits for goes before those behind that one.
    fn check_overtaken(&self, row: &Row) {
        let is_over = |seq| self.ledger.contains(&seq) || self.cases.contains(&seq);
        let first_open = self.rows.iter().find(|other| {
            let is_of_key = other.envelope.key() == row.envelope.key();
            is_of_key && other.seq < row.seq && !is_over(other.seq)
        });
        if let Some(first) = first_open {
            assert!(
                is_earlier(&row.envelope, &first.envelope),
                "{} went before {}",
                row.seq,
                first.seq
            );
        }
    }

    pub(super) fn attempt(&mut self, work: &Work, chance: &mut Chance, now_ms: u64) -> Fate {
        let (seq, key) = (work.row.seq, work.row.envelope.key());
        if chance.one_in(10) && work.spent.failures < 3 {
            let spent = Spent {
                failures: work.spent.failures + 1,
                ..work.spent
            };
            let is_retry = self.operator_every == 0 || !chance.one_in(self.operator_every);
            let kind = match is_retry {
                true => DeferralKind::Retry,
                false => DeferralKind::Operator,
            };
            let deferral = Deferral {
                seq,
                slot: work.row.slot,
                key: key.to_owned(),
                kind,
                due_in_ms: is_retry.then(|| 1 + chance.below(20)),
                spent,
                failure: None,
            };
            self.defer(&deferral, now_ms);
            return Fate::Deferred(deferral);
        }
        if work.is_stored {
            self.deferred.remove(&seq);
        }
        if self.case_every > 0 && chance.one_in(self.case_every) {
            self.deferred.remove(&seq);
            self.cases.insert(seq);
            return Fate::Quarantined {
                holds_key: self.holds_key,
            };
        }
        if self.versions.is_some() {
            self.check_overtaken(&work.row);
        }
        self.ledger.insert(seq);
        self.effects.entry(key.to_owned()).or_default().push(seq);
        Fate::Finished
    }

    pub(super) fn check_end(&self) {
        for row in &self.rows {
            let ends = usize::from(self.ledger.contains(&row.seq))
                + usize::from(self.cases.contains(&row.seq));
            assert_eq!(ends, 1, "row {} ended {ends} times", row.seq);
        }
        assert!(
            self.deferred.is_empty(),
            "left deferred: {:?}",
            self.deferred.keys()
        );
        for (key, seqs) in &self.effects {
            let in_order = seqs.iter().filter(|seq| !self.late.contains(seq));
            assert!(
                in_order.is_sorted_by(|a, b| a < b),
                "key {key} out of order: {seqs:?}"
            );
        }
    }
}

pub(super) fn contract() -> SubscriptionContract {
    let mut contract = SubscriptionContract::new("s", &["t"], Semantics::EffectOnce);
    contract.lanes = LANES;
    contract.concurrency = 3;
    contract.window_rows = 16;
    contract
}
