//! Appending and effect transactions.

use std::error::Error as StdError;

use onceward_core::store::{
    Append, Begin, Effects, End, Found, Known, Mark, Settle, Settled, StoreError, StoreErrorKind,
};
use onceward_core::{Envelope, LedgerEntry, Payload, Row, lane};

use super::connection::{MemoryConnection, MemoryError, MemoryTx};
use super::state::OpenTx;
use super::writes::{Deferred, Keeps, LedgerPlace, Recorded, Unique, Write};
use super::{CommitFault, Defect, MemoryStore, Operation, SOURCE};

impl Append for MemoryStore {
    type Connection = MemoryConnection;

    async fn append(
        &self,
        connection: &mut MemoryConnection,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        self.enter(Operation::Append).await?;
        append_all(connection, envelopes)
    }

    fn classify(&self, error: &(dyn StdError + 'static)) -> Option<StoreErrorKind> {
        let by_store = error.downcast_ref::<StoreError>().map(StoreError::kind);
        by_store.or_else(|| error.downcast_ref::<MemoryError>().map(MemoryError::kind))
    }
}

fn append_all(connection: &MemoryConnection, envelopes: &[Envelope]) -> Result<(), StoreError> {
    for envelope in envelopes {
        append_one(connection, envelope)?;
    }
    Ok(())
}

fn append_one(connection: &MemoryConnection, envelope: &Envelope) -> Result<(), StoreError> {
    const ACTION: &str = Operation::Append.action();
    if let Payload::Json(text) = &envelope.payload
        && let Err(error) = serde_json::from_str::<&serde_json::value::RawValue>(text)
    {
        return Err(StoreError::new(StoreErrorKind::Refused, ACTION, error));
    }
    let shared = &connection.shared;
    let now = shared.clock.now();
    let mut state = shared.state();
    let ended = |kind| StoreError::new(kind, ACTION, MemoryError::Ended(kind));
    let xid = state.xid(connection.number, now).map_err(ended)?;
    let mut envelope = envelope.clone();
    envelope.source.get_or_insert_with(|| SOURCE.to_owned());
    let row = Row {
        xid,
        seq: state.next_seq(),
        slot: lane::slot_of(envelope.key()),
        recorded_at: now,
        envelope,
        corrects: None,
    };
    state
        .write(connection.number, now, Write::Append(row))
        .map_err(ended)
}

impl Effects for MemoryStore {
    type Tx = MemoryTx;

    async fn begin(&self, request: Begin<'_>) -> Result<MemoryTx, StoreError> {
        self.enter(Operation::Begin).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        if let Some(lease) = request.lease {
            let member = state.members.get(&lease.member);
            let is_ended = member.is_none_or(|member| member.is_ended);
            if is_ended && !self.shared.has(Defect::NoFence) {
                return Err(fenced(Operation::Begin));
            }
        }
        let number = state.open(OpenTx {
            xid: None,
            member: request.lease.map(|lease| lease.member.clone()),
            idle_max_ms: request.lease.map(|lease| lease.lease_ms),
            used_at: now,
            writes: Vec::new(),
            savepoint: None,
        });
        let shared = self.shared.clone();
        Ok(MemoryTx {
            connection: MemoryConnection { shared, number },
        })
    }

    fn connection<'t>(&self, tx: &'t mut MemoryTx) -> &'t mut MemoryConnection {
        tx.connection()
    }

    async fn known(&self, tx: &mut MemoryTx, request: Known<'_>) -> Result<Found, StoreError> {
        self.enter(Operation::Known).await?;
        let keys = request.keys.iter().map(|key| {
            let place =
                LedgerPlace::of(self.ledger_of(request.subscription), request.identity, key);
            find_within_a_day(&tx.connection, &place)
        });
        let entries = keys
            .collect::<Result<_, _>>()
            .map_err(|error: MemoryError| error.into_store_error(Operation::Known))?;
        let state = self.shared.state();
        let is_gone = |seq: &u64| {
            let place = (request.subscription.to_owned(), *seq);
            !state.tables.deferrals.contains_key(&place) && !self.shared.has(Defect::GoneUnseen)
        };
        let gone = request.deferred.iter().copied().filter(is_gone);
        Ok(Found {
            entries,
            gone: gone.collect(),
        })
    }

    async fn settle(&self, tx: &mut MemoryTx, request: Settle<'_>) -> Result<Settled, StoreError> {
        self.enter(Operation::Settle).await?;
        let connection = &tx.connection;
        let mut ledger_rows = 0;
        for entry in request.ledger {
            let subscription = self.ledger_of(request.subscription);
            let place = LedgerPlace::of(subscription, request.identity, &entry.key);
            let is_new = record(connection, place, entry)
                .await
                .map_err(|error| error.into_store_error(Operation::Settle))?;
            ledger_rows += u64::from(is_new);
        }
        if self.shared.has(Defect::CountsAsAsked) {
            ledger_rows = request.ledger.len() as u64;
        }
        self.record_rest(connection, &request)
            .map_err(|error| error.into_store_error(Operation::Settle))?;
        append_all(connection, request.append)?;
        Ok(Settled { ledger_rows })
    }

    async fn mark(&self, tx: &mut MemoryTx, mark: Mark) -> Result<(), StoreError> {
        self.enter(Operation::Mark).await?;
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        let open = state
            .tx(tx.connection.number, now)
            .map_err(|kind| MemoryError::Ended(kind).into_store_error(Operation::Mark))?;
        match (mark, open.savepoint.take()) {
            (Mark::Set, None) => open.savepoint = Some(open.writes.len()),
            (Mark::Release, Some(_)) => {}
            (Mark::RollBack, Some(kept)) => open.writes.truncate(kept),
            (_, was) => {
                open.savepoint = was;
                let found = "one savepoint at a time, set before it is ended";
                let kind = StoreErrorKind::Other;
                return Err(StoreError::found(kind, Operation::Mark.action(), found));
            }
        }
        drop(state);
        // Whoever waits for a key that was undone may go on.
        self.shared.clock.wake_all();
        Ok(())
    }

    async fn end(&self, tx: MemoryTx, end: End) -> Result<(), StoreError> {
        self.enter(Operation::End).await?;
        if end == End::RollBack {
            return Ok(());
        }
        let fault = self.shared.faults.commit();
        if fault != Some(CommitFault::NotApplied) {
            let now = self.shared.clock.now();
            let committed = self.shared.state().commit(tx.connection.number, now);
            committed.map_err(|kind| MemoryError::Ended(kind).into_store_error(Operation::End))?;
        }
        match fault {
            None => Ok(()),
            Some(_) => Err(StoreError::found(
                StoreErrorKind::CommitUnknown,
                Operation::End.action(),
                "the answer to the commit was lost",
            )),
        }
    }
}

pub(super) fn fenced(operation: Operation) -> StoreError {
    let found = "the member has left or was taken over";
    StoreError::found(StoreErrorKind::Fenced, operation.action(), found)
}

impl MemoryStore {
    /// The subscription as the ledger's key has it.
    fn ledger_of<'a>(&self, subscription: &'a str) -> &'a str {
        if self.shared.has(Defect::LedgerWithoutSubscription) {
            ""
        } else {
            subscription
        }
    }

    /// Cases before clearing, so that they still see when their message was first deferred.
    fn record_rest(
        &self,
        connection: &MemoryConnection,
        request: &Settle<'_>,
    ) -> Result<(), MemoryError> {
        let now = self.shared.clock.now();
        let subscription = || request.subscription.to_owned();
        for case in request.cases {
            connection.write(Write::OpenCase {
                subscription: subscription(),
                case: case.clone(),
                at: now,
                keeps_original: !self.shared.has(Defect::OriginalOverwritten),
            })?;
        }
        for deferral in request.defer {
            connection.write(Write::Defer {
                subscription: subscription(),
                deferred: Deferred::of(deferral, now),
                keeps: Keeps {
                    first_time: !self.shared.has(Defect::FirstTimeForgotten),
                    from_held: !self.shared.has(Defect::HeldOverwrites),
                },
            })?;
        }
        if self.shared.has(Defect::ClearIgnored) {
            return Ok(());
        }
        for seq in request.clear {
            connection.write(Write::Clear {
                subscription: subscription(),
                seq: *seq,
            })?;
        }
        for seq in request.clear_running {
            connection.write(Write::EndRunning(subscription(), *seq, None))?;
        }
        if self.shared.has(Defect::MarksStay) {
            return Ok(());
        }
        for seq in request.hold_running {
            connection.write(Write::EndRunning(subscription(), *seq, Some(now)))?;
        }
        Ok(())
    }
}

/// What is known of an identity: by message, an entry of the same message recorded within a day
/// counts as well.
fn find_within_a_day(
    connection: &MemoryConnection,
    place: &LedgerPlace,
) -> Result<Option<LedgerEntry>, MemoryError> {
    const DAY_MS: i64 = 86_400_000;
    if place.is_operation {
        return find(connection, place);
    }
    let now = connection.shared.clock.now();
    let mut state = connection.shared.state();
    let tx = state
        .tx(connection.number, now)
        .map_err(MemoryError::Ended)?;
    let moved = |by_ms| {
        let mut moved = place.clone();
        moved.key.recorded_at = place.key.recorded_at.plus_millis(by_ms);
        moved
    };
    let (first, last) = (moved(-DAY_MS), moved(DAY_MS));
    let own = tx.writes.iter().find_map(|write| match write {
        Write::Record(at, recorded) if (&first..=&last).contains(&at) => {
            Some(recorded.entry.clone())
        }
        _ => None,
    });
    let mut committed = state.tables.ledger.range(first.clone()..=last.clone());
    Ok(own.or_else(|| Some(committed.next()?.1.entry.clone())))
}

/// A ledger row that is committed or that this transaction wrote.
fn find(
    connection: &MemoryConnection,
    place: &LedgerPlace,
) -> Result<Option<LedgerEntry>, MemoryError> {
    let now = connection.shared.clock.now();
    let mut state = connection.shared.state();
    let tx = state
        .tx(connection.number, now)
        .map_err(MemoryError::Ended)?;
    let own = tx.writes.iter().find_map(|write| match write {
        Write::Record(at, recorded) if at == place => Some(recorded.entry.clone()),
        _ => None,
    });
    let committed = || Some(state.tables.ledger.get(place)?.entry.clone());
    Ok(own.or_else(committed))
}

/// Inserts a ledger row unless it is there; waits for whoever is inserting it.
async fn record(
    connection: &MemoryConnection,
    place: LedgerPlace,
    entry: &LedgerEntry,
) -> Result<bool, MemoryError> {
    loop {
        if find(connection, &place)?.is_some() {
            return Ok(false);
        }
        let unique = Unique::Ledger(place.clone());
        let holder = connection.shared.state().holder(connection.number, &unique);
        match holder {
            Some(other) => connection.wait_for(other).await?,
            None => {
                let recorded = Recorded {
                    entry: entry.clone(),
                    at: connection.shared.clock.now(),
                };
                connection.write(Write::Record(place, recorded))?;
                return Ok(true);
            }
        }
    }
}
