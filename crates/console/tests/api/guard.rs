//! Who is let in.

use std::net::SocketAddr;

use axum::Extension;
use axum::extract::ConnectInfo;
use onceward_console::{Access, Console, Scope, StoreGate};
use tokio::net::TcpListener;

use crate::client::{Request, get, post, structured};
use crate::server::{Server, store};

const EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"s","type":"a.b"}"#;

#[tokio::test]
async fn only_known_hosts_are_answered() {
    let server = Server::start_with(|console| console.hosts(["Orders.internal"])).await;
    let port = server.address.port();
    for host in [
        format!("localhost:{port}"),
        "localhost".to_owned(),
        "[::1]:80".to_owned(),
        "ORDERS.internal".to_owned(),
    ] {
        let answer = get("/v1/operations/x").header(format!("Host: {host}"));
        answer.send(server.address).await.problem(404, "OW2030");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
    ] {
        let answer = get("/v1/operations/x").header(format!("Host: {host}"));
        answer.send(server.address).await.problem(421, "OW2012");
    }
    let two = get("/v1/operations/x")
        .header("Host: localhost")
        .header("Host: localhost");
    let two = two.send(server.address).await;
    assert!([400, 421].contains(&two.status), "{two:?}");
}

#[tokio::test]
async fn other_sites_are_refused_even_with_a_good_host() {
    let server = Server::start().await;
    let own = format!("Origin: http://{}", server.address);
    let good: [Request; 3] = [
        get("/v1/operations/x")
            .header(&own)
            .header("Sec-Fetch-Site: same-origin"),
        get("/v1/operations/x").header("Sec-Fetch-Site: none"),
        get("/v1/operations/x"),
    ];
    for request in good {
        request.send(server.address).await.problem(404, "OW2030");
    }
    for header in [
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Origin: null",
        "Origin: https://evil.example",
        "Origin: http://127.0.0.1:1",
    ] {
        get("/v1/operations/x")
            .header(header)
            .send(server.address)
            .await
            .problem(403, "OW2013");
        let posted = structured(EVENT).header(header).send(server.address).await;
        posted.problem(403, "OW2013");
        assert_eq!(
            get("/livez")
                .header(header)
                .send(server.address)
                .await
                .status,
            200
        );
    }
    assert_eq!(server.log().await, []);
}

#[tokio::test]
async fn once_a_token_is_there_everything_but_the_probes_needs_it() {
    let (publisher, reader) = ("publisher-0123456789", "reader-0123456789");
    let access = Access::default()
        .with_token("shop", publisher, [Scope::Publish])
        .unwrap()
        .with_token("desk", reader, [Scope::Read])
        .unwrap();
    let server = Server::start_with(|console| console.access(access)).await;
    let bearer = |token: &str| format!("Authorization: Bearer {token}");

    for path in ["/livez", "/readyz"] {
        assert_eq!(get(path).send(server.address).await.status, 200, "{path}");
    }
    for request in [
        structured(EVENT),
        structured(EVENT).header(bearer("publisher-012345678")),
        structured(EVENT).header("Authorization: Basic cHVibGlzaGVy"),
        get("/v1/operations/x"),
        get("/v1/nothing"),
        get("/"),
    ] {
        let answer = request.send(server.address).await;
        answer.problem(401, "OW2010");
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"onceward\"")
        );
    }
    let answer = structured(EVENT)
        .header(bearer(reader))
        .send(server.address)
        .await;
    assert_eq!(answer.problem(403, "OW2011")["scope"], "publish");
    let answer = get("/v1/operations/1")
        .header(bearer(publisher))
        .send(server.address)
        .await;
    assert_eq!(answer.problem(403, "OW2011")["scope"], "read");

    let answer = structured(EVENT)
        .header(bearer(publisher))
        .send(server.address)
        .await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let answer = get("/v1/operations/1")
        .header(bearer(reader))
        .send(server.address)
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn without_a_token_only_peers_on_loopback_are_served() {
    let (store, _folder) = store().await;
    let router = Console::new(StoreGate::new(store)).router();
    for (peer, status) in [("192.0.2.7:1", 403), ("[::ffff:127.0.0.1]:1", 404)] {
        let peer: SocketAddr = peer.parse().unwrap();
        let router = router.clone().layer(Extension(ConnectInfo(peer)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let answer = get("/v1/nothing").send(address).await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let server = Server::start().await;
    get("/v1/nothing")
        .send(server.address)
        .await
        .problem(404, "OW2031");
    get("/v1/messages")
        .send(server.address)
        .await
        .problem(405, "OW2032");
    post("/v1/operations/x", "")
        .send(server.address)
        .await
        .problem(405, "OW2032");
    post("/readyz", "")
        .send(server.address)
        .await
        .problem(405, "OW2032");
    let answer = get("/livez").send(server.address).await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}
