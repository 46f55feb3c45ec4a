//! Sending, and looking at what was sent.

use serde_json::json;

use crate::on_both_stores;
use crate::place::{ONE_TYPE, Place, event, push_to};

fn ready(place: &Place) {
    place.configure(ONE_TYPE);
    place.run(&["migrate"]).ended(0);
}

fn events(count: u32) -> String {
    let ids = 0..count;
    ids.map(|i| {
        event(
            &format!("e{i}"),
            "order.accepted",
            &format!("o{}", i % 7),
            "{\"n\":1}",
        )
    })
    .collect()
}

/// Messages in the log: what a subscription that starts at its beginning has before it.
async fn count(place: &Place) -> u64 {
    place.configure(&push_to("http://127.0.0.1:9/hook"));
    let daemon = place.up(&[]);
    assert_eq!(daemon.stop(), 0);
    let backlog = place.run(&["backlog", "--json"]).ended(0).json();
    let hook = &backlog["subscriptions"][0];
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    number(&hook["waiting"])
        + ["retry", "held", "running", "operator"]
            .iter()
            .map(|kind| number(&hook["deferred"][*kind]))
            .sum::<u64>()
        + number(&hook["quarantined"])
}

on_both_stores! {
    async fn the_same_file_twice_sends_nothing_twice(place) {
        ready(&place);
        place.write("events.jsonl", &events(1_200));
        let first = place.run(&["send", "events.jsonl", "--json"]).ended(0).json();
        assert_eq!((&first["accepted"], &first["accepted_before_at_least"]), (&json!(1_200), &json!(0)));
        let again = place.run(&["send", "events.jsonl", "--json"]).ended(0).json();
        let known = &again["accepted_before_at_least"];
        assert_eq!((&again["accepted"], known), (&json!(1_200), &json!(1_200)));
        assert_eq!(count(&place).await, 1_200);
    }

    async fn a_sender_that_was_killed_is_run_again(place) {
        ready(&place);
        place.write("events.jsonl", &events(6_000));
        let mut sender = place.start(&["send", "events.jsonl", "--batch", "20"]);
        // As soon as the first batches are in, it is killed in the middle.
        while place.run(&["operation", "show", "e200"]).code != 0 {
            assert!(sender.try_wait().unwrap().is_none(), "the sender was too fast to be killed");
        }
        sender.kill().unwrap();
        sender.wait().unwrap();
        let ran = place.run(&["send", "events.jsonl", "--batch", "20", "--json"]).ended(0).json();
        assert_eq!(ran["accepted"], 6_000);
        assert!(ran["accepted_before_at_least"].as_u64().unwrap() >= 200, "{ran}");
        assert_eq!(count(&place).await, 6_000);
    }

    async fn bad_lines_are_named_and_the_rest_goes_on(place) {
        ready(&place);
        let good = |id: &str| event(id, "order.accepted", "o", "{\"n\": 9007199254740993}");
        let input = format!(
            "{}\nnot json\n{}{{\"specversion\":\"1.0\",\"id\":\"x\",\"source\":\"/s\"}}\n{}",
            good("a"),
            good("b"),
            good("c")
        );
        let ran = place.run_with_input(&["send"], &input).ended(5);
        let ran = ran.says(&["line 3:", "line 5: /type:", "OW1027", "2 of 5 lines"]);
        assert!(ran.out.contains("accepted 3, refused 2, of 5 lines"), "{ran:#?}");
        // Sent again with the bad lines repaired, only these are new.
        let repaired = format!("{}{}{}{}", good("a"), good("b"), good("c"), good("d"));
        place.run_with_input(&["send", "-"], &repaired).ended(0);
        for id in ["a", "b", "c", "d"] {
            place.run(&["operation", "show", id]).ended(0);
        }
        assert_eq!(count(&place).await, 4);
    }

    async fn a_type_that_is_not_declared_is_refused_with_the_nearest(place) {
        ready(&place);
        let input = format!("{}{}", event("a", "order.acepted", "o", "1"), event("b", "order.accepted", "o", "1"));
        let ran = place.run_with_input(&["send"], &input).ended(5);
        let ran = ran.says(&["line 1: /type:", "\"order.acepted\"", "\"order.accepted\""]);
        assert!(ran.out.contains("accepted 1, refused 1"), "{ran:#?}");
        // Without the configuration nobody knows which there are.
        let store = place.store_url();
        place.run_with_input(&["send", "--store", &store], &input).ended(0);
    }

    async fn one_id_with_two_contents_is_refused_by_its_line(place) {
        ready(&place);
        place.run_with_input(&["send"], event("a", "order.accepted", "o", "1")).ended(0);
        let input = format!(
            "{}{}{}",
            event("b", "order.accepted", "o", "1"),
            event("a", "order.accepted", "o", "2"),
            event("b", "order.accepted", "o", "1"),
        );
        let ran = place.run_with_input(&["send", "--json"], &input).ended(5).json();
        assert_eq!(ran["refused"], 1);
        assert_eq!(ran["refused_lines"][0]["line"], 2);
        assert_eq!(ran["refused_lines"][0]["pointer"], "/id");
        assert_eq!(count(&place).await, 2);
    }

    async fn a_sent_event_is_pending_and_counted(place) {
        ready(&place);
        place.configure(&push_to("http://127.0.0.1:9/hook"));
        assert_eq!(place.up(&[]).stop(), 0);
        let mut line = event("m1", "order.accepted", "o1", "{\"card\":\"4111\"}");
        line.insert_str(1, "\"operationid\":\"checkout 1\",");
        place.run_with_input(&["send"], &line).ended(0);
        let shown = place.run(&["operation", "show", "checkout 1", "--json"]).ended(0);
        let message = &shown.json()["messages"][0];
        assert_eq!((&message["id"], &message["subject"]), (&json!("m1"), &json!("o1")));
        assert_eq!(message["subscriptions"]["hook"], json!({ "state": "pending" }));
        assert!(!shown.out.contains("4111"), "{shown:#?}");
        let people = place.run(&["operation", "show", "checkout 1"]).ended(0);
        assert!(people.out.contains("hook") && people.out.contains("pending"), "{people:#?}");
        place.run(&["operation", "watch", "checkout 1", "--timeout", "10ms"]).ended(1).says(&["OW1029"]);
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        let hook = &backlog["subscriptions"][0];
        assert_eq!((&hook["subscription"], &hook["waiting"]), (&json!("hook"), &json!(1)));
        assert!(hook["oldest_waiting_age_ms"].as_i64().unwrap() >= 0);
        let people = place.run(&["backlog"]).ended(0);
        assert!(people.out.contains("nobody works on it"), "{people:#?}");
        assert!(people.out.contains("retention:"), "{people:#?}");
        let listed = place.run(&["subscription", "list", "--json"]).ended(0).json();
        assert_eq!(listed["subscriptions"][0]["lanes"], 16);
    }
}

#[test]
fn input_that_is_not_there_is_refused() {
    let place = Place::sqlite();
    ready(&place);
    place
        .run(&["send", "none.jsonl"])
        .ended(1)
        .says(&["OW1022", "none.jsonl"]);
}
