//! Effects outside the database, and deliveries, over processes that are killed.

use std::time::Duration;

use onceward::core::Class;
use onceward::postgres::Postgres;
use onceward::{
    Call, Context, Deliver, Delivery, Failure, Probe, RetryPolicy, Semantics, Subscription,
};

use crate::place::{Place, RETRY, Thing, hasty, record, thing, until};
use crate::stub::{Happens, Stub, ask};
use crate::worker::{kill_all, role, stop_all, three_with};

/// Calls the stub; without a probe its outcome cannot be looked up.
struct Remote {
    address: String,
    has_probe: bool,
}

impl Call<Postgres> for Remote {
    type Message = Thing;
    type Answer = String;
    type Reply = String;

    async fn call(&self, operation: &str, _: &Thing) -> Result<String, Failure> {
        ask(&self.address, "call", operation).await
    }

    async fn probe(&self, operation: &str, _: &Thing) -> Result<Probe<String>, Failure> {
        if !self.has_probe {
            return Ok(Probe::Unsupported);
        }
        Ok(
            match ask(&self.address, "probe", operation).await?.as_str() {
                "yes" => Probe::Happened("found".to_owned()),
                _ => Probe::DidNotHappen,
            },
        )
    }

    fn can_probe(&self) -> bool {
        self.has_probe
    }

    async fn outcome(
        &self,
        cx: &mut Context<Postgres>,
        thing: Thing,
        answer: String,
    ) -> Result<String, Failure> {
        record(cx, "remote", &thing).await?;
        Ok(answer)
    }
}

pub fn calling(address: String, has_probe: bool) -> Subscription<Postgres> {
    Subscription::new("remote", Semantics::EffectOnce)
        .call(Remote { address, has_probe })
        .concurrency(16)
        .retry(RetryPolicy {
            attempts_max: 6,
            ..RETRY
        })
}

fn twelve() -> Vec<onceward::Envelope> {
    (0..12).map(|key| thing(&format!("k{key}"), "1")).collect()
}

async fn until_all_are_called(stub: &Stub) {
    until("all twelve are called", || async {
        stub.asked("call").len() == 12
    })
    .await;
}

/// That no transaction is as old as the calls that are under way.
async fn assert_no_transaction_is_open(place: &Place) {
    let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    let called_at = place.count(now).await;
    let renewed = "select count(distinct fence) from onceward.heartbeats \
                   where onceward.micros(beat_at) > $1";
    until("all processes have renewed their lease since", || async {
        let renewed: i64 = sqlx::query_scalar(renewed)
            .bind(called_at)
            .fetch_one(place.pool())
            .await
            .unwrap();
        renewed == 3
    })
    .await;
    let older = "select count(*) from pg_stat_activity where datname = current_database() \
                 and pid <> pg_backend_pid() and onceward.micros(xact_start) < $1";
    let older: i64 = sqlx::query_scalar(older)
        .bind(called_at)
        .fetch_one(place.pool())
        .await
        .unwrap();
    assert_eq!(older, 0, "transactions open during calls");
}

#[tokio::test]
async fn a_kill_between_call_and_outcome_is_followed_by_a_probe_not_by_a_call() {
    const TEST: &str =
        "outside::a_kill_between_call_and_outcome_is_followed_by_a_probe_not_by_a_call";
    if let Some(role) = role() {
        let work = calling(role.word.clone(), true);
        return role.work(work).await;
    }
    let place = Place::new().await;
    let stub = Stub::start(Happens::OnArrival).await;
    stub.hold();
    let workers = three_with(TEST, &place, &stub.address).await;
    place.append(&twelve()).await;
    until_all_are_called(&stub).await;
    assert_no_transaction_is_open(&place).await;
    kill_all(workers);
    stub.let_go();
    let workers = three_with(TEST, &place, &stub.address).await;
    place.until_effects(12).await;
    place.append_things(&[("k1", "2"), ("k2", "2")]).await;
    place.until_effects(14).await;
    place.idle("remote").await;
    for (key, values) in place.values("remote").await {
        assert!(values.is_sorted(), "{key}: {values:?}");
        assert_eq!(stub.verbs(&format!("{key}-1")), ["call", "probe"], "{key}");
    }
    assert_eq!(stub.verbs("k1-2"), ["call"]);
    assert!(place.cases("remote").await.is_empty());
    stop_all(workers, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_kill_during_a_call_that_nobody_can_look_up_is_a_case() {
    const TEST: &str = "outside::a_kill_during_a_call_that_nobody_can_look_up_is_a_case";
    if let Some(role) = role() {
        let work = calling(role.word.clone(), false);
        return role.work(work).await;
    }
    let place = Place::new().await;
    let stub = Stub::start(Happens::OnArrival).await;
    stub.hold();
    let workers = three_with(TEST, &place, &stub.address).await;
    place.append(&twelve()).await;
    until_all_are_called(&stub).await;
    kill_all(workers);
    stub.let_go();
    let workers = three_with(TEST, &place, &stub.address).await;
    until("each has a case", || async {
        place.cases("remote").await.len() == 12
    })
    .await;
    for case in place.cases("remote").await {
        assert_eq!(case.reason, "ambiguous");
        assert_eq!(case.failure.class, Class::Ambiguous);
        assert_eq!(stub.verbs(&case.row.envelope.id), ["call"]);
    }
    // The key of an event goes on.
    place.append_things(&[("k1", "2")]).await;
    place.until_effects(1).await;
    stop_all(workers, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn planned_restarts_during_a_long_call_count_against_nobody() {
    const TEST: &str = "outside::planned_restarts_during_a_long_call_count_against_nobody";
    if let Some(role) = role() {
        let work = calling(role.word.clone(), true).retry(RETRY);
        return role.work(work).await;
    }
    let place = Place::new().await;
    let stub = Stub::start(Happens::WithTheAnswer).await;
    stub.hold();
    let mut workers = three_with(TEST, &place, &stub.address).await;
    place.append_things(&[("long", "1")]).await;
    for round in 1..=5 {
        until("the long call is under way", || async {
            stub.asked("call").len() == round
        })
        .await;
        // Whoever makes the call is among them.
        stop_all(workers, Duration::from_millis(100)).await;
        workers = three_with(TEST, &place, &stub.address).await;
    }
    until("the long call is under way", || async {
        stub.asked("call").len() == 6
    })
    .await;
    stub.let_go();
    place.until_effects(1).await;
    let effect = &place.effects("remote").await[0];
    assert_eq!((effect.key.as_str(), effect.attempt), ("long", 1));
    place.idle("remote").await;
    assert!(place.cases("remote").await.is_empty());
    let verbs = stub.verbs("long-1");
    let expected = ["call", "probe"].repeat(6);
    assert_eq!(verbs, expected[..11], "each new call is made after a probe");
}

/// Hands messages to the stub, which is some way off.
struct Post(String);

impl Deliver for Post {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        let id = &delivery.row.envelope.id;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let verb = if id.starts_with("held") {
            "call"
        } else {
            "take"
        };
        ask(&self.0, verb, id).await.map(|_| ())
    }
}

#[tokio::test]
async fn deliveries_are_repeated_after_a_kill_alone_and_only_what_was_in_flight() {
    const TEST: &str =
        "outside::deliveries_are_repeated_after_a_kill_alone_and_only_what_was_in_flight";
    if let Some(role) = role() {
        let work = Subscription::new("post", Semantics::AtLeastOnce)
            .deliver(["thing.done"], Post(role.word.clone()))
            .retry(RETRY);
        // Long enough that no lease is lost but to the kill.
        let mut options = hasty();
        options.lease_ms = 5_000;
        return role.work_with(options, work).await;
    }
    let place = Place::new().await;
    let stub = Stub::start(Happens::OnArrival).await;
    let workers = three_with(TEST, &place, &stub.address).await;
    let numbered = |from: u32, to: u32| {
        let things = (from..to).map(|i| thing(&format!("k{}", i % 40), &format!("{i:04}")));
        things.collect::<Vec<_>>()
    };
    place.append(&numbered(0, 600)).await;
    until("some are delivered", || async {
        stub.asked("take").len() > 100
    })
    .await;
    stop_all(workers, Duration::from_secs(10)).await;
    let before = stub.asked("take").len();
    assert!(before < 600, "stopped in the middle");
    let workers = three_with(TEST, &place, &stub.address).await;
    until("all are delivered", || async {
        stub.asked("take").len() >= 600
    })
    .await;
    place.append(&numbered(600, 800)).await;
    place.idle("post").await;
    stub.hold();
    place.append_things(&[("held", "1")]).await;
    until("one is in flight", || async {
        stub.asked("call").len() == 1
    })
    .await;
    kill_all(workers);
    stub.let_go();
    let _workers = three_with(TEST, &place, &stub.address).await;
    until("it is delivered again", || async {
        stub.asked("call").len() == 2
    })
    .await;
    place.append(&numbered(800, 840)).await;
    place.idle("post").await;
    assert_eq!(stub.asked("call"), ["held-1", "held-1"], "with the same id");
    let taken = stub.asked("take");
    for key in 0..40 {
        let prefix = format!("k{key}-");
        let of_key: Vec<_> = taken.iter().filter(|id| id.starts_with(&prefix)).collect();
        assert_eq!(of_key.len(), 21, "once each: {of_key:?}");
        assert!(of_key.is_sorted(), "in order: {of_key:?}");
    }
    assert_eq!(place.count("select count(*) from onceward.ledger").await, 0);
    assert_eq!(
        place.count("select count(*) from onceward.deferrals").await,
        0
    );
}
