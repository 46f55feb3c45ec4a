//! What is once passes under every fault; what is not is found, with the faults that show it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use onceward::postgres::Postgres;
use onceward::sqlite::Sqlite;
use onceward::{
    Call, Context, Deliver, Delivery, Failure, OnPoison, Probe, Semantics, Subscription,
};
use onceward_testkit::handlers::assert_effect_once;

use crate::place::{
    Accepted, HOURLY, Shipped, accepted, handler, panic_of, shipments, with_table, write,
};

/// What reached the outside.
type Outside = Arc<Mutex<Vec<String>>>;

fn seen(outside: &Outside) -> Vec<String> {
    let mut seen = outside.lock().unwrap().clone();
    seen.sort();
    seen
}

#[tokio::test]
async fn a_handler_that_keeps_to_its_transaction_passes_under_every_fault() {
    let swept = assert_effect_once(async |trial| {
        let mut stage = with_table(trial.sqlite().await).await;
        let ship = handler(|cx, order| {
            Box::pin(async move {
                write(cx, &order.order_id).await?;
                cx.append(&Shipped {
                    order_id: order.order_id,
                })
            })
        });
        stage.subscribe(
            Subscription::new("ship", Semantics::EffectOnce)
                .on::<Accepted, _>(ship)
                .retry(HOURLY),
        );
        stage
            .subscribe(Subscription::new("track", Semantics::EffectOnce).on::<Shipped, _>(tracked));
        stage.append(&accepted("o-1")).await;
        stage.drain().await.assert_all_done();
        shipments(&stage).await
    })
    .await;
    let struck = swept.struck.join("\n");
    for fault in [
        "the message is appended twice",
        "the message is appended again when all is done",
        "dies before the handler, in ship",
        "dies after the handler, before the commit, in ship",
        "dies right before the commit, in ship",
        "dies right after the commit, in ship",
        "the commit is refused for a conflict, in track",
        "the answer to the commit is lost, in track",
    ] {
        assert!(struck.contains(fault), "{fault} did not strike:\n{struck}");
    }
}

async fn tracked(cx: &mut Context<Sqlite>, shipped: Shipped) -> Result<(), Failure> {
    write(cx, &format!("{} tracked", shipped.order_id)).await
}

#[tokio::test]
async fn an_effect_outside_the_transaction_is_found() {
    let text = panic_of(assert_effect_once(async |trial| {
        let mut stage = with_table(trial.sqlite().await).await;
        let mails = Outside::default();
        let sent = Arc::clone(&mails);
        let ship = handler(move |cx, order| {
            let sent = Arc::clone(&sent);
            Box::pin(async move {
                // Not in the transaction: a mail cannot be taken back.
                sent.lock().unwrap().push(order.order_id.clone());
                write(cx, &order.order_id).await
            })
        });
        stage.subscribe(Subscription::new("ship", Semantics::EffectOnce).on::<Accepted, _>(ship));
        stage.append(&accepted("o-1")).await;
        stage.drain().await;
        (shipments(&stage).await, seen(&mails))
    }))
    .await;
    for fault in [
        "when the process dies after the handler, before the commit, in ship at order.accepted",
        "when the process dies right before the commit",
        "when the commit is refused for a conflict",
        r#"ended with (["o-1"], ["o-1", "o-1"])"#,
        r#"Undisturbed it ends with (["o-1"], ["o-1"])"#,
        "becomes a Call with a probe",
    ] {
        assert!(text.contains(fault), "not in it: {fault}\n{text}");
    }
    // What happens after the commit repeats nothing.
    assert!(
        !text.contains("when the process dies right after the commit"),
        "{text}"
    );
    assert!(!text.contains("appended twice"), "{text}");
}

#[tokio::test]
async fn an_effect_that_gets_lost_is_found() {
    let text = panic_of(assert_effect_once(async |trial| {
        let mut stage = with_table(trial.sqlite().await).await;
        let remembered = Arc::new(Mutex::new(BTreeSet::new()));
        let ship = handler(move |cx, order| {
            let is_new = remembered.lock().unwrap().insert(order.order_id.clone());
            Box::pin(async move {
                // Remembers in its process what it believes to have done.
                match is_new {
                    true => write(cx, &order.order_id).await,
                    false => Ok(()),
                }
            })
        });
        stage.subscribe(Subscription::new("ship", Semantics::EffectOnce).on::<Accepted, _>(ship));
        stage.append(&accepted("o-1")).await;
        stage.drain().await.assert_all_done();
        shipments(&stage).await
    }))
    .await;
    assert!(text.contains("ended with []"), "{text}");
    assert!(text.contains("the commit is refused"), "{text}");
}

/// Books somewhere else, with or without looking for the key it was given.
struct Carrier {
    bookings: Outside,
    knows_keys: bool,
}

impl Call<Sqlite> for Carrier {
    type Message = Accepted;
    type Answer = ();
    type Reply = ();

    async fn call(&self, operation: &str, _: &Accepted) -> Result<(), Failure> {
        self.bookings.lock().unwrap().push(operation.to_owned());
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn probe(&self, operation: &str, _: &Accepted) -> Result<Probe<()>, Failure> {
        let is_booked = self.bookings.lock().unwrap().iter().any(|b| b == operation);
        Ok(match is_booked && self.knows_keys {
            true => Probe::Happened(()),
            false => Probe::DidNotHappen,
        })
    }

    async fn outcome(
        &self,
        cx: &mut Context<Sqlite>,
        order: Accepted,
        (): (),
    ) -> Result<(), Failure> {
        write(cx, &order.order_id).await
    }
}

async fn booking(knows_keys: bool, trial: onceward_testkit::handlers::Trial) -> (usize, usize) {
    let mut stage = with_table(trial.sqlite().await).await;
    let bookings = Outside::default();
    let carrier = Carrier {
        bookings: Arc::clone(&bookings),
        knows_keys,
    };
    let book = Subscription::new("book", Semantics::EffectOnce).call(carrier);
    stage.subscribe(book.retry(HOURLY).on_poison(OnPoison::Skip));
    stage.append(&accepted("o-1")).await;
    stage.drain().await.assert_all_done();
    (seen(&bookings).len(), shipments(&stage).await.len())
}

#[tokio::test]
async fn a_call_whose_probe_tells_the_truth_passes() {
    let swept = assert_effect_once(async |trial| booking(true, trial).await).await;
    let struck = swept.struck.join("\n");
    for point in [
        "before the call",
        "within the call",
        "after the call",
        "before the outcome",
    ] {
        assert!(struck.contains(point), "no crash {point}:\n{struck}");
    }
}

#[tokio::test]
async fn a_call_whose_probe_lies_is_found() {
    let sweep = assert_effect_once(async |trial| booking(false, trial).await);
    let text = panic_of(sweep).await;
    assert!(
        text.contains("when the process dies after the call"),
        "{text}"
    );
    assert!(text.contains("ended with (2, 1)"), "{text}");
}

struct Relay(Outside);

impl Deliver for Relay {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Failure> {
        self.0
            .lock()
            .unwrap()
            .push(delivery.row.envelope.id.clone());
        Ok(())
    }
}

#[tokio::test]
async fn a_delivery_is_at_least_once_and_no_more_is_claimed() {
    let text = panic_of(assert_effect_once(async |trial| {
        let mut stage = trial.sqlite().await;
        let out = Outside::default();
        let relay = Subscription::new("relay", Semantics::AtLeastOnce);
        stage.subscribe(relay.deliver(["order.accepted"], Relay(Arc::clone(&out))));
        stage.append(&accepted("o-1")).await;
        stage.drain().await.assert_all_done();
        let delivered = seen(&out).len();
        assert!(delivered > 0, "nothing is lost");
        delivered
    }))
    .await;
    assert!(text.contains("appended twice"), "{text}");
    assert!(text.contains("dies after the delivery"), "{text}");
    assert!(!text.contains("nothing is lost"), "{text}");
}

#[tokio::test]
async fn a_scenario_without_a_handler_shows_nothing_and_says_so() {
    let sweep = assert_effect_once(async |trial| {
        let stage = trial.memory().await;
        stage.store().rows("shipments")
    });
    let text = panic_of(sweep).await;
    assert!(text.contains("no handler ran"), "{text}");
}

async fn ship_on_postgres(cx: &mut Context<Postgres>, order: Accepted) -> Result<(), Failure> {
    sqlx::query("insert into shipments (order_id) values ($1)")
        .bind(order.order_id)
        .execute(cx.tx())
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_handler_on_postgresql_passes_under_every_fault() {
    let swept = assert_effect_once(async |trial| {
        let mut stage = trial.postgres().await;
        sqlx::query("create table shipments (order_id text not null)")
            .execute(stage.store().pool())
            .await
            .unwrap();
        let ship = Subscription::new("ship", Semantics::EffectOnce);
        stage.subscribe(ship.on::<Accepted, _>(ship_on_postgres));
        stage.append(&accepted("o-1")).await;
        stage.drain().await.assert_all_done();
        let shipments = sqlx::query_scalar::<_, String>("select order_id from shipments");
        shipments.fetch_all(stage.store().pool()).await.unwrap()
    })
    .await;
    assert!(swept.struck.len() >= 8, "{swept:?}");
}
