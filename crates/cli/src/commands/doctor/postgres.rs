//! What only a PostgreSQL store needs: a primary that keeps what it commits, nothing that holds the
//! log back, room for connections, and a clock that agrees.

use onceward_core::Timestamp;
use onceward_postgres::{Pooler, Postgres, connect_options};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Row as _};

use super::{CHECK_WITHIN, Findings};
use crate::output::{age, now};

/// Oldest version that is known to work, as the server counts.
const VERSION_MIN: i32 = 140_000;

/// Difference of the clocks that is still of no consequence, in milliseconds.
const SKEW_MS_MAX: i64 = 2_000;

/// A transaction that has been open for longer holds retention back, in milliseconds.
const OPEN_MS_LONG: i64 = 5 * 60_000;

/// Connections that onceward opens at most, beside those for effects.
const CONNECTIONS_NEEDED: i64 = 22;

const SERVER: &str = "select current_setting('server_version_num')::int as version, \
    current_setting('server_version') as version_text, pg_is_in_recovery() as is_standby, \
    current_setting('fsync') as fsync, current_setting('synchronous_commit') as commits, \
    current_setting('full_page_writes') as full_pages, \
    current_setting('server_encoding') as encoding, \
    current_setting('max_connections')::bigint as connections_max, \
    (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections";

/// What keeps old rows from being removed: transactions, prepared ones, and standbys' needs.
const OLDEST_OPEN: &str = "select what, (extract(epoch from clock_timestamp() - since) * 1000)::bigint \
    as open_ms from ( \
    select format('pid %s (%s, %s)', pid, coalesce(nullif(application_name, ''), 'unnamed'), state) \
        as what, xact_start as since from pg_stat_activity \
        where xact_start is not null and pid <> pg_backend_pid() and datname = current_database() \
    union all \
    select format('prepared transaction %L', gid), prepared from pg_prepared_xacts \
        where database = current_database() \
    ) as open order by since limit 1";

type Failed = Box<dyn std::error::Error + Send + Sync>;

pub(super) async fn check(store: &Postgres, url: &str, findings: &mut Findings) {
    match tokio::time::timeout(CHECK_WITHIN * 2, examine(store, url, findings)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let fix = "see onceward explain OW1006";
            findings.failed("server", error.to_string(), fix);
        }
        Err(_) => {
            let found = format!("no answer within {} s", (CHECK_WITHIN * 2).as_secs());
            findings.failed("server", found, "see whether the server is overloaded");
        }
    }
}

async fn examine(store: &Postgres, url: &str, findings: &mut Findings) -> Result<(), Failed> {
    // It prepares no statements, so that it works through a pooler too.
    let options = connect_options(url)?.application_name("onceward doctor");
    let mut connection = PgConnection::connect_with(&options).await?;
    let server = sqlx::raw_sql(SERVER).fetch_one(&mut connection).await?;
    version(&server, findings)?;
    durability(&server, findings)?;
    room(&server, findings)?;
    clocks(&mut connection, findings).await?;
    oldest(&mut connection, findings).await?;
    connection.close().await?;
    pooler(store.pooler().await?, findings);
    Ok(())
}

fn version(server: &PgRow, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let text: String = server.try_get("version_text")?;
    if server.try_get::<i32, _>("version")? < VERSION_MIN {
        let found = format!("PostgreSQL {text}");
        findings.failed("version", found, "use PostgreSQL 14 or newer");
    } else {
        findings.ok("version", format!("PostgreSQL {text}"));
    }
    if server.try_get("is_standby")? {
        let fix = "use the address of the primary";
        findings.failed("role", "this is a standby, which only reads", fix);
    } else {
        findings.ok("role", "primary");
    }
    let encoding: String = server.try_get("encoding")?;
    if encoding == "UTF8" {
        findings.ok("encoding", encoding);
    } else {
        let fix = "use a database with encoding UTF8: others refuse or change characters";
        findings.failed("encoding", encoding, fix);
    }
    Ok(())
}

fn durability(server: &PgRow, findings: &mut Findings) -> Result<(), sqlx::Error> {
    for (setting, column) in [("fsync", "fsync"), ("full_page_writes", "full_pages")] {
        let value: String = server.try_get(column)?;
        if value == "on" {
            findings.ok(setting, value);
        } else {
            let found = format!("{value}: a crash can destroy the database");
            findings.failed(setting, found, &format!("set {setting} = on"));
        }
    }
    let commits: String = server.try_get("commits")?;
    if commits == "off" {
        let found = "off: a crash can lose what was acknowledged";
        let fix = "set synchronous_commit = on for this database or role";
        findings.failed("synchronous_commit", found, fix);
    } else {
        findings.ok("synchronous_commit", commits);
    }
    Ok(())
}

fn room(server: &PgRow, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let most: i64 = server.try_get("connections_max")?;
    let used: i64 = server.try_get("connections")?;
    let found = format!("{used} of {most} in use");
    if most - used < CONNECTIONS_NEEDED {
        let fix = "raise max_connections, or set [store] connections_max lower";
        findings.warning("connections", found, fix);
    } else {
        findings.ok("connections", found);
    }
    Ok(())
}

async fn clocks(connection: &mut PgConnection, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let before = now();
    let row = sqlx::raw_sql("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
        .fetch_one(connection)
        .await?;
    let after = now();
    let theirs = Timestamp::from_micros(row.try_get(0)?);
    // Half of the round trip is the best guess of when the server looked at its clock.
    let ours = before.plus_millis(after.millis_since(before) / 2);
    let skew_ms = theirs.millis_since(ours);
    let found = format!(
        "the database's is {} ms {} this one",
        skew_ms.abs(),
        match skew_ms {
            0.. => "ahead of",
            _ => "behind",
        }
    );
    if skew_ms.abs() > SKEW_MS_MAX {
        let fix = "set both clocks by NTP; leases go by the database's, but times in logs will not \
                   agree";
        findings.warning("clocks", found, fix);
    } else {
        findings.ok("clocks", found);
    }
    Ok(())
}

async fn oldest(connection: &mut PgConnection, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let row = sqlx::raw_sql(OLDEST_OPEN)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else {
        findings.ok("open transactions", "none besides this one");
        return Ok(());
    };
    let open_ms: i64 = row.try_get("open_ms")?;
    let what: String = row.try_get("what")?;
    let found = format!("the oldest is {what}, open for {}", age(open_ms));
    if open_ms > OPEN_MS_LONG {
        let fix = "it holds retention back: end it in its application, or with \
                   select pg_terminate_backend(pid)";
        findings.warning("open transactions", found, fix);
    } else {
        findings.ok("open transactions", found);
    }
    Ok(())
}

fn pooler(found: Pooler, findings: &mut Findings) {
    let found = match found {
        Pooler::None => "none",
        Pooler::Tracking => "one that keeps prepared statements apart",
        _ => "one that may lend sessions: statements are prepared anew in each transaction",
    };
    findings.ok("pooler", found);
}
