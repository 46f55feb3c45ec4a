//! What is refused, where it says so, and with which exit status.

use crate::on_both_stores;
use crate::place::{ONE_TYPE, Place, event, push_to};

#[test]
fn without_a_configuration_it_says_what_to_do() {
    let place = Place::sqlite();
    for args in [&["backlog"][..], &["up"], &["send"], &["migrate"]] {
        place.run(args).ended(1).says(&["OW1001", "onceward.toml"]);
    }
}

#[test]
fn all_faults_of_a_file_are_listed_with_their_places() {
    let place = Place::sqlite();
    place.configure(
        "[message.\"order.ship\"]\nkind = \"command\"\n\n\
         [subscription.a]\nmessages = [\"order.ship\", \"order.lost\"]\ntimout = 3\n\n\
         [subscription.b]\nmessages = [\"order.ship\"]\n",
    );
    let ran = place.run(&["up"]).ended(1);
    let ran = ran.says(&[
        "OW1002",
        "3 faults",
        "onceward.toml:8:1: a command has exactly one owning subscription, but a, b all take it",
        "onceward.toml:11:27: no message type is called \"order.lost\"",
        "onceward.toml:12:1: no setting is called \"timout\" in [subscription.a]; did you mean \
         \"timeout\"?",
    ]);
    assert!(ran.out.is_empty(), "{ran:#?}");
    let ran = place.run(&["up", "--json"]).ended(1);
    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(error["error"]["code"], "OW1002");
    assert_eq!(error["error"]["faults"][0]["line"], 8);
    assert_eq!(error["error"]["faults"][2]["code"], "OW1011");
}

#[test]
fn a_store_that_is_away_is_named_without_its_password() {
    let place = Place::sqlite();
    let url = "postgres://app:hunter2@127.0.0.1:1/orders";
    for args in [
        &["backlog", "--store", url][..],
        &["send", "--store", url],
        &["operation", "show", "x", "--store", url],
        &["migrate", "--store", url],
    ] {
        let ran = place.run(args).ended(1);
        let ran = ran.says(&["OW1005", "connect", "127.0.0.1:1/orders"]);
        assert!(
            !ran.err.contains("hunter2") && ran.out.is_empty(),
            "{ran:#?}"
        );
    }
    place
        .run(&["backlog", "--store", "sqlite:none.db"])
        .ended(1)
        .says(&["OW1005", "none.db"]);
    assert!(
        !place.path("none.db").exists(),
        "asking must not make a file"
    );
    place
        .run(&["backlog", "--store", "mysql://x/y"])
        .ended(1)
        .says(&["OW1004"]);
}

on_both_stores! {
    async fn tables_that_are_missing_are_not_made_in_passing(place) {
        place.configure(ONE_TYPE);
        if place.is_sqlite() {
            place.write("onceward.db", "");
        }
        for args in [&["up"][..], &["backlog"], &["send"], &["quarantine", "list"]] {
            place.run(args).ended(4).says(&["OW1007", "onceward migrate"]);
        }
    }

    async fn what_is_not_there_is_not_found(place) {
        place.configure(ONE_TYPE);
        place.run(&["migrate"]).ended(0);
        place.run(&["operation", "show", "nothing"]).ended(1).says(&["OW1023", "nothing"]);
        place.run(&["quarantine", "show", "7"]).ended(1).says(&["OW1023", "case 7"]);
        let of_the_log = ["replay", "plan", "--subscription", "s", "--of", "log", "--why", "w"];
        for of_cases in [["--case", "3"], ["--fingerprint", "ab"], ["--owner", "ada"]] {
            let args = [&of_the_log[..], &of_cases].concat();
            place.run(&args).ended(2).says(&["OW1043", "nothing was planned", of_cases[0]]);
        }
        place.run(&["backlog", "--subscription", "none"]).ended(1).says(&["OW1023", "none"]);
        let ran = place.run(&["quarantine", "list", "--json"]).ended(0);
        assert_eq!(ran.json()["cases"], serde_json::json!([]));
    }

    async fn a_new_subscription_on_a_log_with_its_messages_needs_a_start(place) {
        let config = push_to("http://127.0.0.1:9/hook");
        place.configure(&config.replace("start = \"earliest\"\n", ""));
        place.run(&["migrate"]).ended(0);
        place.run_with_input(&["send"], event("1", "order.accepted", "o", "1")).ended(0);
        place.run(&["up"]).ended(1).says(&["OW1024", "[subscription.hook]", "earliest"]);
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let place = Place::sqlite();
    let mut child = place.start(&["explain", "OW1005"]);
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        ended.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[test]
fn a_password_on_the_command_line_is_warned_of() {
    let place = Place::sqlite();
    let url = "postgres://app:hunter2@127.0.0.1:1/orders";
    place
        .run(&["backlog", "--store", url])
        .says(&["warning", "url_file"]);
    let ran = place.run(&["backlog", "--store", "postgres://app@127.0.0.1:1/orders"]);
    assert!(!ran.err.contains("warning"), "{ran:#?}");
}
