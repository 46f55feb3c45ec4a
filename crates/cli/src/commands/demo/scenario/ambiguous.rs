//! The answer is lost after the effect happened: with a probe the carrier is asked, without one a
//! person decides.

use std::collections::BTreeSet;
use std::ffi::OsString;

use onceward::Outbox;
use onceward_core::store::Case;
use onceward_orders::carrier::{COUNTRIES, Line, read_record};
use onceward_orders::fulfilment::{Broken, FULFILMENT, ORDER_BOOK};
use onceward_orders::message::{Address, OrderAccepted};

use super::books::Judged;
use super::depot::Depot;
use super::stage::Stage;
use crate::commands::demo::parts::{Kind, Part};
use crate::commands::demo::verdict::{self, Answer, Booked};
use crate::error::{Code, Error};

/// Orders that are booked with a probe, and orders that are booked without one.
const ORDERS: usize = 12;
/// How long the consumer waits for the carrier, and how long that one is silent at most, in
/// milliseconds.
const TIMEOUT_MS: u32 = 150;
const STALL_MS: u32 = 1_200;

/// What the records say.
struct Records {
    /// Of all sides, at the end.
    all: verdict::Records,
    /// Operations that were booked with a probe at hand.
    with_probe: BTreeSet<String>,
    /// Cases of the others, by operation and reason.
    cases: Vec<(String, String)>,
    /// What the carrier had in its record of the others before anybody acted: booked, and asked
    /// again.
    before: (usize, usize),
}

fn failed<E>(text: &'static str) -> impl FnOnce(E) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| Error::new(Code::Demo, text).with_source(error)
}

pub(super) async fn play<S: Depot>(stage: &Stage<'_, S>) -> Result<Judged, Error> {
    stage.tell(&format!(
        "{ORDERS} orders are booked with a carrier that answers no first request in time: half of \
         them it has booked.\nThe probe asks it by the operation."
    ));
    let mut carrier = carrier(stage);
    carrier.start().await?;
    let mut with_probe = consumer(stage, &[]);
    with_probe.start().await?;
    let mut answers = order(stage, "probe").await?;
    let known = answers
        .iter()
        .map(|answer| answer.checkout_id.clone())
        .collect();
    until_booked(stage).await?;
    let one = &answers[0].checkout_id;
    stage.command(&["operation", "show", one]).await?;
    with_probe.stop().await?;
    stage.tell(&format!(
        "{ORDERS} more, by a consumer without a probe: nobody can tell, so each is a case, and \
         nothing is asked again."
    ));
    let mut without_probe = consumer(stage, &["--without-probe"]);
    without_probe.start().await?;
    let more = order(stage, "blind").await?;
    let blind: BTreeSet<String> = more
        .iter()
        .map(|answer| answer.checkout_id.clone())
        .collect();
    answers.extend(more);
    stage
        .until("each is a case or done", async || {
            let cases = stage.cases(FULFILMENT).await?.len();
            Ok(cases >= ORDERS || stage.broken.is_some() && is_booked(stage).await?)
        })
        .await?;
    stage.until_idle(FULFILMENT).await?;
    without_probe.stop().await?;
    let cases = stage.cases(FULFILMENT).await?;
    let before = carrier_has(stage, &blind)?;
    stage.command(&["quarantine", "list"]).await?;
    stage.tell("With the probe in service, they go back: it finds what was booked.");
    let mut again = consumer(stage, &[]);
    again.start().await?;
    if !cases.is_empty() {
        let args = [
            "quarantine",
            "release",
            "--subscription",
            FULFILMENT,
            "--yes",
            "--why",
            "the carrier can be asked now",
        ];
        stage.command(&args).await?;
    }
    until_booked(stage).await?;
    again.stop().await?;
    carrier.stop().await?;
    Ok(judge(&Records {
        all: collect(stage, answers).await?,
        with_probe: known,
        cases: cases.into_iter().map(named).collect(),
        before,
    }))
}

fn named(case: Case) -> (String, String) {
    (case.row.envelope.operation().to_owned(), case.reason)
}

fn carrier<S: Depot>(stage: &Stage<'_, S>) -> Part {
    let mut args: Vec<OsString> = vec![
        "--listen".into(),
        "127.0.0.1:0".into(),
        "--record".into(),
        stage.place.carrier_record().into(),
        "--address-file".into(),
        stage.place.carrier_address().into(),
        "--seed".into(),
        stage.seed.to_string().into(),
        "--stall-ms".into(),
        STALL_MS.to_string().into(),
        "--silent".into(),
    ];
    if stage.broken == Some(Broken::Doubling) {
        args.push("--forgetful".into());
    }
    stage.part(Kind::Carrier, args)
}

fn consumer<S: Depot>(stage: &Stage<'_, S>, more: &[&str]) -> Part {
    let mut args: Vec<OsString> = vec![
        "--carrier-file".into(),
        stage.place.carrier_address().into(),
        "--carrier-timeout-ms".into(),
        TIMEOUT_MS.to_string().into(),
        "--lease-ms".into(),
        "1500".into(),
        "--renew-ms".into(),
        "300".into(),
    ];
    match stage.broken {
        Some(Broken::Doubling) => args.extend(["--broken".into(), "doubling".into()]),
        Some(Broken::Losing) => args.extend(["--broken".into(), "losing".into()]),
        None => {}
    }
    args.extend(more.iter().map(OsString::from));
    stage.part(Kind::Consumer, args)
}

/// Accepts orders: row and message in one transaction.
async fn order<S: Depot>(stage: &Stage<'_, S>, name: &str) -> Result<Vec<Answer>, Error> {
    let cannot = "could not accept the orders";
    let store = stage.opened.store;
    let outbox = Outbox::new(store.clone());
    let mut answers = Vec::new();
    let mut tx = store.begin_shop().await.map_err(failed(cannot))?;
    for n in 1..=ORDERS {
        let order = OrderAccepted {
            order_id: format!("ord-{name}-{n}"),
            checkout_id: format!("checkout-{name}-{n}"),
            address: Address {
                country: COUNTRIES[n % COUNTRIES.len()].to_owned(),
                city: "Ghent".to_owned(),
                street: format!("Kai {n}"),
            },
        };
        S::insert_order(&mut tx, &order)
            .await
            .map_err(failed(cannot))?;
        outbox
            .append(&mut tx, &order)
            .await
            .map_err(failed(cannot))?;
        answers.push(Answer {
            checkout_id: order.checkout_id,
            order_id: order.order_id,
            is_replayed: false,
        });
    }
    S::commit_shop(tx).await.map_err(failed(cannot))?;
    Ok(answers)
}

async fn is_booked<S: Depot>(stage: &Stage<'_, S>) -> Result<bool, Error> {
    let counts = stage.opened.store.counts().await;
    Ok(counts.map_err(failed("could not count the orders"))?.open == 0)
}

/// Until every order has its end, or nothing more comes by itself.
async fn until_booked<S: Depot>(stage: &Stage<'_, S>) -> Result<(), Error> {
    for subscription in [FULFILMENT, ORDER_BOOK] {
        stage.until_idle(subscription).await?;
    }
    Ok(())
}

/// Of some operations: booked, and asked again.
fn carrier_has<S: Depot>(
    stage: &Stage<'_, S>,
    operations: &BTreeSet<String>,
) -> Result<(usize, usize), Error> {
    let (mut booked, mut repeated) = (0, 0);
    for line in carrier_lines(stage)? {
        match line {
            Line::Booked { operation, .. } if operations.contains(&operation) => booked += 1,
            Line::Repeated { operation } if operations.contains(&operation) => repeated += 1,
            _ => {}
        }
    }
    Ok((booked, repeated))
}

fn carrier_lines<S: Depot>(stage: &Stage<'_, S>) -> Result<Vec<Line>, Error> {
    let lines = read_record(&stage.place.carrier_record());
    lines.map_err(failed("could not read the carrier's record"))
}

async fn collect<S: Depot>(
    stage: &Stage<'_, S>,
    answers: Vec<Answer>,
) -> Result<verdict::Records, Error> {
    let books = stage.opened.store.books().await;
    let mut records = verdict::Records {
        answers,
        books: books.map_err(failed("could not read the shop's tables"))?,
        ..verdict::Records::default()
    };
    for line in carrier_lines(stage)? {
        match line {
            Line::Booked {
                operation, booking, ..
            } => records.bookings.push(Booked { operation, booking }),
            Line::Repeated { .. } => records.carrier_repeats += 1,
        }
    }
    Ok(records)
}

fn judge(records: &Records) -> Judged {
    let verdict = verdict::judge(&records.all);
    let mut judged = Judged::of_orders(&verdict);
    let shipments = &records.all.books.shipments;
    let of_probe = shipments
        .iter()
        .filter(|row| records.with_probe.contains(&row.1));
    judged.claim_count(
        "with a probe: orders whose answer was lost, and that are shipped",
        of_probe.count(),
        records.with_probe.len(),
    );
    judged.claim(
        "the probe found bookings by the operation",
        records.all.carrier_repeats > 0,
        format!(
            "{} answered from the carrier's record",
            records.all.carrier_repeats
        ),
    );
    let ambiguous = records.cases.iter().filter(|case| case.1 == "ambiguous");
    judged.claim_count(
        "without a probe: orders that became cases, ambiguous",
        ambiguous.count(),
        ORDERS,
    );
    let (booked, again) = records.before;
    judged.claim(
        "whether the carrier had booked them or not, it was asked for none a second time",
        again == 0,
        format!("{booked} of {ORDERS} booked, {again} asked again"),
    );
    judged.claim_count(
        "all of them shipped at the end",
        shipments.len(),
        2 * ORDERS,
    );
    judged
}

#[cfg(test)]
mod tests {
    use super::super::books::tests::unmet;
    use super::*;

    fn records() -> Records {
        let mut records = Records {
            all: verdict::Records {
                carrier_repeats: 9,
                ..verdict::Records::default()
            },
            with_probe: BTreeSet::new(),
            cases: Vec::new(),
            before: (5, 0),
        };
        for n in 0..2 * ORDERS {
            let (order_id, checkout_id) = (format!("ord-{n}"), format!("c-{n}"));
            let booking = format!("bk-{n}");
            match n < ORDERS {
                true => drop(records.with_probe.insert(checkout_id.clone())),
                false => records
                    .cases
                    .push((checkout_id.clone(), "ambiguous".to_owned())),
            }
            let all = &mut records.all;
            all.answers.push(Answer {
                checkout_id: checkout_id.clone(),
                order_id: order_id.clone(),
                is_replayed: false,
            });
            all.bookings.push(Booked {
                operation: checkout_id.clone(),
                booking: booking.clone(),
            });
            let books = &mut all.books;
            books
                .orders
                .push((order_id.clone(), checkout_id.clone(), "shipped".to_owned()));
            books.shipments.push((order_id, checkout_id, booking));
        }
        records
    }

    fn faults(change: impl FnOnce(&mut Records)) -> usize {
        let mut records = records();
        change(&mut records);
        let judged = judge(&records);
        assert!(!judged.is_good());
        unmet(&judged).len()
    }

    #[test]
    fn the_verdict_can_fail() {
        assert!(judge(&records()).is_good());
        assert_eq!(faults(|r| r.all.carrier_repeats = 0), 1);
        assert_eq!(faults(|r| drop(r.cases.pop())), 1);
        assert_eq!(faults(|r| r.cases[0].1 = "transient".to_owned()), 1);
        assert_eq!(faults(|r| r.before = (5, 1)), 1, "asked a second time");
        assert_eq!(faults(|r| drop(r.all.books.shipments.pop())), 1);
        assert_eq!(faults(|r| drop(r.all.books.shipments.remove(0))), 2);
        let second = |r: &mut Records| {
            r.all.bookings.push(Booked {
                operation: "c-3".to_owned(),
                booking: "bk-99".to_owned(),
            });
        };
        assert_eq!(faults(second), 0, "one is doubled");
    }
}
