//! What is refused, with nothing left behind.

use std::sync::Mutex;

use onceward_console::{
    BoxFuture, Console, Gate, GateError, NotReady, Outcome, Refusal, Submission,
};
use onceward_core::store::{MessageStatus, RevealOperation, StoreError, StoreErrorKind};

use crate::client::{Request, batch, get, post, structured};
use crate::server::{Server, serve};

const GOOD: &str = r#""specversion":"1.0","id":"m-1","source":"//shop","type":"order.accepted""#;

fn good() -> String {
    format!("{{{GOOD}}}")
}

fn binary(body: &str) -> Request {
    post("/v1/messages", body)
        .header("ce-specversion: 1.0")
        .header("ce-id: m-1")
        .header("ce-source: //shop")
        .header("ce-type: order.accepted")
}

#[tokio::test]
async fn faults_of_events_are_placed() {
    let server = Server::start().await;
    let deep = format!("{{{GOOD},\"data\":{}{}}}", "[".repeat(600), "]".repeat(600));
    let cases: [(&[u8], &str); 8] = [
        (b"{", ""),
        (b"{\"specversion\":\"1.0\",\"id\":\"\xff\"}", ""),
        (b"{\"specversion\":\"1.0\",\"id\":\"\0\"}", "/id"),
        (br#"{"specversion":"1.0","id":"1","source":"s"}"#, "/type"),
        (
            br#"{"specversion":"1.0","id":"1","id":"1","source":"s","type":"t"}"#,
            "/id",
        ),
        (
            br#"{"specversion":"1.0","id":"1\u0000","source":"s","type":"t"}"#,
            "/id",
        ),
        (
            br#"{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":}}"#,
            "/data",
        ),
        (deep.as_bytes(), "/data"),
    ];
    for (body, pointer) in cases {
        let problem = structured(body)
            .send(server.address)
            .await
            .problem(400, "OW2001");
        assert_eq!(problem["pointer"], pointer, "{problem}");
    }
    let second = format!("[{},{{}}]", good());
    let problem = batch(second)
        .send(server.address)
        .await
        .problem(400, "OW2001");
    assert_eq!(
        (&problem["pointer"], &problem["index"]),
        (&"/1/specversion".into(), &1.into())
    );

    let escape = binary("").header("ce-x: 50% off");
    let problem = escape.send(server.address).await.problem(400, "OW2001");
    assert_eq!(problem["header"], "ce-x");
    let broken = binary("{").header("content-type: application/json");
    let problem = broken.send(server.address).await.problem(400, "OW2001");
    assert_eq!(problem["pointer"], "/data");
    assert_eq!(server.log().await, []);
}

#[tokio::test]
async fn other_content_types_are_refused() {
    let server = Server::start().await;
    for content_type in [
        "text/plain",
        "Text/Plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/cloudevents+avro",
    ] {
        let header = format!("content-type: {content_type}");
        let plain = post("/v1/messages", good()).header(&header);
        plain.send(server.address).await.problem(415, "OW2002");
        let with_headers = binary("x").header(&header);
        with_headers
            .send(server.address)
            .await
            .problem(415, "OW2002");
    }
    let json = post("/v1/messages", good()).header("content-type: application/json");
    json.send(server.address).await.problem(415, "OW2002");
    post("/v1/messages", good())
        .send(server.address)
        .await
        .problem(415, "OW2002");
    let two = structured(good()).header("content-type: application/json");
    two.send(server.address).await.problem(415, "OW2002");
    assert_eq!(server.log().await, []);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let server = Server::start_with(|console| console.body_bytes_max(1_000)).await;
    let event = |bytes: usize| {
        let empty = format!("{{{GOOD},\"data\":\"\"}}").len();
        format!("{{{GOOD},\"data\":\"{}\"}}", "x".repeat(bytes - empty))
    };
    let problem = structured(event(1_001))
        .send(server.address)
        .await
        .problem(413, "OW2003");
    assert_eq!(problem["limit_bytes"], 1_000);
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", 1_001, event(1_001));
    let chunked = structured(chunked).header("transfer-encoding: chunked");
    let problem = chunked.send(server.address).await.problem(413, "OW2003");
    assert_eq!(problem["limit_bytes"], 1_000);
    let declared = structured("").header("content-length: 1000000000000");
    declared.send(server.address).await.problem(413, "OW2003");
    assert_eq!(
        structured(event(1_000)).send(server.address).await.status,
        202
    );
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let server = Server::start_with(|console| console.body_timeout_ms(20)).await;
    let half = structured(&good()[..9]).header(format!("content-length: {}", good().len()));
    half.send(server.address).await.problem(408, "OW2009");
    assert_eq!(server.log().await, []);
}

#[tokio::test]
async fn a_closed_contract_takes_declared_types_only() {
    let server = Server::start_with(|console| console.types(["order.accepted"])).await;
    assert_eq!(structured(good()).send(server.address).await.status, 202);
    let other = good()
        .replace("order.accepted", "order.lost")
        .replace("m-1", "m-2");
    let problem = structured(&other)
        .send(server.address)
        .await
        .problem(422, "OW2007");
    assert_eq!(problem["pointer"], "/type");
    let both = format!("[{},{other}]", good().replace("m-1", "m-3"));
    let problem = batch(both)
        .send(server.address)
        .await
        .problem(422, "OW2007");
    assert_eq!(
        (&problem["pointer"], &problem["index"]),
        (&"/1/type".into(), &1.into())
    );
    assert_eq!(server.log().await.len(), 1);
}

#[tokio::test]
async fn a_bad_key_is_refused() {
    let server = Server::start().await;
    for key in ["\"\"", "a b", "\"a", "a,b"] {
        let request = structured(good()).header(format!("Idempotency-Key: {key}"));
        request.send(server.address).await.problem(400, "OW2004");
    }
    assert_eq!(server.log().await, []);
}

/// A gate in trouble.
struct Troubled(Mutex<Vec<Result<Outcome, StoreErrorKind>>>);

impl Gate for Troubled {
    fn accept(&self, _: Submission) -> BoxFuture<'_, Result<Outcome, GateError>> {
        let next = self.0.lock().unwrap().pop().unwrap();
        Box::pin(async move { next.map_err(|kind| error(kind).into()) })
    }

    fn operation<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<MessageStatus>, GateError>> {
        Box::pin(async { Err(error(StoreErrorKind::Unavailable).into()) })
    }

    fn reveal_operation<'a>(
        &'a self,
        _: RevealOperation<'a>,
    ) -> BoxFuture<'a, Result<(), GateError>> {
        Box::pin(async { Err(error(StoreErrorKind::Unavailable).into()) })
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), NotReady>> {
        Box::pin(async { Ok(()) })
    }
}

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "reach the database", "quotes the payload")
}

#[tokio::test]
async fn trouble_behind_the_gate_is_never_an_acknowledgement() {
    use StoreErrorKind as K;
    let refused = |refusal| {
        let index = None;
        Ok(Outcome::Refused { refusal, index })
    };
    let cases = [
        (Err(K::Unavailable), 503, "OW2020", Some("1")),
        (Err(K::ReadOnly), 503, "OW2020", Some("1")),
        (Err(K::CommitUnknown), 503, "OW2020", Some("1")),
        (Err(K::Schema), 503, "OW2020", Some("1")),
        (Err(K::WrongEra), 503, "OW2020", Some("1")),
        (Err(K::Full), 429, "OW2022", Some("30")),
        (Err(K::Refused), 422, "OW2008", None),
        (Err(K::Denied), 500, "OW2023", None),
        (refused(Refusal::InFlight), 409, "OW2006", Some("1")),
        (refused(Refusal::Mismatch), 422, "OW2005", None),
    ];
    for (outcome, status, code, retry_after) in cases {
        let gate = Troubled(Mutex::new(vec![outcome]));
        let address = serve(Console::new(gate).router()).await;
        let answer = structured(good()).send(address).await;
        answer.problem(status, code);
        assert_eq!(answer.header("retry-after"), retry_after, "{code}");
        assert!(!answer.body.contains("payload"), "{}", answer.body);
    }
    let gate = Troubled(Mutex::default());
    let address = serve(Console::new(gate).router()).await;
    get("/v1/operations/o")
        .send(address)
        .await
        .problem(503, "OW2020");
}
