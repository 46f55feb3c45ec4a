//! A stage by itself: time, ends, what is stuck.

use std::time::Duration;

use onceward::{Failure, OnPoison, Semantics, Subscription};
use onceward_testkit::handlers::{End, Fault, Part, Point, Stage};

use crate::place::{Accepted, HOURLY, accepted, handler, panic_of, shipments, with_table, write};

/// Fails as the order's name says.
fn moody() -> Subscription<onceward::sqlite::Sqlite> {
    let ship = handler(|cx, order| {
        Box::pin(async move {
            match order.order_id.as_str() {
                "thrice" if cx.attempt() < 4 => {
                    return Err(Failure::transient("busy", "not now"));
                }
                "never" => return Err(Failure::transient("busy", "never")),
                "refused" => return Err(Failure::rejected("no_such_street", "no such street")),
                "broken" => return Err(Failure::permanent("broken", "broken")),
                "person" => return Err(Failure::operator("no_contract", "ask somebody")),
                _ => {}
            }
            write(cx, &order.order_id).await
        })
    });
    Subscription::new("ship", Semantics::EffectOnce)
        .on::<Accepted, _>(ship)
        .retry(HOURLY)
        .on_poison(OnPoison::Skip)
}

async fn stage() -> Stage<onceward::sqlite::Sqlite> {
    let mut stage = with_table(Stage::sqlite().await).await;
    stage.subscribe(moody());
    stage
}

#[tokio::test]
async fn hours_between_attempts_pass_without_waiting() {
    let begun = std::time::Instant::now();
    let mut stage = stage().await;
    stage.append(&accepted("thrice")).await;
    let summary = stage.drain().await;
    summary.assert_all_done();
    assert_eq!(summary.only("ship").attempts, 4);
    // Delays are drawn from a range, so three of them are more than a few minutes.
    assert!(summary.passed_ms > 180_000, "{}", summary.passed_ms);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(shipments(&stage).await, ["thrice"]);
}

#[tokio::test]
async fn what_is_due_later_can_be_left() {
    let mut stage = stage().await;
    stage.append(&accepted("thrice")).await;
    let summary = stage.run_due().await;
    let deferred = End::Deferred {
        kind: "retry".to_owned(),
        reason: Some("busy".to_owned()),
    };
    assert_eq!(summary.only("ship").end, deferred);
    assert_eq!(summary.only("ship").attempts, 1);
    stage.pass(Duration::from_secs(2 * 3_600));
    let summary = stage.run_due().await;
    assert_eq!(summary.only("ship").attempts, 2);
}

#[tokio::test]
async fn each_end_is_told() {
    let mut stage = stage().await;
    for order_id in ["fine", "refused", "broken", "person", "never"] {
        stage.append(&accepted(order_id)).await;
    }
    let summary = stage.drain().await;
    let ends: Vec<(&str, String, u32)> = summary
        .of("ship")
        .map(|m| (m.key.as_str(), m.end.to_string(), m.attempts))
        .collect();
    let told = [
        ("fine", "done", 1),
        ("refused", "rejected", 1),
        ("broken", "quarantined: permanent", 1),
        ("person", "deferred (operator): no_contract", 1),
        ("never", "quarantined: attempts_exhausted", 5),
    ];
    let told = told.map(|(key, end, attempts)| (key, end.to_owned(), attempts));
    assert_eq!(ends, told, "{summary}");
    let text = panic_of(async move { summary.assert_all_done() }).await;
    assert!(text.contains("3 message(s) did not end well"), "{text}");
    assert!(text.contains("the handler fails: no_contract"), "{text}");
}

#[tokio::test]
async fn what_is_stuck_is_shown() {
    let text = panic_of(async {
        let mut stage = Stage::sqlite().await;
        let hang = handler(|_, _| Box::pin(std::future::pending()));
        let ship = Subscription::new("ship", Semantics::EffectOnce);
        stage.subscribe(ship.on::<Accepted, _>(hang));
        stage.patience(Duration::from_millis(700));
        stage.append(&accepted("o-1")).await;
        stage.drain().await
    })
    .await;
    assert!(text.contains("does not come to rest"), "{text}");
    assert!(text.contains("ship: order.accepted of key o-1"), "{text}");
    assert!(text.contains("waiting, 1 attempt(s), 1 run(s)"), "{text}");
    assert!(text.contains("the handler runs"), "{text}");
}

#[tokio::test]
async fn what_never_ends_is_given_up() {
    let text = panic_of(async {
        let mut stage = Stage::sqlite().await;
        let limited = handler(|_, _| {
            Box::pin(async { Err(Failure::rate_limited(7 * 86_400_000, "come back in a week")) })
        });
        let forever = onceward::RetryPolicy {
            age_max_ms: u64::MAX / 4_000,
            ..HOURLY
        };
        let ship = Subscription::new("ship", Semantics::EffectOnce).retry(forever);
        stage.subscribe(ship.on::<Accepted, _>(limited));
        stage.horizon(Duration::from_secs(86_400));
        stage.append(&accepted("o-1")).await;
        stage.drain().await
    })
    .await;
    assert!(text.contains("more than 86400s on its clock"), "{text}");
    assert!(text.contains("deferred (retry): rate_limited"), "{text}");
}

#[tokio::test]
async fn a_planned_crash_strikes_once_and_is_told() {
    let mut stage = stage().await;
    stage.fault(Fault::Crash(Point::AfterCommit));
    stage.fault(Fault::Crash(Point::Before(Part::Handler)));
    stage.append(&accepted("o-1")).await;
    let summary = stage.drain().await;
    summary.assert_all_done();
    assert_eq!(shipments(&stage).await, ["o-1"]);
    let trail = summary.only("ship").trail.join(", ");
    assert_eq!(
        trail,
        "the handler runs, THE PROCESS DIES BEFORE THE HANDLER, the handler runs, committed, \
         THE PROCESS DIES RIGHT AFTER THE COMMIT"
    );
}

#[tokio::test]
async fn a_message_that_nobody_takes_is_not_taken_for_done() {
    let text = panic_of(async {
        let mut stage = Stage::sqlite().await;
        stage.subscribe(moody());
        stage.drain().await.assert_all_done();
    })
    .await;
    assert!(
        text.contains("no subscription of this stage takes"),
        "{text}"
    );
}
