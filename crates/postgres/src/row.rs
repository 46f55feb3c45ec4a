//! Rows of the log (and copies of them in cases) as they come from the server.

use std::collections::BTreeMap;

use onceward_core::store::Correction;
use onceward_core::{Envelope, Payload, Row, Timestamp};
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{Error, Row as _};

use crate::copy::POSTGRES_EPOCH_MICROS;
use crate::session::moment;

/// Reads the columns that every statement over the log names alike.
pub(crate) fn read_row(row: &PgRow) -> Result<Row, Error> {
    let xid: String = row.try_get("xid")?;
    let seq: i64 = row.try_get("seq")?;
    let slot: i16 = row.try_get("slot")?;
    let recorded_at = read_time(row.try_get("recorded_at")?)?;
    Ok(Row {
        xid: xid
            .parse()
            .map_err(|error| Error::Decode(Box::new(error)))?,
        seq: seq as u64,
        slot: slot as u16,
        recorded_at,
        envelope: read_envelope(row)?,
        corrects: None,
    })
}

/// A time as `timestamptz_send` gives it, which is far less work for the server than a number.
fn read_time(sent: Vec<u8>) -> Result<Timestamp, Error> {
    let micros = sent.try_into().map(i64::from_be_bytes);
    let micros = micros.map_err(|_| Error::Decode("a time does not have eight bytes".into()))?;
    Ok(moment(micros.saturating_add(POSTGRES_EPOCH_MICROS)))
}

fn read_envelope(row: &PgRow) -> Result<Envelope, Error> {
    let payload = match row.try_get::<Option<String>, _>("payload")? {
        Some(text) => Payload::Json(text.into()),
        None => Payload::Binary(row.try_get::<Vec<u8>, _>("payload_binary")?.into()),
    };
    let at = |name| {
        row.try_get::<Option<Vec<u8>>, _>(name)?
            .map(read_time)
            .transpose()
    };
    Ok(Envelope {
        id: row.try_get("id")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregatetype")?,
        aggregate_id: row.try_get("aggregateid")?,
        message_type: row.try_get("type")?,
        operation_id: row.try_get("operationid")?,
        partition_key: row.try_get("partitionkey")?,
        schema_version: row.try_get("schemaversion")?,
        aggregate_version: row.try_get("aggregateversion")?,
        occurred_at: at("occurred_at")?,
        expires_at: at("expires_at")?,
        priority: row.try_get("priority")?,
        attributes: read_attributes(row.try_get("headers")?)?,
        payload,
    })
}

/// What has taken the place of a row, if it was corrected.
pub(crate) fn read_correction(row: &PgRow) -> Result<Option<Correction>, Error> {
    let Some(id) = row.try_get("corrected_id")? else {
        return Ok(None);
    };
    let payload = match row.try_get::<Option<String>, _>("corrected_payload")? {
        Some(text) => Payload::Json(text.into()),
        None => Payload::Binary(
            row.try_get::<Vec<u8>, _>("corrected_payload_binary")?
                .into(),
        ),
    };
    Ok(Some(Correction { id, payload }))
}

/// Attributes are texts. What a producer wrote otherwise is carried as its JSON text.
pub(crate) fn read_attributes(headers: Option<String>) -> Result<BTreeMap<String, String>, Error> {
    let Some(headers) = headers else {
        return Ok(BTreeMap::new());
    };
    let values: BTreeMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(&headers).map_err(|error| Error::Decode(Box::new(error)))?;
    let attributes = values.into_iter().filter_map(|(name, raw)| {
        let text = match serde_json::from_str(raw.get()) {
            Ok(Value::Null) => return None,
            Ok(Value::String(text)) => text,
            _ => raw.get().to_owned(),
        };
        Some((name, text))
    });
    Ok(attributes.collect())
}
