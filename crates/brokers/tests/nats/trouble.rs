//! A server that dies, hangs or refuses.

use std::time::{Duration, Instant};

use onceward_brokers::nats::{NatsOptions, NatsPublisher};
use onceward_core::broker::{
    self, Act, Check, Confirmed, Content, Outgoing, Publish, Publisher, Receive, Received,
    Settlement, Subscriber,
};
use onceward_core::{Envelope, Failure, Payload};

use crate::fixture::NatsFixture;
use onceward_testkit::brokers::Fixture as _;

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
    while publish(publisher, topic, envelope, 1_000).await.is_err() {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "it recovers by itself"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_is_away_costs_nothing_and_comes_back() {
    let fixture = NatsFixture::start().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    until_confirmed(&*publisher, &topic, &message("before")).await;
    fixture.server.kill();
    // The client notices in its own time; then nothing is sent any more.
    let since = Instant::now();
    loop {
        let failure = publish(&*publisher, &topic, &message("during"), 300)
            .await
            .unwrap_err();
        if failure.code() == broker::UNCONNECTED {
            assert!(failure.is_outage(), "it uses nothing of the budget");
            break;
        }
        assert_eq!(failure.code(), broker::UNCONFIRMED, "{failure}");
        assert!(since.elapsed() < Duration::from_secs(20));
    }
    fixture.server.start_again();
    until_confirmed(&*publisher, &topic, &message("during")).await;
}

#[tokio::test]
async fn before_the_first_connection_a_server_may_be_away_too() {
    let fixture = NatsFixture::start().await;
    fixture.server.kill();
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let failure = publish(&*publisher, &topic, &message("1"), 1_000)
        .await
        .unwrap_err();
    assert_eq!(failure.code(), broker::UNCONNECTED);
    fixture.server.start_again();
    until_confirmed(&*publisher, &topic, &message("1")).await;
}

/// A broker that neither answers nor closes: each wait has its end, and what may have arrived is
/// repeated as the same message.
#[tokio::test]
async fn a_server_that_hangs_is_an_unconfirmed_message_and_not_two() {
    let fixture = NatsFixture::start().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    until_confirmed(&*publisher, &topic, &message("before")).await;
    fixture.server.freeze(true);
    let since = Instant::now();
    let failure = publish(&*publisher, &topic, &message("hangs"), 500)
        .await
        .unwrap_err();
    assert_eq!(failure.code(), broker::UNCONFIRMED);
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    fixture.server.freeze(false);
    until_confirmed(&*publisher, &topic, &message("hangs")).await;
    let client = async_nats::connect(fixture.server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("ORDERS").await.unwrap();
    assert_eq!(
        stream.cached_info().state.messages,
        2,
        "the repetition is the same message"
    );
}

/// A stream that is deleted under the relay makes its subjects unroutable; nothing is confirmed.
#[tokio::test]
async fn a_stream_that_is_gone_is_told() {
    let fixture = NatsFixture::start().await;
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    until_confirmed(&*publisher, &topic, &message("before")).await;
    let client = async_nats::connect(fixture.server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    jetstream.delete_stream("ORDERS").await.unwrap();
    let failure = publish(&*publisher, &topic, &message("1"), 2_000)
        .await
        .unwrap_err();
    assert_eq!(failure.code(), broker::UNROUTABLE, "{failure}");
    let topics = [topic];
    let findings = publisher
        .check(Check {
            topics: &topics,
            timeout_ms: 2_000,
        })
        .await;
    let bad = findings
        .iter()
        .find(|finding| !finding.is_good())
        .expect("something is wrong");
    assert_eq!(bad.what, "stream ORDERS");
}

#[tokio::test]
async fn credentials_are_checked_and_never_shown() {
    let settings = "authorization { user: shop, password: hunter2 }";
    let fixture = NatsFixture::start_with(settings).await;
    let port = fixture.server.port();
    for (user, expected) in [
        ("shop:wrong", Some(broker::FORBIDDEN)),
        ("shop:hunter2", None),
    ] {
        let url = format!("nats://{user}@127.0.0.1:{port}");
        let options = NatsOptions {
            declare: vec!["orders.>".to_owned()],
            ..NatsOptions::new(&url, "ORDERS").unwrap()
        };
        let publisher = NatsPublisher::new(options);
        let outcome = publish(&publisher, "orders.eu", &message("1"), 3_000).await;
        assert_eq!(outcome.as_ref().err().map(Failure::code), expected);
        let shown = format!(
            "{publisher:?} {}",
            outcome.err().map(|f| f.to_string()).unwrap_or_default()
        );
        assert!(
            !shown.contains("hunter2") && !shown.contains("wrong"),
            "{shown}"
        );
    }
}

/// Receives and settles until something comes, as an intake does.
async fn next(subscriber: &dyn Subscriber) -> Received {
    let since = Instant::now();
    let request = Receive {
        messages_max: 1,
        bytes_max: u64::MAX,
        wait_ms: 500,
    };
    loop {
        if let Ok(mut received) = subscriber.receive(request).await
            && let Some(one) = received.pop()
        {
            let done = Settlement {
                tag: one.tag,
                act: Act::Done,
            };
            // Unheard it comes again, which is for whoever asks to notice.
            let _ = subscriber.settle(&[done]).await;
            return one;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "something comes");
    }
}

/// The stream is lost and made again by somebody else.
async fn make_anew(fixture: &NatsFixture) {
    let client = async_nats::connect(fixture.server.url())
        .await
        .expect("connects");
    let jetstream = async_nats::jetstream::new(client);
    jetstream.delete_stream("ORDERS").await.expect("was there");
    let config = async_nats::jetstream::stream::Config {
        name: "ORDERS".to_owned(),
        subjects: vec!["orders.>".to_owned()],
        ..async_nats::jetstream::stream::Config::default()
    };
    jetstream.create_stream(config).await.expect("is made");
}

/// A stream that was lost and made again gives out its numbers a second time.
#[tokio::test]
async fn a_place_is_one_of_a_kind_although_its_stream_is_made_anew() {
    let fixture = NatsFixture::start().await;
    let subscriber = fixture.subscriber().await;
    fixture.publish_foreign(None, b"tick").await;
    let before = next(&*subscriber).await.coordinates;
    make_anew(&fixture).await;
    fixture.publish_foreign(None, b"tick").await;
    let after = next(&*subscriber).await.coordinates;
    assert_eq!((&before.log, &before.topic), (&after.log, &after.topic));
    assert_ne!(before.place, after.place);
}

/// EX-04: after each restart of the server, and after the stream was made anew, the same receiver goes
/// on by itself.
#[tokio::test]
async fn ex_04_a_receiver_goes_on_after_every_restart() {
    let fixture = NatsFixture::start().await;
    let (publisher, subscriber) = (fixture.publisher(), fixture.subscriber().await);
    for round in 0..6 {
        if round == 3 {
            make_anew(&fixture).await;
        } else if round > 0 {
            fixture.restart().await;
        }
        let wanted = format!("m{round}");
        until_confirmed(&*publisher, &fixture.topic(), &message(&wanted)).await;
        loop {
            let Content::Event(event) = next(&*subscriber).await.content else {
                panic!("an event");
            };
            // An acknowledgement may have been lost with the server.
            if event.id == wanted {
                break;
            }
        }
    }
}
