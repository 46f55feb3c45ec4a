//! Every bench, once and small: that it runs to its end and says what it measured. How fast is never
//! a test's question.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

use onceward_testkit::postgres::TestDatabase;
use serde_json::Value;

/// Runs a bench and returns what it says.
fn bench(store: &str, args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command
        .arg("bench")
        .args(args)
        .args(["--json", "--store", store])
        .env_remove("ONCEWARD_STORE")
        .env_remove("ONCEWARD_CONFIG")
        .env_remove("ONCEWARD_DEMO_BROKER_URL")
        .stdin(Stdio::null());
    // Where the tests' own server is.
    if let Ok(program) = std::env::var(onceward_testkit::brokers::NATS_VARIABLE) {
        let own = std::path::Path::new(&program).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", own.display()));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let shown = String::from_utf8_lossy(&output.stdout);
        panic!("{args:?} says {shown:?}: {error}")
    })
}

/// Each with a figure that has to be there and above nothing.
const BENCHES: &[(&[&str], &str)] = &[
    (&["effects", "--messages", "300"], "/coalesced_per_second"),
    (
        &["held", "--messages", "200", "--keys", "20"],
        "/beside_waiting_keys_per_second",
    ),
    (
        &["drain", "--messages", "300", "--takes-ms", "1"],
        "/doing_nothing_per_second",
    ),
    (
        &["latency", "--messages", "5", "--silences", "1"],
        "/commit_to_start_p50_ms",
    ),
    (&["waiting", "--messages", "500"], "/resident_bytes"),
    (&["idle", "--seconds", "1"], "/seconds"),
    (&["cases", "--cases", "300"], "/cases"),
];

fn all(store: &str, benches: &[(&[&str], &str)]) {
    for (args, figure) in benches {
        let said = bench(store, args);
        let value = said.pointer(figure).and_then(Value::as_f64);
        assert!(value.is_some_and(|value| value > 0.0), "{args:?}: {said}");
    }
}

#[test]
fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    all(
        &format!("sqlite:{}/bench.db", folder.path().display()),
        BENCHES,
    );
}

/// Each round has a database of its own there, which takes its time: only what is written for it.
#[tokio::test]
async fn on_postgres() {
    let database = TestDatabase::lease().await;
    let effects = ["effects", "--messages", "300", "--only", "coalesced"];
    let benches: [(&[&str], &str); 3] = [
        (&effects, "/wal_bytes_per_message"),
        (BENCHES[3].0, BENCHES[3].1),
        (BENCHES[6].0, BENCHES[6].1),
    ];
    all(database.url(), &benches);
}

#[cfg(feature = "nats")]
#[test]
fn with_a_broker() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/bench.db", folder.path().display());
    let benches: &[(&[&str], &str)] = &[
        (
            &["relay", "--broker", "nats", "--messages", "200"],
            "/relayed_per_second",
        ),
        (
            &[
                "consume",
                "--broker",
                "nats",
                "--messages",
                "200",
                "--sweep",
            ],
            "/recommended_prefetch",
        ),
    ];
    all(&store, benches);
}
