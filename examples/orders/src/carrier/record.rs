//! The carrier's own record: a file to which a line is added for each booking, on disk before
//! anybody is told.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Line {
    /// Work was done.
    Booked {
        /// Who asked: the idempotency key.
        operation: String,
        /// The order.
        order_id: String,
        /// The carrier's own number.
        booking: String,
    },
    /// The same was asked for again, or looked up, and answered from the record.
    Repeated {
        /// Who asked.
        operation: String,
    },
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It cannot be read or written.
    #[error("the record cannot be used")]
    Io(#[from] io::Error),
    /// A line is none.
    #[error("line {line} of the record cannot be read")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
}

/// The record, open for adding.
#[derive(Debug)]
pub struct Record {
    file: File,
    bookings: HashMap<String, String>,
    count: u64,
    is_forgetful: bool,
}

impl Record {
    /// Opens a record or begins one. What a crash left half written at its end was never answered
    /// for, and is cut off. A forgetful carrier books again each time it is asked: what a target
    /// that does not honour the key would do.
    ///
    /// # Errors
    /// When the file cannot be used or a line in it is none.
    pub fn open(path: &Path, is_forgetful: bool) -> Result<Self, RecordError> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(path)?;
        let (lines, whole_bytes) = read_whole_lines(path)?;
        file.set_len(whole_bytes)?;
        file.seek(SeekFrom::End(0))?;
        let mut record = Self {
            file,
            bookings: HashMap::new(),
            count: 0,
            is_forgetful,
        };
        for line in lines {
            if let Line::Booked {
                operation, booking, ..
            } = line
            {
                record.count += 1;
                record.bookings.insert(operation, booking);
            }
        }
        Ok(record)
    }

    /// Books, unless that was done. Returns the number, which is on disk by then.
    ///
    /// # Errors
    /// When the record cannot be written; nothing is booked then.
    pub fn book(&mut self, operation: &str, order_id: &str) -> io::Result<String> {
        if !self.is_forgetful
            && let Some(booking) = self.bookings.get(operation).cloned()
        {
            self.repeated(operation)?;
            return Ok(booking);
        }
        let booking = format!("bk-{:06}", self.count + 1);
        self.add(&Line::Booked {
            operation: operation.to_owned(),
            order_id: order_id.to_owned(),
            booking: booking.clone(),
        })?;
        self.file.sync_data()?;
        self.count += 1;
        self.bookings.insert(operation.to_owned(), booking.clone());
        Ok(booking)
    }

    /// What was booked for an operation.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn find(&mut self, operation: &str) -> io::Result<Option<String>> {
        let found = self.bookings.get(operation).cloned();
        if found.is_some() {
            self.repeated(operation)?;
        }
        Ok(found)
    }

    /// For statistics only: need not survive the machine.
    fn repeated(&mut self, operation: &str) -> io::Result<()> {
        let operation = operation.to_owned();
        self.add(&Line::Repeated { operation })
    }

    fn add(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }
}

/// Reads a record. A half-written end, which nobody was told of, is left out.
///
/// # Errors
/// When there is no file or a line in it is none.
pub fn read_record(path: &Path) -> Result<Vec<Line>, RecordError> {
    Ok(read_whole_lines(path)?.0)
}

/// Reads a file of JSON lines, with the bytes that its whole lines take.
///
/// # Errors
/// When there is no file or a line in it is none.
pub fn read_whole_lines<L: DeserializeOwned>(path: &Path) -> Result<(Vec<L>, u64), RecordError> {
    let bytes = std::fs::read(path)?;
    let whole = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let mut lines = Vec::new();
    for (i, line) in bytes[..whole].split_inclusive(|b| *b == b'\n').enumerate() {
        let line = serde_json::from_slice(line).map_err(|source| {
            let line = i + 1;
            RecordError::Line { line, source }
        })?;
        lines.push(line);
    }
    Ok((lines, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn booked(path: &Path) -> usize {
        let lines = read_record(path).unwrap();
        let is_booked = |line: &&Line| matches!(line, Line::Booked { .. });
        lines.iter().filter(is_booked).count()
    }

    #[test]
    fn an_operation_is_booked_once_across_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carrier.jsonl");
        let first = Record::open(&path, false)
            .unwrap()
            .book("checkout-284", "ord-731")
            .unwrap();
        let mut again = Record::open(&path, false).unwrap();
        assert_eq!(again.book("checkout-284", "ord-731").unwrap(), first);
        assert_eq!(again.find("checkout-284").unwrap(), Some(first.clone()));
        assert_eq!(again.find("checkout-285").unwrap(), None);
        assert_ne!(again.book("checkout-285", "ord-732").unwrap(), first);
        assert_eq!(booked(&path), 2);
        assert_eq!(read_record(&path).unwrap().len(), 4, "two repeats");
    }

    #[test]
    fn a_half_written_end_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carrier.jsonl");
        Record::open(&path, false)
            .unwrap()
            .book("a", "ord-1")
            .unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"{"what":"booked","operation":"b","#)
            .unwrap();
        assert_eq!(booked(&path), 1);
        let mut record = Record::open(&path, false).unwrap();
        assert_eq!(record.find("b").unwrap(), None);
        assert_eq!(record.book("b", "ord-2").unwrap(), "bk-000002");
        assert_eq!(booked(&path), 2);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carrier.jsonl");
        Record::open(&path, false)
            .unwrap()
            .book("a", "ord-1")
            .unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"odd\n").unwrap();
        let error = Record::open(&path, false).unwrap_err();
        assert!(
            matches!(error, RecordError::Line { line: 2, .. }),
            "{error:?}"
        );
    }

    #[test]
    fn a_forgetful_carrier_books_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carrier.jsonl");
        let mut record = Record::open(&path, true).unwrap();
        let first = record.book("a", "ord-1").unwrap();
        assert_ne!(record.book("a", "ord-1").unwrap(), first);
        assert_eq!(booked(&path), 2);
    }
}
