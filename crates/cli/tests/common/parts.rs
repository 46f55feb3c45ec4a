//! Processes of the demo, seen from outside.

use std::path::Path;
use std::time::{Duration, Instant};

/// Waits for something that cannot signal.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes that were started with something of `folder`.
pub(crate) fn parts_of(folder: &Path) -> usize {
    let folder = folder.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(folder))
        .count()
}

/// Whether nothing is left in a folder.
pub(crate) fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}
