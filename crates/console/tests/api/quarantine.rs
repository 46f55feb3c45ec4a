//! Cases over HTTP: found, worked on, corrected, revealed; and what is refused.

use std::sync::Arc;

use onceward_console::{Access, Payloads, Scope, StoreDesk};
use onceward_core::sensitivity::Sensitivity;
use onceward_core::store::{Begin, Effects, End, NewCase, Settle};
use onceward_core::{Failure, Identity, Payload, Spent};
use serde_json::{Value, json};

use crate::client::{Request, Response, get, post, structured};
use crate::server::Server;

const PUBLISH: &str = "publisher-0123456789";
const READ: &str = "reader-0123456789abc";
const OPERATE: &str = "operator-0123456789";
const REVEAL: &str = "revealer-0123456789";

/// Marks `card`, and takes only payloads with a member `zip`.
struct Rules;

impl Payloads for Rules {
    fn sensitivity(&self, _: &str) -> Sensitivity {
        let schema = json!({ "properties": { "card": { "x-sensitive": true }, "zip": {} } });
        Sensitivity::of(vec![Arc::new(schema)], None)
    }

    fn check(&self, _: &str, payload: &Payload) -> Result<(), Vec<String>> {
        let value: Value = serde_json::from_slice(payload.as_bytes()).unwrap();
        match value.get("zip") {
            Some(_) => Ok(()),
            None => Err(vec!["/zip: missing".to_owned()]),
        }
    }
}

async fn start(count: usize) -> Server {
    let mut access = Access::default();
    for (name, secret, scopes) in [
        ("shop", PUBLISH, &[Scope::Publish][..]),
        ("desk", READ, &[Scope::Read]),
        ("ada", OPERATE, &[Scope::Read, Scope::Operate]),
        ("lead", REVEAL, &[Scope::Read, Scope::Reveal]),
    ] {
        let scopes = scopes.iter().copied();
        access = access.with_token(name, secret, scopes).unwrap();
    }
    let server = Server::start_onto(|console, store| {
        let desk = StoreDesk(store.clone());
        console.access(access).desk(desk).payloads(Rules)
    })
    .await;
    for number in 1..=count {
        let event = json!({
            "specversion": "1.0", "id": format!("m-{number}"), "source": "//shop",
            "type": "order.accepted", "subject": format!("o-{number}"),
            "data": { "card": "4111222233334444", "zip": number },
        });
        let accepted = structured(event.to_string()).header(bearer(PUBLISH));
        assert_eq!(accepted.send(server.address).await.status, 202);
    }
    let failure = Failure::permanent("no_address", "4111222233334444 is not taken").record();
    let cases = server.log().await.into_iter().map(|row| NewCase {
        key: row.envelope.key().to_owned(),
        row,
        reason: "permanent: no_address".to_owned(),
        failure: failure.clone(),
        spent: Spent::default(),
        holds_key: false,
    });
    let cases: Vec<NewCase> = cases.collect();
    let settle = Settle {
        cases: &cases,
        ..Settle::nothing("fulfilment", Identity::Message)
    };
    let mut tx = server.store.begin(Begin { lease: None }).await.unwrap();
    server.store.settle(&mut tx, settle).await.unwrap();
    server.store.end(tx, End::Commit).await.unwrap();
    server
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

async fn ask(server: &Server, token: &str, request: Request) -> Response {
    request.header(bearer(token)).send(server.address).await
}

async fn act(server: &Server, token: &str, path: &str, body: Value) -> Response {
    let request = post(&format!("/v1/quarantine/{path}"), body.to_string());
    ask(
        server,
        token,
        request.header("content-type: application/json"),
    )
    .await
}

async fn show(server: &Server, path: &str) -> Value {
    let shown = ask(server, READ, get(&format!("/v1/quarantine{path}"))).await;
    assert_eq!(shown.status, 200, "{path}: {}", shown.body);
    shown.json()
}

fn numbers(list: &Value) -> Vec<i64> {
    let cases = list["cases"].as_array().unwrap().iter();
    cases
        .map(|case| case["case_id"].as_i64().unwrap())
        .collect()
}

#[tokio::test]
async fn cases_are_found_by_what_they_are_in_pages() {
    let server = start(5).await;
    act(&server, OPERATE, "2/discard", json!({ "why": "old" })).await;
    let first = show(&server, "?limit=2").await;
    assert_eq!(
        (numbers(&first), &first["next_after"]),
        (vec![1, 3], &json!(3))
    );
    let rest = show(&server, "?limit=10&after=3").await;
    assert_eq!(
        (numbers(&rest), &rest["next_after"]),
        (vec![4, 5], &Value::Null)
    );
    assert_eq!(
        numbers(&show(&server, "?state=discarded,waived").await),
        [2]
    );
    assert_eq!(numbers(&show(&server, "?state=all&key=o-4").await), [4]);
    assert_eq!(
        numbers(&show(&server, "?until=2020-01-01T00:00:00Z").await),
        [0; 0]
    );
    let groups = show(&server, "/groups?all=true").await;
    assert_eq!(
        (&groups["groups"][0]["live"], &groups["groups"][0]["all"]),
        (&json!(4), &json!(5))
    );
    for bad in [
        "?limit=0",
        "?limit=1001",
        "?state=closed",
        "?since=today",
        "?colour=red",
        "/x",
        "/groups?limit=x",
    ] {
        let refused = ask(&server, READ, get(&format!("/v1/quarantine{bad}"))).await;
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (400, Some("OW2033")),
            "{bad}"
        );
    }
    let missing = ask(&server, READ, get("/v1/quarantine/4711")).await;
    assert_eq!(
        (missing.status, missing.json()["code"].as_str()),
        (404, Some("OW2042"))
    );
}

#[tokio::test]
async fn a_case_is_worked_on_by_the_name_of_the_token() {
    let server = start(1).await;
    let due = json!({ "due_at": "2030-01-01T00:00:00Z" });
    for (action, body) in [
        ("acknowledge", json!({})),
        ("assign", json!({ "owner": "bo" })),
        ("due", due),
        ("note", json!({ "why": "asked" })),
    ] {
        let acted = act(&server, OPERATE, &format!("1/{action}"), body).await;
        assert_eq!(acted.status, 200, "{action}: {}", acted.body);
    }
    let stale = act(&server, OPERATE, "1/release", json!({ "expected": "open" })).await;
    assert_eq!(
        (stale.status, stale.json()["code"].as_str()),
        (409, Some("OW2040"))
    );
    let better =
        json!({ "why": "looked up", "payload": { "zip": 1.50, "card": "5500222233334444" } });
    let corrected = act(&server, OPERATE, "1/correct", better).await;
    assert_eq!(corrected.json()["state"], "corrected", "{}", corrected.body);
    let released = act(
        &server,
        OPERATE,
        "1/release",
        json!({ "expected": "corrected" }),
    )
    .await;
    assert_eq!(released.json()["state"], "replayed", "{}", released.body);
    let shown = show(&server, "/1").await;
    assert_eq!(
        (&shown["owner"], &shown["due_at"]),
        (&json!("bo"), &json!("2030-01-01T00:00:00Z"))
    );
    let actions = shown["history"].as_array().unwrap().iter();
    let actions: Vec<_> = actions
        .map(|entry| {
            (
                entry["action"].as_str().unwrap(),
                entry["who"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        "acknowledge",
        "assign",
        "set-due",
        "note",
        "correct",
        "release",
    ];
    assert_eq!(actions, expected.map(|action| (action, "ada")));
    assert_eq!(shown["correction"]["payload"]["card"], "<hidden>");
    let text = shown.to_string();
    assert!(!text.contains("4111") && !text.contains("5500"), "{text}");
    assert_eq!(shown["failure"]["message"], "<hidden> is not taken");
}

#[tokio::test]
async fn what_is_revealed_and_what_is_not_is_on_record() {
    let server = start(1).await;
    let refused = act(&server, OPERATE, "1/reveal", json!({ "why": "curious" })).await;
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (403, Some("OW2011"))
    );
    assert!(!refused.body.contains("4111"));
    let silent = act(&server, REVEAL, "1/reveal", json!({})).await;
    assert_eq!(
        (silent.status, silent.json()["code"].as_str()),
        (422, Some("OW2041"))
    );
    let missing = act(&server, REVEAL, "4711/reveal", json!({ "why": "x" })).await;
    assert_eq!(missing.status, 404);
    let revealed = act(
        &server,
        REVEAL,
        "1/reveal",
        json!({ "why": "the bank asks" }),
    )
    .await;
    assert_eq!(revealed.status, 200);
    assert!(
        revealed.body.contains("4111222233334444"),
        "{}",
        revealed.body
    );
    let history = show(&server, "/1").await["history"].clone();
    let entries = history.as_array().unwrap().iter();
    let entries: Vec<_> = entries
        .map(|entry| {
            [&entry["action"], &entry["who"], &entry["why"]].map(|v| v.as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [
        ["reveal-refused", "ada", "curious"],
        ["reveal", "lead", "the bank asks"],
    ];
    assert_eq!(entries, expected.map(|entry| entry.map(str::to_owned)));
}

#[tokio::test]
async fn what_cannot_be_done_changes_nothing() {
    let server = start(1).await;
    for (token, path, body, status, code) in [
        (READ, "1/release", json!({}), 403, "OW2011"),
        (PUBLISH, "1/reveal", json!({ "why": "x" }), 403, "OW2011"),
        (OPERATE, "1/discard", json!({}), 422, "OW2041"),
        (OPERATE, "1/purge", json!({ "why": "x" }), 409, "OW2040"),
        (OPERATE, "4711/release", json!({}), 404, "OW2042"),
        (OPERATE, "1/explode", json!({}), 404, "OW2031"),
        (OPERATE, "x/release", json!({}), 400, "OW2033"),
        (
            OPERATE,
            "1/release",
            json!({ "owner": "bo" }),
            400,
            "OW2044",
        ),
        (
            OPERATE,
            "1/release",
            json!({ "secret-7": 1 }),
            400,
            "OW2044",
        ),
        (OPERATE, "1/release", json!([1]), 400, "OW2044"),
        (OPERATE, "1/correct", json!({ "why": "x" }), 422, "OW2043"),
        (
            OPERATE,
            "1/correct",
            json!({ "why": "x", "payload": {} }),
            422,
            "OW2043",
        ),
        (
            OPERATE,
            "1/correct",
            json!({ "payload": { "zip": 1 } }),
            422,
            "OW2041",
        ),
    ] {
        let refused = act(&server, token, path, body).await;
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (status, Some(code)),
            "{path}: {}",
            refused.body
        );
        assert!(!refused.body.contains("secret-7"), "{}", refused.body);
    }
    let form = post("/v1/quarantine/1/release", "why=x").header("content-type: text/plain");
    assert_eq!(ask(&server, OPERATE, form).await.status, 415);
    let shown = show(&server, "/1").await;
    assert_eq!(shown["state"], "open");
    assert!(shown["history"].as_array().unwrap().is_empty(), "{shown}");
}

#[tokio::test]
async fn without_a_desk_there_is_no_quarantine() {
    let server = Server::start().await;
    let missing = get("/v1/quarantine").send(server.address).await;
    assert_eq!(
        (missing.status, missing.json()["code"].as_str()),
        (404, Some("OW2031"))
    );
}
