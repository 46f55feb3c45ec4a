//! What is asked for is looked for literally, whatever it looks like.

use axum::http::StatusCode;

use crate::on_both_stores;
use crate::place::{event, push_to};
use crate::receiver::Receiver;

on_both_stores! {
    async fn questions_that_look_like_sql_are_texts(place) {
        let receiver = Receiver::start(|_| StatusCode::BAD_REQUEST, false).await;
        place.configure(&push_to(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let long = "%".repeat(10_000);
        let hostile = [
            "' OR '1'='1",
            "m1'; DROP TABLE onceward_outbox; --",
            "%",
            "m_",
            "\\",
            "$1 ?1 {m1} *",
            "é\u{202e}\u{feff}",
            &long,
        ];
        place.run_with_input(&["send"], event("m1", "order.accepted", "o1", "1")).ended(0);
        place.watch("m1", 1);
        let no_sql = |text: &str| {
            let text = text.to_lowercase();
            for word in ["sqlstate", "syntax error", "unrecognized token", "select ", "near \""] {
                assert!(!text.contains(word), "{text}");
            }
        };
        for text in hostile {
            for args in [
                vec!["operation", "show", text],
                vec!["backlog", "--subscription", text],
            ] {
                // What begins like an option would be one.
                let ran = place.run(&args).ended(1).says(&["OW1023"]);
                no_sql(&ran.err);
                // The question itself is repeated once at most.
                assert!(ran.err.len() < 400 + 2 * text.len(), "{ran:#?}");
            }
            let args = ["quarantine", "list", "--json", "--subscription", text];
            let ran = place.run(&args).ended(0);
            assert_eq!(ran.json()["cases"], serde_json::json!([]), "{text}");
        }
        for args in [
            &["quarantine", "show", "1 OR 1=1"][..],
            &["quarantine", "list", "--after", "0; DROP"],
            &["quarantine", "list", "--limit", "-1"],
            &["quarantine", "list", "--limit", "999999999999"],
            &["backlog", "--count-max", "-1"],
        ] {
            place.run(args).ended(2);
        }
        // Nothing was dropped, and the literal one is still found, by messages with such ids too.
        let ids = ["' OR '1'='1", "m1'; DROP TABLE onceward_outbox; --", "%", "m_"];
        let lines: String = ids.iter().map(|id| event(id, "order.accepted", id, "1")).collect();
        place.run_with_input(&["send"], lines).ended(0);
        for id in ids {
            place.watch(id, 1);
            let shown = place.run(&["operation", "show", id, "--json"]).ended(0).json();
            let messages = shown["messages"].as_array().unwrap();
            assert_eq!((messages.len(), &messages[0]["id"]), (1, &id.into()), "{shown}");
        }
        let listed = place.run(&["quarantine", "list", "--json", "--subscription", "hook"]);
        assert_eq!(listed.ended(0).json()["cases"].as_array().unwrap().len(), 5);
        let page = place.run(&["quarantine", "list", "--json", "--limit", "2", "--after", "1"]);
        assert_eq!(page.ended(0).json()["cases"].as_array().unwrap().len(), 2);
        assert_eq!(daemon.stop(), 0);
    }
}
