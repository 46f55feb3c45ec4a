//! Migration, eras and declared subscriptions.

use std::time::Duration;

use onceward_core::Position;
use onceward_core::case::fingerprint;
use onceward_core::store::{
    Declared, Registered, Schema, SchemaState, Start, StoreError, StoreErrorKind,
};
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use crate::Sqlite;
use crate::error::Attempt;
use crate::log::{HEAD, head_position, reached};
use crate::row::{failure, int, small, text, to_json};

const HAS_VERSIONS: &str = include_str!("../sql/schema/has_versions.sql");
const CREATE_VERSIONS: &str = include_str!("../sql/schema/create_versions.sql");
const VERSION: &str = include_str!("../sql/schema/version.sql");
const RECORD_VERSION: &str = include_str!("../sql/schema/record_version.sql");
const SET_SOURCE: &str = include_str!("../sql/schema/set_source.sql");
const START_ERA: &str = include_str!("../sql/schema/start_era.sql");
const FIND_SUBSCRIPTION: &str = include_str!("../sql/schema/find_subscription.sql");
const UPDATE_TYPES: &str = include_str!("../sql/schema/update_types.sql");
const LOG_HAS_TYPES: &str = include_str!("../sql/schema/log_has_types.sql");
const INSERT_SUBSCRIPTION: &str = include_str!("../sql/schema/insert_subscription.sql");
const INSERT_LANE: &str = include_str!("../sql/schema/insert_lane.sql");
const WITHOUT_FINGERPRINT: &str = include_str!("../sql/schema/without_fingerprint.sql");
const SET_FINGERPRINT: &str = include_str!("../sql/schema/set_fingerprint.sql");
const PING: &str = include_str!("../sql/schema/ping.sql");

/// What a renamed subscription takes over.
const FORMER_MEMBERS: &str = include_str!("../sql/schema/former_members.sql");
const RENAMES: [&str; 9] = [
    include_str!("../sql/schema/rename_in_subscription.sql"),
    include_str!("../sql/schema/rename_in_lane.sql"),
    include_str!("../sql/schema/rename_in_deferral.sql"),
    include_str!("../sql/schema/rename_in_case.sql"),
    include_str!("../sql/schema/rename_in_pause.sql"),
    include_str!("../sql/schema/rename_in_campaign.sql"),
    include_str!("../sql/schema/rename_in_campaign_item.sql"),
    include_str!("../sql/schema/rename_in_ledger.sql"),
    include_str!("../sql/schema/rename_in_operation_ledger.sql"),
];

/// Name and statements of each version, in order from 1.
const MIGRATIONS: [(&str, &str); 8] = [
    ("tables", include_str!("../migrations/0001_tables.sql")),
    ("operate", include_str!("../migrations/0002_operate.sql")),
    ("replay", include_str!("../migrations/0003_replay.sql")),
    ("order", include_str!("../migrations/0004_order.sql")),
    ("cases", include_str!("../migrations/0005_cases.sql")),
    ("still", include_str!("../migrations/0006_still.sql")),
    ("dropped", include_str!("../migrations/0007_dropped.sql")),
    (
        "needs_person",
        include_str!("../migrations/0008_needs_person.sql"),
    ),
];

const PING_WAIT: Duration = Duration::from_secs(5);
const MIGRATING: &str = "migrate the tables";
const REGISTERING: &str = "register a subscription";

const fn newest() -> u32 {
    MIGRATIONS.len() as u32
}

fn state_of(version: u32) -> SchemaState {
    match version {
        0 => SchemaState::Missing,
        version if version > newest() => SchemaState::Ahead {
            version,
            known: newest(),
        },
        version if version < newest() => SchemaState::Behind {
            version,
            needed: newest(),
        },
        version => SchemaState::Current { version },
    }
}

async fn version(connection: &mut SqliteConnection) -> Result<u32, sqlx::Error> {
    let has_versions = sqlx::query_scalar(HAS_VERSIONS).fetch_one(&mut *connection);
    if !has_versions.await? {
        return Ok(0);
    }
    let version: i64 = sqlx::query_scalar(VERSION).fetch_one(connection).await?;
    Ok(small(version))
}

/// Cases of a time before there were fingerprints get theirs.
async fn fill_fingerprints(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let rows = sqlx::query(WITHOUT_FINGERPRINT).fetch_all(&mut *connection);
    for row in rows.await.attempting(MIGRATING)? {
        let case_id: i64 = row.try_get("case_id").attempting(MIGRATING)?;
        let subscription = row.try_get("subscription").attempting(MIGRATING)?;
        let message_type = text(&row, "type").attempting(MIGRATING)?;
        let Some(failure) = failure(&row, MIGRATING)? else {
            continue;
        };
        let print = fingerprint(subscription, &message_type.unwrap_or_default(), &failure);
        let set = sqlx::query(SET_FINGERPRINT).bind(case_id).bind(print);
        set.execute(&mut *connection).await.attempting(MIGRATING)?;
    }
    Ok(())
}

impl Schema for Sqlite {
    async fn schema_state(&self) -> Result<SchemaState, StoreError> {
        const ACTION: &str = "compare the tables' version";
        let mut connection = self.reads().acquire().await.attempting(ACTION)?;
        let version = version(&mut connection).await.attempting(ACTION)?;
        Ok(state_of(version))
    }

    /// All outstanding versions in one transaction: whoever dies half way leaves nothing, whoever
    /// comes second finds it done.
    async fn migrate(&self) -> Result<SchemaState, StoreError> {
        let mut tx = self.write(MIGRATING).await?;
        let found = version(tx.connection()).await.attempting(MIGRATING)?;
        match state_of(found) {
            SchemaState::Ahead { version, known } => {
                let text = format!(
                    "the tables are at version {version}, made by a newer program; this one knows \
                     up to {known}"
                );
                return Err(StoreError::found(StoreErrorKind::Schema, MIGRATING, text));
            }
            SchemaState::Missing | SchemaState::Behind { .. } | SchemaState::Current { .. } => {}
        }
        let created = sqlx::query(CREATE_VERSIONS).execute(tx.connection()).await;
        created.attempting(MIGRATING)?;
        for (version, (name, statements)) in (1_u32..).zip(MIGRATIONS).skip(found as usize) {
            let applied = sqlx::raw_sql(statements).execute(tx.connection()).await;
            applied.attempting(MIGRATING)?;
            let recorded = sqlx::query(RECORD_VERSION)
                .bind(version)
                .bind(name)
                .bind(self.now());
            recorded
                .execute(tx.connection())
                .await
                .attempting(MIGRATING)?;
        }
        fill_fingerprints(tx.connection()).await?;
        let source = sqlx::query(SET_SOURCE)
            .bind(self.source.as_deref().unwrap_or(&self.default_source()))
            .bind(self.source.is_some())
            .execute(tx.connection())
            .await;
        source.attempting(MIGRATING)?;
        tx.commit(MIGRATING).await?;
        Ok(state_of(newest()))
    }

    /// SQLite keeps positions in the same file as the log, so a restored copy is consistent with
    /// itself and a new era moves nothing: numbering goes on, positions stay.
    async fn start_era(&self) -> Result<u32, StoreError> {
        const ACTION: &str = "start a new era";
        let mut tx = self.write(ACTION).await?;
        let era: i64 = sqlx::query_scalar(START_ERA)
            .bind(self.now())
            .fetch_one(tx.connection())
            .await
            .attempting(ACTION)?;
        tx.commit(ACTION).await?;
        Ok(small(era))
    }

    async fn register(&self, declared: Declared<'_>) -> Result<Registered, StoreError> {
        let mut tx = self.write(REGISTERING).await?;
        let connection = tx.connection();
        let mut lanes = find_lanes(connection, declared.subscription).await?;
        if let (None, Some(former)) = (lanes, declared.renamed_from)
            && find_lanes(connection, former).await?.is_some()
        {
            self.free_former(connection, former).await?;
            rename(connection, former, declared.subscription).await?;
            lanes = find_lanes(connection, declared.subscription).await?;
        }
        let registered = match lanes {
            Some(lanes) => {
                sqlx::query(UPDATE_TYPES)
                    .bind(declared.subscription)
                    .bind(to_json(&declared.types, REGISTERING)?)
                    .bind(to_json(&declared.terms, REGISTERING)?)
                    .execute(connection)
                    .await
                    .attempting(REGISTERING)?;
                Registered::Known { lanes }
            }
            None => self.register_new(connection, &declared).await?,
        };
        if registered == Registered::StartMissing {
            tx.roll_back(REGISTERING).await?;
        } else {
            tx.commit(REGISTERING).await?;
        }
        Ok(registered)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        const ACTION: &str = "reach the database";
        let ping = sqlx::query(PING).execute(self.reads());
        match tokio::time::timeout(PING_WAIT, ping).await {
            Ok(answer) => answer.attempting(ACTION).map(|_| ()),
            Err(_) => Err(StoreError::found(
                StoreErrorKind::Unavailable,
                ACTION,
                "no answer within 5 s",
            )),
        }
    }
}

pub(crate) async fn find_lanes(
    connection: &mut SqliteConnection,
    subscription: &str,
) -> Result<Option<u16>, StoreError> {
    let lanes: Option<i64> = sqlx::query_scalar(FIND_SUBSCRIPTION)
        .bind(subscription)
        .fetch_optional(connection)
        .await
        .attempting(REGISTERING)?;
    Ok(lanes.map(small))
}

pub(crate) async fn rename(
    connection: &mut SqliteConnection,
    former: &str,
    subscription: &str,
) -> Result<(), StoreError> {
    for sql in RENAMES {
        let renamed = sqlx::query(sql).bind(former).bind(subscription);
        renamed
            .execute(&mut *connection)
            .await
            .attempting(REGISTERING)?;
    }
    Ok(())
}

impl Sqlite {
    /// Refuses a renaming under processes at work, whose records under the former name nobody would
    /// find, and ends those whose lease has run out.
    pub(crate) async fn free_former(
        &self,
        connection: &mut SqliteConnection,
        former: &str,
    ) -> Result<(), StoreError> {
        let members: Vec<(String, bool)> = sqlx::query_as(FORMER_MEMBERS)
            .bind(former)
            .bind(self.now())
            .fetch_all(&mut *connection)
            .await
            .attempting(REGISTERING)?;
        for (member, is_live) in members {
            if is_live {
                let text = format!("a process still works under the name {former}: stop it first");
                let kind = StoreErrorKind::Conflict;
                return Err(StoreError::found(kind, REGISTERING, text));
            }
            self.end_uncleanly(connection, &member).await?;
        }
        Ok(())
    }

    async fn register_new(
        &self,
        connection: &mut SqliteConnection,
        declared: &Declared<'_>,
    ) -> Result<Registered, StoreError> {
        let types = to_json(&declared.types, REGISTERING)?;
        if declared.start.is_none() {
            let found = sqlx::query_scalar(LOG_HAS_TYPES).bind(&types);
            if found
                .fetch_one(&mut *connection)
                .await
                .attempting(REGISTERING)?
            {
                return Ok(Registered::StartMissing);
            }
        }
        let head = sqlx::query(HEAD).fetch_one(&mut *connection).await;
        let head = head_position(&head.attempting(REGISTERING)?);
        let head = head.attempting(REGISTERING)?;
        // Without rows of its types everything so far can be passed over.
        let (position, not_before) = match declared.start {
            Some(Start::Earliest) => (Position::origin(head.era), None),
            Some(Start::At(at)) => (Position::origin(head.era), Some(at.as_micros())),
            Some(Start::Now) | None => (head, None),
        };
        let start_seq = int(reached(&position));
        sqlx::query(INSERT_SUBSCRIPTION)
            .bind(declared.subscription)
            .bind(declared.lanes)
            .bind(&types)
            .bind(start_seq)
            .bind(not_before)
            .bind(to_json(&declared.terms, REGISTERING)?)
            .bind(self.now())
            .execute(&mut *connection)
            .await
            .attempting(REGISTERING)?;
        let position = to_json(&position, REGISTERING)?;
        for lane in 0..declared.lanes {
            sqlx::query(INSERT_LANE)
                .bind(declared.subscription)
                .bind(lane)
                .bind(&position)
                .bind(start_seq)
                .execute(&mut *connection)
                .await
                .attempting(REGISTERING)?;
        }
        Ok(Registered::New)
    }
}
