//! What commands and the daemon say to somebody who meets them for the first time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::on_both_stores;
use crate::place::{ONE_TYPE, Place, event, push_to};
use crate::receiver::{Received, Receiver};

fn with_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Refuses everything until it is mended.
async fn mendable() -> (Receiver, Arc<AtomicBool>) {
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let answer = move |_: &Received| match mended.load(Ordering::SeqCst) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::BAD_REQUEST,
    };
    (Receiver::start(answer, false).await, is_mended)
}

/// The only case, once there is one that is open.
fn open_case(place: &Place) -> String {
    place.until("a case is open", || {
        let listed = place.run(&["quarantine", "list", "--json"]).ended(0).json();
        listed["cases"][0]["case_id"]
            .as_i64()
            .map(|id| id.to_string())
    })
}

/// What the daemon has logged, once it contains something.
fn logged(place: &Place, what: &str) -> String {
    place.until(what, || {
        let log = place.read("up.log");
        log.contains(what).then_some(log)
    })
}

fn plan_of_log(place: &Place) -> Value {
    let args = [
        "replay",
        "plan",
        "--subscription",
        "hook",
        "--of",
        "log",
        "--why",
        "they lost it",
        "--json",
    ];
    place.run(&args).ended(0).json()
}

on_both_stores! {
    async fn names_and_numbers_that_are_none_say_what_was_meant(place) {
        place.configure(&push_to("http://127.0.0.1:9/hook"));
        let daemon = place.up(&["--migrate"]);
        place.run(&["quarantine", "show", "abc"]).ended(2).says(&["by its number", "quarantine list"]);
        place.run(&["quarantine", "release", "7", "x"]).ended(2).says(&["by its number"]);
        place.run(&["replay", "show", "abc"]).ended(2).says(&["by its number", "replay list"]);
        let meant = "did you mean \"hook\"?";
        place.run(&["backlog", "--subscription", "hok"]).ended(1).says(&["OW1023", meant]);
        for args in [
            &["subscription", "pause", "hok", "--why", "x"][..],
            &["subscription", "limit", "hok", "--concurrency", "2", "--why", "x"],
            &["subscription", "retry", "hok"],
            &["subscription", "rename", "hok", "crm", "--why", "x", "--yes"],
            &["replay", "plan", "--subscription", "hok", "--why", "x"],
        ] {
            place.run(args).ended(1).says(&["OW1043", meant]);
        }
        let remove = ["subscription", "remove", "hok", "--why", "x", "--yes"];
        place.run(&remove).ended(1).says(&["OW1023", meant]);
        for args in [&["quarantine", "list"][..], &["quarantine", "groups"]] {
            let args = [args, &["--subscription", "hok"]].concat();
            place.run(&args).ended(0).says(&["no cases", meant]);
        }
        // One that is there needs no such word.
        let known = place.run(&["quarantine", "list", "--subscription", "hook"]).ended(0);
        assert!(!known.err.contains("did you mean"), "{known:#?}");
        place.run(&["subscription", "pause", "hook"]).ended(1).says(&["OW1043", "needs a reason (--why)"]);
        let plan = ["replay", "plan", "--subscription", "hook"];
        place.run(&plan).ended(1).says(&["OW1043", "needs a reason (--why)"]);
        let remove = ["subscription", "remove", "hook", "--why", "x", "--yes"];
        let removed = place.run(&remove).ended(1).says(&["OW1043", "hook is in use", "stop it first"]);
        assert!(!removed.err.contains("register"), "{removed:#?}");
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_case_is_told_of_and_one_that_went_well_says_so(place) {
        with_crypto();
        let (receiver, is_mended) = mendable().await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let secret = "{\"card\":\"4111-secret\",\"lines\":[{\"sku\":\"a-secret\"}]}";
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", secret)).ended(0);
        let case = open_case(&place);
        let log = logged(&place, "a case was opened");
        let line = log.lines().find(|line| line.contains("a case was opened")).unwrap();
        for part in ["hook", "permanent", "http_400", "m1", &case] {
            assert!(line.contains(part), "no {part} in {line}");
        }
        assert!(line.contains("WARN") && !log.contains("secret"), "{log}");
        // Nobody has marked anything: where, and not what.
        let right = "{\"card\":\"5500-secret\",\"lines\":[{\"sku\":\"b-secret\"}]}";
        let correct = ["quarantine", "correct", &case, "--payload", "-", "--why", "a digit was lost"];
        let dry = [&correct[..], &["--dry-run"]].concat();
        let shown = place.run_with_input(&dry, right).ended(0);
        let shown = shown.says(&["~ /card differs", "~ /lines/0/sku differs", "x-sensitive", "quarantine reveal"]);
        assert!(!shown.err.contains("secret") && !shown.out.contains("secret"), "{shown:#?}");
        let shown = place.run_with_input(&[&dry[..], &["--json"]].concat(), right).ended(0);
        assert_eq!(shown.json()["changed_at"], json!(["/card", "/lines/0/sku"]));
        assert!(!shown.out.contains("secret"), "{shown:#?}");
        let show = || place.run(&["quarantine", "show", &case, "--json"]).ended(0).json();
        assert_eq!(show()["since_released"], Value::Null);
        is_mended.store(true, Ordering::SeqCst);
        place.run(&["quarantine", "release", &case, "--yes"]).ended(0);
        place.watch("m1", 0);
        assert_eq!(show()["since_released"]["state"], "delivered");
        let shown = place.run(&["quarantine", "show", &case]).ended(0);
        assert!(shown.out.contains("since released     delivered"), "{shown:#?}");
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_flood_of_cases_is_counted(place) {
        with_crypto();
        let (receiver, _) = mendable().await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let lines: String = (0..30)
            .map(|n| event(&format!("m{n}"), "order.accepted", &format!("o{n}"), "1"))
            .collect();
        place.run_with_input(&["send"], lines).ended(0);
        place.until("all are cases", || {
            let listed = place.run(&["quarantine", "list", "--json"]).ended(0).json();
            (listed["cases"].as_array().unwrap().len() == 30).then_some(())
        });
        assert_eq!(daemon.stop(), 0);
        let log = place.read("up.log");
        assert_eq!(log.matches("a case was opened").count(), 10, "{log}");
        assert_eq!(log.matches("only counted").count(), 1, "{log}");
    }

    async fn a_plan_over_the_log_says_what_is_delivered_again(place) {
        with_crypto();
        let (mut receiver, is_mended) = mendable().await;
        is_mended.store(true, Ordering::SeqCst);
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        place.watch("m1", 0);
        assert_eq!(receiver.next().await.header("webhook-id"), "m1");
        let planned = plan_of_log(&place);
        assert_eq!(planned["findings"], json!({ "delivered-again": 1 }));
        assert_eq!(planned["counts"]["left"], 1);
        let number = planned["campaign_id"].to_string();
        let shown = place.run(&["replay", "show", &number]).ended(0);
        assert!(shown.out.contains("delivered-again"), "{shown:#?}");
        // The backlog names it, and who watches it is told what it waits for.
        let backlog = place.run(&["backlog"]).ended(0);
        let line = format!("campaign {number}: hook: planned");
        assert!(backlog.out.contains(&line) && backlog.out.contains("replay start"), "{backlog:#?}");
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        assert_eq!(backlog["campaigns"][0]["state"], "planned");
        let watch = ["replay", "watch", &number, "--timeout", "1ms"];
        let start = format!("onceward replay start {number}");
        place.run(&watch).ended(1).says(&["has not been started", &start]);
        place.run(&["replay", "start", &number, "--yes", "--watch"]).ended(0);
        assert_eq!(receiver.next().await.header("webhook-id"), "m1", "as it was said");
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        assert_eq!(backlog["campaigns"], json!([]), "it is over");
        assert_eq!(daemon.stop(), 0);
    }

    async fn an_address_that_fails_is_named_without_what_may_be_secret(place) {
        with_crypto();
        // Nobody listens there.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        place.configure(&push_to(&format!("http://{free}/hook?token=secret-7")));
        let daemon = place.up(&["--migrate"]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        let log = logged(&place, "work pauses");
        let line = log.lines().find(|line| line.contains("work pauses")).unwrap();
        assert!(line.contains("hook") && line.contains(&format!("http://{free}")), "{line}");
        assert!(!log.contains("secret-7"), "{log}");
        assert_eq!(daemon.stop(), 0);
    }
}

#[test]
fn a_first_configuration_promises_only_what_is_there() {
    let place = Place::sqlite();
    place.run(&["init"]).ended(0);
    assert!(!place.read("onceward.toml").contains("console"));
    let place = Place::sqlite();
    place.configure(ONE_TYPE);
    let missing = place
        .run(&["backlog"])
        .ended(1)
        .says(&["OW1005", "there is none"]);
    assert!(!missing.err.is_empty());
    let page = place.run(&["explain", "OW1005"]).ended(0);
    assert!(page.out.contains("onceward migrate"), "{page:#?}");
}
