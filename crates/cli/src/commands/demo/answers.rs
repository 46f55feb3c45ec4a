//! The answers that the generator got: on disk before an order counts as acknowledged.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use tokio::sync::{mpsc, oneshot};

use super::verdict::Answer;

/// Answers that may wait for the disk.
const QUEUED_MAX: usize = 256;

struct Entry {
    line: Vec<u8>,
    kept: oneshot::Sender<Result<(), String>>,
}

/// Keeps answers. Clones write to the same file.
#[derive(Clone)]
pub(super) struct Answers {
    entries: mpsc::Sender<Entry>,
}

impl Answers {
    /// Begins a file. Answers that come at the same time share a trip to the disk.
    pub(super) fn in_file(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)?;
        let (entries, mut queued) = mpsc::channel::<Entry>(QUEUED_MAX);
        std::thread::spawn(move || {
            while let Some(first) = queued.blocking_recv() {
                let mut batch = vec![first];
                while let Ok(next) = queued.try_recv() {
                    batch.push(next);
                }
                let bytes: Vec<u8> = batch.iter().flat_map(|e| e.line.iter().copied()).collect();
                let written = file.write_all(&bytes).and_then(|()| file.sync_data());
                let written = written.map_err(|error| error.to_string());
                for entry in batch {
                    let _ = entry.kept.send(written.clone());
                }
            }
        });
        Ok(Self { entries })
    }

    /// Returns once the answer is on disk.
    pub(super) async fn keep(&self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        let (kept, is_kept) = oneshot::channel();
        let gone = || io::Error::other("the file of answers is closed");
        let sent = self.entries.send(Entry { line, kept }).await;
        sent.map_err(|_| gone())?;
        let written = is_kept.await.map_err(|_| gone())?;
        written.map_err(io::Error::other)
    }
}

/// Reads the answers back.
pub(super) fn read_answers(path: &Path) -> io::Result<Vec<Answer>> {
    let text = std::fs::read_to_string(path)?;
    text.lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_kept_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.jsonl");
        let answers = Answers::in_file(&path).unwrap();
        let answer = |i: u32| Answer {
            checkout_id: format!("c-{i}"),
            order_id: format!("ord-{i}"),
            is_replayed: i > 1,
        };
        let (first, second) = (answer(1), answer(2));
        let (a, b) = tokio::join!(answers.keep(&first), answers.keep(&second));
        a.unwrap();
        b.unwrap();
        assert_eq!(read_answers(&path).unwrap(), [first, second]);
        assert!(
            Answers::in_file(&path).is_err(),
            "another run's answers stay apart"
        );
    }
}
