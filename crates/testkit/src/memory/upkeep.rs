//! Retention in small rounds.

use std::collections::BTreeSet;

use onceward_core::store::{Case, Retention, StoreError, StoreErrorKind, Upkeep, UpkeepReport};
use onceward_core::{Identity, LedgerKey, Row, Timestamp};

use super::journal::Change;
use super::state::State;
use super::status::is_past;
use super::writes::LedgerPlace;
use super::{Defect, MemoryStore, Operation};

/// Most rows of one table that a round removes.
const ROUND_ROWS: usize = 1_000;
/// How long a pause that ended by itself is kept, in milliseconds.
const PAUSES_MS: u64 = 90 * 86_400_000;

impl Upkeep for MemoryStore {
    async fn tidy(&self, retention: Retention) -> Result<UpkeepReport, StoreError> {
        self.enter(Operation::Tidy).await?;
        retention.check().map_err(|error| {
            StoreError::new(StoreErrorKind::Refused, Operation::Tidy.action(), error)
        })?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let mut report = UpkeepReport {
            retention: Some(retention),
            ..UpkeepReport::default()
        };
        let ignores = self.shared.has(Defect::TidyIgnoresPositions);
        if self.shared.has(Defect::TidyIgnoresCampaigns) {
            state.campaigns.items.clear();
        }
        tidy_log(&mut state, now, retention.log_ms, ignores, &mut report);
        let by_age_alone = self.shared.has(Defect::TidyForgetsByAge);
        tidy_ledger(&mut state, now, retention, by_age_alone, &mut report);
        tidy_records(&mut state, now, &mut report);
        let oldest = state.tables.log.values().map(|row| row.recorded_at).min();
        report.log_oldest_at = oldest;
        state.last_tidy = Some((now, report.clone()));
        Ok(report)
    }

    async fn last_tidy(&self) -> Result<Option<(Timestamp, UpkeepReport)>, StoreError> {
        self.enter(Operation::Tidy).await?;
        Ok(self.shared.state().last_tidy.clone())
    }
}

fn is_older(at: Timestamp, now: Timestamp, kept_ms: u64) -> bool {
    let age_ms = u64::try_from(now.millis_since(at)).unwrap_or(0);
    age_ms > kept_ms
}

/// What still needs a row, in words.
fn needed_by(state: &State, row: &Row) -> Option<String> {
    let mut deferrals = state.tables.deferrals.keys();
    if let Some((name, _)) = deferrals.find(|(_, seq)| *seq == row.seq) {
        return Some(format!("{name} has deferred message {}", row.envelope.id));
    }
    if let Some(campaign) = replayed_by(state, row) {
        return Some(format!("replay campaign {campaign}"));
    }
    let mut subscriptions = state.subscriptions.iter();
    let behind = subscriptions.find(|(name, s)| !is_past(state, name, s, row));
    behind.map(|(name, _)| format!("{name} has not finished message {}", row.envelope.id))
}

/// The campaign that may still send a row of the log out.
fn replayed_by(state: &State, row: &Row) -> Option<i64> {
    let mut items = state.campaigns.items.iter();
    let pinning = items.find(|(_, kept)| kept.pins(row.seq));
    pinning.map(|((campaign, _), _)| *campaign)
}

fn tidy_log(
    state: &mut State,
    now: Timestamp,
    kept_ms: u64,
    ignores_positions: bool,
    report: &mut UpkeepReport,
) {
    let mut gone = Vec::new();
    for row in state.tables.log.values() {
        if !is_older(row.recorded_at, now, kept_ms) {
            continue;
        }
        match needed_by(state, row).filter(|_| !ignores_positions) {
            Some(reason) => {
                report.held_back_by.get_or_insert(reason);
            }
            None if gone.len() == ROUND_ROWS => {
                report.has_more = true;
                break;
            }
            None => gone.push((row.xid, row.seq)),
        }
    }
    for (xid, seq) in &gone {
        state.tables.log.remove(seq);
        state.tables.log_by_xid.remove(&(*xid, *seq));
        state
            .listener
            .tell(now, || Change::LogRemoved { seq: *seq });
    }
    report.log_removed = gone.len() as u64;
}

/// What may bring the message of a ledger row again, in words: its lane's position is not past it,
/// it is deferred, or a case has it that is live or
/// released. Then its record stays, however old.
fn brought_by(state: &State, place: &LedgerPlace) -> Option<String> {
    let subscription = state.subscriptions.get(&place.subscription)?;
    let identities = match place.is_operation {
        true => &[Identity::Operation][..],
        false => &[Identity::Message, Identity::Seq],
    };
    let is_its = |row: &Row| {
        identities.iter().any(|identity| {
            let key = LedgerKey::of(row, *identity);
            LedgerPlace::of(&place.subscription, *identity, &key) == *place
        })
    };
    let name = &place.subscription;
    let mut cases = state.tables.cases.values();
    let may_run = |case: &&Case| {
        let deferral = (name.clone(), case.row.seq);
        case.standing.state.is_live() || state.tables.deferrals.contains_key(&deferral)
    };
    let is_cased = |case: &&Case| case.subscription == *name && is_its(&case.row);
    if let Some(case) = cases.find(|case| is_cased(case) && may_run(case)) {
        return Some(format!("case {}", case.case_id));
    }
    let row = state.tables.log.values().find(|row| {
        let deferral = (name.clone(), row.seq);
        is_its(row)
            && (state.tables.deferrals.contains_key(&deferral)
                || replayed_by(state, row).is_some()
                || !is_past(state, name, subscription, row))
    })?;
    Some(format!(
        "{name} has not finished message {}",
        row.envelope.id
    ))
}

fn tidy_ledger(
    state: &mut State,
    now: Timestamp,
    kept: Retention,
    by_age_alone: bool,
    report: &mut UpkeepReport,
) {
    let mut gone = Vec::new();
    for (place, recorded) in &state.tables.ledger {
        let is_old = if place.is_operation {
            is_older(recorded.at, now, kept.operation_ledger_ms)
        } else {
            is_older(place.key.recorded_at, now, kept.ledger_ms)
        };
        if !is_old {
            continue;
        }
        match brought_by(state, place).filter(|_| !by_age_alone) {
            Some(reason) => {
                report.held_back_by.get_or_insert(reason);
            }
            None if gone.len() == ROUND_ROWS => {
                report.has_more = true;
                break;
            }
            None => gone.push(place.clone()),
        }
    }
    for place in &gone {
        let removed = state.tables.ledger.remove(place);
        if let Some(removed) = removed {
            state.listener.tell(now, || Change::LedgerRemoved {
                subscription: place.subscription.clone(),
                entry: removed.entry,
            });
        }
    }
    report.ledger_removed = gone.len() as u64;
}

fn tidy_records(state: &mut State, now: Timestamp, report: &mut UpkeepReport) {
    let accepted = &mut state.tables.accepted;
    let before = accepted.len() + state.members.len();
    accepted.retain(|_, claim| claim.expires_at > now);
    let owners: BTreeSet<&String> = state
        .lanes
        .values()
        .filter_map(|l| l.owner.as_ref())
        .collect();
    let members = &mut state.members;
    members.retain(|name, member| !member.is_ended || owners.contains(name));
    report.records_removed = (before - accepted.len() - members.len()) as u64;
    report.records_removed += tidy_pauses(state, now);
}

/// Removes pauses that ended by themselves long ago; one that counts for the age of a message which
/// is still deferred stays.
fn tidy_pauses(state: &mut State, now: Timestamp) -> u64 {
    let before = state.tables.pauses.len();
    let deferrals = &state.tables.deferrals;
    state.tables.pauses.retain(|pause| {
        let is_old = |to| is_older(to, now, PAUSES_MS);
        let to = pause.to.filter(|to| pause.still.is_some() && is_old(*to));
        let counts = |to| {
            let mut its = deferrals
                .iter()
                .filter(|((of, _), _)| *of == pause.subscription);
            its.any(|(_, deferred)| deferred.first_at < to)
        };
        to.is_none_or(counts)
    });
    (before - state.tables.pauses.len()) as u64
}
