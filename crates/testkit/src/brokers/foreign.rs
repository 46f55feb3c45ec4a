//! Messages of programs that know nothing of Onceward or CloudEvents.

use onceward_core::Payload;
use onceward_core::broker::{Act, Content};

use super::steps::{envelope, receive, settle};
use super::{CaseResult, Fixture, allows, capabilities};

/// The broker's place is an identity; so a redelivery has its effect once.
pub async fn a_foreign_message_is_the_same_on_every_delivery(fixture: &impl Fixture) -> CaseResult {
    let has = capabilities(fixture).has_coordinates;
    if !allows(
        has,
        "a_foreign_message_is_the_same",
        "messages have no place of their own",
    ) {
        return Ok(());
    }
    fixture.publish_foreign(None, b"{\"n\": 1}").await;
    fixture.publish_foreign(None, b"{\"n\": 1}").await;
    let subscriber = fixture.subscriber().await;
    let first = receive(&*subscriber, 2).await;
    assert!(
        first
            .iter()
            .all(|received| matches!(received.content, Content::Foreign(_)))
    );
    assert_eq!(
        envelope(&first[0]).payload,
        Payload::Json("{\"n\": 1}".into())
    );
    assert_ne!(
        envelope(&first[0]).id,
        envelope(&first[1]).id,
        "two messages are two"
    );
    let again = Act::Again { delay_ms: 0 };
    settle(&*subscriber, first[0].tag, again).await;
    let second = receive(&*subscriber, 1).await;
    assert_eq!(envelope(&second[0]), envelope(&first[0]));
    Ok(())
}

/// What claims to be JSON and is none is not guessed at.
pub async fn what_cannot_be_read_comes_with_its_fault(fixture: &impl Fixture) -> CaseResult {
    fixture
        .publish_foreign(Some("application/json"), b"{\"n\":")
        .await;
    let subscriber = fixture.subscriber().await;
    let received = receive(&*subscriber, 1).await;
    assert!(
        matches!(received[0].content, Content::Faulty(_)),
        "{:?}",
        received[0].content
    );
    settle(&*subscriber, received[0].tag, Act::Done).await;
    Ok(())
}
