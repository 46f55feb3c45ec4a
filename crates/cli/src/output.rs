//! What a command says: data on standard output, talk on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use onceward_core::Timestamp;
use serde::Serialize;

use crate::error::{Code, Error};

/// Where a command's words go, and in what form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
    color: bool,
}

impl Output {
    /// `json` for programs; colours only on a terminal, and never with `no_color` or `NO_COLOR`.
    #[must_use]
    pub fn new(json: bool, no_color: bool) -> Self {
        let forbidden = no_color || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self {
            json,
            color: !json && !forbidden,
        }
    }

    /// Whether data are wanted as JSON.
    #[must_use]
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// Whether colours are permitted.
    #[must_use]
    pub const fn has_color(self) -> bool {
        self.color
    }

    /// Whether people watch standard error, so that a progress bar is of use.
    #[must_use]
    pub fn has_audience(self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    /// One line of data.
    ///
    /// # Errors
    /// When standard output is gone; a reader that has had enough is [`Error::is_broken_pipe`].
    pub fn line(self, text: &str) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        let written = out
            .write_all(text.as_bytes())
            .and_then(|()| out.write_all(b"\n"));
        written
            .and_then(|()| out.flush())
            .map_err(|e| Error::new(Code::Output, "could not write the output").with_source(e))
    }

    /// Data as one line of JSON.
    ///
    /// # Errors
    /// As [`line`](Self::line).
    pub fn json(self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::new(Code::Output, "could not write JSON").with_source(e))?;
        self.line(&text)
    }

    /// A table for people.
    ///
    /// # Errors
    /// As [`line`](Self::line).
    pub fn table(self, table: &Table) -> Result<(), Error> {
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        self.line(&lines.join("\n"))
    }

    /// A remark for people, on standard error; of no consequence when nobody listens.
    pub fn say(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// The text in green on a terminal.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.painted(text, "32", io::stdout().is_terminal())
    }

    /// The text in red on a terminal.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        self.painted(text, "31", io::stdout().is_terminal())
    }

    fn painted(self, text: &str, color: &str, is_terminal: bool) -> String {
        if self.color && is_terminal {
            format!("\u{1b}[{color}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Says why a command failed: for people, or as JSON when that was asked for.
    pub fn failure(self, error: &Error) {
        if self.json {
            self.say(&error.to_json().to_string());
            return;
        }
        let code = error.code().as_str();
        let label = self.painted("error", "31", io::stderr().is_terminal());
        self.say(&format!("{label}[{code}]: {}", error.full_message()));
        for fault in error.found_faults() {
            self.say(&format!("  {fault}"));
        }
        self.say(&format!("  what to do: onceward explain {code}"));
    }
}

/// A text of somebody else on one line, with control characters escaped: they could move the cursor,
/// or make believe that something else was said.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

/// An empty table with these headings.
#[must_use]
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings.iter().copied());
    table
}

/// Aligns columns of numbers.
pub fn align_right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The moment of this process's clock.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// An age in milliseconds for people: its two largest units.
#[must_use]
pub fn age(ms: i64) -> String {
    let ms = u64::try_from(ms).unwrap_or(0);
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let whole_seconds = Duration::from_secs(ms / 1_000);
    let text = humantime::format_duration(whole_seconds).to_string();
    let units: Vec<&str> = text.split(' ').take(2).collect();
    units.join(" ")
}

/// The age of something that may not exist.
#[must_use]
pub fn age_since(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "-".to_owned(), |then| age(now.millis_since(then)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        assert_eq!(age(-5), "0ms");
        assert_eq!(age(999), "999ms");
        assert_eq!(age(61_500), "1m 1s");
        assert_eq!(age(90_061_000), "1day 1h");
        assert_eq!(age_since(None, Timestamp::default()), "-");
        let then = Timestamp::from_micros(0);
        assert_eq!(age_since(Some(then), then.plus_millis(3_000)), "3s");
    }

    #[test]
    fn json_is_never_painted() {
        assert_eq!(Output::new(true, false).bad("x"), "x");
        assert_eq!(Output::new(false, true).good("x"), "x");
    }
}
