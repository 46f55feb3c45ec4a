//! Requests that a hostile page, a broken client or a wrong tool would send.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use axum::http::StatusCode;

use crate::place::{Place, SOON, event, push_to};
use crate::raw;
use crate::receiver::Receiver;

fn good(id: &str) -> String {
    event(id, "order.accepted", "o1", "1").trim().to_owned()
}

/// Writes bytes as they are, says that no more will follow, and returns what came back.
fn bytes(url: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A daemon that pushes to a receiver, and the receiver: what arrives there was accepted.
async fn place() -> (Place, Receiver, crate::place::Daemon) {
    let place = Place::sqlite();
    let receiver = Receiver::start(|_| StatusCode::OK, false).await;
    place.configure_http("body_bytes_max = 4096\n", &push_to(&receiver.url()));
    let daemon = place.up(&["--migrate"]);
    (place, receiver, daemon)
}

/// A good event is taken, and nothing came before it.
async fn only_the_good_one_arrives(url: &str, receiver: &mut Receiver) {
    assert_eq!(raw::structured(url, &[], good("good")).status, 202);
    assert_eq!(receiver.next().await.header("webhook-id"), "good");
    assert!(receiver.is_idle());
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_can_do_nothing() {
    let (_place, mut receiver, daemon) = place().await;
    let url = daemon.url.as_str();
    for content_type in [
        "text/plain",
        "text/plain; charset=utf-8",
        "TEXT/PLAIN",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let header = format!("Content-Type: {content_type}");
        let posted = raw::request(
            url,
            "POST /v1/messages",
            &[&header],
            good("plain").as_bytes(),
        );
        posted.problem(415, "OW2002");
        raw::binary(url, "plain", &[&header], b"1").problem(415, "OW2002");
    }
    raw::request(url, "POST /v1/messages", &[], good("untyped").as_bytes()).problem(415, "OW2002");
    for header in [
        "Origin: https://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:1",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        raw::structured(url, &[header], good("foreign")).problem(403, "OW2013");
        raw::request(url, "GET /v1/operations/foreign", &[header], b"").problem(403, "OW2013");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:80",
    ] {
        let host = format!("Host: {host}");
        raw::structured(url, &[&host], good("rebound")).problem(421, "OW2012");
        raw::request(url, "GET /v1/operations/rebound", &[&host], b"").problem(421, "OW2012");
    }
    // What an image tag can send.
    for path in ["/v1/messages", "/v1/messages?id=x"] {
        raw::request(url, &format!("GET {path}"), &[], b"").problem(405, "OW2032");
    }
    // Before a page of another site may send JSON, its browser asks: there is no yes.
    let asking = [
        "Origin: https://evil.example",
        "Access-Control-Request-Method: POST",
    ];
    let asked = raw::request(url, "OPTIONS /v1/messages", &asking, b"");
    assert_eq!(asked.status, 403, "{asked:#?}");
    assert!(
        !asked
            .head
            .to_ascii_lowercase()
            .contains("access-control-allow"),
        "{asked:#?}"
    );
    only_the_good_one_arrives(url, &mut receiver).await;
    assert_eq!(daemon.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_or_no_http_is_refused_and_the_next_is_served() {
    let (_place, mut receiver, daemon) = place().await;
    let url = daemon.url.as_str();
    let large = event(
        "large",
        "order.accepted",
        "o1",
        &format!("\"{}\"", "x".repeat(4_096)),
    );
    let problem = raw::structured(url, &[], &large).problem(413, "OW2003");
    assert_eq!(problem["limit_bytes"], 4_096);
    assert!(
        problem["detail"].as_str().unwrap().contains("4096"),
        "{problem}"
    );
    let json = ["Content-Type: application/json"];
    raw::binary(url, "large", &json, &[b'1'; 4_097]).problem(413, "OW2003");
    let host = url.strip_prefix("http://").unwrap();
    let json = "Content-Type: application/cloudevents+json";
    let post = format!("POST /v1/messages HTTP/1.1\r\nHost: {host}\r\n{json}\r\n");
    let body = good("smuggled");
    let length = body.len();
    for request in [
        // More than one length, and none that is a number.
        format!("{post}Content-Length: 5\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!("{post}Content-Length: -1\r\n\r\n{body}"),
        format!("{post}Content-Length: +{length}\r\n\r\n{body}"),
        // Chunks that are none, and an end that never comes.
        format!("{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n"),
        format!("{post}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n"),
        format!("{post}Transfer-Encoding: gzip, identity\r\n\r\n{body}"),
        // Cut off.
        format!("{post}Content-Length: {}\r\n\r\n{body}", length + 1),
        format!("{post}Content-Length: {length}\r\n"),
        // No HTTP.
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        format!("POST /v1/messages HTTP/9.9\r\nHost: {host}\r\n\r\n"),
        format!("{post}Bad Header: x\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!(
            "{post}X: {}\r\nContent-Length: {length}\r\n\r\n{body}",
            "x".repeat(1 << 20)
        ),
        format!(
            "{post}{}Content-Length: {length}\r\n\r\n{body}",
            "X: y\r\n".repeat(2_000)
        ),
    ] {
        let answer = bytes(url, request.as_bytes());
        let status = answer.split(' ').nth(1).unwrap_or("none");
        let is_refused =
            ["none", "400", "408", "413", "414", "431", "501", "505"].contains(&status);
        assert!(
            is_refused,
            "{:?} got {answer}",
            &request[..request.len().min(300)]
        );
    }
    for path in [
        "/v1/operations/%ff",
        "/v1/operations/%00",
        "/v1/operations/..%2f..",
        "/v1/operations/x?reveal=maybe",
    ] {
        let answer = raw::request(url, &format!("GET {path}"), &[], b"");
        assert!([400, 404].contains(&answer.status), "{path}: {answer:#?}");
        assert_eq!(answer.json()["status"], answer.status);
    }
    only_the_good_one_arrives(url, &mut receiver).await;
    assert_eq!(daemon.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_placed_with_a_pointer_or_a_header() {
    let (_place, mut receiver, daemon) = place().await;
    let url = daemon.url.as_str();
    let long = "k".repeat(2_000);
    let wide = "€".repeat(400);
    for (body, pointer) in [
        (String::new(), ""),
        ("[]".to_owned(), ""),
        ("{}".to_owned(), "/specversion"),
        (good("m").replace("1.0", "0.3"), "/specversion"),
        (good("m").replace("\"m\"", "[7]"), "/id"),
        (good("m").replace("\"m\"", "\"\""), "/id"),
        (good("m").replace("\"m\"", &format!("\"{long}\"")), "/id"),
        (
            good("m").replace("\"o1\"", &format!("\"{wide}\"")),
            "/subject",
        ),
        (good("m").replace("\"o1\"", "\"a\\u0000b\""), "/subject"),
        (good("m").replace("\"o1\"", "\"\\ud800\""), "/subject"),
        (good("m").replace("order.accepted", &long), "/type"),
        (good("m").replace("\"/test\"", "\"a b\""), "/source"),
        (
            good("m").replace("\"data\"", "\"Bad~Name/\":1,\"data\""),
            "/Bad~0Name~1",
        ),
        (
            good("m").replace("\"data\"", "\"time\":\"yesterday\",\"data\""),
            "/time",
        ),
        (
            good("m").replace("\"data\"", "\"time\":\"2026-02-30T00:00:00Z\",\"data\""),
            "/time",
        ),
        (
            good("m").replace("\"data\"", "\"data_base64\":\"x\",\"data\""),
            "/data_base64",
        ),
        (
            good("m").replace("\"data\":1", "\"data_base64\":\"***\""),
            "/data_base64",
        ),
        (
            good("m").replace("\"data\"", "\"id\":\"n\",\"data\""),
            "/id",
        ),
        (
            good("m").replace("\"data\"", "\"x\":{\"y\":1},\"data\""),
            "/x",
        ),
    ] {
        let problem = raw::structured(url, &[], &body).problem(400, "OW2001");
        assert_eq!(problem["pointer"], pointer, "{body}: {problem}");
    }
    let unknown = good("m").replace("order.accepted", "order.acepted");
    assert_eq!(
        raw::structured(url, &[], unknown).problem(422, "OW2007")["pointer"],
        "/type"
    );
    for (header, place) in [
        ("ce-subject: %00", "ce-subject"),
        ("ce-subject: %ff", "ce-subject"),
        ("ce-subject: %zz", "ce-subject"),
        ("ce-time: now", "ce-time"),
        ("ce-data: x", "ce-data"),
        ("ce-x-y: x", "ce-x-y"),
        ("ce-id: twice", "ce-id"),
    ] {
        let json = "Content-Type: application/json";
        let problem = raw::binary(url, "m", &[json, header], b"1").problem(400, "OW2001");
        assert_eq!(problem["header"], place, "{problem}");
    }
    only_the_good_one_arrives(url, &mut receiver).await;
    assert_eq!(daemon.stop(), 0);
}
