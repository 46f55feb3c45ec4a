//! New work that would not be done in time is refused; what was accepted before is not touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::{Response, batch, structured};
use crate::server::Server;

fn event(id: &str, message_type: &str) -> String {
    format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"//shop","type":"{message_type}",
        "subject":"ord-731","data":1}}"#
    )
}

/// A server whose type `order.accepted` is refused while the number is not nought.
async fn server() -> (Server, Arc<AtomicU64>) {
    let retry_after_ms = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&retry_after_ms);
    let server = Server::start_with_gate(
        |gate| {
            gate.throttle(move |message_type| {
                let ms = told.load(Ordering::SeqCst);
                (message_type == "order.accepted" && ms > 0).then_some(ms)
            })
        },
        |console, _| console,
    );
    (server.await, retry_after_ms)
}

fn assert_refused(response: &Response, index: u64) {
    assert_eq!(response.status, 429, "{}", response.body);
    assert_eq!(response.header("retry-after"), Some("3"));
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json")
    );
    let problem = response.json();
    assert_eq!(problem["code"], "OW2024");
    assert_eq!(problem["retryable"], true);
    assert_eq!(problem["index"], index);
}

#[tokio::test]
async fn new_messages_of_a_refused_type_come_back_later_and_known_ones_get_their_answer() {
    let (server, retry_after_ms) = server().await;
    let send = async |id: &str, message_type: &str| {
        structured(event(id, message_type))
            .send(server.address)
            .await
    };
    let first = send("m-1", "order.accepted").await;
    assert_eq!(first.status, 202, "{}", first.body);

    retry_after_ms.store(2_001, Ordering::SeqCst);
    assert_refused(&send("m-2", "order.accepted").await, 0);
    let again = send("m-1", "order.accepted").await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(send("m-3", "order.shipped").await.status, 202);
    assert_eq!(server.log().await.len(), 2);

    retry_after_ms.store(0, Ordering::SeqCst);
    assert_eq!(send("m-2", "order.accepted").await.status, 202);
    assert_eq!(server.log().await.len(), 3);
}

#[tokio::test]
async fn a_batch_is_refused_whole_and_its_key_stays_free() {
    let (server, retry_after_ms) = server().await;
    let known = structured(event("m-1", "order.accepted"));
    assert_eq!(known.send(server.address).await.status, 202);
    let events = [
        event("m-1", "order.accepted"),
        event("m-2", "order.shipped"),
        event("m-3", "order.accepted"),
    ];
    let events = format!("[{}]", events.join(","));
    let keyed = || batch(&events).header("idempotency-key: all");
    retry_after_ms.store(2_500, Ordering::SeqCst);
    // By its own key m-1 is known; under a new key for all of them it is new.
    assert_refused(&batch(&events).send(server.address).await, 2);
    assert_refused(&keyed().send(server.address).await, 0);
    assert_eq!(server.log().await.len(), 1);
    retry_after_ms.store(0, Ordering::SeqCst);
    let first = keyed().send(server.address).await;
    assert_eq!(first.status, 202, "{}", first.body);
    retry_after_ms.store(2_500, Ordering::SeqCst);
    let again = keyed().send(server.address).await;
    assert_eq!((again.status, again.body), (202, first.body));
}
