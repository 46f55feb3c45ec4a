//! The input: one CloudEvent per line, in bounded memory.

use std::collections::BTreeSet;
use std::path::Path;

use onceward_core::Envelope;
use onceward_core::cloudevents::from_structured;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::sink::Refused;
use crate::config::suggestion;
use crate::error::{Code, Error};

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// One line that was not blank.
pub(super) enum Line {
    /// An event.
    Event {
        number: u64,
        event: Box<Envelope>,
        bytes: usize,
    },
    /// Something else.
    Refused { number: u64, refused: Refused },
}

/// Lines of a file or of standard input.
pub(super) struct Lines {
    input: Box<dyn AsyncBufRead + Send + Unpin>,
    shown: String,
    number: u64,
    bytes_read: u64,
    buffer: Vec<u8>,
    types: Option<BTreeSet<String>>,
}

impl Lines {
    /// Opens the file, `-` for standard input. Returns its size where it has one.
    pub(super) async fn open(path: &Path) -> Result<(Self, Option<u64>), Error> {
        if path.as_os_str() == "-" {
            let input = BufReader::new(tokio::io::stdin());
            return Ok((
                Self::over(Box::new(input), "standard input".to_owned()),
                None,
            ));
        }
        let shown = path.display().to_string();
        let opened = tokio::fs::File::open(path).await;
        let file = opened.map_err(|e| unreadable(&shown, e))?;
        let metadata = file.metadata().await.map_err(|e| unreadable(&shown, e))?;
        let bytes = metadata.is_file().then_some(metadata.len());
        let input = BufReader::with_capacity(1 << 18, file);
        Ok((Self::over(Box::new(input), shown), bytes))
    }

    fn over(input: Box<dyn AsyncBufRead + Send + Unpin>, shown: String) -> Self {
        Self {
            input,
            shown,
            number: 0,
            bytes_read: 0,
            buffer: Vec::new(),
            types: None,
        }
    }

    /// Only events of these types, where they are known; another is as likely as not a slip.
    pub(super) fn of_types(self, types: Option<BTreeSet<String>>) -> Self {
        Self { types, ..self }
    }

    /// What is wrong with an event that could be read.
    fn objection(&self, event: &Envelope) -> Option<Refused> {
        let types = self.types.as_ref()?;
        if types.contains(&event.message_type) {
            return None;
        }
        let known = types.iter().map(String::as_str);
        let hint = suggestion(&event.message_type, known);
        let message = format!("no message type is called {:?}{hint}", event.message_type);
        Some(Refused {
            pointer: Some("/type".to_owned()),
            message,
        })
    }

    pub(super) const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next line that is not blank; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            let is_whole = match self.read().await? {
                None => return Ok(None),
                Some(is_whole) => is_whole,
            };
            self.number += 1;
            let number = self.number;
            if !is_whole {
                let message = format!("longer than {LINE_BYTES_MAX} bytes");
                let refused = Refused {
                    pointer: None,
                    message,
                };
                return Ok(Some(Line::Refused { number, refused }));
            }
            let mut text = self.buffer.trim_ascii();
            if number == 1 {
                text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
            }
            if text.is_empty() {
                continue;
            }
            return Ok(Some(match from_structured(text) {
                Ok(event) => match self.objection(&event) {
                    Some(refused) => Line::Refused { number, refused },
                    None => Line::Event {
                        number,
                        event: Box::new(event),
                        bytes: text.len(),
                    },
                },
                Err(fault) => {
                    let refused = Refused {
                        pointer: fault.place.pointer().map(str::to_owned),
                        message: fault.message,
                    };
                    Line::Refused { number, refused }
                }
            }));
        }
    }

    /// Reads a line into the buffer: `None` at the end, `Some(false)` when it is too long, in which
    /// case the rest of it is skipped.
    async fn read(&mut self) -> Result<Option<bool>, Error> {
        let mut is_whole = true;
        loop {
            self.buffer.clear();
            let mut bounded = (&mut self.input).take(LINE_BYTES_MAX as u64 + 1);
            let read = bounded.read_until(b'\n', &mut self.buffer).await;
            let read = read.map_err(|e| unreadable(&self.shown, e))?;
            self.bytes_read += read as u64;
            if read == 0 {
                return Ok(if is_whole { None } else { Some(false) });
            }
            if read <= LINE_BYTES_MAX || self.buffer.ends_with(b"\n") {
                return Ok(Some(is_whole));
            }
            is_whole = false;
        }
    }
}

/// An event, or the pointer to a fault in it and what is wrong.
type Read = Result<Envelope, (Option<String>, String)>;

/// The lines of an input that are not blank, with their numbers. For fuzzing only.
///
/// # Errors
/// None: what is in memory can be read.
#[doc(hidden)]
pub async fn read_all(input: Vec<u8>) -> Result<Vec<(u64, Read)>, Error> {
    let input = Box::new(std::io::Cursor::new(input));
    let mut lines = Lines::over(input, "memory".to_owned());
    let mut all = Vec::new();
    while let Some(line) = lines.next().await? {
        all.push(match line {
            Line::Event { number, event, .. } => (number, Ok(*event)),
            Line::Refused { number, refused } => (number, Err((refused.pointer, refused.message))),
        });
    }
    Ok(all)
}

fn unreadable(shown: &str, error: std::io::Error) -> Error {
    Error::new(Code::Input, format!("could not read {shown}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> Vec<Line> {
        let input = std::io::Cursor::new(text.as_bytes().to_vec());
        let mut lines = Lines::over(Box::new(input), "test".into());
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        assert_eq!(lines.bytes_read(), text.len() as u64);
        all
    }

    const GOOD: &str = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1}"#;

    #[tokio::test]
    async fn lines_keep_their_numbers_over_blanks_and_faults() {
        let text = format!("\u{feff}{GOOD}\r\n\n  \n{{\"id\":7}}\nnonsense\n{GOOD}");
        let lines = read(&text).await;
        let mut numbers = Vec::new();
        for line in &lines {
            numbers.push(match line {
                Line::Event { number, event, .. } => (*number, event.id == "1"),
                Line::Refused { number, .. } => (*number, false),
            });
        }
        assert_eq!(numbers, [(1, true), (4, false), (5, false), (6, true)]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_whole() {
        let text = format!("{}\n{GOOD}\n", "x".repeat(2 * LINE_BYTES_MAX + 5));
        let lines = read(&text).await;
        assert_eq!(lines.len(), 2);
        assert!(
            matches!(&lines[0], Line::Refused { number: 1, refused } if refused.message.contains("longer"))
        );
        assert!(matches!(&lines[1], Line::Event { number: 2, .. }));
    }
}
