//! A server that dies, hangs or refuses; returns, limits and headers.

use std::time::{Duration, Instant};

use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Connection, ConnectionProperties};
use onceward_brokers::rabbitmq::{RabbitOptions, RabbitPublisher, RabbitSubscriber};
use onceward_core::broker::{self, Confirmed, Outgoing, Publish, Publisher, Receive, Subscriber};
use onceward_core::{Envelope, Failure, Payload};
use onceward_testkit::brokers::{Fixture as _, RabbitServer};

use crate::fixture::RabbitFixture;

fn message(id: &str) -> Envelope {
    Envelope {
        source: Some("/shop".into()),
        ..Envelope::new(
            id,
            "order",
            id,
            "order.accepted",
            Payload::Json("{}".into()),
        )
    }
}

async fn publish(
    publisher: &dyn Publisher,
    topic: &str,
    envelope: &Envelope,
    timeout_ms: u64,
) -> Result<Confirmed, Failure> {
    let messages = [Outgoing {
        topic,
        envelope,
        recorded_at: None,
    }];
    let batch = Publish {
        messages: &messages,
        timeout_ms,
    };
    publisher.publish(batch).await.remove(0)
}

/// Publishes again and again until it is confirmed, as the relay does.
async fn until_confirmed(publisher: &dyn Publisher, topic: &str, envelope: &Envelope) {
    let since = Instant::now();
    loop {
        let Err(failure) = publish(publisher, topic, envelope, 2_000).await else {
            return;
        };
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{} recovers by itself: {failure}",
            envelope.id
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// BC-03, BC-32: killed and frozen under the publisher; no wait is without an end, nothing counts
/// as confirmed that is not there afterwards, and it goes on by itself. The queue is a classic one:
/// a quorum queue of this version may take minutes to elect a leader after a kill.
#[tokio::test]
async fn a_server_that_dies_or_hangs_loses_nothing_that_was_confirmed() {
    let server = RabbitServer::start_with("max_message_size = 100000").await;
    let mut options = RabbitOptions::new(&server.url(), "").expect("an address");
    options.queue = "orders".to_owned();
    let url = server.url();
    let connecting = Connection::connect(&url, ConnectionProperties::default());
    let connection = connecting.await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare("orders".into(), durable, FieldTable::default())
        .await
        .unwrap();
    let publisher = RabbitPublisher::new(options.clone());
    until_confirmed(&publisher, "orders", &message("before")).await;
    only_the_one_beyond_the_servers_own_limit_fails(&publisher).await;
    server.freeze(true);
    let since = Instant::now();
    let failure = publish(&publisher, "orders", &message("hangs"), 500)
        .await
        .unwrap_err();
    assert_eq!(failure.code(), broker::UNCONFIRMED, "{failure}");
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    server.freeze(false);
    until_confirmed(&publisher, "orders", &message("hangs")).await;
    server.kill();
    let since = Instant::now();
    loop {
        let failure = publish(&publisher, "orders", &message("during"), 500)
            .await
            .unwrap_err();
        if failure.code() == broker::UNCONNECTED {
            assert!(failure.is_outage(), "it uses nothing of the budget");
            break;
        }
        assert_eq!(failure.code(), broker::UNCONFIRMED, "{failure}");
        assert!(since.elapsed() < Duration::from_secs(20));
    }
    server.start_again();
    until_confirmed(&publisher, "orders", &message("during")).await;
    let subscriber = RabbitSubscriber::new(options);
    let mut ids = std::collections::BTreeSet::new();
    let since = Instant::now();
    while ids.len() < 5 {
        assert!(since.elapsed() < Duration::from_secs(60), "{ids:?}");
        let request = Receive {
            messages_max: 10,
            bytes_max: 1 << 20,
            wait_ms: 1_000,
        };
        for received in subscriber.receive(request).await.unwrap_or_default() {
            if let broker::Content::Event(envelope) = received.content {
                ids.insert(envelope.id);
            }
        }
    }
    let wanted = ["before", "beside-0", "beside-1", "during", "hangs"];
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), wanted);
}

/// The server's limit is smaller than what is configured: it ends the channel, with all that is
/// under way there, and says not because of which message.
async fn only_the_one_beyond_the_servers_own_limit_fails(publisher: &RabbitPublisher) {
    let mut large = message("large");
    large.payload = Payload::Json(format!("\"{}\"", "x".repeat(150_000)).into());
    let beside = ["beside-0", "beside-1"].map(message);
    let messages = [&beside[0], &large, &beside[1]].map(|envelope| Outgoing {
        topic: "orders",
        envelope,
        recorded_at: None,
    });
    let batch = Publish {
        messages: &messages,
        timeout_ms: 15_000,
    };
    let outcomes = publisher.publish(batch).await;
    let codes: Vec<Option<&str>> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().err().map(Failure::code))
        .collect();
    assert_eq!(codes, [None, Some(broker::UNSENDABLE), None]);
}

/// BC-04: a binding that goes while messages are published. What no queue takes is told for just
/// these messages, and goes once there is one again.
#[tokio::test]
async fn a_binding_that_is_gone_is_told_and_then_repaired() {
    let fixture = RabbitFixture::shared().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    until_confirmed(&*publisher, &topic, &message("before")).await;
    let connection = fixture.connection().await;
    let channel = connection.create_channel().await.unwrap();
    let name = || ShortString::from(fixture.options.queue.as_str());
    let none = FieldTable::default;
    channel
        .queue_unbind(name(), name(), "orders.#".into(), none())
        .await
        .unwrap();
    let failure = publish(&*publisher, &topic, &message("lost"), 5_000)
        .await
        .unwrap_err();
    assert_eq!(failure.code(), broker::UNROUTABLE, "{failure}");
    channel
        .queue_bind(
            name(),
            name(),
            "orders.#".into(),
            Default::default(),
            none(),
        )
        .await
        .unwrap();
    until_confirmed(&*publisher, &topic, &message("lost")).await;
    channel
        .queue_delete(name(), QueueDeleteOptions::default())
        .await
        .unwrap();
    let failure = publish(&*publisher, &topic, &message("late"), 5_000)
        .await
        .unwrap_err();
    assert_eq!(failure.code(), broker::UNROUTABLE, "{failure}");
}

/// EX-05: headers that fit into no frame would end the connection, and every message with it.
#[tokio::test]
async fn headers_larger_than_a_frame_are_a_messages_own_fault() {
    let fixture = RabbitFixture::shared().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let mut large = message("large");
    for n in 0..200 {
        large
            .attributes
            .insert(format!("note{n}"), "x".repeat(1_000));
    }
    let fine = message("fine");
    let messages = [&large, &fine].map(|envelope| Outgoing {
        topic: &topic,
        envelope,
        recorded_at: None,
    });
    let outcomes = publisher
        .publish(Publish {
            messages: &messages,
            timeout_ms: 5_000,
        })
        .await;
    let codes: Vec<Option<&str>> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().err().map(Failure::code))
        .collect();
    assert_eq!(codes, [Some(broker::TOO_LARGE), None]);
}

/// BC-32: an exchange that is not there is everybody's trouble and nobody's fault.
#[tokio::test]
async fn a_missing_exchange_or_host_is_an_outage_and_passes() {
    let fixture = RabbitFixture::shared().await;
    let options = RabbitOptions {
        declares: false,
        ..fixture.options.clone()
    };
    let missing = RabbitOptions {
        exchange: format!("{}-not", options.exchange),
        ..options
    };
    let publisher = RabbitPublisher::new(missing.clone());
    let failure = publish(&publisher, "orders.eu", &message("1"), 5_000)
        .await
        .unwrap_err();
    assert!(failure.is_outage(), "{failure}");
    // Made by somebody else, it is found without a new start.
    let made = RabbitOptions {
        declares: true,
        ..missing
    };
    until_confirmed(&RabbitPublisher::new(made), "orders.eu", &message("2")).await;
    until_confirmed(&publisher, "orders.eu", &message("1")).await;
    let url = RabbitServer::shared_url().await.replace("%2f", "nowhere");
    let publisher = RabbitPublisher::new(RabbitOptions::new(&url, "x").unwrap());
    let failure = publish(&publisher, "orders.eu", &message("1"), 5_000)
        .await
        .unwrap_err();
    assert!(
        failure.is_outage() && !failure.to_string().contains("guest"),
        "{failure}"
    );
}

/// EX-22: without a limit a long queue would come as a whole.
#[tokio::test]
async fn a_prefetch_of_none_is_one() {
    let fixture = RabbitFixture::shared().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    for n in 0..5 {
        until_confirmed(&*publisher, &topic, &message(&n.to_string())).await;
    }
    let options = RabbitOptions {
        prefetch: 0,
        ..fixture.options.clone()
    };
    let subscriber = RabbitSubscriber::new(options);
    let request = Receive {
        messages_max: 100,
        bytes_max: 1 << 20,
        wait_ms: 5_000,
    };
    assert_eq!(subscriber.receive(request).await.unwrap().len(), 1);
    let quick = Receive {
        wait_ms: 300,
        ..request
    };
    assert_eq!(
        subscriber.receive(quick).await.unwrap().len(),
        0,
        "the first is still out"
    );
}

/// Whoever asks may go at any moment of it, before there is a consumer or just when there is one.
#[tokio::test]
async fn who_goes_while_asking_leaves_nothing_with_a_consumer_that_nobody_knows() {
    let fixture = RabbitFixture::shared().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    until_confirmed(&*publisher, &topic, &message("1")).await;
    let request = Receive {
        messages_max: 10,
        bytes_max: 1 << 20,
        wait_ms: 5_000,
    };
    let since = Instant::now();
    let subscriber = fixture.subscriber().await;
    assert_eq!(subscriber.receive(request).await.unwrap().len(), 1);
    let whole = since.elapsed();
    subscriber.give_back().await;
    // Around the moment in which the server begins to send.
    for step in 0..60 {
        let subscriber = fixture.subscriber().await;
        let going = whole * (70 + step) / 100;
        let gone = tokio::time::timeout(going, subscriber.receive(request)).await;
        if gone.is_err() {
            let received = subscriber.receive(request).await.unwrap();
            assert_eq!(received.len(), 1, "after {going:?}");
        }
        subscriber.give_back().await;
    }
}
