//! Rows of tables as the core's types, and many rows in one statement.

use std::collections::BTreeMap;

use onceward_core::lane::slot_of;
use onceward_core::rate::RateLimit;
use onceward_core::retry::Spent;
use onceward_core::store::{Correction, StoreError, StoreErrorKind};
use onceward_core::{Envelope, FailureRecord, Payload, Row, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, TypeInfo, ValueRef};

/// SQLite's integers are signed.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count or number that is never negative in the tables.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(crate) fn small<T: TryFrom<i64> + Default>(value: i64) -> T {
    T::try_from(value).unwrap_or_default()
}

/// A wait from microseconds, rounded up so that it is never over too early.
pub(crate) fn wait_ms(micros: i64) -> u64 {
    unsigned(micros).div_ceil(1_000)
}

/// As JSON text for a column of ours.
pub(crate) fn to_json<T: Serialize>(value: &T, action: &'static str) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, action, error))
}

/// From the JSON text of a column of ours.
pub(crate) fn from_json<T: DeserializeOwned>(
    text: &str,
    action: &'static str,
) -> Result<T, StoreError> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, action, error))
}

/// The headers column: absent where there are none.
pub(crate) fn headers(
    attributes: &BTreeMap<String, String>,
    action: &'static str,
) -> Result<Option<String>, StoreError> {
    if attributes.is_empty() {
        return Ok(None);
    }
    to_json(attributes, action).map(Some)
}

/// The two payload columns, one of them set.
pub(crate) const fn payload_columns(payload: &Payload) -> (Option<&str>, Option<&[u8]>) {
    match payload {
        Payload::Json(text) => (Some(text), None),
        Payload::Binary(bytes) => (None, Some(bytes)),
    }
}

/// A message from a row with the outbox's column names, the source filled in.
pub(crate) fn message(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let seq = unsigned(row.try_get("seq")?);
    let envelope = Envelope {
        id: text(row, "id")?.unwrap_or_default(),
        source: text(row, "source")?,
        aggregate_type: text(row, "aggregatetype")?.unwrap_or_default(),
        aggregate_id: text(row, "aggregateid")?.unwrap_or_default(),
        message_type: text(row, "type")?.unwrap_or_default(),
        operation_id: text(row, "operationid")?,
        partition_key: text(row, "partitionkey")?,
        schema_version: row.try_get::<Option<i64>, _>("schemaversion")?.map(small),
        aggregate_version: row.try_get("aggregateversion")?,
        occurred_at: moment(row, "occurred_at")?,
        expires_at: moment(row, "expires_at")?,
        priority: small(row.try_get("priority")?),
        attributes: text(row, "headers")?.map_or_else(BTreeMap::new, |json| attributes(&json)),
        payload: payload(row)?,
    };
    Ok(Row {
        xid: seq,
        seq,
        slot: slot_of(envelope.key()),
        recorded_at: Timestamp::from_micros(row.try_get("recorded_at")?),
        envelope,
        corrects: None,
    })
}

/// A text. What another language stored as text without being UTF-8 is spelled out in hexadecimal
/// digits: such a row must neither stop the log nor be taken for another one.
pub(crate) fn text(row: &SqliteRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<&[u8]> = row.try_get_unchecked(column)?;
    Ok(bytes.map(|bytes| match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("not-utf8:{digits}")
        }
    }))
}

fn payload(row: &SqliteRow) -> Result<Payload, sqlx::Error> {
    payload_of(row, "payload", "payload_binary")
}

fn payload_of(row: &SqliteRow, in_json: &str, in_binary: &str) -> Result<Payload, sqlx::Error> {
    let json: Option<&[u8]> = row.try_get_unchecked(in_json)?;
    if let Some(bytes) = json {
        return Ok(match std::str::from_utf8(bytes) {
            Ok(text) => Payload::Json(text.into()),
            Err(_) => Payload::Binary(bytes.into()),
        });
    }
    let binary: Option<&[u8]> = row.try_get(in_binary)?;
    Ok(Payload::Binary(binary.unwrap_or_default().into()))
}

/// What has taken the place of a row, if it was corrected.
pub(crate) fn correction(row: &SqliteRow) -> Result<Option<Correction>, sqlx::Error> {
    let Some(id) = row.try_get("corrected_id")? else {
        return Ok(None);
    };
    let payload = payload_of(row, "corrected_payload", "corrected_payload_binary")?;
    Ok(Some(Correction { id, payload }))
}

/// Microseconds, or a text that SQLite's own date functions understand.
fn moment(row: &SqliteRow, column: &str) -> Result<Option<Timestamp>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    if value.type_info().name() == "INTEGER" {
        let micros = row.try_get_unchecked(column)?;
        return Ok(Some(Timestamp::from_micros(micros)));
    }
    let text = text(row, column)?.unwrap_or_default();
    let utc = || format!("{}Z", text.replacen(' ', "T", 1)).parse();
    Ok(text.parse().or_else(|_| utc()).ok())
}

/// CloudEvents attributes are texts; numbers and booleans of other producers keep their spelling.
pub(crate) fn attributes(json: &str) -> BTreeMap<String, String> {
    let parsed: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(json).unwrap_or_default();
    let texts = parsed.into_iter().filter_map(|(name, value)| match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some((name, text)),
        other => Some((name, other.to_string())),
    });
    texts.collect()
}

/// Budget columns; `age_ms` is the caller's.
pub(crate) fn spent(row: &SqliteRow, age_ms: u64) -> Result<Spent, sqlx::Error> {
    Ok(Spent {
        failures: small(row.try_get("failures")?),
        deaths: small(row.try_get("deaths")?),
        waits: small(row.try_get("waits")?),
        age_ms,
    })
}

/// A failure column.
pub(crate) fn failure(
    row: &SqliteRow,
    action: &'static str,
) -> Result<Option<FailureRecord>, StoreError> {
    use crate::error::Attempt;
    let json: Option<&str> = row.try_get("failure").attempting(action)?;
    json.map(|json| from_json(json, action)).transpose()
}

/// A statement whose `VALUES` line is repeated, in three sizes, so that the prepared statements
/// stay few.
pub(crate) struct Rows([(usize, String); 3]);

impl Rows {
    /// From a statement with one tuple, alone on the line after `VALUES`.
    pub(crate) fn of(sql: &str) -> Self {
        const HEAD: &str = "VALUES\n";
        let after = sql.find(HEAD).map_or(sql.len(), |at| at + HEAD.len());
        let (head, rest) = sql.split_at(after);
        let (tuple, tail) = rest.split_once('\n').unwrap_or((rest, ""));
        Self([64, 8, 1].map(|count| {
            let tuples = vec![tuple; count].join(",\n");
            (count, format!("{head}{tuples}\n{tail}"))
        }))
    }

    /// Splits items into statements with as many tuples as there are items.
    pub(crate) fn pieces<'i, T>(
        &'static self,
        mut items: &'i [T],
    ) -> impl Iterator<Item = (&'static str, &'i [T])> {
        std::iter::from_fn(move || {
            let (count, sql) = self.0.iter().find(|(count, _)| *count <= items.len())?;
            let (piece, rest) = items.split_at(*count);
            items = rest;
            Some((sql.as_str(), piece))
        })
    }
}

/// A limit of starts per second, if one is set.
pub(crate) fn rate(row: &SqliteRow) -> Result<Option<RateLimit>, sqlx::Error> {
    let per_second: Option<u32> = row.try_get("rate_per_second")?;
    let burst: Option<u32> = row.try_get("rate_burst")?;
    let both = per_second.zip(burst);
    Ok(both.map(|(per_second, burst)| RateLimit { per_second, burst }))
}
