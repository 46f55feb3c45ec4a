//! Migration, eras and registration.

use std::time::Duration;

use onceward_core::Position;
use onceward_core::case::fingerprint;
use onceward_core::store::{
    Declared, Registered, Schema, SchemaState, Start, StoreError, StoreErrorKind,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::deferrals::read_failure;
use crate::error::while_doing;
use crate::log::check_home;
use crate::session::{BEGIN, Postgres};
use crate::snapshot::stand_text;

/// Migrations in order; the version is the place, counted from one.
const MIGRATIONS: &[(&str, &str)] = &[
    ("base", include_str!("../migrations/0001_base.sql")),
    (
        "functions",
        include_str!("../migrations/0002_functions.sql"),
    ),
    ("room", include_str!("../migrations/0003_room.sql")),
    ("operate", include_str!("../migrations/0004_operate.sql")),
    ("replay", include_str!("../migrations/0005_replay.sql")),
    ("order", include_str!("../migrations/0006_order.sql")),
    ("cases", include_str!("../migrations/0007_cases.sql")),
    ("still", include_str!("../migrations/0008_still.sql")),
    ("dropped", include_str!("../migrations/0009_dropped.sql")),
    ("plans", include_str!("../migrations/0010_plans.sql")),
    (
        "needs_person",
        include_str!("../migrations/0011_needs_person.sql"),
    ),
];

const KNOWN: u32 = MIGRATIONS.len() as u32;
const MIGRATE: &str = "migrate";
const REGISTER: &str = "register a subscription";
/// A readiness check gives up after this, in milliseconds.
const PING_MS: u64 = 2_000;

/// The statements that create least-privilege roles (producer, worker, operator, auditor) and
/// grant them what they need; run them as the owner of the tables. Repeating them is harmless.
#[must_use]
pub const fn grants_sql() -> &'static str {
    include_str!("../grants.sql")
}

impl Schema for Postgres {
    async fn schema_state(&self) -> Result<SchemaState, StoreError> {
        const ACTION: &str = "look at the tables";
        let mut tx = self.open(&self.reads, BEGIN, ACTION).await?;
        let state = state(tx.connection()).await?;
        if matches!(state, SchemaState::Current { .. }) {
            check_identity(tx.connection(), ACTION).await?;
        }
        tx.roll_back().await;
        Ok(state)
    }

    async fn migrate(&self) -> Result<SchemaState, StoreError> {
        let mut tx = self.open(&self.leases, BEGIN, MIGRATE).await?;
        let connection = tx.connection();
        run(connection, include_str!("../sql/schema/lock.sql"), MIGRATE).await?;
        let found = match state(connection).await? {
            SchemaState::Ahead { version, known } => {
                let text = format!(
                    "the tables are at version {version}, made by a newer program; this one knows \
                     {known} and must not touch them"
                );
                return Err(StoreError::found(StoreErrorKind::Schema, MIGRATE, text));
            }
            SchemaState::Current { version } | SchemaState::Behind { version, .. } => version,
            SchemaState::Missing => {
                run(
                    connection,
                    include_str!("../migrations/0000_versions.sql"),
                    MIGRATE,
                )
                .await?;
                0
            }
        };
        for (place, (name, script)) in MIGRATIONS.iter().enumerate().skip(found as usize) {
            run(connection, script, MIGRATE).await?;
            let query = sqlx::query(include_str!("../sql/schema/applied.sql"))
                .bind(place as i32 + 1)
                .bind(*name);
            query
                .execute(&mut *connection)
                .await
                .map_err(while_doing(MIGRATE))?;
        }
        fill_fingerprints(connection).await?;
        if let Some(source) = &self.source {
            let query = sqlx::query(include_str!("../sql/schema/set_source.sql")).bind(source);
            query
                .execute(&mut *connection)
                .await
                .map_err(while_doing(MIGRATE))?;
        }
        tx.commit(MIGRATE).await?;
        Ok(SchemaState::Current { version: KNOWN })
    }

    async fn start_era(&self) -> Result<u32, StoreError> {
        self.seal_and_start().await
    }

    async fn register(&self, declared: Declared<'_>) -> Result<Registered, StoreError> {
        let head = onceward_core::store::Log::head(self).await?;
        if let Some(former) = declared.renamed_from {
            self.free_former(former).await?;
        }
        let mut tx = self.lease_tx(REGISTER).await?;
        run(
            tx.connection(),
            include_str!("../sql/schema/lock.sql"),
            REGISTER,
        )
        .await?;
        let registered = register_in(tx.connection(), &declared, head).await?;
        tx.commit(REGISTER).await?;
        Ok(registered)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        const ACTION: &str = "reach the database";
        let ping = async {
            let mut tx = self.open(&self.leases, BEGIN, ACTION).await?;
            let query = sqlx::query(include_str!("../sql/schema/ping.sql"));
            let row = query
                .fetch_one(tx.connection())
                .await
                .map_err(while_doing(ACTION))?;
            let is_standby = row.try_get("is_standby").map_err(while_doing(ACTION))?;
            // On an error the connection is closed with the transaction, not kept.
            check_home(true, is_standby, ACTION)?;
            tx.roll_back().await;
            Ok(())
        };
        match tokio::time::timeout(Duration::from_millis(PING_MS), ping).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!("no answer within {PING_MS} ms");
                Err(StoreError::found(StoreErrorKind::Unavailable, ACTION, text))
            }
        }
    }
}

impl Postgres {
    /// Refuses a renaming under processes at work, whose records under the former name nobody would
    /// find, and ends those whose lease has run out.
    pub(crate) async fn free_former(&self, former: &str) -> Result<(), StoreError> {
        let mut tx = self.lease_tx(REGISTER).await?;
        if find(tx.connection(), former).await?.is_none() {
            tx.roll_back().await;
            return Ok(());
        }
        let query = sqlx::query(include_str!("../sql/schema/former_members.sql"))
            .bind(former)
            .bind(self.now());
        let members = query
            .fetch_all(tx.connection())
            .await
            .map_err(while_doing(REGISTER))?;
        tx.roll_back().await;
        for member in &members {
            if member.try_get("is_live").map_err(while_doing(REGISTER))? {
                let text = format!("a process still works under the name {former}: stop it first");
                return Err(StoreError::found(StoreErrorKind::Conflict, REGISTER, text));
            }
            let fence = member.try_get("fence").map_err(while_doing(REGISTER))?;
            self.end_lapsed(fence).await?;
        }
        Ok(())
    }
}

/// Runs statements without parameters.
pub(crate) async fn run(
    connection: &mut PgConnection,
    script: &'static str,
    action: &'static str,
) -> Result<(), StoreError> {
    sqlx::raw_sql(script)
        .execute(connection)
        .await
        .map_err(while_doing(action))?;
    Ok(())
}

async fn state(connection: &mut PgConnection) -> Result<SchemaState, StoreError> {
    const ACTION: &str = "look at the tables";
    let query = sqlx::query(include_str!("../sql/schema/exists.sql"));
    let row = query
        .fetch_one(&mut *connection)
        .await
        .map_err(while_doing(ACTION))?;
    if !row
        .try_get::<bool, _>("is_there")
        .map_err(while_doing(ACTION))?
    {
        return Ok(SchemaState::Missing);
    }
    let query = sqlx::query(include_str!("../sql/schema/version.sql"));
    let row = query
        .fetch_one(connection)
        .await
        .map_err(while_doing(ACTION))?;
    let version: i32 = row.try_get("version").map_err(while_doing(ACTION))?;
    let version = version as u32;
    Ok(match version.cmp(&KNOWN) {
        std::cmp::Ordering::Less => SchemaState::Behind {
            version,
            needed: KNOWN,
        },
        std::cmp::Ordering::Equal => SchemaState::Current { version },
        std::cmp::Ordering::Greater => SchemaState::Ahead {
            version,
            known: KNOWN,
        },
    })
}

/// Cases of a time before there were fingerprints get theirs.
async fn fill_fingerprints(connection: &mut PgConnection) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/schema/without_fingerprint.sql"));
    let rows = query
        .fetch_all(&mut *connection)
        .await
        .map_err(while_doing(MIGRATE))?;
    for row in rows {
        let (case_id, print) = fingerprint_of(&row).map_err(while_doing(MIGRATE))?;
        let query = sqlx::query(include_str!("../sql/schema/set_fingerprint.sql"))
            .bind(case_id)
            .bind(print);
        query
            .execute(&mut *connection)
            .await
            .map_err(while_doing(MIGRATE))?;
    }
    Ok(())
}

fn fingerprint_of(row: &PgRow) -> Result<(i64, Option<String>), sqlx::Error> {
    let (subscription, message_type) = (row.try_get("subscription")?, row.try_get("type")?);
    let failure = read_failure(row.try_get("failure")?)?;
    let print = failure.map(|failure| fingerprint(subscription, message_type, &failure));
    Ok((row.try_get("case_id")?, print))
}

/// Fails with `WrongEra` in a restored or copied database.
async fn check_identity(
    connection: &mut PgConnection,
    action: &'static str,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/schema/home.sql"));
    let row = query
        .fetch_one(connection)
        .await
        .map_err(while_doing(action))?;
    let is_home = row.try_get("is_home").map_err(while_doing(action))?;
    check_home(is_home, false, action)
}

async fn register_in(
    connection: &mut PgConnection,
    declared: &Declared<'_>,
    head: Position,
) -> Result<Registered, StoreError> {
    if let Some(lanes) = find(connection, declared.subscription).await? {
        set_types(connection, declared).await?;
        return Ok(Registered::Known { lanes });
    }
    if let Some(former) = declared.renamed_from
        && let Some(lanes) = find(connection, former).await?
    {
        rename(connection, former, declared.subscription).await?;
        set_types(connection, declared).await?;
        return Ok(Registered::Known { lanes });
    }
    let origin = Position::origin(1);
    let (position, not_before) = match declared.start {
        Some(Start::Now) => (head, None),
        Some(Start::Earliest) => (origin, None),
        Some(Start::At(from)) => (origin, Some(from.as_micros())),
        None if holds_types(connection, declared.types).await? => {
            return Ok(Registered::StartMissing);
        }
        None => (head, None),
    };
    let query = sqlx::query(include_str!("../sql/schema/add_subscription.sql"))
        .bind(declared.subscription)
        .bind(i32::from(declared.lanes))
        .bind(declared.types)
        .bind(terms_text(declared)?);
    query
        .execute(&mut *connection)
        .await
        .map_err(while_doing(REGISTER))?;
    let query = sqlx::query(include_str!("../sql/schema/add_lanes.sql"))
        .bind(declared.subscription)
        .bind(i32::from(declared.lanes))
        .bind(stand_text(&position.into())?)
        .bind(not_before);
    query
        .execute(connection)
        .await
        .map_err(while_doing(REGISTER))?;
    Ok(Registered::New)
}

pub(crate) async fn find(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Option<u16>, StoreError> {
    let query = sqlx::query(include_str!("../sql/schema/find_subscription.sql")).bind(name);
    let row = query
        .fetch_optional(connection)
        .await
        .map_err(while_doing(REGISTER))?;
    let lanes = row.map(|row| row.try_get::<i32, _>("lanes")).transpose();
    Ok(lanes
        .map_err(while_doing(REGISTER))?
        .map(|lanes| lanes as u16))
}

async fn set_types(
    connection: &mut PgConnection,
    declared: &Declared<'_>,
) -> Result<(), StoreError> {
    let query = sqlx::query(include_str!("../sql/schema/set_types.sql"))
        .bind(declared.subscription)
        .bind(declared.types)
        .bind(terms_text(declared)?);
    query
        .execute(connection)
        .await
        .map_err(while_doing(REGISTER))?;
    Ok(())
}

fn terms_text(declared: &Declared<'_>) -> Result<String, StoreError> {
    serde_json::to_string(&declared.terms)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, REGISTER, error))
}

async fn holds_types(connection: &mut PgConnection, types: &[String]) -> Result<bool, StoreError> {
    let query = sqlx::query(include_str!("../sql/schema/holds_types.sql")).bind(types);
    let row = query
        .fetch_one(connection)
        .await
        .map_err(while_doing(REGISTER))?;
    row.try_get("holds").map_err(while_doing(REGISTER))
}

pub(crate) async fn rename(
    connection: &mut PgConnection,
    from: &str,
    to: &str,
) -> Result<(), StoreError> {
    for statement in [
        include_str!("../sql/schema/rename_subscriptions.sql"),
        include_str!("../sql/schema/rename_lanes.sql"),
        include_str!("../sql/schema/rename_positions.sql"),
        include_str!("../sql/schema/rename_deferrals.sql"),
        include_str!("../sql/schema/rename_cases.sql"),
        include_str!("../sql/schema/rename_pauses.sql"),
        include_str!("../sql/schema/rename_campaigns.sql"),
        include_str!("../sql/schema/rename_campaign_items.sql"),
        include_str!("../sql/schema/rename_ledger.sql"),
        include_str!("../sql/schema/rename_operation_ledger.sql"),
    ] {
        let query = sqlx::query(statement).bind(from).bind(to);
        query
            .execute(&mut *connection)
            .await
            .map_err(while_doing(REGISTER))?;
    }
    Ok(())
}
