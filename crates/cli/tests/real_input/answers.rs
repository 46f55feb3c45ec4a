//! Every answer that a receiver can give, and what becomes of the message.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::http::{StatusCode, header};
use serde_json::Value;

use crate::on_both_stores;
use crate::place::{Place, event};
use crate::receiver::{Answer, Received, Receiver};

/// Where a message ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Done at this attempt.
    Delivered(usize),
    Rejected,
    /// A case with this reason, after so many attempts.
    Quarantined(&'static str, usize),
    /// Waits for a person, with the failure's code.
    Operator(&'static str),
    /// Waits for a time, and no attempt was burnt.
    RateLimited(&'static str),
}

/// Name (also of type, subscription and path), and the end.
const ANSWERS: [(&str, End); 25] = [
    ("200", End::Delivered(1)),
    ("202", End::Delivered(1)),
    ("204", End::Delivered(1)),
    ("409", End::Delivered(1)),
    ("422", End::Rejected),
    ("400", End::Quarantined("http_400", 1)),
    ("413", End::Quarantined("http_413", 1)),
    ("415", End::Quarantined("http_415", 1)),
    ("431", End::Quarantined("http_431", 1)),
    ("401", End::Operator("http_401")),
    ("403", End::Operator("http_403")),
    ("404", End::Operator("http_404")),
    ("410", End::Operator("http_410")),
    ("301", End::Operator("http_301")),
    ("303", End::Operator("http_303")),
    ("307", End::Operator("http_307")),
    ("429", End::Delivered(2)),
    ("429-wait", End::RateLimited("http_429")),
    ("503-wait", End::RateLimited("http_503")),
    ("503", End::Quarantined("http_503", 3)),
    ("500", End::Quarantined("http_500", 3)),
    ("408", End::Quarantined("http_408", 3)),
    ("500-once", End::Delivered(2)),
    ("silent-once", End::Delivered(2)),
    ("silent", End::Quarantined("push_timeout", 3)),
];

fn config(url: &str) -> String {
    let mut config = String::new();
    for (name, _) in ANSWERS {
        config.push_str(&format!(
            "[message.\"case.{name}\"]\n[subscription.s{name}]\nmessages = [\"case.{name}\"]\n\
             start = \"earliest\"\nlanes = 1\n\
             retry = {{ base = \"10ms\", cap = \"50ms\", attempts_max = 3 }}\n\
             push = {{ url = \"{url}/{name}\", timeout = \"500ms\" }}\n"
        ));
    }
    config
}

/// The answer to the attempt of this number.
fn answer(name: &str, attempt: usize) -> Answer {
    match (name, attempt) {
        ("301" | "303" | "307", _) => {
            Answer::with(name.parse().unwrap(), header::LOCATION, "/elsewhere")
        }
        ("422", _) => Answer::saying(422, r#"{"reason": "no such address", "card": "4111"}"#),
        ("429", 1) => StatusCode::TOO_MANY_REQUESTS.into(),
        ("429-wait", _) => Answer::with(429, header::RETRY_AFTER, "3600"),
        ("503-wait", _) => Answer::with(503, header::RETRY_AFTER, "3600"),
        ("500-once", 1) => StatusCode::INTERNAL_SERVER_ERROR.into(),
        ("silent-once", 1) | ("silent", _) => Answer::Never,
        ("429" | "500-once" | "silent-once", _) => StatusCode::OK.into(),
        (status, _) => StatusCode::from_u16(status.parse().unwrap())
            .unwrap()
            .into(),
    }
}

fn state(place: &Place, name: &str) -> Value {
    let args = ["operation", "show", name, "--json"];
    let mut shown = place.run(&args).ended(0).json();
    shown["messages"][0]["subscriptions"][format!("s{name}")].take()
}

/// Whether a state is the one that is expected; nothing while it may still become so.
fn has_ended(state: &Value, end: End) -> bool {
    let code = &state["failure"]["code"];
    match end {
        End::Delivered(_) => state["state"] == "delivered",
        End::Rejected => state["state"] == "finished" && state["ending"] == "rejected",
        End::Quarantined(..) => state["state"] == "quarantined",
        End::Operator(expected) => {
            state["state"] == "deferred" && state["kind"] == "operator" && code == expected
        }
        End::RateLimited(expected) => {
            state["state"] == "deferred" && state["kind"] == "retry" && code == expected
        }
    }
}

on_both_stores! {
    async fn each_answer_leads_to_its_end(place) {
        let attempts = Mutex::new(BTreeMap::<String, usize>::new());
        let answering = move |request: &Received| {
            let name = request.path.rsplit('/').next().unwrap().to_owned();
            let mut attempts = attempts.lock().unwrap();
            let attempt = attempts.entry(name.clone()).or_default();
            *attempt += 1;
            answer(&name, *attempt)
        };
        let mut receiver = Receiver::start(answering, false).await;
        place.configure(&config(&receiver.url()));
        let daemon = place.up(&["--migrate"]);
        let all: String = ANSWERS
            .iter()
            .map(|(name, _)| event(name, &format!("case.{name}"), "o1", "{\"card\": \"4111\"}"))
            .collect();
        place.run_with_input(&["send"], all).ended(0);
        for (name, end) in ANSWERS {
            place.until(&format!("{name}: {end:?}"), || has_ended(&state(&place, name), end).then_some(()));
        }
        // Ids stay, and nobody followed a redirect.
        let mut seen = BTreeMap::<String, usize>::new();
        for request in receiver.drain() {
            let name = request.header("webhook-id").to_owned();
            assert_eq!(request.path, format!("/hook/{name}"));
            assert_eq!(request.text(), "{\"card\": \"4111\"}");
            *seen.entry(name).or_default() += 1;
        }
        let listed = place.run(&["quarantine", "list", "--json"]).ended(0);
        assert!(!listed.out.contains("4111"), "{listed:#?}");
        let cases = listed.json();
        let case_of = |name: &str| {
            let cases = cases["cases"].as_array().unwrap();
            cases.iter().find(|case| case["message"]["id"] == name).cloned()
        };
        for (name, end) in ANSWERS {
            let state = state(&place, name);
            let case = case_of(name);
            let attempts = match end {
                End::Delivered(attempts) => attempts,
                End::Quarantined(reason, attempts) => {
                    let case = case.clone().unwrap_or_else(|| panic!("no case of {name}"));
                    assert_eq!(case["failure"]["code"], reason, "{case}");
                    assert_eq!(case["attempts"], attempts, "{case}");
                    let why = if attempts == 1 { "permanent" } else { "attempts_exhausted" };
                    assert_eq!(state["reason"], why, "{state}");
                    attempts
                }
                End::RateLimited(_) => {
                    assert_eq!(state["spent"]["failures"], 0, "{state}");
                    assert_eq!(state["spent"]["waits"], 1, "{state}");
                    assert!(state["due_at"].is_string(), "{state}");
                    1
                }
                End::Operator(_) => {
                    assert!(state["due_at"].is_null(), "{state}");
                    1
                }
                End::Rejected => {
                    assert_eq!(state.get("result"), None, "withheld: {state}");
                    1
                }
            };
            assert_eq!(seen[name], attempts, "requests of {name}");
            let is_case = matches!(end, End::Quarantined(..));
            assert_eq!(case.is_some(), is_case, "{name}");
        }
        let backlog = place.run(&["backlog", "--json"]).ended(0).json();
        for subscription in backlog["subscriptions"].as_array().unwrap() {
            let name = &subscription["subscription"].as_str().unwrap()[1..];
            let (_, end) = ANSWERS.iter().find(|(known, _)| known == &name).unwrap();
            let deferred = &subscription["deferred"];
            let counts = (&deferred["operator"], &deferred["retry"], &subscription["quarantined"]);
            let expected = match end {
                End::Operator(_) => (1, 0, 0),
                End::RateLimited(_) => (0, 1, 0),
                End::Quarantined(..) => (0, 0, 1),
                _ => (0, 0, 0),
            };
            let expected = (&expected.0.into(), &expected.1.into(), &expected.2.into());
            assert_eq!(counts, expected, "{subscription}");
            assert_eq!(subscription["waiting"], 0, "{subscription}");
        }
        let revealed = place.run(&["operation", "show", "422", "--reveal", "--why", "a test", "--json"]).ended(0);
        assert!(revealed.out.contains("no such address"), "{revealed:#?}");
        assert_eq!(daemon.stop(), 0);
    }
}
