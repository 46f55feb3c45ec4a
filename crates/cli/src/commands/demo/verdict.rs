//! The verdict: what the records say, compared with one another.

use std::collections::{BTreeMap, BTreeSet};

use onceward_orders::shop::Books;
use serde::{Deserialize, Serialize};

/// An answer that the generator got, as it kept it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The client's name for what it wanted.
    pub(super) checkout_id: String,
    /// The order that it was told.
    pub(super) order_id: String,
    /// The same answer had been given before.
    pub(super) is_replayed: bool,
}

/// Work that the carrier did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Booked {
    pub(super) operation: String,
    pub(super) booking: String,
}

/// The records of all sides. Each was written by somebody else.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// The client's.
    pub(super) answers: Vec<Answer>,
    /// The shop's.
    pub(super) books: Books,
    /// The carrier's.
    pub(super) bookings: Vec<Booked>,
    /// Repeats that the carrier answered from its record.
    pub(super) carrier_repeats: u64,
    /// Operations with an open case.
    pub(super) quarantined: BTreeSet<String>,
}

/// What the comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    /// Operations that were acknowledged.
    pub(super) accepted: u64,
    /// Orders with a shipment.
    pub(super) shipped: u64,
    /// Orders with a final refusal.
    pub(super) rejected: u64,
    /// Orders with an open case.
    pub(super) quarantined: u64,
    /// Orders whose status is not final and that have no case.
    pub(super) pending: u64,
    /// Acknowledged orders that are not there, and orders without a final outcome.
    pub(super) lost: u64,
    /// Operations with more than one order, outcome or booking.
    pub(super) doubled: u64,
    /// Operations that somebody worked on without an order.
    pub(super) unasked: u64,
    /// Repeats that were answered from a record instead of being done again.
    pub(super) duplicates_suppressed: u64,
    /// What is wrong, one by one.
    #[serde(skip)]
    pub(super) findings: Vec<Finding>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The operation, or the order where no operation is known.
    pub(super) what: String,
    /// What is wrong with it.
    pub(super) problem: String,
}

impl Verdict {
    /// Whether everything was done once.
    pub(super) const fn is_good(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.unasked == 0
    }

    fn find(&mut self, what: &str, problem: impl Into<String>) {
        self.findings.push(Finding {
            what: what.to_owned(),
            problem: problem.into(),
        });
    }
}

/// What each record says about one operation.
#[derive(Default)]
struct Operation<'a> {
    told: BTreeSet<&'a str>,
    orders: Vec<&'a str>,
    shipments: Vec<&'a str>,
    rejections: u64,
    bookings: Vec<&'a str>,
}

/// Compares the records.
pub(super) fn judge(records: &Records) -> Verdict {
    let mut verdict = Verdict {
        duplicates_suppressed: records.carrier_repeats
            + records.answers.iter().filter(|a| a.is_replayed).count() as u64,
        ..Verdict::default()
    };
    let operations = by_operation(records);
    for (name, operation) in &operations {
        verdict.accepted += u64::from(!operation.told.is_empty());
        once(&mut verdict, name, operation);
    }
    orders(&mut verdict, records);
    let known: BTreeSet<&str> = records.books.orders.iter().map(|o| o.0.as_str()).collect();
    for order_id in operations.values().flat_map(|o| &o.told) {
        if !known.contains(order_id) {
            verdict.lost += 1;
            verdict.find(order_id, "acknowledged, but there is no such order");
        }
    }
    verdict
}

fn by_operation(records: &Records) -> BTreeMap<&str, Operation<'_>> {
    let mut operations: BTreeMap<&str, Operation<'_>> = BTreeMap::new();
    for answer in &records.answers {
        let operation = operations.entry(&answer.checkout_id).or_default();
        operation.told.insert(&answer.order_id);
    }
    let books = &records.books;
    for (order_id, checkout_id, _) in &books.orders {
        operations
            .entry(checkout_id)
            .or_default()
            .orders
            .push(order_id);
    }
    for (_, checkout_id, booking) in &books.shipments {
        let operation = operations.entry(checkout_id).or_default();
        operation.shipments.push(booking);
    }
    for (_, checkout_id, _) in &books.rejections {
        operations.entry(checkout_id).or_default().rejections += 1;
    }
    for booked in &records.bookings {
        let operation = operations.entry(&booked.operation).or_default();
        operation.bookings.push(&booked.booking);
    }
    operations
}

/// Whether anything about one operation is there more than once, or without an order.
fn once(verdict: &mut Verdict, name: &str, operation: &Operation<'_>) {
    let shipments = operation.shipments.len() as u64;
    let bookings = operation.bookings.len() as u64;
    let mut doubled = Vec::new();
    let mut more = |count: u64, what: &str| {
        if count > 1 {
            doubled.push(format!("{count} {what}"));
        }
    };
    more(operation.told.len() as u64, "different answers");
    more(operation.orders.len() as u64, "orders");
    more(shipments, "shipments");
    more(operation.rejections, "rejections");
    more(bookings, "bookings at the carrier");
    if operation.rejections > 0 && shipments + bookings > 0 {
        doubled.push("rejected as well as shipped".to_owned());
    }
    if !doubled.is_empty() {
        verdict.doubled += 1;
        verdict.find(name, doubled.join(", "));
    }
    if operation.orders.is_empty() && shipments + bookings + operation.rejections > 0 {
        verdict.unasked += 1;
        verdict.find(name, "somebody worked on it, but there is no order");
    }
}

/// How each order ended.
fn orders(verdict: &mut Verdict, records: &Records) {
    let books = &records.books;
    let booked: BTreeSet<(&str, &str)> = records
        .bookings
        .iter()
        .map(|b| (b.operation.as_str(), b.booking.as_str()))
        .collect();
    let mut shipped: BTreeMap<&str, bool> = BTreeMap::new();
    for (order_id, checkout_id, booking) in &books.shipments {
        let is_known = booked.contains(&(checkout_id.as_str(), booking.as_str()));
        *shipped.entry(order_id).or_insert(true) &= is_known;
    }
    let rejected: BTreeSet<&str> = books.rejections.iter().map(|r| r.0.as_str()).collect();
    for (order_id, checkout_id, status) in &books.orders {
        let has_case = records.quarantined.contains(checkout_id);
        verdict.quarantined += u64::from(has_case);
        verdict.pending += u64::from(status == "accepted" && !has_case);
        match shipped.get(order_id.as_str()) {
            Some(is_known) => {
                verdict.shipped += 1;
                if !is_known {
                    verdict.lost += 1;
                    verdict.find(
                        checkout_id,
                        "shipped with a booking that the carrier has not",
                    );
                }
            }
            None if rejected.contains(order_id.as_str()) => verdict.rejected += 1,
            None => {
                verdict.lost += 1;
                let case = if has_case {
                    ", it is in quarantine"
                } else {
                    ""
                };
                verdict.find(checkout_id, format!("the order has no final outcome{case}"));
            }
        }
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
