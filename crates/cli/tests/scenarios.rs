//! `onceward demo --scenario …`, as a program, on both stores; and verdicts that say no.

// In a test, what cannot be unwrapped is the failure.
#![allow(clippy::unwrap_used)]

#[path = "common/parts.rs"]
mod parts;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use onceward_testkit::postgres::TestDatabase;
use parts::{is_empty, parts_of, until};
use serde_json::Value;

/// A scenario with its temporary files in `folder`.
fn scenario(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command
        .args(["demo", "--scenario", name, "--json"])
        .env("TMPDIR", folder)
        .env_remove("ONCEWARD_STORE")
        .env_remove("ONCEWARD_CONFIG")
        .stdin(Stdio::null());
    command
}

fn verdict(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("no verdict ({error}): {said}")
    })
}

/// Everything was done once, every claim holds, and nothing is left.
fn holds(name: &str, output: &Output, folder: &Path) {
    let verdict = verdict(output);
    assert_eq!(output.status.code(), Some(0), "{verdict:#}");
    assert_eq!(verdict["scenario"], name);
    assert_eq!(verdict["is_good"], true, "{verdict:#}");
    for field in ["lost", "doubled", "unasked"] {
        assert_eq!(verdict[field], 0, "{field} in {verdict:#}");
    }
    assert!(verdict["accepted"].as_u64().unwrap() > 0, "{verdict:#}");
    let claims = verdict["claims"].as_array().unwrap();
    assert!(claims.len() >= 4, "{verdict:#}");
    assert!(
        claims.iter().all(|claim| claim["is_met"] == true),
        "{verdict:#}"
    );
    assert!(is_empty(folder), "the run left something");
}

macro_rules! scenarios {
    ($($name:ident)+) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn sqlite() {
                    let folder = tempfile::tempdir().unwrap();
                    let name = stringify!($name);
                    let output = scenario(name, folder.path()).output().unwrap();
                    holds(name, &output, folder.path());
                }

                #[tokio::test]
                async fn postgres() {
                    let database = TestDatabase::lease().await;
                    let folder = tempfile::tempdir().unwrap();
                    let name = stringify!($name);
                    let mut command = scenario(name, folder.path());
                    let output = command.env("ONCEWARD_STORE", database.url()).output().unwrap();
                    holds(name, &output, folder.path());
                }
            }
        )+
    };
}

scenarios!(poison outage ratelimit ambiguous gap hotkey replay);

/// A set-up that is broken on purpose: the handler, the receiver, or the carrier and its client.
#[test]
fn a_broken_set_up_is_found_out() {
    for (name, broken, field) in [
        ("gap", "losing", "lost"),
        ("outage", "losing", "lost"),
        ("ratelimit", "doubling", "doubled"),
        ("ambiguous", "doubling", "doubled"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = scenario(name, folder.path());
        let output = command.args(["--broken", broken]).output().unwrap();
        let verdict = verdict(&output);
        assert_eq!(output.status.code(), Some(1), "{verdict:#}");
        assert!(verdict[field].as_u64().unwrap() > 0, "{verdict:#}");
        assert_eq!(verdict["is_good"], false, "{verdict:#}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("OW1030"), "{said}");
        let kept = verdict["folder"].as_str().unwrap();
        assert!(Path::new(kept).is_dir(), "the evidence is kept");
    }
}

#[test]
fn people_see_what_happens_and_each_claim() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    let output = command
        .args(["demo", "--scenario", "ratelimit", "--keep", "--no-color"])
        .env("TMPDIR", folder.path())
        .env_remove("ONCEWARD_STORE")
        .env_remove("ONCEWARD_CONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{out}{said}");
    assert!(
        out.contains("\u{2713} lost: 0") && !out.contains('\u{2717}'),
        "{out}"
    );
    assert!(out.contains("ratelimit: all of it holds"), "{out}");
    assert!(
        said.contains("$ onceward backlog") && said.contains("Retry-After: "),
        "{said}"
    );
    let kept = std::fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert!(kept.path().join("receiver.jsonl").exists());
}

#[test]
fn scenarios_are_listed_and_refuse_what_they_do_not_take() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command
            .args(args)
            .env_remove("ONCEWARD_STORE")
            .output()
            .unwrap()
    };
    let help = run(&["demo", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for name in [
        "poison",
        "outage",
        "ratelimit",
        "ambiguous",
        "gap",
        "hotkey",
        "replay",
    ] {
        assert!(help.contains(&format!("- {name}:")), "{name} in {help}");
    }
    let both = run(&["demo", "--scenario", "gap", "--orders", "5"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn parts_of_a_killed_scenario_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = scenario("hotkey", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the parts work", || parts_of(folder.path()) == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    until("all parts are gone", || parts_of(folder.path()) == 0);
}
