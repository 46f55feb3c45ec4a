//! What only a server can show: two transactions at once, and a database that goes away.

use std::net::SocketAddr;

use onceward_console::{Console, StoreGate};
use onceward_core::store::{Begin, Effects, End, Schema};
use onceward_postgres::{Options, Postgres};
use onceward_testkit::postgres::{PostgresServer, TestDatabase};

use crate::client::{Response, get, structured};
use crate::server::serve;

const EVENT: &str = r#"{"specversion":"1.0","id":"m-1","source":"//shop","type":"order.accepted",
    "data":{"n": 9007199254740993, "n":-0.10}}"#;

async fn start(url: &str) -> (Postgres, SocketAddr) {
    // So that an absent server is noticed soon.
    let options = Options {
        acquire_timeout_ms: 2_000,
        ..Options::default()
    };
    let store = Postgres::connect_with(url, options).await.unwrap();
    store.migrate().await.unwrap();
    let router = Console::new(StoreGate::new(store.clone())).router();
    (store, serve(router).await)
}

async fn submit(address: SocketAddr) -> Response {
    structured(EVENT)
        .header("Idempotency-Key: k")
        .send(address)
        .await
}

#[tokio::test]
async fn a_key_that_is_being_worked_on_is_a_conflict() {
    let database = TestDatabase::lease().await;
    let (store, address) = start(database.url()).await;
    // Whoever appends now waits, after it has claimed its key.
    let mut lock = store.begin(Begin { lease: None }).await.unwrap();
    sqlx::query("LOCK TABLE onceward.outbox IN SHARE ROW EXCLUSIVE MODE")
        .execute(store.connection(&mut lock))
        .await
        .unwrap();
    let first = tokio::spawn(submit(address));
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted
        AND relation = 'onceward.outbox'::regclass";
    while database.psql(waiting).await.trim() != "1" {}

    let second = submit(address).await;
    second.problem(409, "OW2006");
    assert_eq!(second.header("retry-after"), Some("1"));

    store.end(lock, End::RollBack).await.unwrap();
    let first = first.await.unwrap();
    assert_eq!(first.status, 202, "{}", first.body);
    let third = submit(address).await;
    assert_eq!((third.status, third.body), (202, first.body));
    let rows = database.psql("SELECT payload FROM onceward.outbox").await;
    assert_eq!(rows.trim(), r#"{"n": 9007199254740993, "n":-0.10}"#);
}

#[tokio::test]
async fn while_the_database_is_away_nothing_is_acknowledged() {
    let mut server = PostgresServer::start().await;
    let (_store, address) = start(&server.url("postgres")).await;
    assert_eq!(submit(address).await.status, 202);
    assert_eq!(get("/readyz").send(address).await.status, 200);

    server.kill().await;
    let other = EVENT.replace("m-1", "m-2");
    let refused = structured(&other).send(address).await;
    refused.problem(503, "OW2020");
    assert_eq!(refused.header("retry-after"), Some("1"));
    get("/v1/operations/m-1")
        .send(address)
        .await
        .problem(503, "OW2020");
    let problem = get("/readyz").send(address).await.problem(503, "OW2021");
    assert_eq!(problem["check"], "database");
    assert_eq!(get("/livez").send(address).await.status, 200);

    server.restart().await;
    let again = submit(address).await;
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (202, Some("true"))
    );
    let new = structured(&other).send(address).await;
    assert_eq!(
        (new.status, new.header("idempotency-replayed")),
        (202, None),
        "{}",
        new.body
    );
}
