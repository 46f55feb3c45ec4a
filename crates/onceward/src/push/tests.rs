//! Against a real server on this machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response as Answer};
use onceward_core::{Class, Payload, Timestamp};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;

const SECRETS: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request as it arrived.
#[derive(Debug)]
struct Received {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

/// Answers every request alike and keeps what arrived.
struct Receiver {
    status: StatusCode,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
    received: Mutex<Vec<Received>>,
}

impl Receiver {
    async fn start(
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: &'static str,
    ) -> (Arc<Self>, SocketAddr) {
        let receiver = Arc::new(Self {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body,
            received: Mutex::default(),
        });
        let router = Router::new()
            .fallback(Self::take)
            .with_state(Arc::clone(&receiver));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, address)
    }

    async fn take(
        State(receiver): State<Arc<Self>>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Answer {
        receiver.received.lock().unwrap().push(Received {
            method,
            uri,
            headers,
            body,
        });
        let mut answer = (receiver.status, receiver.body).into_response();
        for (name, value) in &receiver.headers {
            answer.headers_mut().insert(*name, value.parse().unwrap());
        }
        answer
    }
}

fn row() -> Row {
    let payload = Payload::Json("{ \"n\": 9007199254740993 }".into());
    let mut envelope = Envelope::new("m.1", "order", "ord-731", "order.accepted", payload);
    envelope.source = Some("//shop".into());
    envelope.operation_id = Some("checkout-284".into());
    envelope.attributes = BTreeMap::from([
        ("authorization".to_owned(), "Bearer x".to_owned()),
        ("note".to_owned(), "a\r\nx-evil: 1 é".to_owned()),
    ]);
    Row {
        xid: 1,
        seq: 1,
        slot: 0,
        recorded_at: Timestamp::from_micros(1_764_511_200_000_000),
        envelope,
        corrects: None,
    }
}

fn options(address: SocketAddr) -> PushOptions {
    let secrets = SigningSecrets::parse(SECRETS).unwrap();
    let mut options = PushOptions::new(format!("http://{address}/hook/cap"), secrets);
    options.timeout_ms = 10_000;
    options
}

fn deliverer(address: SocketAddr, has_probe: bool) -> PushDeliverer {
    let mut options = options(address);
    options.probe = has_probe.then(|| format!("http://{address}/probe?tenant=7"));
    PushDeliverer::new(options).unwrap()
}

#[tokio::test]
async fn a_message_arrives_signed_with_its_bytes_and_encoded_attributes() {
    let (receiver, address) = Receiver::start(204, vec![], "").await;
    let push = deliverer(address, false);
    let row = row();
    for attempt in [1, 2] {
        let delivery = Delivery {
            subscription: "hook",
            row: &row,
            attempt,
        };
        push.deliver(&delivery).await.unwrap();
    }
    let received = receiver.received.lock().unwrap();
    assert_eq!(received.len(), 2);
    for request in &*received {
        assert_eq!(
            (request.method.as_str(), request.uri.path()),
            ("POST", "/hook/cap")
        );
        let header = |name: &str| request.headers.get(name).map(|v| v.to_str().unwrap());
        assert_eq!(&request.body[..], row.envelope.payload.as_bytes());
        assert_eq!(header("content-type"), Some("application/json"));
        assert_eq!(header("ce-id"), Some("m.1"));
        assert_eq!(header("ce-source"), Some("//shop"));
        assert_eq!(header("ce-recordedtime"), Some("2025-11-30T14:00:00Z"));
        assert_eq!(header("ce-authorization"), Some("Bearer%20x"));
        assert_eq!(header("ce-note"), Some("a%0D%0Ax-evil:%201%20%C3%A9"));
        assert_eq!((header("authorization"), header("x-evil")), (None, None));
        assert_eq!(header("webhook-id"), Some("m%2E1"));
        let timestamp = header("webhook-timestamp").unwrap().parse().unwrap();
        let signed =
            SigningSecrets::parse(SECRETS)
                .unwrap()
                .sign("m%2E1", timestamp, &request.body);
        assert_eq!(header("webhook-signature"), Some(signed.as_str()));
    }
}

#[tokio::test]
async fn answers_become_failures_as_the_table_says() {
    for (status, without, with) in [
        (200, None, None),
        (409, None, None),
        (400, Some(Class::Permanent), Some(Class::Permanent)),
        (422, Some(Class::Rejected), Some(Class::Rejected)),
        (403, Some(Class::Operator), Some(Class::Operator)),
        (410, Some(Class::Operator), Some(Class::Operator)),
        (408, Some(Class::Transient), Some(Class::Transient)),
        (429, Some(Class::RateLimited), Some(Class::RateLimited)),
        (500, Some(Class::Transient), Some(Class::Ambiguous)),
        (503, Some(Class::Transient), Some(Class::Ambiguous)),
    ] {
        let (_receiver, address) = Receiver::start(status, vec![], "{\"why\":1}").await;
        for (has_probe, expected) in [(false, without), (true, with)] {
            let outcome = deliverer(address, has_probe).push(&row()).await;
            let class = outcome.as_ref().err().map(Failure::class);
            assert_eq!(class, expected, "{status}, probe: {has_probe}");
            if let Err(failure) = outcome {
                assert_eq!(failure.code(), format!("http_{status}"));
                assert_eq!(failure.outcome().is_some(), status == 422);
            }
        }
    }
}

#[tokio::test]
async fn a_named_window_is_kept() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(600));
    for (status, value) in [(503, "600".to_owned()), (429, date)] {
        let (_receiver, address) = Receiver::start(status, vec![("retry-after", value)], "").await;
        let failure = deliverer(address, true).push(&row()).await.unwrap_err();
        assert_eq!(failure.class(), Class::RateLimited);
        let wait_ms = failure.retry_after_ms().unwrap();
        assert!((500_000..=600_000).contains(&wait_ms), "{wait_ms}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (elsewhere, other) = Receiver::start(200, vec![], "").await;
    let location = vec![("location", format!("http://{other}/"))];
    for status in [301, 302, 303, 307, 308] {
        let (receiver, address) = Receiver::start(status, location.clone(), "").await;
        let failure = deliverer(address, true).push(&row()).await.unwrap_err();
        assert_eq!(failure.class(), Class::Operator, "{status}");
        assert_eq!(receiver.received.lock().unwrap().len(), 1);
    }
    assert!(elsewhere.received.lock().unwrap().is_empty());
}

/// A listener that does `end` with each connection once a request's first bytes are there.
async fn listener_that(end: fn(tokio::net::TcpStream, Arc<Notify>)) -> (SocketAddr, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let done = Arc::new(Notify::new());
    let at_end = Arc::clone(&done);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut byte = [0];
            if connection.read_exact(&mut byte).await.is_ok() {
                end(connection, Arc::clone(&at_end));
            }
        }
    });
    (address, done)
}

#[tokio::test]
async fn a_slow_receiver_is_left_after_the_timeout() {
    // Held open until the sender gives up.
    let (address, done) = listener_that(|mut connection, done| {
        tokio::spawn(async move {
            let mut rest = Vec::new();
            let _ = connection.read_to_end(&mut rest).await;
            done.notify_one();
        });
    })
    .await;
    for (probe, class) in [
        (None, Class::Transient),
        (Some("http://127.0.0.1/"), Class::Ambiguous),
    ] {
        let mut options = options(address);
        options.timeout_ms = 50;
        options.probe = probe.map(str::to_owned);
        let failure = PushDeliverer::new(options)
            .unwrap()
            .push(&row())
            .await
            .unwrap_err();
        assert_eq!((failure.class(), failure.code()), (class, "push_timeout"));
        assert!(failure.message().contains("50 ms"), "{failure}");
        done.notified().await;
    }
}

#[tokio::test]
async fn a_connection_lost_after_sending_may_have_done_it() {
    let (address, _done) = listener_that(|connection, _| drop(connection)).await;
    for (has_probe, class) in [(false, Class::Transient), (true, Class::Ambiguous)] {
        let failure = deliverer(address, has_probe)
            .push(&row())
            .await
            .unwrap_err();
        assert_eq!((failure.class(), failure.code()), (class, "push_lost"));
        let record = failure.record();
        let shown = format!("{failure} {:?}", record.detail);
        assert!(
            !shown.contains("cap"),
            "the path may be a capability: {shown}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_has_done_nothing() {
    // Bound and not listening: the port is refused, and nobody else can take it meanwhile.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let failure = deliverer(address, true).push(&row()).await.unwrap_err();
    assert_eq!(
        (failure.class(), failure.code()),
        (Class::Transient, "push_unconnected")
    );
}

#[tokio::test]
async fn the_probe_is_asked_by_operation() {
    let (receiver, address) = Receiver::start(200, vec![], "{\"happened\":true}").await;
    let found = deliverer(address, true).probe(&row()).await.unwrap();
    assert_eq!(found, Probe::Happened(()));
    {
        let received = receiver.received.lock().unwrap();
        let query = received[0].uri.query().unwrap();
        assert_eq!(
            query,
            "tenant=7&source=%2F%2Fshop&type=order.accepted&id=m.1&operation=checkout-284"
        );
        assert!(received[0].headers.contains_key("webhook-signature"));
        assert!(received[0].body.is_empty());
    }
    let (_receiver, address) = Receiver::start(200, vec![], "{\"happened\":false}").await;
    let found = deliverer(address, true).probe(&row()).await.unwrap();
    assert_eq!(found, Probe::DidNotHappen);
    let (_receiver, address) = Receiver::start(404, vec![], "").await;
    let failure = deliverer(address, true).probe(&row()).await.unwrap_err();
    assert_eq!(failure.class(), Class::Operator);
    let unsupported = deliverer(address, false).probe(&row()).await.unwrap();
    assert_eq!(unsupported, Probe::Unsupported);
}

#[tokio::test]
async fn what_cannot_travel_is_permanent_and_not_sent() {
    let (receiver, address) = Receiver::start(200, vec![], "").await;
    let mut row = row();
    row.envelope
        .attributes
        .insert("tenant-id".into(), "t".into());
    let failure = deliverer(address, true).push(&row).await.unwrap_err();
    assert_eq!(
        (failure.class(), failure.code()),
        (Class::Permanent, "push_event")
    );
    assert!(receiver.received.lock().unwrap().is_empty());
}

#[test]
fn addresses_are_plain() {
    let secrets = SigningSecrets::parse(SECRETS).unwrap();
    for bad in [
        "",
        "hook",
        "ftp://x/",
        "http://u:p@x/",
        "http://u@x/",
        "http://x/#f",
        "file:///x",
    ] {
        let made = PushDeliverer::new(PushOptions::new(bad, secrets.clone()));
        assert!(
            matches!(made, Err(PushError::Address { which: "url", .. })),
            "{bad}"
        );
    }
    let made = PushDeliverer::new(PushOptions::new("http://x/cap?token=1", secrets)).unwrap();
    let shown = format!("{made:?}");
    assert!(
        shown.contains("http://x") && !shown.contains("cap"),
        "{shown}"
    );
}
