//! Reading the facts, by plain SQL and from files.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::facts::{Case, Deferral, Effect, Facts, Order};
use crate::messages::Mood;
use crate::processes::{files, is_postgres};
use crate::record;
use crate::trouble::{Trouble, while_doing};

enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// Where facts are read.
pub struct Books {
    pool: Pool,
    folder: PathBuf,
}

/// Everything that is read from it is of one moment.
enum Snapshot {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

/// Reads rows with the same statement, but for the names of tables, on either database.
macro_rules! rows {
    ($books:expr, $row:ty, $postgres:expr, $sqlite:expr $(, $bind:expr)*) => {{
        let rows: Result<Vec<$row>, sqlx::Error> = match &mut *$books {
            Snapshot::Postgres(tx) => {
                sqlx::query_as($postgres)$(.bind($bind))*.fetch_all(&mut **tx).await
            }
            Snapshot::Sqlite(tx) => {
                sqlx::query_as($sqlite)$(.bind($bind))*.fetch_all(&mut **tx).await
            }
        };
        rows.map_err(while_doing("read the records"))?
    }};
}

impl Books {
    /// Reads from this database and this folder.
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn new(url: &str, folder: &Path) -> Result<Self, Trouble> {
        let pool = if is_postgres(url) {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(Duration::from_secs(5))
                .connect_lazy(url);
            Pool::Postgres(pool.map_err(while_doing("read the address"))?)
        } else {
            let options = SqliteConnectOptions::from_str(url).map_err(while_doing("open"))?;
            let options = options.busy_timeout(Duration::from_secs(10));
            let pool = SqlitePoolOptions::new().max_connections(1);
            Pool::Sqlite(pool.connect_lazy_with(options))
        };
        Ok(Self {
            pool,
            folder: folder.to_owned(),
        })
    }

    async fn snapshot(&self) -> Result<Snapshot, Trouble> {
        const ON_POSTGRES: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let snapshot = match &self.pool {
            Pool::Postgres(pool) => pool.begin_with(ON_POSTGRES).await.map(Snapshot::Postgres),
            Pool::Sqlite(pool) => pool.begin().await.map(Snapshot::Sqlite),
        };
        snapshot.map_err(while_doing("open the database"))
    }

    /// The highest sequence of the log.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn last_seq(&self) -> Result<i64, Trouble> {
        let mut snapshot = self.snapshot().await?;
        let seq = rows!(
            &mut snapshot,
            (i64,),
            "SELECT coalesce(max(seq), 0) FROM onceward.outbox",
            "SELECT coalesce(max(seq), 0) FROM onceward_outbox"
        );
        Ok(seq.first().map_or(0, |row| row.0))
    }

    /// Everything about messages whose ids begin with `epoch`, which came to the log after `seq`.
    ///
    /// # Errors
    /// When the database does not answer or a file cannot be read.
    pub async fn facts(&self, epoch: &str, seq: i64) -> Result<Facts, Trouble> {
        let lines = |name: &str| {
            let lines = record::read(&self.folder.join(name));
            lines.map_err(while_doing(format!("read {name}")))
        };
        let own = |id: &String| id.contains(epoch);
        // What was acknowledged before is there now; what is there now was booked before.
        let acknowledged = lines(files::ACKNOWLEDGED)?
            .into_iter()
            .filter(own)
            .collect();
        let snapshot = &mut self.snapshot().await?;
        let orders = orders(snapshot, epoch).await?;
        let log = rows!(
            snapshot,
            (String, i64),
            "SELECT id, seq FROM onceward.outbox WHERE seq > $1 ORDER BY seq",
            "SELECT id, seq FROM onceward_outbox WHERE seq > $1 ORDER BY seq",
            seq
        );
        let effects = effects(snapshot, epoch).await?;
        let ledger = ledger(snapshot, epoch).await?;
        let deferrals = deferrals(snapshot, seq).await?;
        let cases = cases(snapshot, epoch, seq).await?;
        let carrier = lines(files::BOOKINGS)?;
        let carrier = carrier.iter().filter(|line| line.contains(epoch));
        let carrier = carrier.map(|line| serde_json::from_str(line));
        let carrier = carrier.collect::<Result<_, _>>();
        Ok(Facts {
            orders,
            acknowledged,
            log: log.into_iter().filter(|(id, _)| own(id)).collect(),
            effects,
            ledger,
            deferrals,
            cases,
            carrier: carrier.map_err(while_doing("read the carrier's record"))?,
            handed: lines(files::HANDED)?.into_iter().filter(own).collect(),
            claimed: lines(files::CLAIMED)?.into_iter().filter(own).collect(),
        })
    }
}

async fn orders(snapshot: &mut Snapshot, epoch: &str) -> Result<Vec<Order>, Trouble> {
    const SQL: &str = "SELECT id, key, number, mood, operation FROM orders \
        WHERE id >= $1 AND id < $2";
    let (first, end) = bounds("", epoch);
    type Row = (String, String, i64, String, String);
    let rows = rows!(snapshot, Row, SQL, SQL, &first, &end);
    let orders = rows.into_iter().map(|(id, key, number, mood, operation)| {
        let mood = Mood::of(&mood).ok_or_else(|| Trouble::new(format!("mood {mood}")))?;
        Ok(Order {
            id,
            key,
            number,
            mood,
            operation,
        })
    });
    orders.collect()
}

async fn effects(snapshot: &mut Snapshot, epoch: &str) -> Result<Vec<Effect>, Trouble> {
    const SQL: &str = "SELECT n, subscription, id, outcome FROM effects \
        WHERE id >= $1 AND id < $2 OR id >= $3 AND id < $4 OR id >= $5 AND id < $6 ORDER BY n";
    let (a, b) = bounds("", epoch);
    let (c, d) = bounds("o-", epoch);
    let (e, f) = bounds("f-", epoch);
    type Row = (i64, String, String, String);
    let rows = rows!(snapshot, Row, SQL, SQL, &a, &b, &c, &d, &e, &f);
    let effects = rows
        .into_iter()
        .map(|(n, subscription, id, outcome)| Effect {
            n,
            subscription,
            id,
            outcome,
        });
    Ok(effects.collect())
}

async fn ledger(
    snapshot: &mut Snapshot,
    epoch: &str,
) -> Result<Vec<(String, String, String)>, Trouble> {
    let (a, b) = bounds("", epoch);
    let (c, d) = bounds("o-", epoch);
    let (e, f) = bounds("f-", epoch);
    type Row = (String, String, String);
    Ok(rows!(
        snapshot,
        Row,
        "SELECT subscription, identity, ending FROM onceward.ledger \
         WHERE identity >= $1 AND identity < $2 OR identity >= $5 AND identity < $6 \
         UNION ALL SELECT subscription, identity, ending FROM onceward.operation_ledger \
         WHERE identity >= $3 AND identity < $4",
        "SELECT subscription, identity, ending FROM onceward_ledger \
         WHERE identity >= $1 AND identity < $2 OR identity >= $5 AND identity < $6 \
         UNION ALL SELECT subscription, identity, ending FROM onceward_operation_ledger \
         WHERE identity >= $3 AND identity < $4",
        &a,
        &b,
        &c,
        &d,
        &e,
        &f
    ))
}

async fn deferrals(snapshot: &mut Snapshot, seq: i64) -> Result<Vec<Deferral>, Trouble> {
    type Row = (String, i64, String, i64, i64);
    let rows = rows!(
        snapshot,
        Row,
        "SELECT subscription, seq, kind, failures, deaths FROM onceward.deferrals \
         WHERE seq > $1",
        "SELECT subscription, seq, kind, failures, deaths FROM onceward_deferral \
         WHERE seq > $1",
        seq
    );
    let deferrals = rows
        .into_iter()
        .map(|(subscription, seq, kind, failures, deaths)| Deferral {
            subscription,
            seq,
            kind,
            failures,
            deaths,
        });
    Ok(deferrals.collect())
}

async fn cases(snapshot: &mut Snapshot, epoch: &str, seq: i64) -> Result<Vec<Case>, Trouble> {
    type Row = (String, String, String, i64, i64, bool);
    let rows = rows!(
        snapshot,
        Row,
        "SELECT subscription, id, reason, failures, deaths, holds_key FROM onceward.cases \
         WHERE seq > $1",
        "SELECT subscription, id, reason, failures, deaths, holds_key FROM onceward_case \
         WHERE seq > $1",
        seq
    );
    let own = rows.into_iter().filter(|row| row.1.contains(epoch));
    let cases = own.map(
        |(subscription, id, reason, failures, deaths, holds_key)| Case {
            subscription,
            id,
            reason,
            failures,
            deaths,
            holds_key,
        },
    );
    Ok(cases.collect())
}

/// All texts that begin with prefix and epoch lie between these.
fn bounds(prefix: &str, epoch: &str) -> (String, String) {
    // The character after '-'.
    (format!("{prefix}{epoch}-"), format!("{prefix}{epoch}."))
}
