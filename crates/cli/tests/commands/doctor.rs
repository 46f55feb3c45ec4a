//! `doctor`: finds what is wrong and says how to repair it.

use axum::http::StatusCode;
use serde_json::Value;
use sqlx::Connection as _;

use crate::on_both_stores;
use crate::place::{Place, Ran, push_to};
use crate::receiver::Receiver;

/// The check of a name.
#[track_caller]
fn check<'v>(report: &'v Value, name: &str) -> &'v Value {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name:?} in {report:#}"))
}

fn examine(place: &Place, code: i32) -> Value {
    place.run(&["doctor", "--json"]).ended(code).json()
}

on_both_stores! {
    async fn everything_in_order(place) {
        let receiver = Receiver::start(|_| StatusCode::OK, false).await;
        place.configure(&push_to(&receiver.url()));
        place.run(&["migrate"]).ended(0);
        // A server for tests may be one that loses what it commits, which is rightly not in order.
        let mut expected = Vec::new();
        if !place.is_sqlite() {
            for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
                expected.push((setting, place.psql(&format!("show {setting}")).await));
            }
        }
        let is_safe = expected.iter().all(|(_, value)| value != "off");
        let report = examine(&place, i32::from(!is_safe));
        assert_eq!(report["ok"], is_safe);
        for (setting, value) in &expected {
            let verdict = if value == "off" { "failed" } else { "ok" };
            assert_eq!(check(&report, setting)["verdict"], verdict, "{report:#}");
        }
        let common = ["configuration", "store", "tables", "listener", "target of push hook"];
        let special = if place.is_sqlite() {
            &["journal mode", "synchronous", "folder"][..]
        } else {
            &["version", "role", "encoding", "clocks", "pooler", "secret of the store"]
        };
        for name in common.iter().chain(special) {
            assert_eq!(check(&report, name)["verdict"], "ok", "{report:#}");
        }
        check(&report, if place.is_sqlite() { "disk" } else { "connections" });
    }

    async fn missing_tables_and_a_target_that_is_away(place) {
        place.configure(&push_to("http://127.0.0.1:9/hook"));
        if place.is_sqlite() {
            place.write("onceward.db", "");
        }
        let report = examine(&place, 1);
        assert_eq!(check(&report, "tables")["fix"], "onceward migrate");
        let target = check(&report, "target of push hook");
        assert_eq!(target["verdict"], "failed");
        assert!(target["fix"].as_str().unwrap().contains("start the receiver"));
        let people: Ran = place.run(&["doctor"]).ended(1);
        assert!(people.out.contains("FAILED  tables") && people.out.contains("fix: onceward migrate"), "{people:#?}");
        let people = people.says(&["OW1028"]);
        assert!(!people.out.contains('\u{1b}'), "no colours into a pipe");
    }
}

#[test]
fn a_store_that_is_away_does_not_hide_the_rest() {
    let place = Place::sqlite();
    place.configure(&push_to("http://127.0.0.1:9/hook"));
    let url = "postgres://app:hunter2@127.0.0.1:1/orders";
    let ran = place
        .run(&["doctor", "--json", "--offline", "--store", url])
        .ended(1);
    let report = ran.json();
    assert_eq!(check(&report, "configuration")["verdict"], "ok");
    assert_eq!(check(&report, "store")["verdict"], "failed");
    assert!(!ran.out.contains("hunter2"), "{ran:#?}");
}

#[test]
fn secrets_that_others_can_read_are_found() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::sqlite();
    let config = push_to("http://127.0.0.1:9/hook");
    place.configure(&config.replace("/hook\" }", "/hook\", secret_file = \"hook.secret\" }"));
    place.run(&["migrate"]).ended(0);
    let report = place
        .run(&["doctor", "--json", "--offline"])
        .ended(1)
        .json();
    assert_eq!(check(&report, "secret of push hook")["verdict"], "failed");
    place.write(
        "hook.secret",
        "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n",
    );
    let chmod = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.path("hook.secret"), permissions).unwrap();
    };
    chmod(0o644);
    let report = place
        .run(&["doctor", "--json", "--offline"])
        .ended(1)
        .json();
    let secret = check(&report, "secret of push hook");
    assert!(
        secret["fix"].as_str().unwrap().starts_with("chmod 600"),
        "{secret}"
    );
    chmod(0o600);
    let good = std::fs::read_to_string(place.path("hook.secret")).unwrap();
    place.write("hook.secret", "hunter2");
    let ran = place.run(&["doctor", "--json", "--offline"]).ended(1);
    assert_eq!(
        check(&ran.json(), "secret of push hook")["verdict"],
        "failed"
    );
    assert!(!ran.out.contains("hunter2"), "{ran:#?}");
    place.write("hook.secret", &good);
    let report = place
        .run(&["doctor", "--json", "--offline"])
        .ended(0)
        .json();
    assert_eq!(check(&report, "secret of push hook")["verdict"], "ok");
}

#[test]
fn faults_of_the_file_are_checks_too() {
    let place = Place::sqlite();
    place.configure("[message.\"t\"]\nknd = \"event\"\n");
    let report = examine(&place, 1);
    let found = check(&report, "configuration");
    assert!(
        found["found"]
            .as_str()
            .unwrap()
            .contains("did you mean \"kind\"?"),
        "{found}"
    );
    assert_eq!(found["fix"], "onceward explain OW1011");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_holds_retention_back_is_named() {
    let place = Place::postgres().await;
    place.configure(&push_to("http://127.0.0.1:9/hook"));
    place.run(&["migrate"]).ended(0);
    let url = std::fs::read_to_string(place.path("store.url")).unwrap();
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let open = connection.begin().await.unwrap();
    let report = place.run(&["doctor", "--json", "--offline"]).json();
    let found = check(&report, "open transactions")["found"]
        .as_str()
        .unwrap();
    assert!(found.contains(&format!("pid {pid} ")), "{found}");
    open.rollback().await.unwrap();
}
