//! Publishing: confirmations, each message's own outcome, order, what arrives.

use std::collections::BTreeMap;

use onceward_core::broker::{self, Check, Content, KeyOrder};
use onceward_core::{Class, Envelope, Payload, Timestamp};

use super::steps::{confirmed, envelope, id, message, publish, quiet, receive, settle};
use super::{CaseResult, Fixture, allows, capabilities};
use crate::brokers::steps::PUBLISH_MS;
use onceward_core::broker::Act;

/// Every field and every byte comes out as it went in.
pub async fn what_is_confirmed_arrives_as_it_was(fixture: &impl Fixture) -> CaseResult {
    let time = |text: &str| text.parse::<Timestamp>();
    let full = Envelope {
        operation_id: Some("op-9".into()),
        partition_key: Some("p-3".into()),
        schema_version: Some(4),
        aggregate_version: Some(17),
        occurred_at: Some(time("2026-03-01T12:00:00.123456Z")?),
        expires_at: Some(time("2036-03-01T12:00:00Z")?),
        attributes: BTreeMap::from([
            ("correlationid".into(), "c-1".into()),
            (
                "traceparent".into(),
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            ),
        ]),
        payload: Payload::Json("{ \"b\":1.0, \"a\":[1e400,\"\\u0000\"],\"b\":2 }\n".into()),
        ..message("full")
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
    let binary = Envelope {
        attributes: BTreeMap::from([("datacontenttype".into(), "application/x-bytes".into())]),
        payload: Payload::Binary(bytes.into()),
        ..message("binary")
    };
    let empty = Envelope {
        payload: Payload::Binary(Box::default()),
        ..message("empty")
    };
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    for sent in [&full, &binary, &empty] {
        let outcome = publish(&*publisher, &[(&topic, sent)]).await.remove(0);
        assert!(outcome.is_ok(), "{}: {:?}", sent.id, outcome.err());
    }
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 3).await;
    for (sent, received) in [&full, &binary, &empty].into_iter().zip(&received) {
        assert_eq!(envelope(received), sent);
        assert!(matches!(received.content, Content::Event(_)));
        assert_eq!(received.coordinates.topic, topic);
    }
    Ok(())
}

/// Texts that headers are apt to break.
pub async fn hostile_texts_arrive_as_they_were(fixture: &impl Fixture) -> CaseResult {
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let texts = ["50 % off", "a\"b\\c", "€ 😀 é", "%41", " x ", "a: b, c; d"];
    let sent: Vec<Envelope> = texts
        .iter()
        .map(|text| Envelope {
            operation_id: Some((*text).into()),
            aggregate_id: (*text).into(),
            attributes: BTreeMap::from([("note".into(), (*text).into())]),
            ..message(&format!("id {text}"))
        })
        .collect();
    for sent in &sent {
        let outcome = publish(&*publisher, &[(&topic, sent)]).await.remove(0);
        assert!(outcome.is_ok(), "{}: {:?}", sent.id, outcome.err());
    }
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, sent.len()).await;
    let received: Vec<&Envelope> = received.iter().map(envelope).collect();
    assert_eq!(received, sent.iter().collect::<Vec<_>>());
    Ok(())
}

/// A confirmation is the broker's word that it has stored it.
pub async fn what_is_confirmed_outlives_the_broker(fixture: &impl Fixture) -> CaseResult {
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    confirmed(&*publisher, &topic, &["1", "2", "3"]).await;
    if !allows(
        fixture.restart().await,
        "what_is_confirmed_outlives_the_broker",
        "this server is not this test's to kill",
    ) {
        return Ok(());
    }
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 3).await;
    assert_eq!(received.iter().map(id).collect::<Vec<_>>(), ["1", "2", "3"]);
    Ok(())
}

/// One that is too large or goes nowhere fails by itself, whatever its place in the batch.
pub async fn each_message_has_its_own_outcome(fixture: &impl Fixture) -> CaseResult {
    let can = capabilities(fixture);
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let nowhere = fixture.topic_of_nobody();
    let large = can.message_bytes_max.map(|max| oversize(max + 1));
    let good: Vec<Envelope> = (0..4).map(|n| keyed(&format!("good-{n}"))).collect();
    let lost = keyed("lost");
    let mut batch: Vec<(&str, &Envelope)> = vec![(&topic, &good[0])];
    if let Some(large) = &large {
        batch.push((&topic, large));
    }
    batch.push((&topic, &good[1]));
    if can.tells_unroutable {
        batch.push((&nowhere, &lost));
    }
    batch.extend([(topic.as_str(), &good[2]), (topic.as_str(), &good[3])]);
    let outcomes = publish(&*publisher, &batch).await;
    for ((_, envelope), outcome) in batch.iter().zip(&outcomes) {
        let code = outcome.as_ref().err().map(|failure| failure.code());
        let expected = match envelope.id.as_str() {
            "large" => Some(broker::TOO_LARGE),
            "lost" => Some(broker::UNROUTABLE),
            _ => None,
        };
        assert_eq!(code, expected, "{}", envelope.id);
    }
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 4).await;
    let mut ids: Vec<&str> = received.iter().map(id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["good-0", "good-1", "good-2", "good-3"]);
    Ok(())
}

/// It would be refused for ever.
pub async fn an_oversize_message_is_refused_with_its_size(fixture: &impl Fixture) -> CaseResult {
    let max = capabilities(fixture).message_bytes_max;
    let Some(max) = max.filter(|_| {
        allows(
            max.is_some(),
            "an_oversize_message",
            "no largest message is known before",
        )
    }) else {
        return Ok(());
    };
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let outcome = publish(&*publisher, &[(&topic, &oversize(max + 1))]).await;
    let failure = outcome
        .into_iter()
        .next()
        .and_then(Result::err)
        .ok_or("it was confirmed")?;
    assert_eq!(
        (failure.class(), failure.code()),
        (Class::Permanent, broker::TOO_LARGE)
    );
    assert!(
        failure.message().contains(&max.to_string()),
        "{}",
        failure.message()
    );
    // The connection is as good as before.
    confirmed(&*publisher, &topic, &["after"]).await;
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 1).await;
    assert_eq!(id(&received[0]), "after");
    Ok(())
}

/// A broker that confirms what goes nowhere would lose it with a success.
pub async fn what_nothing_takes_is_told(fixture: &impl Fixture) -> CaseResult {
    let tells = capabilities(fixture).tells_unroutable;
    if !allows(
        tells,
        "what_nothing_takes_is_told",
        "the broker does not tell",
    ) {
        return Ok(());
    }
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let nowhere = fixture.topic_of_nobody();
    for round in 0..20 {
        let messages = [0, 1, 2, 3].map(|n| keyed(&format!("{round}-{n}")));
        let batch: Vec<(&str, &Envelope)> = (0..4)
            .map(|n| {
                (
                    if n % 2 == 0 {
                        topic.as_str()
                    } else {
                        nowhere.as_str()
                    },
                    &messages[n],
                )
            })
            .collect();
        for (n, outcome) in publish(&*publisher, &batch).await.into_iter().enumerate() {
            let code = outcome.as_ref().err().map(|failure| failure.code());
            let expected = (n % 2 == 1).then_some(broker::UNROUTABLE);
            assert_eq!(code, expected, "round {round}, message {n}");
            if let Err(failure) = outcome {
                assert!(
                    failure.message().contains(&nowhere),
                    "{}",
                    failure.message()
                );
            }
        }
    }
    Ok(())
}

/// Where the broker notices, a message that is repeated is told as a duplicate and is there once.
pub async fn the_same_id_again_is_the_same_message(fixture: &impl Fixture) -> CaseResult {
    let window = capabilities(fixture).dedupe_window_ms;
    if !allows(
        window.is_some(),
        "the_same_id_again",
        "the broker does not look at ids",
    ) {
        return Ok(());
    }
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let first = message("same");
    // Another producer's message may have the same id.
    let other = Envelope {
        source: Some("/another".into()),
        ..message("same")
    };
    for (sent, is_duplicate) in [
        (&first, false),
        (&first, true),
        (&other, false),
        (&other, true),
    ] {
        let outcome = publish(&*publisher, &[(&topic, sent)]).await.remove(0);
        let confirmed = outcome.map_err(|failure| failure.to_string())?;
        assert_eq!(confirmed.is_duplicate, is_duplicate, "{:?}", sent.source);
    }
    let subscriber = fixture.subscriber().await;
    receive(&*subscriber, 2).await;
    Ok(())
}

/// Published one after the other, received one after the other.
pub async fn a_key_keeps_its_order(fixture: &impl Fixture) -> CaseResult {
    let is_ordered = capabilities(fixture).order != KeyOrder::None;
    if !allows(
        is_ordered,
        "a_key_keeps_its_order",
        "the broker keeps no order",
    ) {
        return Ok(());
    }
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    let ids: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    confirmed(&*publisher, &topic, &ids).await;
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, ids.len()).await;
    assert_eq!(received.iter().map(id).collect::<Vec<_>>(), ids);
    for received in &received {
        settle(&*subscriber, received.tag, Act::Done).await;
    }
    quiet(&*subscriber).await;
    Ok(())
}

/// A look says what is there and leaves nothing behind.
pub async fn a_check_finds_what_is_there(fixture: &impl Fixture) -> CaseResult {
    let publisher = fixture.publisher();
    let topics = [fixture.topic()];
    let check = Check {
        topics: &topics,
        timeout_ms: PUBLISH_MS,
    };
    let findings = publisher.check(check).await;
    assert!(!findings.is_empty(), "something was looked at");
    assert!(
        findings.iter().all(|finding| finding.is_good()),
        "{findings:?}"
    );
    let subscriber = fixture.subscriber().await;
    let findings = subscriber.check(check).await;
    assert!(!findings.is_empty(), "something was looked at");
    assert!(
        findings.iter().all(|finding| finding.is_good()),
        "{findings:?}"
    );
    quiet(&*subscriber).await;
    Ok(())
}

fn keyed(id: &str) -> Envelope {
    Envelope {
        aggregate_id: id.to_owned(),
        ..message(id)
    }
}

/// A message whose payload alone has this many bytes.
fn oversize(bytes: u64) -> Envelope {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Envelope {
        payload: Payload::Json(format!("\"{}\"", "x".repeat(bytes.saturating_sub(2))).into()),
        ..keyed("large")
    }
}
