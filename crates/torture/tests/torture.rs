//! Short runs on both databases, runs with broken workers, and records broken by hand.

#![allow(clippy::unwrap_used, reason = "an error here is a failed test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use onceward_torture::points::POINTS;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

fn torture(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args(words).output().unwrap()
}

/// What a run says, and whether it ended well.
fn report(words: &[&str]) -> (Value, bool) {
    let mut all = vec!["--json"];
    if !words.contains(&"--drain-s") {
        all.extend(["--drain-s", "200"]);
    }
    all.extend(words);
    let output = torture(&all);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last().unwrap_or_else(|| panic!("{said}"));
    let report = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said}"));
    (report, output.status.success())
}

fn remove_kept(report: &Value) {
    if let Some(kept) = report["kept"].as_str() {
        std::fs::remove_dir_all(kept).unwrap();
    }
}

fn assert_clean(report: &Value, is_success: bool) {
    assert!(is_success, "{report:#}");
    for count in ["lost", "doubled", "out_of_order", "wrong"] {
        assert_eq!(report[count], 0, "{report:#}");
    }
    for count in ["rounds", "kills", "messages", "states", "checks"] {
        assert!(report[count].as_u64() > Some(0), "{count}: {report:#}");
    }
    assert_eq!(report["kept"], Value::Null);
}

#[test]
fn a_short_run_on_sqlite_loses_and_doubles_nothing() {
    let (report, is_success) = report(&["--store", "sqlite", "--rounds", "6", "--seed", "11"]);
    assert_clean(&report, is_success);
    let not_run = report["not_run"].as_array().unwrap();
    assert!(
        not_run
            .iter()
            .any(|why| why.as_str().unwrap().starts_with("restart:"))
    );
}

#[test]
fn a_short_run_on_postgresql_loses_and_doubles_nothing() {
    let (report, is_success) = report(&["--store", "postgres", "--rounds", "6", "--seed", "12"]);
    assert_clean(&report, is_success);
}

#[test]
fn a_run_kills_at_the_point_that_it_is_told() {
    let words = [
        "--store",
        "sqlite",
        "--rounds",
        "3",
        "--seed",
        "13",
        "--point",
        "after-commit",
    ];
    let (report, is_success) = report(&words);
    assert_clean(&report, is_success);
    assert!(
        report["kills_by_point"]["after-commit"].as_u64() > Some(0),
        "{report:#}"
    );
    let output = torture(&["--store", "sqlite", "--rounds", "1", "--point", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("after-commit"));
}

/// Until the worker's fault shows; the seed only says where it shows first.
fn broken(how: &str, count: &str, more: &[&str]) {
    let words = [
        "--store",
        "sqlite",
        "--rounds",
        "60",
        "--check-every",
        "4",
        "--seed",
        "14",
        "--broken",
        how,
    ];
    let mut all = words.to_vec();
    all.extend(more);
    let (report, is_success) = report(&all);
    assert!(!is_success, "nobody noticed: {report:#}");
    assert!(report[count].as_u64() > Some(0), "{count}: {report:#}");
    assert!(
        Path::new(report["kept"].as_str().unwrap())
            .join("place.json")
            .exists()
    );
    remove_kept(&report);
}

/// Without a ledger row no message counts as finished, so there is nothing to wait for. What had its
/// effect and died before its position was saved has it again.
#[test]
fn a_worker_without_a_ledger_is_seen_to_double() {
    let more = ["--point", "before-position", "--drain-s", "10"];
    broken("no-ledger", "doubled", &more);
}

#[test]
fn a_worker_that_calls_again_without_a_look_is_seen_to_double() {
    broken("blind", "doubled", &[]);
}

#[test]
fn a_worker_that_only_says_that_it_wrote_is_seen_to_lose() {
    broken("losing", "lost", &[]);
}

#[test]
fn an_effect_outside_its_transaction_is_seen_to_double() {
    let words = [
        "--store",
        "postgres",
        "--rounds",
        "60",
        "--check-every",
        "4",
        "--seed",
        "15",
    ];
    let mut all = words.to_vec();
    all.extend(["--broken", "outside-transaction"]);
    let (report, is_success) = report(&all);
    assert!(!is_success, "nobody noticed: {report:#}");
    assert!(report["doubled"].as_u64() > Some(0), "{report:#}");
    remove_kept(&report);
}

/// A copy of a kept folder with its database.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn of(kept: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(kept).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        Self { folder }
    }

    fn url(&self) -> String {
        format!(
            "sqlite://{}",
            self.folder.path().join("torture.db").display()
        )
    }

    async fn run(&self, sql: &str) {
        let mut connection = SqliteConnection::connect(&self.url()).await.unwrap();
        let sql = AssertSqlSafe(sql.to_owned());
        let done = sqlx::query(sql).execute(&mut connection).await.unwrap();
        assert!(done.rows_affected() > 0, "nothing was broken");
        connection.close().await.unwrap();
    }

    /// What a look says, a line for each finding.
    fn found(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let output = torture(&["check", "--folder", folder, "--store", &self.url()]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: Vec<String> = text.lines().map(str::to_owned).collect();
        let code = i32::from(!found.is_empty());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        found
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_broken_by_hand_are_named() {
    let words = [
        "--store", "sqlite", "--rounds", "3", "--seed", "16", "--keep",
    ];
    let (report, is_success) = report(&words);
    assert!(is_success, "{report:#}");
    let kept = PathBuf::from(report["kept"].as_str().unwrap());
    assert_eq!(Copy::of(&kept).found(), Vec::<String>::new());
    // One effect of a key that has two in this subscription.
    let of = "SELECT min(n) FROM effects WHERE subscription = 'effects'";
    let damages = [
        (
            "Lost in effects",
            format!("DELETE FROM effects WHERE n = ({of})"),
        ),
        (
            "Doubled in effects",
            format!(
                "INSERT INTO effects (subscription, id, outcome, attempt, worker)
                 SELECT subscription, id, outcome, attempt, worker FROM effects WHERE n = ({of})"
            ),
        ),
        (
            "OutOfOrder in effects",
            "UPDATE effects SET n = -n WHERE subscription = 'effects'".to_owned(),
        ),
        (
            "Lost in log",
            "DELETE FROM onceward_outbox WHERE id LIKE 'e00001-c%'".to_owned(),
        ),
        (
            "Wrong in effects",
            "DELETE FROM onceward_ledger WHERE subscription = 'effects'".to_owned(),
        ),
    ];
    for (name, sql) in damages {
        let copy = Copy::of(&kept);
        copy.run(&sql).await;
        let found = copy.found();
        assert!(
            found.iter().any(|line| line.starts_with(name)),
            "{name}: {found:#?}"
        );
    }
    let copy = Copy::of(&kept);
    let record = copy.folder.path().join("carrier.jsonl");
    std::fs::write(&record, "").unwrap();
    let found = copy.found();
    assert!(
        found.iter().any(|line| line.starts_with("Lost in carrier")),
        "{found:#?}"
    );
    remove_kept(&report);
}

/// Names in the engine's source.
#[test]
fn the_failure_points_are_those_of_the_engine() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../onceward/src/engine");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(source).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let names = text.split("failure_point!(\"").skip(1);
        found.extend(names.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    let known: BTreeSet<String> = POINTS.iter().map(|point| (*point).to_owned()).collect();
    assert_eq!(found, known);
}
