//! Operators' commands: what they refuse, what they bound, what they report, and what comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::on_both_stores;
use crate::place::{Place, event, push_to};
use crate::receiver::Receiver;

/// A receiver whose answer the test changes.
async fn changing(first: u16) -> (Receiver, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(first));
    let answer = Arc::clone(&status);
    let receiver = Receiver::start(
        move |_| StatusCode::from_u16(answer.load(Ordering::SeqCst)).unwrap(),
        false,
    )
    .await;
    (receiver, status)
}

fn cases(place: &Place, args: &[&str]) -> Vec<Value> {
    let all = [&["quarantine", "list", "--json"], args].concat();
    let listed = place.run(&all).ended(0).json();
    listed["cases"].as_array().unwrap().clone()
}

/// Sends messages that are refused, each of its own key, and waits for their cases.
fn refuse(place: &Place, count: usize) -> Vec<String> {
    let lines: String = (1..=count)
        .map(|i| {
            event(
                &format!("m{i}"),
                "order.accepted",
                &format!("o{i}"),
                "{\"card\":\"4111\"}",
            )
        })
        .collect();
    place.run_with_input(&["send"], &lines).ended(0);
    place.until("all are cases", || {
        let found = cases(place, &[]);
        let numbers = found.iter().map(|case| case["case_id"].to_string());
        (found.len() == count).then(|| numbers.collect())
    })
}

fn show(place: &Place, case: &str) -> Value {
    place
        .run(&["quarantine", "show", case, "--json"])
        .ended(0)
        .json()
}

fn with_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

on_both_stores! {
    async fn a_case_is_worked_on_and_its_message_released(place) {
        with_crypto();
        let (mut receiver, status) = changing(400).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let numbers = refuse(&place, 1);
        receiver.next().await;
        let case = numbers[0].as_str();
        place.run(&["quarantine", "assign", case, "--to", "bo", "--as", "ada"]).ended(0);
        place.run(&["quarantine", "ack", case, "--as", "bo"]).ended(0);
        place.run(&["quarantine", "due", case, "--by", "2days", "--as", "bo"]).ended(0);
        place.run(&["quarantine", "note", case, "--text", "it is the address", "--as", "bo"]).ended(0);
        let shown = show(&place, case);
        assert_eq!((&shown["state"], &shown["owner"]), (&json!("acknowledged"), &json!("bo")));
        assert!(shown["due_at"].is_string(), "{shown}");
        let history = shown["history"].as_array().unwrap();
        let actions: Vec<_> = history.iter().map(|entry| (entry["action"].as_str().unwrap(), entry["who"].as_str().unwrap())).collect();
        assert_eq!(actions, [("assign", "ada"), ("acknowledge", "bo"), ("set-due", "bo"), ("note", "bo")]);
        assert_eq!(history[3]["why"], "it is the address");
        let text = place.run(&["quarantine", "show", case]).ended(0);
        assert!(text.out.contains("it is the address") && !text.out.contains("4111"), "{text:#?}");
        status.store(204, Ordering::SeqCst);
        let released = place.run(&["quarantine", "release", case, "--yes", "--as", "bo", "--json"]).ended(0).json();
        assert_eq!((&released["done"], &released["cases"][0]["state"]), (&json!(1), &json!("replayed")));
        assert_eq!(receiver.next().await.header("webhook-id"), "m1");
        place.watch("m1", 0);
        assert!(cases(&place, &[]).is_empty(), "it is over");
        assert_eq!(cases(&place, &["--state", "all"]).len(), 1);
        place.run(&["quarantine", "release", case, "--yes"]).ended(1).says(&["OW1040", "replayed"]);
        place.nothing_is_left();
        assert_eq!(daemon.stop(), 0);
        assert!(receiver.is_idle(), "it was sent once more and not twice");
    }

    async fn what_fails_again_is_the_same_case_once_more(place) {
        with_crypto();
        let (mut receiver, _status) = changing(400).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let case = refuse(&place, 1).remove(0);
        receiver.next().await;
        place.run(&["quarantine", "release", &case, "--yes"]).ended(0);
        receiver.next().await;
        place.until("the case is back", || (!cases(&place, &[]).is_empty()).then_some(()));
        let shown = show(&place, &case);
        assert_eq!((&shown["replays"], &shown["regressions"]), (&json!(1), &json!(1)));
        assert_eq!(shown["attempts"], 1, "its budget was fresh");
        let text = place.run(&["quarantine", "show", &case]).ended(0);
        assert!(text.out.contains("back 1x"), "{text:#?}");
        assert_eq!(daemon.stop(), 0);
    }

    async fn what_ends_cases_is_bounded_confirmed_and_reported(place) {
        with_crypto();
        let (receiver, _status) = changing(400).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let numbers = refuse(&place, 4);
        assert_eq!(daemon.stop(), 0);
        let one = numbers[0].as_str();
        // Without a terminal, without a reason, without a selection, or with too much of it.
        place.run(&["quarantine", "release", one]).ended(2).says(&["OW1041", "--yes"]);
        place.run(&["quarantine", "discard", one, "--yes"]).ended(1).says(&["OW1043", "--why"]);
        place.run(&["quarantine", "release", "--yes"]).ended(2).says(&["OW1041"]);
        place.run(&["quarantine", "release", one, "--subscription", "hook", "--yes"]).ended(2).says(&["OW1041"]);
        place.run(&["quarantine", "release", "--subscription", "hook", "--max", "3", "--yes"])
            .ended(2).says(&["OW1041", "more than 3"]);
        place.run(&["quarantine", "release", "4711", "--yes"]).ended(1).says(&["OW1023", "4711"]);
        assert_eq!(cases(&place, &["--state", "open"]).len(), 4, "nothing was changed");
        let shown = place.run(&["quarantine", "waive", one, "--yes", "--why", "done by hand"]).ended(0);
        assert!(shown.err.contains("order.accepted"), "what it is about is shown: {shown:#?}");
        // One is over, one is not there, two are done.
        let some = [&["quarantine", "discard", one, "4711"][..], &[&numbers[1], &numbers[2]], &["--yes", "--why", "not wanted", "--json"]].concat();
        let ran = place.run(&some).ended(5).says(&["OW1042"]);
        let report = ran.json();
        assert_eq!((&report["done"], &report["failed"]), (&json!(2), &json!(2)));
        let codes: Vec<_> = report["cases"].as_array().unwrap().iter().filter_map(|case| case["error"]["code"].as_str()).collect();
        assert_eq!(codes, ["OW1023", "OW1040"]);
        place.run(&["quarantine", "discard", "--subscription", "hook", "--yes", "--why", "all of it"]).ended(0);
        assert!(cases(&place, &[]).is_empty());
        let states: Vec<_> = cases(&place, &["--state", "discarded", "--state", "waived"]).iter().map(|case| case["state"].clone()).collect();
        assert_eq!(states, ["waived", "discarded", "discarded", "discarded"]);
        let ended = place.state_of(show(&place, one)["message"]["id"].as_str().unwrap());
        assert_eq!((&ended["state"], &ended["resolution"]), (&json!("resolved"), &json!("waived")));
        assert_eq!(place.run(&["quarantine", "ack", "--subscription", "hook"]).ended(0).out, "");
    }

    async fn cases_are_found_and_grouped(place) {
        with_crypto();
        let receiver = Receiver::start(|received| {
            StatusCode::from_u16(if received.text().contains("odd") { 415 } else { 400 }).unwrap()
        }, false).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let lines = event("m1", "order.accepted", "o1", "\"odd\"") + &event("m2", "order.accepted", "o2", "1")
            + &event("m3", "order.accepted", "o3", "2");
        place.run_with_input(&["send"], &lines).ended(0);
        place.until("all are cases", || (cases(&place, &[]).len() == 3).then_some(()));
        assert_eq!(daemon.stop(), 0);
        let groups = place.run(&["quarantine", "groups", "--json"]).ended(0).json();
        let groups = groups["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 2, "{groups:?}");
        assert_eq!((&groups[0]["live"], &groups[1]["live"]), (&json!(2), &json!(1)));
        assert_eq!(groups[0]["class"], "permanent");
        let print = groups[0]["fingerprint"].as_str().unwrap();
        assert_eq!(cases(&place, &["--fingerprint", print]).len(), 2);
        assert_eq!(cases(&place, &["--key", "o2"]).len(), 1);
        assert_eq!(cases(&place, &["--type", "order.sent"]).len(), 0);
        assert_eq!(cases(&place, &["--since", "1h"]).len(), 3);
        assert_eq!(cases(&place, &["--until", "1h"]).len(), 0);
        place.run(&["quarantine", "ack", "--key", "o2", "--as", "bo"]).ended(0);
        assert_eq!(cases(&place, &["--owner", "bo"]).len(), 1);
        assert_eq!(cases(&place, &["--state", "acknowledged"]).len(), 1);
        place.run(&["quarantine", "list", "--state", "gone"]).ended(2);
        let listed = place.run(&["quarantine", "groups"]).ended(0);
        assert!(listed.out.contains(print), "{listed:#?}");
        let discard = ["quarantine", "discard", "--fingerprint", print, "--yes", "--why", "known"];
        place.run(&discard).ended(0);
        assert_eq!(cases(&place, &[]).len(), 1);
        let all = place.run(&["quarantine", "groups", "--all", "--json"]).ended(0).json();
        assert_eq!(all["groups"].as_array().unwrap().len(), 2);
    }

    async fn a_paused_subscription_starts_nothing_until_it_goes_on(place) {
        with_crypto();
        let (mut receiver, _status) = changing(204).await;
        place.configure(&push_to(&receiver.url()));
        place.run(&["migrate"]).ended(0);
        let daemon = place.up(&[]);
        place.run(&["subscription", "pause", "hook"]).ended(1).says(&["OW1043"]);
        place.run(&["subscription", "pause", "nobody", "--why", "x"]).ended(1).says(&["OW1043"]);
        place.run(&["subscription", "resume", "hook"]).ended(1).says(&["OW1040"]);
        // A process that is there learns of it, one that starts knows it from the first message on.
        assert_eq!(daemon.stop(), 0);
        place.run(&["subscription", "pause", "hook", "--why", "the other side is away", "--as", "ada"]).ended(0);
        place.run(&["subscription", "pause", "hook", "--why", "again"]).ended(1).says(&["OW1040"]);
        let daemon = place.up(&[]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        let listed = place.run(&["subscription", "list", "--json"]).ended(0).json();
        assert!(listed["subscriptions"][0]["paused_at"].is_string(), "{listed}");
        let backlog = place.run(&["backlog"]).ended(0);
        assert!(backlog.out.contains("paused for"), "{backlog:#?}");
        place.until("it has its lanes", || {
            let listed = place.run(&["subscription", "list", "--json"]).ended(0).json();
            (listed["subscriptions"][0]["lanes_owned"] == 16).then_some(())
        });
        assert!(receiver.is_idle(), "nothing was sent in the pause");
        place.run(&["subscription", "resume", "hook"]).ended(0);
        assert_eq!(receiver.next().await.header("webhook-id"), "m1");
        place.watch("m1", 0);
        assert_eq!(daemon.stop(), 0);
    }

    async fn what_waits_for_a_person_is_tried_again(place) {
        with_crypto();
        let (mut receiver, status) = changing(401).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        receiver.next().await;
        place.until("it waits for a person", || (place.backlog()["deferred"]["operator"] == 1).then_some(()));
        status.store(204, Ordering::SeqCst);
        let other = place.run(&["subscription", "retry", "hook", "--key", "o2", "--json"]).ended(0).json();
        assert_eq!(other["resumed"], 0);
        let ran = place.run(&["subscription", "retry", "hook", "--json", "--as", "ada"]).ended(0).json();
        assert_eq!(ran["resumed"], 1);
        assert_eq!(receiver.next().await.header("webhook-id"), "m1");
        place.watch("m1", 0);
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_refusal_that_a_person_has_to_end_is_said_and_the_rest_waits(place) {
        with_crypto();
        let (mut receiver, status) = changing(401).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        receiver.next().await;
        place.until("it is said why it stands still", || {
            (place.backlog()["still"]["because"] == "person").then_some(())
        });
        let shown = place.run(&["backlog"]).ended(0);
        assert!(shown.out.contains("until a person acts"), "{shown:#?}");
        assert!(shown.out.contains("onceward subscription retry hook"), "{shown:#?}");
        place.run_with_input(&["send"], event("m2", "order.accepted", "o1", "1")).ended(0);
        place.until("the next of its key is held", || {
            let held = place.state_of("m2");
            (held["kind"] == "held").then_some(())
        });
        let shown = place.run(&["operation", "show", "m2"]).ended(0);
        assert!(shown.out.contains("behind an earlier message of its key"), "{shown:#?}");
        status.store(204, Ordering::SeqCst);
        place.run(&["subscription", "retry", "hook"]).ended(0);
        place.watch("m2", 0);
        assert_eq!(daemon.stop(), 0);
    }

    async fn a_list_of_subscriptions_has_their_classes_and_tenants(place) {
        place.configure("");
        place.run(&["migrate"]).ended(0);
        for command in [&["backlog"][..], &["subscription", "list"]] {
            let none = place.run(command).ended(0).says(&["no subscription is registered"]);
            assert!(!none.out.contains("SUBSCRIPTION"), "{none:#?}");
        }
        place.configure(
            "[message.\"order.accepted\"]\naggregate = \"order\"\npriority = \"high\"\n\
             [message.\"price.changed\"]\naggregate = \"price\"\npriority = \"low\"\n\
             [subscription.many]\nmessages = [\"order.accepted\", \"price.changed\"]\n\
             start = \"now\"\ntenants = { attribute = \"tenant\", groups = 2 }\n\
             push = { url = \"http://127.0.0.1:9\" }\n\
             [subscription.one]\nmessages = [\"price.changed\"]\nstart = \"now\"\n\
             push = { url = \"http://127.0.0.1:9\" }\n",
        );
        let daemon = place.up(&[]);
        let listed = place.run(&["subscription", "list", "--json"]).ended(0).json();
        let (many, one) = (&listed["subscriptions"][0], &listed["subscriptions"][1]);
        assert_eq!((&many["priorities"], &many["tenant_groups"]), (&json!(["high", "low"]), &json!(2)));
        assert_eq!((&one["priorities"], &one["tenant_groups"]), (&json!([]), &Value::Null));
        let shown = place.run(&["subscription", "list"]).ended(0);
        assert!(shown.out.contains("high, low; tenants in 2 groups"), "{shown:#?}");
        place.run(&["subscription", "limit", "one", "--why", "x"]).ended(2).says(&["--per-second", "--none"]);
        assert_eq!(daemon.stop(), 0);
    }

    async fn the_api_says_what_the_command_line_says(place) {
        with_crypto();
        let (receiver, _status) = changing(400).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        refuse(&place, 2);
        place.run(&["replay", "plan", "--subscription", "hook", "--why", "mended"]).ended(0);
        let ask = async |path: &str| -> Value {
            let answer = reqwest::get(format!("{}{path}", daemon.url)).await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            answer.json().await.unwrap()
        };
        let members = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        let (told, said) = (ask("/v1/backlog").await, place.run(&["backlog", "--json"]).ended(0).json());
        assert_eq!(members(&told), members(&said));
        assert_eq!(members(&told["subscriptions"][0]), members(&said["subscriptions"][0]));
        assert_eq!(told["subscriptions"][0]["quarantined"], 2);
        assert_eq!(told["campaigns"], said["campaigns"]);
        let (told, said) = (ask("/v1/replays").await, place.run(&["replay", "list", "--json"]).ended(0).json());
        assert_eq!(told["campaigns"], said["campaigns"]);
        let number = said["campaigns"][0]["campaign_id"].to_string();
        let told = ask(&format!("/v1/replays/{number}")).await;
        assert_eq!(told["items"], place.run(&["replay", "show", &number, "--json"]).ended(0).json()["items"]);
        assert!(!told.to_string().contains("4111"), "{told}");
        assert_eq!(daemon.stop(), 0);
    }
}
