//! Appending to the log in the caller's own transaction.

use std::error::Error as StdError;

use onceward_core::store::{Append, StoreError, StoreErrorKind};
use onceward_core::{Envelope, Payload};
use sqlx::PgConnection;

use crate::copy::{COPY_ROWS_MIN, CopyRows};
use crate::error::{classify, while_doing};
use crate::session::Postgres;

const ACTION: &str = "append to the log";

/// A parameter of [`append_statement`], of the PostgreSQL type in its name.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parameter {
    /// `text`.
    Text(Option<String>),
    /// `smallint`.
    SmallInt(i16),
    /// `integer`.
    Integer(Option<i32>),
    /// `bigint`.
    BigInt(Option<i64>),
    /// `bytea`.
    Bytea(Option<Vec<u8>>),
}

/// Shows the type only: a parameter may be a payload.
impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "<text>",
            Self::SmallInt(_) => "<smallint>",
            Self::Integer(_) => "<integer>",
            Self::BigInt(_) => "<bigint>",
            Self::Bytea(_) => "<bytea>",
        })
    }
}

/// The statement that appends one message, and its parameters in order, for a client other than
/// `sqlx`. Run it inside the transaction that decided the message.
///
/// # Errors
/// `Refused` when a text holds a NUL character, which PostgreSQL cannot keep.
pub fn append_statement(envelope: &Envelope) -> Result<(&'static str, Vec<Parameter>), StoreError> {
    let columns = Columns::of(envelope)?;
    let text = |text: &str| Parameter::Text(Some(text.to_owned()));
    let optional = |text: Option<&str>| Parameter::Text(text.map(str::to_owned));
    let parameters = vec![
        text(&envelope.id),
        optional(envelope.source.as_deref()),
        text(&envelope.aggregate_type),
        text(&envelope.aggregate_id),
        text(&envelope.message_type),
        optional(envelope.operation_id.as_deref()),
        optional(envelope.partition_key.as_deref()),
        Parameter::Integer(envelope.schema_version),
        Parameter::BigInt(envelope.aggregate_version),
        Parameter::Text(columns.headers),
        optional(columns.json),
        Parameter::Bytea(columns.binary.map(<[u8]>::to_vec)),
        Parameter::BigInt(columns.occurred_at),
        Parameter::BigInt(columns.expires_at),
        Parameter::SmallInt(envelope.priority),
    ];
    Ok((include_str!("../sql/append/one.sql"), parameters))
}

/// What of an envelope has another form in the table.
pub(crate) struct Columns<'a> {
    pub(crate) headers: Option<String>,
    pub(crate) json: Option<&'a str>,
    pub(crate) binary: Option<&'a [u8]>,
    pub(crate) occurred_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(envelope: &'a Envelope) -> Result<Self, StoreError> {
        check_texts(envelope)?;
        let headers = if envelope.attributes.is_empty() {
            None
        } else {
            let text = serde_json::to_string(&envelope.attributes);
            Some(text.map_err(|error| StoreError::new(StoreErrorKind::Refused, ACTION, error))?)
        };
        let (json, binary) = match &envelope.payload {
            Payload::Json(text) => (Some(&**text), None),
            Payload::Binary(bytes) => (None, Some(&**bytes)),
        };
        Ok(Self {
            headers,
            json,
            binary,
            occurred_at: envelope.occurred_at.map(|at| at.as_micros()),
            expires_at: envelope.expires_at.map(|at| at.as_micros()),
        })
    }
}

/// Names the field before the server would abort the caller's transaction without naming it.
fn check_texts(envelope: &Envelope) -> Result<(), StoreError> {
    let texts = [
        ("id", Some(envelope.id.as_str())),
        ("source", envelope.source.as_deref()),
        ("aggregatetype", Some(envelope.aggregate_type.as_str())),
        ("aggregateid", Some(envelope.aggregate_id.as_str())),
        ("type", Some(envelope.message_type.as_str())),
        ("operationid", envelope.operation_id.as_deref()),
        ("partitionkey", envelope.partition_key.as_deref()),
    ];
    let attributes = envelope.attributes.iter();
    let attributes = attributes.flat_map(|(name, value)| {
        [
            ("a header's name", Some(name.as_str())),
            ("a header", Some(value.as_str())),
        ]
    });
    for (field, text) in texts.into_iter().chain(attributes) {
        if text.is_some_and(|text| text.contains('\0')) {
            let message = format!("{field} holds a NUL character, which PostgreSQL cannot keep");
            return Err(StoreError::found(StoreErrorKind::Refused, ACTION, message));
        }
    }
    Ok(())
}

impl Append for Postgres {
    type Connection = PgConnection;

    async fn append(
        &self,
        connection: &mut PgConnection,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        if envelopes.len() >= COPY_ROWS_MIN {
            return copy(connection, envelopes).await;
        }
        self.append_by_statement(connection, envelopes).await
    }

    fn classify(&self, error: &(dyn StdError + 'static)) -> Option<StoreErrorKind> {
        classify(error)
    }
}

impl Postgres {
    /// Appends without `COPY`. While the server waits for rows of that, the session does not count
    /// as idle, and nothing would end an effect's transaction whose client is gone.
    pub(crate) async fn append_by_statement(
        &self,
        connection: &mut PgConnection,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        if envelopes.is_empty() {
            return Ok(());
        }
        let is_kept = self.keeps_statements().await;
        match envelopes {
            [envelope] => append_one(connection, envelope, is_kept).await,
            envelopes => append_many(connection, envelopes, is_kept).await,
        }
    }
}

async fn append_one(
    connection: &mut PgConnection,
    envelope: &Envelope,
    is_kept: bool,
) -> Result<(), StoreError> {
    let columns = Columns::of(envelope)?;
    let query = sqlx::query(include_str!("../sql/append/one.sql"))
        .persistent(is_kept)
        .bind(&envelope.id)
        .bind(&envelope.source)
        .bind(&envelope.aggregate_type)
        .bind(&envelope.aggregate_id)
        .bind(&envelope.message_type)
        .bind(&envelope.operation_id)
        .bind(&envelope.partition_key)
        .bind(envelope.schema_version)
        .bind(envelope.aggregate_version)
        .bind(columns.headers)
        .bind(columns.json)
        .bind(columns.binary)
        .bind(columns.occurred_at)
        .bind(columns.expires_at)
        .bind(envelope.priority);
    query
        .execute(connection)
        .await
        .map_err(while_doing(ACTION))?;
    Ok(())
}

async fn append_many(
    connection: &mut PgConnection,
    envelopes: &[Envelope],
    is_kept: bool,
) -> Result<(), StoreError> {
    let columns = envelopes
        .iter()
        .map(Columns::of)
        .collect::<Result<Vec<_>, _>>()?;
    fn each<'a, T>(envelopes: &'a [Envelope], field: impl Fn(&'a Envelope) -> T) -> Vec<T> {
        envelopes.iter().map(field).collect()
    }
    let query = sqlx::query(include_str!("../sql/append/many.sql"))
        .persistent(is_kept)
        .bind(each(envelopes, |e| e.id.as_str()))
        .bind(each(envelopes, |e| e.source.as_deref()))
        .bind(each(envelopes, |e| e.aggregate_type.as_str()))
        .bind(each(envelopes, |e| e.aggregate_id.as_str()))
        .bind(each(envelopes, |e| e.message_type.as_str()))
        .bind(each(envelopes, |e| e.operation_id.as_deref()))
        .bind(each(envelopes, |e| e.partition_key.as_deref()))
        .bind(each(envelopes, |e| e.schema_version))
        .bind(each(envelopes, |e| e.aggregate_version))
        .bind(
            columns
                .iter()
                .map(|c| c.headers.as_deref())
                .collect::<Vec<_>>(),
        )
        .bind(columns.iter().map(|c| c.json).collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.binary).collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.occurred_at).collect::<Vec<_>>())
        .bind(columns.iter().map(|c| c.expires_at).collect::<Vec<_>>())
        .bind(each(envelopes, |e| e.priority));
    query
        .execute(connection)
        .await
        .map_err(while_doing(ACTION))?;
    Ok(())
}

async fn copy(connection: &mut PgConnection, envelopes: &[Envelope]) -> Result<(), StoreError> {
    let mut rows = CopyRows::new(15);
    for envelope in envelopes {
        let columns = Columns::of(envelope)?;
        rows.row();
        rows.text(Some(&envelope.id));
        rows.text(envelope.source.as_deref());
        rows.text(Some(&envelope.aggregate_type));
        rows.text(Some(&envelope.aggregate_id));
        rows.text(Some(&envelope.message_type));
        rows.text(envelope.operation_id.as_deref());
        rows.text(envelope.partition_key.as_deref());
        rows.int4(envelope.schema_version);
        rows.int8(envelope.aggregate_version);
        rows.text(columns.headers.as_deref());
        rows.text(columns.json);
        rows.bytes(columns.binary);
        rows.time(columns.occurred_at);
        rows.time(columns.expires_at);
        rows.int2(envelope.priority);
    }
    let sent = rows.send(connection, include_str!("../sql/append/copy.sql"));
    sent.await.map_err(while_doing(ACTION))?;
    Ok(())
}
