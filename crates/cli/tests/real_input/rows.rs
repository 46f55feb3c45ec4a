//! Rows that other programs insert: `psql`, Python's `psycopg` and `sqlite3`.

use std::process::Command;

use sqlx::{Connection as _, Row as _};

use crate::place::Place;
use crate::python::{self, Checker};
use crate::{SECRET, push_with_secret};

async fn receiver(place: &Place) -> Checker {
    place.write_secret("receiver.secret", SECRET);
    let receiver = Checker::start(&place.path("receiver.secret"), &[]).await;
    place.configure(&push_with_secret(place, &receiver.url()));
    receiver
}

fn with_psql(place: &Place, id: &str) {
    let output = Command::new("psql")
        .arg(place.database_url())
        .args([
            "--no-psqlrc",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "aggregate=ord-1",
            "-v",
        ])
        .arg(format!("id={id}"))
        .arg("-f")
        .arg(python::scripts().join("insert.sql"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_psql_and_psycopg_are_delivered_as_they_were_written() {
    let place = Place::postgres().await;
    let mut receiver = receiver(&place).await;
    let daemon = place.up(&["--migrate"]);
    with_psql(&place, "psql-1");
    let request = receiver.next_good().await;
    assert_eq!(request["headers"]["webhook-id"], "psql-1");
    let body = r#"{"from": "psql", "n": 9007199254740993, "n": -0.10}"#;
    assert_eq!(request["body"], body);
    let url = place.database_url();
    let printed = python::run("insert_psycopg.py", &[url, "--id", "psycopg-1"]);
    assert_eq!(printed, ["psycopg-1"]);
    let request = receiver.next_good().await;
    assert_eq!(request["headers"]["webhook-id"], "psycopg-1");
    let body = "{\"from\": \"psycopg\", \"n\": 9007199254740993, \"s\": \"\\u0000\"}";
    assert_eq!(request["body"], body);
    assert_eq!(request["headers"]["ce-aggregatetype"], "order");
    assert_eq!(request["headers"]["ce-subject"], "ord-731");
    // Once more with the same business row: all of that transaction is undone, the event too.
    let failed = std::panic::catch_unwind(|| python::run("insert_psycopg.py", &[url, "--id", "x"]));
    assert!(failed.is_err());
    with_psql(&place, "psql-2");
    assert_eq!(
        receiver.next_good().await["headers"]["webhook-id"],
        "psql-2"
    );
    place.watch("psql-2", 0);
    assert_eq!(daemon.stop(), 0);
    assert!(receiver.is_idle());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_pythons_sqlite3_is_delivered_as_it_was_written() {
    let place = Place::sqlite();
    let mut receiver = receiver(&place).await;
    let daemon = place.up(&["--migrate"]);
    let file = place.path("onceward.db");
    for (id, aggregate) in [("sqlite3-1", "ord-1"), ("sqlite3-2", "ord-2")] {
        let args = [file.to_str().unwrap(), "--id", id, "--aggregate", aggregate];
        assert_eq!(python::run("insert_sqlite.py", &args), [id]);
        let request = receiver.next_good().await;
        assert_eq!(request["headers"]["webhook-id"], id);
        let body = "{\"from\": \"sqlite3\", \"n\": 9007199254740993, \"s\": \"\\u0000\"}";
        assert_eq!(request["body"], body);
        place.watch(id, 0);
    }
    assert_eq!(daemon.stop(), 0);
    assert!(receiver.is_idle());
}

/// A receiver in another language has its effect once, by the ledger's public insert.
#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_keeps_one_effect_of_a_python_service() {
    let place = Place::postgres().await;
    let mut receiver = receiver(&place).await;
    let daemon = place.up(&["--migrate"]);
    with_psql(&place, "psql-1");
    let request = receiver.next_good().await;
    place.watch("psql-1", 0);
    let header = |name: &str| request["headers"][name].as_str().unwrap();
    let url = place.database_url();
    let (source, recorded) = (header("ce-source"), header("ce-recordedtime"));
    let named = [
        ("--subscription", "hook"),
        ("--source", source),
        ("--type", "order.accepted"),
        ("--identity", "psql-1"),
    ];
    let mut args = vec![url];
    args.extend(named.iter().flat_map(|(name, value)| [*name, *value]));
    let by_operation = args.clone();
    args.extend(["--recordedtime", recorded]);
    assert_eq!(python::run("ledger_psycopg.py", &args), ["1", "0"]);
    // Another process later finds it as well.
    assert_eq!(python::run("ledger_psycopg.py", &args), ["0", "0"]);
    // The same operation once more, however often its message came.
    assert_eq!(python::run("ledger_psycopg.py", &by_operation), ["1", "0"]);
    let state = place.state_of("psql-1");
    assert_eq!(
        (&state["state"], &state["ending"]),
        (&"finished".into(), &"done".into()),
        "{state}"
    );
    assert_eq!(state.get("result"), None, "withheld");
    let args = [
        "operation",
        "show",
        "psql-1",
        "--json",
        "--reveal",
        "--why",
        "a test",
    ];
    let shown = place.run(&args).ended(0).json();
    let result = &shown["messages"][0]["subscriptions"]["hook"]["result"];
    assert_eq!(result, "{\"shipment\": \"s-1\"}");
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let count = sqlx::query("select count(*) from python_shipments").fetch_one(&mut connection);
    assert_eq!(
        count.await.unwrap().get::<i64, _>(0),
        2,
        "one for each identity"
    );
    assert_eq!(daemon.stop(), 0);
}
