//! Receiving: bounds, settling, what comes again and when.

use std::collections::BTreeMap;
use std::time::Duration;

use onceward_core::broker::{Act, DeliveryCount, Extend, Receive, Received, Settlement};
use onceward_core::{Envelope, Payload};
use tokio::time::Instant;

use super::steps::{
    RECEIVE_MS, confirmed, id, message, publish, quiet, receive, receive_within, settle,
};
use super::{CaseResult, Fixture, allows, capabilities};

/// Receiving is a wait with an end.
pub async fn an_empty_queue_answers_in_time(fixture: &impl Fixture) -> CaseResult {
    let subscriber = fixture.subscriber().await;
    let since = Instant::now();
    let received = receive_within(&*subscriber, 300).await;
    assert!(received.is_empty());
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(250), "it waits: {took:?}");
    assert!(took < Duration::from_secs(10), "no longer: {took:?}");
    Ok(())
}

/// No more messages than asked for, and the rest stays for others.
pub async fn messages_are_bounded(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1", "2", "3", "4", "5"]).await;
    let subscriber = fixture.subscriber().await;
    let mut sizes = Vec::new();
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let request = Receive {
            messages_max: 2,
            bytes_max: 1 << 20,
            wait_ms: RECEIVE_MS,
        };
        let some = subscriber
            .receive(request)
            .await
            .map_err(|f| f.to_string())?;
        assert!(!some.is_empty(), "{} of 5 came", ids.len());
        sizes.push(some.len());
        ids.extend(some.iter().map(id).map(str::to_owned));
    }
    assert!(sizes.iter().all(|size| *size <= 2), "{sizes:?}");
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
    Ok(())
}

/// No more bytes than asked for, but always one message.
pub async fn bytes_are_bounded(fixture: &impl Fixture) -> CaseResult {
    let (publisher, topic) = (fixture.publisher(), fixture.topic());
    for n in 0..4 {
        let large = Envelope {
            payload: Payload::Json(format!("\"{}\"", "x".repeat(40_000)).into()),
            ..message(&n.to_string())
        };
        let outcome = publish(&*publisher, &[(&topic, &large)]).await.remove(0);
        assert!(outcome.is_ok(), "{:?}", outcome.err());
    }
    let subscriber = fixture.subscriber().await;
    let mut count = 0;
    let mut bounds = [100_000, 1_000].into_iter().cycle();
    while count < 4 {
        let bytes_max = bounds.next().unwrap_or_default();
        let request = Receive {
            messages_max: 100,
            bytes_max,
            wait_ms: RECEIVE_MS,
        };
        let some = subscriber
            .receive(request)
            .await
            .map_err(|f| f.to_string())?;
        assert!(!some.is_empty(), "{count} of 4 came");
        let bytes: u64 = some.iter().map(|received| received.bytes).sum();
        assert!(
            some.len() == 1 || bytes <= bytes_max,
            "{bytes} of {bytes_max}"
        );
        assert!(
            some.iter().all(|received| received.bytes >= 40_000),
            "payloads count"
        );
        count += some.len();
    }
    assert_eq!(count, 4);
    Ok(())
}

/// Neither here nor on another connection, now or later.
pub async fn what_is_done_does_not_come_again(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1", "2"]).await;
    let first = fixture.subscriber().await;
    for received in receive(&*first, 2).await {
        settle(&*first, received.tag, Act::Done).await;
    }
    drop(first);
    if let Some(lock_ms) = fixture.lock_ms() {
        tokio::time::sleep(Duration::from_millis(lock_ms)).await;
    }
    let second = fixture.subscriber().await;
    quiet(&*second).await;
    Ok(())
}

/// What failed for now is not lost.
pub async fn what_is_to_come_again_comes_again(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1"]).await;
    let subscriber = fixture.subscriber().await;
    for _ in 0..2 {
        let received = receive(&*subscriber, 1).await;
        assert_eq!(id(&received[0]), "1");
        let again = Act::Again { delay_ms: 0 };
        settle(&*subscriber, received[0].tag, again).await;
    }
    let received = receive(&*subscriber, 1).await;
    assert_eq!(id(&received[0]), "1");
    Ok(())
}

/// A delay is a least time.
pub async fn it_does_not_come_before_its_delay(fixture: &impl Fixture) -> CaseResult {
    const DELAY_MS: u64 = 600;
    let can = capabilities(fixture).can_delay(DELAY_MS);
    if !allows(
        can,
        "it_does_not_come_before_its_delay",
        "the broker cannot wait",
    ) {
        return Ok(());
    }
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1"]).await;
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 1).await;
    let since = Instant::now();
    let again = Act::Again { delay_ms: DELAY_MS };
    settle(&*subscriber, received[0].tag, again).await;
    receive(&*subscriber, 1).await;
    // The broker's clock may be coarse.
    let least = Duration::from_millis(DELAY_MS - 50);
    assert!(since.elapsed() >= least, "after {:?}", since.elapsed());
    Ok(())
}

/// Failures at this end count there too.
pub async fn it_is_counted_how_often_it_came(fixture: &impl Fixture) -> CaseResult {
    let count = capabilities(fixture).delivery_count;
    let counts = count != DeliveryCount::None;
    if !allows(
        counts,
        "it_is_counted_how_often_it_came",
        "the broker does not count",
    ) {
        return Ok(());
    }
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1"]).await;
    let subscriber = fixture.subscriber().await;
    for expected in 1..=3 {
        let received = receive(&*subscriber, 1).await;
        let told = received[0].delivery_count;
        match count {
            DeliveryCount::Exact => assert_eq!(told, Some(expected)),
            _ => assert_eq!(told, Some(expected.min(2)), "the first, or not the first"),
        }
        let again = Act::Again { delay_ms: 0 };
        settle(&*subscriber, received[0].tag, again).await;
    }
    Ok(())
}

/// At once, to whoever receives next.
pub async fn what_is_handed_back_goes_to_another(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1", "2"]).await;
    let first = fixture.subscriber().await;
    let received = receive(&*first, 2).await;
    for received in &received {
        settle(&*first, received.tag, Act::HandBack).await;
    }
    drop(first);
    let second = fixture.subscriber().await;
    let received = receive(&*second, 2).await;
    let ids: std::collections::BTreeSet<&str> = received.iter().map(id).collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["1", "2"]);
    Ok(())
}

/// In the order it had and before what follows, whether it was received or only on its way: to
/// another, and to whoever gave it back.
pub async fn what_is_given_back_comes_in_its_order(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    let ids: Vec<String> = (10..30).map(|n| n.to_string()).collect();
    let texts: Vec<&str> = ids.iter().map(String::as_str).collect();
    confirmed(&*fixture.publisher(), &topic, &texts).await;
    let (first, second) = (fixture.subscriber().await, fixture.subscriber().await);
    let request = |messages_max| Receive {
        messages_max,
        bytes_max: 1 << 20,
        wait_ms: RECEIVE_MS,
    };
    let received = first.receive(request(4)).await.map_err(|f| f.to_string())?;
    settle(&*first, received[0].tag, Act::Done).await;
    // Whoever asks for the next ones goes, before the answer or with it.
    let asking = first.receive(request(4));
    let _ = tokio::time::timeout(Duration::from_millis(300), asking).await;
    first.give_back().await;
    for subscriber in [&second, &first] {
        let came = receive(&**subscriber, ids.len() - 1).await;
        let came: Vec<&str> = came.iter().map(id).collect();
        assert_eq!(came, ids[1..]);
        subscriber.give_back().await;
    }
    Ok(())
}

/// A receiver that dies has lost nothing.
pub async fn what_was_never_settled_comes_again(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1", "2", "3"]).await;
    let first = fixture.subscriber().await;
    let received = receive(&*first, 3).await;
    settle(&*first, received[1].tag, Act::Done).await;
    drop(first);
    let second = fixture.subscriber().await;
    let received = receive(&*second, 2).await;
    let ids: std::collections::BTreeSet<&str> = received.iter().map(id).collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["1", "3"]);
    Ok(())
}

/// Work that takes long is nobody else's meanwhile.
pub async fn more_time_keeps_others_away(fixture: &impl Fixture) -> CaseResult {
    let Some(lock_ms) = fixture.lock_ms() else {
        let why = "a delivery belongs to its connection";
        allows(false, "more_time_keeps_others_away", why);
        return Ok(());
    };
    if !allows(
        capabilities(fixture).can_extend,
        "more_time_keeps_others_away",
        "no extension",
    ) {
        return Ok(());
    }
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1"]).await;
    let (first, second) = (fixture.subscriber().await, fixture.subscriber().await);
    let received = receive(&*first, 1).await;
    let tags = [received[0].tag];
    // Two and a half times as long as it would be its own.
    for _ in 0..5 {
        let more = receive_within(&*second, lock_ms / 2).await;
        assert!(more.is_empty(), "it is still in work");
        first
            .extend(Extend { tags: &tags })
            .await
            .map_err(|f| f.to_string())?;
    }
    settle(&*first, tags[0], Act::Done).await;
    let more = receive_within(&*second, lock_ms + lock_ms / 2).await;
    assert!(more.is_empty(), "it is done");
    Ok(())
}

/// Settled together in another order, each goes its own way.
pub async fn a_settlement_is_of_its_own_message(fixture: &impl Fixture) -> CaseResult {
    let topic = fixture.topic();
    confirmed(&*fixture.publisher(), &topic, &["1", "2", "3"]).await;
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 3).await;
    let tags: BTreeMap<&str, &Received> = received.iter().map(|r| (id(r), r)).collect();
    let settlement = |id: &str, act| Settlement {
        tag: tags[id].tag,
        act,
    };
    let settlements = [
        settlement("3", Act::Done),
        settlement("1", Act::Again { delay_ms: 0 }),
        settlement("2", Act::Done),
    ];
    for settled in subscriber.settle(&settlements).await {
        settled.map_err(|failure| failure.to_string())?;
    }
    let again = receive(&*subscriber, 1).await;
    assert_eq!(id(&again[0]), "1");
    settle(&*subscriber, again[0].tag, Act::Done).await;
    quiet(&*subscriber).await;
    Ok(())
}
