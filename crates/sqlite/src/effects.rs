//! Effect transactions: the user's writes, the ledger and what follows in one commit.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use onceward_core::case::fingerprint;
use onceward_core::store::{
    Begin, Deferral, Effects, End, Found, Known, Lease, Mark, NewCase, Settle, Settled, StoreError,
};
use onceward_core::{Digest, Ending, Identity, LedgerEntry, LedgerKey};
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::error::Attempt;
use crate::row::{Rows, headers, int, payload_columns, to_json};
use crate::writer::WriteTx;
use crate::{Sqlite, append, lanes};

static INSERT_LEDGER: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(include_str!("../sql/effects/insert_ledger.sql")));
static INSERT_OPERATION_LEDGER: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(include_str!("../sql/effects/insert_operation_ledger.sql")));
static KNOWN_LEDGER: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(include_str!("../sql/effects/known_ledger.sql")));
static KNOWN_OPERATION_LEDGER: LazyLock<Rows> =
    LazyLock::new(|| Rows::of(include_str!("../sql/effects/known_operation_ledger.sql")));
const DEFER: &str = include_str!("../sql/effects/defer.sql");
const STILL_THERE: &str = include_str!("../sql/effects/still_there.sql");
const CLEAR: &str = include_str!("../sql/effects/clear.sql");
const CLEAR_RUNNING: &str = include_str!("../sql/effects/clear_running.sql");
const HOLD_RUNNING: &str = include_str!("../sql/effects/hold_running.sql");
const OPEN_CASE: &str = include_str!("../sql/effects/open_case.sql");
const MARK_SET: &str = include_str!("../sql/effects/mark_set.sql");
const MARK_RELEASE: &str = include_str!("../sql/effects/mark_release.sql");
const MARK_ROLL_BACK: &str = include_str!("../sql/effects/mark_roll_back.sql");

const SETTLE: &str = "settle an effect";

/// An open effect transaction. It holds this process's only writing connection: whoever begins
/// another one waits until this one has ended. Dropping it rolls back.
pub struct Tx {
    write: WriteTx,
    lease: Option<Lease>,
    /// Lets renewals know whose transaction is open.
    _fence: Option<Arc<i64>>,
    began: Instant,
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Tx {
    /// The connection, for statements of the store.
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        self.write.connection()
    }
}

impl Effects for Sqlite {
    type Tx = Tx;

    async fn begin(&self, request: Begin<'_>) -> Result<Tx, StoreError> {
        const ACTION: &str = "begin an effect transaction";
        let mut write = self.write(ACTION).await?;
        if let Some(lease) = request.lease {
            lanes::check_fence(write.connection(), lease, ACTION).await?;
        }
        let fence = request.lease.map(|lease| Arc::new(lease.fence));
        self.effect_opened(fence.as_ref());
        Ok(Tx {
            write,
            lease: request.lease.cloned(),
            _fence: fence,
            began: Instant::now(),
        })
    }

    fn connection<'t>(&self, tx: &'t mut Tx) -> &'t mut SqliteConnection {
        tx.write.connection()
    }

    async fn known(&self, tx: &mut Tx, request: Known<'_>) -> Result<Found, StoreError> {
        let gone = gone(tx, request.subscription, request.deferred).await?;
        let entries = known_in(tx.write.connection(), &request).await?;
        Ok(Found { entries, gone })
    }

    async fn settle(&self, tx: &mut Tx, request: Settle<'_>) -> Result<Settled, StoreError> {
        let now = self.now();
        let connection = tx.write.connection();
        let ledger_rows = insert_ledger(connection, &request, now).await?;
        for deferral in request.defer {
            defer(connection, request.subscription, deferral, now).await?;
        }
        for case in request.cases {
            open_case(connection, request.subscription, case, now).await?;
        }
        for (sql, seqs) in [
            (CLEAR, request.clear),
            (CLEAR_RUNNING, request.clear_running),
        ] {
            if !seqs.is_empty() {
                sqlx::query(sql)
                    .bind(request.subscription)
                    .bind(to_json(&seqs, SETTLE)?)
                    .execute(&mut *connection)
                    .await
                    .attempting(SETTLE)?;
            }
        }
        if !request.hold_running.is_empty() {
            let hold = sqlx::query(HOLD_RUNNING)
                .bind(request.subscription)
                .bind(to_json(&request.hold_running, SETTLE)?)
                .bind(now);
            let held = hold.execute(&mut *connection).await;
            held.attempting(SETTLE)?;
        }
        append::insert(connection, request.append, now).await?;
        Ok(Settled { ledger_rows })
    }

    async fn mark(&self, tx: &mut Tx, mark: Mark) -> Result<(), StoreError> {
        // Rolling back to a savepoint keeps it open, so that step is two statements.
        let statements: &[&'static str] = match mark {
            Mark::Set => &[MARK_SET],
            Mark::Release => &[MARK_RELEASE],
            Mark::RollBack => &[MARK_ROLL_BACK, MARK_RELEASE],
        };
        for sql in statements {
            let done = sqlx::query(*sql).execute(tx.write.connection()).await;
            done.attempting("step a savepoint")?;
        }
        Ok(())
    }

    async fn end(&self, mut tx: Tx, end: End) -> Result<(), StoreError> {
        const ACTION: &str = "end an effect transaction";
        if end == End::RollBack {
            return tx.write.roll_back(ACTION).await;
        }
        if let Some(lease) = &tx.lease {
            // While this transaction was open, or while many like it were, one after the other, the
            // process could not renew its lease otherwise.
            let most = Duration::from_millis(lease.lease_ms / 4);
            if tx.began.elapsed() > most || self.is_renewal_due(lease.fence, most) {
                lanes::renew(tx.write.connection(), lease, self.now(), ACTION).await?;
                tx.write.commit(ACTION).await?;
                self.renewed(lease.fence);
                return Ok(());
            }
        }
        tx.write.commit(ACTION).await
    }
}

/// What the ledger has, in the order of the keys.
pub(crate) async fn known_in(
    connection: &mut SqliteConnection,
    request: &Known<'_>,
) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
    let mut known = vec![None; request.keys.len()];
    let rows = match request.identity {
        Identity::Operation => &KNOWN_OPERATION_LEDGER,
        Identity::Message | Identity::Seq => &KNOWN_LEDGER,
    };
    let mut place = 0;
    for (sql, piece) in rows.pieces(request.keys) {
        let found = &mut known[place..];
        find_known(connection, request.subscription, sql, piece, found).await?;
        place += piece.len();
    }
    Ok(known)
}

async fn find_known(
    connection: &mut SqliteConnection,
    subscription: &str,
    sql: &'static str,
    keys: &[LedgerKey],
    known: &mut [Option<LedgerEntry>],
) -> Result<(), StoreError> {
    const ACTION: &str = "look identities up in the ledger";
    let mut query = sqlx::query(sql);
    for (place, key) in keys.iter().enumerate() {
        query = query
            .bind(int(place as u64))
            .bind(subscription)
            .bind(&key.source)
            .bind(&key.message_type)
            .bind(&key.identity)
            .bind(key.generation);
    }
    for row in query.fetch_all(&mut *connection).await.attempting(ACTION)? {
        let place: i64 = row.try_get("place").attempting(ACTION)?;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let (Some(key), Some(found)) = (keys.get(place), known.get_mut(place)) {
            *found = Some(entry(&row, key.clone()).attempting(ACTION)?);
        }
    }
    Ok(())
}

fn entry(row: &SqliteRow, key: LedgerKey) -> Result<LedgerEntry, sqlx::Error> {
    let digest: Option<&[u8]> = row.try_get("digest")?;
    let result: Option<&str> = row.try_get("result")?;
    Ok(LedgerEntry {
        key,
        digest: digest.and_then(|bytes| Digest::try_from(bytes).ok()),
        ending: ending(row)?,
        result: result.map(Into::into),
        aggregate_version: row.try_get("aggregateversion")?,
        aggregate: None,
    })
}

/// The table allows no other names.
pub(crate) fn ending(row: &SqliteRow) -> Result<Ending, sqlx::Error> {
    let name: &str = row.try_get("ending")?;
    Ok(Ending::named(name).unwrap_or(Ending::Done))
}

/// Those of the sequences that have no deferral.
async fn gone(tx: &mut Tx, subscription: &str, seqs: &[u64]) -> Result<Vec<u64>, StoreError> {
    const ACTION: &str = "look for deferrals";
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let there: Vec<i64> = sqlx::query_scalar(STILL_THERE)
        .bind(subscription)
        .bind(to_json(&seqs, ACTION)?)
        .fetch_all(tx.write.connection())
        .await
        .attempting(ACTION)?;
    let is_gone = |seq: &u64| !there.contains(&int(*seq));
    Ok(seqs.iter().copied().filter(is_gone).collect())
}

async fn insert_ledger(
    connection: &mut SqliteConnection,
    request: &Settle<'_>,
    now: Option<i64>,
) -> Result<u64, StoreError> {
    let has_time = request.identity != Identity::Operation;
    let rows = if has_time {
        &INSERT_LEDGER
    } else {
        &INSERT_OPERATION_LEDGER
    };
    let mut inserted = 0;
    for (sql, piece) in rows.pieces(request.ledger) {
        let mut query = sqlx::query(sql);
        for entry in piece {
            let key = &entry.key;
            query = query
                .bind(request.subscription)
                .bind(&key.source)
                .bind(&key.message_type)
                .bind(&key.identity)
                .bind(key.generation);
            if has_time {
                query = query.bind(key.recorded_at.as_micros());
            }
            query = query
                .bind(entry.digest.as_ref().map(<[u8; 16]>::as_slice))
                .bind(entry.ending.as_str())
                .bind(entry.result.as_deref())
                .bind(entry.aggregate_version)
                .bind(entry.aggregate.as_ref().map(|a| a.aggregate_type.as_str()))
                .bind(entry.aggregate.as_ref().map(|a| a.aggregate_id.as_str()))
                .bind(now);
        }
        let done = query.execute(&mut *connection).await.attempting(SETTLE)?;
        inserted += done.rows_affected();
    }
    Ok(inserted)
}

async fn defer(
    connection: &mut SqliteConnection,
    subscription: &str,
    deferral: &Deferral,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let failure = deferral
        .failure
        .as_ref()
        .map(|failure| to_json(failure, SETTLE));
    // Kept small enough that adding it to the clock cannot overflow.
    let due_in_ms = deferral
        .due_in_ms
        .map(|wait| int(wait).min(i64::MAX / 4_000));
    sqlx::query(DEFER)
        .bind(subscription)
        .bind(int(deferral.seq))
        .bind(deferral.slot)
        .bind(&deferral.key)
        .bind(deferral.kind.as_str())
        .bind(due_in_ms)
        .bind(deferral.spent.failures)
        .bind(deferral.spent.deaths)
        .bind(deferral.spent.waits)
        .bind(failure.transpose()?)
        .bind(now)
        .execute(connection)
        .await
        .attempting(SETTLE)?;
    Ok(())
}

async fn open_case(
    connection: &mut SqliteConnection,
    subscription: &str,
    case: &NewCase,
    now: Option<i64>,
) -> Result<(), StoreError> {
    let row = &case.row;
    let envelope = &row.envelope;
    let (json, binary) = payload_columns(&envelope.payload);
    sqlx::query(OPEN_CASE)
        .bind(subscription)
        .bind(case.holds_key)
        .bind(&case.reason)
        .bind(to_json(&case.failure, SETTLE)?)
        .bind(case.spent.failures)
        .bind(case.spent.deaths)
        .bind(case.spent.waits)
        .bind(int(case.spent.age_ms))
        .bind(now)
        .bind(row.slot)
        .bind(&case.key)
        .bind(int(row.seq))
        .bind(row.recorded_at.as_micros())
        .bind(&envelope.id)
        .bind(&envelope.source)
        .bind(&envelope.aggregate_type)
        .bind(&envelope.aggregate_id)
        .bind(&envelope.message_type)
        .bind(&envelope.operation_id)
        .bind(&envelope.partition_key)
        .bind(envelope.schema_version)
        .bind(envelope.aggregate_version)
        .bind(envelope.occurred_at.map(|at| at.as_micros()))
        .bind(envelope.expires_at.map(|at| at.as_micros()))
        .bind(envelope.priority)
        .bind(headers(&envelope.attributes, SETTLE)?)
        .bind(json)
        .bind(binary)
        .bind(fingerprint(
            subscription,
            &envelope.message_type,
            &case.failure,
        ))
        .execute(connection)
        .await
        .attempting(SETTLE)?;
    Ok(())
}
