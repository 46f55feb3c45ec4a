//! Events sent by the Python package `cloudevents`, received and checked by `standardwebhooks`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::python::{self, Checker};
use crate::{OTHER_SECRET, SECRET, on_both_stores, push_with_secret};

/// Lines of the sender by id.
fn sent(lines: &[String]) -> BTreeMap<String, Value> {
    let lines = lines.iter().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["status"], 202, "{line}");
        (line["id"].as_str().unwrap().to_owned(), line)
    });
    lines.collect()
}

on_both_stores! {
    async fn what_python_sends_python_receives_signed_and_in_order(place) {
        place.write_secret("receiver.secret", SECRET);
        let secret = place.path("receiver.secret");
        // The first answers are failures: what comes again has its id, its bytes and its place.
        let mut receiver = Checker::start(&secret, &["--fail-first", "5"]).await;
        place.configure(&push_with_secret(&place, &receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let url = format!("{}/v1/messages", daemon.url);
        let args = [url.as_str(), "--count", "12", "--keys", "3"];
        let sent = sent(&python::run("send_events.py", &args));
        assert_eq!(sent.len(), 26);
        let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut failed, mut good) = (0, 0);
        while good < sent.len() {
            let request = receiver.next().await;
            assert_eq!(request["verified"], true, "{request}");
            let header = |name: &str| request["headers"][name].as_str().unwrap().to_owned();
            let id = header("webhook-id");
            let line = &sent[&id];
            assert_eq!(request["body"], line["data"], "{request}");
            assert_eq!((header("ce-id"), header("ce-source")), (id.clone(), "//python/orders".into()));
            assert_eq!(header("ce-note"), "Gr%C3%B6%C3%9Fe%20%2250%25%22%20%E2%82%AC");
            assert_eq!(header("ce-operationid"), format!("{id}-checkout"));
            let media_type = if id.ends_with("text") { "text/csv" } else { "application/json" };
            assert_eq!(header("content-type"), media_type);
            if request["status"] == 500 {
                failed += 1;
                continue;
            }
            good += 1;
            let mode = if id.contains("binary") { "binary" } else { "structured" };
            by_key.entry(format!("{mode} {}", header("ce-subject"))).or_default().push(id);
        }
        assert_eq!(failed, 5);
        // One sender, one event after the other: each key's events in the order of their numbers.
        for (key, ids) in &by_key {
            let rank = |id: &String| match id.rsplit('-').next().unwrap() {
                "text" => 1_000,
                number => number.parse::<u32>().unwrap(),
            };
            assert!(ids.is_sorted_by_key(rank), "{key}: {ids:?}");
        }
        place.nothing_is_left();
        place.watch("py-structured-text-checkout", 0);
        // Sent once more, nothing is new.
        let again = python::run("send_events.py", &args);
        assert_eq!(again.len(), 26);
        assert_eq!(daemon.stop(), 0);
        assert!(receiver.is_idle());
    }

    async fn a_secret_is_changed_while_receivers_still_have_the_old_one(place) {
        place.write_secret("receiver.secret", OTHER_SECRET);
        let secret = place.path("receiver.secret");
        let mut receiver = Checker::start(&secret, &[]).await;
        let config = push_with_secret(&place, &receiver.url());
        place.configure(&config);
        // The receiver has only the second of two.
        place.write_secret("hook.secret", &format!("{SECRET}\n{OTHER_SECRET}\n"));
        let daemon = place.up(&["--migrate"]);
        let url = format!("{}/v1/messages", daemon.url);
        python::run("send_events.py", &[&url, "--count", "1", "--mode", "binary"]);
        receiver.next_good().await;
        receiver.next_good().await;
        assert_eq!(daemon.stop(), 0);
        // With another secret it refuses: a person has to look, and nothing is given up.
        place.write_secret("hook.secret", &format!("{SECRET}\n"));
        let daemon = place.up(&[]);
        let url = format!("{}/v1/messages", daemon.url);
        let args = [url.as_str(), "--count", "1", "--prefix", "new", "--mode", "structured"];
        python::run("send_events.py", &args);
        let request = receiver.next().await;
        assert_eq!((&request["verified"], &request["status"]), (&false.into(), &401.into()));
        place.until("the message waits for a person", || {
            let state = place.state_of("new-structured-0-checkout");
            (state["kind"] == "operator").then_some(())
        });
        assert_eq!(place.backlog()["quarantined"], 0);
        assert_eq!(daemon.stop(), 0);
    }
}
