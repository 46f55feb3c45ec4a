//! A poisoned message is corrected and released; what is sensitive stays hidden but where somebody
//! says why it is to be seen.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::on_both_stores;
use crate::place::{Place, event, push_to};
use crate::receiver::{Received, Receiver};

/// The schema of the messages here: a card number, which is sensitive, and a postal code.
const SCHEMA: &str = r##"{
    "$defs": { "card": { "x-sensitive": true, "type": "string" } },
    "type": "object",
    "required": ["zip"],
    "properties": {
        "card": { "$ref": "#/$defs/card" },
        "zip": { "type": "string", "pattern": "^[0-9]{5}$" },
        "amount": { "type": "number" }
    }
}"##;

/// Takes what has a good postal code, and quotes what it refuses.
async fn particular() -> Receiver {
    let answer = |received: &Received| match received.text().contains("\"89073\"") {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::BAD_REQUEST,
    };
    Receiver::start(answer, false).await
}

fn with_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Configures a push with a schema, sends one message, and waits for its case.
fn poisoned(place: &Place, receiver: &Receiver, data: &str) -> (crate::place::Daemon, String) {
    place.write("order.json", SCHEMA);
    let schema = "[message.\"order.accepted\"]\nschemas = [\"order.json\"]\n";
    let rest = push_to(&receiver.url()).replace("[message.\"order.accepted\"]\n", schema);
    place.configure(&rest);
    let daemon = place.up(&["--migrate"]);
    let line = event("m1", "order.accepted", "o1", data);
    place.run_with_input(&["send"], line).ended(0);
    let case = case_in(place, "open");
    (daemon, case)
}

/// The number of the only case, once it is in a state.
fn case_in(place: &Place, state: &str) -> String {
    place.until(state, || {
        let args = ["quarantine", "list", "--state", state, "--json"];
        let listed = place.run(&args).ended(0).json();
        listed["cases"][0]["case_id"]
            .as_i64()
            .map(|id| id.to_string())
    })
}

fn show(place: &Place, case: &str) -> Value {
    let shown = place.run(&["quarantine", "show", case, "--json"]);
    shown.ended(0).json()
}

on_both_stores! {
    async fn a_corrected_message_is_sent_instead_and_once(place) {
        with_crypto();
        let mut receiver = particular().await;
        let sent = "{\"zip\":\"8907\",\"card\":\"4111222233334444\",\"amount\":1.50}";
        let (daemon, case) = poisoned(&place, &receiver, sent);
        assert_eq!(receiver.next().await.header("webhook-id"), "m1");
        let correct = ["quarantine", "correct", &case, "--payload", "-", "--why", "a digit was lost", "--as", "ada"];
        let with = |more: &[&'static str]| -> Vec<&str> { correct.iter().copied().chain(more.iter().copied()).collect() };
        // What no schema describes, what is no JSON, what changes nothing; none of it is repeated.
        let refused = place.run_with_input(&with(&["--yes"]), "{\"zip\":\"secret-7\",\"card\":7}").ended(1);
        let refused = refused.says(&["OW1070", "/zip", "/card"]);
        assert!(!refused.err.contains("secret-7"), "{refused:#?}");
        place.run_with_input(&with(&["--yes"]), "{\"zip\":").ended(1).says(&["OW1070", "not JSON"]);
        place.run_with_input(&with(&["--yes"]), sent).ended(1).says(&["OW1070", "same"]);
        let right = "{ \"zip\": \"89073\", \"card\": \"5500222233334444\", \"amount\": 1.50 }\n";
        place.run_with_input(&with(&[]), right).ended(2).says(&["OW1041", "--yes"]);
        place.run_with_input(&["quarantine", "correct", &case, "--payload", "-", "--yes"], right).ended(1).says(&["OW1043", "--why"]);
        let shown = place.run_with_input(&with(&["--dry-run"]), right).ended(0);
        assert!(shown.err.contains("~ /zip: \"8907\" becomes \"89073\""), "{shown:#?}");
        assert!(shown.err.contains("~ /card: <hidden> becomes <hidden>"), "{shown:#?}");
        assert_eq!(show(&place, &case)["state"], "open", "nothing was changed");
        let done = place.run_with_input(&with(&["--yes", "--json"]), right).ended(0).json();
        let id = done["corrected_id"].as_str().unwrap().to_owned();
        assert_eq!(done["differences"].as_array().unwrap().len(), 2);
        let shown = show(&place, &case);
        assert_eq!((&shown["state"], &shown["correction"]["id"]), (&json!("corrected"), &json!(id)));
        assert_eq!(shown["message"]["payload"], json!({ "zip": "8907", "card": "<hidden>", "amount": 1.5 }));
        assert_eq!(shown["correction"]["payload"]["zip"], "89073");
        let entry = &shown["history"][0];
        assert_eq!((&entry["action"], &entry["who"], &entry["after"]["corrected_id"]), (&json!("correct"), &json!("ada"), &json!(id)));
        for text in [shown.to_string(), place.run(&["quarantine", "show", &case]).ended(0).out] {
            assert!(!text.contains("4111") && !text.contains("5500"), "{text}");
        }
        assert!(receiver.is_idle(), "nothing runs until it is released");
        place.run(&["quarantine", "release", &case, "--yes", "--as", "ada"]).ended(0);
        let received = receiver.next().await;
        assert_eq!(received.header("webhook-id"), id);
        assert!(received.text().contains("{ \"zip\": \"89073\", \"card\": \"5500222233334444\", \"amount\": 1.50 }"), "its bytes as they were given: {}", received.text());
        assert_eq!(received.header("ce-causationid"), "m1");
        place.watch("m1", 0);
        place.nothing_is_left();
        assert_eq!(show(&place, &case)["state"], "replayed");
        assert_eq!(daemon.stop(), 0);
        assert!(receiver.is_idle(), "it was sent once");
    }

    async fn a_correction_that_fails_comes_back_with_both(place) {
        with_crypto();
        let mut receiver = particular().await;
        let (daemon, case) = poisoned(&place, &receiver, "{\"zip\":\"1\"}");
        receiver.next().await;
        place.write("wrong.json", "{\"zip\":\"11111\"}\n");
        let args = ["quarantine", "correct", &case, "--payload", "wrong.json", "--why", "a guess", "--yes"];
        place.run(&args).ended(0);
        place.run(&["quarantine", "release", &case, "--yes"]).ended(0);
        receiver.next().await;
        case_in(&place, "open");
        let shown = show(&place, &case);
        assert_eq!((&shown["replays"], &shown["regressions"]), (&json!(1), &json!(1)));
        assert_eq!(shown["message"]["id"], "m1");
        assert_eq!(shown["message"]["payload"]["zip"], "1");
        assert_eq!(shown["correction"]["payload"]["zip"], "11111");
        place.write("right.json", "{\"zip\":\"89073\"}");
        let args = ["quarantine", "correct", &case, "--payload", "right.json", "--why", "looked up", "--yes"];
        place.run(&args).ended(0);
        place.run(&["quarantine", "release", &case, "--yes"]).ended(0);
        assert!(receiver.next().await.text().contains("89073"));
        place.watch("m1", 0);
        let actions: Vec<Value> = show(&place, &case)["history"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
        assert_eq!(actions, ["correct", "release", "correct", "release"]);
        assert_eq!(daemon.stop(), 0);
    }

    async fn what_is_revealed_is_on_record_first(place) {
        with_crypto();
        let mut receiver = particular().await;
        let sent = "{\"zip\":\"1\",\"card\":\"4111222233334444\",\"amount\":1.50}";
        let (daemon, case) = poisoned(&place, &receiver, sent);
        receiver.next().await;
        assert_eq!(daemon.stop(), 0);
        place.run(&["quarantine", "show", &case, "--reveal"]).ended(2);
        place.run(&["quarantine", "reveal", &case]).ended(1).says(&["OW1043", "--why"]);
        place.run(&["quarantine", "reveal", "4711", "--why", "x"]).ended(1).says(&["OW1023"]);
        assert!(show(&place, &case)["history"].as_array().unwrap().is_empty());
        let revealed = place.run(&["quarantine", "reveal", &case, "--why", "the bank asks", "--as", "ada", "--json"]).ended(0);
        assert!(revealed.out.contains(sent), "with the spelling of its numbers: {revealed:#?}");
        let history = show(&place, &case)["history"].clone();
        assert_eq!((&history[0]["action"], &history[0]["who"], &history[0]["why"]), (&json!("reveal"), &json!("ada"), &json!("the bank asks")));
        // Also of what is over, and where nobody reads what is shown.
        place.run(&["quarantine", "discard", &case, "--why", "old", "--yes"]).ended(0);
        let mut child = place.start(&["quarantine", "reveal", &case, "--why", "again"]);
        drop(child.stdout.take());
        child.wait().unwrap();
        let history = show(&place, &case)["history"].clone();
        assert_eq!(history[2]["why"], "again");
    }
}

on_both_stores! {
    async fn old_cases_are_told_of_and_removed_only_by_hand(place) {
        with_crypto();
        let mut receiver = particular().await;
        let (daemon, case) = poisoned(&place, &receiver, "{\"zip\":\"1\"}");
        receiver.next().await;
        assert_eq!(daemon.stop(), 0);
        let list = ["quarantine", "list", "--json"];
        assert_eq!(place.run(&list).ended(0).json()["past_retention"], Value::Null);
        let text = place.read("onceward.toml");
        place.write("onceward.toml", &format!("{text}\n[retention]\ncases_ms = 1\n"));
        place.run(&["quarantine", "list"]).ended(0).says(&["older than 1ms", "purge --older-than 1ms"]);
        let told = place.run(&list).ended(0).json()["past_retention"].clone();
        assert_eq!(told["oldest_case_id"].to_string(), case);
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        assert_eq!(backlog["cases_past_retention"]["oldest_case_id"].to_string(), case);
        let daemon = place.up(&[]);
        place.until("it is in the log", || place.read("up.log").contains("older than 1ms").then_some(()));
        assert_eq!(daemon.stop(), 0);
        let purge = ["quarantine", "purge", "--older-than", "1ms", "--why", "kept long enough", "--yes"];
        let none = place.run(&purge).ended(0);
        assert!(none.err.contains("no cases"), "it is open: {none:#?}");
        place.run(&["quarantine", "discard", &case, "--why", "old", "--yes"]).ended(0);
        place.run(&purge[..6]).ended(2).says(&["OW1041"]);
        // The log still has its message, which would run again without it.
        place.run(&purge).ended(1).says(&["OW1043", "the log still has its message"]);
        assert_eq!(show(&place, &case)["state"], "discarded");
    }
}

on_both_stores! {
    async fn an_operation_is_revealed_with_a_reason_only(place) {
        with_crypto();
        let mut receiver = particular().await;
        let (daemon, _) = poisoned(&place, &receiver, "{\"zip\":\"1\"}");
        receiver.next().await;
        let show = ["operation", "show", "m1"];
        place.run(&show).ended(0);
        let revealing = [&show[..], &["--reveal"]].concat();
        place.run(&revealing).ended(1).says(&["OW1043", "--why"]);
        place.run(&[&revealing[..], &["--why", " "]].concat()).ended(1).says(&["OW1043"]);
        place.run(&[&revealing[..], &["--why", "the bank asks", "--as", "ada"]].concat()).ended(0);
        assert_eq!(daemon.stop(), 0);
    }
}

on_both_stores! {
    async fn a_limit_holds_until_it_is_ended(place) {
        with_crypto();
        let receiver = particular().await;
        place.configure(&push_to(&receiver.url()));
        place.run(&["migrate"]).ended(0);
        let daemon = place.up(&[]);
        let limit = ["subscription", "limit", "hook", "--concurrency", "2"];
        place.run(&limit).ended(1).says(&["OW1043", "reason"]);
        place.run(&["subscription", "limit", "hook", "--concurrency", "0"]).ended(2);
        place.run(&[&limit[..], &["--why", "the receiver asks"]].concat()).ended(0);
        let shown = || place.run(&["subscription", "list", "--json"]).ended(0).json()["subscriptions"][0]["concurrency_max"].clone();
        assert_eq!(shown(), 2);
        place.run(&[&limit[..], &["--why", "again"]].concat()).ended(1).says(&["OW1040"]);
        // One by rate beside it, which ends by itself.
        let rate = ["subscription", "limit", "hook", "--per-second", "20"];
        place.run(&rate).ended(1).says(&["OW1043", "reason"]);
        place.run(&["subscription", "limit", "hook", "--burst", "2", "--why", "x"]).ended(2);
        place.run(&[&rate[..], &["--burst", "5", "--why", "the receiver asks"]].concat()).ended(0);
        let listed = || place.run(&["subscription", "list", "--json"]).ended(0).json()["subscriptions"][0]["rate"].clone();
        assert_eq!(listed(), json!({ "per_second": 20, "burst": 5 }));
        assert_eq!(shown(), 2, "the other one stays");
        let table = place.run(&["subscription", "list"]).ended(0);
        assert!(table.out.contains("2, 20/s"), "{table:#?}");
        let backlog = place.run(&["backlog"]).ended(0);
        assert!(backlog.out.contains("hook: limited to 20 per second"), "{backlog:#?}");
        let backlog = place.run(&["backlog", "--json"]).ended(0).json()["subscriptions"][0].clone();
        assert_eq!((&backlog["ready_age_ms"], &backlog["still"]), (&json!(0), &Value::Null));
        place.run(&["subscription", "limit", "hook", "--per-second", "0"]).ended(0);
        assert_eq!((listed(), shown()), (Value::Null, json!(2)));
        place.run(&["subscription", "limit", "hook", "--none"]).ended(0);
        assert_eq!(shown(), Value::Null);
        assert_eq!(daemon.stop(), 0);
    }
}

on_both_stores! {
    async fn a_subscription_is_renamed_and_removed_by_command(place) {
        with_crypto();
        let mut receiver = particular().await;
        let (daemon, case) = poisoned(&place, &receiver, "{\"zip\":\"1\"}");
        receiver.next().await;
        let rename = ["subscription", "rename", "hook", "crm", "--why", "a better name", "--yes"];
        place.run(&rename).ended(1).says(&["OW1043", "still works"]);
        assert_eq!(daemon.stop(), 0);
        place.run(&rename[..6]).ended(2).says(&["OW1041"]);
        place.run(&rename).ended(0);
        place.run(&rename).ended(1).says(&["OW1043", "hook"]);
        assert_eq!(show(&place, &case)["subscription"], "crm");
        // Under its new name it goes on where it was: what was sent is not sent again.
        let text = place.read("onceward.toml");
        place.write("onceward.toml", &text.replace("subscription.hook", "subscription.crm"));
        let daemon = place.up(&[]);
        place.run_with_input(&["send"], event("m2", "order.accepted", "o2", "{\"zip\":\"89073\"}")).ended(0);
        assert_eq!(receiver.next().await.header("webhook-id"), "m2");
        place.watch("m2", 0);
        assert_eq!(daemon.stop(), 0);
        let remove = ["subscription", "remove", "crm", "--yes"];
        place.run(&remove).ended(1).says(&["OW1043", "--why"]);
        let remove = [&remove[..], &["--why", "moved away"]].concat();
        place.run(&remove).ended(1).says(&["OW1043", "--discard-open", "1 cases"]);
        let removed = place.run(&[&remove[..], &["--discard-open", "--json"]].concat()).ended(0).json();
        assert_eq!(removed["discarded_cases"][0].to_string(), case);
        let left = place.run(&["subscription", "list", "--json"]).ended(0).json();
        assert_eq!(left["subscriptions"], json!([]));
        assert_eq!(show(&place, &case)["state"], "discarded");
        place.run(&remove).ended(1).says(&["OW1023"]);
        assert!(receiver.is_idle(), "nothing was sent twice");
    }
}
