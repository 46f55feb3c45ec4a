//! init, migrate, explain and the command line itself.

use crate::on_both_stores;
use crate::place::{ONE_TYPE, Place};

#[test]
fn init_writes_a_file_that_runs_as_it_is() {
    let place = Place::sqlite();
    let ran = place.run(&["init"]).ended(0);
    assert!(ran.out.contains("wrote onceward.toml"), "{ran:#?}");
    // Only the port is changed, which another test may use.
    let text = std::fs::read_to_string(place.path("onceward.toml")).unwrap();
    place.write(
        "onceward.toml",
        &text.replace("127.0.0.1:8455", "127.0.0.1:0"),
    );
    place.run(&["migrate"]).ended(0);
    let daemon = place.up(&[]);
    assert_eq!(daemon.stop(), 0);
    let secret = std::fs::read_to_string(place.path(".onceward/push-orders.secret")).unwrap();
    assert!(secret.starts_with("whsec_"));
    place.run(&["doctor", "--offline"]).ended(0);
}

#[test]
fn init_never_overwrites_by_itself() {
    let place = Place::sqlite();
    place.write("onceward.toml", "# mine\n");
    place.run(&["init"]).ended(1).says(&["OW1021", "--force"]);
    let text = std::fs::read_to_string(place.path("onceward.toml")).unwrap();
    assert_eq!(text, "# mine\n");
    let ran = place.run(&["init", "--force", "--json"]).ended(0);
    assert_eq!(ran.json()["written"], "onceward.toml");
    place
        .run(&["--config", "no/such/folder/x.toml", "init"])
        .ended(1)
        .says(&["OW1021"]);
}

on_both_stores! {
    async fn migrate_twice_changes_nothing_the_second_time(place) {
        place.configure(ONE_TYPE);
        let first = place.run(&["migrate", "--json"]).ended(0).json();
        assert_eq!(first["has_changed"], true);
        let second = place.run(&["migrate", "--json"]).ended(0).json();
        assert_eq!(second["has_changed"], false);
        assert_eq!(second["version"], first["version"]);
        let ran = place.run(&["migrate"]).ended(0);
        assert!(ran.out.contains("already at version"), "{ran:#?}");
    }

    async fn a_new_era_begins_when_told(place) {
        place.configure(ONE_TYPE);
        place.run(&["migrate"]).ended(0);
        let first = place.run(&["migrate", "--new-era", "--json"]).ended(0).json();
        let second = place.run(&["migrate", "--new-era", "--json"]).ended(0).json();
        assert_eq!(
            first["era"].as_u64().unwrap() + 1,
            second["era"].as_u64().unwrap()
        );
    }
}

#[test]
fn grants_are_printed_without_a_server() {
    let place = Place::sqlite();
    let url = "postgres://127.0.0.1:1/nowhere";
    let ran = place.run(&["migrate", "--grants", "--store", url]).ended(0);
    let sql = ran.out.to_lowercase();
    assert!(
        sql.contains("grant") && sql.contains("producer") && sql.contains("auditor"),
        "{sql}"
    );
    place.configure(ONE_TYPE);
    place
        .run(&["migrate", "--grants"])
        .ended(2)
        .says(&["no roles"]);
}

#[test]
fn codes_are_explained() {
    let place = Place::sqlite();
    let ran = place.run(&["explain", "ow1005"]).ended(0);
    assert!(ran.out.starts_with("# OW1005: "), "{ran:#?}");
    let ran = place.run(&["explain", "OW2001", "--json"]).ended(0);
    assert_eq!(ran.json()["code"], "OW2001");
    place.run(&["explain", "OW9999"]).ended(2).says(&["OW9999"]);
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let place = Place::sqlite();
    for args in [
        &["backlogg"][..],
        &["send", "--no-such-option"],
        &["quarantine", "show", "not-a-number"],
        &["up", "--lease", "1ms"],
        &["send", "--token-file", "x"],
        &[],
    ] {
        let ran = place.run(args).ended(2);
        assert!(ran.out.is_empty(), "{ran:#?}");
    }
    place.run(&["backlogg"]).says(&["backlog"]);
    let ran = place.run(&["--help"]).ended(0);
    assert!(ran.out.contains("Exit status"), "{ran:#?}");
}
