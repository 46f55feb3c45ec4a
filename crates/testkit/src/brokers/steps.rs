//! What cases do again and again.

use onceward_core::broker::{
    Act, Confirmed, Content, Outgoing, Publish, Publisher, Receive, Received, Settlement,
    Subscriber, Tag,
};
use onceward_core::{Envelope, Failure, Payload};

/// Longest wait for confirmations, in milliseconds.
pub(super) const PUBLISH_MS: u64 = 20_000;

/// Longest wait for a message that has to come, in milliseconds.
pub(super) const RECEIVE_MS: u64 = 20_000;

/// Wait after which a message that must not come has not come, in milliseconds.
pub(super) const QUIET_MS: u64 = 400;

/// A small message.
pub(super) fn message(id: &str) -> Envelope {
    Envelope {
        source: Some("/suite".into()),
        ..Envelope::new(
            id,
            "order",
            "o-1",
            "order.accepted",
            Payload::Json("{}".into()),
        )
    }
}

/// Publishes each to its topic.
pub(super) async fn publish(
    publisher: &dyn Publisher,
    messages: &[(&str, &Envelope)],
) -> Vec<Result<Confirmed, Failure>> {
    let outgoing = messages.iter().map(|(topic, envelope)| Outgoing {
        topic,
        envelope,
        recorded_at: None,
    });
    let outgoing: Vec<Outgoing<'_>> = outgoing.collect();
    let batch = Publish {
        messages: &outgoing,
        timeout_ms: PUBLISH_MS,
    };
    let outcomes = publisher.publish(batch).await;
    assert_eq!(outcomes.len(), messages.len(), "one outcome each");
    outcomes
}

/// Publishes messages that have to be confirmed, each by itself.
pub(super) async fn confirmed(publisher: &dyn Publisher, topic: &str, ids: &[&str]) {
    for id in ids {
        let outcome = publish(publisher, &[(topic, &message(id))]).await.remove(0);
        assert!(outcome.is_ok(), "{id}: {:?}", outcome.err());
    }
}

/// Receives this many messages, however many calls it takes.
pub(super) async fn receive(subscriber: &dyn Subscriber, count: usize) -> Vec<Received> {
    let mut received = Vec::new();
    while received.len() < count {
        let more = receive_within(subscriber, RECEIVE_MS).await;
        assert!(!more.is_empty(), "{} of {count} came", received.len());
        received.extend(more);
    }
    assert_eq!(received.len(), count, "as many as there are");
    received
}

/// One call of receive.
pub(super) async fn receive_within(subscriber: &dyn Subscriber, wait_ms: u64) -> Vec<Received> {
    let request = Receive {
        messages_max: 100,
        bytes_max: 16 << 20,
        wait_ms,
    };
    subscriber
        .receive(request)
        .await
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Nothing comes.
pub(super) async fn quiet(subscriber: &dyn Subscriber) {
    let more = receive_within(subscriber, QUIET_MS).await;
    let ids: Vec<&str> = more.iter().map(id).collect();
    assert!(ids.is_empty(), "came again: {ids:?}");
}

/// Settles one delivery.
pub(super) async fn settle(subscriber: &dyn Subscriber, tag: Tag, act: Act) {
    let settled = subscriber
        .settle(&[Settlement { tag, act }])
        .await
        .remove(0);
    settled.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What is in it.
pub(super) fn envelope(received: &Received) -> &Envelope {
    match &received.content {
        Content::Event(envelope) | Content::Foreign(envelope) => envelope,
        Content::Faulty(faulty) => panic!("not to be read: {}", faulty.fault),
    }
}

/// The message's id.
pub(super) fn id(received: &Received) -> &str {
    &envelope(received).id
}
