//! Asking how far an operation has come.

use onceward_console::{Access, Scope};
use onceward_core::store::{
    Begin, Declared, Effects, End, HistoryQuery, Operate, Schema, Settle, Start,
};
use onceward_core::{Ending, Identity, LedgerEntry, LedgerKey};

use crate::client::{get, structured};
use crate::server::Server;

const PUBLISH: &str = "publisher-0123456789";
const READ: &str = "reader-0123456789";
const REVEAL: &str = "revealer-0123456789";

const EVENT: &str = r#"{"specversion":"1.0","id":"m-1","source":"//shop","type":"order.accepted",
    "operationid":"checkout/284","data":{"card":4111}}"#;

async fn start() -> Server {
    let access = Access::default()
        .with_token("shop", PUBLISH, [Scope::Publish])
        .unwrap();
    let access = access.with_token("desk", READ, [Scope::Read]).unwrap();
    let access = access
        .with_token("lead", REVEAL, [Scope::Read, Scope::Reveal])
        .unwrap();
    let server = Server::start_with(|console| console.access(access)).await;
    let types = ["order.accepted".to_owned()];
    let registered = server.store.register(Declared {
        subscription: "fulfilment",
        lanes: 1,
        types: &types,
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: onceward_core::store::Terms::default(),
    });
    registered.await.unwrap();
    server
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// The effect of the one message in the log, with a result.
async fn finish(server: &Server) {
    let row = server.log().await.remove(0);
    let entry = LedgerEntry {
        key: LedgerKey::of(&row, Identity::Message),
        digest: None,
        ending: Ending::Done,
        result: Some(r#"{"label":"secret-992"}"#.into()),
        aggregate_version: None,
        aggregate: None,
    };
    let mut tx = server.store.begin(Begin { lease: None }).await.unwrap();
    let settle = Settle {
        ledger: &[entry],
        ..Settle::nothing("fulfilment", Identity::Message)
    };
    server.store.settle(&mut tx, settle).await.unwrap();
    server.store.end(tx, End::Commit).await.unwrap();
}

#[tokio::test]
async fn accepted_becomes_completed_only_with_its_effect() {
    let server = start().await;
    let accepted = structured(EVENT)
        .header(bearer(PUBLISH))
        .send(server.address)
        .await;
    let href = accepted.json()["messages"][0]["href"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(href, "/v1/operations/checkout%2F284");

    let shown = get(&href).header(bearer(READ)).send(server.address).await;
    let operation = shown.json();
    assert_eq!(
        (shown.status, operation["status"].as_str()),
        (200, Some("accepted"))
    );
    assert_eq!(operation["operation"], "checkout/284");
    let message = &operation["messages"][0];
    assert_eq!(
        (&message["id"], &message["type"]),
        (&"m-1".into(), &"order.accepted".into())
    );
    assert_eq!(message["subscriptions"]["fulfilment"]["state"], "pending");
    assert!(!shown.body.contains("4111"), "{}", shown.body);

    finish(&server).await;
    let shown = get(&href).header(bearer(READ)).send(server.address).await;
    assert_eq!(shown.json()["status"], "completed");
    assert_eq!(
        shown.json()["messages"][0]["subscriptions"]["fulfilment"]["ending"],
        "done"
    );
}

#[tokio::test]
async fn results_need_the_right_and_the_wish() {
    let server = start().await;
    structured(EVENT)
        .header(bearer(PUBLISH))
        .send(server.address)
        .await;
    finish(&server).await;
    let ask = |query: &str, token: &str| {
        get(&format!("/v1/operations/checkout%2F284{query}")).header(bearer(token))
    };
    for (query, token) in [("", READ), ("", REVEAL), ("?reveal=false", REVEAL)] {
        let shown = ask(query, token).send(server.address).await;
        assert_eq!(shown.status, 200, "{}", shown.body);
        assert!(
            !shown.body.contains("secret-992"),
            "{query}: {}",
            shown.body
        );
    }
    let denied = ask("?reveal=true", READ).send(server.address).await;
    assert_eq!(denied.problem(403, "OW2011")["scope"], "reveal");
    let without = ask("?reveal=true", REVEAL).send(server.address).await;
    without.problem(422, "OW2041");
    let why = "?reveal=true&why=the%20bank%20asks";
    let shown = ask(why, REVEAL).send(server.address).await;
    assert!(shown.body.contains("secret-992"), "{}", shown.body);
    let query = HistoryQuery::default();
    let history = server.store.history(query).await.unwrap();
    let told: Vec<_> = history
        .iter()
        .map(|entry| {
            (
                entry.action.as_str(),
                entry.who.as_str(),
                entry.why.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("reveal-refused", "desk", None),
            ("reveal", "lead", Some("the bank asks")),
        ]
    );
    assert_eq!(history[1].subscription, "fulfilment");
    assert!(history[1].after.contains("checkout/284"), "{history:?}");
    for bad in ["?reveal=yes", "?revel=true"] {
        ask(bad, REVEAL)
            .send(server.address)
            .await
            .problem(400, "OW2033");
    }
}

#[tokio::test]
async fn what_is_not_known_is_not_found() {
    let server = start().await;
    let unknown = get("/v1/operations/none")
        .header(bearer(READ))
        .send(server.address)
        .await;
    unknown.problem(404, "OW2030");
    let unreadable = get("/v1/operations/%FF")
        .header(bearer(READ))
        .send(server.address)
        .await;
    unreadable.problem(400, "OW2033");
}
