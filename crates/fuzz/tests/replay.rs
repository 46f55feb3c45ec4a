//! Every kept input, and seeded changes to them, hold what the targets ask. The same on every
//! machine; `scripts/fuzz` looks for new ones.
//!
//! `ONCEWARD_FUZZ_ROUNDS` sets the changes per target. `ONCEWARD_FUZZ_INPUT=FILE` with the name of
//! one test runs that input alone.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use onceward_fuzz::{TARGETS, mutate, target};

/// Changed inputs per target where nothing else is said.
const ROUNDS: u32 = 2_000;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The kept inputs of a target, by name.
fn kept(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = fs::read_dir(corpora().join(name)).expect("a target has a folder");
    let mut kept = Vec::new();
    for entry in folder {
        let path = entry.expect("a folder can be listed").path();
        let data = fs::read(&path).expect("an input can be read");
        kept.push((path, data));
    }
    kept.sort();
    kept
}

/// Runs one input; a failing one is written down, and the way to run it again is said.
fn hold(name: &str, data: &[u8], origin: &str) {
    let run = target(name).expect("a target has this name");
    let outcome = catch_unwind(AssertUnwindSafe(|| run(data)));
    if outcome.is_err() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("failing-{name}"));
        fs::write(&path, data).expect("an input can be written");
        panic!(
            "{name} fails for {origin}; again: \
             ONCEWARD_FUZZ_INPUT={} cargo test -p onceward-fuzz --test replay {name}\n{}",
            path.display(),
            data.escape_ascii()
        );
    }
}

fn replay(name: &str) {
    if let Some(path) = std::env::var_os("ONCEWARD_FUZZ_INPUT") {
        let data = fs::read(&path).expect("the input can be read");
        return hold(name, &data, &path.to_string_lossy());
    }
    let kept = kept(name);
    assert!(kept.len() > 4, "{name} has a corpus");
    for (path, data) in &kept {
        hold(name, data, &path.display().to_string());
    }
    let rounds = std::env::var("ONCEWARD_FUZZ_ROUNDS");
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let entries: Vec<Vec<u8>> = kept.into_iter().map(|(_, data)| data).collect();
    for seed in 0..rounds {
        let data = mutate::mutated(&mut Rng::with_seed(u64::from(seed)), &entries);
        hold(name, &data, &format!("seed {seed}"));
    }
}

macro_rules! replays {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })+

        #[test]
        fn every_target_is_replayed_and_has_a_corpus_and_a_program() {
            let replayed = [$(stringify!($name)),+];
            let known = TARGETS.map(|(name, _)| name);
            assert_eq!(replayed, known);
            let programs = corpora().join("../fuzz_targets");
            for name in known {
                assert!(programs.join(name).with_extension("rs").exists(), "{name}");
            }
            let folders = fs::read_dir(corpora()).expect("there are corpora");
            for folder in folders {
                let folder = folder.expect("a folder can be listed").file_name();
                assert!(known.iter().any(|name| folder == *name), "{folder:?} has no target");
            }
        }
    };
}

replays! {
    cloudevents_binary
    cloudevents_structured
    cloudevents_batch
    envelope
    position
    timestamp
    retry_after
    signature
    http
    config
    store_url
    send_lines
}
