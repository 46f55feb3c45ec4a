//! What is accepted, once.

use onceward_console::{Access, Scope};
use serde_json::json;

use crate::client::{batch, post, structured};
use crate::server::Server;

fn event(id: &str, data: &str) -> String {
    format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"//shop","type":"order.accepted",
        "subject":"ord-731","operationid":"checkout/284","data":{data}}}"#
    )
}

#[tokio::test]
async fn an_event_is_accepted_once_and_its_data_stay() {
    let server = Server::start().await;
    let data = r#"{"n": 9007199254740993, "n":-0.10 , "s":"\u0000"}"#;
    let first = structured(event("m-1", data)).send(server.address).await;
    assert_eq!(first.status, 202, "{}", first.body);
    assert_eq!(first.header("idempotency-replayed"), None);
    let message = json!({
        "id": "m-1", "source": "//shop", "operation": "checkout/284", "status": "accepted",
        "href": "/v1/operations/checkout%2F284",
    });
    assert_eq!(first.json(), json!({ "messages": [message] }));

    let again = structured(event("m-1", data)).send(server.address).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(server.rings(), 1);

    let log = server.log().await;
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].envelope.payload.as_bytes(), data.as_bytes());
}

#[tokio::test]
async fn the_same_event_is_the_same_in_every_mode() {
    let server = Server::start().await;
    let binary = |data: &str| {
        post("/v1/messages", data)
            .header("content-type: application/json")
            .header("ce-specversion: 1.0")
            .header("ce-id: m-1")
            .header("ce-source: //shop")
            .header("ce-type: order.accepted")
            .header("ce-subject: ord-731")
            .header("ce-operationid: checkout/284")
    };
    let first = binary("[1]").send(server.address).await;
    assert_eq!(first.status, 202, "{}", first.body);
    for again in [
        structured(event("m-1", "[1]")),
        batch(format!("[{}]", event("m-1", "[1]"))),
    ] {
        let again = again.send(server.address).await;
        assert_eq!((again.status, &again.body), (202, &first.body));
    }
    binary("[2]")
        .send(server.address)
        .await
        .problem(422, "OW2005");
    assert_eq!(server.log().await.len(), 1);
}

#[tokio::test]
async fn a_key_covers_everything_in_its_request() {
    let server = Server::start().await;
    let both = format!("[{},{}]", event("m-1", "1"), event("m-2", "2"));
    let quoted = "idempotency-key: \"8e03 \\\"97\\\"\"";
    let first = batch(&both).header(quoted).send(server.address).await;
    assert_eq!(first.status, 202, "{}", first.body);
    assert_eq!(first.json()["messages"].as_array().unwrap().len(), 2);
    let again = batch(&both).header(quoted).send(server.address).await;
    assert_eq!((again.body, again.status), (first.body, 202));
    // The key wins: the same content under another is another request.
    let other = batch(&both)
        .header("Idempotency-Key: other")
        .send(server.address)
        .await;
    assert_eq!(
        (other.status, other.header("idempotency-replayed")),
        (202, None)
    );
    let part = structured(event("m-1", "1"))
        .header(quoted)
        .send(server.address)
        .await;
    part.problem(422, "OW2005");
    let quoted_bare = structured(event("m-9", "1")).header("Idempotency-Key: bare");
    assert_eq!(quoted_bare.send(server.address).await.status, 202);
    let same_key = structured(event("m-9", "1")).header("Idempotency-Key: \"bare\"");
    let again = same_key.send(server.address).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(server.log().await.len(), 5);
}

#[tokio::test]
async fn a_batch_without_a_key_adds_what_is_new() {
    let server = Server::start().await;
    let one = structured(event("m-1", "1")).send(server.address).await;
    let three = format!("[{0},{1},{0}]", event("m-1", "1"), event("m-2", "2"));
    let answer = batch(&three).send(server.address).await;
    assert_eq!(
        (answer.status, answer.header("idempotency-replayed")),
        (202, None)
    );
    let messages = answer.json()["messages"].clone();
    assert_eq!(messages[0], one.json()["messages"][0]);
    assert_eq!(
        (&messages[1]["id"], &messages[2]["id"]),
        (&json!("m-2"), &json!("m-1"))
    );
    let again = batch(&three).send(server.address).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body, answer.body);
    assert_eq!(server.log().await.len(), 2);
    // One that does not fit leaves nothing of the others behind.
    let mixed = format!("[{},{}]", event("m-3", "3"), event("m-1", "changed"));
    let mixed = mixed.replace("changed", "[]");
    let problem = batch(&mixed)
        .send(server.address)
        .await
        .problem(422, "OW2005");
    assert_eq!(problem["index"], 1);
    assert_eq!(server.log().await.len(), 2);
    let empty = batch("[]").send(server.address).await;
    assert_eq!(
        (empty.status, empty.body.as_str()),
        (202, "{\"messages\":[]}")
    );
}

#[tokio::test]
async fn keys_of_different_callers_never_meet() {
    let (shop, crm) = ("0123456789abcdef-shop", "0123456789abcdef-crm");
    let access = Access::default()
        .with_token("shop", shop, [Scope::Publish])
        .unwrap();
    let access = access.with_token("crm", crm, [Scope::Publish]).unwrap();
    let server = Server::start_with(|console| console.access(access)).await;
    for (token, data) in [(shop, "1"), (crm, "2")] {
        let request = structured(event("m-1", data))
            .header("Idempotency-Key: k")
            .header(format!("Authorization: Bearer {token}"));
        let answer = request.send(server.address).await;
        assert_eq!(
            (answer.status, answer.header("idempotency-replayed")),
            (202, None)
        );
    }
    assert_eq!(server.log().await.len(), 2);
}

#[tokio::test]
async fn many_at_once_with_one_key_are_one() {
    let server = Server::start().await;
    let requests = (0..16).map(|_| {
        let request = structured(event("m-1", "1")).header("Idempotency-Key: k");
        tokio::spawn(request.send(server.address))
    });
    let mut bodies = Vec::new();
    for request in requests.collect::<Vec<_>>() {
        let answer = request.await.unwrap();
        assert_eq!(answer.status, 202, "{}", answer.body);
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    assert_eq!(server.log().await.len(), 1);
    assert_eq!(server.rings(), 1);
}
