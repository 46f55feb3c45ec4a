//! Many rows at once: `COPY … FROM STDIN` in PostgreSQL's binary format.
//!
//! For appends outside effects: while the server waits for rows, no timeout ends the session.
//!
//! The server writes such rows to the log of writes a page at a time and not one by one, which
//! costs about 50 bytes a row less, and runs no statement for them. What a column not named has by
//! default it has here too. The format: "COPY", binary format, in PostgreSQL's reference.

use sqlx::PgConnection;

/// From how many rows on this is worth its second round trip.
pub(crate) const COPY_ROWS_MIN: usize = 16;

/// Begins the data; then flags and the length of an extension, both zero.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// In place of a row's number of columns: there are no more rows.
const TRAILER: i16 = -1;
/// In place of a value's length: there is no value.
const NULL: i32 = -1;
/// Microseconds from 1970, where ours begin, to 2000, where the server's do.
pub(crate) const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;
/// Bytes that are put together before they are sent.
const CHUNK_BYTES: usize = 1 << 20;

/// Rows on their way.
#[derive(Debug)]
pub(crate) struct CopyRows {
    bytes: Vec<u8>,
    columns: i16,
}

impl CopyRows {
    /// No rows yet, of so many columns each.
    pub(crate) fn new(columns: i16) -> Self {
        let mut bytes = Vec::with_capacity(64 << 10);
        bytes.extend_from_slice(HEADER);
        Self { bytes, columns }
    }

    /// Begins a row. Its values follow, each by a call of its own, in the order of the columns.
    pub(crate) fn row(&mut self) {
        self.bytes.extend_from_slice(&self.columns.to_be_bytes());
    }

    /// A value of `text`, `json` or `bytea`.
    pub(crate) fn bytes(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else {
            return self.null();
        };
        // More than the server takes for one value would be refused by it with its own words.
        let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(value);
    }

    /// A value of `text` or `json`.
    pub(crate) fn text(&mut self, value: Option<&str>) {
        self.bytes(value.map(str::as_bytes));
    }

    /// A value of `smallint`.
    pub(crate) fn int2(&mut self, value: i16) {
        self.bytes(Some(&value.to_be_bytes()));
    }

    /// A value of `integer`.
    pub(crate) fn int4(&mut self, value: Option<i32>) {
        self.bytes(
            value
                .map(i32::to_be_bytes)
                .as_ref()
                .map(<[u8; 4]>::as_slice),
        );
    }

    /// A value of `bigint`.
    pub(crate) fn int8(&mut self, value: Option<i64>) {
        self.bytes(
            value
                .map(i64::to_be_bytes)
                .as_ref()
                .map(<[u8; 8]>::as_slice),
        );
    }

    /// A value of `timestamptz`, in microseconds since 1970.
    pub(crate) fn time(&mut self, micros: Option<i64>) {
        self.int8(micros.map(|micros| micros.saturating_sub(POSTGRES_EPOCH_MICROS)));
    }

    fn null(&mut self) {
        self.bytes.extend_from_slice(&NULL.to_be_bytes());
    }

    /// Sends them with a `COPY` statement, in the connection's transaction, and returns how many
    /// the server took. An error leaves the transaction failed.
    pub(crate) async fn send(
        mut self,
        connection: &mut PgConnection,
        statement: &str,
    ) -> Result<u64, sqlx::Error> {
        self.bytes.extend_from_slice(&TRAILER.to_be_bytes());
        let mut copy = connection.copy_in_raw(statement).await?;
        for chunk in self.bytes.chunks(CHUNK_BYTES) {
            copy.send(chunk).await?;
        }
        copy.finish().await
    }
}
