//! How a process shows from outside that it has unfinished work: a number in a small file.
//!
//! The number is written before work begins and after it has ended, so it is never more than what
//! is really unfinished. Whoever stops the process (SIGSTOP) can read it at leisure.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts what is in hand. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct InHand(Option<Arc<Mutex<Shown>>>);

#[derive(Debug)]
struct Shown {
    file: File,
    count: u32,
}

impl Shown {
    fn change(&mut self, to: u32) {
        self.count = to;
        // The number is for observers; the work goes on without them.
        let _ = self.file.write_all_at(format!("{to:08}\n").as_bytes(), 0);
    }
}

/// One piece of work; ended by dropping it.
#[derive(Debug)]
#[must_use = "the work ends when this is dropped"]
pub struct Piece(InHand);

impl InHand {
    /// Shows the number in a file, which begins at nothing.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn shown_in(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)?;
        let mut shown = Shown { file, count: 0 };
        shown.change(0);
        Ok(Self(Some(Arc::new(Mutex::new(shown)))))
    }

    /// Takes a piece of work in hand.
    pub fn take(&self) -> Piece {
        self.step(|count| count + 1);
        Piece(self.clone())
    }

    /// What a file shows; nothing when there is none.
    #[must_use]
    pub fn read(path: &Path) -> u32 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn step(&self, next: impl FnOnce(u32) -> u32) {
        if let Some(shown) = &self.0 {
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            let to = next(shown.count);
            shown.change(to);
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.step(|count| count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_shows_what_is_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in-hand");
        assert_eq!(InHand::read(&path), 0);
        let in_hand = InHand::shown_in(&path).unwrap();
        let first = in_hand.take();
        let second = in_hand.clone().take();
        assert_eq!(InHand::read(&path), 2);
        drop(first);
        assert_eq!(InHand::read(&path), 1);
        drop(second);
        assert_eq!(InHand::read(&path), 0);
        drop(InHand::default().take());
    }
}
