//! `onceward demo`, as a program: processes are really killed, and the verdict can fail.

// In a test, what cannot be unwrapped is the failure.
#![allow(clippy::unwrap_used)]

#[path = "common/parts.rs"]
mod parts;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use onceward_testkit::postgres::TestDatabase;
use parts::{is_empty, parts_of, until};
use serde_json::Value;

/// The demo with its temporary files in `folder`.
fn demo(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command
        .args(["demo", "--json"])
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

fn number(verdict: &Value, field: &str) -> u64 {
    verdict[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field} in {verdict}"))
}

fn assert_nothing_lost_or_doubled(output: &Output, orders: u64, kills: u64) {
    let verdict = verdict(output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{verdict} {said}");
    assert_eq!(number(&verdict, "accepted"), orders, "{verdict}");
    let outcomes = number(&verdict, "shipped") + number(&verdict, "rejected");
    assert_eq!(outcomes, orders, "{verdict}");
    for field in ["lost", "doubled", "unasked", "pending", "quarantined"] {
        assert_eq!(number(&verdict, field), 0, "{field} in {verdict}");
    }
    // A kill counts only where it hits unfinished work, so a run may end before its last one.
    let hit = number(&verdict, "kills");
    assert!((3..=kills).contains(&hit), "{verdict}");
    for kind in ["service", "consumer", "carrier"] {
        assert!(number(&verdict["kills_by_process"], kind) >= 1, "{verdict}");
    }
    assert!(number(&verdict, "duplicates_suppressed") > 0, "{verdict}");
    assert!(
        verdict["seconds"].as_f64().is_some_and(|s| s > 0.0),
        "{verdict}"
    );
}

#[test]
fn on_sqlite_nothing_is_lost_or_doubled() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path())
        .args(["--orders", "600", "--kills", "4", "--seed", "11"])
        .output()
        .unwrap();
    assert_nothing_lost_or_doubled(&output, 600, 4);
    assert!(is_empty(folder.path()), "the run left something");
}

#[tokio::test]
async fn on_postgres_nothing_is_lost_or_doubled() {
    let database = TestDatabase::lease().await;
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path())
        .args(["--orders", "600", "--kills", "4", "--seed", "12", "--keep"])
        // Not on the command line, where others could see a password.
        .env("ONCEWARD_STORE", database.url())
        .output()
        .unwrap();
    assert_nothing_lost_or_doubled(&output, 600, 4);
    let store = verdict(&output)["store"].as_str().unwrap().to_owned();
    let (_, own) = store.rsplit_once('/').unwrap();
    let own = own.split('?').next().unwrap();
    assert!(own.starts_with("onceward_demo_"), "{store}");
    let tables = "select count(*) from pg_class where relname = 'shop_orders'";
    assert_eq!(
        database.psql(tables).await.trim(),
        "0",
        "the named database is not touched"
    );
    database
        .psql(&format!("drop database {own} with (force)"))
        .await;
}

#[test]
fn a_broken_consumer_is_found_out() {
    for (broken, field) in [("doubling", "doubled"), ("losing", "lost")] {
        let folder = tempfile::tempdir().unwrap();
        let output = demo(folder.path())
            .args([
                "--orders", "150", "--kills", "0", "--seed", "5", "--broken", broken,
            ])
            .output()
            .unwrap();
        let verdict = verdict(&output);
        assert_eq!(output.status.code(), Some(1), "{verdict}");
        assert!(number(&verdict, field) > 0, "{verdict}");
        assert_eq!(number(&verdict, "accepted"), 150, "{verdict}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("OW1030"), "{said}");
        let kept = verdict["folder"].as_str().unwrap();
        assert!(
            Path::new(kept).join("carrier.jsonl").exists(),
            "the evidence is kept"
        );
    }
}

#[test]
fn orders_come_from_a_file_and_bad_lines_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let order = |id: &str, country: &str| {
        let address = format!(r#"{{"country":"{country}","city":"Gent","street":"Kaai 1"}}"#);
        format!(r#"{{"checkout_id":"{id}","address":{address}}}"#)
    };
    let lines = [
        order("checkout-284", "BE"),
        "{\"checkout_id\":".to_owned(),
        order("checkout-285", "AQ"),
        String::new(),
        order("checkout-284", "BE"),
        order("checkout-284", "NL"),
        order("a/b", "BE"),
    ];
    let input = folder.path().join("orders.jsonl");
    std::fs::write(&input, lines.join("\n")).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(temporary.path())
        .args(["--kills", "0", "--input"])
        .arg(&input)
        .output()
        .unwrap();
    let verdict = verdict(&output);
    assert_eq!(output.status.code(), Some(5), "{verdict}");
    let refused = verdict["refused"].as_array().unwrap();
    let refused: Vec<u64> = refused.iter().map(|r| number(r, "line")).collect();
    // Which of the three that share an id is accepted is a matter of who comes first.
    let is_mismatch = |line: &&u64| [1, 5, 6].contains(*line);
    assert!(
        (1..=2).contains(&refused.iter().filter(is_mismatch).count()),
        "{verdict}"
    );
    let others: Vec<u64> = refused
        .iter()
        .copied()
        .filter(|l| !is_mismatch(&l))
        .collect();
    assert_eq!(others, [2, 7], "{verdict}");
    assert_eq!(number(&verdict, "accepted"), 2, "{verdict}");
    assert_eq!(number(&verdict, "shipped"), 1, "{verdict}");
    assert_eq!(number(&verdict, "rejected"), 1, "{verdict}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("line 2: ") && said.contains("line 7: "),
        "{said}"
    );
}

#[test]
fn a_server_that_is_away_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path())
        .env("ONCEWARD_STORE", "postgres://app:hunter2@127.0.0.1:1/shop")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("127.0.0.1:1/shop") && !said.contains("hunter2"),
        "{said}"
    );
    assert!(output.stdout.is_empty() && is_empty(folder.path()));
}

/// A demo in the midst of its work, which would take long.
fn at_work(folder: &Path) -> Child {
    let child = demo(folder)
        .args(["--orders", "200000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let has_answers = || {
        let mut entries = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
        entries.any(|entry| {
            let answers = std::fs::metadata(entry.path().join("answers.jsonl"));
            answers.is_ok_and(|answers| answers.len() > 0)
        })
    };
    until("the first order is acknowledged", has_answers);
    child
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = at_work(folder.path());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(folder.path()));
    until("all parts are gone", || parts_of(folder.path()) == 0);
}

#[test]
fn parts_of_a_killed_demo_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = at_work(folder.path());
    assert_eq!(parts_of(folder.path()), 4);
    child.kill().unwrap();
    child.wait().unwrap();
    until("all parts are gone", || parts_of(folder.path()) == 0);
}

/// The demo as two services, with a broker of this kind between them.
fn between(kind: &str, folder: &Path) -> Command {
    let mut command = demo(folder);
    command.args(["--broker", kind, "--orders", "400", "--kills", "4"]);
    command.env_remove("ONCEWARD_DEMO_BROKER_URL");
    // Where the tests' own server is.
    if let Ok(program) = std::env::var(onceward_testkit::brokers::NATS_VARIABLE) {
        let own = Path::new(&program).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", own.display()));
    }
    command
}

#[cfg(feature = "nats")]
#[test]
fn two_services_with_a_broker_that_is_killed_lose_and_double_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = between("nats", folder.path())
        .args(["--seed", "21"])
        .output();
    let output = output.unwrap();
    assert_nothing_lost_or_doubled(&output, 400, 7);
    let kills = &verdict(&output)["kills_by_process"];
    assert_eq!(
        (number(kills, "broker"), number(kills, "order-book")),
        (1, 2)
    );
    assert!(is_empty(folder.path()), "the run left something");
}

#[cfg(feature = "rabbitmq")]
#[tokio::test]
async fn two_services_with_rabbitmq_between_them_lose_and_double_nothing() {
    let database = TestDatabase::lease().await;
    let folder = tempfile::tempdir().unwrap();
    let url = onceward_testkit::brokers::RabbitServer::shared_url().await;
    let output = between("rabbitmq", folder.path())
        .args(["--seed", "22", "--store", database.url()])
        .env("ONCEWARD_DEMO_BROKER_URL", url)
        .output()
        .unwrap();
    assert_nothing_lost_or_doubled(&output, 400, 6);
}

#[cfg(feature = "nats")]
#[test]
fn between_two_services_what_is_doubled_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let output = between("nats", folder.path())
        .args(["--seed", "23", "--broken", "doubling"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(number(&verdict(&output), "doubled") > 0);
}

#[cfg(feature = "rabbitmq")]
#[test]
fn a_server_that_has_to_be_named_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = between("rabbitmq", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ONCEWARD_DEMO_BROKER_URL"), "{said}");
    assert!(is_empty(folder.path()), "the run left something");
}

#[cfg(not(feature = "rabbitmq"))]
#[test]
fn a_broker_that_this_build_does_not_have_says_which_feature_does() {
    let folder = tempfile::tempdir().unwrap();
    let output = between("rabbitmq", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--features rabbitmq"), "{said}");
    assert!(is_empty(folder.path()), "the run left something");
}
