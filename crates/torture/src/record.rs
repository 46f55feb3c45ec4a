//! Records that belong to nobody's database: files to which lines are added.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A file of lines. A line is written with one call, so that a process that is killed leaves a
/// whole line or none.
#[derive(Debug)]
pub(crate) struct Lines(File);

impl Lines {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(file))
    }

    pub(crate) fn add(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }

    /// Adds a line that survives also the end of the machine.
    pub(crate) fn add_durably(&mut self, line: &str) -> io::Result<()> {
        self.add(line)?;
        self.0.sync_data()
    }
}

/// All whole lines of a file; nothing when there is no file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<String>> {
    let mut text = String::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}
