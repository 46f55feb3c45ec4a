//! Merging, shedding and refusing, with the whole program.

use axum::http::StatusCode;
use serde_json::Value;

use crate::on_both_stores;
use crate::place::{Place, event, push_to};
use crate::receiver::Receiver;

fn with_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Messages `first..=last` of one key.
fn events(first: u32, last: u32) -> String {
    let events = first..=last;
    events
        .map(|n| event(&format!("m{n}"), "order.accepted", "o1", "1"))
        .collect()
}

fn dropped(place: &Place, more: &[&str]) -> Value {
    let args = [&["subscription", "dropped", "hook", "--json"], more].concat();
    place.run(&args).ended(0).json()
}

on_both_stores! {
    async fn what_waits_together_is_pushed_once_and_the_rest_is_listed(place) {
        with_crypto();
        let mut receiver = Receiver::start(|_| StatusCode::NO_CONTENT, false).await;
        place.configure(&format!("{}merge = \"latest\"\n", push_to(&receiver.url())));
        place.run(&["migrate"]).ended(0);
        place.run_with_input(&["send"], events(1, 5)).ended(0);
        let daemon = place.up(&[]);
        assert_eq!(receiver.next().await.header("webhook-id"), "m5");
        place.nothing_is_left();
        let shown = place.run(&["operation", "show", "m2"]).ended(0);
        assert!(shown.out.contains("merged into m5"), "{shown:#?}");
        let all = dropped(&place, &[]);
        let of = |page: &Value| -> Vec<String> {
            let rows = page["dropped"].as_array().unwrap().iter();
            rows.map(|row| {
                assert_eq!((&row["outcome"], &row["merged_into"]), (&"merged".into(), &"m5".into()));
                row["identity"].as_str().unwrap().to_owned()
            }).collect()
        };
        let mut ids = of(&all);
        assert_eq!(all["next"], Value::Null);
        let first = dropped(&place, &["--max", "3"]);
        let cursor = first["next"].as_str().unwrap();
        let second = dropped(&place, &["--max", "3", "--after", cursor]);
        assert_eq!([of(&first), of(&second)].concat(), ids);
        ids.sort();
        assert_eq!(ids, ["m1", "m2", "m3", "m4"]);
        assert!(of(&dropped(&place, &["--outcome", "shed"])).is_empty());
        place.run(&["subscription", "dropped", "hook", "--after", "x"]).ended(2);
        place.run(&["subscription", "dropped", "nobody"]).ended(1);
        let backlog = place.run(&["backlog"]).ended(0);
        assert!(backlog.out.contains("given up: hook: 4 merged (4 in the last hour)"), "{backlog:#?}");
        assert_eq!(place.backlog()["dropped"][1]["last_day"], 4);
        assert_eq!(daemon.stop(), 0);
        assert!(receiver.is_idle());
    }

    async fn what_came_late_is_shed_and_counted(place) {
        with_crypto();
        let mut receiver = Receiver::start(|_| StatusCode::NO_CONTENT, false).await;
        let shed = "shed = { types = [\"order.accepted\"], after = \"1ms\" }\n";
        place.configure(&format!("{}{shed}", push_to(&receiver.url())));
        place.run(&["migrate"]).ended(0);
        // The daemon takes longer to start than they may wait.
        place.run_with_input(&["send"], events(1, 3)).ended(0);
        let daemon = place.up(&[]);
        place.nothing_is_left();
        assert_eq!(dropped(&place, &["--outcome", "shed"])["dropped"].as_array().unwrap().len(), 3);
        let listed = place.run(&["subscription", "list", "--json"]).ended(0).json();
        assert_eq!(listed["subscriptions"][0]["dropped"][2]["outcome"], "shed");
        assert_eq!(listed["subscriptions"][0]["dropped"][2]["last_hour"], 3);
        assert_eq!(daemon.stop(), 0);
        assert!(receiver.is_idle());
    }

    async fn a_producer_is_sent_away_while_too_much_waits_and_send_waits_for_it(place) {
        with_crypto();
        let receiver = Receiver::start(|_| StatusCode::NO_CONTENT, false).await;
        let typed = "[message.\"order.accepted\"]\nthrottle = \"refuse\"\n\
                     promise = { finish_within = \"1s\" }\n";
        let push = push_to(&receiver.url()).replace("[message.\"order.accepted\"]\n", typed);
        place.configure(&push);
        let daemon = place.up(&["--migrate"]);
        place.run_with_input(&["send", "--url", &daemon.url], events(1, 1)).ended(0);
        place.nothing_is_left();
        place.run(&["subscription", "pause", "hook", "--why", "test"]).ended(0);
        let client = reqwest::Client::new();
        let url = format!("{}/v1/messages", daemon.url);
        // From when the pause is noticed on, what is accepted waits.
        let mut refused = None;
        for n in 1_000..100_000 {
            let body = events(n, n);
            let request = client.post(&url).header("content-type", "application/cloudevents+json");
            let response = request.body(body).send().await.unwrap();
            if response.status() == 429 {
                refused = Some(response);
                break;
            }
            assert_eq!(response.status(), 202);
        }
        let refused = refused.unwrap();
        let retry_after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=300).contains(&retry_after), "{retry_after}");
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["code"], "OW2024");
        // What was accepted is known all the same.
        place.run_with_input(&["send", "--url", &daemon.url], events(1, 1)).ended(0);
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        assert_eq!(backlog["refusing"][0]["verdict"], "refuse", "{backlog}");
        let shown = place.run(&["backlog"]).ended(0);
        assert!(shown.out.contains("refused: new order.accepted messages"), "{shown:#?}");
        // A sender waits for as long as it is told to, and is done when it goes on.
        place.write("new.ndjson", &events(200_000, 200_003));
        let sender = place.start(&["send", "new.ndjson", "--url", &daemon.url]);
        place.run(&["subscription", "resume", "hook", "--why", "test"]).ended(0);
        let sent = sender.wait_with_output().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        place.nothing_is_left();
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        assert_eq!(backlog["refusing"][0]["verdict"], "open", "{backlog}");
        assert_eq!(daemon.stop(), 0);
    }
}
