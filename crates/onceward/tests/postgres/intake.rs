//! The intake on PostgreSQL: what other transactions hold, and what its columns do not.

use onceward::core::broker::{Outgoing, Publish};
use onceward::core::store::{AcceptRequest, Acceptance, Accepted, Begin, Effects, End};
use onceward::intake::{Intake, IntakeOptions};
use onceward::postgres::Postgres;
use onceward::{
    Boxed, Context, Engine, Envelope, Failure, Running, Semantics, Start, Subscription,
};
use onceward_testkit::brokers::{Fixture, MemoryFixture};

use crate::place::{Place, Thing, calm, record, thing, until};

fn came(value: &str) -> Envelope {
    let mut envelope = thing("a", value);
    envelope.source = Some("/elsewhere".into());
    envelope
}

async fn publish(fixture: &MemoryFixture, envelopes: &[Envelope]) {
    for envelope in envelopes {
        let messages = [Outgoing {
            topic: "orders",
            envelope,
            recorded_at: None,
        }];
        let batch = Publish {
            messages: &messages,
            timeout_ms: 1_000,
        };
        fixture.publisher().publish(batch).await.remove(0).unwrap();
    }
}

fn done<'a>(cx: &'a mut Context<Postgres>, thing: Thing) -> Boxed<'a, Result<(), Failure>> {
    Box::pin(async move { record(cx, "things", &thing).await })
}

async fn start(place: &Place, fixture: &MemoryFixture) -> Running<Postgres> {
    let things = Subscription::new("things", Semantics::EffectOnce)
        .on::<Thing, _>(done)
        .start(Start::Earliest)
        .from(["orders"]);
    let options = IntakeOptions::default();
    let intake = Intake::new("orders", fixture.subscriber().await, options);
    let engine = Engine::builder(place.store.clone()).options(calm());
    let engine = engine.intake(intake).subscribe(things);
    engine.start().await.unwrap()
}

/// One of ours whose end nobody has waited for yet: what follows does not go ahead of it.
#[tokio::test]
async fn what_another_transaction_is_about_to_take_in_is_waited_for() {
    let place = Place::new().await;
    let store = &place.store;
    let mut tx = store.begin(Begin { lease: None }).await.unwrap();
    let request = AcceptRequest {
        caller: "onceward intake",
        key: "/elsewhere\u{1f}thing.done\u{1f}a-1",
        digest: [0; 16],
        memory_ms: 60_000,
    };
    let accepted = store.accept(store.connection(&mut tx), request).await;
    assert_eq!(accepted.unwrap(), Accepted::First);
    let fixture = MemoryFixture::new();
    publish(&fixture, &[came("1"), came("2"), came("3")]).await;
    let engine = start(&place, &fixture).await;
    until("it is told", || async {
        let state = engine.state().intakes.remove("orders");
        state.is_some_and(|state| state.trouble.is_some())
    })
    .await;
    store.end(tx, End::RollBack).await.unwrap();
    until("all have had their effect", || async {
        place.effect_count().await >= 3
    })
    .await;
    place.idle("things").await;
    assert_eq!(place.values("things").await["a"], ["1", "2", "3"]);
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}

/// BC-26: events may have longer names than the log has room for.
#[tokio::test]
async fn a_source_that_is_too_long_for_the_log_is_a_case_and_whole() {
    let place = Place::new().await;
    let fixture = MemoryFixture::new();
    let mut long = came("2");
    long.source = Some(format!("/{}", "s".repeat(510)));
    publish(&fixture, &[came("1"), long.clone(), came("3")]).await;
    let engine = start(&place, &fixture).await;
    until("it is a case", || async {
        place.cases("intake.orders").await.len() == 1
    })
    .await;
    place.until_effects(2).await;
    place.idle("things").await;
    assert_eq!(place.values("things").await["a"], ["1", "3"]);
    let case = place.cases("intake.orders").await.remove(0);
    assert_eq!(case.failure.code, "intake_unreadable");
    let kept = case.row.envelope.payload;
    let kept = onceward::core::cloudevents::from_structured(kept.as_bytes()).unwrap();
    assert_eq!(kept, long);
    engine.shutdown(std::time::Duration::from_secs(5)).await;
}
